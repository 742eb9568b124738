//! Checks the records of a run: whether the locks kept their promises, and what broke one.
//!
//! A hold is the time in which its holder *worked*: from the arrival of the grant to the moment before the release was sent. A holder
//! that lost the lock worked until its last work, and one that was killed until its death. A stopped process cannot react to what it
//! is told. There the fence protects, and the resource's log shows whether it did.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::ChaosError;
use crate::records::{Event, Files, Record, Work, read};

/// One grant, for as long as its holder worked under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) client: String,
    pub(crate) shared: bool,
    pub(crate) fence: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// When the holder noticed that the lock was lost.
    pub(crate) noticed: Option<u64>,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.shared { "shared" } else { "exclusive" };
        write!(f, "{} ({mode}, fence {}, {}..{} ns)", self.client, self.fence, self.start, self.end)
    }
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Two holders worked at once, at least one of them exclusively.
    Overlap { lock: String, one: Hold, other: Hold },
    /// Two exclusive grants of a lock have the same fence.
    FenceRepeated { lock: String, one: Hold, other: Hold },
    /// A later grant has a fence that is too small.
    FenceRegressed { lock: String, earlier: Hold, later: Hold },
    /// The resource accepted work with an older fence than it had accepted before.
    AcceptedOlder { work: Work, mark: u64 },
    /// A holder went on working after a later holder had worked, and no pause of its process explains it.
    StaleWork { work: Work },
    /// The resource was asked by a client whose grant is not recorded.
    Ungranted { work: Work },
    /// A client did not get in in time after all faults were over.
    Starved { client: String, healed: u64, limit: u64 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { lock, one, other } => write!(f, "two holders of '{lock}' at once: {one} and {other}"),
            Self::FenceRepeated { lock, one, other } => write!(f, "a fence of '{lock}' twice: {one} and {other}"),
            Self::FenceRegressed { lock, earlier, later } => {
                write!(f, "a fence of '{lock}' went back: {earlier}, then {later}")
            }
            Self::AcceptedOlder { work, mark } => {
                let Work { client, lock, fence, at, .. } = work;
                write!(f, "the resource behind '{lock}' accepted fence {fence} of {client} after {mark}, at {at} ns")
            }
            Self::StaleWork { work: Work { client, lock, fence, asked, .. } } => {
                write!(f, "{client} went on under '{lock}', fence {fence}, after a later holder, at {asked} ns")
            }
            Self::Ungranted { work: Work { client, lock, fence, asked, .. } } => {
                write!(f, "{client} worked under '{lock}', fence {fence}, without a grant, at {asked} ns")
            }
            Self::Starved { client, healed, limit } => {
                let seconds = *limit as f64 / 1e9;
                write!(f, "{client} did not get in within {seconds} s of the healing at {healed} ns")
            }
        }
    }
}

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<Violation>,
    pub(crate) grants: u64,
    pub(crate) shared: u64,
    pub(crate) work: u64,
    pub(crate) refused: u64,
    /// How many holders noticed that they had lost their locks.
    pub(crate) lost: u64,
    /// Of those, how many had a successor inside before they noticed. Work after that would be a violation.
    pub(crate) noticed_late: u64,
    /// How long the slowest client took to get in after each healing, in nanoseconds.
    pub(crate) recoveries: Vec<u64>,
}

/// All records of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) records: Vec<Record>,
    /// In the order of the resource's log.
    pub(crate) work: Vec<Work>,
    pub(crate) events: Vec<Event>,
}

impl History {
    pub(crate) fn read(files: &Files) -> Result<Self, ChaosError> {
        let mut history = Self::default();
        read(&files.records(), |record| history.records.push(record))?;
        read(&files.work(), |work| history.work.push(work))?;
        read(&files.events(), |event| history.events.push(event))?;
        Ok(history)
    }
}

