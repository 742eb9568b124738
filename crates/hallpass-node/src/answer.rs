//! What a node answers: to callers, and to peers that greet it.

use std::fmt;

use crate::link::LinkError;
use crate::wire::NAME_MAX;
use hallpass_core::{Fence, NodeId};

/// One caller's turn: to release or to give up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket {
    pub(crate) slot: u32,
    pub(crate) id: u64,
}

impl Ticket {
    /// Where the lock was found, to find it faster the next time: for [`Node::handle_fast_acquire`](super::Node::handle_fast_acquire).
    pub fn place(self) -> u32 {
        self.slot
    }
}

/// How long a caller will wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Until its turn comes or it gives up.
    Wait,
    /// One round trip: granted or busy.
    Try,
}

/// What comes of asking, at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The caller is inside.
    Granted(Ticket, Fence),
    /// The caller will be told by an [`Output`].
    Waiting(Ticket),
    /// Somebody else is inside or before this caller, who only tried.
    Busy,
}

/// Why a caller is turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The lock's name is empty or too long.
    Name,
    /// The lock's protocol has no shared mode; it says why.
    NoShared(&'static str),
    /// Too many locks are in use.
    Locks,
    /// Too many callers wait or hold.
    Callers,
    /// Too much waits for this member, who does not take it.
    Backlog(NodeId),
    /// The lock has given out all fences of this view.
    Fences,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(f, "a lock's name has 1 to {NAME_MAX} bytes"),
            Self::NoShared(why) => f.write_str(why),
            Self::Locks => f.write_str("too many locks are in use on this node; try again when some are released"),
            Self::Callers => f.write_str("too many callers wait on this node; try again later"),
            Self::Fences => f.write_str("the lock has given out all its fences; restart all members of the group"),
            Self::Backlog(node) => {
                write!(f, "member {node} takes no messages and too many wait for it; try again later")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// What to tell a caller who was [`Answer::Waiting`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output<C> {
    /// It is inside.
    Granted {
        /// Who.
        caller: C,
        /// Its turn.
        ticket: Ticket,
        /// The entry's fence.
        fence: Fence,
    },
    /// It only tried, and others come first.
    Busy {
        /// Who.
        caller: C,
    },
    /// It waited in vain.
    Refused {
        /// Who.
        caller: C,
        /// Why.
        why: Refusal,
    },
}

impl<C> Output<C> {
    /// Whom it is for.
    pub fn caller(&self) -> &C {
        match self {
            Self::Granted { caller, .. } | Self::Busy { caller } | Self::Refused { caller, .. } => caller,
        }
    }
}

/// Why a peer is not talked to. The connection is to be closed; nothing else has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HelloError {
    /// It is of another group.
    Group(String),
    /// It is none of the members, or takes this node for another.
    Member(NodeId),
    /// Its list of members or lock classes is another.
    Digest,
    /// It has been started anew: what it knew of the locks is lost.
    Restarted,
    /// It knows an earlier life of this node.
    Outlived,
    /// It has met the members in other lives.
    Lives,
    /// Its account of the link is impossible.
    Link(LinkError),
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "it belongs to group '{group}'"),
            Self::Member(node) => {
                write!(f, "it calls itself or this node member {node}, which is wrong; compare the lists of members")
            }
            Self::Digest => f.write_str("its list of members or its lock classes differ; give all members the same"),
            Self::Restarted => {
                f.write_str("it has been restarted and knows nothing of the locks; restart all members of the group")
            }
            Self::Outlived => f.write_str("it knew this node before a restart; restart all members of the group"),
            Self::Lives => {
                f.write_str("it has met a member before that one was restarted; restart all members of the group")
            }
            Self::Link(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HelloError {}
