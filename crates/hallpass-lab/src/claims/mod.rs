//! Measures what the papers claim.
//!
//! Each claim is a function that runs simulations, explorations or scenarios and compares the results with the paper.
//! Nothing is cached between runs. Every row fails if the protocol is broken: `tests/all/claims.rs` plants bugs for each id
//! and expects each of its rows to notice one.
//!
//! The ids, such as RA-14, are explained in `docs/requirements.md`; the traps, such as T5, which are errors and gaps in the
//! papers' printed text, in `docs/traps.md`.

mod appendix;
mod carvalho_roucairol;
mod cmu;
mod directory;
mod membership;
mod raymond;
mod ricart_agrawala;
mod table;
mod token;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hallpass_core::protocol::Mutation;
use hallpass_sim::Report;
use serde::Serialize;

use crate::scenario::{Playback, play_shipped};
use crate::{CheckReport, CheckSpec, RunSpec, check, simulate, steps};

/// One claim and its measurement. The JSON keys are part of the public interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// `RA-14`, or `RA-14/detail`.
    pub id: String,
    /// The claim, in a few words.
    pub claim: String,
    /// The paper's value.
    pub expected: String,
    /// The measured value.
    pub measured: String,
    /// The two agree.
    pub ok: bool,
}

/// Which claims to measure.
#[derive(Clone, Debug, Default)]
pub struct ClaimsSpec {
    /// Include claims that take longer than two minutes.
    pub full: bool,
    /// Only this id, such as `RA-14`, or only this row, such as `RA-14/safe-3`.
    pub only: Option<String>,
    /// A bug to plant, to test the claims themselves.
    pub mutation: Option<Mutation>,
}

/// How far the measurement has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Claims measured.
    pub done: usize,
    /// Claims to measure in all.
    pub total: usize,
    /// The claim that has just begun or ended, such as `RA-14`.
    pub current: String,
}

/// A claim's id and the function that measures it.
type Claim = (&'static str, fn(&Harness) -> Vec<Row>);

/// Every claim. Slow ones come first within each file, so that all cores finish at about the same time.
fn all() -> Vec<Claim> {
    [
        ricart_agrawala::CLAIMS,
        membership::CLAIMS,
        appendix::CLAIMS,
        cmu::CLAIMS,
        carvalho_roucairol::CLAIMS,
        directory::CLAIMS,
        raymond::CLAIMS,
        token::CLAIMS,
        table::CLAIMS,
    ]
    .concat()
}

/// Measures the claims on all cores and returns the rows in the order of their ids. `on_progress` is called from several
/// threads.
pub fn run(spec: &ClaimsSpec, on_progress: impl Fn(Progress) + Sync) -> Vec<Row> {
    let harness = Harness { mutation: spec.mutation, full: spec.full };
    let wanted = |id: &str| {
        spec.only
            .as_ref()
            .is_none_or(|only| id == only || only.strip_prefix(id).is_some_and(|rest| rest.starts_with('/')))
    };
    let claims: Vec<Claim> = all().into_iter().filter(|(id, _)| wanted(id)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some((id, measure)) = claims.get(next.fetch_add(1, Ordering::Relaxed)) {
            on_progress(Progress {
                done: done.load(Ordering::Relaxed),
                total: claims.len(),
                current: (*id).to_owned(),
            });
            let rows = measure(&harness);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            on_progress(Progress { done, total: claims.len(), current: (*id).to_owned() });
            found.lock().expect("no claim panics while it holds the lock").extend(rows);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(claims.len()) {
            scope.spawn(work);
        }
    });
    let mut rows = found.into_inner().expect("no claim panics while it holds the lock");
    rows.sort_by_key(|row| sort_key(&row.id));
    if let Some(only) = spec.only.as_ref().filter(|only| only.contains('/')) {
        rows.retain(|row| row.id == *only);
    }
    rows
}

/// Sorts RA-2 before RA-10. Rows of one claim stay in the order in which they were measured.
fn sort_key(id: &str) -> (String, u32) {
    let (family, number) = id.split('/').next().unwrap_or(id).rsplit_once('-').unwrap_or((id, "0"));
    (family.to_owned(), number.parse().unwrap_or(0))
}

/// What claims run things with.
struct Harness {
    mutation: Option<Mutation>,
    full: bool,
}

impl Harness {
    fn simulate(&self, spec: RunSpec) -> Report {
        simulate(&RunSpec { mutation: self.mutation, ..spec }).expect("a claim uses valid runs")
    }

    fn check(&self, spec: CheckSpec) -> CheckReport {
        // A planted bug can make the number of states explode.
        let states_max = if self.mutation.is_some() { 100_000 } else { spec.states_max };
        check(&CheckSpec { mutation: self.mutation, states_max, ..spec }, |_| {})
            .expect("a claim uses valid explorations")
    }

    fn play(&self, name: &str) -> Option<Playback> {
        // With a planted bug, a message that the scenario delivers may never be sent.
        play_shipped(name, self.mutation).ok()
    }

    /// A row that counts the steps of a scenario with the expected outcome.
    fn scenario(&self, id: &str, claim: &str, name: &str) -> Row {
        let Some(played) = self.play(name) else { return Row::new(id, claim, "every step", "a step is impossible") };
        let right = played.steps.iter().filter(|step| step.expected == step.actual).count();
        let all = played.steps.len();
        Row::new(id, claim, format!("{all} of {all} steps"), format!("{right} of {all} steps"))
    }

    /// A row for an exploration that must be complete and find no violation.
    fn holds(&self, id: &str, claim: &str, spec: CheckSpec) -> Row {
        let report = self.check(spec);
        let measured = match report.violations.first() {
            Some(found) => found.text.clone(),
            None if report.complete => format!("0 in {} states", report.states),
            None => format!("incomplete after {} states", report.states),
        };
        Row { ok: report.complete && report.violations.is_empty(), ..Row::new(id, claim, "0 violations", measured) }
    }

    /// A row for an exploration that must find a violation of this property.
    fn fails(&self, id: &str, claim: &str, property: &str, spec: CheckSpec) -> Row {
        let report = self.check(spec);
        let found = report.violations.first();
        let measured = match found {
            Some(found) => format!("{} after {}", found.property, steps(found.steps)),
            None if report.complete => "none found".to_owned(),
            None => format!("incomplete after {} states", report.states),
        };
        Row {
            ok: found.is_some_and(|found| found.property == property),
            ..Row::new(id, claim, format!("{property} violated"), measured)
        }
    }
}

impl Row {
    /// A row that is ok if the two texts are equal.
    fn new(id: &str, claim: &str, expected: impl Into<String>, measured: impl Into<String>) -> Self {
        let (expected, measured) = (expected.into(), measured.into());
        Self { id: id.to_owned(), claim: claim.to_owned(), ok: expected == measured, expected, measured }
    }

    /// The same row, but not ok if one of the runs behind it had a violation.
    fn without_violations<'a>(mut self, reports: impl IntoIterator<Item = &'a Report>) -> Self {
        if let Some(violation) = reports.into_iter().flat_map(|report| &report.violations).next() {
            self.ok = false;
            self.measured = format!("{}; {violation}", self.measured);
        }
        self
    }
}

/// The numbers of a row, rounded to three decimals.
fn list(values: impl IntoIterator<Item = f64>) -> String {
    let texts: Vec<String> = values.into_iter().map(|value| format!("{}", (value * 1000.0).round() / 1000.0)).collect();
    texts.join(", ")
}
