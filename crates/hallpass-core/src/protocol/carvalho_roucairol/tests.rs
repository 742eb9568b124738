//! A handful of nodes and the messages between them, moved by hand.

mod cancel;
mod fences;
mod plain;
mod printed;
mod readers;
mod short_cuts;
mod walk;
mod wire;

use std::collections::BTreeMap;

use super::*;
use crate::{Bounds, InitialHolders, Message, View};
use Mode::{Exclusive, Shared};

/// The nodes and what they have sent and nobody has received yet.
///
/// Every action gives back the effects it had, as text and in order, so that a test says all that happens and not more.
struct Net {
    view: View,
    rules: CrRules,
    nodes: BTreeMap<u32, CarvalhoRoucairol>,
    flying: Vec<(u32, u32, CrMessage)>,
    inside: BTreeMap<u32, Mode>,
    /// The fences of all entries, in order.
    fences: Vec<u64>,
}

impl Net {
    fn new(nodes: u32) -> Self {
        Self::with(nodes, "", InitialHolders::NOBODY)
    }

    fn with(nodes: u32, words: &str, initial: InitialHolders<'static>) -> Self {
        let view = View::new((1..=nodes).map(NodeId));
        let rules = parse(words).unwrap();
        let mut net = Self {
            view,
            rules,
            nodes: BTreeMap::new(),
            flying: Vec::new(),
            inside: BTreeMap::new(),
            fences: Vec::new(),
        };
        for node in 1..=nodes {
            net.nodes.insert(node, net.fresh(node, initial));
            if let Some(mode) = initial.held_by(NodeId(node)) {
                net.inside.insert(node, mode);
            }
        }
        net
    }

    fn fresh(&self, node: u32, initial: InitialHolders<'_>) -> CarvalhoRoucairol {
        CarvalhoRoucairol::new(&Setup {
            me: NodeId(node),
            view: &self.view,
            initial,
            incarnation: 0,
            bounds: Bounds::NONE,
            options: &self.rules,
        })
    }

    fn write(&mut self, node: u32) -> Vec<String> {
        self.act(node, Input::Acquire { mode: Exclusive, draw: 0 }, Exclusive)
    }

    fn read(&mut self, node: u32) -> Vec<String> {
        self.act(node, Input::Acquire { mode: Shared, draw: 0 }, Shared)
    }

    fn cancel(&mut self, node: u32) -> Vec<String> {
        assert!(!self.inside.contains_key(&node), "{node} is inside");
        self.act(node, Input::Cancel, Exclusive)
    }

    fn release(&mut self, node: u32) -> Vec<String> {
        assert!(self.inside.remove(&node).is_some(), "{node} is not inside");
        self.act(node, Input::Release, Exclusive)
    }

    /// Asks, waits for everything, leaves.
    fn pass_through(&mut self, node: u32, mode: Mode) {
        if mode == Shared {
            self.read(node)
        } else {
            self.write(node)
        };
        self.settle();
        self.release(node);
        self.settle();
    }

    /// Delivers the oldest message of a kind under way between two nodes.
    fn deliver(&mut self, kind: &str, from: u32, to: u32) -> Vec<String> {
        let at = self.flying.iter().position(|(a, b, message)| (*a, *b, message.kind()) == (from, to, kind));
        let (from, to, message) = self.flying.remove(at.expect("such a message is under way"));
        self.receive(from, to, message)
    }

    fn receive(&mut self, from: u32, to: u32, message: CrMessage) -> Vec<String> {
        let mode = self.nodes[&to].request.as_ref().map_or(Exclusive, |request| request.mode);
        self.act(to, Input::Deliver { from: NodeId(from), message }, mode)
    }

    /// Delivers everything under way, the oldest first, until nothing is.
    fn settle(&mut self) {
        while !self.flying.is_empty() {
            let (from, to, message) = self.flying.remove(0);
            self.receive(from, to, message);
        }
    }

    fn act(&mut self, node: u32, input: Input<CrMessage, CrTimer>, mode: Mode) -> Vec<String> {
        let mut out = Effects::new();
        self.nodes.get_mut(&node).unwrap().handle(input, &mut out);
        out.into_iter().map(|effect| self.carry_out(node, mode, effect)).collect()
    }

    fn carry_out(&mut self, node: u32, mode: Mode, effect: Effect<CrMessage, CrTimer>) -> String {
        match effect {
            Effect::Send { to, message } => {
                let text = format!("{message} to {to}");
                self.flying.push((node, to.0, message));
                text
            }
            Effect::Broadcast { message } => {
                let others = self.nodes.keys().copied().filter(|other| *other != node);
                self.flying.extend(others.map(|to| (node, to, message.clone())));
                format!("{message} to all")
            }
            Effect::Enter { fence } => {
                assert!(self.inside.values().all(|other| !other.conflicts(mode)), "{node} meets {:?}", self.inside);
                assert!(self.inside.insert(node, mode).is_none(), "{node} enters twice");
                self.fences.push(fence.get());
                "enter".to_owned()
            }
            Effect::SetTimer { timer, after } => format!("set {timer:?} {}", after.max),
            Effect::CancelTimer(timer) => format!("cancel {timer:?}"),
            Effect::Joined | Effect::Left | Effect::Restart => panic!("{effect:?}"),
        }
    }

    /// What a node has from another: `X`, `S` or nothing.
    fn has(&self, node: u32, from: u32) -> &'static str {
        let protocol = &self.nodes[&node];
        let position = protocol.position(NodeId(from)).unwrap();
        match (protocol.exclusive.contains(position), protocol.shared.contains(position)) {
            (true, false) => "X",
            (false, true) => "S",
            (false, false) => "",
            (true, true) => panic!("{node} has both of {from}"),
        }
    }

    fn inside(&self) -> Vec<u32> {
        self.inside.keys().copied().collect()
    }
}

fn parse(words: &str) -> Result<CrRules, OptionError> {
    let mut options = Options::from_words(words.split_whitespace())?;
    options.tick = 1000;
    CarvalhoRoucairol::parse(&options)
}

const NOTHING: [&str; 0] = [];
