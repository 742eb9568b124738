//! The line protocol between an agent and its clients: one JSON document per line, in both directions.
//!
//! The agent greets with [`Response::Welcome`]. Then the client sends one [`Request`] at a time and gets one [`Response`] to each.
//! A client that holds a lock is also told, without asking, until when: [`Response::Session`], [`Response::AtRisk`] and
//! [`Response::Lost`] may come before the response to a request. Those deadlines are in nanoseconds of CLOCK_BOOTTIME,
//! which counts while the machine is suspended. Its rate may be changed, so count from when a line was read by a clock whose rate is not: a
//! [`Client`](crate::Client) returns deadlines of [`now`](crate::now). A client stops its work at the deadline without being told: its agent may be stopped too.

use serde::{Deserialize, Serialize};

/// The version of this protocol. A client that gets another one disconnects, and says so to its user.
pub const VERSION: u32 = 1;

/// A request of a client. One at a time: only [`Cancel`](Request::Cancel) may follow an [`Acquire`](Request::Acquire) that has
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
        /// Give up after this number of milliseconds.
        #[serde(default)]
        timeout_ms: Option<u64>,
        /// Explain the wait: [`Response::Waiting`] may come before the response.
        #[serde(default, skip_serializing_if = "is_false")]
        explain: bool,
        /// Once the lock is granted, the connection can do nothing but release it: other processes are to inherit it, to keep the lock.
        #[serde(default, skip_serializing_if = "is_false")]
        hold_only: bool,
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
    /// Lists the locks of the agent's node, by name.
    Locks {
        /// Only locks with this prefix.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        prefix: String,
        /// Only those that are held or waited for here.
        #[serde(default, skip_serializing_if = "is_false")]
        held: bool,
        /// Only those after this name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// The largest number of locks to list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    },
    /// Lists the members of the agent's group.
    Members,
    /// Asks for the agent's status.
    Status,
    /// Ends the agent, for good: its vote goes to another member, and it does not come back as the member that it was.
    /// [`Response::Leaving`] comes at once, [`Response::Done`] or an error when it has left. Then the connection is closed.
    Leave {
        /// The milliseconds that the group has to let it go.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Gives up the group that the agent's node is alone in, and joins another one. Answered by [`Response::Done`].
    Join {
        /// The address of any member, as `host:port` or `name@host:port`.
        address: String,
        /// Give up waiting after this number of milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Removes a member: it loses its locks and its vote. Answered by [`Response::Done`].
    Evict {
        /// Its name, or its number.
        node: String,
        /// No node of its name is admitted again.
        #[serde(default)]
        ban: bool,
        /// Give up waiting after this number of milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Admits nodes of a name again that was banned. Answered by [`Response::Done`].
    Admit {
        /// The name.
        name: String,
        /// Give up waiting after this number of milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Bans a key: no member accepts it any more, and connections that were made with it end. Answered by [`Response::Done`].
    BanKey {
        /// The key, as `sha256:` and 64 hexadecimal digits.
        key: String,
        /// Give up waiting after this number of milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Accepts a key again that was banned. Answered by [`Response::Done`].
    AdmitKey {
        /// The key, as `sha256:` and 64 hexadecimal digits.
        key: String,
        /// Give up waiting after this number of milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Takes a lock from its holders, on any member. Answered by [`Response::Done`] when none of them holds it any more.
    Break {
        /// The lock's name.
        lock: String,
        /// Give up waiting after this number of milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Changes the protocol of all locks with a prefix, on all members. Answered by [`Response::Done`].
    SetClass {
        /// The prefix of the locks' names.
        prefix: String,
        /// The protocol's name.
        protocol: String,
        /// Options of the protocol, as `key=value`.
        #[serde(default)]
        options: Vec<String>,
        /// Give up waiting after this number of milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
}

fn is_false(value: &bool) -> bool {
    !value
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

/// A response of the agent.
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
        /// The agent was started by a client for its user alone.
        #[serde(default)]
        private: bool,
    },
    /// Not an answer: the client waits, for this. Comes again when it changes.
    Waiting(WaitingLine),
    /// The client holds the lock.
    Granted {
        /// The lock's name.
        lock: String,
        /// The grant's fence.
        fence: u64,
        /// Until when it is certainly held, unless [`Session`](Response::Session) says otherwise; none if nothing can take it
        /// away.
        #[serde(default)]
        valid_until_ns: Option<u64>,
        /// How long a session lasts, in milliseconds: renewals move the deadline at most this far ahead.
        #[serde(default)]
        ttl_ms: u64,
    },
    /// Not an answer: the client's locks are held until then, or for as long as it likes. Comes when that changes, and before the
    /// last deadline as long as the agent is in touch with its group.
    Session {
        /// The deadline; none if nothing can take the locks away.
        valid_until_ns: Option<u64>,
    },
    /// Not an answer: a lock is still held, but will be lost at the deadline unless another [`Session`](Response::Session) comes.
    AtRisk {
        /// The lock's name.
        lock: String,
        /// The fence that it was granted with.
        fence: u64,
        /// The deadline.
        valid_until_ns: u64,
        /// An operator has broken the lock: no session saves it.
        #[serde(default)]
        broken: bool,
    },
    /// Not an answer: a lock is not held any more.
    Lost {
        /// The lock's name.
        lock: String,
        /// The fence that it was granted with.
        fence: u64,
    },
    /// The lock is not free, and the client only tried.
    Busy {
        /// Another reason why the lock may not be free: a member that is missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The lock was not free in time, or what was asked of the group has not taken effect in time.
    Late {
        /// Another reason why that may be: a member that is missing.
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
    /// Not an answer: the agent ends. What the client holds is still held; it is to be released within the session.
    Ending {
        /// Why the agent ends.
        why: String,
    },
    /// The answer to [`Request::Locks`].
    Locks {
        /// By name.
        locks: Vec<LockLine>,
        /// How many more there are.
        #[serde(default)]
        more: usize,
    },
    /// The answer to [`Request::Members`].
    Members {
        /// By id.
        members: Vec<MemberLine>,
    },
    /// The answer to [`Request::Status`].
    Status(Box<StatusLine>),
    /// The agent ends.
    Leaving,
    /// The change of the group has taken effect.
    Done,
    /// The request was not understood or cannot be served; one line.
    Error {
        /// The cause, and the remedy.
        text: String,
    },
}

impl Response {
    /// Converts the deadline to another clock. One that never comes stays as it is.
    pub(crate) fn with_deadlines(mut self, convert: impl Fn(u64) -> u64) -> Self {
        let deadline = match &mut self {
            Self::Granted { valid_until_ns, .. } | Self::Session { valid_until_ns } => valid_until_ns.as_mut(),
            Self::AtRisk { valid_until_ns, .. } => Some(valid_until_ns),
            _ => None,
        };
        if let Some(at) = deadline.filter(|at| **at != u64::MAX) {
            *at = convert(*at);
        }
        self
    }
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
    /// `here`: clients here hold it; `elsewhere`: clients here wait for it; `cached`: nobody here holds or wants it, but it can be
    /// granted without asking other members; `unknown`.
    #[serde(default, rename = "where")]
    pub place: String,
    /// Who holds it: clients of this agent, or members that were asked for it and have not agreed yet, because they hold it or
    /// asked before.
    #[serde(default)]
    pub held_by: Vec<ClientLine>,
    /// Which clients of this agent wait for it.
    #[serde(default)]
    pub waiting: Vec<ClientLine>,
}

/// Who holds a lock, or waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientLine {
    /// The name of the member.
    pub node: String,
    /// How it holds or wants the lock, if that is known.
    pub mode: Option<String>,
    /// Its process, if it is a client of this agent.
    pub pid: Option<u32>,
    /// That process's user.
    pub user: Option<String>,
    /// The command that it runs.
    pub command: Option<String>,
    /// For how long it has held the lock or waited, in milliseconds.
    pub for_ms: Option<u64>,
    /// The address it comes from, or the name of its token, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

impl ClientLine {
    /// One line for people, such as `pid 4711 of alice on a (make deploy), for 12s`.
    pub fn describe(&self) -> String {
        let user = self.user.as_ref().map_or_else(String::new, |user| format!(" of {user}"));
        let who = self.pid.map_or_else(String::new, |pid| format!("pid {pid}{user} on "));
        let command = self.command.as_ref().map_or_else(String::new, |command| format!(" ({command})"));
        let since = self.for_ms.map_or_else(String::new, |ms| format!(", for {}", age(ms)));
        let who = match &self.client {
            Some(client) if self.pid.is_none() => format!("{client} on "),
            _ => who,
        };
        let node = if who.is_empty() { "member " } else { "" };
        format!("{who}{node}'{}'{command}{since}", self.node)
    }
}

/// A time as people say it: `350ms`, `12s`, `5m`, `3h`, `2d`.
pub fn age(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..120_000 => format!("{}s", ms / 1_000),
        120_000..7_200_000 => format!("{}m", ms / 60_000),
        7_200_000..172_800_000 => format!("{}h", ms / 3_600_000),
        172_800_000.. => format!("{}d", ms / 86_400_000),
    }
}

/// The reasons why a client waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingLine {
    /// Who holds the lock, as in [`LockLine::held_by`].
    pub held_by: Vec<ClientLine>,
    /// Members that are not connected and would have to agree, each with the reason.
    pub missing: Vec<String>,
    /// How many clients here wait before this one.
    pub before: usize,
}

/// A member as the agent's node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLine {
    /// Its number in the group.
    pub id: u32,
    /// Its name, if it is known.
    pub name: Option<String>,
    /// Where it listens; with port 0 nowhere.
    pub address: String,
    /// Its incarnation, which rises with every start; 0 if it has not connected yet.
    pub incarnation: u32,
    /// There is a connection to it.
    pub connected: bool,
    /// It is the agent's own node.
    pub this: bool,
    /// Why it is not connected, or takes no part, if that is known.
    #[serde(default)]
    pub trouble: Option<String>,
    /// `member`: takes part in the view; `joining`: is about to; `away`: was a member and may come back; `unknown`: was named
    /// by the configuration and has not been found yet.
    #[serde(default)]
    pub state: String,
    /// It votes on who the members are.
    #[serde(default)]
    pub voter: bool,
    /// It is the steward, which decides who has failed.
    #[serde(default)]
    pub steward: bool,
    /// How long its session lasts without being renewed, in milliseconds: known of the agent's own node, and of all by the steward.
    #[serde(default)]
    pub session_ms: Option<u64>,
    /// The keys that it shows, and the node's own, as `sha256:` and 64 hexadecimal digits each.
    #[serde(default)]
    pub keys: Vec<String>,
}

/// The status of an agent and its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusLine {
    /// The group's name.
    pub group: String,
    /// The node's name.
    pub node: String,
    /// The node is a member of a group, and locks are granted.
    pub complete: bool,
    /// The number of the view, once there has been one.
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
    /// How many fences are left before locks are granted no more.
    #[serde(default)]
    pub fences_left: u64,
    /// The agent was started by a client for its user alone.
    #[serde(default)]
    pub private: bool,
    /// `open`: locks are granted; `changing`: the next view is about to begin; `lapsed`: the session has run out, and the node
    /// comes back; `joining`: it is about to join or to found a group.
    #[serde(default)]
    pub view: String,
    /// The name of the steward, if one is known.
    #[serde(default)]
    pub steward: Option<String>,
    /// The names of the members that vote.
    #[serde(default)]
    pub voters: Vec<String>,
    /// For how many milliseconds the locks held here are certain without a word from the group; none if nothing can take them away.
    #[serde(default)]
    pub session_ms: Option<u64>,
    /// How long a session lasts, in milliseconds.
    #[serde(default)]
    pub ttl_ms: u64,
    /// Why no locks are granted, in words, if none are.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// The names that the group has banned.
    #[serde(default)]
    pub banned: Vec<String>,
    /// The keys that the group has banned, as `sha256:` and 64 hexadecimal digits each.
    #[serde(default)]
    pub banned_keys: Vec<String>,
}
