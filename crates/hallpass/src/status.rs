use hallpass_core::Mode;
use hallpass_node::LockStatus;

/// The state of a node and its group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The group's name.
    pub group: String,
    /// The node's name.
    pub name: String,
    /// Its number in the group.
    pub id: u32,
    /// Every member has been connected: locks are granted.
    pub complete: bool,
    /// The number of the view, once complete.
    pub epoch: Option<u64>,
    /// Messages between members are encrypted.
    pub encrypted: bool,
    /// All members, this one among them.
    pub members: Vec<Member>,
    /// How many locks take memory here.
    pub locks: usize,
    /// Protocol messages sent so far.
    pub messages: u64,
    /// Locks granted here so far.
    pub grants: u64,
}

/// A member as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its number in the group.
    pub id: u32,
    /// Where it listens.
    pub address: String,
    /// Its name, if it is known.
    pub name: Option<String>,
    /// How often it has been started, once it has been connected.
    pub incarnation: Option<u32>,
    /// A connection stands.
    pub connected: bool,
    /// It is the node itself.
    pub is_this: bool,
    /// Why there is no connection, if that is known.
    pub trouble: Option<String>,
}

/// A lock as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// How it is held on this node, if it is.
    pub held: Option<Mode>,
    /// How many callers of this node hold it.
    pub holders: usize,
    /// How many wait on this node.
    pub waiters: usize,
    /// The fence of the last entry on this node.
    pub fence: u64,
}

impl LockInfo {
    pub(crate) fn of(lock: &LockStatus<'_>) -> Self {
        let LockStatus { name, protocol, held, holders, waiters, fence } = *lock;
        Self { name: name.to_owned(), protocol: protocol.to_owned(), held, holders, waiters, fence: fence.get() }
    }
}
