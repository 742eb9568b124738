//! `lab swarm`: runs whole nodes under faults, one seed per run, on all cores.

use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hallpass_core::Ticks;
use hallpass_sim::group::{self, Bug, Fault, GroupReport};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::LabError;

/// Which runs to make, as `lab swarm` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmSpec {
    /// The seeds, one per run, in ascending order.
    pub seeds: Range<u64>,
    /// Stop after this time.
    pub stop_after: Option<Duration>,
    /// A bug to plant, to test the swarm itself.
    pub bug: Option<Bug>,
}

impl SwarmSpec {
    /// Parses a range of seeds, `A..B`: from A up to but not including B.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let range =
            text.split_once("..").and_then(|(from, to)| Some(from.trim().parse().ok()?..to.trim().parse().ok()?));
        let seeds = range.filter(|seeds: &Range<u64>| !seeds.is_empty()).ok_or_else(|| {
            LabError(format!("seeds '{text}' are not a range such as 0..1000, which includes 0 but not 1000"))
        })?;
        Ok(Self { seeds, stop_after: None, bug: None })
    }

    /// As many seeds from `first` on as there is time for.
    pub fn lasting(first: u64, time: Duration) -> Self {
        Self { seeds: first..u64::MAX, stop_after: Some(time), bug: None }
    }
}

/// The result of a swarm. The JSON keys are part of the public interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SwarmReport {
    /// How many runs were made.
    pub runs: u64,
    /// The virtual time of all runs together. Counted in whole ticks, so that the order in which runs end does not matter.
    #[serde(rename = "simulated_seconds", serialize_with = "as_seconds")]
    pub simulated: Ticks,
    /// How often a lock was granted.
    pub grants: u64,
    /// How often each fault was injected.
    #[serde(serialize_with = "as_map")]
    pub faults: [u64; 6],
    /// Runs with a violation.
    pub violations: u64,
    /// The failed run with the lowest seed.
    pub first_failure: Option<Failure>,
}

/// A run with a violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The violation.
    pub violation: String,
    /// The command that repeats the run.
    pub command: String,
}

impl Failure {
    fn of(seed: u64, violation: String) -> Self {
        Self { seed, violation, command: format!("hallpass lab swarm --seeds {seed}..{}", seed + 1) }
    }
}

impl SwarmReport {
    fn add(&mut self, seed: u64, run: Option<GroupReport>) {
        self.runs += 1;
        let violation = match run {
            None => Some("panic: the code under test stopped in the middle".to_owned()),
            Some(run) => {
                self.simulated += run.duration;
                self.grants += run.grants;
                self.faults.iter_mut().zip(run.faults).for_each(|(sum, count)| *sum += count);
                run.violation.map(|violation| violation.to_string())
            }
        };
        let Some(violation) = violation else { return };
        self.violations += 1;
        if self.first_failure.as_ref().is_none_or(|first| seed < first.seed) {
            self.first_failure = Some(Failure::of(seed, violation));
        }
    }
}

/// Runs a swarm on all cores. After every run, `on_progress` gets the number of runs and of failed runs so far, from several
/// threads.
pub fn swarm(spec: &SwarmSpec, on_progress: impl Fn(u64, u64) + Sync) -> SwarmReport {
    let began = Instant::now();
    let next = AtomicU64::new(spec.seeds.start);
    let report = Mutex::new(SwarmReport::default());
    let work = || {
        while spec.stop_after.is_none_or(|time| began.elapsed() < time) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !spec.seeds.contains(&seed) {
                break;
            }
            let run = catch_unwind(|| match spec.bug {
                None => group::run(seed),
                Some(bug) => group::run_with_bug(seed, "x", bug),
            });
            let mut report = report.lock().expect("nobody panics while it holds the lock");
            report.add(seed, run.ok());
            on_progress(report.runs, report.violations);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    report.into_inner().expect("nobody panics while it holds the lock")
}

fn as_seconds<S: Serializer>(ticks: &Ticks, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*ticks as f64 / 1e9)
}

fn as_map<S: Serializer>(counts: &[u64; 6], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(counts.len()))?;
    for (fault, count) in Fault::ALL.iter().zip(counts) {
        map.serialize_entry(fault.name(), count)?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_seed_and_the_command_that_repeats_it() {
        let spec = SwarmSpec { bug: Some(Bug::ReleaseEarly), ..SwarmSpec::parse("10..40").unwrap() };
        let report = swarm(&spec, |_, _| {});
        assert_eq!(report.runs, 30);
        assert!(report.violations > 0);
        let first = report.first_failure.unwrap();
        let again = SwarmSpec { seeds: first.seed..first.seed + 1, ..spec };
        assert_eq!(swarm(&again, |_, _| {}).first_failure, Some(first.clone()));
        assert_eq!(first.command, format!("hallpass lab swarm --seeds {}..{}", first.seed, first.seed + 1));
    }

    #[test]
    fn ranges_are_read_and_others_refused() {
        assert_eq!(SwarmSpec::parse("3..7").unwrap().seeds, 3..7);
        for bad in ["", "7", "7..3", "3..3", "a..b", "-1..3", "1...3"] {
            assert!(SwarmSpec::parse(bad).unwrap_err().0.contains("0..1000"), "{bad}");
        }
    }

    #[test]
    fn time_ends_a_swarm_that_has_no_end() {
        let report = swarm(&SwarmSpec::lasting(5, Duration::from_millis(100)), |_, _| {});
        assert!(report.runs > 0);
        assert_eq!((report.violations, report.first_failure), (0, None));
    }
}