/// Checks a whole run.
pub(crate) fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let locks = holds(history);
    for (lock, holds) in &locks {
        check_overlaps(lock, holds, &mut verdict);
        check_fences(lock, holds, &mut verdict);
        for (hold, noticed) in holds.iter().filter_map(|hold| Some((hold, hold.noticed?))) {
            let later = &holds[holds.partition_point(|other| other.start <= hold.end)..];
            let successor = later.iter().take_while(|other| other.start < noticed).find(|other| conflict(hold, other));
            verdict.lost += 1;
            verdict.noticed_late += u64::from(successor.is_some());
        }
        verdict.grants += holds.len() as u64;
        verdict.shared += holds.iter().filter(|hold| hold.shared).count() as u64;
    }
    check_resource(history, &mut verdict);
    check_healings(history, &locks, &mut verdict);
    verdict
}

type Key<'a> = (&'a str, &'a str, u64);

/// The holds of each lock, in the order of their starts.
fn holds(history: &History) -> BTreeMap<&str, Vec<Hold>> {
    let mut last_work: HashMap<Key<'_>, u64> = HashMap::new();
    for work in history.work.iter().filter(|work| work.accepted) {
        let last = last_work.entry((&work.client, &work.lock, work.fence)).or_default();
        *last = work.asked.max(*last);
    }
    // A client that shares a lock several times in a row may get the same fence each time.
    let mut ends: HashMap<Key<'_>, Vec<(u64, u64, bool)>> = HashMap::new();
    for record in &history.records {
        if let Record::End { client, lock, fence, at, worked, lost } = record {
            ends.entry((client, lock, *fence)).or_default().push((*at, *worked, *lost));
        }
    }
    let mut starts: HashMap<&str, Vec<u64>> = HashMap::new();
    for record in &history.records {
        if let Record::Start { client, at, .. } = record {
            starts.entry(client).or_default().push(*at);
        }
    }
    starts.values_mut().for_each(|starts| starts.sort_unstable());
    let mut kills: HashMap<&str, Vec<u64>> = HashMap::new();
    for event in &history.events {
        if let Event::Killed { client, at } = event {
            kills.entry(client).or_default().push(*at);
        }
    }
    let mut locks: BTreeMap<&str, Vec<Hold>> = BTreeMap::new();
    for record in &history.records {
        let Record::Start { client, lock, shared, fence, at: start } = record else { continue };
        let key = (client.as_str(), lock.as_str(), *fence);
        // The client does nothing else meanwhile. Records after its next start belong to that start.
        let starts = &starts[client.as_str()];
        let next = starts.get(starts.partition_point(|at| at <= start)).copied().unwrap_or(u64::MAX);
        let within = |at: &u64| (*start..next).contains(at);
        let end = ends.get(&key).and_then(|ends| ends.iter().find(|(at, ..)| within(at)));
        let (end, noticed) = match end {
            Some((at, worked, true)) => (*worked, Some(*at)),
            Some((at, _, false)) => (*at, None),
            None => {
                let killed = kills.get(process(client)).and_then(|kills| kills.iter().copied().find(within));
                let worked = last_work.get(&key).copied().filter(within);
                (killed.max(worked).unwrap_or(*start), None)
            }
        };
        let (client, end) = (client.clone(), end.max(*start));
        locks.entry(lock).or_default().push(Hold {
            client,
            shared: *shared,
            fence: *fence,
            start: *start,
            end,
            noticed,
        });
    }
    locks.values_mut().for_each(|holds| holds.sort_by_key(|hold| hold.start));
    locks
}

fn conflict(one: &Hold, other: &Hold) -> bool {
    !(one.shared && other.shared)
}

fn check_overlaps(lock: &str, holds: &[Hold], verdict: &mut Verdict) {
    // Among the earlier holds, the exclusive and the shared one that end last.
    let mut latest: [Option<&Hold>; 2] = [None, None];
    for hold in holds {
        for before in latest.iter().flatten().filter(|before| conflict(before, hold) && before.end > hold.start) {
            let (lock, one, other) = (lock.to_owned(), (*before).clone(), hold.clone());
            verdict.violations.push(Violation::Overlap { lock, one, other });
        }
        let slot = &mut latest[usize::from(hold.shared)];
        if slot.is_none_or(|before| before.end <= hold.end) {
            *slot = Some(hold);
        }
    }
}

