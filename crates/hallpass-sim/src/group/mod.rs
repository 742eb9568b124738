//! A simulated group of whole nodes: bytes on connections that break, callers that come and give up.
//!
//! One seed decides everything: how many nodes there are, which locks and protocols, how patient the callers are, what the
//! network does to them. After the faults comes a time without any, in which everybody who waits must be served.
//!
//! ```
//! let report = hallpass_sim::group::run(7);
//! assert_eq!(report.violation, None);
//! assert_eq!(report.hash, hallpass_sim::group::run(7).hash);
//! ```

mod connection;
mod plan;
#[cfg(test)]
mod tests;

use hallpass_core::codec::DecodeError;
use hallpass_core::{Fence, Mode, NodeId, Ticks};
use hallpass_node::wire::Hello;
use hallpass_node::{Answer, Node, Output, Patience, Ticket};

use crate::Rng;
use crate::oracle::{Answers, Exclusion, FenceOrder, Leftovers, Progress, Violation};
use crate::queue::Queue;

use connection::{Connection, State, renumber};
use plan::{MS, Plan};

/// What can go wrong in a group whose membership is fixed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Bytes are under way for much longer than usual.
    Delay,
    /// A connection breaks and loses the last of what was on its way, both ways.
    Break,
    /// A frame is missing in the middle of a connection.
    Loss,
    /// A frame arrives twice.
    Duplication,
    /// Some nodes cannot reach the others for a while.
    Partition,
    /// A node stands still for a while.
    Pause,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Delay, Self::Break, Self::Loss, Self::Duplication, Self::Partition, Self::Pause];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Break => "break",
            Self::Loss => "loss",
            Self::Duplication => "duplication",
            Self::Partition => "partition",
            Self::Pause => "pause",
        }
    }
}

/// A bug to plant, for tests of the oracles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(hidden)]
pub enum Plant {
    /// The link delivers a message twice: the network repeats it under the next number.
    Twice,
    /// The link loses a message: the network leaves it out and numbers the rest anew.
    Lost,
    /// A driver releases as soon as it has been granted.
    ReleaseEarly,
    /// A driver answers a waiter twice.
    AnswerTwice,
    /// A driver does not answer a waiter.
    AnswerNever,
    /// A driver answers a waiter who has given up.
    AnswerGone,
    /// A driver never gives a lock back.
    ReleaseNever,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReport {
    /// How many nodes took part.
    pub nodes: usize,
    /// Entries of all callers to all locks.
    pub grants: u64,
    /// How long it took in virtual time.
    pub duration: Ticks,
    /// How often each of [`Fault::ALL`] happened, in that order.
    pub faults: [u64; 6],
    /// What must not happen and did; the run ends there.
    pub violation: Option<Violation>,
    /// Stands for everything that happened: the same seed gives the same.
    pub hash: u64,
    /// Stands for every byte that a node wrote: another version of the program that writes the same gives the same.
    pub wire: u64,
    /// What happened, a line each, if the run was asked to tell.
    pub story: Vec<String>,
}

/// Runs what a seed decides.
pub fn run(seed: u64) -> GroupReport {
    Group::new(seed, None, false).run()
}

/// The same run with everything told.
pub fn tell(seed: u64) -> GroupReport {
    Group::new(seed, None, true).run()
}

/// A quiet run with a bug in it.
#[doc(hidden)]
pub fn run_planted(seed: u64, lock: &str, plant: Plant) -> GroupReport {
    let mut group = Group::new(seed, Some(plant), false);
    group.plan = group.plan.quiet(lock);
    group.progress.on_progress(0);
    group.run()
}

#[derive(Debug)]
enum Event {
    Chunk { connection: usize, end: usize, bytes: Vec<u8> },
    Notice { connection: usize, end: usize },
    Dial { nodes: [usize; 2] },
    Flush { node: usize },
    Wake { node: usize },
    Ask { caller: usize },
    GiveUp { caller: usize, round: u32 },
    Leave { caller: usize, round: u32 },
    Doom { connection: usize },
    Blow,
    Resume { node: usize },
}

struct Member {
    node: Node<u64>,
    id: NodeId,
    paused: bool,
    /// What comes while it stands still.
    held_back: Vec<Event>,
    wakes: Option<Ticks>,
    /// The connection that counts, for each peer by place.
    current: Vec<Option<usize>>,
    /// Where each lock was when it was last entered.
    places: Vec<u32>,
}

struct Caller {
    node: usize,
    round: u32,
    lock: usize,
    mode: Mode,
    state: Doing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Thinking,
    Waiting(Ticket),
    /// The turn, and the one it was told while it waited.
    Inside(Ticket, Ticket),
    Done,
}

struct Group {
    plan: Plan,
    rng: Rng,
    now: Ticks,
    queue: Queue<Event>,
    members: Vec<Member>,
    connections: Vec<Connection>,
    /// For each pair, lower place first: the newest connection, and until when none can be made.
    newest: Vec<Option<usize>>,
    blocked_until: Vec<Ticks>,
    dialing: Vec<bool>,
    callers: Vec<Caller>,
    inside: Vec<(Exclusion, FenceOrder)>,
    answers: Answers,
    progress: Progress,
    plant: Option<Plant>,
    /// How many frames were added in each direction, for planted bugs.
    added: Vec<i64>,
    report: GroupReport,
    tells: bool,
}

/// Without faults nobody waits longer than this.
const PATIENCE: Ticks = 60_000 * MS;
/// A run that has no end in virtual time has one here.
const EVENTS_MAX: u64 = 20_000_000;

impl Group {
    fn new(seed: u64, plant: Option<Plant>, tells: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng);
        let mut progress = Progress::new(PATIENCE);
        progress.on_progress(plan.faults_until);
        let report = GroupReport {
            nodes: plan.nodes,
            grants: 0,
            duration: 0,
            faults: [0; 6],
            violation: None,
            hash: seed,
            wire: seed,
            story: Vec::new(),
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
            inside: Vec::new(),
            answers: Answers::default(),
            progress,
            plant,
            added: vec![0; pairs],
            report,
            tells,
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
            if quiet_at.is_none() && self.callers.iter().all(|caller| caller.state == Doing::Done) {
                quiet_at = Some(self.now.max(self.plan.faults_until) + 3 * self.plan.cache_idle + 5000 * MS);
            }
            if quiet_at.is_some_and(|quiet| self.now > quiet) || events > EVENTS_MAX {
                break;
            }
            if quiet_at.is_none() && self.progress.is_stuck(self.now) {
                break;
            }
            self.take(event);
        }
        if self.report.violation.is_none() {
            self.check_end();
        }
        self.report.duration = self.now;
        self.report
    }

