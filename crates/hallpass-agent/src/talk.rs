//! What an agent and its clients say to each other: a line of JSON each.

use serde::{Deserialize, Serialize};

/// The version of this language. An agent and a client of different versions tell each other and part.
pub const VERSION: u32 = 1;

/// What a client asks. One question at a time; a client that closes its connection, or dies, holds nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Wants a lock.
    Acquire {
        /// Its name.
        lock: String,
        /// Together with others who share.
        #[serde(default)]
        shared: bool,
        /// Only if it is free.
        #[serde(default, rename = "try")]
        tries: bool,
        /// Not later than in so many milliseconds.
        #[serde(default)]
        timeout_ms: Option<u64>,
    },
    /// Gives up an [`Acquire`](Request::Acquire) that has not been answered.
    Cancel,
    /// Leaves a lock.
    Release {
        /// Its name.
        lock: String,
        /// The fence it was entered with: a late word never frees a newer entry.
        fence: u64,
    },
    /// The locks of the agent's node.
    Locks,
    /// The members of its group.
    Members,
    /// How it does.
    Status,
    /// Ends the agent.
    Leave,
}

/// What the agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Response {
    /// The first line of every connection.
    Welcome {
        /// The agent's version of this language.
        version: u32,
        /// The node's name.
        node: String,
        /// The group's name.
        group: String,
        /// How long a session lasts.
        ttl_ms: u64,
    },
    /// The client is inside.
    Granted {
        /// The lock.
        lock: String,
        /// The entry's fence.
        fence: u64,
    },
    /// The lock is not free, and the client only tried.
    Busy {
        /// What else stands in the way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The lock was not free in time.
    Late {
        /// What else stands in the way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The client has given up.
    Cancelled,
    /// The client has left the lock; or it did not hold it.
    Released {
        /// It did until now.
        held: bool,
    },
    /// The answer to [`Request::Locks`].
    Locks {
        /// By name.
        locks: Vec<LockLine>,
    },
    /// The answer to [`Request::Members`].
    Members {
        /// By number.
        members: Vec<MemberLine>,
    },
    /// The answer to [`Request::Status`].
    Status(StatusLine),
    /// The agent ends.
    Leaving,
    /// The question was not understood or cannot be answered; one line.
    Error {
        /// What is wrong, and the way out.
        text: String,
    },
}

/// A lock as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockLine {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// How it is held on this node: `exclusive` or `shared`, if it is.
    pub held: Option<String>,
    /// How many clients hold it here.
    pub holders: usize,
    /// How many wait here.
    pub waiters: usize,
    /// The fence of the last entry here, in decimal.
    pub fence: String,
}

/// A member as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLine {
    /// Its number in the group.
    pub id: u32,
    /// Its name, if it is known.
    pub name: Option<String>,
    /// Where it listens.
    pub address: String,
    /// How often it has been started; 0 if it has not been met.
    pub incarnation: u32,
    /// A connection stands.
    pub connected: bool,
    /// It is the agent's own node.
    pub this: bool,
    /// Why there is no connection, if that is known.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// How an agent does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusLine {
    /// The group's name.
    pub group: String,
    /// The node's name.
    pub node: String,
    /// Every member has been met: locks are granted.
    pub complete: bool,
    /// The number of the view, once complete.
    pub epoch: Option<u64>,
    /// Messages between members are encrypted.
    pub encrypted: bool,
    /// How many members the group has.
    pub members: usize,
    /// How many of the others are connected.
    pub connected: usize,
    /// How many clients are connected to the agent.
    pub clients: usize,
    /// How many locks take memory here.
    pub locks: usize,
    /// Protocol messages sent so far.
    pub messages: u64,
    /// Locks granted here so far.
    pub grants: u64,
}
