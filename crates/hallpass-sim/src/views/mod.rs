//! A simulated group of whole nodes with views: machines with disks and clocks of their own, two connections a pair, callers,
//! and everything that goes wrong with them. Members come, leave, crash, return, are cut off, stand still and are evicted.
//!
//! One seed decides everything. After the faults comes a time without any, in which all nodes must come together in one view
//! and every caller must be served. A run that fails can be cut down: see [`shrink`].
//!
//! ```
//! use hallpass_sim::views::{Cut, run};
//!
//! let report = run(7, &Cut::default());
//! assert_eq!(report.violation, None);
//! assert_eq!(report.hash, run(7, &Cut::default()).hash);
//! ```

mod callers;
mod clock;
mod disk;
mod faults;
mod limits;
mod network;
mod operator;
mod plan;
mod scenes;
mod shrink;
mod story;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use hallpass_core::{NodeId, Ticks};
use hallpass_node::wire::Plane;
use hallpass_node::{
    Founding, Incarnation, Node, NodeConfig, Output, Record, Request, RequestError, Sabotage, Slot, Ticket,
    ViewsConfig, Write, keys,
};

use crate::Rng;
use crate::oracle::{Answers, Epochs, Violation};
use crate::queue::Queue;

use callers::{Activity, Caller};
use clock::Clock;
use disk::Disk;
pub use faults::FaultKind;
use faults::{Fault, Noise};
use limits::Pace;
use network::Connection;
pub use plan::Cut;
use plan::{MS, Plan, Settings};
pub use shrink::shrink;
use story::Book;
pub use story::{Entry, FaultSeen, NodeChange, Story, StoryFault, StoryFaultKind, StorySpec, tell, tell_seed};
use watch::{Inside, Watch};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewsReport {
    /// How many nodes found the group.
    pub nodes: usize,
    /// Entries of all callers to all locks.
    pub grants: u64,
    /// How often a node lost everything it held because its session ran out.
    pub lapses: u64,
    /// The number of the last view.
    pub epoch: u64,
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
    /// A founder that has lost its directory founds again alone, whoever has joined its first group.
    ForgetMark,
    /// In every node.
    Node(Sabotage),
}

impl Bug {
    /// All of them, with their names in the command line.
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
pub fn run(seed: u64, cut: &Cut) -> ViewsReport {
    World::new(Plan::draw(seed).cut(cut), None, false).run()
}

/// The same run with a log of all events.
pub fn run_logged(seed: u64, cut: &Cut) -> ViewsReport {
    World::new(Plan::draw(seed).cut(cut), None, true).run()
}

/// A large group: five nodes vote, the others join, one dies and returns.
pub fn run_large(members: usize) -> ViewsReport {
    World::new(Plan::large(members), None, false).run()
}

/// A run that may have a bug in it.
#[doc(hidden)]
pub fn run_with_bug(seed: u64, cut: &Cut, bug: Option<Bug>) -> ViewsReport {
    World::new(Plan::draw(seed).cut(cut), bug, false).run()
}

/// A run in which a panic is a violation like any other.
#[doc(hidden)]
pub fn run_caught(seed: u64, cut: &Cut, bug: Option<Bug>) -> ViewsReport {
    catch_unwind(|| run_with_bug(seed, cut, bug)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let mut report = World::new(Plan::draw(seed).cut(cut), bug, false).report;
        let text = text.unwrap_or_else(|| "the code under test stopped in the middle".to_owned());
        report.violation = Some(Violation { property: "panic", text });
        report
    })
}

/// The consensus engine's term and vote are stored under this number.
const HARD_STATE: u64 = 16;
/// No node needs more timeouts at one instant.
const TIMEOUTS_MAX: u32 = 1000;
/// A group without directories begins with an epoch that the clock gives: one for so much time, as the library counts.
const CLOCK_STEP: Ticks = 4000 * MS;
/// So many events of a large group take some milliseconds.
const GOES_ON_EVERY: u64 = 256;