    fn set_up(&mut self) {
        let count = self.plan.nodes;
        for at in 0..count {
            let config = self.plan.node(at);
            let id = config.me;
            let node = Node::new(config).expect("the plan has classes that exist");
            let current = vec![None; count];
            let places = vec![u32::MAX; self.plan.locks.len()];
            self.members.push(Member { node, id, paused: false, held_back: Vec::new(), wakes: None, current, places });
            for _ in 0..self.plan.callers {
                let caller = self.callers.len();
                self.callers.push(Caller {
                    node: at,
                    round: 0,
                    lock: 0,
                    mode: Mode::Exclusive,
                    state: Doing::Thinking,
                });
                let at = self.rng.below(20 * MS);
                self.queue.push(at, Event::Ask { caller });
            }
            (0..at).for_each(|lower| self.dial_later([lower, at], 20 * MS));
        }
        self.inside = self.plan.locks.iter().map(|_| Default::default()).collect();
        self.blow_later();
    }

    fn take(&mut self, event: Event) {
        if let Some(node) = self.owner(&event)
            && self.members[node].paused
        {
            return self.members[node].held_back.push(event);
        }
        match event {
            Event::Chunk { connection, end, bytes } => self.on_chunk(connection, end, &bytes),
            Event::Notice { connection, end } => self.on_notice(connection, end),
            Event::Dial { nodes } => self.on_dial(nodes),
            Event::Flush { node } => self.after(node),
            Event::Wake { node } => self.on_wake(node),
            Event::Ask { caller } => self.on_ask(caller),
            Event::GiveUp { caller, round } => self.on_give_up(caller, round),
            Event::Leave { caller, round } => self.on_leave(caller, round),
            Event::Blow => self.on_blow(),
            Event::Doom { connection } => self.break_off(connection),
            Event::Resume { node } => {
                self.members[node].paused = false;
                for event in std::mem::take(&mut self.members[node].held_back) {
                    self.take(event);
                }
            }
        }
    }

