//! What comes out of a node: answers to callers, and everything else that its driver has to carry out.

use std::fmt;
use std::num::NonZeroU64;

use hallpass_core::{Fence, NodeId};

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
    /// The lock has used up all fences or request numbers of this view. Restart all members of the group.
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
            Self::Fences => f.write_str("the lock has used up all its fences; restart all members of the group"),
            Self::Backlog(node) => {
                write!(f, "member {node} takes no messages and too many wait for it; try again later")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// What must be on disk before the node goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Record {
    /// The view's number. The node's next incarnation must be above it.
    Epoch(u64),
}

/// One thing for the driver to do; see the [contract](crate).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output<C> {
    /// Write this to disk, sync it, then call [`Node::handle_persisted`](crate::Node::handle_persisted).
    Persist(Record),
    /// Answer a caller who had to wait.
    Answer {
        /// Who.
        caller: C,
        /// The answer.
        outcome: Outcome,
    },
    /// Give [`Node::poll_transmit`](crate::Node::poll_transmit) to the connection with this peer.
    Transmit(NodeId),
}
