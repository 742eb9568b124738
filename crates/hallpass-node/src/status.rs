use hallpass_core::{Fence, Mode, NodeId};

use crate::Incarnation;

/// A lock as [`Node::locks`](crate::Node::locks) shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockStatus<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its protocol.
    pub protocol: &'static str,
    /// Where it is, as far as this node can tell.
    pub place: Place,
    /// The members whose permission the caller who is next here still lacks: they hold the lock, asked for it before, or
    /// are not connected. Empty if nobody here waits for them, and for protocols that pass a token, which cannot tell.
    pub missing: Vec<NodeId>,
    /// How it is held here, if it is.
    pub held: Option<Mode>,
    /// How many callers hold it here.
    pub holders: usize,
    /// How many wait here.
    pub waiters: usize,
    /// The fence of the last entry here.
    pub fence: Fence,
}

/// Where a lock is, seen from one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Place {
    /// Callers here hold it.
    Here,
    /// Callers here wait for it, and it is held or asked for elsewhere.
    Elsewhere,
    /// Nobody here holds or wants it, and its permissions or its token are kept for the next caller.
    Cached,
    /// Nobody here holds or wants it, and nothing is kept: another member may hold it.
    Unknown,
}

/// A member as [`Node::members`](crate::Node::members) shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Its id.
    pub id: NodeId,
    /// Its incarnation, once a connection with it was made.
    pub incarnation: Option<Incarnation>,
    /// A connection stands; always true for this node itself.
    pub connected: bool,
    /// Bytes that wait for it.
    pub backlog: usize,
}