    /// Which node must be awake for this.
    fn owner(&self, event: &Event) -> Option<usize> {
        match event {
            Event::Chunk { connection, end, .. } | Event::Notice { connection, end } => {
                Some(self.connections[*connection].nodes[*end])
            }
            Event::Flush { node } | Event::Wake { node } => Some(*node),
            Event::Ask { caller } | Event::GiveUp { caller, .. } | Event::Leave { caller, .. } => {
                Some(self.callers[*caller].node)
            }
            Event::Dial { .. } | Event::Doom { .. } | Event::Blow | Event::Resume { .. } => None,
        }
    }

    fn check_end(&mut self) {
        let undone = self.callers.iter().filter(|caller| caller.state != Doing::Done).count();
        if undone > 0 {
            let waiting = self.answers.waiting();
            let text = || format!("{undone} callers are not done and nothing more happens");
            let stuck = || Violation { property: "progress", text: text() };
            return self.note(Some(self.progress.on_end(&waiting).unwrap_or_else(stuck)));
        }
        for at in 0..self.members.len() {
            let member = &self.members[at];
            let left = member.node.locks().find_map(|lock| Leftovers.on_end(member.id, &lock));
            self.note(left);
        }
    }

    fn note(&mut self, violation: Option<Violation>) {
        if let Some(violation) = violation {
            self.tell(|_| violation.to_string());
            self.report.violation.get_or_insert(violation);
        }
    }

    /// Goes into the hash, and into the story if there is one.
    fn record(&mut self, what: [u64; 3]) {
        for number in [self.now].into_iter().chain(what) {
            self.report.hash = mix(self.report.hash, number);
        }
    }

    fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.tells {
            let line = format!("{:>12.6} {}", self.now as f64 / (1000 * MS) as f64, line(self));
            self.report.story.push(line);
        }
    }

    fn until(&mut self, most: Ticks) -> Ticks {
        self.now + self.rng.below(most + 1)
    }
}

