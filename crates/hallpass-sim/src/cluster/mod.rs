//! A simulated group of whole nodes with views: machines with disks and clocks of their own, two connections a pair, callers,
//! and everything that goes wrong with them. Members come, leave, crash, return, are cut off, stand still and are evicted.
//!
//! One seed decides everything. After the faults comes a time without any, in which all nodes must come together in one view
//! and every caller must be served. A run that fails can be cut down: see [`shrink`].
//!
//! ```
//! use hallpass_sim::cluster::{Cut, run};
//!
//! let report = run(7, &Cut::default());
//! assert_eq!(report.violation, None);
//! assert_eq!(report.hash, run(7, &Cut::default()).hash);
//! ```

mod callers;
mod checks;
mod clock;
mod disk;
mod driver;
mod events;
mod faults;
mod limits;
mod network;
mod operator;
mod plan;
mod processes;
mod scenes;
mod shrink;
mod story;
#[cfg(test)]
mod tests;
mod turns;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use hallpass_core::{NodeId, Ticks};
use hallpass_node::Sabotage;
use hallpass_node::wire::Plane;

use crate::Rng;
use crate::oracle::{Answers, Epochs, Violation};
use crate::queue::Queue;

use callers::Caller;
use events::Event;
pub use faults::FaultKind;
use faults::Noise;
use limits::Pace;
use network::Connection;
pub use plan::Cut;
use plan::{MS, Plan};
use processes::{CLOCK_STEP, Ending, Machine};
pub use shrink::shrink;
use story::Book;
pub use story::{FaultSeen, Holding, NodeChange, Story, StoryFault, StoryFaultKind, StorySpec, tell, tell_seed};
use watch::{Inside, Watch};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterReport {
    /// How many nodes found the group.
    pub nodes: usize,
    /// Entries of all callers to all locks.
    pub grants: u64,
    /// How often a node lost everything it held because its session ran out.
    pub lapses: u64,
    /// The number of the last view.
    pub epoch: u64,
    /// How often a caller who only tried was told that the lock is not free.
    pub busy: u64,
    /// The most entries, of writers or groups of readers, that one node made before another one of which it knew that it waits.
    pub overtaken: u64,
    /// How long it took in virtual time.
    pub duration: Ticks,
    /// How many faults were planned: their positions are what [`Cut::faults`] names.
    pub planned: usize,
    /// How often each of [`FaultKind::ALL`] happened, in that order.
    pub faults: [u64; FaultKind::ALL.len()],
    /// The first violation, if there is one; the run ends there.
    pub violation: Option<Violation>,
    /// A digest of all events: the same seed gives the same.
    pub hash: u64,
    /// A digest of every byte that a node wrote, on both planes: another version of the program that writes the same gives
    /// the same.
    pub wire: u64,
    /// All events, a line each, if the run was asked to log them.
    pub log: Vec<String>,
}

/// A bug to plant, for tests of the oracles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(hidden)]
#[non_exhaustive]
pub enum Bug {
    /// A disk loses what the consensus engine has voted and promised since the last start of its process.
    ForgetVote,
    /// A driver says that a write is on disk before it is.
    SendBeforeSync,
    /// The clocks of some machines are three times as fast as those of others.
    ClocksBeyondDrift,
    /// The driver counts no starts: a process comes back as the one before.
    SameIncarnation,
    /// A founder that has lost its directory founds again alone, though others have joined its first group.
    ForgetMark,
    /// In every node.
    Node(Sabotage),
    /// A driver tells a caller who only tries that the lock is not free, and has not asked the node.
    BusyForNothing,
    /// A driver refuses a caller for a limit that is far away.
    RefuseForNothing,
    /// A driver gives the lock to the caller who has waited for the shortest time.
    LastInFirst,
    /// Nodes keep a lock while they have callers of their own.
    NeverYield,
    /// A driver does not tell its node of the last release of all.
    ForgetLastRelease,
}

