//! A handful of nodes and the messages between them, moved by hand.

mod classic_failure;
mod classic_join;
mod classic_leave;
mod classic_ways;
mod fences;
mod moot;
mod numbers;
mod plain;
mod readers;
mod regressions;
mod ring;
mod sequenced;
mod variants;

use std::collections::{BTreeMap, BTreeSet};

use super::{Body, Classic, ClassicMessage, ClassicTimer, RaMessage, RaTimer, RicartAgrawala, Ring, Sequenced};
use crate::protocol::{Bounds, Effect, Effects, Input, Medium, Message, Mode, Options, Protocol};
use crate::{Fence, InitialHolders, NodeId, Setup, Ticks, View};

/// Round trip 21, overdue after 121.
const BOUNDS: Bounds = Bounds { transit_max: 10, section_max: 100 };

/// The nodes, what they have sent and nobody has received yet, and what they have set and done.
///
/// Every action gives back the effects it had, as text and in order, so that a test says all that happens and not more.
struct Net<P: Protocol> {
    options: P::Options,
    view: View,
    nodes: BTreeMap<u32, P>,
    flying: Vec<(u32, u32, P::Message)>,
    timers: BTreeMap<(u32, P::Timer), Ticks>,
    inside: BTreeSet<u32>,
    /// The fences of all entries, in order.
    fences: Vec<u64>,
}

impl<P: Protocol> Net<P> {
    fn new(members: impl IntoIterator<Item = u32>, words: &str) -> Self {
        Self::with_initial(View::new(members.into_iter().map(NodeId)), words, |_| InitialHolders::NOBODY)
    }

    fn with_initial(view: View, words: &str, initial: impl Fn(u32) -> InitialHolders<'static>) -> Self {
        let mut options = Options::from_words(words.split_whitespace()).unwrap();
        options.nodes = view.members().to_vec();
        options.tick = 1000;
        let mut net = Self {
            options: P::parse(&options).unwrap(),
            view: view.clone(),
            nodes: BTreeMap::new(),
            flying: Vec::new(),
            timers: BTreeMap::new(),
            inside: BTreeSet::new(),
            fences: Vec::new(),
        };
        for NodeId(node) in view.members().iter().copied() {
            net.start(node, 0, initial(node));
        }
        net
    }

    /// Starts a node, or starts it again.
    fn start(&mut self, node: u32, incarnation: u32, initial: InitialHolders<'static>) {
        let (view, options) = (&self.view, &self.options);
        let setup = Setup { me: NodeId(node), view, initial, incarnation, bounds: BOUNDS, options };
        self.nodes.insert(node, P::new(&setup));
        self.timers.retain(|(owner, _), _| *owner != node);
        self.inside.remove(&node);
        if initial.held_by(NodeId(node)).is_some() {
            self.inside.insert(node);
        }
    }

    fn acquire(&mut self, node: u32) -> Vec<String> {
        self.acquire_as(node, Mode::Exclusive)
    }

    fn acquire_as(&mut self, node: u32, mode: Mode) -> Vec<String> {
        self.act(node, Input::Acquire { mode, draw: 0 })
    }

    fn cancel(&mut self, node: u32) -> Vec<String> {
        assert!(!self.inside.contains(&node), "{node} is inside");
        self.act(node, Input::Cancel)
    }

    fn release(&mut self, node: u32) -> Vec<String> {
        assert!(self.inside.remove(&node), "{node} is not inside");
        self.act(node, Input::Release)
    }

    /// Fires a timer that is set.
    fn fire(&mut self, node: u32, timer: P::Timer) -> Vec<String> {
        self.timers.remove(&(node, timer)).expect("a timer that is set");
        self.act(node, Input::Timeout(timer))
    }

    /// Delivers the oldest message under way between two nodes.
    fn deliver(&mut self, from: u32, to: u32) -> Vec<String> {
        let message = self.take(from, to, |_| true);
        self.receive(from, to, message)
    }

    /// Delivers the oldest message of a kind under way between two nodes: it overtakes those before it.
    fn deliver_kind(&mut self, kind: &str, from: u32, to: u32) -> Vec<String> {
        let message = self.take(from, to, |message| message.kind() == kind);
        self.receive(from, to, message)
    }

    /// Loses the oldest message under way between two nodes.
    fn lose(&mut self, from: u32, to: u32) -> P::Message {
        self.take(from, to, |_| true)
    }

    /// A message arrives, wherever it comes from.
    fn receive(&mut self, from: u32, to: u32, message: P::Message) -> Vec<String> {
        self.act(to, Input::Deliver { from: NodeId(from), message })
    }

    /// Delivers everything under way, the oldest first, until nothing is.
    fn settle(&mut self) {
        while !self.flying.is_empty() {
            let (from, to, message) = self.flying.remove(0);
            if self.nodes.contains_key(&to) {
                self.receive(from, to, message);
            }
        }
    }

    /// One whole entry with nobody in the way.
    fn pass_through(&mut self, node: u32, mode: Mode) {
        self.acquire_as(node, mode);
        self.settle();
        assert!(self.inside.contains(&node), "{node} did not enter");
        self.release(node);
        self.settle();
    }

    fn take(&mut self, from: u32, to: u32, wanted: impl Fn(&P::Message) -> bool) -> P::Message {
        let found = self.flying.iter().position(|(f, t, message)| (*f, *t) == (from, to) && wanted(message));
        self.flying.remove(found.unwrap_or_else(|| panic!("nothing such from {from} to {to}: {:?}", self.flying))).2
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
                let hears_itself = P::needs(&self.options).medium == Medium::Sequenced;
                let heard_by = self.nodes.keys().filter(|to| **to != node || hears_itself);
                self.flying.extend(heard_by.map(|to| (node, *to, message.clone())));
                format!("{message} to all")
            }
            Effect::Enter { fence } => {
                assert!(self.inside.insert(node), "{node} enters twice");
                self.fences.push(fence.get());
                "enter".to_owned()
            }
            Effect::SetTimer { timer, after } => {
                assert_eq!(after.min, after.max);
                self.timers.insert((node, timer), after.max);
                format!("set {timer:?} {}", after.max)
            }
            Effect::CancelTimer(timer) => {
                self.timers.remove(&(node, timer));
                format!("cancel {timer:?}")
            }
            Effect::Joined => "joined".to_owned(),
            Effect::Left => "left".to_owned(),
            Effect::Restart => "restart".to_owned(),
        }
    }

    fn inside(&self) -> Vec<u32> {
        self.inside.iter().copied().collect()
    }

    fn highest(&self, node: u32) -> u64 {
        self.nodes[&node].highest_number()
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn alone_every_machine_enters_at_once_and_says_nothing() {
    fn check<P: Protocol>(words: &str) {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let mut net = Net::<P>::new([7], words);
            for _ in 0..2 {
                let effects = net.acquire_as(7, mode);
                assert_eq!(effects.iter().filter(|text| *text == "enter").count(), 1, "{words}: {effects:?}");
                assert!(net.flying.is_empty() && net.timers.is_empty(), "{words}: {effects:?}");
                net.release(7);
                assert!(net.flying.is_empty() && net.timers.is_empty() && net.nodes[&7].is_idle(), "{words}");
            }
        }
    }
    for words in ["", "reply=implicit", "request=broadcast release=broadcast", "clock=lamport", "increment=random:3"] {
        check::<RicartAgrawala>(words);
    }
    check::<Ring>("ring=echo");
    check::<Ring>("ring=annotate");
    check::<Sequenced>("");
    check::<Classic>("");
    check::<Classic>("hsn=quiet insert=broadcast");
}
