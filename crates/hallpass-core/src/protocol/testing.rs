//! For tests of protocols: a few nodes, and the messages between them moved by hand.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use proptest::prelude::*;

use super::{Bounds, Effect, Effects, Input, Medium, Message, Mode, Options, Protocol, Span};
use crate::codec::{self, DecodeError, Reader};
use crate::{Fence, InitialHolders, NodeId, Setup, View};

/// What an action without effects returns.
pub(crate) const NOTHING: [&str; 0] = [];

/// A round trip takes at most 21 ticks, a section 100.
pub(crate) const BOUNDS: Bounds = Bounds { transit_max: 10, section_max: 100 };

/// The nodes of a group, the messages in flight and the timers that are set.
///
/// Every action returns its effects as text and in order, so that a test states all that happens and nothing more. No
/// two nodes may be inside together in conflicting modes, unless the test shows how that comes about.
pub(crate) struct Net<P: Protocol> {
    pub(crate) options: P::Options,
    pub(crate) view: View,
    pub(crate) nodes: BTreeMap<u32, P>,
    /// Sender, receiver and message, the oldest first.
    pub(crate) in_flight: Vec<(u32, u32, P::Message)>,
    pub(crate) timers: BTreeMap<(u32, P::Timer), Span>,
    pub(crate) inside: BTreeMap<u32, Mode>,
    /// The fences of all entries, in order.
    pub(crate) fences: Vec<u64>,
    /// The mode of each node's last request.
    modes: BTreeMap<u32, Mode>,
    checks_exclusion: bool,
}

/// Setting up.
impl<P: Protocol> Net<P> {
    /// A group of these members, with options such as `queue=fifo`.
    pub(crate) fn new(members: impl IntoIterator<Item = u32>, words: &str) -> Self {
        Self::with_initial(View::new(members.into_iter().map(NodeId)), words, InitialHolders::NOBODY)
    }

    /// The same, where some nodes are inside from the start.
    pub(crate) fn with_initial(view: View, words: &str, initial: InitialHolders<'_>) -> Self {
        let options = P::parse(&options(words, view.members())).unwrap();
        let server = P::needs(&options).server.then_some(NodeId::SERVER);
        let mut net = Self {
            options,
            nodes: BTreeMap::new(),
            in_flight: Vec::new(),
            timers: BTreeMap::new(),
            inside: BTreeMap::new(),
            fences: Vec::new(),
            modes: BTreeMap::new(),
            checks_exclusion: !words.contains("as-printed"),
            view,
        };
        for NodeId(node) in net.view.clone().members().iter().copied().chain(server) {
            net.start(node, 0, initial);
        }
        net
    }

    /// Two nodes may be inside together: the test shows how that comes about.
    pub(crate) fn without_exclusion(mut self) -> Self {
        self.checks_exclusion = false;
        self
    }

    /// Starts a node, or starts it again without its memory.
    pub(crate) fn start(&mut self, node: u32, incarnation: u32, initial: InitialHolders<'_>) {
        self.crash(node);
        self.nodes.insert(node, self.fresh(node, incarnation, initial));
        if let Some(mode) = initial.held_by(NodeId(node)) {
            self.inside.insert(node, mode);
        }
    }

    /// A node ends, with all it knows.
    pub(crate) fn crash(&mut self, node: u32) {
        self.nodes.remove(&node);
        self.timers.retain(|(owner, _), _| *owner != node);
        self.inside.remove(&node);
    }

    /// A fresh instance, which does not take part yet.
    pub(crate) fn fresh(&self, node: u32, incarnation: u32, initial: InitialHolders<'_>) -> P {
        let (view, options) = (&self.view, &self.options);
        let home = view.members()[0];
        P::new(&Setup { me: NodeId(node), view, initial, home, incarnation, bounds: BOUNDS, options })
    }
}

/// What callers do.
impl<P: Protocol> Net<P> {
    pub(crate) fn acquire(&mut self, node: u32) -> Vec<String> {
        self.acquire_as(node, Mode::Exclusive)
    }

    pub(crate) fn acquire_shared(&mut self, node: u32) -> Vec<String> {
        self.acquire_as(node, Mode::Shared)
    }

    pub(crate) fn acquire_as(&mut self, node: u32, mode: Mode) -> Vec<String> {
        self.modes.insert(node, mode);
        self.act(node, Input::Acquire { mode, draw: 0 })
    }

    /// The mode in which a node enters next, where another input than a request leads to it.
    pub(crate) fn expect_mode(&mut self, node: u32, mode: Mode) {
        self.modes.insert(node, mode);
    }

    pub(crate) fn cancel(&mut self, node: u32) -> Vec<String> {
        assert!(!self.is_inside(node), "{node} is inside");
        self.act(node, Input::Cancel)
    }

