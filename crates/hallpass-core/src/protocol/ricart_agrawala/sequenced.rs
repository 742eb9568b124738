//! Section 6.2.1: where the broadcast medium puts all messages into one order, that order replaces sequence numbers.
//!
//! All nodes, including the sender, receive every REQUEST and REPLY in the same order, and so keep the same queue. The node
//! at its head is inside. An entry costs one REQUEST and one REPLY, both broadcast: two messages, whatever N is.

use std::fmt;

use super::message::{put_mode, read_mode};
use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::{
    Capabilities, Effect, Effects, Input, Medium, Message, Mode, Needs, NoTimer, OptionError, Options, Protocol,
    Variables,
};
use crate::{FenceCounter, NodeId, Setup};

/// One node on the medium.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sequenced {
    me: NodeId,
    alone: bool,
    /// REQUESTs that were received and whose REPLY was not, in the medium's order: at most two of each node.
    queue: Vec<(NodeId, u64, Mode)>,
    request: Option<Request>,
    /// How many requests this node has made. The count names them; it does not order them.
    made: u64,
    fences: FenceCounter,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Request {
    id: u64,
    mode: Mode,
    inside: bool,
}

/// The messages of [`Sequenced`], all of them broadcast.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SequencedMessage {
    /// The sender asks to enter.
    Request {
        /// The request's id; every node counts its own.
        id: u64,
        /// Exclusive or shared.
        mode: Mode,
    },
    /// The sender has left, or has given up.
    Reply {
        /// The sender's own request that is over.
        id: u64,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
}

type Out = Effects<SequencedMessage, NoTimer>;

impl Protocol for Sequenced {
    type Message = SequencedMessage;
    type Timer = NoTimer;
    type Options = ();

    fn parse(options: &Options) -> Result<(), OptionError> {
        let mut parsed = options.read("ricart-agrawala medium=sequenced");
        parsed.choice("request", &[("broadcast", ())])?;
        parsed.choice("membership", &[("static", ())])?;
        parsed.finish()
    }

    fn needs((): &()) -> Needs {
        Needs {
            medium: Medium::Sequenced,
            no_loss: Some(
                "medium=sequenced is about a medium that everybody hears; one that loses messages has no common order",
            ),
            ..Needs::default()
        }
    }

    fn new(setup: &Setup<'_, ()>) -> Self {
        Self {
            me: setup.me,
            alone: setup.view.members().len() <= 1,
            // Every queue starts with the initial holders, as if their REQUESTs had been received.
            queue: setup.initial.holders.iter().map(|holder| (*holder, 0, setup.initial.mode)).collect(),
            request: setup.initial.held_by(setup.me).map(|mode| Request { id: 0, mode, inside: true }),
            made: 0,
            fences: setup.fences(),
        }
    }

    fn handle(&mut self, input: Input<SequencedMessage, NoTimer>, out: &mut Out) {
        match input {
            Input::Acquire { mode, .. } => self.on_acquire(mode, out),
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { from, message: SequencedMessage::Request { id, mode } } => {
                self.queue.push((from, id, mode));
                self.enter_if_first(out);
            }
            Input::Deliver { from, message: SequencedMessage::Reply { id, fence } } => {
                self.fences.observe(fence);
                self.queue.retain(|(node, other, _)| (*node, *other) != (from, id));
                self.enter_if_first(out);
            }
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        out.list("queue", self.queue.iter().map(|(node, id, _)| format!("{node}:{id}")));
        out.optional("own request", self.request.as_ref().map(|request| request.id));
        out.flag("inside", self.request.as_ref().is_some_and(|request| request.inside));
        out.set("fence", self.fences.count());
    }

    fn is_idle(&self) -> bool {
        self.request.is_none() && self.queue.is_empty()
    }
}

impl Capabilities for Sequenced {}

impl Sequenced {
    fn on_acquire(&mut self, mode: Mode, out: &mut Out) {
        debug_assert!(self.request.is_none(), "the driver serialises local callers");
        self.made += 1;
        self.request = Some(Request { id: self.made, mode, inside: false });
        if self.alone {
            self.queue.push((self.me, self.made, mode));
            return self.enter_if_first(out);
        }
        out.push(Effect::Broadcast { message: SequencedMessage::Request { id: self.made, mode } });
    }

    fn on_release(&mut self, out: &mut Out) {
        let Some(request) = self.request.take() else { return };
        if self.alone {
            return self.queue.clear();
        }
        out.push(Effect::Broadcast { message: SequencedMessage::Reply { id: request.id, fence: self.fences.count() } });
    }

    /// 'REPLYs are only needed from those other nodes which have themselves successfully broadcast a prior REQUEST.'
    fn enter_if_first(&mut self, out: &mut Out) {
        let Some(request) = self.request.as_mut().filter(|request| !request.inside) else { return };
        let mine = self.queue.iter().position(|(node, id, _)| (*node, *id) == (self.me, request.id));
        let Some(mine) = mine else { return };
        if self.queue[..mine].iter().any(|(_, _, mode)| mode.conflicts(request.mode)) {
            return;
        }
        let Some(fence) = self.fences.next(request.mode) else { return };
        request.inside = true;
        out.push(Effect::Enter { fence });
    }
}

impl Message for SequencedMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Reply { .. } => "REPLY",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { id, mode } => {
                out.push(1);
                put_number(out, *id);
                put_mode(out, *mode);
            }
            Self::Reply { id, fence } => {
                out.push(2);
                put_numbers(out, [*id, *fence]);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            1 => Self::Request { id: bytes.number()?, mode: read_mode(bytes)? },
            2 => Self::Reply { id: bytes.number()?, fence: bytes.number()? },
            _ => return Err(DecodeError::Unknown),
        })
    }
}

impl fmt::Display for SequencedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { id, mode: Mode::Exclusive } => write!(f, "REQUEST(#{id})"),
            Self::Request { id, mode: Mode::Shared } => write!(f, "REQUEST(#{id}, shared)"),
            Self::Reply { id, .. } => write!(f, "REPLY(#{id})"),
        }
    }
}
