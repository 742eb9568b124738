//! How an agent ends, in order ([`Ended`]) or not ([`ServeError`]), and why the group has not done what it was asked for.

use std::path::PathBuf;

use hallpass::{GroupError, StartError};

/// How an agent has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// It was [stopped](crate::Agent::stopper). It may be started again.
    Stopped,
    /// A client asked it to [leave](crate::line_protocol::Request::Leave).
    Left,
    /// It had no clients for as long as [`idle_limit`](crate::AgentOptions::idle_limit) says.
    Idle,
}

/// Why an agent could not be started, or ended without being asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another agent has the socket. Nothing has changed.
    #[error("another agent already listens at {0}; stop it or give this one another --socket")]
    Taken(PathBuf),
    /// The node could not be started.
    #[error("{0}")]
    Start(#[from] StartError),
    /// The socket cannot be created.
    #[error("cannot listen at {path}: {source}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The data directory cannot be written.
    #[error("cannot write to {path}: {source}")]
    Data {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another agent of this user has this path, though it may have lost the files there.
    #[error("another agent uses {0}; end that one first, or let this one use another")]
    Claimed(PathBuf),
    /// The files of the data directory are gone, so that another agent could be started with it. This one has ended.
    #[error(
        "the agent's data directory {0} was removed or replaced, so it has ended; leave it alone while an agent runs"
    )]
    DataGone(PathBuf),
    /// The agent here was in a group with others, and would found another one of the same name.
    #[error(
        "the agent here was in group '{group}' with others, and its data directory {data} is new: alone it would found a second group \
         of that name. Start it with --join and the address of a member; if the group is no more, remove {mark}"
    )]
    WasShared {
        /// The group.
        group: String,
        /// The directory.
        data: PathBuf,
        /// The file that says so.
        mark: PathBuf,
    },
    /// The API cannot be served as it is set up.
    #[error("{0}")]
    Api(String),
    /// The group of users does not exist.
    #[error("there is no group of users '{0}' on this machine; socket_group wants a group's name or number")]
    Group(String),
    /// The node has failed. Its clients have been disconnected.
    #[error("the agent's node has failed; the log says why")]
    Failed,
}

/// Why the group has not done what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupFault {
    #[error("{0}")]
    Group(#[from] GroupError),
    #[error("{0}")]
    Refused(String),
}
