//! The figures as tables for a terminal.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use console::style;
use hallpass_bench::{ChangeFigures, Figures, Report};
use indicatif::HumanCount;

const WORKLOADS: [(&str, &str); 9] = [
    ("round-trip", "32 bytes there and back, no lock"),
    ("uncontended", "One caller, a free lock that others have held since"),
    ("hot", "One caller, the same lock again"),
    ("hot-checked", "The same, and it is told whether it has held the lock until the end"),
    ("hot-shared", "One caller a host, the same lock shared"),
    ("contended-3", "3 callers, one lock"),
    ("contended-8", "8 callers, one lock"),
    ("contended-32", "32 callers, one lock"),
    ("rotating-32", "32 callers, 32 locks in turn"),
];

pub(crate) fn render(report: &Report) -> String {
    let mut text = String::new();
    for (workload, title) in WORKLOADS {
        let rows: Vec<&Figures> = report.figures.iter().filter(|figures| figures.workload == workload).collect();
        if !rows.is_empty() {
            text += &format!("{}\n{}\n\n", style(title).bold(), table(report, &rows));
        }
    }
    if !report.changes.is_empty() {
        let title = style("Until locks are granted when a group changes").bold();
        text += &format!("{title}\n{}\n\n", changes(&report.changes));
    }
    text += &format!("{}\n", style("hallpass against its goals").bold());
    for goal in &report.goals {
        let bound = if goal.at_most { "at most" } else { "at least" };
        let verdict = if goal.met { style("met").green() } else { style("missed").red().bold() };
        text += &format!("  {:<71} {:>9.2}  ({bound} {})  {verdict}\n", goal.goal, goal.measured, goal.wanted);
    }
    let facts = [
        ("rounds", format!("{} of {} s a measurement, medians", report.rounds, report.seconds)),
        ("machine", format!("{} cores, load before {:.1}", report.cores, report.load_before)),
        ("violations", HumanCount(report.violations).to_string()),
    ];
    let fact = |(name, value)| format!("  {}  {value}\n", style(format!("{name:<10}")).dim());
    text + "\n" + &facts.map(fact).concat()
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    table
}

fn align(mut table: Table) -> String {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn changes(rows: &[ChangeFigures]) -> String {
    let mut table = new_table();
    table.set_header(["", "p50 ms", "max ms", "times"]);
    for row in rows {
        table.add_row(vec![row.title.clone(), short(row.p50_ms), short(row.max_ms), row.runs.to_string()]);
    }
    align(table)
}

fn table(report: &Report, rows: &[&Figures]) -> String {
    let mut table = new_table();
    let heads = [
        "",
        "p50 us",
        "p99 us",
        "trips",
        "grants/s",
        "changed hands/s",
        "handover us",
        "cpu ms/1000",
        "MB",
        "messages",
        "hallpass x",
    ];
    table.set_header(heads);
    for row in rows {
        let ratio = report.ratios.iter().find(|ratio| ratio.peer == row.system && ratio.workload == row.workload);
        table.add_row(vec![
            row.system.clone(),
            short(row.p50_us),
            short(row.p99_us),
            format!("{:.2}", row.round_trips),
            whole(row.grants_per_second),
            row.changed_hands_per_second.map_or_else(String::new, whole),
            row.handover_p50_us.map_or_else(String::new, short),
            format!("{:.2}", row.cpu_seconds_per_1000_grants * 1000.0),
            format!("{:.0}", row.memory_bytes as f64 / 1e6),
            row.messages_per_grant.map_or_else(String::new, |messages| format!("{messages:.2}")),
            ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.rate)),
        ]);
    }
    align(table)
}

/// As many digits as are significant: `0.093`, `8.2`, `1,042`.
fn short(value: f64) -> String {
    match value {
        100.0.. => whole(value),
        1.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

fn whole(value: f64) -> String {
    HumanCount(value.round() as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0.0931, 8.21, 104.4, 1_042.0].map(short), ["0.093", "8.2", "104", "1,042"]);
    }
}