#[derive(Debug)]
enum Event {
    /// Bytes arrive at one end of a connection.
    Arrive {
        connection: usize,
        end: usize,
        bytes: Vec<u8>,
    },
    /// One end of a connection notices that it is broken.
    Notice {
        connection: usize,
        end: usize,
    },
    /// A process makes the connections that it lacks.
    Connect {
        machine: usize,
        life: u64,
    },
    /// A connection that did not take all bytes takes more.
    Writable {
        machine: usize,
        life: u64,
    },
    Timeout {
        machine: usize,
        life: u64,
    },
    /// The thread that writes takes what there is.
    Taken {
        machine: usize,
        life: u64,
    },
    /// A disk has carried out what was being written.
    Synced {
        machine: usize,
        life: u64,
    },
    /// The process hears of it.
    Persisted {
        machine: usize,
        life: u64,
        write: Write,
    },
    Acquire {
        caller: usize,
    },
    Cancel {
        caller: usize,
        round: u32,
    },
    Release {
        caller: usize,
        round: u32,
    },
    /// A guard is dropped whose lock was lost before.
    DropGuard {
        machine: usize,
        life: u64,
        ticket: Ticket,
    },
    Fault(Fault),
    Resume {
        machine: usize,
    },
    Restart {
        machine: usize,
    },
    /// An operator empties the directory of a node whose group is no more.
    Wipe {
        machine: usize,
    },
    FreeSpace {
        machine: usize,
    },
    /// A process that is still there is ended.
    Kill {
        machine: usize,
        life: u64,
    },
    /// The faults are over.
    Heal,
    /// Whether everything is as it should be after the faults.
    Check,
}

/// Where one node runs, and the next one after its disk is lost.
struct Machine {
    /// Also its address.
    name: String,
    /// What its node is called: a directory that moves takes that along.
    node_name: String,
    settings: Settings,
    /// What is stored here outlives a process.
    durable: bool,
    clock: Clock,
    disk: Disk,
    /// Syncing takes seconds until then.
    slow_until: Ticks,
    /// How many processes have been started here.
    life: u64,
    process: Option<Process>,
    paused: bool,
    /// Events that came while it was paused.
    held_back: Vec<Event>,
    /// It is about to end, once this request is answered.
    ending: Option<Ending>,
    ends_with: Option<u64>,
    asked_at: Ticks,
    /// Its node has left for good.
    is_gone: bool,
    /// It is one of those that found the group; also with an empty disk later, since its configuration is the same.
    founds: bool,
    /// Its directory is attached to another machine: its process goes on without one, and nobody reaches it.
    is_cut_off: bool,
    /// Its directory was another machine's, whose process may live.
    is_foreign: bool,
    /// It has been in a view with others.
    has_been_more: bool,
    /// Its directory was lost, and what is remembered elsewhere, too: it has founded another group of the same name.
    is_stray: bool,
    /// Its group was lost and is no more: it is to join the recovered one, with an empty directory.
    is_obsolete: bool,
    /// It is not started before.
    rests_until: Ticks,
}

impl Machine {
    /// It is about to end, or cut off from its directory: operators leave it alone.
    fn is_busy(&self) -> bool {
        self.ending.is_some() || self.is_cut_off
    }
}

/// Why a process is about to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// Cleanly, and is started again at that time.
    Stops {
        until: Ticks,
    },
    Leaves,
}

struct Process {
    node: Node<u64>,
    /// What it has asked the group for, until that is answered.
    orders: BTreeMap<u64, String>,
    /// When the next [`Event::Timeout`] and [`Event::Connect`] are scheduled.
    timeout: Option<Ticks>,
    /// When the last timeout was, and how many there were at that instant.
    timeouts: (Ticks, u32),
    connects_at: Option<Ticks>,
    /// The connections that count, by peer.
    locks: BTreeMap<NodeId, usize>,
    control: BTreeMap<NodeId, usize>,
    /// All connections that may still stand.
    connections: Vec<usize>,
    /// Machines that are being dialed, whether for control messages, and who is expected there.
    dialing: BTreeSet<(usize, bool, Option<NodeId>)>,
    /// And when they may be dialed again.
    dialed: BTreeMap<(usize, bool, Option<NodeId>), Ticks>,
    /// Where each lock was when it was last entered.
    slots: Vec<Option<Slot>>,
    /// The last epoch that it knew, and whether it was open.
    seen: (Option<u64>, bool),
    /// It has been in a view.
    was_member: bool,
}

