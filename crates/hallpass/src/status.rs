use std::time::Duration;

use hallpass_core::{Mode, Ticks};
use hallpass_node::{LockState, LockStatus, MemberStatus, ViewState};

use crate::certificate::KeyDigest;
use crate::os::now;
use crate::peer::Peer;

/// The state of a node and its group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The group's name.
    pub group: String,
    /// The node's name.
    pub name: String,
    /// Its number, which no other node has.
    pub id: u32,
    /// The node is a member of a group, and locks are granted.
    pub complete: bool,
    /// The state of its view: the members as they have agreed on.
    pub view: ViewState,
    /// The group's own number, which is drawn when it is founded; `None` while the node is in no group.
    pub group_id: Option<u64>,
    /// The number of the view, once there has been one. Fences begin with it.
    pub epoch: Option<u64>,
    /// The number of the member that decides who has failed, if one is known.
    pub steward: Option<u32>,
    /// The numbers of the members that vote on who the members are.
    pub voters: Vec<u32>,
    /// How long this node's locks are certain without a message from the group; `None` if it needs no session, or has none.
    pub session: Option<Duration>,
    /// How long a session lasts: as the group has it, once the node has found its group.
    pub ttl: Duration,
    /// By how much the rates of any two members' clocks may differ, in millionths. A program that passes a deadline on leaves this margin.
    pub drift_ppm: u32,
    /// What it waits for, in words, if no locks are granted.
    pub waits_for: Option<String>,
    /// Messages between members are encrypted.
    pub encrypted: bool,
    /// All members, this one among them, and nodes that vote or are about to join. While the node is in no group: the nodes that it was told
    /// of, with the number 0 while their own is not known.
    pub members: Vec<Member>,
    /// Names whose nodes are not admitted, as far as this node knows.
    pub banned: Vec<String>,
    /// Keys that no member accepts, as far as this node knows.
    pub banned_keys: Vec<KeyDigest>,
    /// How many locks this node keeps state for.
    pub locks: usize,
    /// Protocol messages that this node has sent so far.
    pub messages: u64,
    /// How often a lock was granted on this node so far.
    pub grants: u64,
    /// How many fences are left in this view, as far as this node knows, for the lock that has used most of its own. Long
    /// before it is 0 the group begins another view.
    pub fences_left: u64,
}

/// A member of a group, as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its number.
    pub id: u32,
    /// The address by which the other members know it.
    pub address: String,
    /// Its name, if it is known.
    pub name: Option<String>,
    /// The number of its start, which rises with every start, once it has been connected.
    pub incarnation: Option<u32>,
    /// It takes part in the view. One that does not may still vote, or be about to join.
    pub in_view: bool,
    /// It votes on who the members are.
    pub voter: bool,
    /// It is the steward.
    pub steward: bool,
    /// When its session ends unless it is renewed, as far as this node knows: it does of itself, and of all as the steward.
    pub session: Option<Duration>,
    /// True if it is connected now, and for this node itself.
    pub connected: bool,
    /// True for this node itself.
    pub is_this: bool,
    /// Why it is not connected, if that is known.
    pub trouble: Option<String>,
    /// The keys that it shows on its connections, and this node's own. Two while it changes its key; none without keys, or while it is not
    /// connected.
    pub keys: Vec<KeyDigest>,
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
    pub state: LockState,
    /// The numbers of the members whose permission the caller who is next on this node still lacks: they hold the lock,
    /// asked for it before, or are not connected. Empty if nobody here waits for them, and for protocols that pass a token,
    /// which cannot tell. Of a lock with a home only those who may be inside, once the home was asked.
    pub missing: Vec<u32>,
    /// The number of the member that keeps the order of its callers, for protocols in which one does.
    pub home: Option<u32>,
    /// The numbers of the members that hold it or wait for it, in the order in which they asked, where this node keeps that order.
    pub order: Option<Vec<u32>>,
    /// How it is held on this node, if it is.
    pub held: Option<Mode>,
    /// How many callers of this node hold it.
    pub holders: usize,
    /// How many callers of this node wait for it.
    pub waiters: usize,
    /// The fence of its last holder on this node.
    pub fence: u64,
}

impl Member {
    /// A member of the view, or a voter, as the node and its peer's connection show it.
    pub(crate) fn of(member: MemberStatus, peer: Option<&Peer>) -> Self {
        let name = Some(member.name).filter(|name| !name.is_empty());
        let address = Some(member.address).filter(|address| !address.is_empty());
        Self {
            id: member.id.0,
            address: address.or_else(|| peer.map(|peer| peer.address.clone())).unwrap_or_default(),
            name: name.or_else(|| peer.and_then(|peer| peer.name.clone())),
            incarnation: member.incarnation.map(|incarnation| incarnation.get()),
            in_view: member.in_view,
            voter: member.voter,
            steward: member.steward,
            session: member.session_until.and_then(left),
            connected: member.connected,
            is_this: false,
            trouble: peer.and_then(Peer::trouble).filter(|_| !member.connected),
            keys: Vec::new(),
        }
    }

    /// A node of which only the address is known.
    pub(crate) fn of_seed(seed: &Peer) -> Self {
        Self {
            id: 0,
            address: seed.address.clone(),
            name: seed.name.clone(),
            incarnation: None,
            in_view: false,
            voter: false,
            steward: false,
            session: None,
            connected: false,
            is_this: false,
            trouble: seed.trouble(),
            keys: Vec::new(),
        }
    }
}

/// The time left until then; `None` if that is forever.
pub(crate) fn left(until: Ticks) -> Option<Duration> {
    (until != Ticks::MAX).then(|| Duration::from_nanos(until.saturating_sub(now())))
}

impl LockInfo {
    pub(crate) fn of(lock: &LockStatus<'_>) -> Self {
        Self {
            name: lock.name.to_owned(),
            protocol: lock.protocol.to_owned(),
            state: lock.state,
            missing: lock.missing.iter().map(|member| member.0).collect(),
            home: lock.home.map(|home| home.0),
            order: lock.order.as_ref().map(|order| order.iter().map(|member| member.0).collect()),
            held: lock.held,
            holders: lock.holders,
            waiters: lock.waiters,
            fence: lock.fence.get(),
        }
    }
}
