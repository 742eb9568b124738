//! `hallpass lab claims`: the papers' values and the measured ones.

use comfy_table::{ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};
use hallpass_lab::claims::{self, ClaimsSpec, Progress, Row};
use indicatif::ProgressBar;

use crate::cli::ClaimsArgs;
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, Paint, count};

pub(super) fn run(args: &ClaimsArgs) -> Result<Outcome, Fault> {
    let spec = ClaimsSpec { full: args.full, only: args.only.clone(), mutation: None };
    let bar = terminal::progress_bar("claims");
    let rows = claims::run(&spec, |progress| show(&bar, &progress));
    bar.finish_and_clear();
    if let (Some(only), true) = (&args.only, rows.is_empty()) {
        return Err(Fault::Usage(format!(
            "there is no claim '{only}', unless it needs --full; ids look like RA-14 or RA-14/safe-3"
        )));
    }
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&rows))?;
    } else {
        terminal::print(&report(&rows))?;
    }
    Ok(if rows.iter().all(|row| row.ok) { Outcome::Fine } else { Outcome::Violated })
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
    bar.set_message(progress.current.clone());
}

fn report(rows: &[Row]) -> String {
    let paint = Paint::stdout();
    let off = rows.iter().filter(|row| !row.ok).count();
    let all = count(rows.len() as u64, "claim", "claims");
    let verdict = match off {
        0 => paint.green(&format!("{all} measured, all agree with the papers")),
        _ => paint.red(&format!("{off} of {all} off")),
    };
    format!("{}\n{verdict}\n", table(rows, &paint))
}

const HEADER: [&str; 5] = ["id", "claim", "paper", "measured", "verdict"];

fn table(rows: &[Row], paint: &Paint) -> String {
    let mut table = Table::new();
    // Only a line below the header, so that rows are easy to read and to grep.
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'))).set_header(HEADER);
    for row in rows {
        table.add_row([&*row.id, &row.claim, &row.expected, &row.measured, verdict(row)]);
    }
    // Long texts are wrapped to fit a terminal; elsewhere each claim stays on one line.
    if let Some((_, columns)) = console::Term::stdout().size_checked() {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
        for whole in [0, 4] {
            table.column_mut(whole).expect("there are five columns").set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    paint_verdicts(&table.to_string(), paint)
}

fn verdict(row: &Row) -> &'static str {
    if row.ok { "ok" } else { "OFF" }
}

/// Colours the last column. The table knows no colours, so the column is found by the position of its heading.
fn paint_verdicts(table: &str, paint: &Paint) -> String {
    let column = table.lines().next().and_then(|header| header.find(HEADER[4])).unwrap_or(usize::MAX);
    let mut out = String::new();
    for line in table.lines().map(str::trim_end) {
        let split = line.char_indices().map(|(index, _)| index).nth(column).unwrap_or(line.len());
        let (before, verdict) = line.split_at(split);
        out += before;
        out += &match verdict {
            "ok" => paint.green(verdict),
            "OFF" => paint.red(verdict),
            _ => verdict.to_owned(),
        };
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, ok: bool) -> Row {
        Row { id: id.into(), claim: "2(N-1) messages, π".into(), expected: "8".into(), measured: "8".into(), ok }
    }

    #[test]
    fn each_claim_has_a_line_and_its_verdict() {
        let text = table(&[row("RA-1", true), row("RA-14/detail", false)], &Paint::stdout());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[2].contains("RA-1 ") && lines[2].ends_with("ok"), "{text}");
        assert!(lines[3].contains("RA-14/detail") && lines[3].ends_with("OFF"), "{text}");
    }

    #[test]
    fn the_last_line_counts_the_claims_that_are_off() {
        assert!(report(&[row("RA-1", true)]).ends_with("1 claim measured, all agree with the papers\n"));
        assert!(report(&[row("RA-1", true), row("RA-2", false)]).ends_with("1 of 2 claims off\n"));
    }
}
