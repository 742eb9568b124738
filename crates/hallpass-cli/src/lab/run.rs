//! `hallpass lab run`: makes one simulated run and prints a summary.

use std::time::{Duration, Instant};

use hallpass_lab::{RunSpec, simulate_watched};
use hallpass_sim::{Latency, Report, format_duration};

use super::warnings;
use crate::cli::LabRunArgs;
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, Facts, Paint, count, grouped, rate};

/// A run that takes longer shows how far it is.
const BAR_AFTER: Duration = Duration::from_secs(1);
/// With more nodes than this, only the extremes are shown.
const NODES_LISTED_MAX: usize = 8;
/// How many kinds of messages fit on one line of a terminal.
const KINDS_PER_LINE: usize = 4;
/// More violations than this are counted, not listed.
const VIOLATIONS_LISTED_MAX: usize = 10;

pub(super) fn run(args: &LabRunArgs) -> Result<Outcome, Fault> {
    let spec = args.settings.of(&args.protocol);
    let began = Instant::now();
    let report = simulate_with_bar(&spec)?;
    let seconds = began.elapsed().as_secs_f64();
    warnings::warn(&spec.options, spec.nodes);
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&report))?;
    } else {
        terminal::print(&summary(&spec, &report, seconds))?;
    }
    Ok(outcome(&report))
}

/// Simulates, with a progress bar on a terminal once it takes longer than a moment.
pub(super) fn simulate_with_bar(spec: &RunSpec) -> Result<Report, Fault> {
    let began = Instant::now();
    let mut bar = None;
    let report = simulate_watched(spec, |entries| {
        if began.elapsed() >= BAR_AFTER {
            let bar = bar.get_or_insert_with(|| terminal::progress_bar("entries"));
            bar.set_length(spec.entries);
            bar.set_position(entries);
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(report?)
}

pub(super) fn outcome(report: &Report) -> Outcome {
    if report.violations.is_empty() { Outcome::Fine } else { Outcome::Violated }
}

fn summary(spec: &RunSpec, report: &Report, seconds: f64) -> String {
    let paint = Paint::stdout();
    let title = format!("{}, {}, seed {}", report.protocol, count(report.nodes as u64, "node", "nodes"), report.seed);
    format!("{}\n\n{}\n{}", paint.bold(&title), facts(spec, report, seconds).render(), verdict(&paint, spec, report))
}

fn facts(spec: &RunSpec, report: &Report, seconds: f64) -> Facts {
    let mut facts = Facts::new();
    facts.add("entries", grouped(report.entries));
    if report.abandoned > 0 {
        facts.add("abandoned", format!("{} (their nodes crashed or left)", grouped(report.abandoned)));
    }
    facts.add("messages", grouped(report.messages));
    facts.add("messages per entry", figure(report.messages_per_entry));
    let kinds: Vec<String> =
        report.messages_by_kind.iter().map(|(kind, count)| format!("{kind} {}", grouped(*count))).collect();
    for (number, line) in kinds.chunks(KINDS_PER_LINE).enumerate() {
        facts.add(if number == 0 { "by kind" } else { "" }, line.join(", "));
    }
    let (sync, response) = (&report.sync_delay, &report.response_time);
    facts.add("sync delay", format!("mean {} T, max {} T", figure(sync.mean), figure(sync.max)));
    let quantiles = [("mean", response.mean), ("p50", response.p50), ("p99", response.p99), ("max", response.max)];
    facts.add("response time", quantiles.map(|(name, value)| format!("{name} {} T", figure(value))).join(", "));
    facts.add("entries by node", by_node(&report.entries_by_node));
    facts.add("max overtakes", grouped(report.max_overtakes));
    facts.add("virtual time", virtual_time(spec, report.duration));
    facts.add("events", format!("{} ({} per second)", grouped(report.events), rate(report.events, seconds)));
    facts
}

fn verdict(paint: &Paint, spec: &RunSpec, report: &Report) -> String {
    let violations = &report.violations;
    if violations.is_empty() {
        return paint.green("no violation") + "\n";
    }
    let mut text = paint.red(&count(violations.len() as u64, "violation", "violations")) + "\n";
    for violation in violations.iter().take(VIOLATIONS_LISTED_MAX) {
        text += &format!("  {}\n", paint.red(&violation.to_string()));
    }
    if let Some(more @ 1..) = violations.len().checked_sub(VIOLATIONS_LISTED_MAX) {
        text += &format!("  and {} more\n", grouped(more as u64));
    }
    let command = spec.command().replacen("lab run", "lab trace", 1);
    text + &paint.dim(&format!("to see it: {command} --format html --out run.html")) + "\n"
}

/// Each node's entries; only the extremes if there are many nodes.
fn by_node(entries: &[(u32, u64)]) -> String {
    if entries.len() <= NODES_LISTED_MAX {
        let each: Vec<String> = entries.iter().map(|(node, count)| format!("{node}: {}", grouped(*count))).collect();
        return each.join(", ");
    }
    let least = entries.iter().min_by_key(|(_, count)| *count);
    // Of several nodes with the most, the first, as with the least.
    let most = entries.iter().rev().max_by_key(|(_, count)| *count);
    let (Some((least_node, least)), Some((most_node, most))) = (least, most) else { return String::new() };
    format!("min {} (node {least_node}), max {} (node {most_node})", grouped(*least), grouped(*most))
}

fn virtual_time(spec: &RunSpec, duration: f64) -> String {
    // The run was accepted, so its latency is valid.
    let tick = Latency::parse(&spec.latency).map_or(0, |latency| latency.mean());
    format!("{} T, {:.3} s at T = {}", figure(duration), duration * tick as f64 / 1e9, format_duration(tick))
}

/// At most three decimals, without trailing zeros.
fn figure(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!([4.0, 5.976, 0.0, 10.5].map(figure), ["4", "5.976", "0", "10.5"]);
    }

    #[test]
    fn of_many_nodes_only_the_extremes_are_shown() {
        assert_eq!(by_node(&[(1, 334), (2, 333)]), "1: 334, 2: 333");
        let many: Vec<(u32, u64)> = (1..=20).map(|node| (node, 50 + u64::from(node % 3))).collect();
        assert_eq!(by_node(&many), "min 50 (node 3), max 52 (node 2)");
    }
}
