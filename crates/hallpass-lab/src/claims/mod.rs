//! What the papers claim, measured now.
//!
//! Each claim is a function that runs something and compares. Nothing is remembered from an earlier run, and every one of
//! them notices when the protocol is broken: `tests/mutations.rs` plants a bug for each id and sees its row fail.

mod appendix;
mod carvalho_roucairol;
mod cmu;
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

use crate::scenario::{Played, play_shipped};
use crate::{CheckReport, CheckSpec, RunSpec, check, simulate};

/// One claim and what came of it. The JSON keys are a contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// `RA-14`, or `RA-14/detail`.
    pub id: String,
    /// What the paper says, in a few words.
    pub claim: String,
    /// The paper's value.
    pub expected: String,
    /// The value of a run made now.
    pub measured: String,
    /// They agree.
    pub ok: bool,
}

/// Which claims to measure, and how.
#[derive(Clone, Debug, Default)]
pub struct ClaimsSpec {
    /// Also what takes longer than two minutes.
    pub full: bool,
    /// Only this id, such as `RA-14`, or only this row, such as `RA-14/safe-3`.
    pub only: Option<String>,
    /// A bug to plant, for tests of the checks themselves.
    pub mutation: Option<Mutation>,
}

/// How far the measuring is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Claims measured.
    pub done: usize,
    /// Claims in all.
    pub total: usize,
    /// The claim that was just begun or finished, such as `RA-14`.
    pub current: String,
}

/// One claim's id and how to measure it.
type Claim = (&'static str, fn(&Bench) -> Vec<Row>);

/// Every claim, the slow ones first within the table's parts so that two cores end at about the same time.
fn all() -> Vec<Claim> {
    [
        ricart_agrawala::CLAIMS,
        membership::CLAIMS,
        appendix::CLAIMS,
        cmu::CLAIMS,
        carvalho_roucairol::CLAIMS,
        raymond::CLAIMS,
        token::CLAIMS,
        table::CLAIMS,
    ]
    .concat()
}

/// Measures the claims on all cores; rows come in the order of their ids. `watch` is called from several threads.
pub fn run(spec: &ClaimsSpec, watch: impl Fn(Progress) + Sync) -> Vec<Row> {
    let bench = Bench { mutation: spec.mutation, full: spec.full };
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
            watch(Progress { done: done.load(Ordering::Relaxed), total: claims.len(), current: (*id).to_owned() });
            let rows = measure(&bench);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            watch(Progress { done, total: claims.len(), current: (*id).to_owned() });
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

/// RA-2 before RA-10, details after what they detail in the order of measuring.
fn sort_key(id: &str) -> (String, u32) {
    let (family, number) = id.split('/').next().unwrap_or(id).rsplit_once('-').unwrap_or((id, "0"));
    (family.to_owned(), number.parse().unwrap_or(0))
}

/// What claims measure with.
struct Bench {
    mutation: Option<Mutation>,
    full: bool,
}

impl Bench {
    fn simulate(&self, spec: RunSpec) -> Report {
        simulate(&RunSpec { mutation: self.mutation, ..spec }).expect("a claim asks for runs that exist")
    }

    fn check(&self, spec: CheckSpec) -> CheckReport {
        // A planted bug can make the number of states explode.
        let states_max = if self.mutation.is_some() { 400_000 } else { spec.states_max };
        check(&CheckSpec { mutation: self.mutation, states_max, ..spec }, |_| {})
            .expect("a claim asks for explorations that exist")
    }

    fn play(&self, name: &str) -> Option<Played> {
        // With a planted bug a message that a scenario names may not exist.
        play_shipped(name, self.mutation).ok()
    }

    /// A row that counts the steps of a scenario that come out as the paper has them.
    fn scenario(&self, id: &str, claim: &str, name: &str) -> Row {
        let Some(played) = self.play(name) else { return Row::new(id, claim, "every step", "a step is impossible") };
        let right = played.steps.iter().filter(|step| step.expected == step.actual).count();
        let all = played.steps.len();
        Row::new(id, claim, format!("{all} of {all} steps"), format!("{right} of {all} steps"))
    }

    /// A row for an exploration that must be complete and find nothing.
    fn holds(&self, id: &str, claim: &str, spec: CheckSpec) -> Row {
        let report = self.check(spec);
        let measured = match report.violations.first() {
            Some(found) => found.text.clone(),
            None if report.complete => format!("0 in {} states", report.states),
            None => format!("incomplete after {} states", report.states),
        };
        Row { ok: report.complete && report.violations.is_empty(), ..Row::new(id, claim, "0 violations", measured) }
    }

    /// A row for an exploration that must find this violation.
    fn fails(&self, id: &str, claim: &str, property: &str, spec: CheckSpec) -> Row {
        let report = self.check(spec);
        let found = report.violations.first();
        let measured =
            found.map_or("none found".to_owned(), |found| format!("{} after {} steps", found.property, found.steps));
        Row {
            ok: found.is_some_and(|found| found.property == property),
            ..Row::new(id, claim, format!("{property} violated"), measured)
        }
    }
}

impl Row {
    /// A row that is ok if the two texts are the same.
    fn new(id: &str, claim: &str, expected: impl Into<String>, measured: impl Into<String>) -> Self {
        let (expected, measured) = (expected.into(), measured.into());
        Self { id: id.to_owned(), claim: claim.to_owned(), ok: expected == measured, expected, measured }
    }

    /// The same row, not ok if the runs behind it violated anything.
    fn without_violations<'a>(mut self, reports: impl IntoIterator<Item = &'a Report>) -> Self {
        if let Some(violation) = reports.into_iter().flat_map(|report| &report.violations).next() {
            self.ok = false;
            self.measured = format!("{}; {violation}", self.measured);
        }
        self
    }
}

/// Numbers of a row, one for each N.
fn list(values: impl IntoIterator<Item = f64>) -> String {
    let texts: Vec<String> = values.into_iter().map(|value| format!("{}", (value * 1000.0).round() / 1000.0)).collect();
    texts.join(", ")
}