    pub(crate) fn release(&mut self, node: u32) -> Vec<String> {
        assert!(self.inside.remove(&node).is_some(), "{node} is not inside");
        self.act(node, Input::Release)
    }

    /// One whole exclusive entry with nobody in the way.
    pub(crate) fn pass_through(&mut self, node: u32) {
        self.pass_through_as(node, Mode::Exclusive);
    }

    /// One whole entry with nobody in the way.
    pub(crate) fn pass_through_as(&mut self, node: u32, mode: Mode) {
        self.acquire_as(node, mode);
        self.deliver_all();
        assert!(self.is_inside(node), "{node} did not enter");
        self.release(node);
        self.deliver_all();
    }

    /// The nodes that are inside.
    pub(crate) fn inside(&self) -> Vec<u32> {
        self.inside.keys().copied().collect()
    }

    pub(crate) fn is_inside(&self, node: u32) -> bool {
        self.inside.contains_key(&node)
    }
}

/// What the network and the clock do.
impl<P: Protocol> Net<P> {
    /// Delivers the oldest message between two nodes.
    pub(crate) fn deliver(&mut self, from: u32, to: u32) -> Vec<String> {
        let message = self.take(from, to);
        self.receive(from, to, message)
    }

    /// Delivers the oldest message between two nodes of a kind, or with a text: it overtakes those before it.
    pub(crate) fn deliver_first(&mut self, what: &str, from: u32, to: u32) -> Vec<String> {
        let message = self.take_first(what, from, to);
        self.receive(from, to, message)
    }

    /// Delivers everything, the oldest message first, until nothing is in flight.
    pub(crate) fn deliver_all(&mut self) {
        while !self.in_flight.is_empty() {
            let (from, to, message) = self.in_flight.remove(0);
            if self.nodes.contains_key(&to) {
                self.receive(from, to, message);
            }
        }
    }

    /// Takes the oldest message between two nodes off the network.
    pub(crate) fn take(&mut self, from: u32, to: u32) -> P::Message {
        self.take_if(from, to, |_| true)
    }

    /// The same for the oldest of a kind, or with a text.
    pub(crate) fn take_first(&mut self, what: &str, from: u32, to: u32) -> P::Message {
        self.take_if(from, to, |message| message.kind() == what || message.to_string() == what)
    }

    fn take_if(&mut self, from: u32, to: u32, wanted: impl Fn(&P::Message) -> bool) -> P::Message {
        let found = self.in_flight.iter().position(|(f, t, message)| (*f, *t) == (from, to) && wanted(message));
        self.in_flight.remove(found.unwrap_or_else(|| panic!("nothing from {from} to {to}: {:?}", self.in_flight))).2
    }

    /// A message arrives, whether or not anybody sent it.
    pub(crate) fn receive(&mut self, from: u32, to: u32, message: P::Message) -> Vec<String> {
        self.act(to, Input::Deliver { from: NodeId(from), message })
    }

    /// Fires a timer that is set.
    pub(crate) fn fire(&mut self, node: u32, timer: P::Timer) -> Vec<String> {
        self.timers.remove(&(node, timer)).expect("a timer that is set");
        self.act(node, Input::Timeout(timer))
    }

    pub(crate) fn act(&mut self, node: u32, input: Input<P::Message, P::Timer>) -> Vec<String> {
        let mut out = Effects::new();
        self.nodes.get_mut(&node).expect("a node that runs").handle(input, &mut out);
        out.into_iter().map(|effect| self.carry_out(node, effect)).collect()
    }

    fn carry_out(&mut self, node: u32, effect: Effect<P::Message, P::Timer>) -> String {
        match effect {
            Effect::Send { to, message } => {
                let text = format!("{message} to {to}");
                assert_ne!(to.0, node, "{text}: a node sends to itself");
                self.in_flight.push((node, to.0, message));
                text
            }
            Effect::Broadcast { message } => {
                let to_itself = P::needs(&self.options).medium == Medium::Sequenced;
                let receivers = self.nodes.keys().filter(|to| **to != node || to_itself);
                self.in_flight.extend(receivers.map(|to| (node, *to, message.clone())));
                format!("{message} to all")
            }
            Effect::Enter { fence } => self.enter(node, fence),
            Effect::SetTimer { timer, after } => {
                self.timers.insert((node, timer), after);
                if after.min == after.max { format!("set {timer:?} {}", after.max) } else { format!("set {timer:?}") }
            }
            Effect::CancelTimer(timer) => {
                self.timers.remove(&(node, timer));
                format!("cancel {timer:?}")
            }
            Effect::Joined => "joined".to_owned(),
            Effect::Left => "left".to_owned(),
            Effect::Restart => "restart".to_owned(),
            Effect::Busy => "busy".to_owned(),
            Effect::Refused => "refused".to_owned(),
        }
    }