impl Process {
    fn current(&self, plane: Plane) -> &BTreeMap<NodeId, usize> {
        if plane == Plane::Locks { &self.locks } else { &self.control }
    }

    fn current_mut(&mut self, plane: Plane) -> &mut BTreeMap<NodeId, usize> {
        if plane == Plane::Locks { &mut self.locks } else { &mut self.control }
    }
}

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
    /// Who votes, as the last steward knew, since when, and in which term: one that was paused does not know what came after it.
    voters: Vec<NodeId>,
    voters_since: Ticks,
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
    report: ViewsReport,
    logs: bool,
    /// What is seen over time, if somebody wants to see it.
    book: Option<Book>,
}

impl World {
    fn new(plan: Plan, bug: Option<Bug>, logs: bool) -> Self {
        let report = ViewsReport {
            nodes: plan.nodes,
            grants: 0,
            lapses: 0,
            epoch: 0,
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
            watches: plan.locks.iter().map(|_| Watch::default()).collect(),
            inside: BTreeMap::new(),
            answers: Answers::default(),
            epochs: Epochs::default(),
            voters: Vec::new(),
            voters_since: 0,
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
            logs,
            book: None,
            plan,
        }
    }

    fn run(mut self) -> ViewsReport {
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
        true
    }

    fn set_up(&mut self) {
        for _ in 0..self.plan.nodes {
            let mut rng = Rng::new(self.rng.next_u64());
            let clock = self.draw_clock(&mut rng);
            self.add_machine(clock, true);
        }
        for machine in 0..self.plan.nodes {
            let at = self.rng.below(100 * MS);
            self.queue.push(at, Event::Restart { machine });
        }
        for fault in self.plan.faults.clone() {
            self.queue.push(fault.at, Event::Fault(fault));
        }
        self.queue.push(self.plan.faults_until, Event::Heal);
    }

    fn add_machine(&mut self, clock: Clock, founds: bool) -> usize {
        let machine = self.machines.len();
        self.machines.push(Machine {
            name: format!("m{machine}"),
            node_name: format!("m{machine}"),
            settings: self.plan.settings(machine, founds),
            durable: self.plan.is_durable(machine, founds),
            clock,
            disk: Disk::default(),
            slow_until: 0,
            life: 0,
            process: None,
            paused: false,
            held_back: Vec::new(),
            ending: None,
            ends_with: None,
            asked_at: 0,
            is_gone: false,
            founds,
            is_cut_off: false,
            is_foreign: false,
            has_been_more: false,
            is_stray: false,
            is_obsolete: false,
            rests_until: 0,
        });
        self.note_settings(machine);
        for _ in 0..self.plan.callers {
            let caller = self.callers.len();
            self.callers.push(Caller::new(machine));
            let at = self.within(200 * MS);
            self.queue.push(at, Event::Acquire { caller });
        }
        machine
    }

