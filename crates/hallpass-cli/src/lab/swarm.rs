//! `hallpass lab swarm`: runs whole nodes under faults, with a progress bar.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hallpass_lab::{Failure, SwarmReport, SwarmSpec, swarm};
use hallpass_sim::cluster::{self, Bug, Cut, FaultKind};

use super::serve;
use crate::cli::SwarmArgs;
use crate::exit::{self, Fault, Outcome};
use crate::terminal::{self, Facts, Paint, count, grouped, rate};

pub(super) fn run(args: &SwarmArgs) -> Result<Outcome, Fault> {
    if let Some(members) = args.members {
        return large(members.into(), args.json);
    }
    let spec = spec(args)?;
    let began = Instant::now();
    let bar = terminal::progress_bar(if spec.stop_after.is_some() { "seconds" } else { "runs" });
    bar.set_length(spec.stop_after.map_or(spec.seeds.end - spec.seeds.start, |time| time.as_secs()));
    // A panic in a run counts as a violation and is reported with its seed.
    exit::silence_panics();
    let report = swarm(&spec, |runs, violations| {
        bar.set_position(if spec.stop_after.is_some() { began.elapsed().as_secs() } else { runs });
        bar.set_message(format!("{} runs, {}", grouped(runs), count(violations, "violation", "violations")));
    });
    exit::report_panics_in_one_line();
    bar.finish_and_clear();
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&report))?;
    } else {
        terminal::print(&summary(&report, began.elapsed()))?;
        if spec.seeds.end - spec.seeds.start == 1 && spec.bug.is_none() && report.violations > 0 {
            terminal::print(&last_events(&spec, args.events))?;
        }
    }
    Ok(if report.violations == 0 { Outcome::Fine } else { Outcome::Violated })
}

/// One group of many members.
fn large(members: usize, json: bool) -> Result<Outcome, Fault> {
    let began = Instant::now();
    let report = cluster::run_large(members);
    let violation = report.violation.as_ref().map(ToString::to_string);
    let simulated = report.duration as f64 / 1e9;
    if json {
        let document = serde_json::json!({
            "members": members, "epoch": report.epoch, "simulated_s": simulated, "violation": violation,
        });
        terminal::print_json(serde_json::to_string_pretty(&document))?;
    } else {
        let mut facts = Facts::new();
        facts.add("members", grouped(members as u64));
        facts.add("epoch at the end", grouped(report.epoch));
        facts.add("simulated", format!("{simulated:.1} s, in {:.1} s", began.elapsed().as_secs_f64()));
        let paint = Paint::stdout();
        let verdict = match &violation {
            None => paint.green("all came together, and again after one had died and returned"),
            Some(violation) => paint.red(violation),
        };
        terminal::print(&format!("{}\n\n{}\n{verdict}\n", paint.bold("a large group"), facts.render()))?;
    }
    Ok(if violation.is_none() { Outcome::Fine } else { Outcome::Violated })
}

fn spec(args: &SwarmArgs) -> Result<SwarmSpec, Fault> {
    let faults = args.keep_faults.as_ref().map(|kept| kept.0.clone());
    let cut = Cut { nodes: args.nodes.map(usize::from), callers: args.callers.map(usize::from), faults };
    let bug = args.bug.as_deref().and_then(Bug::named);
    Ok(SwarmSpec { cut, bug, ..seeds(args)? })
}

fn seeds(args: &SwarmArgs) -> Result<SwarmSpec, Fault> {
    match (&args.seeds, args.minutes) {
        (Some(seeds), _) => Ok(SwarmSpec::parse(seeds)?),
        (None, minutes) => {
            // Seeds from the current time, so that every swarm makes new runs; a failure prints the command that repeats it.
            let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let time = Duration::from_secs(60 * u64::from(minutes.unwrap_or(1)));
            Ok(SwarmSpec::lasting(seconds * 1_000_000, time))
        }
    }
}

fn summary(report: &SwarmReport, took: Duration) -> String {
    let paint = Paint::stdout();
    let mut facts = Facts::new();
    facts.add("runs", format!("{} ({} per second)", grouped(report.runs), rate(report.runs, took.as_secs_f64())));
    facts.add("simulated", format!("{} s of virtual time", grouped(report.simulated / 1_000_000_000)));
    facts.add("grants", grouped(report.grants));
    for (kind, number) in FaultKind::ALL.iter().zip(report.faults) {
        facts.add(kind.name(), grouped(number));
    }
    let title = paint.bold("whole nodes under faults");
    format!("{title}\n\n{}\n{}", facts.render(), verdict(&paint, report))
}

fn verdict(paint: &Paint, report: &SwarmReport) -> String {
    let Some(Failure { seed, violation, command }) = &report.first_failure else {
        return paint.green("no violation in any run") + "\n";
    };
    let failed = format!("{} of {} failed", grouped(report.violations), count(report.runs, "run", "runs"));
    let first = paint.red(&format!("{failed}, first seed {seed}: {violation}"));
    let others = report.failures.iter().filter(|failure| failure.seed != *seed);
    let others: String = others.map(|failure| format!("  {}: {}\n", failure.seed, failure.violation)).collect();
    let others = if others.is_empty() { others } else { format!("\nother seeds that failed:\n{others}") };
    let kinds = report.kinds.iter().filter(|_| report.kinds.len() > 1);
    let kinds =
        kinds.map(|kind| format!("  {} from seed {} on: {}\n", grouped(kind.runs), kind.first_seed, kind.violation));
    let kinds: String = kinds.collect();
    let kinds = if kinds.is_empty() { kinds } else { format!("\nfailed runs by kind:\n{kinds}") };
    let link = serve::invitation("swarm", &words(*seed, command));
    format!("{first}\n\nthis command repeats it:\n  {command}\n{others}{kinds}{link}")
}

/// The options of the command that repeats a run, as words of a link.
fn words(seed: u64, command: &str) -> Vec<String> {
    let options = command.split(" --").skip(1).filter_map(|option| option.split_once(' '));
    let kept = options.filter(|(name, _)| *name != "seeds").map(|(name, value)| format!("{name}={value}"));
    std::iter::once(format!("seed={seed}")).chain(kept).collect()
}

/// The last events of a run. Not for a run that panics: its panic is printed instead.
fn last_events(spec: &SwarmSpec, most: usize) -> String {
    exit::report_panics_in_one_line();
    let events = cluster::run_logged(spec.seeds.start, &spec.cut).log;
    let from = events.len().saturating_sub(most);
    let lines: String = events[from..].iter().map(|line| format!("{line}\n")).collect();
    format!("\nthe last events:\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_command_away() {
        let command = "hallpass lab swarm --seeds 7..8".to_owned();
        let failure = Failure { seed: 7, violation: "exclusion: two".to_owned(), command };
        let report = SwarmReport { runs: 10, violations: 2, first_failure: Some(failure), ..SwarmReport::default() };
        let text = summary(&report, Duration::from_secs(1));
        assert!(text.contains("2 of 10 runs failed, first seed 7: exclusion: two"), "{text}");
        assert!(text.contains("this command repeats it:\n  hallpass lab swarm --seeds 7..8\n"), "{text}");
        assert!(text.ends_with("/#swarm?seed=7\n"), "{text}");
        let cut = words(7, "hallpass lab swarm --seeds 7..8 --nodes 3 --keep-faults 4,9 --bug late-ack");
        assert_eq!(cut, ["seed=7", "nodes=3", "keep-faults=4,9", "bug=late-ack"]);
    }
}
