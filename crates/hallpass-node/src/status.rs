use std::collections::BTreeMap;

use hallpass_core::{Fence, Mode, NodeId, Ticks};

use crate::Incarnation;
use crate::links::Link;

/// A lock as [`Node::locks`](crate::Node::locks) shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockStatus<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its protocol.
    pub protocol: &'static str,
    /// Where it is, as far as this node can tell.
    pub state: LockState,
    /// The members whose permission the caller who is next here still lacks: they hold the lock, asked for it before, or
    /// are not connected. Empty if nobody here waits for them, and for protocols that pass a token, which cannot tell.
    /// Of a lock with a home only those who may be inside, once the home was asked.
    pub missing: Vec<NodeId>,
    /// The member that keeps the order of its callers, for protocols in which one does.
    pub home: Option<NodeId>,
    /// The members that hold it or wait for it, in the order in which they asked, where this node keeps that order.
    pub order: Option<Vec<NodeId>>,
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
pub enum LockState {
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Its id.
    pub id: NodeId,
    /// Its name and address, as the group knows them.
    pub name: String,
    /// See `name`.
    pub address: String,
    /// It takes part in the view. One that does not may still vote, or be about to join.
    pub in_view: bool,
    /// It votes on who the members are.
    pub voter: bool,
    /// It is the steward: it decides when members have failed, and brings about the next view.
    pub steward: bool,
    /// When its session ends unless it is renewed, as far as this node knows: it does of itself, and of all as the steward.
    pub session_until: Option<Ticks>,
    /// Its incarnation, once a connection with it was made.
    pub incarnation: Option<Incarnation>,
    /// A connection stands; always true for this node itself.
    pub connected: bool,
    /// Bytes that wait for it.
    pub backlog: usize,
}

/// How far a node is, as [`Node::status`](crate::Node::status) shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The state of its view.
    pub view: ViewState,
    /// The view's number, if it has ever been in one.
    pub epoch: Option<u64>,
    /// The group's id, if it is in one.
    pub group_id: Option<u64>,
    /// The steward, if one is known.
    pub steward: Option<NodeId>,
    /// Who votes, as far as it knows.
    pub voters: Vec<NodeId>,
    /// Until when its session lasts; `None` if it has none, or needs none.
    pub session_until: Option<Ticks>,
    /// How long sessions last in its group.
    pub ttl: Ticks,
    /// By how much any two members' clocks may differ in their rates, in millionths.
    pub drift_ppm: u32,
    /// What it waits for, in words for people, if it does not grant locks.
    pub waits_for: Option<String>,
}

/// What has happened on a node so far, in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Protocol messages that it has sent, by the names of the protocol and of the message.
    pub messages: BTreeMap<(&'static str, &'static str), u64>,
    /// Views that it has taken part in.
    pub views: u64,
    /// Sessions of its own that ran out.
    pub lapses: u64,
    /// How often it became the steward.
    pub elections: u64,
    /// Control messages that it dropped because their senders may not send them. A few are normal when the steward changes.
    pub denied: u64,
}

/// The state of a node's view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViewState {
    /// Locks are granted.
    Open,
    /// The next view is about to begin; nothing is granted until then, and what is held stays held.
    Changing,
    /// Its session has run out: it holds nothing, and joins again.
    Lapsed,
    /// It is about to join, or to found, a group.
    Joining,
}

/// A node that this one is to be connected with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contact {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where it is reached.
    pub address: String,
    /// It wants to join, and is no member yet: it is trusted with nothing.
    pub joins: bool,
}

impl MemberStatus {
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id,
            name: String::new(),
            address: String::new(),
            in_view: true,
            voter: false,
            steward: false,
            session_until: None,
            incarnation: None,
            connected: false,
            backlog: 0,
        }
    }

    pub(crate) fn of(link: &Link) -> Self {
        Self {
            incarnation: link.process.map(|process| process.incarnation),
            connected: link.connected,
            backlog: link.backlog(),
            ..Self::new(link.peer)
        }
    }
}