    fn handle(&mut self, event: Event) {
        if let Some((machine, life)) = self.owner(&event) {
            let Machine { process, paused, held_back, life: current, .. } = &mut self.machines[machine];
            if process.is_none() || life.is_some_and(|life| life != *current) {
                if let Event::Acquire { caller } = event {
                    self.ask_later(caller);
                }
                return;
            }
            if *paused {
                return held_back.push(event);
            }
        }
        match event {
            Event::Arrive { connection, end, bytes } => self.on_arrive(connection, end, &bytes),
            Event::Notice { connection, end } => self.on_notice(connection, end),
            Event::Connect { machine, .. } => self.on_connect(machine),
            Event::Writable { machine, .. } => self.with_node(machine, |node, now| node.handle_writable(now)),
            Event::Timeout { machine, .. } => self.on_timeout(machine),
            Event::Taken { machine, life } => self.take_writes(machine, life, usize::MAX),
            Event::Synced { machine, life } => self.on_synced(machine, life),
            Event::Persisted { machine, write, .. } => {
                self.with_node(machine, |node, now| node.handle_persisted(Record::Write(write), now));
            }
            Event::Acquire { caller } => self.on_acquire(caller),
            Event::Cancel { caller, round } => self.on_cancel(caller, round),
            Event::Release { caller, round } => self.on_release(caller, round),
            Event::DropGuard { machine, ticket, .. } => {
                // It is not known any more, or has not been released yet: both are fine.
                self.with_node(machine, |node, now| {
                    node.handle_release(ticket, now);
                });
            }
            Event::Fault(fault) => self.on_fault(fault),
            Event::Resume { machine } => self.resume(machine),
            Event::Restart { machine } => self.restart(machine),
            Event::Wipe { machine } => self.wipe(machine),
            Event::FreeSpace { machine } => {
                self.machines[machine].disk.is_full = false;
                self.restart(machine);
            }
            Event::Kill { machine, life } => {
                if self.machines[machine].life == life && self.machines[machine].process.is_some() {
                    self.end_process(machine);
                }
            }
            Event::Heal => self.on_heal(),
            Event::Check => self.on_check(),
        }
    }

    /// The machine, and which of its processes, that must be running for this event.
    fn owner(&self, event: &Event) -> Option<(usize, Option<u64>)> {
        match event {
            Event::Arrive { connection, end, .. } | Event::Notice { connection, end } => {
                let end = &self.connections[*connection].ends[*end];
                Some((end.machine, Some(end.life)))
            }
            Event::Connect { machine, life }
            | Event::Writable { machine, life }
            | Event::Timeout { machine, life }
            | Event::Persisted { machine, life, .. }
            | Event::DropGuard { machine, life, .. } => Some((*machine, Some(*life))),
            Event::Acquire { caller } | Event::Cancel { caller, .. } | Event::Release { caller, .. } => {
                Some((self.callers[*caller].machine, None))
            }
            _ => None,
        }
    }

    // ---- processes ----

    fn restart(&mut self, machine: usize) {
        // What was torn is emptied at once, or when the faults are over.
        if self.machines[machine].disk.is_torn && (self.now >= self.plan.faults_until || self.rng.chance(0.5)) {
            self.lose_disk(machine);
        }
        if self.now < self.machines[machine].rests_until {
            return self.queue.push(self.machines[machine].rests_until, Event::Restart { machine });
        }
        if self.machines[machine].process.is_none() && std::mem::take(&mut self.machines[machine].is_obsolete) {
            self.lose_disk(machine);
            self.machines[machine].founds = false;
        }
        let Machine { process, disk, is_gone, is_cut_off, life, .. } = &self.machines[machine];
        if process.is_some() || *is_gone || *is_cut_off || disk.is_torn || disk.is_full {
            return;
        }
        if *life > 0 && !disk.records.is_empty() {
            self.count(FaultKind::Restart);
        }
        self.start(machine);
    }

