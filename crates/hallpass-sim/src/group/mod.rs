//! A simulated group of whole nodes: bytes on connections that break, callers that come and give up.
//!
//! One seed decides everything: how many nodes there are, which locks and protocols, how long callers hold and think, what
//! the network does. After the faults comes a time without any, in which every caller who waits must be served.
//!
//! ```
//! let report = hallpass_sim::group::run(7);
//! assert_eq!(report.violation, None);
//! assert_eq!(report.hash, hallpass_sim::group::run(7).hash);
//! ```

mod callers;
mod connection;
mod faults;
mod network;
mod plan;
#[cfg(test)]
mod tests;
mod watch;

use hallpass_core::{NodeId, Ticks};
use hallpass_node::{Node, Output, Slot};

use crate::Rng;
use crate::oracle::{Answers, Leftovers, Progress, Violation};
use crate::queue::Queue;

use callers::{Activity, Caller};
use connection::Connection;
pub use faults::{Bug, Fault};
use plan::{MS, Plan};
use watch::Watch;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReport {
    /// How many nodes took part.
    pub nodes: usize,
    /// Entries of all callers to all locks.
    pub grants: u64,
    /// How often whoever only tried was told that the lock is not free.
    pub busy: u64,
    /// How often a node refused a caller.
    pub refused: u64,
    /// The most entries, of writers or groups of readers, that one node made before another one of which it knew that it waits.
    pub overtaken: u64,
    /// How long it took in virtual time.
    pub duration: Ticks,
    /// How often each of [`Fault::ALL`] happened, in that order.
    pub faults: [u64; 6],
    /// The first violation, if there is one; the run ends there.
    pub violation: Option<Violation>,
    /// A digest of all events: the same seed gives the same.
    pub hash: u64,
    /// A digest of every byte that a node wrote: another version of the program that writes the same gives the same.
    pub wire: u64,
    /// All events, a line each, if the run was asked to log them.
    pub log: Vec<String>,
}

/// Runs what a seed decides.
pub fn run(seed: u64) -> GroupReport {
    Group::new(seed, None, false).run()
}

/// The same run with a log of all events.
pub fn run_logged(seed: u64) -> GroupReport {
    Group::new(seed, None, true).run()
}

/// A run without faults, with a bug in it.
#[doc(hidden)]
pub fn run_with_bug(seed: u64, lock: &str, bug: Bug) -> GroupReport {
    let mut group = Group::new(seed, Some(bug), false);
    group.plan = group.plan.quiet(lock);
    group.progress.on_progress(0);
    group.run()
}

#[derive(Debug)]
enum Event {
    /// Bytes arrive at one end of a connection.
    Chunk {
        connection: usize,
        end: usize,
        bytes: Vec<u8>,
    },
    /// One end of a connection notices that it is broken.
    Notice {
        connection: usize,
        end: usize,
    },
    Dial {
        nodes: [usize; 2],
    },
    /// A connection that did not take all bytes takes more.
    Writable {
        node: usize,
    },
    Timeout {
        node: usize,
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
    /// A connection breaks that has swallowed a frame.
    Break {
        connection: usize,
    },
    Fault,
    Resume {
        node: usize,
    },
}

struct Member {
    node: Node<u64>,
    id: NodeId,
    paused: bool,
    /// Events that came while it was paused.
    held_back: Vec<Event>,
    /// When the next [`Event::Timeout`] is scheduled.
    timeout: Option<Ticks>,
    /// The connection that counts, for each peer by position.
    current: Vec<Option<usize>>,
    /// Where each lock was when it was last entered.
    slots: Vec<Option<Slot>>,
}

struct Group {
    plan: Plan,
    rng: Rng,
    now: Ticks,
    queue: Queue<Event>,
    members: Vec<Member>,
    connections: Vec<Connection>,
    /// For each pair, lower position first: the newest connection, and until when none can be made.
    newest: Vec<Option<usize>>,
    blocked_until: Vec<Ticks>,
    dialing: Vec<bool>,
    callers: Vec<Caller>,
    watches: Vec<Watch>,
    answers: Answers,
    progress: Progress,
    bug: Option<Bug>,
    /// How many frames were added in each direction, for planted bugs.
    added: Vec<i64>,
    report: GroupReport,
    logs: bool,
}

/// Without faults no caller waits longer than this.
const WAIT_MAX: Ticks = 60_000 * MS;
/// Ends a run that does not end in virtual time.
const EVENTS_MAX: u64 = 20_000_000;

impl Group {
    fn new(seed: u64, bug: Option<Bug>, logs: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng);
        let mut progress = Progress::new(WAIT_MAX);
        progress.on_progress(plan.faults_until);
        let report = GroupReport {
            nodes: plan.nodes,
            grants: 0,
            busy: 0,
            refused: 0,
            overtaken: 0,
            duration: 0,
            faults: [0; 6],
            violation: None,
            hash: seed,
            wire: seed,
            log: Vec::new(),
        };
        let pairs = plan.nodes * plan.nodes;
        Self {
            rng,
            now: 0,
            queue: Queue::new(),
            members: Vec::new(),
            connections: Vec::new(),
            newest: vec![None; pairs],
            blocked_until: vec![0; pairs],
            dialing: vec![false; pairs],
            callers: Vec::new(),
            watches: Vec::new(),
            answers: Answers::default(),
            progress,
            bug,
            added: vec![0; pairs],
            report,
            logs,
            plan,
        }
    }

