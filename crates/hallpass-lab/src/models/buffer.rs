//! More waiters than the buffer for a peer takes: some are refused, and every other caller gets its lock, whatever happens
//! to connections and views meanwhile.
//!
//! Two whole nodes. One of them has asked for so many locks that it holds back further requests, and the other one has read
//! none of that yet. From there on a view is changed, a connection breaks, more is asked for, and everything arrives in every
//! order. In each state the rest of the story is played, with nothing more going wrong. Nodes cannot be copied: a state is
//! the path to it, and two states are the same if nobody can tell them apart from outside.

use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};

use hallpass_check::{Space, fingerprint};
use hallpass_core::{Mode, NodeId, Ticks};
use hallpass_node::wire::Plane;
use hallpass_node::{
    Answer, Class, Founding, Node, NodeConfig, Outcome, Output, Patience, Planted, Request, Sabotage, ViewsConfig,
};
use hallpass_sim::oracle::Violation;

use super::Described;

const NODES: usize = 2;
/// How many bytes fill a peer's buffer, but not before 32 messages.
const BUFFER: usize = 256;
/// More than that.
const WAITERS: u32 = 40;
/// How often everything is played on.
const PATIENCE: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// What was held back is never asked for.
    ForgetHeldUp,
}

pub(super) const BUGS: &[(&str, Bug)] = &[("forget-held-up", Bug::ForgetHeldUp)];

#[derive(Clone, Debug)]
pub(super) struct BufferModel {
    bug: Option<Bug>,
    /// States from which everything was played to its good end.
    good: HashSet<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct BufferState {
    path: Vec<Step>,
    /// All that can happen next.
    next: Vec<Step>,
    /// What can be seen from outside.
    number: u64,
}

impl Hash for BufferState {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// This node is the one that asks for so much.
    Busy(usize),
    /// The next control message arrives at this node.
    Control {
        to: usize,
    },
    /// The node reads what has arrived of locks.
    Read {
        to: usize,
    },
    /// Another view is asked for.
    Change,
    /// Another caller comes.
    Ask,
    /// The connection that carries locks breaks, and what is under way is lost.
    Break,
    Connect,
}

/// Both nodes, and all between them.
struct World {
    nodes: [Node<u32, Planted>; NODES],
    now: Ticks,
    busy: Option<usize>,
    /// What is on its way to each node.
    control: [VecDeque<Vec<u8>>; NODES],
    bytes: [Vec<u8>; NODES],
    /// How much has arrived there.
    arrived: [(usize, usize); NODES],
    is_connected: bool,
    /// Who was granted its lock, by node.
    granted: [Vec<u32>; NODES],
    asked: u32,
    refused: u32,
    changes: u8,
    /// How often a connection breaks, or another caller comes.
    surprises: u8,
}

const fn id(node: usize) -> NodeId {
    NodeId(node as u32 + 1)
}

impl World {
    /// A group of two that takes part in its first view.
    fn new(bug: Option<Bug>) -> Self {
        let node = |index: usize| {
            let mut views = ViewsConfig::new(index.to_string());
            (views.founding, views.durable) = (Founding::Together(NODES), true);
            let config = NodeConfig { backlog_max: BUFFER, ..NodeConfig::new(id(index), views) };
            Node::with_bug(config, bug.map(|Bug::ForgetHeldUp| Sabotage::ForgetHeldUp)).expect("the settings are valid")
        };
        let mut world = Self {
            nodes: [node(0), node(1)],
            now: 1,
            busy: None,
            control: Default::default(),
            bytes: Default::default(),
            arrived: Default::default(),
            is_connected: false,
            granted: Default::default(),
            asked: 0,
            refused: 0,
            changes: 1,
            surprises: 1,
        };
        world.greet(Plane::Control);
        for _ in 0..PATIENCE {
            if world.nodes.iter().all(|node| node.view().len() == NODES) && world.is_connected {
                break;
            }
            world.advance();
        }
        world.arrived = Default::default();
        world
    }

