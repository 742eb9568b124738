//! For tests: a handful of nodes and the messages between them, moved by hand.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bounds, Effect, Effects, Input, Message, Mode, Options, Protocol};
use crate::{InitialHolders, NodeId, Setup, View};

/// What an action that has no effect gives back.
pub(crate) const NOTHING: [&str; 0] = [];

/// The nodes, and what they have sent and nobody has received yet.
///
/// Every action gives back its effects as text and in order, so that a test says all that happens and not more.
pub(crate) struct Hands<P: Protocol> {
    options: P::Options,
    view: View,
    pub(crate) nodes: BTreeMap<u32, P>,
    pub(crate) flying: Vec<(u32, u32, P::Message)>,
    pub(crate) inside: BTreeSet<u32>,
    /// The fences of all entries, in order.
    pub(crate) fences: Vec<u64>,
}

impl<P: Protocol> Hands<P> {
    pub(crate) fn new(count: u32, words: &str) -> Self {
        Self::seated(View::new((1..=count).map(NodeId)), words, InitialHolders::NOBODY)
    }

    pub(crate) fn seated(view: View, words: &str, initial: InitialHolders<'_>) -> Self {
        let mut options = Options::from_words(words.split_whitespace()).unwrap();
        options.nodes = view.members().to_vec();
        options.tick = 1000;
        let options = P::parse(&options).unwrap();
        let (nodes, flying, inside, fences) = (BTreeMap::new(), Vec::new(), BTreeSet::new(), Vec::new());
        let mut hands = Self { options, view, nodes, flying, inside, fences };
        for NodeId(node) in hands.view.members().to_vec() {
            hands.start(node, 0, initial);
        }
        hands
    }

    /// Starts a node, or starts it again without its memory.
    pub(crate) fn start(&mut self, node: u32, incarnation: u32, initial: InitialHolders<'_>) {
        let (me, view, options) = (NodeId(node), &self.view, &self.options);
        self.nodes.insert(node, P::new(&Setup { me, view, initial, incarnation, bounds: Bounds::NONE, options }));
        if initial.held_by(me).is_some() {
            self.inside.insert(node);
        }
    }

    pub(crate) fn ask(&mut self, node: u32) -> Vec<String> {
        self.act(node, Input::Acquire { mode: Mode::Exclusive, draw: 0 })
    }

    pub(crate) fn cancel(&mut self, node: u32) -> Vec<String> {
        assert!(!self.inside.contains(&node), "{node} is inside");
        self.act(node, Input::Cancel)
    }

    pub(crate) fn exit(&mut self, node: u32) -> Vec<String> {
        assert!(self.inside.remove(&node), "{node} is not inside");
        self.act(node, Input::Release)
    }

    /// Delivers the oldest message of a kind between two nodes: it overtakes those before it.
    pub(crate) fn deliver(&mut self, kind: &str, from: u32, to: u32) -> Vec<String> {
        let message = self.take(kind, from, to);
        self.receive(from, to, message)
    }

    /// Takes a message off the network.
    pub(crate) fn take(&mut self, kind: &str, from: u32, to: u32) -> P::Message {
        let found = self.flying.iter().position(|(f, t, message)| (*f, *t, message.kind()) == (from, to, kind));
        self.flying.remove(found.unwrap_or_else(|| panic!("no {kind} from {from} to {to}: {:?}", self.flying))).2
    }

    /// A message arrives, wherever it comes from.
    pub(crate) fn receive(&mut self, from: u32, to: u32, message: P::Message) -> Vec<String> {
        self.act(to, Input::Deliver { from: NodeId(from), message })
    }

    /// Delivers everything, the oldest first, until nothing is under way.
    pub(crate) fn settle(&mut self) {
        while !self.flying.is_empty() {
            let (from, to, message) = self.flying.remove(0);
            self.receive(from, to, message);
        }
    }

    /// One whole entry with nobody in the way.
    pub(crate) fn pass_through(&mut self, node: u32) {
        self.ask(node);
        self.settle();
        self.exit(node);
        self.settle();
    }

    fn act(&mut self, node: u32, input: Input<P::Message, P::Timer>) -> Vec<String> {
        let mut out = Effects::new();
        self.nodes.get_mut(&node).expect("a node that runs").handle(input, &mut out);
        out.into_iter().map(|effect| self.carry_out(node, effect)).collect()
    }

    fn carry_out(&mut self, node: u32, effect: Effect<P::Message, P::Timer>) -> String {
        match effect {
            Effect::Send { to, message } => {
                let text = format!("{message} to {to}");
                assert_ne!(to.0, node, "{text}: a node sends to itself");
                self.flying.push((node, to.0, message));
                text
            }
            Effect::Broadcast { message } => {
                let others = self.nodes.keys().filter(|to| **to != node);
                self.flying.extend(others.map(|to| (node, *to, message.clone())));
                format!("{message} to all")
            }
            Effect::Enter { fence } => {
                assert!(self.inside.insert(node), "{node} enters twice");
                self.fences.push(fence.get());
                "enter".to_owned()
            }
            other => panic!("{other:?} is not expected here"),
        }
    }
}
