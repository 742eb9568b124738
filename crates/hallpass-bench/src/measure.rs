//! One measurement: one system under one workload.

use std::path::Path;
use std::time::Instant;

use crate::BenchError;
use crate::group::Group;
use crate::histogram::Histogram;
use crate::holds::{observe, read};
use crate::task::{Done, Task};
use crate::usage::Usage;

/// What callers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// No lock: bytes to a peer and back.
    RoundTrip,
    /// One caller and a free lock that other hosts have held since this caller released it.
    Cold,
    /// One caller and a free lock, in a system where it does not matter who held it last.
    Alone,
    /// One caller, the same lock again at once.
    Hot,
    /// The same, and each time it is told whether it has held the lock until the end.
    HotChecked,
    /// The same in shared mode, one caller on every host at the same time.
    HotShared,
    /// This number of callers on one lock.
    Contended(u32),
    /// As many locks as callers, each caller going from one to the next.
    Rotating(u32),
}

impl Workload {
    /// Its name in figures. Both kinds of a free lock have one name: a caller does not see the difference.
    pub(crate) fn name(self) -> String {
        match self {
            Self::RoundTrip => "round-trip".to_owned(),
            Self::Cold | Self::Alone => "uncontended".to_owned(),
            Self::Hot => "hot".to_owned(),
            Self::HotChecked => "hot-checked".to_owned(),
            Self::HotShared => "hot-shared".to_owned(),
            Self::Contended(callers) => format!("contended-{callers}"),
            Self::Rotating(callers) => format!("rotating-{callers}"),
        }
    }
}

/// Locks that one host acquires in a pass of [`Workload::Cold`] before it is the next host's turn.
const COLD_LOCKS: u32 = 100;

/// What one measurement found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) cycles: Histogram,
    pub(crate) handovers: Histogram,
    pub(crate) grants: u64,
    pub(crate) changes: Option<u64>,
    pub(crate) violations: u64,
    pub(crate) seconds: f64,
    pub(crate) messages: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) memory_bytes: u64,
}

pub(crate) fn measure(group: &mut Group, workload: Workload, seconds: f64, scratch: &Path) -> Result<Run, BenchError> {
    let processes = group.processes();
    open(group, workload)?;
    let messages = messages(group)?;
    let before = Usage::of(&processes);
    let mut run = match workload {
        Workload::Cold => cold(group, seconds)?,
        Workload::RoundTrip | Workload::Alone => contended(group, 1, 1, seconds, None)?,
        Workload::Contended(callers) => contended(group, callers, 1, seconds, Some(scratch))?,
        Workload::Rotating(callers) => contended(group, callers, callers, seconds, Some(scratch))?,
        Workload::Hot => together(group, 1, &Task::Hot { shared: false, checked: false, seconds }, seconds)?,
        Workload::HotChecked => together(group, 1, &Task::Hot { shared: false, checked: true, seconds }, seconds)?,
        Workload::HotShared => {
            together(group, usize::MAX, &Task::Hot { shared: true, checked: false, seconds }, seconds)?
        }
    };
    let after = Usage::of(&processes);
    run.cpu_seconds = after.cpu_seconds - before.cpu_seconds;
    run.memory_bytes = after.memory_bytes;
    run.messages = run.messages.saturating_sub(messages);
    Ok(run)
}

/// Connects all callers before the clock runs.
fn open(group: &mut Group, workload: Workload) -> Result<(), BenchError> {
    let callers = match workload {
        Workload::Contended(callers) | Workload::Rotating(callers) => callers,
        _ => 1,
    };
    let hosts = group.workers.len();
    for (index, worker) in group.workers.iter_mut().enumerate() {
        worker.send(&Task::Open { callers: callers_of(callers, index, hosts) })?;
    }
    group.workers.iter_mut().try_for_each(|worker| worker.done(0.0).map(|_| ()))
}

/// The callers that run in this worker: caller i runs in worker i mod their number.
fn callers_of(callers: u32, worker: usize, workers: usize) -> Vec<u32> {
    (0..callers).filter(|caller| *caller as usize % workers == worker).collect()
}

fn messages(group: &mut Group) -> Result<u64, BenchError> {
    let mut all = 0;
    for worker in &mut group.workers {
        worker.send(&Task::Open { callers: Vec::new() })?;
        all += worker.done(0.0)?.messages;
    }
    Ok(all)
}

fn contended(
    group: &mut Group,
    callers: u32,
    locks: u32,
    seconds: f64,
    scratch: Option<&Path>,
) -> Result<Run, BenchError> {
    let hosts = group.workers.len();
    let mut files = Vec::new();
    for (index, worker) in group.workers.iter_mut().enumerate() {
        let record = scratch.map(|scratch| scratch.join(format!("holds-{index}")));
        files.extend(record.clone());
        worker.send(&Task::Run { callers: callers_of(callers, index, hosts), locks, seconds, record })?;
    }
    let mut run = gather(group, usize::MAX, seconds)?;
    if !files.is_empty() {
        let observed = observe(read(&files)?);
        run.changes = Some(observed.changes);
        run.handovers = observed.handovers;
        run.violations = observed.violations;
    }
    Ok(run)
}

fn together(group: &mut Group, workers: usize, task: &Task, seconds: f64) -> Result<Run, BenchError> {
    // The first grants, which need messages, are not measured.
    for worker in group.workers.iter_mut().take(workers) {
        let warm_up = match task {
            Task::Hot { shared, checked, .. } => Task::Hot { shared: *shared, checked: *checked, seconds: 0.01 },
            other => other.clone(),
        };
        worker.send(&warm_up)?;
        worker.done(seconds)?;
    }
    for worker in group.workers.iter_mut().take(workers) {
        worker.send(task)?;
    }
    gather(group, workers, seconds)
}

fn gather(group: &mut Group, workers: usize, seconds: f64) -> Result<Run, BenchError> {
    let mut run = Run::default();
    for worker in group.workers.iter_mut().take(workers) {
        run.add(&worker.done(seconds)?);
    }
    Ok(run)
}

/// Hosts take turns to acquire all locks one by one, so that each host asks for locks that both others have held.
fn cold(group: &mut Group, seconds: f64) -> Result<Run, BenchError> {
    let begin = Instant::now();
    let hosts = group.workers.len();
    let (mut run, mut spent) = (Run::default(), 0.0);
    let mut sent = vec![0; hosts];
    for pass in 0.. {
        let worker = &mut group.workers[pass % hosts];
        worker.send(&Task::Each { locks: COLD_LOCKS })?;
        let done = worker.done(seconds)?;
        sent[pass % hosts] = done.messages;
        if pass + 1 >= hosts {
            spent += done.nanos as f64 / 1e9;
            run.add(&done);
        } else {
            // The first passes only move the locks. Their messages are counted, so their grants must be too.
            run.grants += done.grants;
        }
        if pass + 1 >= 2 * hosts && begin.elapsed().as_secs_f64() >= seconds {
            break;
        }
    }
    run.seconds = spent * run.grants as f64 / run.cycles.len().max(1) as f64;
    run.messages = sent.iter().sum();
    Ok(run)
}

impl Run {
    fn add(&mut self, done: &Done) {
        self.cycles.merge(&done.cycles);
        self.grants += done.grants;
        self.messages += done.messages;
        self.seconds = self.seconds.max(done.nanos as f64 / 1e9);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_run_in_different_workers() {
        assert_eq!(callers_of(8, 0, 3), [0, 3, 6]);
        assert_eq!(callers_of(8, 2, 3), [2, 5]);
        assert!(callers_of(2, 2, 3).is_empty());
    }
}
