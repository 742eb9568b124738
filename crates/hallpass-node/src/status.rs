use hallpass_core::{Fence, Mode, NodeId};

use crate::Incarnation;

/// A lock as [`Node::locks`](crate::Node::locks) shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockStatus<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its protocol.
    pub protocol: &'static str,
    /// How it is held here, if it is.
    pub held: Option<Mode>,
    /// How many callers hold it here.
    pub holders: usize,
    /// How many wait here.
    pub waiters: usize,
    /// The fence of the last entry here.
    pub fence: Fence,
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
