use hallpass_core::Mode;
use hallpass_node::{LockStatus, Place};

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
    /// All members have been connected, and locks are granted.
    pub complete: bool,
    /// The number of the view, once the group is complete. Fences begin with it.
    pub epoch: Option<u64>,
    /// Messages between members are encrypted.
    pub encrypted: bool,
    /// All members, this one among them.
    pub members: Vec<Member>,
    /// How many locks this node keeps state for.
    pub locks: usize,
    /// Protocol messages that this node has sent so far.
    pub messages: u64,
    /// How often a lock was granted on this node so far.
    pub grants: u64,
    /// How many fences are left in this view, as far as this node knows, for the lock that has used most of its own. At 0
    /// that lock is granted no more until all members of the group are restarted.
    pub fences_left: u64,
}

/// A member of a group, as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its number in the group.
    pub id: u32,
    /// The address by which the other members know it.
    pub address: String,
    /// Its name, if it is known.
    pub name: Option<String>,
    /// The number of its start, which rises with every start, once it has been connected.
    pub incarnation: Option<u32>,
    /// True if it is connected now, and for this node itself.
    pub connected: bool,
    /// True for this node itself.
    pub is_this: bool,
    /// Why it is not connected, if that is known.
    pub trouble: Option<String>,
}

/// A lock, as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// Its name.
    pub name: String,
    /// The name of its protocol.
    pub protocol: String,
    /// Where it is, as far as this node can tell.
    pub place: Place,
    /// The numbers of the members whose permission the caller who is next on this node still lacks: they hold the lock,
    /// asked for it before, or are not connected. Empty if nobody here waits for them, and for protocols that pass a token,
    /// which cannot tell.
    pub missing: Vec<u32>,
    /// How it is held on this node, if it is.
    pub held: Option<Mode>,
    /// How many callers of this node hold it.
    pub holders: usize,
    /// How many callers of this node wait for it.
    pub waiters: usize,
    /// The fence of its last holder on this node.
    pub fence: u64,
}

impl LockInfo {
    pub(crate) fn of(lock: &LockStatus<'_>) -> Self {
        Self {
            name: lock.name.to_owned(),
            protocol: lock.protocol.to_owned(),
            place: lock.place,
            missing: lock.missing.iter().map(|member| member.0).collect(),
            held: lock.held,
            holders: lock.holders,
            waiters: lock.waiters,
            fence: lock.fence.get(),
        }
    }
}
