//! `hallpass lab trace`: a space-time diagram of a scenario or of a run.

use hallpass_lab::scenario::{self, Outcome as Step, Played, SHIPPED};
use hallpass_lab::{RunSpec, simulate};
use hallpass_sim::trace::{self, Trace};

use super::run::{outcome, spec};
use super::warnings;
use crate::cli::{Format, TraceArgs};
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, count};

pub(super) fn run(args: &TraceArgs) -> Result<Outcome, Fault> {
    let format = if args.json { Format::Json } else { args.format };
    let (text, outcome) = match (args.list, &args.scenario, &args.protocol) {
        (true, ..) => (list(format), Outcome::Fine),
        (_, Some(name), _) => played(name, format)?,
        (_, _, Some(protocol)) => simulated(protocol, args, format)?,
        _ => {
            return Err(Fault::Usage(
                "what is to be drawn? give --scenario NAME (--list lists them) or --protocol P".to_owned(),
            ));
        }
    };
    terminal::write(args.out.as_deref(), &text)?;
    Ok(outcome)
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

fn simulated(protocol: &str, args: &TraceArgs, format: Format) -> Result<(String, Outcome), Fault> {
    let spec = RunSpec { keep_trace: true, ..spec(protocol, args.nodes, args.entries, &args.world) };
    let report = simulate(&spec)?;
    warnings::warn(&spec.options, spec.nodes);
    if let Some(first) = report.violations.first() {
        let violations = count(report.violations.len() as u64, "violation", "violations");
        terminal::warn(&format!("{violations}, the first of {first}"));
    }
    let trace = report.trace.as_ref().expect("the run was asked to keep its trace");
    Ok((render(trace, format), outcome(&report)))
}

/// Plays a shipped scenario or a file's, and draws it.
fn played(name: &str, format: Format) -> Result<(String, Outcome), Fault> {
    let played = play(name)?;
    let outcome = match played.first_difference() {
        Some(step) => {
            terminal::warn(&difference(step));
            Outcome::Violated
        }
        None => Outcome::Fine,
    };
    // Scenarios that only explore or simulate take no steps of their own: what they tell is read, not drawn, but for a
    // violation that they found.
    if format == Format::Text && !played.has_steps {
        return Ok((told(&played), outcome));
    }
    if played.trace.events.is_empty() {
        terminal::warn(
            "the scenario takes no step of its own, so the picture is empty; --format text tells what it found",
        );
    }
    Ok((render(&played.trace, format), outcome))
}

fn play(name: &str) -> Result<Played, Fault> {
    if !name.contains('/') && !name.ends_with(".txt") {
        return Ok(scenario::play_shipped(name, None)?);
    }
    let text = std::fs::read_to_string(name)
        .map_err(|error| Fault::Usage(format!("cannot read scenario '{name}': {error}")))?;
    scenario::play(&text, None).map_err(|error| Fault::Usage(format!("{name}: {error}")))
}

/// The commands of a scenario, each with what came of it.
fn told(played: &Played) -> String {
    let mut text = format!("{}\n", played.trace.title);
    for step in &played.steps {
        text += &format!("\n{}\n", step.command);
        text.extend(step.actual.iter().map(|line| format!("  {line}\n")));
    }
    text
}

/// The first line of a step that is not as the scenario says.
fn difference(step: &Step) -> String {
    let pairs = (0..).map(|at| (step.expected.get(at), step.actual.get(at)));
    let (expected, actual) = pairs.into_iter().find(|(expected, actual)| expected != actual).unwrap_or_default();
    let quoted =
        |line: Option<&String>| line.map_or_else(|| "nothing more".to_owned(), |line| format!("'{}'", line.trim()));
    format!(
        "scenario line {}: '{}' gave {} where the scenario says {}",
        step.line,
        step.command,
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
    fn the_first_differing_line_is_told() {
        let step = Step {
            line: 7,
            command: "ask 1".to_owned(),
            expected: vec!["1 asks".to_owned(), "1 enters, fence 1".to_owned()],
            actual: vec!["1 asks".to_owned()],
        };
        let told = difference(&step);
        assert_eq!(told, "scenario line 7: 'ask 1' gave nothing more where the scenario says '1 enters, fence 1'");
    }
}