fn mix(hash: u64, number: u64) -> u64 {
    let mixed = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Callers.
impl Group {
    fn name(&self, caller: usize) -> u64 {
        (caller as u64) << 32 | u64::from(self.callers[caller].round)
    }

    fn on_ask(&mut self, caller: usize) {
        let node = self.callers[caller].node;
        if self.callers[caller].round == self.plan.rounds {
            self.callers[caller].state = Doing::Done;
            return;
        }
        let lock = self.rng.below(self.plan.locks.len() as u64) as usize;
        let mode = if self.rng.chance(self.plan.readers) { Mode::Shared } else { Mode::Exclusive };
        let patience = if self.rng.chance(self.plan.tries) { Patience::Try } else { Patience::Wait };
        (self.callers[caller].lock, self.callers[caller].mode) = (lock, mode);
        let name = self.name(caller);
        // As the library does: the short way first, unless somebody only tries.
        let (Member { node: asked, places, .. }, word) = (&mut self.members[node], &self.plan.locks[lock]);
        let waits = patience == Patience::Wait;
        let answer = match waits.then(|| asked.handle_fast_acquire(places[lock], word, mode, self.now)).flatten() {
            Some((ticket, fence)) => Ok(Answer::Granted(ticket, fence)),
            None => asked.handle_acquire(word, mode, patience, self.now, || name),
        };
        self.tell(|group| {
            let (id, lock) = (group.members[node].id, &group.plan.locks[lock]);
            format!("node {id}: {name:x} asks for '{lock}' {mode:?} {patience:?}: {answer:?}")
        });
        match answer {
            Ok(Answer::Granted(ticket, fence)) => self.enter(caller, ticket, ticket, fence),
            Ok(Answer::Waiting(ticket)) => {
                self.callers[caller].state = Doing::Waiting(ticket);
                let violation = self.answers.on_wait(self.members[node].id, name);
                self.note(violation);
                if self.rng.chance(self.plan.cancels) {
                    let at = self.until(8 * self.plan.latency);
                    self.queue.push(at, Event::GiveUp { caller, round: self.callers[caller].round });
                }
            }
            Ok(Answer::Busy) | Err(_) => self.go_on(caller),
        }
        self.after(node);
    }

    /// The caller thinks about its next round.
    fn go_on(&mut self, caller: usize) {
        self.callers[caller].state = Doing::Thinking;
        self.callers[caller].round += 1;
        let at = self.until(self.plan.think);
        self.queue.push(at, Event::Ask { caller });
    }

    fn enter(&mut self, caller: usize, ticket: Ticket, first: Ticket, fence: Fence) {
        let Caller { node, lock, mode, round, .. } = self.callers[caller];
        let id = self.members[node].id;
        self.members[node].places[lock] = ticket.place();
        self.report.grants += 1;
        self.progress.on_progress(self.now.max(self.plan.faults_until));
        self.record([1, self.name(caller), fence.get()]);
        let (exclusion, order) = &mut self.inside[lock];
        let violations = [exclusion.on_enter(id, mode), order.on_enter(id, mode, fence)];
        violations.into_iter().for_each(|violation| self.note(violation));
        self.callers[caller].state = Doing::Inside(ticket, first);
        if self.plant == Some(Plant::ReleaseEarly) {
            self.members[node].node.handle_release(ticket, self.now);
        }
        let at = self.until(self.plan.hold);
        self.queue.push(at, Event::Leave { caller, round });
    }

    fn on_give_up(&mut self, caller: usize, round: u32) {
        let Caller { node, state: Doing::Waiting(ticket), round: current, .. } = self.callers[caller] else { return };
        if current != round {
            return;
        }
        let (id, name) = (self.members[node].id, self.name(caller));
        let known = self.plant == Some(Plant::AnswerGone) || self.members[node].node.handle_cancel(ticket, self.now);
        self.tell(|_| format!("node {id}: {name:x} gives up"));
        self.record([2, name, u64::from(known)]);
        let violation = self.answers.on_cancel(id, name, known);
        self.note(violation);
        self.go_on(caller);
        self.after(node);
    }

    fn on_leave(&mut self, caller: usize, round: u32) {
        let Caller { node, lock, mode, state: Doing::Inside(ticket, first), round: current } = self.callers[caller]
        else {
            return;
        };
        if current != round || self.plant == Some(Plant::ReleaseNever) {
            return;
        }
        let (id, name) = (self.members[node].id, self.name(caller));
        self.inside[lock].0.on_exit(id, mode);
        self.tell(|_| format!("node {id}: {name:x} leaves"));
        self.record([3, name, 0]);
        // A guard that is dropped knows the ticket of its waiting only.
        let drops = self.rng.chance(0.2);
        let node_of = &mut self.members[node].node;
        let known =
            if drops { node_of.handle_cancel(first, self.now) } else { node_of.handle_release(ticket, self.now) };
        if !known && self.plant != Some(Plant::ReleaseEarly) {
            let text = format!("caller {name:x} on node {id} was inside and was not known when it left");
            self.note(Some(Violation { property: "answers", text }));
        }
        self.go_on(caller);
        self.after(node);
    }

    fn on_output(&mut self, node: usize, output: Output<u64>) {
        let name = *output.caller();
        let (caller, id) = ((name >> 32) as usize, self.members[node].id);
        self.tell(|_| format!("node {id}: {output:x?}"));
        let answered = self.answers.on_answer(id, name);
        let stale = answered.is_some();
        self.note(answered);
        let Doing::Waiting(first) = self.callers[caller].state else { return };
        if stale {
            return;
        }
        match output {
            Output::Granted { ticket, fence, .. } => self.enter(caller, ticket, first, fence),
            Output::Busy { .. } | Output::Refused { .. } => self.go_on(caller),
        }
    }

    /// The driver's contract: after every input.
    fn after(&mut self, node: usize) {
        while let Some(output) = self.members[node].node.poll_output() {
            if self.plant == Some(Plant::AnswerNever) {
                continue;
            }
            if self.plant == Some(Plant::AnswerTwice) {
                self.on_output(node, output.clone());
            }
            self.on_output(node, output);
        }
        self.flush(node);
        if let Some(at) = self.members[node].node.poll_timeout()
            && self.members[node].wakes.is_none_or(|wakes| at < wakes)
        {
            self.members[node].wakes = Some(at);
            self.queue.push(at.max(self.now), Event::Wake { node });
        }
    }

    fn on_wake(&mut self, node: usize) {
        let member = &mut self.members[node];
        if member.wakes.is_some_and(|wakes| wakes <= self.now) {
            member.wakes = None;
        }
        if member.node.poll_timeout().is_some_and(|at| at <= self.now) {
            member.node.handle_timeout(self.now);
        }
        self.after(node);
    }
}

/// The network.
impl Group {
    fn pair(&self, nodes: [usize; 2]) -> usize {
        nodes[0].min(nodes[1]) * self.plan.nodes + nodes[0].max(nodes[1])
    }

    fn dial_later(&mut self, nodes: [usize; 2], most: Ticks) {
        let pair = self.pair(nodes);
        if !std::mem::replace(&mut self.dialing[pair], true) {
            let at = self.until(most).max(self.blocked_until[pair]);
            self.queue.push(at, Event::Dial { nodes });
        }
    }

    fn on_dial(&mut self, nodes: [usize; 2]) {
        let pair = self.pair(nodes);
        self.dialing[pair] = false;
        if self.blocked_until[pair] > self.now {
            return self.dial_later(nodes, 20 * MS);
        }
        if self.newest[pair].is_some_and(|newest| !self.connections[newest].broken) {
            return;
        }
        // Both may dial at the same moment; then there are two connections, and each end keeps the one it hears of last.
        let crossed = self.now < self.plan.faults_until && self.rng.chance(0.1);
        (0..=usize::from(crossed)).for_each(|_| self.open(nodes));
    }

    fn open(&mut self, nodes: [usize; 2]) {
        let pair = self.pair(nodes);
        let connection = self.connections.len();
        self.tell(|group| format!("{:?} connect: {connection}", nodes.map(|node| group.members[node].id.0)));
        self.connections.push(Connection::new(nodes, self.now));
        self.newest[pair] = Some(connection);
        for end in [0, 1] {
            let (from, to) = (nodes[end], nodes[1 - end]);
            let mut bytes = Vec::new();
            let hello = self.members[from].node.hello(self.members[to].id);
            hello.expect("all are members").encode(&mut bytes);
            self.report.wire = bytes.iter().fold(self.report.wire, |wire, byte| mix(wire, (*byte).into()));
            self.send(connection, 1 - end, bytes);
        }
    }

    /// Puts bytes on their way to an end, in portions as they come.
    fn send(&mut self, connection: usize, end: usize, mut bytes: Vec<u8>) {
        while !bytes.is_empty() && !self.connections[connection].broken {
            let take = if self.rng.chance(0.3) { 1 + self.rng.below(bytes.len() as u64) as usize } else { bytes.len() };
            let rest = bytes.split_off(take);
            let mut delay = self.plan.latency / 2 + self.rng.exponential(self.plan.latency as f64) as Ticks;
            if self.now < self.plan.faults_until && self.rng.chance(self.plan.spikes) {
                self.report.faults[Fault::Delay as usize] += 1;
                delay += self.rng.below(300 * MS);
            }
            let to = &mut self.connections[connection].ends[end];
            to.arrives = to.arrives.max(self.now + delay);
            self.queue.push(to.arrives, Event::Chunk { connection, end, bytes });
            bytes = rest;
        }
    }

    /// Gives what a node has to say to its connections; now and then they take a part only.
    fn flush(&mut self, node: usize) {
        for peer in 0..self.members.len() {
            let Some(connection) = self.members[node].current[peer] else { continue };
            let to = self.members[peer].id;
            let bytes = self.members[node].node.poll_transmit(to);
            if bytes.is_empty() {
                continue;
            }
            let mut take = bytes.len();
            if self.rng.chance(0.1) {
                take = self.rng.below(take as u64) as usize;
            }
            let taken = bytes[..take].to_vec();
            self.report.wire = taken.iter().fold(self.report.wire, |wire, byte| mix(wire, (*byte).into()));
            self.members[node].node.handle_transmitted(to, take);
            if !self.members[node].node.poll_transmit(to).is_empty() {
                let at = self.until(2 * self.plan.latency) + 1;
                self.queue.push(at, Event::Flush { node });
            }
            let end = self.end_of(connection, node);
            let at_fault = self.frames(connection, end, &taken);
            self.send(connection, 1 - end, at_fault);
        }
    }

    fn end_of(&self, connection: usize, node: usize) -> usize {
        usize::from(self.connections[connection].nodes[1] == node)
    }

    /// What becomes of the frames that are whole by now: some are lost, some come twice.
    fn frames(&mut self, connection: usize, end: usize, bytes: &[u8]) -> Vec<u8> {
        let faulty = self.now < self.plan.faults_until;
        let mut out = Vec::new();
        self.connections[connection].ends[end].unfinished.extend_from_slice(bytes);
        while let Some(frame) = self.connections[connection].ends[end].next_frame() {
            if self.plant.is_some() {
                self.plant_in(connection, end, &frame, &mut out);
                continue;
            }
            if faulty && self.rng.chance(self.plan.losses) {
                self.report.faults[Fault::Loss as usize] += 1;
                // The next frame shows the gap. If none comes, whatever has swallowed this one ends the connection.
                let at = self.until(200 * MS);
                self.queue.push(at, Event::Doom { connection });
                continue;
            }
            out.extend_from_slice(&frame);
            if faulty && self.rng.chance(self.plan.duplicates) {
                self.report.faults[Fault::Duplication as usize] += 1;
                let last = &self.connections[connection].ends[end].last;
                out.extend_from_slice(if self.rng.chance(0.5) { last } else { &frame });
            }
            self.connections[connection].ends[end].last = frame;
        }
        out
    }

    fn plant_in(&mut self, connection: usize, end: usize, frame: &[u8], out: &mut Vec<u8>) {
        let nodes = self.connections[connection].nodes;
        let (from, to) = (nodes[end], nodes[1 - end]);
        let (there, back) = (from * self.plan.nodes + to, to * self.plan.nodes + from);
        let chosen = self.rng.chance(0.1);
        if self.plant == Some(Plant::Lost) && chosen {
            self.added[there] -= 1;
            return;
        }
        out.extend(renumber(frame, self.added[there], self.added[back]));
        if self.plant == Some(Plant::Twice) && chosen {
            self.added[there] += 1;
            out.extend(renumber(frame, self.added[there], self.added[back]));
        }
    }

    fn on_chunk(&mut self, connection: usize, end: usize, bytes: &[u8]) {
        let nodes = self.connections[connection].nodes;
        let (node, peer) = (nodes[end], nodes[1 - end]);
        let at = &mut self.connections[connection].ends[end];
        if at.is_closed() || self.now > at.cutoff {
            return;
        }
        self.record([4, (connection * 2 + end) as u64, bytes.len() as u64]);
        let at = &mut self.connections[connection].ends[end];
        let State::Greeting(greeting) = &mut at.state else { return self.on_bytes(connection, end, bytes) };
        greeting.extend_from_slice(bytes);
        let (hello, taken) = match Hello::decode(greeting) {
            Ok(decoded) => decoded,
            Err(DecodeError::Truncated) => return,
            Err(error) => return self.broke_contract(format!("a greeting was not understood: {error}")),
        };
        let rest = greeting.split_off(taken);
        at.state = State::Standing;
        if let Err(error) = self.members[node].node.handle_hello(&hello, self.now) {
            return self.broke_contract(format!("a greeting was refused: {error}"));
        }
        let earlier = self.members[node].current[peer].replace(connection);
        self.tell(|group| format!("node {}: connection {connection} stands, {hello:?}", group.members[node].id));
        if let Some(earlier) = earlier {
            self.close(earlier, self.end_of(earlier, node));
        }
        self.on_bytes(connection, end, &rest);
    }

    /// Frames go to the node. An error closes the connection; only a missing frame may be one.
    fn on_bytes(&mut self, connection: usize, end: usize, bytes: &[u8]) {
        let nodes = self.connections[connection].nodes;
        let (node, peer) = (nodes[end], self.members[nodes[1 - end]].id);
        let result = self.members[node].node.handle_bytes(peer, bytes, self.now);
        self.after(node);
        if let Err(error) = result {
            self.tell(|group| format!("node {}: connection {connection} is closed: {error}", group.members[node].id));
            let lossy = self.plan.losses > 0.0;
            if !(lossy && error == hallpass_node::LinkError::Gap) && self.plant.is_none() {
                self.broke_contract(format!("node {} was told nonsense by {peer}: {error}", self.members[node].id));
            }
            self.close(connection, end);
        }
    }

    fn broke_contract(&mut self, text: String) {
        self.note(Some(Violation { property: "link", text }));
    }

    /// One end closes; the other one notices, sooner or later.
    fn close(&mut self, connection: usize, end: usize) {
        self.on_notice(connection, end);
        self.break_off(connection);
    }

    /// Nothing more gets through, and any number of the last bytes on their way are lost.
    fn break_off(&mut self, connection: usize) {
        if std::mem::replace(&mut self.connections[connection].broken, true) {
            return;
        }
        for end in [0, 1] {
            let arrives = self.connections[connection].ends[end].arrives.max(self.now);
            let cutoff = self.until(arrives - self.now);
            self.connections[connection].ends[end].cutoff = cutoff;
            let notices = cutoff + self.rng.below(30 * MS);
            self.queue.push(notices, Event::Notice { connection, end });
        }
        // The next connection may come before both ends know that this one is gone.
        self.dial_later(self.connections[connection].nodes, 40 * MS);
    }

    fn on_notice(&mut self, connection: usize, end: usize) {
        let nodes = self.connections[connection].nodes;
        let (node, peer) = (nodes[end], nodes[1 - end]);
        self.connections[connection].ends[end].state = State::Closed;
        if self.members[node].current[peer] == Some(connection) {
            self.tell(|group| format!("node {}: connection {connection} is gone", group.members[node].id));
            self.members[node].current[peer] = None;
            let peer = self.members[peer].id;
            self.members[node].node.handle_disconnect(peer);
            self.after(node);
        }
    }
}

/// Blows of fate.
impl Group {
    fn blow_later(&mut self) {
        let at = self.now + 1 + self.rng.exponential(self.plan.fault_every as f64) as Ticks;
        if at < self.plan.faults_until {
            self.queue.push(at, Event::Blow);
        }
    }

    fn on_blow(&mut self) {
        let left = self.plan.faults_until - self.now;
        let lasts = self.rng.below(400 * MS).min(left);
        match self.rng.below(8) {
            0 => self.pause(lasts),
            1 => self.part(lasts),
            2 | 3 => self.stall(lasts),
            _ => self.break_one(),
        }
        self.blow_later();
    }

    fn count(&mut self, fault: Fault) {
        self.tell(|_| format!("-- {}", fault.name()));
        self.report.faults[fault as usize] += 1;
        self.record([5, fault as u64, 0]);
    }

    fn pause(&mut self, lasts: Ticks) {
        let node = self.rng.below(self.members.len() as u64) as usize;
        if self.members[node].paused {
            return;
        }
        self.count(Fault::Pause);
        self.members[node].paused = true;
        self.queue.push(self.now + lasts, Event::Resume { node });
    }

    /// A set of nodes and the others: connections break, or keep silent until it is over.
    fn part(&mut self, lasts: Ticks) {
        self.count(Fault::Partition);
        let side: Vec<bool> = self.members.iter().map(|_| self.rng.chance(0.5)).collect();
        let breaks = self.rng.chance(0.5);
        for high in 0..side.len() {
            for low in (0..high).filter(|low| side[*low] != side[high]) {
                let pair = self.pair([low, high]);
                self.blocked_until[pair] = self.now + lasts;
                match self.newest[pair] {
                    Some(newest) if breaks => self.break_off(newest),
                    Some(newest) => self.delay(newest, lasts),
                    None => {}
                }
            }
        }
    }

    fn stall(&mut self, lasts: Ticks) {
        if let Some(connection) = self.any_connection() {
            self.count(Fault::Delay);
            self.delay(connection, lasts);
        }
    }

    fn delay(&mut self, connection: usize, lasts: Ticks) {
        for end in &mut self.connections[connection].ends {
            end.arrives = end.arrives.max(self.now + lasts);
        }
    }

    fn break_one(&mut self) {
        if let Some(connection) = self.any_connection() {
            self.count(Fault::Break);
            self.break_off(connection);
        }
    }

    fn any_connection(&mut self) -> Option<usize> {
        let live: Vec<usize> =
            self.newest.iter().flatten().copied().filter(|newest| !self.connections[*newest].broken).collect();
        live.get(self.rng.below(live.len() as u64) as usize).copied()
    }
}
