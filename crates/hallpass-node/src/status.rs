use hallpass_core::{Fence, Mode, NodeId};

/// A lock as [`Node::locks`](super::Node::locks) shows it.
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

/// A member as [`Node::members`](super::Node::members) shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Its id.
    pub id: NodeId,
    /// Its incarnation; 0 if it has not been met.
    pub incarnation: u32,
    /// A connection stands; this node itself always counts.
    pub connected: bool,
    /// Bytes that wait for it.
    pub backlog: usize,
}