    fn enter(&mut self, node: u32, fence: Fence) -> String {
        let mode = self.modes[&node];
        let alone = self.inside.values().all(|other| !other.conflicts(mode));
        assert!(alone || !self.checks_exclusion, "{node} enters beside {:?}", self.inside);
        assert!(self.inside.insert(node, mode).is_none(), "{node} enters twice");
        self.fences.push(fence.get());
        "enter".to_owned()
    }
}

/// Reads a protocol's options for nodes 1, 2 and 3, or returns the error's text.
pub(crate) fn parse<P: Protocol>(words: &str) -> Result<P::Options, String> {
    P::parse(&options(words, &[1, 2, 3].map(NodeId))).map_err(|error| error.to_string())
}

/// Options as a driver gives them, where a T is a thousand ticks.
fn options(words: &str, nodes: &[NodeId]) -> Options {
    let mut options = Options::from_words(words.split_whitespace()).unwrap();
    options.nodes = nodes.to_vec();
    options.tick = 1000;
    options
}

/// One exclusive holder, several shared ones, or nobody, at this count.
pub(crate) fn initial(holders: &[NodeId], count: u64) -> InitialHolders<'_> {
    let mode = if holders.len() > 1 { Mode::Shared } else { Mode::Exclusive };
    InitialHolders { holders, mode, fence: Fence::compose(0, count).unwrap() }
}

/// A node that is alone enters at once, again and again, and sends nothing.
pub(crate) fn assert_enters_alone<P: Protocol>(words: &str) {
    let mut net = Net::<P>::new([7], words);
    assert!(net.nodes[&7].is_idle());
    for _ in 0..3 {
        assert_eq!(net.acquire(7), ["enter"], "{words}");
        assert!(!net.nodes[&7].is_idle(), "{words}");
        assert_eq!(net.release(7), NOTHING, "{words}");
        assert_eq!(net.cancel(7), NOTHING, "{words}: there is nothing to cancel");
    }
    assert_eq!(net.fences, [1, 2, 3], "{words}");
}

/// Past the last fence nobody enters, alone or in a group.
pub(crate) fn assert_refuses_past_the_last_fence<P: Protocol>(words: &str) {
    let mut net = Net::<P>::with_initial(View::new([NodeId(7)]), words, initial(&[NodeId(7)], Fence::COUNT_MAX - 1));
    assert_eq!(net.release(7), NOTHING, "{words}");
    assert_eq!(net.acquire(7), ["enter"], "{words}");
    net.release(7);
    assert_eq!(net.acquire(7), NOTHING, "{words}: the count is at its end");
    assert_eq!(net.cancel(7), NOTHING, "{words}");

    let view = View::new([1, 2, 3].map(NodeId));
    let mut net = Net::<P>::with_initial(view, words, initial(&[], Fence::COUNT_MAX - 1));
    net.pass_through(2);
    net.acquire(3);
    net.deliver_all();
    assert_eq!(net.inside(), [0; 0], "{words}");
    assert_eq!(net.fences, [Fence::COUNT_MAX], "{words}");
}

/// Request numbers, clocks and hops as they may be in a message.
pub(crate) fn count() -> impl Strategy<Value = u64> + Clone {
    up_to(codec::COUNT_MAX)
}

/// Counts of fences as they may be in a message.
pub(crate) fn fence() -> impl Strategy<Value = u64> + Clone {
    up_to(Fence::COUNT_MAX)
}

fn up_to(max: u64) -> impl Strategy<Value = u64> + Clone {
    prop_oneof![0u64..300, (0u32..64).prop_map(move |bit| (1 << bit).min(max)), 0..=max, Just(max)]
}

/// A message decodes as it was encoded, and no part of it is a message.
pub(crate) fn assert_round_trip<M: Message>(message: &M) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let mut reader = Reader::new(&bytes);
    assert_eq!(M::decode(&mut reader).as_ref(), Ok(message));
    assert_eq!(reader.finish(), Ok(()));
    for end in 0..bytes.len() {
        assert_eq!(M::decode(&mut Reader::new(&bytes[..end])), Err(DecodeError::Truncated), "cut at {end}");
    }
}

/// Any bytes are refused or are the encoding of the message they decode to; nothing panics.
pub(crate) fn assert_canonical<M: Message>(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    if let Ok(message) = M::decode(&mut reader)
        && reader.finish().is_ok()
    {
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, bytes);
    }
}

/// The first byte is the kind of message: no other than these are known.
pub(crate) fn assert_kinds<M: Message>(kinds: RangeInclusive<u8>) {
    for kind in 0..=u8::MAX {
        let known = M::decode(&mut Reader::new(&[kind, 0, 0, 0, 0, 0, 0])) != Err(DecodeError::Unknown);
        assert_eq!(known, kinds.contains(&kind), "{kind}");
    }
}
