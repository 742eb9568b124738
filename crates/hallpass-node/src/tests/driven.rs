//! A driver for tests: it keeps the contract after every input, and collects what comes out.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;

use hallpass_core::codec::DecodeError;
use hallpass_core::protocol::OptionError;
use hallpass_core::{Mode, NodeId, Ticks};

use crate::wire::Hello;
use crate::{
    Answer, Class, Founding, Grant, HelloError, LinkError, Node, NodeConfig, Outcome, Output, Patience, Refusal, Slot,
    Ticket, ViewsConfig, Write,
};

/// No session is shorter than these tests.
const TTL: Ticks = 24 * 3600 * 1_000_000_000;
/// Later than anything that locks wait for, and long before the end of a session.
const LATE: Ticks = 1 << 45;

/// A node whose connections take everything at once and whose disk is as fast as the test wants. Its time begins when its group was
/// founded.
#[derive(Debug)]
pub(super) struct Driven {
    node: Node<u32>,
    answers: VecDeque<(u32, Outcome)>,
    /// What connections have taken and not delivered.
    sent: BTreeMap<NodeId, Vec<u8>>,
    /// Control messages under way. Nobody takes them once the group is founded.
    pub(super) controls: VecDeque<(NodeId, Vec<u8>)>,
    /// Writes that are under way; `None` if the disk writes everything at once.
    pub(super) unwritten: Option<Vec<Write>>,
    /// When its group was founded.
    founded: Ticks,
    /// The time of the last input.
    now: Ticks,
}

impl Deref for Driven {
    type Target = Node<u32>;

    fn deref(&self) -> &Node<u32> {
        &self.node
    }
}

/// The settings of one of the founders. Most tests are about permissions, which every node of a group gives every other one.
pub(super) fn founder(me: u32, founders: usize) -> NodeConfig {
    let classes = vec![Class::default_for("")];
    let views =
        ViewsConfig { founding: Founding::Together(founders), ttl: TTL, ..ViewsConfig::new(format!("host-{me}:1")) };
    NodeConfig { boot_id: me.into(), classes, ..NodeConfig::new(NodeId(me), views) }
}

impl Driven {
    pub(super) fn new(config: NodeConfig) -> Result<Self, OptionError> {
        let (node, answers, sent, controls) = (Node::new(config)?, VecDeque::new(), BTreeMap::new(), VecDeque::new());
        let mut driven = Self { node, answers, sent, controls, unwritten: None, founded: 0, now: 0 };
        driven.drain();
        Ok(driven)
    }

    /// A node that has founded a group of its own.
    pub(super) fn alone() -> Self {
        let mut nodes = [Self::new(founder(1, 1)).unwrap()];
        found(&mut nodes, |nodes| nodes[0].is_complete());
        let [node] = nodes;
        node
    }

    fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Persist(write) => match &mut self.unwritten {
                    Some(unwritten) => unwritten.push(write),
                    None => self.node.handle_persisted(write, self.now),
                },
                Output::Answer { caller, outcome } => self.answers.push_back((caller, outcome)),
                Output::View | Output::Denied { .. } => {}
                Output::Control { to, bytes } => self.controls.push_back((to, bytes)),
                other @ (Output::Lapsed
                | Output::Lost(_)
                | Output::Revoked { .. }
                | Output::Ordered(_)
                | Output::Done { .. }
                | Output::Disconnect(_)
                | Output::Refuse(_)) => panic!("{other:?} in a group in which nothing fails"),
                Output::Transmit(peer) => {
                    let bytes = self.node.poll_transmit(peer).to_vec();
                    self.node.handle_transmitted(peer, bytes.len());
                    self.sent.entry(peer).or_default().extend(bytes);
                }
            }
        }
    }

    /// A test's time as the node counts it.
    fn at(&mut self, now: Ticks) -> Ticks {
        self.now = self.founded.saturating_add(now).min(LATE);
        self.now
    }

    /// When locks need the time.
    pub(super) fn poll_timeout(&self) -> Option<Ticks> {
        self.node.locks.poll_timeout().map(|at| at - self.founded)
    }

    fn input<T>(&mut self, input: impl FnOnce(&mut Node<u32>) -> T) -> T {
        let result = input(&mut self.node);
        self.drain();
        result
    }

    /// For what no input can set up.
    pub(super) fn node_mut(&mut self) -> &mut Node<u32> {
        &mut self.node
    }

    /// The disk has written everything.
    pub(super) fn write_all(&mut self) {
        for write in std::mem::take(&mut self.unwritten).unwrap_or_default() {
            let now = self.now;
            self.input(|node| node.handle_persisted(write, now));
        }
    }

    /// What is on its way to a peer.
    pub(super) fn take_sent(&mut self, peer: NodeId) -> Vec<u8> {
        self.sent.remove(&peer).unwrap_or_default()
    }

    /// The next answer to a caller who had to wait.
    pub(super) fn answer(&mut self) -> Option<(u32, Outcome)> {
        self.answers.pop_front()
    }

    pub(super) fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(super) fn handle_acquire(
        &mut self,
        lock: &str,
        mode: Mode,
        patience: Patience,
        now: Ticks,
        caller: impl FnOnce() -> u32,
    ) -> Result<Answer, Refusal> {
        let now = self.at(now);
        self.input(|node| node.handle_acquire(lock, mode, patience, now, caller))
    }

    pub(super) fn handle_fast_acquire(&mut self, slot: Slot, lock: &str, mode: Mode, now: Ticks) -> Option<Grant> {
        let now = self.at(now);
        let grant = self.node.handle_fast_acquire(slot, lock, mode, now);
        assert!(!self.node.has_output(), "the fast path has no output");
        grant
    }

    pub(super) fn handle_release(&mut self, ticket: Ticket, now: Ticks) -> bool {
        let now = self.at(now);
        self.input(|node| node.handle_release(ticket, now))
    }

    pub(super) fn handle_cancel(&mut self, ticket: Ticket, now: Ticks) -> bool {
        let now = self.at(now);
        self.input(|node| node.handle_cancel(ticket, now))
    }

    pub(super) fn handle_hello(&mut self, hello: &Hello, now: Ticks) -> Result<(), HelloError> {
        let now = self.at(now);
        self.input(|node| node.handle_hello(hello, now))
    }

    /// The connection loses what it had not delivered.
    pub(super) fn handle_control(&mut self, peer: NodeId, message: &[u8]) -> Result<(), DecodeError> {
        let now = self.now;
        self.input(|node| node.handle_control(peer, message, now))
    }

    pub(super) fn handle_disconnect(&mut self, peer: NodeId) {
        let now = self.at(0);
        self.input(|node| node.handle_disconnect(peer, now));
        self.sent.remove(&peer);
    }

    pub(super) fn handle_bytes(&mut self, peer: NodeId, bytes: &[u8], now: Ticks) -> Result<(), LinkError> {
        let now = self.at(now);
        self.input(|node| node.handle_bytes(peer, bytes, now))
    }

    pub(super) fn handle_timeout(&mut self, now: Ticks) {
        let now = self.at(now);
        self.input(|node| node.handle_timeout(now));
    }
}

/// Every two nodes are connected for control messages.
pub(super) fn meet(nodes: &mut [Driven]) {
    for high in 0..nodes.len() {
        for low in 0..high {
            let hello = [(low, high), (high, low)].map(|(from, to)| nodes[from].control_hello(Some(nodes[to].id())));
            nodes[high].handle_hello(&hello[0], 0).unwrap();
            nodes[low].handle_hello(&hello[1], 0).unwrap();
        }
    }
}

/// Time passes, and control messages are delivered one by one, until this is so.
pub(super) fn found(nodes: &mut [Driven], is_so: impl Fn(&[Driven]) -> bool) {
    const STEP: Ticks = 1_000_000;
    const STEPS_MAX: u32 = 10_000;
    for _ in 0..STEPS_MAX {
        while let Some(from) = nodes.iter().position(|node| !node.controls.is_empty()) {
            if is_so(nodes) {
                break;
            }
            let ((to, bytes), sender) =
                (nodes[from].controls.pop_front().expect("one that has some"), nodes[from].id());
            let to = nodes.iter_mut().find(|node| node.id() == to).expect("a founder");
            let now = to.now;
            to.input(|node| node.handle_control(sender, &bytes, now)).unwrap();
        }
        if is_so(nodes) {
            return nodes.iter_mut().for_each(|node| node.founded = node.now);
        }
        for node in &mut *nodes {
            node.now += STEP;
            let now = node.now;
            node.input(|node| node.handle_timeout(now));
        }
    }
    panic!("no group is founded");
}
