//! The figures of a run.

use std::collections::{BTreeMap, HashMap};
use std::mem::discriminant;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::ChaosError;
use crate::checker::{History, Verdict, Violation, check};
use crate::clients::Way;
use crate::harness::Options;
use crate::records::Files;

/// How many violations of one kind are shown. The count includes all of them.
const SHOWN_MAX: usize = 10;

/// The result of a run. The JSON document has the same names.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The seed that decided the faults.
    pub seed: u64,
    /// How long it took.
    pub seconds: f64,
    /// How many agents there were.
    pub agents: usize,
    /// How many clients there were.
    pub clients: usize,
    /// How long a session lasts.
    pub ttl_ms: u64,
    /// How many rounds there were. A round is one or more faults, their healing, and the wait until all clients got in.
    pub rounds: usize,
    /// How many faults there were.
    pub faults: usize,
    /// The number of faults by kind.
    pub faults_by_kind: BTreeMap<String, usize>,
    /// What the records show.
    #[serde(flatten)]
    pub findings: Findings,
    /// How `hallpass run` ended, by exit code; `signal` if it was killed.
    pub run_exits: BTreeMap<String, u64>,
    /// Violations, and processes that ended unasked or did not end when asked.
    pub violations: Vec<String>,
}

/// What the records of a run show.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Findings {
    /// How often a lock was held.
    pub grants: u64,
    /// Of those, in shared mode.
    pub grants_shared: u64,
    /// How often the resource was asked.
    pub work: u64,
    /// Of those, how often it refused because of the fence.
    pub work_refused: u64,
    /// How often a holder noticed that it had lost its lock.
    pub lost: u64,
    /// Of those, how often a successor was inside before. Work after that would be a violation.
    pub lost_noticed_late: u64,
    /// Pairs of holders that worked at once although one was exclusive, and work after a later holder had worked.
    pub overlaps: usize,
    /// Fences that came twice or went back, at the holders or at the resource.
    pub fence_regressions: usize,
    /// Clients that did not get in in time after a healing.
    pub starved: usize,
    /// How long the slowest client took to get in after a healing.
    pub recovery_ms: Recovery,
}

/// Over all healings.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The maximum.
    pub max: u64,
}

impl Report {
    pub(crate) fn new(
        options: &Options,
        took: Duration,
        rounds: usize,
        faults_by_kind: BTreeMap<String, usize>,
        exits: &BTreeMap<i32, u64>,
        troubles: Vec<String>,
        verdict: &Verdict,
    ) -> Self {
        let name = |code: i32| if code < 0 { "signal".to_owned() } else { code.to_string() };
        Self {
            seed: options.seed,
            seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
            agents: options.agents,
            clients: options.agents * options.clients * Way::ALL.len(),
            ttl_ms: options.ttl.as_millis() as u64,
            rounds,
            faults: faults_by_kind.values().sum(),
            faults_by_kind,
            findings: Findings::new(verdict),
            run_exits: exits.iter().map(|(code, count)| (name(*code), *count)).collect(),
            violations: troubles.into_iter().chain(shown(&verdict.violations)).collect(),
        }
    }
}

impl Findings {
    fn new(verdict: &Verdict) -> Self {
        let count = |is: fn(&Violation) -> bool| verdict.violations.iter().filter(|violation| is(violation)).count();
        let mut recoveries: Vec<u64> = verdict.recoveries.iter().map(|nanos| nanos / 1_000_000).collect();
        recoveries.sort_unstable();
        let quantile = |percent: usize| {
            let index = (recoveries.len() * percent).div_ceil(100).saturating_sub(1);
            recoveries.get(index).copied().unwrap_or(0)
        };
        Self {
            grants: verdict.grants,
            grants_shared: verdict.shared,
            work: verdict.work,
            work_refused: verdict.refused,
            lost: verdict.lost,
            lost_noticed_late: verdict.noticed_late,
            overlaps: count(|violation| matches!(violation, Violation::Overlap { .. } | Violation::StaleWork { .. })),
            fence_regressions: count(|violation| {
                use Violation::{AcceptedOlder, FenceRegressed, FenceRepeated};
                matches!(violation, FenceRepeated { .. } | FenceRegressed { .. } | AcceptedOlder { .. })
            }),
            starved: count(|violation| matches!(violation, Violation::Starved { .. })),
            recovery_ms: Recovery { p50: quantile(50), p99: quantile(99), max: quantile(100) },
        }
    }
}

/// The first violations of each kind, as lines.
fn shown(violations: &[Violation]) -> Vec<String> {
    let mut seen = HashMap::new();
    let mut lines = Vec::new();
    for violation in violations {
        let count: &mut usize = seen.entry(discriminant(violation)).or_default();
        *count += 1;
        if *count <= SHOWN_MAX {
            lines.push(violation.to_string());
        }
    }
    let more: usize = seen.values().map(|count| count.saturating_sub(SHOWN_MAX)).sum();
    lines.extend((more > 0).then(|| format!("and {more} more of the same kinds")));
    lines
}

/// Checks the records that an earlier run has kept. Returns the findings and the violations.
pub fn check_again(directory: &Path) -> Result<(Findings, Vec<String>), ChaosError> {
    let files = Files(directory.to_owned());
    if !files.records().is_file() {
        return Err(ChaosError::Usage(format!("{} has no records of a run", directory.display())));
    }
    let verdict = check(&History::read(&files)?);
    Ok((Findings::new(&verdict), shown(&verdict.violations)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_kind_are_shown_and_the_rest_counted() {
        let starved = |client: usize| Violation::Starved { client: client.to_string(), healed: 0, limit: 1 };
        assert_eq!(shown(&[]), [""; 0]);
        let all: Vec<Violation> = (0..SHOWN_MAX + 3).map(starved).collect();
        let lines = shown(&all);
        assert_eq!(lines.len(), SHOWN_MAX + 1);
        assert_eq!(lines[SHOWN_MAX], "and 3 more of the same kinds");
        assert_eq!(shown(&all[..SHOWN_MAX]).len(), SHOWN_MAX);
    }
}