    /// Takes all outputs. A caller that is granted its lock releases it at once.
    fn drain(&mut self, index: usize) {
        let mut released = VecDeque::new();
        let mut closes = false;
        loop {
            let node = &mut self.nodes[index];
            let Some(output) = node.poll_output() else {
                let Some(ticket) = released.pop_front() else { break };
                node.handle_release(ticket, self.now);
                continue;
            };
            match output {
                Output::Persist(write) => node.handle_persisted(write, self.now),
                Output::Answer { caller, outcome: Outcome::Granted(grant) } => {
                    self.granted[index].push(caller);
                    released.push_back(grant.ticket);
                }
                Output::Answer { .. } => self.refused += 1,
                Output::Control { bytes, .. } => self.control[1 - index].push_back(bytes),
                Output::Transmit(peer) => {
                    let bytes = node.poll_transmit(peer).to_vec();
                    node.handle_transmitted(peer, bytes.len());
                    self.bytes[1 - index].extend(bytes);
                }
                Output::Disconnect(_) => closes = true,
                _ => {}
            }
        }
        if closes {
            self.disconnect();
        }
    }

    fn input<T>(&mut self, index: usize, input: impl FnOnce(&mut Node<u32, Planted>, Ticks) -> T) -> T {
        let result = input(&mut self.nodes[index], self.now);
        self.drain(index);
        result
    }

    fn disconnect(&mut self) {
        if std::mem::take(&mut self.is_connected) {
            self.bytes = Default::default();
            for index in 0..NODES {
                self.input(index, |node, now| node.handle_disconnect(id(1 - index), now));
            }
        }
    }

    /// A new connection, if both nodes want one.
    fn greet(&mut self, plane: Plane) {
        let hello = |index: usize| match plane {
            Plane::Locks => self.nodes[index].hello(id(1 - index)),
            Plane::Control => Some(self.nodes[index].control_hello(Some(id(1 - index)))),
        };
        let (Some(first), Some(second)) = (hello(0), hello(1)) else { return };
        if self.nodes[1].check_hello(&first).is_ok() && self.nodes[0].check_hello(&second).is_ok() {
            self.is_connected |= plane == Plane::Locks;
            for (index, hello) in [(1, first), (0, second)] {
                let _ = self.input(index, |node, now| node.handle_hello(&hello, now));
            }
        }
    }

    fn ask(&mut self, index: usize, lock: &str) {
        let caller = self.asked;
        let ask = |node: &mut Node<u32, Planted>, now| {
            node.handle_acquire(lock, Mode::Exclusive, Patience::Wait, now, || caller)
        };
        match self.input(index, ask) {
            Ok(Answer::Granted(grant)) => {
                self.granted[index].push(caller);
                self.input(index, |node, now| node.handle_release(grant.ticket, now));
            }
            Ok(Answer::Waiting(_)) => {}
            Ok(Answer::Busy) | Err(_) => self.refused += 1,
        }
        self.asked += 1;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Busy(busy) => {
                self.busy = Some(busy);
                for caller in 0..WAITERS {
                    self.ask(busy, &format!("lock {caller}"));
                }
                self.ask(1 - busy, "lock 0");
            }
            Step::Control { to } => {
                let Some(message) = self.control[to].pop_front() else { return };
                self.arrived[to].0 += 1;
                let _ = self.input(to, |node, now| node.handle_control(id(1 - to), &message, now));
            }
            Step::Read { to } => {
                let bytes = std::mem::take(&mut self.bytes[to]);
                self.arrived[to].1 += bytes.len();
                if self.input(to, |node, now| node.handle_bytes(id(1 - to), &bytes, now)).is_err() {
                    self.disconnect();
                }
            }
            Step::Change => {
                self.changes -= 1;
                let (protocol, options) = ("carvalho-roucairol".to_owned(), Vec::new());
                let class = Class { prefix: "other/".to_owned(), protocol, options };
                self.input(0, |node, now| node.handle_request(Request::SetClass(class), 1, now));
                self.input(0, |node, now| node.handle_timeout(now));
            }
            Step::Ask => {
                self.surprises -= 1;
                self.ask(self.busy.unwrap_or(0), "another lock");
            }
            Step::Break => {
                self.surprises -= 1;
                self.disconnect();
            }
            Step::Connect => self.greet(Plane::Locks),
        }
    }

    fn next(&self) -> Vec<Step> {
        if self.busy.is_none() {
            return vec![Step::Busy(0), Step::Busy(1)];
        }
        let mut steps = Vec::new();
        for to in 0..NODES {
            steps.extend((!self.control[to].is_empty()).then_some(Step::Control { to }));
            steps.extend((!self.bytes[to].is_empty()).then_some(Step::Read { to }));
        }
        steps.extend((self.changes > 0).then_some(Step::Change));
        steps.extend((self.surprises > 0).then_some(Step::Ask));
        match self.is_connected {
            true => steps.extend((self.surprises > 0).then_some(Step::Break)),
            false => steps.push(Step::Connect),
        }
        steps
    }

