//! What comes out of a node: answers to callers, and everything else that its driver has to carry out.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;

use hallpass_core::{Fence, NodeId, Ticks};

use crate::config::Class;
use crate::locks::Slot;
use crate::wire::{Attempt, NAME_MAX};

/// Tells the callers of a node apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct CallerId(pub(crate) NonZeroU64);

impl CallerId {
    /// The name under which other nodes know this caller's attempt.
    pub(crate) fn attempt(self) -> Attempt {
        Attempt(self.0)
    }
}

/// One caller's request or entry: to release the lock or to give up waiting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket {
    /// Unknown if the caller came before the group was complete.
    pub(crate) slot: Option<Slot>,
    pub(crate) id: CallerId,
}

impl Ticket {
    /// Where the lock was found, to find it faster the next time: for
    /// [`Node::handle_fast_acquire`](crate::Node::handle_fast_acquire).
    pub fn slot(self) -> Option<Slot> {
        self.slot
    }
}

/// A caller holds the lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant {
    /// To release it.
    pub ticket: Ticket,
    /// The entry's fencing token.
    pub fence: Fence,
}

/// How long a caller will wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Until the lock is granted or the caller gives up.
    Wait,
    /// One round trip: granted or busy.
    Try,
}

/// The immediate answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The caller holds the lock.
    Granted(Grant),
    /// The caller will be answered by an [`Output::Answer`].
    Waiting(Ticket),
    /// The caller only tried, and somebody else holds the lock or asked for it before.
    Busy,
}

/// The final answer to a caller who had to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The caller holds the lock.
    Granted(Grant),
    /// The caller only tried, and others come first.
    Busy,
    /// The caller waits no longer, and holds nothing.
    Refused(Refusal),
}

/// Why a node does not take a request. The caller holds nothing and waits for nothing, and the lock is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The lock's name is empty or too long. Choose another one.
    Name,
    /// The lock's protocol has no shared mode with its options, for this reason. Acquire it exclusively.
    NoShared(&'static str),
    /// Too many locks of this class are in use on this node. Try again when some are released; a class that passes a token
    /// needs more room, or fewer names.
    Locks,
    /// Too many callers hold locks or wait for them on this node. Try again later.
    Callers,
    /// Too many bytes wait for this member, which does not take them. Try again later.
    Backlog(NodeId),
    /// The lock has used up all fences or request numbers of this view. Try again: the group begins another one long before
    /// that.
    Fences,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(f, "a lock's name has 1 to {NAME_MAX} bytes"),
            Self::NoShared(why) => f.write_str(why),
            Self::Locks => {
                f.write_str("too many locks of this class are in use on this node; try again when some are released")
            }
            Self::Callers => f.write_str("too many callers wait on this node; try again later"),
            Self::Fences => {
                f.write_str("the lock has used up all fences of this view; try again, the group begins another one")
            }
            Self::Backlog(node) => {
                write!(f, "member {node} takes no messages and too many wait for it; try again later")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// A change of what a node stores, which is a map from numbers to bytes. First some entries are removed, then others are put, and
/// all of it is on disk or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Tells this change from others: they are numbered in the order in which they must be carried out.
    pub number: u64,
    /// Entries with these keys are removed first.
    pub remove: Range<u64>,
    /// Then these are stored, and replace others with the same keys.
    pub put: Vec<(u64, Vec<u8>)>,
}

/// What a caller asks of the whole group: see [`Node::handle_request`](crate::Node::handle_request).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Request {
    /// This node stops: it leaves the view at once, and keeps its vote until it is back.
    Stop,
    /// This node leaves for good: its vote goes to another member first.
    Leave,
    /// A member is removed, once its session has run out.
    Evict {
        /// Which one.
        node: NodeId,
        /// Members of its name are not admitted again.
        ban: bool,
    },
    /// Nobody of this name is admitted from now on, and nobody is removed. A driver bans a key by a name that its digest makes.
    Ban {
        /// The name.
        name: String,
    },
    /// Members of this name are admitted again.
    Admit {
        /// The name.
        name: String,
    },
    /// Locks whose names begin with a prefix get another protocol, from the next view on.
    SetClass(Class),
    /// Callers who hold this lock have to give it back. They lose it if they do not.
    Break {
        /// The lock's name.
        lock: String,
    },
}

/// What a member has asked for, or has brought about, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Ordered {
    /// The name of the member.
    pub by: String,
    /// Such as `break`.
    pub action: &'static str,
    /// The lock, member or class of locks.
    pub what: String,
    /// How far it is.
    pub stage: Stage,
}

/// How far this node is with what a member has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stage {
    /// The member has asked this node, the steward, which begins.
    Begun,
    /// The steward has told this node to do its part, which begins.
    PartBegun,
    /// This node, the steward, has seen it done.
    Done,
}

/// Why a [`Request`] was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// No member has this id.
    NoMember(NodeId),
    /// Nobody holds this lock.
    NotHeld,
    /// The request makes no sense, for this reason.
    Invalid(String),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMember(node) => write!(f, "no member has the id {node}"),
            Self::NotHeld => f.write_str("nobody holds this lock"),
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RequestError {}

/// One thing for the driver to do; see the [contract](crate).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Output<C> {
    /// Write this to disk, sync it, then call [`Node::handle_persisted`](crate::Node::handle_persisted).
    Persist(Write),
    /// Answer a caller who had to wait.
    Answer {
        /// Who.
        caller: C,
        /// The answer.
        outcome: Outcome,
    },
    /// Everything that was granted before is lost: this node's session has run out. Its guards say so from now on, and
    /// callers who wait keep waiting.
    Lapsed,
    /// This grant is lost, though the session is not.
    Lost(Ticket),
    /// This grant will be lost at the given time, unless it is released before.
    Revoked {
        /// The grant.
        ticket: Ticket,
        /// When it is lost.
        at: Ticks,
    },
    /// The answer to a request: it has taken effect, or will not.
    Done {
        /// What the driver knows the request by.
        token: u64,
        /// What became of it.
        result: Result<(), RequestError>,
    },
    /// This node begins to carry out what a member has asked for, or the group has changed: for the log.
    Ordered(Ordered),
    /// Something that [`Node::status`](crate::Node::status), [`members`](crate::Node::members) or
    /// [`contacts`](crate::Node::contacts) show has changed: connections may have to be made or closed.
    View,
    /// Close the connection with this peer that carries locks: what was sent on it is void.
    Disconnect(NodeId),
    /// Close all connections with this peer, on both planes: it is banned, or uses the id of another node. Nothing that comes over them
    /// counts any more.
    Refuse(NodeId),
    /// A message of this peer was dropped, because it may not send that.
    Denied {
        /// The peer.
        from: NodeId,
        /// Its name, by its greeting.
        name: String,
        /// Which message it was.
        message: &'static str,
    },
    /// Send this message over the control connection with this peer; drop it if there is none.
    Control {
        /// The receiver.
        to: NodeId,
        /// One message, of at most [`CONTROL_MAX`](crate::wire::CONTROL_MAX) bytes.
        bytes: Vec<u8>,
    },
    /// Give [`Node::poll_transmit`](crate::Node::poll_transmit) to the connection with this peer.
    Transmit(NodeId),
}