    /// Starts a process: it takes its identity from the disk, and counts its start there before anything else.
    fn start(&mut self, machine: usize) {
        let (now, seed, drawn) = (self.now, self.rng.next_u64(), self.rng.next_u64());
        let founds = self.may_found(machine);
        let Machine { name, node_name, settings, durable, disk, life, is_foreign, .. } = &mut self.machines[machine];
        *life += 1;
        let number = |key: u64| disk.records.get(&key)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let id = number(keys::IDENTITY).unwrap_or((drawn as u32).max(1));
        let counted = number(keys::INCARNATION).unwrap_or(0);
        let incarnation = match self.bug {
            Some(Bug::SameIncarnation) => counted.max(1),
            _ => counted + 1,
        };
        disk.records.insert(keys::IDENTITY, id.to_be_bytes().to_vec());
        disk.records.insert(keys::INCARNATION, incarnation.to_be_bytes().to_vec());
        if self.bug == Some(Bug::ForgetVote) {
            disk.forget_since_start(HARD_STATE);
        }
        let founding = if founds { Founding::Together(settings.expect) } else { Founding::Never };
        let views = ViewsConfig {
            founding,
            durable: *durable,
            stored: disk.records.clone(),
            epoch_floor: if *durable { 0 } else { 1 + now / CLOCK_STEP },
            predecessor_is_dead: !self.plan.callers_outlive && !*is_foreign,
            ttl: settings.ttl,
            drift_ppm: settings.drift_ppm,
            replace_after: settings.replace_after,
            voters_max: settings.voters_max,
            sabotage: if let Some(Bug::Node(sabotage)) = self.bug { Some(sabotage) } else { None },
            ..ViewsConfig::new(name.clone())
        };
        let config = NodeConfig {
            name: node_name.clone(),
            incarnation: Incarnation::new(incarnation).expect("few starts"),
            boot_id: drawn,
            classes: settings.classes.clone(),
            local_streak: self.plan.local_streak,
            cache_idle: self.plan.cache_idle,
            seed,
            views: Some(views),
            ..NodeConfig::new(NodeId(id), [NodeId(id)])
        };
        let node = Node::new(config).expect("a node starts from what it has stored");
        self.machines[machine].process = Some(Process {
            orders: BTreeMap::new(),
            node,
            timeout: None,
            timeouts: (0, 0),
            connects_at: None,
            locks: BTreeMap::new(),
            control: BTreeMap::new(),
            connections: Vec::new(),
            dialing: BTreeSet::new(),
            dialed: BTreeMap::new(),
            slots: vec![None; self.plan.locks.len()],
            seen: (None, false),
            was_member: false,
        });
        self.note_start(NodeId(id), machine);
        self.log(|world| format!("{} starts as node {id}, incarnation {incarnation}", world.machines[machine].name));
        self.record([6, machine as u64, id.into()]);
        self.drain(machine);
        self.connect_later(machine, 20 * MS);
    }

    /// A process is gone at once.
    fn crash(&mut self, machine: usize, tears: bool) {
        // Nobody is told more than a session's time, also by a node that is alone.
        let deadline = self.valid_until(machine).min(self.local(machine) + self.plan.ttl);
        let here = &mut self.machines[machine];
        let Some(process) = here.process.take() else { return };
        here.disk.on_crash(tears, &mut self.rng);
        (here.paused, here.ending) = (false, None);
        let held_back = std::mem::take(&mut here.held_back);
        let loses = here.disk.is_torn || !here.durable;
        self.log(|world| format!("{} is gone", world.machines[machine].name));
        self.note_change(machine);
        for connection in process.connections.iter().copied() {
            self.break_off(connection);
        }
        if loses {
            self.lost.insert(process.node.id());
        }
        if !self.machines[machine].durable {
            self.empty_disk(machine);
        }
        self.lose_callers(machine, deadline);
        for event in held_back {
            if let Event::Acquire { caller } = event {
                self.ask_later(caller);
            }
        }
    }

    /// A process ends as it was asked to.
    fn end_process(&mut self, machine: usize) {
        let ending = self.machines[machine].ending;
        self.crash(machine, false);
        match ending {
            Some(Ending::Leaves) => {
                self.lose_disk(machine);
                self.machines[machine].is_gone = true;
            }
            Some(Ending::Stops { until }) => self.queue.push(until.max(self.now), Event::Restart { machine }),
            None => self.queue.push(self.now, Event::Restart { machine }),
        }
    }