    /// Delivers everything that is under way. If nothing is, time passes to the next timeout.
    fn advance(&mut self) {
        if !self.is_connected {
            self.greet(Plane::Locks);
        }
        let is_idle = (0..NODES).all(|to| self.control[to].is_empty() && self.bytes[to].is_empty());
        if is_idle && let Some(next) = self.nodes.iter().filter_map(Node::poll_timeout).min() {
            self.now = next.max(self.now + 1);
            for index in 0..NODES {
                if self.nodes[index].poll_timeout().is_some_and(|at| at <= self.now) {
                    self.input(index, |node, now| node.handle_timeout(now));
                }
            }
        }
        for to in 0..NODES {
            while !self.control[to].is_empty() {
                self.step(Step::Control { to });
            }
            if !self.bytes[to].is_empty() {
                self.step(Step::Read { to });
            }
        }
    }

    /// Everybody who was not refused was granted its lock.
    fn is_good(&self) -> bool {
        self.granted.iter().map(|granted| granted.len() as u32).sum::<u32>() + self.refused == self.asked
    }

    /// What can be told from outside, as far as it makes a difference.
    fn number(&self) -> u64 {
        let view =
            |node: &Node<u32, Planted>| (node.is_complete(), node.epoch(), node.waiting().copied().collect::<Vec<_>>());
        let sends = |index: usize| {
            let backlog = self.nodes[index].members().iter().map(|member| member.backlog).max();
            (self.nodes[index].messages(), backlog)
        };
        let seen = [0, 1].map(|index| (view(&self.nodes[index]), sends(index)));
        let left = (self.busy, self.changes, self.surprises, self.is_connected);
        fingerprint(&(seen, left, &self.control, &self.bytes, self.arrived, &self.granted, self.refused, self.now))
    }
}

impl BufferModel {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        Self { bug, good: HashSet::new() }
    }

    fn replay(&self, path: &[Step]) -> World {
        let mut world = World::new(self.bug);
        path.iter().for_each(|step| world.step(*step));
        world
    }
}

impl Space for BufferModel {
    type State = BufferState;
    type Step = Step;

    fn first(&self) -> BufferState {
        let world = self.replay(&[]);
        BufferState { path: Vec::new(), next: world.next(), number: world.number() }
    }

    fn steps(&self, state: &BufferState, steps: &mut Vec<Step>) {
        steps.extend_from_slice(&state.next);
    }

    fn apply(&mut self, state: &mut BufferState, step: Step) -> Option<Violation> {
        state.path.push(step);
        let mut world = self.replay(&state.path);
        (state.next, state.number) = (world.next(), world.number());
        if !self.good.insert(state.number) {
            return None;
        }
        for _ in 0..PATIENCE {
            if world.is_good() {
                return None;
            }
            world.advance();
        }
        let waiting: Vec<u32> = world.nodes.iter().flat_map(Node::waiting).copied().collect();
        let text = format!("{} callers wait forever, such as the one for 'lock {}'", waiting.len(), waiting.first()?);
        Some(Violation { property: "progress", text })
    }

    fn must_happen(&self, _: Step) -> bool {
        true
    }

    fn check_end(&self, _: &BufferState) -> Option<Violation> {
        None
    }
}

impl Described for BufferModel {
    const NODES: u32 = NODES as u32;

    fn describe(&self, state: &BufferState, step: Step) -> String {
        match step {
            Step::Busy(busy) => {
                let mut world = self.replay(&state.path);
                world.step(step);
                format!("{} asks for {WAITERS} locks; {} are refused", busy + 1, world.refused)
            }
            Step::Control { to } => format!("{} receives a control message", to + 1),
            Step::Read { to } => format!("{} reads what has arrived of locks", to + 1),
            Step::Change => "1 is asked for another view".to_owned(),
            Step::Ask => "another caller asks for another lock".to_owned(),
            Step::Break => "the connection that carries locks breaks".to_owned(),
            Step::Connect => "there is another connection".to_owned(),
        }
    }
}
