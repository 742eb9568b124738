//! The protocols of the Carnegie Mellon notes: nodes and the messages between them, moved by hand.

mod central;
mod lamport;
mod lamport_fifo;
mod token_ring;

use std::collections::{BTreeMap, BTreeSet};

use super::{Bounds, Effect, Effects, Input, Message, Mode, Options, Protocol};
use crate::codec::{DecodeError, Reader};
use crate::{Fence, InitialHolders, NodeId, Setup, View};

/// Every action gives back the effects it had, as text and in order, so that a test says all that happens and not more.
struct Net<P: Protocol> {
    view: View,
    nodes: BTreeMap<u32, P>,
    flying: Vec<(u32, u32, P::Message)>,
    inside: BTreeSet<u32>,
    /// The fences of all entries, in order.
    fences: Vec<u64>,
}

impl<P: Protocol> Net<P> {
    fn new(members: impl IntoIterator<Item = u32>, words: &str) -> Self {
        Self::seated(members, words, InitialHolders::NOBODY)
    }

    fn seated(members: impl IntoIterator<Item = u32>, words: &str, initial: InitialHolders<'_>) -> Self {
        let view = View::new(members.into_iter().map(NodeId));
        let options = parse::<P>(words).unwrap();
        let server = P::needs(&options).server.then_some(NodeId::SERVER);
        let start =
            |me| P::new(&Setup { me, view: &view, initial, incarnation: 0, bounds: Bounds::NONE, options: &options });
        let nodes = view.members().iter().copied().chain(server).map(|me| (me.0, start(me))).collect();
        let inside = initial.holders.iter().map(|node| node.0).collect();
        Self { nodes, view, flying: Vec::new(), inside, fences: Vec::new() }
    }

    fn acquire(&mut self, node: u32) -> Vec<String> {
        self.act(node, Input::Acquire { mode: Mode::Exclusive, draw: 0 })
    }

    fn cancel(&mut self, node: u32) -> Vec<String> {
        assert!(!self.inside.contains(&node), "{node} is inside");
        self.act(node, Input::Cancel)
    }

    fn release(&mut self, node: u32) -> Vec<String> {
        assert!(self.inside.remove(&node), "{node} is not inside");
        self.act(node, Input::Release)
    }

    /// Delivers the oldest message under way between two nodes.
    fn deliver(&mut self, from: u32, to: u32) -> Vec<String> {
        let message = self.take(from, to, |_| true);
        self.receive(from, to, message)
    }

    /// Delivers the oldest message under way between two nodes that reads so: it overtakes those before it.
    fn deliver_text(&mut self, text: &str, from: u32, to: u32) -> Vec<String> {
        let message = self.take(from, to, |message| message.to_string() == text);
        self.receive(from, to, message)
    }

    /// A message arrives, wherever it comes from.
    fn receive(&mut self, from: u32, to: u32, message: P::Message) -> Vec<String> {
        self.act(to, Input::Deliver { from: NodeId(from), message })
    }

    /// Delivers everything under way, the oldest first, until nothing is.
    fn settle(&mut self) {
        while !self.flying.is_empty() {
            let (from, to, message) = self.flying.remove(0);
            self.receive(from, to, message);
        }
    }

    /// One whole entry with nobody in the way.
    fn pass_through(&mut self, node: u32) {
        self.acquire(node);
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
                let others = self.view.members().iter().map(|to| to.0).filter(|to| *to != node);
                self.flying.extend(others.map(|to| (node, to, message.clone())));
                format!("{message} to all")
            }
            Effect::Enter { fence } => {
                assert!(self.inside.insert(node), "{node} enters twice");
                self.fences.push(fence.get());
                format!("enter {fence}")
            }
            _ => panic!("no such effect in the notes"),
        }
    }

    fn inside(&self) -> Vec<u32> {
        self.inside.iter().copied().collect()
    }
}

const NOTHING: [&str; 0] = [];

fn parse<P: Protocol>(words: &str) -> Result<P::Options, String> {
    let options = Options::from_words(words.split_whitespace()).unwrap();
    P::parse(&options).map_err(|error| error.to_string())
}

fn initial(holders: &[NodeId], fence: u64) -> InitialHolders<'_> {
    let mode = if holders.len() > 1 { Mode::Shared } else { Mode::Exclusive };
    InitialHolders { holders, mode, fence: Fence::new(fence) }
}

/// The same comes out, all bytes are used, no shorter piece is a message, and no other kind is known.
fn goes_round<M: Message>(message: &M, kinds: u8) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let mut reader = Reader::new(&bytes);
    assert_eq!(M::decode(&mut reader).as_ref(), Ok(message));
    assert_eq!(reader.finish(), Ok(()));
    for cut in 0..bytes.len() {
        assert_eq!(M::decode(&mut Reader::new(&bytes[..cut])), Err(DecodeError::Truncated), "cut at {cut}");
    }
    for kind in (0..=255).filter(|kind| !(1..=kinds).contains(kind)) {
        bytes[0] = kind;
        assert_eq!(M::decode(&mut Reader::new(&bytes)), Err(DecodeError::Unknown), "{kind}");
    }
}

/// Whatever decodes is what its bytes say, and no bytes make the decoder panic.
fn is_canonical<M: Message>(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    if let Ok(message) = M::decode(&mut reader)
        && reader.finish().is_ok()
    {
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, bytes);
    }
}

/// Alone, every protocol enters at once, again and again, and says nothing; at its end the fence refuses.
fn alone<P: Protocol>() {
    let mut net = Net::<P>::new([7], "");
    assert!(net.nodes[&7].is_idle());
    for fence in 1..=3 {
        assert_eq!(net.acquire(7), [format!("enter {fence}")]);
        assert!(!net.nodes[&7].is_idle());
        assert_eq!(net.release(7), NOTHING);
        assert_eq!(net.cancel(7), NOTHING, "giving up nothing does nothing");
    }
    let mut net = Net::<P>::seated([7], "", initial(&[NodeId(7)], Fence::COUNT_MAX - 1));
    assert_eq!(net.release(7), NOTHING);
    assert_eq!(net.acquire(7).len(), 1);
    net.release(7);
    assert_eq!(net.acquire(7), NOTHING, "the count is at its end");
    assert_eq!(net.cancel(7), NOTHING);
}

/// With others, too: a fence past its end lets nobody in.
fn refuses_at_the_end<P: Protocol>() {
    let mut net = Net::<P>::seated([1, 2, 3], "", initial(&[], Fence::COUNT_MAX - 1));
    net.pass_through(2);
    net.acquire(3);
    net.settle();
    assert_eq!(net.inside(), [0; 0]);
    assert_eq!(net.fences, [Fence::COUNT_MAX]);
}