    /// A process goes on. What has come meanwhile it reads in one go: what came over one way in its order, but which of its threads
    /// is first to get the node is left to chance.
    fn resume(&mut self, machine: usize) {
        if !std::mem::take(&mut self.machines[machine].paused) {
            return;
        }
        self.log(|world| format!("{} goes on", world.machines[machine].name));
        self.note_change(machine);
        let held_back = std::mem::take(&mut self.machines[machine].held_back);
        let mut ways: Vec<((u64, usize), Vec<Event>)> = Vec::new();
        for event in held_back {
            let way = self.way(&event);
            match ways.iter_mut().find(|(known, _)| *known == way) {
                Some((_, events)) => events.push(event),
                None => ways.push((way, vec![event])),
            }
        }
        while !ways.is_empty() {
            let first = self.rng.below(ways.len() as u64) as usize;
            for event in ways.swap_remove(first).1 {
                self.handle(event);
            }
        }
    }

    /// By which way an event gets to the process: what the disk's thread says, the clock, each connection, and each caller.
    fn way(&self, event: &Event) -> (u64, usize) {
        match event {
            Event::Persisted { .. } => (0, 0),
            Event::Timeout { .. } | Event::Connect { .. } | Event::Writable { .. } => (1, 0),
            Event::Arrive { connection, .. } | Event::Notice { connection, .. } => (2, *connection),
            Event::Acquire { caller } | Event::Cancel { caller, .. } | Event::Release { caller, .. } => (3, *caller),
            _ => (4, 0),
        }
    }

    // ---- the driver ----

    /// What the machine's clock shows.
    fn local(&self, machine: usize) -> Ticks {
        self.machines[machine].clock.at(self.now)
    }

    fn with_node(&mut self, machine: usize, input: impl FnOnce(&mut Node<u64>, Ticks)) {
        let now = self.local(machine);
        if let Some(process) = &mut self.machines[machine].process {
            input(&mut process.node, now);
            self.drain(machine);
        }
    }

    /// The driver's contract: after every input, all outputs in order, then the next timeout.
    fn drain(&mut self, machine: usize) {
        while let Some(process) = &mut self.machines[machine].process
            && let Some(output) = process.node.poll_output()
        {
            match output {
                Output::Persist(Record::Write(write)) => self.persist(machine, write),
                Output::Persist(record) => unreachable!("with views there is no {record:?}"),
                Output::Answer { caller, outcome } => self.on_answer(machine, caller, outcome),
                Output::Lapsed => self.on_lapsed(machine),
                Output::Lost(ticket) => self.on_lost(machine, ticket),
                Output::Revoked { ticket, .. } => self.on_revoked(machine, ticket),
                Output::Done { token, result } => self.on_done(machine, token, &result),
                Output::View => self.on_view(machine),
                Output::Disconnect(peer) => self.disconnect(machine, peer),
                Output::Control { to, bytes } => self.send_control(machine, to, bytes),
                Output::Transmit(peer) => self.transmit(machine, peer),
                other => unreachable!("the simulator does not know {other:?}"),
            }
        }
        self.watch(machine);
        self.note_change(machine);
        let Machine { process, clock, life, .. } = &mut self.machines[machine];
        let Some(process) = process else { return };
        if let Some(local) = process.node.poll_timeout() {
            let at = clock.when(local).max(self.now);
            if process.timeout.is_none_or(|timeout| at < timeout) {
                process.timeout = Some(at);
                self.queue.push(at, Event::Timeout { machine, life: *life });
            }
        }
    }

    fn on_timeout(&mut self, machine: usize) {
        let process = self.machines[machine].process.as_mut().expect("it runs");
        // One that was scheduled before an earlier one was needed comes a second time.
        if process.timeout.take_if(|timeout| *timeout <= self.now).is_none() {
            return;
        }
        let (last, count) = process.timeouts;
        process.timeouts = (self.now, if last == self.now { count + 1 } else { 0 });
        if count > TIMEOUTS_MAX {
            let text =
                format!("node {} asks for a timeout again and again, and time does not go on", process.node.id());
            self.note(Some(Violation { property: "timeout", text }));
        }
        self.with_node(machine, |node, now| node.handle_timeout(now));
    }