impl Bug {
    /// Those that the command line can plant, with their names there.
    pub const ALL: [(&str, Self); 19] = [
        ("evict-early", Self::Node(Sabotage::EvictEarly)),
        ("no-wait-for-reports", Self::Node(Sabotage::NoWaitForReports)),
        ("stale-epoch", Self::Node(Sabotage::AcceptStaleEpoch)),
        ("stale-start", Self::Node(Sabotage::AcceptStaleStart)),
        ("keep-permissions", Self::Node(Sabotage::KeepPermissionsAfterLapse)),
        ("late-ack", Self::Node(Sabotage::LateAckUndoesLapse)),
        ("forget-vote", Self::ForgetVote),
        ("send-before-sync", Self::SendBeforeSync),
        ("same-incarnation", Self::SameIncarnation),
        ("any-voters", Self::Node(Sabotage::FoundWithAnyVoters)),
        ("forget-mark", Self::ForgetMark),
        ("forget-session", Self::Node(Sabotage::ForgetSessionOnDisk)),
        ("silent-voters", Self::Node(Sabotage::HandVotesToSilence)),
        ("close-twice", Self::Node(Sabotage::CloseTwice)),
        ("propose-banned", Self::Node(Sabotage::ProposeBanned)),
        ("count-refused", Self::Node(Sabotage::CountRefusedProposals)),
        ("grant-recovered", Self::Node(Sabotage::GrantOnceRecovered)),
        ("join-unstored", Self::Node(Sabotage::JoinUnstored)),
        ("clocks-beyond-drift", Self::ClocksBeyondDrift),
    ];

    /// The bug of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, bug)| *bug)
    }
}

/// Runs what a seed decides, or a part of it.
pub fn run(seed: u64, cut: &Cut) -> ClusterReport {
    World::new(Plan::draw(seed).cut(cut), None, false).run()
}

/// The same run with a log of all events.
pub fn run_logged(seed: u64, cut: &Cut) -> ClusterReport {
    World::new(Plan::draw(seed).cut(cut), None, true).run()
}

/// A large group: five nodes vote, the others join, one dies and returns.
pub fn run_large(members: usize) -> ClusterReport {
    World::new(Plan::large(members), None, false).run()
}

/// A run that may have a bug in it.
#[doc(hidden)]
pub fn run_with_bug(seed: u64, cut: &Cut, bug: Option<Bug>) -> ClusterReport {
    World::new(Plan::draw(seed).cut(cut), bug, false).run()
}

/// A run in which a panic is a violation like any other.
#[doc(hidden)]
pub fn run_caught(seed: u64, cut: &Cut, bug: Option<Bug>) -> ClusterReport {
    catch_unwind(|| run_with_bug(seed, cut, bug)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let mut report = World::new(Plan::draw(seed).cut(cut), bug, false).report;
        let text = text.unwrap_or_else(|| "the code under test stopped in the middle".to_owned());
        report.violation = Some(Violation { property: "panic", text });
        report
    })
}

/// How many events of a large group take some milliseconds.
const GOES_ON_EVERY: u64 = 256;

struct World {
    plan: Plan,
    bug: Option<Bug>,
    rng: Rng,
    now: Ticks,
    queue: Queue<Event>,
    machines: Vec<Machine>,
    connections: Vec<Connection>,
    /// From one machine to another nothing gets through until then.
    blocked: BTreeMap<(usize, usize), Ticks>,
    noise: [Noise; 4],
    callers: Vec<Caller>,
    watches: Vec<Watch>,
    /// Everybody who is inside of some lock.
    inside: BTreeMap<u64, Inside>,
    answers: Answers,
    epochs: Epochs,
    /// Who votes, as the last steward knew, since when most of them have stored that, and in which term: one that was paused does not
    /// know what came after it.
    voters: Vec<NodeId>,
    voters_since: Option<Ticks>,
    voters_term: Option<u64>,
    /// Somebody was evicted or leaves: until about then the group may go on with fewer voters, each of which is needed.
    shrinks_until: Ticks,
    /// The last member has left: there is no group any more that those who are out could join.
    is_over: bool,
    /// The machine on which the group was recovered, if it was.
    recovered_on: Option<usize>,
    /// Until then there are nodes of the group that was lost, and no new one is told to join.
    recovers_until: Ticks,
    /// The nodes whose disks are lost.
    lost: BTreeSet<NodeId>,
    /// Names that may have been banned, and those to admit again.
    banned: BTreeSet<String>,
    admit: BTreeSet<String>,
    admit_at: Ticks,
    requests: u64,
    /// Since then nothing goes wrong, and nobody is asked to go.
    calm_since: Ticks,
    pace: Pace,
    report: ClusterReport,
    /// The run is over, and goes on only until idle locks are forgotten.
    is_recorded: bool,
    logs: bool,
    /// What is seen over time, if somebody wants to see it.
    book: Option<Book>,
}

