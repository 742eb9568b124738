//! `hallpass lab trace`: a space-time diagram of a scenario or of a run.

use std::io::{self, IsTerminal};

use hallpass_lab::RunSpec;
use hallpass_lab::scenario::{self, CommandOutcome, Playback, SHIPPED};
use hallpass_sim::trace::{self, Trace};

use super::run::{outcome, simulate_with_bar};
use super::warnings;
use crate::cli::{Format, TraceArgs};
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, count};

/// Viewers take their time over a trace of this many bytes.
const LARGE: usize = 20_000_000;

pub(super) fn run(args: &TraceArgs) -> Result<Outcome, Fault> {
    let format = if args.json { Format::Json } else { args.format };
    let (text, outcome) = match (args.list, &args.scenario, &args.protocol) {
        (true, ..) => (list(format), Outcome::Fine),
        (_, Some(name), _) => draw_scenario(name, format)?,
        (_, _, Some(protocol)) => draw_run(protocol, args, format)?,
        _ => {
            return Err(Fault::Usage(
                "there is nothing to draw; give --scenario NAME (see --list) or --protocol P".to_owned(),
            ));
        }
    };
    announce_size(text.len(), args.out.is_none() && io::stdout().is_terminal())?;
    terminal::write(args.out.as_deref(), &text)?;
    Ok(outcome)
}

/// A large trace is announced before it is written, and kept off a terminal.
fn announce_size(bytes: usize, on_terminal: bool) -> Result<(), Fault> {
    if bytes < LARGE {
        return Ok(());
    }
    let size = format!("the trace has {} MB", bytes / 1_000_000);
    if on_terminal {
        return Err(Fault::Usage(format!("{size}, too much for a terminal; give --out FILE or fewer --entries")));
    }
    terminal::warn(&format!("{size}; fewer --entries make it smaller"));
    Ok(())
}

fn render(trace: &Trace, format: Format) -> String {
    match format {
        Format::Text => trace::to_text(trace),
        Format::Json => trace::to_json(trace),
        Format::Svg => trace::to_svg(trace),
        Format::Html => trace::to_html(trace),
        Format::Shiviz => trace::to_shiviz(trace),
    }
}

fn draw_run(protocol: &str, args: &TraceArgs, format: Format) -> Result<(String, Outcome), Fault> {
    let spec = RunSpec { keep_trace: true, ..args.settings.of(protocol) };
    let report = simulate_with_bar(&spec)?;
    warnings::warn(&spec.options, spec.nodes);
    if let Some(first) = report.violations.first() {
        let violations = count(report.violations.len() as u64, "violation", "violations");
        terminal::warn(&format!("{violations}, the first of {first}"));
    }
    let trace = report.trace.as_ref().expect("the run was asked to keep its trace");
    Ok((render(trace, format), outcome(&report)))
}

/// Plays a scenario, shipped or from a file, and draws it.
fn draw_scenario(name: &str, format: Format) -> Result<(String, Outcome), Fault> {
    let playback = play(name)?;
    let outcome = match playback.first_difference() {
        Some(command) => {
            terminal::warn(&difference(command));
            Outcome::Violated
        }
        None => Outcome::Fine,
    };
    // A scenario that only explores or simulates takes no steps to draw, except those of a violation that it found. As
    // text, its commands and their outcomes say more.
    if format == Format::Text && !playback.has_steps {
        return Ok((outcomes(&playback), outcome));
    }
    if playback.trace.events.is_empty() {
        terminal::warn("the scenario takes no steps, so the drawing is empty; --format text shows its results");
    }
    Ok((render(&playback.trace, format), outcome))
}

fn play(name: &str) -> Result<Playback, Fault> {
    if !name.contains('/') && !name.ends_with(".txt") {
        return Ok(scenario::play_shipped(name, None)?);
    }
    let text = std::fs::read_to_string(name)
        .map_err(|error| Fault::Usage(format!("cannot read scenario '{name}': {error}")))?;
    scenario::play(&text, None).map_err(|error| Fault::Usage(format!("{name}: {error}")))
}

/// The commands of a scenario, each with its outcome.
fn outcomes(playback: &Playback) -> String {
    let mut text = format!("{}\n", playback.trace.title);
    for command in &playback.steps {
        text += &format!("\n{}\n", command.command);
        text.extend(command.actual.iter().map(|line| format!("  {line}\n")));
    }
    text
}

/// Describes the first line of an outcome that differs from the expected one.
fn difference(outcome: &CommandOutcome) -> String {
    let pairs = (0..).map(|index| (outcome.expected.get(index), outcome.actual.get(index)));
    let (expected, actual) = pairs.into_iter().find(|(expected, actual)| expected != actual).unwrap_or_default();
    let quoted =
        |line: Option<&String>| line.map_or_else(|| "nothing more".to_owned(), |line| format!("'{}'", line.trim()));
    format!(
        "scenario line {}: '{}' gave {} where the scenario says {}",
        outcome.line,
        outcome.command,
        quoted(actual),
        quoted(expected)
    )
}

fn list(format: Format) -> String {
    let title = |text: &'static str| text.lines().find_map(|line| line.strip_prefix("title ")).unwrap_or_default();
    if format == Format::Json {
        let scenarios = SHIPPED.iter().map(|(name, text)| serde_json::json!({"name": name, "title": title(text)}));
        return format!("{:#}\n", serde_json::Value::from_iter(scenarios));
    }
    let width = SHIPPED.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    SHIPPED.iter().map(|(name, text)| format!("{name:<width$}  {}\n", title(text))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_flooded() {
        assert!(announce_size(LARGE - 1, true).is_ok());
        assert!(announce_size(LARGE, false).is_ok());
        let Err(Fault::Usage(line)) = announce_size(96_000_000, true) else { panic!("it is refused") };
        assert_eq!(line, "the trace has 96 MB, too much for a terminal; give --out FILE or fewer --entries");
    }

    #[test]
    fn the_first_differing_line_is_described() {
        let outcome = CommandOutcome {
            line: 7,
            command: "ask 1".to_owned(),
            expected: vec!["1 asks".to_owned(), "1 enters, fence 1".to_owned()],
            actual: vec!["1 asks".to_owned()],
            comment: String::new(),
            events: (0, 0),
            is_skipped: false,
        };
        let text = difference(&outcome);
        assert_eq!(text, "scenario line 7: 'ask 1' gave nothing more where the scenario says '1 enters, fence 1'");
    }
}