    /// Gives a write to the thread that writes. It is idle or at work: then the write waits with others for its turn.
    fn persist(&mut self, machine: usize, write: Write) {
        let (life, is_cut_off) = (self.machines[machine].life, self.machines[machine].is_cut_off);
        if is_cut_off {
            return;
        }
        if self.bug == Some(Bug::SendBeforeSync) {
            self.queue.push(self.now, Event::Persisted { machine, life, write: write.clone() });
        }
        self.machines[machine].disk.submit(write);
        if self.machines[machine].disk.may_take() {
            // It may be as quick as to take the first alone.
            if self.rng.chance(0.2) {
                self.take_writes(machine, life, 1);
            } else {
                self.queue.push(self.now, Event::Taken { machine, life });
            }
        }
    }

    fn take_writes(&mut self, machine: usize, life: u64, most: usize) {
        let here = &mut self.machines[machine];
        if here.life != life || here.process.is_none() || !here.disk.may_take() {
            return;
        }
        here.disk.take(most);
        let slow = if self.now < here.slow_until { self.rng.below(3000 * MS) } else { 0 };
        let takes = self.plan.sync / 2 + self.rng.exponential(self.plan.sync as f64 / 2.0) as Ticks;
        self.queue.push(self.now + takes + slow, Event::Synced { machine, life });
    }

    fn on_synced(&mut self, machine: usize, life: u64) {
        let here = &self.machines[machine];
        if here.life != life || here.process.is_none() || here.is_cut_off {
            return;
        }
        if here.disk.is_full {
            return self.crash(machine, false);
        }
        if std::mem::take(&mut self.machines[machine].disk.tears_next) && self.may_lose_disk(machine) {
            self.count(FaultKind::DiskTorn);
            return self.crash(machine, true);
        }
        let writes = self.machines[machine].disk.sync();
        self.take_writes(machine, life, usize::MAX);
        if self.bug == Some(Bug::SendBeforeSync) {
            return;
        }
        // The node hears of each by itself, and of other things between them.
        let mut at = self.now;
        for (number, write) in writes.into_iter().enumerate() {
            if number > 0 && self.rng.chance(0.5) {
                at += self.rng.below(self.plan.latency);
            }
            let event = Event::Persisted { machine, life, write };
            if at == self.now { self.handle(event) } else { self.queue.push(at, event) }
        }
    }

    // ---- requests ----

    fn request(&mut self, machine: usize, request: Request) {
        self.requests += 1;
        let token = self.requests;
        self.log(|world| format!("{} asks the group: {request:?} ({token})", world.machines[machine].name));
        if let Some(process) = &mut self.machines[machine].process {
            process.orders.insert(token, format!("{request:?}"));
        }
        self.with_node(machine, |node, now| node.handle_request(request, token, now));
    }

    fn on_done(&mut self, machine: usize, token: u64, result: &Result<(), RequestError>) {
        self.log(|world| format!("{}: request {token}: {result:?}", world.machines[machine].name));
        self.record([7, token, u64::from(result.is_ok())]);
        let here = &mut self.machines[machine];
        if let Some(process) = &mut here.process {
            process.orders.remove(&token);
        }
        if here.ending == Some(Ending::Leaves) && here.ends_with == Some(token) && result.is_ok() {
            let members = here.process.as_ref().map_or_else(Vec::new, |process| process.node.members());
            let me = here.process.as_ref().map(|process| process.node.id());
            // Only the steward leaves without anybody who takes over, and it knows who is in the group.
            let decides = members.iter().any(|member| member.steward && Some(member.id) == me);
            self.is_over |= decides && members.iter().all(|member| !member.in_view || Some(member.id) == me);
        }
        match here.ending {
            Some(_) if result.is_ok() && here.ends_with == Some(token) => {
                self.queue.push(self.now, Event::Kill { machine, life: here.life });
            }
            Some(Ending::Leaves) if here.ends_with == Some(token) => here.ending = None,
            _ => {}
        }
    }

    // ---- after the faults ----