impl World {
    fn new(plan: Plan, bug: Option<Bug>, logs: bool) -> Self {
        let report = ClusterReport {
            nodes: plan.nodes,
            grants: 0,
            lapses: 0,
            epoch: 0,
            busy: 0,
            overtaken: 0,
            duration: 0,
            planned: plan.faults.len(),
            faults: [0; FaultKind::ALL.len()],
            violation: None,
            hash: plan.seed,
            wire: plan.seed,
            log: Vec::new(),
        };
        Self {
            bug,
            rng: Rng::new(plan.seed.rotate_left(32)),
            now: 0,
            queue: Queue::new(),
            machines: Vec::new(),
            connections: Vec::new(),
            blocked: BTreeMap::new(),
            noise: Default::default(),
            callers: Vec::new(),
            watches: plan.locks.iter().map(|_| Watch::new(&plan)).collect(),
            inside: BTreeMap::new(),
            answers: Answers::default(),
            epochs: Epochs::default(),
            voters: Vec::new(),
            voters_since: None,
            voters_term: None,
            shrinks_until: 0,
            is_over: false,
            recovered_on: None,
            recovers_until: 0,
            lost: BTreeSet::new(),
            banned: BTreeSet::new(),
            admit: BTreeSet::new(),
            admit_at: 0,
            requests: 0,
            calm_since: plan.faults_until,
            pace: Pace::default(),
            report,
            is_recorded: false,
            logs,
            book: None,
            plan,
        }
    }

    fn run(mut self) -> ClusterReport {
        self.run_to_end(&mut || true);
        self.report
    }

    /// False if it was given up: `goes_on` is asked now and then.
    fn run_to_end(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        self.set_up();
        let mut events = 0u64;
        while self.report.violation.is_none()
            && let Some((at, event)) = self.queue.pop()
        {
            events += 1;
            self.now = at;
            if events.is_multiple_of(GOES_ON_EVERY) && !goes_on() {
                return false;
            }
            let violation = self.pace.on_event(at, &self.plan);
            self.note(violation);
            if matches!(event, Event::Check) && self.is_settled() && !self.goes_on_without_steward() {
                break;
            }
            self.handle(event);
        }
        self.report.duration = self.now;
        self.report.epoch = self.epochs.highest();
        self.report.overtaken = self.watches.iter().map(Watch::overtaken).max().unwrap_or(0);
        self.check_leftovers();
        true
    }

    fn note(&mut self, violation: Option<Violation>) {
        if let Some(violation) = violation {
            self.log(|_| violation.to_string());
            self.report.violation.get_or_insert(violation);
        }
    }

    /// Adds an event to the digest.
    fn record(&mut self, event: [u64; 3]) {
        if self.is_recorded {
            return;
        }
        for number in [self.now].into_iter().chain(event) {
            self.report.hash = mix(self.report.hash, number);
        }
    }

    /// Adds what a node wrote to the digest of all bytes.
    fn record_bytes(&mut self, machine: usize, plane: Plane, bytes: &[u8]) {
        if self.is_recorded {
            return;
        }
        let about = (machine as u64) << 33 | u64::from(plane == Plane::Control) << 32 | bytes.len() as u64;
        self.report.wire = mix(self.report.wire, about);
        for eight in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..eight.len()].copy_from_slice(eight);
            self.report.wire = mix(self.report.wire, u64::from_be_bytes(number));
        }
    }

    fn log(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.logs {
            let line = format!("{:>12.6} {}", self.now as f64 / (1000 * MS) as f64, line(self));
            self.report.log.push(line);
        }
    }

    /// A moment from now on, at most so much later.
    fn within(&mut self, most: Ticks) -> Ticks {
        self.now + self.rng.below(most + 1)
    }
}

fn mix(digest: u64, number: u64) -> u64 {
    let mixed = (digest ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
