//! A driver for tests: it keeps the contract after every input, and collects what comes out.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;

use hallpass_core::protocol::OptionError;
use hallpass_core::{Mode, NodeId, Ticks};

use crate::wire::Hello;
use crate::{
    Answer, Grant, HelloError, LinkError, Node, NodeConfig, Outcome, Output, Patience, Record, Refusal, Slot, Ticket,
};

/// A node whose connections take everything at once and whose disk is as fast as the test wants.
#[derive(Debug)]
pub(super) struct Driven {
    node: Node<u32>,
    answers: VecDeque<(u32, Outcome)>,
    /// What connections have taken and not delivered.
    sent: BTreeMap<NodeId, Vec<u8>>,
    /// Records that are to be written; `None` if the disk writes everything at once.
    pub(super) unwritten: Option<Vec<Record>>,
}

impl Deref for Driven {
    type Target = Node<u32>;

    fn deref(&self) -> &Node<u32> {
        &self.node
    }
}

impl Driven {
    pub(super) fn new(config: NodeConfig) -> Result<Self, OptionError> {
        let node = Node::new(config)?;
        let mut driven = Self { node, answers: VecDeque::new(), sent: BTreeMap::new(), unwritten: None };
        driven.drain();
        Ok(driven)
    }

    fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Persist(record) => match &mut self.unwritten {
                    Some(unwritten) => unwritten.push(record),
                    None => self.node.handle_persisted(record, 0),
                },
                Output::Answer { caller, outcome } => self.answers.push_back((caller, outcome)),
                other @ (Output::Lapsed
                | Output::Lost(_)
                | Output::Revoked { .. }
                | Output::Done { .. }
                | Output::View
                | Output::Disconnect(_)
                | Output::Control { .. }) => panic!("{other:?} in a group with a fixed list"),
                Output::Transmit(peer) => {
                    let bytes = self.node.poll_transmit(peer).to_vec();
                    self.node.handle_transmitted(peer, bytes.len());
                    self.sent.entry(peer).or_default().extend(bytes);
                }
            }
        }
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
        for record in std::mem::take(&mut self.unwritten).unwrap_or_default() {
            self.input(|node| node.handle_persisted(record, 0));
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
        self.input(|node| node.handle_acquire(lock, mode, patience, now, caller))
    }

    pub(super) fn handle_fast_acquire(&mut self, slot: Slot, lock: &str, mode: Mode, now: Ticks) -> Option<Grant> {
        let grant = self.node.handle_fast_acquire(slot, lock, mode, now);
        assert!(!self.node.has_output(), "the fast path has no output");
        grant
    }

    pub(super) fn handle_release(&mut self, ticket: Ticket, now: Ticks) -> bool {
        self.input(|node| node.handle_release(ticket, now))
    }

    pub(super) fn handle_cancel(&mut self, ticket: Ticket, now: Ticks) -> bool {
        self.input(|node| node.handle_cancel(ticket, now))
    }

    pub(super) fn handle_hello(&mut self, hello: &Hello, now: Ticks) -> Result<(), HelloError> {
        self.input(|node| node.handle_hello(hello, now))
    }

    /// The connection loses what it had not delivered.
    pub(super) fn handle_disconnect(&mut self, peer: NodeId) {
        self.input(|node| node.handle_disconnect(peer, 0));
        self.sent.remove(&peer);
    }

    pub(super) fn handle_bytes(&mut self, peer: NodeId, bytes: &[u8], now: Ticks) -> Result<(), LinkError> {
        self.input(|node| node.handle_bytes(peer, bytes, now))
    }

    pub(super) fn handle_timeout(&mut self, now: Ticks) {
        self.input(|node| node.handle_timeout(now));
    }
}
