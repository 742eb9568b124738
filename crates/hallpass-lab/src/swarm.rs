//! `lab swarm`: runs whole nodes under faults, one seed per run, on all cores.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hallpass_core::Ticks;
use hallpass_sim::cluster::{self, Bug, ClusterReport, Cut, FaultKind};
use hallpass_sim::oracle::Violation;
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
    /// Which parts of each run to keep.
    pub cut: Cut,
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
        Ok(Self { seeds, stop_after: None, cut: Cut::default(), bug: None })
    }

    /// As many seeds from `first` on as there is time for.
    pub fn lasting(first: u64, time: Duration) -> Self {
        Self { seeds: first..u64::MAX, stop_after: Some(time), cut: Cut::default(), bug: None }
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
    pub faults: [u64; FaultKind::ALL.len()],
    /// Runs with a violation.
    pub violations: u64,
    /// The failed run with the lowest seed, cut down.
    pub first_failure: Option<Failure>,
    /// The failed runs with the lowest seeds, at most [`FAILURES_MAX`](Self::FAILURES_MAX), as they were.
    pub failures: Vec<Failure>,
    /// All failed runs by what was violated, those with most runs first.
    pub kinds: Vec<FailureKind>,
}

/// Failed runs that differ in numbers only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureKind {
    /// The violation, with '#' for each number or name with a digit in it.
    pub violation: String,
    /// How many.
    pub runs: u64,
    /// The lowest seed of them.
    pub first_seed: u64,
}

impl FailureKind {
    /// As much of a violation is compared: the rest lists who waits for what.
    const LENGTH: usize = 100;

    fn name(violation: &str) -> String {
        let mut name = String::new();
        for word in violation.split_inclusive(|letter: char| !letter.is_alphanumeric()) {
            let letters = word.trim_end_matches(|letter: char| !letter.is_alphanumeric());
            let has_digit = letters.contains(|letter: char| letter.is_ascii_digit());
            name.push_str(if has_digit { "#" } else { letters });
            name.push_str(&word[letters.len()..]);
        }
        name.chars().take(Self::LENGTH).collect()
    }
}

/// A run with a violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The violation.
    pub violation: String,
    /// The command that repeats the run, cut down to what it needs.
    pub command: String,
}

impl SwarmReport {
    /// So many failed runs are named: where there are more, they mostly have one cause.
    pub const FAILURES_MAX: usize = 10;

    fn add(&mut self, seed: u64, run: ClusterReport, spec: &SwarmSpec) {
        self.runs += 1;
        self.simulated += run.duration;
        self.grants += run.grants;
        self.faults.iter_mut().zip(run.faults).for_each(|(sum, count)| *sum += count);
        let Some(violation) = run.violation else { return };
        self.violations += 1;
        self.add_kind(seed, &violation);
        let failure = Failure::of(seed, &violation, &spec.cut, spec.bug);
        let at = self.failures.partition_point(|known| known.seed < seed);
        self.failures.insert(at, failure);
        self.failures.truncate(Self::FAILURES_MAX);
        self.first_failure = self.failures.first().cloned();
    }

    fn add_kind(&mut self, seed: u64, violation: &Violation) {
        let name = FailureKind::name(&violation.to_string());
        match self.kinds.iter_mut().find(|kind| kind.violation == name) {
            Some(kind) => (kind.runs, kind.first_seed) = (kind.runs + 1, kind.first_seed.min(seed)),
            None => self.kinds.push(FailureKind { violation: name, runs: 1, first_seed: seed }),
        }
        self.kinds.sort_by(|a, b| b.runs.cmp(&a.runs).then_with(|| a.violation.cmp(&b.violation)));
    }
}

/// A failed run is repeated at most so often to cut it down.
const SHRINK_RUNS: usize = 200;

impl Failure {
    fn of(seed: u64, violation: &Violation, cut: &Cut, planted: Option<Bug>) -> Self {
        let name = Bug::ALL.iter().find(|(_, bug)| planted == Some(*bug));
        let bug = name.map_or(String::new(), |(name, _)| format!(" --bug {name}"));
        let command = format!("hallpass lab swarm --seeds {seed}..{}{cut}{bug}", seed + 1);
        Self { seed, violation: violation.to_string(), command }
    }

    /// The same failure with fewer faults, nodes and callers.
    fn shrunk(self, spec: &SwarmSpec) -> Self {
        let run = |cut: &Cut| cluster::run_caught(self.seed, cut, spec.bug);
        let (cut, violation) = cluster::shrink(&spec.cut, &run(&spec.cut), SHRINK_RUNS, run);
        violation.map_or(self.clone(), |violation| Self::of(self.seed, &violation, &cut, spec.bug))
    }
}

/// Runs a swarm on all cores, and cuts its first failure down. After every run, `on_progress` gets the number of runs and of failed runs so far, from several
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
            let run = cluster::run_caught(seed, &spec.cut, spec.bug);
            let mut report = report.lock().expect("nobody panics while it holds the lock");
            report.add(seed, run, spec);
            on_progress(report.runs, report.violations);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let mut report = report.into_inner().expect("nobody panics while it holds the lock");
    report.first_failure = report.first_failure.map(|failure| failure.shrunk(spec));
    report
}

fn as_seconds<S: Serializer>(ticks: &Ticks, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*ticks as f64 / 1e9)
}

fn as_map<S: Serializer>(counts: &[u64; FaultKind::ALL.len()], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(counts.len()))?;
    for (fault, count) in FaultKind::ALL.iter().zip(counts) {
        map.serialize_entry(fault.name(), count)?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_seed_is_cut_down_and_its_command_repeats_it() {
        let bug = Some(Bug::ClocksBeyondDrift);
        let spec = SwarmSpec { bug, ..SwarmSpec::parse("0..60").unwrap() };
        let report = swarm(&spec, |_, _| {});
        assert_eq!(report.runs, 60);
        let first = report.first_failure.expect("a bug is found");
        assert!(first.command.starts_with(&format!("hallpass lab swarm --seeds {}..{}", first.seed, first.seed + 1)));
        let command = first.command.strip_suffix(" --bug clocks-beyond-drift").expect("the bug is named");
        let (_, kept) = command.split_once("--keep-faults ").expect("faults are cut away");
        let kept = if kept == "none" { Vec::new() } else { kept.split(',').map(|at| at.parse().unwrap()).collect() };
        let nodes =
            first.command.split_once("--nodes ").map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap());
        let callers = first.command.contains("--callers 1").then_some(1);
        let cut = Cut { nodes, callers, faults: Some(kept) };
        let again = SwarmSpec { seeds: first.seed..first.seed + 1, cut, ..spec };
        // A swarm would go on cutting it down.
        let found =
            cluster::run_caught(first.seed, &again.cut, again.bug).violation.map(|violation| violation.to_string());
        assert_eq!(found, Some(first.violation));
    }

    #[test]
    fn failures_that_differ_in_numbers_are_of_one_kind() {
        let mut report = SwarmReport::default();
        let texts = ["node 7 entered while node m2 was inside", "node 12 entered while node m0 was inside", "no end"];
        for (seed, text) in [(9, texts[0]), (4, texts[1]), (6, texts[2])] {
            report.add_kind(seed, &Violation { property: "exclusion", text: text.to_owned() });
        }
        let kinds: Vec<_> =
            report.kinds.iter().map(|kind| (kind.violation.as_str(), kind.runs, kind.first_seed)).collect();
        let first = ("exclusion: node # entered while node # was inside", 2, 4);
        assert_eq!(kinds, [first, ("exclusion: no end", 1, 6)]);
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
