//! The line protocol between an agent and its clients: one JSON document per line, in both directions.
//!
//! The agent greets with [`Response::Welcome`]. Then the client sends one [`Request`] at a time and gets one [`Response`] to each.

use serde::{Deserialize, Serialize};

/// The version of this protocol. A client that gets another one disconnects, and says so to its user.
pub const VERSION: u32 = 1;

/// What a client sends. One request at a time: only [`Cancel`](Request::Cancel) may follow an [`Acquire`](Request::Acquire) that has
/// not been answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Acquires a lock. It is held until it is released or the connection is closed.
    Acquire {
        /// The lock's name.
        lock: String,
        /// Shared mode: others in shared mode may hold the lock at the same time.
        #[serde(default)]
        shared: bool,
        /// Only if the lock is free now.
        #[serde(default, rename = "try")]
        tries: bool,
        /// Give up after so many milliseconds.
        #[serde(default)]
        timeout_ms: Option<u64>,
    },
    /// Gives up an [`Acquire`](Request::Acquire) that has not been answered.
    Cancel,
    /// Releases a lock.
    Release {
        /// The lock's name.
        lock: String,
        /// The fence it was granted with, so that a late request never releases a newer grant.
        fence: u64,
    },
    /// Lists the locks of the agent's node.
    Locks,
    /// Lists the members of the agent's group.
    Members,
    /// Asks for the agent's status.
    Status,
    /// Ends the agent.
    Leave,
}

impl Request {
    /// The longest request in bytes, without the line break: room for the longest name of a lock, all of it escaped.
    pub const BYTES_MAX: usize = 4096;

    /// Parses one line. The line break at its end is optional.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        serde_json::from_slice(line).map_err(RequestError::new)
    }
}

/// A request that cannot be parsed. Nothing has changed, and the connection can be used further.
#[derive(Debug, thiserror::Error)]
#[error("the request is not understood: {0}")]
pub struct RequestError(String);

impl RequestError {
    /// The parser quotes what it was sent, line breaks and all: an error is one line.
    fn new(error: serde_json::Error) -> Self {
        Self(error.to_string().replace(char::is_control, " "))
    }
}

/// What the agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Response {
    /// The first line of every connection.
    Welcome {
        /// The agent's [`VERSION`].
        version: u32,
        /// The node's name.
        node: String,
        /// The group's name.
        group: String,
        /// How long a session lasts, in milliseconds.
        ttl_ms: u64,
    },
    /// The client holds the lock.
    Granted {
        /// The lock's name.
        lock: String,
        /// The grant's fence.
        fence: u64,
    },
    /// The lock is not free, and the client only tried.
    Busy {
        /// Another reason why the lock may not be free: a member that is missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The lock was not free in time.
    Late {
        /// Another reason why the lock may not be free: a member that is missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The client has given up.
    Cancelled,
    /// The client does not hold the lock any more.
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
        /// By id.
        members: Vec<MemberLine>,
    },
    /// The answer to [`Request::Status`].
    Status(StatusLine),
    /// The agent ends.
    Leaving,
    /// The request was not understood or cannot be served; one line.
    Error {
        /// What is wrong, and what to do about it.
        text: String,
    },
}

/// A lock as the agent's node sees it.
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
    /// How many clients wait for it here.
    pub waiters: usize,
    /// The fence of the last grant here, in decimal.
    pub fence: String,
}

/// A member as the agent's node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLine {
    /// Its number in the group.
    pub id: u32,
    /// Its name, if it is known.
    pub name: Option<String>,
    /// Where it listens.
    pub address: String,
    /// Its incarnation, which rises with every start; 0 if it has not connected yet.
    pub incarnation: u32,
    /// There is a connection to it.
    pub connected: bool,
    /// It is the agent's own node.
    pub this: bool,
    /// Why there is no connection, if that is known.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// The status of an agent and its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusLine {
    /// The group's name.
    pub group: String,
    /// The node's name.
    pub node: String,
    /// Every member has connected at least once, so locks are granted.
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
    /// How many locks the node keeps in memory.
    pub locks: usize,
    /// Protocol messages sent so far.
    pub messages: u64,
    /// Locks granted here so far.
    pub grants: u64,
}