/// Grants are in the order of their starts, even those that overlap, which is another violation.
fn check_fences(lock: &str, holds: &[Hold], verdict: &mut Verdict) {
    let mut exclusive: Option<&Hold> = None;
    let mut shared: Option<&Hold> = None;
    for hold in holds {
        let regressed = |earlier: &&Hold| match (earlier.shared, hold.shared) {
            (false, false) => hold.fence < earlier.fence,
            (false, true) => hold.fence <= earlier.fence,
            (true, false) => hold.fence < earlier.fence,
            (true, true) => false,
        };
        for earlier in [exclusive, shared].into_iter().flatten().filter(regressed) {
            let (lock, earlier, later) = (lock.to_owned(), earlier.clone(), hold.clone());
            verdict.violations.push(Violation::FenceRegressed { lock, earlier, later });
        }
        let slot = if hold.shared { &mut shared } else { &mut exclusive };
        if let Some(one) = slot.filter(|before| !hold.shared && before.fence == hold.fence) {
            let (lock, one, other) = (lock.to_owned(), one.clone(), hold.clone());
            verdict.violations.push(Violation::FenceRepeated { lock, one, other });
        }
        if slot.is_none_or(|before| before.fence <= hold.fence) {
            *slot = Some(hold);
        }
    }
}

fn check_resource(history: &History, verdict: &mut Verdict) {
    let mut granted: HashMap<Key<'_>, bool> = HashMap::new();
    for record in &history.records {
        if let Record::Start { client, lock, shared, fence, .. } = record {
            *granted.entry((client, lock, *fence)).or_default() |= !*shared;
        }
    }
    let mut marks: HashMap<&str, u64> = HashMap::new();
    for work in &history.work {
        verdict.work += 1;
        verdict.refused += u64::from(!work.accepted);
        match granted.get(&(work.client.as_str(), work.lock.as_str(), work.fence)) {
            Some(exclusively) if work.shared || *exclusively => {}
            _ => verdict.violations.push(Violation::Ungranted { work: work.clone() }),
        }
        let mark = marks.entry(&work.lock).or_default();
        let is_older = if work.shared { work.fence <= *mark } else { work.fence < *mark };
        match work.accepted {
            true if is_older => {
                verdict.violations.push(Violation::AcceptedOlder { work: work.clone(), mark: *mark });
            }
            true if !work.shared => *mark = work.fence,
            true => {}
            false if was_paused(history, work) => {}
            false => verdict.violations.push(Violation::StaleWork { work: work.clone() }),
        }
    }
}

/// The process of a holder. A process that holds several locks has a name for each, such as 'a' and 'a/2'.
fn process(client: &str) -> &str {
    client.split('/').next().unwrap_or(client)
}

/// Whether the process was stopped after it checked the lock and before the resource answered.
fn was_paused(history: &History, work: &Work) -> bool {
    history.events.iter().any(|event| match event {
        Event::Stopped { client, from, to } => client == process(&work.client) && *from < work.at && *to > work.asked,
        _ => false,
    })
}

fn check_healings(history: &History, locks: &BTreeMap<&str, Vec<Hold>>, verdict: &mut Verdict) {
    let mut starts: HashMap<&str, Vec<u64>> = HashMap::new();
    for hold in locks.values().flatten() {
        starts.entry(&hold.client).or_default().push(hold.start);
    }
    starts.values_mut().for_each(|starts| starts.sort_unstable());
    for event in &history.events {
        let Event::Healed { at: healed, until, limit, clients } = event else { continue };
        let mut slowest = 0;
        for client in clients {
            let starts = starts.get(client.as_str()).map_or(&[][..], Vec::as_slice);
            let first = starts[starts.partition_point(|start| start < healed)..].first();
            let took = first.map(|start| start - healed).filter(|took| took <= limit);
            slowest = slowest.max(took.unwrap_or(*limit));
            // If the next fault came before the limit was over, this shows nothing.
            if took.is_none() && until - healed >= *limit {
                let (client, healed, limit) = (client.clone(), *healed, *limit);
                verdict.violations.push(Violation::Starved { client, healed, limit });
            }
        }
        verdict.recoveries.push(slowest);
    }
}