    fn run(mut self) -> GroupReport {
        self.set_up();
        let mut events = 0u64;
        let mut quiet_at = None;
        while self.report.violation.is_none() {
            let Some((at, event)) = self.queue.pop() else { break };
            events += 1;
            self.now = at;
            if quiet_at.is_none() && self.callers.iter().all(|caller| caller.activity == Activity::Done) {
                quiet_at = Some(self.now.max(self.plan.faults_until) + 3 * self.plan.cache_idle + 5000 * MS);
            }
            if quiet_at.is_some_and(|quiet| self.now > quiet) || events > EVENTS_MAX {
                break;
            }
            if quiet_at.is_none() && self.progress.is_stuck(self.now) {
                break;
            }
            self.handle(event);
        }
        if self.report.violation.is_none() {
            self.check_end();
        }
        self.report.duration = self.now;
        self.report.overtaken = self.watches.iter().map(Watch::overtaken).max().unwrap_or(0);
        self.report
    }

    fn set_up(&mut self) {
        let count = self.plan.nodes;
        for position in 0..count {
            let mut config = self.plan.node(position);
            if self.bug == Some(Bug::NeverYield) {
                config.local_streak = u32::MAX;
            }
            let id = config.me;
            let node = Node::new(config).expect("the plan has classes that exist");
            let current = vec![None; count];
            let slots = vec![None; self.plan.locks.len()];
            self.members.push(Member { node, id, paused: false, held_back: Vec::new(), timeout: None, current, slots });
            for _ in 0..self.plan.callers {
                let caller = self.callers.len();
                self.callers.push(Caller::new(position));
                let at = self.rng.below(20 * MS);
                self.queue.push(at, Event::Acquire { caller });
            }
            (0..position).for_each(|lower| self.dial_later([lower, position], 20 * MS));
        }
        self.watches = self.plan.locks.iter().map(|_| Watch::new(&self.plan)).collect();
        self.schedule_fault();
    }

    fn handle(&mut self, event: Event) {
        if let Some(node) = self.owner(&event)
            && self.members[node].paused
        {
            return self.members[node].held_back.push(event);
        }
        match event {
            Event::Chunk { connection, end, bytes } => self.on_chunk(connection, end, &bytes),
            Event::Notice { connection, end } => self.on_notice(connection, end),
            Event::Dial { nodes } => self.on_dial(nodes),
            Event::Writable { node } => {
                self.members[node].node.handle_writable(self.now);
                self.drain(node);
            }
            Event::Timeout { node } => self.on_timeout(node),
            Event::Acquire { caller } => self.on_acquire(caller),
            Event::Cancel { caller, round } => self.on_cancel(caller, round),
            Event::Release { caller, round } => self.on_release(caller, round),
            Event::Fault => self.on_fault(),
            Event::Break { connection } => self.break_off(connection),
            Event::Resume { node } => {
                self.members[node].paused = false;
                for event in std::mem::take(&mut self.members[node].held_back) {
                    self.handle(event);
                }
            }
        }
    }

    /// The node that must be running for this event.
    fn owner(&self, event: &Event) -> Option<usize> {
        match event {
            Event::Chunk { connection, end, .. } | Event::Notice { connection, end } => {
                Some(self.connections[*connection].nodes[*end])
            }
            Event::Writable { node } | Event::Timeout { node } => Some(*node),
            Event::Acquire { caller } | Event::Cancel { caller, .. } | Event::Release { caller, .. } => {
                Some(self.callers[*caller].node)
            }
            Event::Dial { .. } | Event::Break { .. } | Event::Fault | Event::Resume { .. } => None,
        }
    }

    /// The driver's contract: after every input, all outputs in order, then the next timeout.
    fn drain(&mut self, node: usize) {
        while let Some(output) = self.members[node].node.poll_output() {
            match output {
                // Disks are as fast as thought, as long as no fault slows them.
                Output::Persist(record) => self.members[node].node.handle_persisted(record, self.now),
                Output::Answer { caller, outcome } => self.on_answer(node, caller, outcome),
                Output::Transmit(peer) => self.transmit(node, peer),
                other => unreachable!("with a fixed list of members there is no {other:?}"),
            }
        }
        if let Some(at) = self.members[node].node.poll_timeout()
            && self.members[node].timeout.is_none_or(|timeout| at < timeout)
        {
            self.members[node].timeout = Some(at);
            self.queue.push(at.max(self.now), Event::Timeout { node });
        }
    }

    fn on_timeout(&mut self, node: usize) {
        let member = &mut self.members[node];
        if member.timeout.is_some_and(|timeout| timeout <= self.now) {
            member.timeout = None;
        }
        member.node.handle_timeout(self.now);
        self.drain(node);
    }

    fn check_end(&mut self) {
        let undone = self.callers.iter().filter(|caller| caller.activity != Activity::Done).count();
        if undone > 0 {
            let waiting = self.answers.waiting();
            let text = || format!("{undone} callers are not done and nothing more happens");
            let stuck = || Violation { property: "progress", text: text() };
            return self.note(Some(self.progress.on_end(&waiting).unwrap_or_else(stuck)));
        }
        for position in 0..self.members.len() {
            let member = &self.members[position];
            let left = member.node.locks().find_map(|lock| Leftovers.on_end(member.id, &lock));
            self.note(left);
        }
    }

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

    fn record_bytes(&mut self, bytes: &[u8]) {
        self.report.wire = bytes.iter().fold(self.report.wire, |wire, byte| mix(wire, (*byte).into()));
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

fn mix(hash: u64, number: u64) -> u64 {
    let mixed = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
