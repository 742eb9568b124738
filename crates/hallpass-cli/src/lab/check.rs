//! `hallpass lab check`: explores, with a spinner meanwhile.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use hallpass_lab::{CheckReport, CheckSpec, Counterexample, ModelSpec, Progress, check, check_model};
use hallpass_sim::trace;
use indicatif::{ProgressBar, ProgressStyle};

use super::budget::{Budget, Stop};
use super::{serve, warnings};
use crate::cli::CheckArgs;
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, Facts, Paint, count, grouped, rate};

pub(super) fn run(args: &CheckArgs) -> Result<Outcome, Fault> {
    let draw = args.draw.as_deref().map(Drawing::of).transpose()?;
    let spec = spec(args);
    let mut budget = Budget::new(args.memory)?;
    let report = match &args.model {
        Some(model) => explore_model(args, model, &mut budget)?,
        None => explore(&spec, &mut budget)?,
    };
    if args.json {
        if let Some(stop) = budget.stopped {
            terminal::note(&format!("the exploration was stopped {stop}"));
        }
        terminal::print_json(serde_json::to_string_pretty(&report))?;
    } else {
        terminal::print(&summary(&report, budget.stopped))?;
        // The page explores protocols; it has no part for a model.
        if args.model.is_none() && !report.violations.is_empty() {
            terminal::print(&serve::invitation("check", &spec.words()))?;
        }
    }
    // After the report, which would be lost if the file could not be written.
    if let Some(draw) = draw {
        draw.write(&report)?;
    }
    Ok(match (report.violations.is_empty(), report.complete) {
        (false, _) => Outcome::Violated,
        (true, false) => Outcome::Incomplete,
        (true, true) => Outcome::Fine,
    })
}

fn spec(args: &CheckArgs) -> CheckSpec {
    CheckSpec {
        nodes: args.nodes,
        entries: args.entries.0,
        last_entries: args.last_entries,
        first_entries: args.first_entries,
        tries: args.tries,
        upgrades: args.upgrades,
        reentry: args.reentry,
        order: args.order.into(),
        cancels: args.cancels.0,
        readers: args.readers,
        drop_idle: args.drop_idle,
        initial: args.initial_holders.clone(),
        faults: args.faults.clone(),
        options: args.options.clone(),
        states_max: args.states_max as usize,
        ..CheckSpec::of(&args.protocol)
    }
}

/// Explores. Warnings and the spinner wait for the first progress, so that a refused command shows only its error.
fn explore(spec: &CheckSpec, budget: &mut Budget) -> Result<CheckReport, Fault> {
    let began = Instant::now();
    let mut spinner = None;
    let report = check(spec, |progress| {
        let spinner = spinner.get_or_insert_with(|| {
            warnings::warn(&spec.options, spec.nodes);
            new_spinner()
        });
        show(spinner, &progress, began);
        budget.check(progress.growth)
    });
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    Ok(report?)
}

/// A part of the view layer.
fn explore_model(args: &CheckArgs, model: &str, budget: &mut Budget) -> Result<CheckReport, Fault> {
    let spec = ModelSpec { bug: args.bug.clone(), states_max: args.states_max as usize, ..ModelSpec::of(model) };
    let began = Instant::now();
    let mut spinner = None;
    let report = check_model(&spec, |progress| {
        show(spinner.get_or_insert_with(new_spinner), &progress, began);
        budget.check(progress.growth)
    });
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    Ok(report?)
}

fn show(spinner: &ProgressBar, progress: &Progress, began: Instant) {
    let (states, seconds) = (progress.states as u64, began.elapsed().as_secs_f64());
    spinner.set_message(format!(
        "{} states, {} generated, depth {}, {} states/s",
        grouped(states),
        grouped(progress.generated),
        progress.depth,
        rate(states, seconds)
    ));
}

/// There is no bar, because the number of states is known only at the end.
fn new_spinner() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner();
    spinner.set_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("the template is well formed"));
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

fn summary(report: &CheckReport, stopped: Option<Stop>) -> String {
    let paint = Paint::stdout();
    let entries = match report.entries {
        Some(entries) => count(entries.into(), "entry per node", "entries per node"),
        None => "unlimited entries".to_owned(),
    };
    let nodes = count(report.nodes.into(), "node", "nodes");
    let title = match report.is_model {
        true => format!("model '{}', {nodes}", report.protocol),
        false => format!("{}, {nodes}, {entries}", report.protocol),
    };
    let mut facts = Facts::new();
    facts.add("states", grouped(report.states as u64));
    facts.add("generated", grouped(report.generated));
    facts.add("depth", grouped(report.depth as u64));
    match report.drops {
        None => {}
        Some(0) => facts.add("dropped", "nothing: an idle lock is as good as new, or must be kept"),
        Some(drops) => facts.add("dropped", format!("idle locks in {} steps", grouped(drops))),
    }
    if !report.is_model {
        facts.add("overtaken", format!("the last node at most {}", count(report.overtaken.0, "time", "times")));
    }
    facts.add(
        "took",
        format!("{} ({} states per second)", took(report.seconds), rate(report.states as u64, report.seconds)),
    );
    format!("{}\n\n{}\n{}", paint.bold(&title), facts.render(), verdict(&paint, report, stopped))
}

fn took(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}

fn verdict(paint: &Paint, report: &CheckReport, stopped: Option<Stop>) -> String {
    if !report.violations.is_empty() {
        return report.violations.iter().map(|found| explain(paint, found)).collect();
    }
    if report.complete {
        return paint.green("complete: no violation in any state") + "\n";
    }
    let far = format!("not complete: stopped at {} states without a violation", grouped(report.states as u64));
    let why = stopped.map_or_else(|| "; --states-max N explores more".to_owned(), |stop| format!(", {stop}"));
    format!("{}{why}\n", paint.yellow(&far))
}

/// A violation and a shortest path to it.
fn explain(paint: &Paint, found: &Counterexample) -> String {
    let path: String = match found.trace.events.is_empty() {
        true => found.lines.iter().map(|line| format!("  {line}\n")).collect(),
        // The first line is the title, which repeats the violation.
        false => trace::to_text(&found.trace).lines().skip(1).map(|line| format!("{line}\n")).collect(),
    };
    let steps = count(found.steps as u64, "step", "steps");
    format!("{}\n\nthe shortest way there, {steps}:\n{path}", paint.red(&format!("violation of {}", found.text)))
}

/// The file for a drawing of the violation, and its format.
struct Drawing<'a> {
    path: &'a str,
    render: fn(&trace::Trace) -> String,
}

impl<'a> Drawing<'a> {
    fn of(path: &'a str) -> Result<Self, Fault> {
        match path.rsplit_once('.') {
            Some((_, "svg")) => Ok(Self { path, render: trace::to_svg }),
            Some((_, "html")) => Ok(Self { path, render: trace::to_html }),
            _ => Err(Fault::Usage(format!("--draw '{path}' is neither a .svg nor a .html file"))),
        }
    }

    fn write(&self, report: &CheckReport) -> Result<(), Fault> {
        match report.violations.first() {
            Some(found) => terminal::write(Some(self.path), &(self.render)(&found.trace)),
            None => {
                terminal::warn(&format!("there is no violation to draw, so {} is not written", self.path));
                Ok(())
            }
        }
    }
}