    fn on_check(&mut self) {
        self.watch_endings();
        let plan = &self.plan;
        if self.now > self.calm_since + 40 * plan.ttl + 2 * plan.replace_after + 30_000 * MS {
            let violation = self.unsettled();
            for machine in 0..self.machines.len() {
                let status = self.machines[machine].process.as_ref().map(|process| process.node.status());
                self.log(|world| format!("{}: {status:?}", world.machines[machine].name));
            }
            return self.note(Some(violation));
        }
        if self.now >= self.admit_at {
            self.admit_at = self.now + 4 * self.plan.ttl;
            // Any node passes it on, also one that is not admitted itself; best one that surely reaches the steward.
            let running = |machine: &&usize| self.machines[**machine].ending.is_none();
            let is_open =
                |machine: &usize| self.machines[*machine].process.as_ref().map(|process| process.node.is_complete());
            let machines: Vec<usize> = (0..self.machines.len()).collect();
            if let Some(asked) = machines.iter().filter(running).max_by_key(|machine| is_open(machine)).copied() {
                for name in self.admit.clone() {
                    self.request(asked, Request::Admit { name });
                }
            }
        }
        self.queue.push(self.now + 100 * MS, Event::Check);
    }

    /// Everybody is in one open view, and every caller has been served.
    fn is_settled(&self) -> bool {
        if self.is_over {
            return true;
        }
        // If all leave, whoever is cut off meanwhile may be told by nobody.
        let leaves = |machine: &Machine| machine.is_gone || matches!(machine.ending, Some(Ending::Leaves));
        if self.machines.iter().all(leaves) {
            return true;
        }
        let callers = self.callers.iter().all(|caller| caller.activity == Activity::Done);
        let mut here = self.machines.iter().filter(|machine| !machine.is_gone);
        let epoch = self.epochs.highest();
        callers
            && here.all(|machine| {
                let is_open = |process: &Process| {
                    process.node.is_complete() && process.node.epoch() == Some(epoch) && process.orders.is_empty()
                };
                machine.process.as_ref().is_some_and(is_open) && machine.ending.is_none()
            })
    }

    fn unsettled(&self) -> Violation {
        let out = self.machines.iter().filter(|machine| !machine.is_gone).filter_map(|machine| {
            let Some(process) = &machine.process else { return Some(format!("{} does not run", machine.name)) };
            let status = process.node.status();
            if let Some((_, order)) = process.orders.first_key_value() {
                return Some(format!("{} has no answer to {order}", machine.name));
            }
            let fine = status.epoch == Some(self.epochs.highest()) && process.node.is_complete();
            let (epoch, why) = (status.epoch.unwrap_or(0), status.waits_for.unwrap_or_default());
            (!fine).then(|| {
                format!("{} (node {}) is {:?} in epoch {epoch}: {why}", machine.name, process.node.id(), status.view)
            })
        });
        let out: Vec<String> = out.take(4).collect();
        let waiting = self.callers.iter().enumerate().filter(|(_, caller)| caller.activity != Activity::Done);
        let waiting: Vec<String> = waiting
            .map(|(number, caller)| {
                let (machine, lock) = (&self.machines[caller.machine].name, &self.plan.locks[caller.lock]);
                let (mode, activity) = (caller.mode, caller.activity);
                format!("{machine}: {:x} for '{lock}' {mode:?} {activity:?}", self.name(number))
            })
            .collect();
        let text = if out.is_empty() {
            let (count, some) = (waiting.len(), &waiting[..waiting.len().min(3)]);
            format!("all nodes are in one view, and {count} callers are not served: {}", some.join("; "))
        } else {
            format!("the faults are long over, but {}", out.join("; "))
        };
        Violation { property: "progress", text }
    }

    // ---- what is written down ----

    fn note(&mut self, violation: Option<Violation>) {
        if let Some(violation) = violation {
            self.log(|_| violation.to_string());
            self.report.violation.get_or_insert(violation);
        }
    }

    /// Adds an event to the digest.
    fn record(&mut self, event: [u64; 3]) {
        for number in [self.now].into_iter().chain(event) {
            self.report.hash = mix(self.report.hash, number);
        }
    }

    /// Adds what a node wrote to the digest of all bytes.
    fn record_bytes(&mut self, machine: usize, plane: Plane, bytes: &[u8]) {
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
