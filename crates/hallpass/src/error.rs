use std::net::SocketAddr;
use std::path::PathBuf;

use hallpass_node::{Refusal, RequestError};

/// Why a node could not be started.
///
/// No node runs, no port is taken and no directory is locked: correct the cause and start again. Only the count of starts
/// in the data directory may have gone up, which does no harm.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The system does not let it listen on this address. Choose another one, or stop the process that uses it.
    #[error("cannot listen on {address}: {source}; choose another address or stop the process that uses it")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// This is not an address of the form `host:port`, or the host is unknown. Correct it.
    #[error("'{0}' is not an address such as 127.0.0.1:7400")]
    Address(String),
    /// The address can be reached from other machines, and there are no keys. Give it [`Keys`](crate::Keys), or listen on
    /// a loopback address.
    #[error(
        "{0} is reachable from other machines, and there are no keys: make some with 'hallpass init', or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// A setting is not possible, or contradicts another one. The text says which and why.
    #[error("{0}")]
    Setting(String),
    /// A key or certificate cannot be used. Make new ones with `hallpass init`.
    #[error("cannot use {path}: {why}; make new keys with 'hallpass init'")]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another node uses the data directory. Stop it, or give each node a directory of its own.
    #[error("another node uses the directory {0}; give each node a directory of its own")]
    InUse(PathBuf),
    /// The data directory cannot be used. The text says why and, where there is one, the way out.
    #[error("cannot use the directory {path}: {why}")]
    Data {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system gives no thread to a [blocking](crate::blocking) node. Try again when fewer run.
    #[error("cannot start a thread for the node: {0}")]
    Thread(#[source] std::io::Error),
    /// [`Builder::start_blocking`](crate::Builder::start_blocking) was called inside an async runtime. Use
    /// [`Builder::start`](crate::Builder::start) there.
    #[error(transparent)]
    InsideRuntime(#[from] InsideRuntime),
}

/// Why a lock was not acquired.
///
/// The caller holds nothing and waits for nothing, and the lock is as it was: other callers can acquire it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock is not free, or a member did not answer in time, and the caller did not want to wait
    /// ([`AcquireOptions::try_now`](crate::AcquireOptions::try_now)). Try later, or wait for it.
    #[error("the lock is not free")]
    Busy,
    /// The lock could not be acquired within the caller's timeout. Try again; if it was free,
    /// [`Node::status`](crate::Node::status) tells which member is missing.
    #[error("the lock was not free in time")]
    Timeout,
    /// The node has been stopped, or has failed. Start a new one.
    #[error("the node has been stopped")]
    Stopped,
    /// The node does not take this request. [`Refusal`] says why, and whether it is worth trying again.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// A [blocking](crate::blocking) call was made inside an async runtime. Nothing was asked for; use the async
    /// [`Lock`](crate::Lock) there.
    #[error(transparent)]
    InsideRuntime(#[from] InsideRuntime),
}

/// Why something that was asked of the whole group was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The group has not confirmed it in time, most likely because too few members that vote can be reached. It may have taken effect, or
    /// may do so later.
    #[error("the group has not confirmed it in time: too few of the members that vote can be reached")]
    Timeout,
    /// The node has been stopped, or has failed.
    #[error("the node has been stopped")]
    Stopped,
    /// The group does not do this. Nothing has changed.
    #[error("{0}")]
    Refused(RequestError),
    /// A [blocking](crate::blocking) call was made inside an async runtime. Nothing was asked for; use the async
    /// [`Node`](crate::Node) there.
    #[error(transparent)]
    InsideRuntime(#[from] InsideRuntime),
}

/// The lock was lost before it was released: others may have held it meanwhile.
///
/// It is not held any more. What was done under it may have to be checked, unless the storage checks
/// [fences](crate#fences).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lock was lost before it was released")]
#[non_exhaustive]
pub struct Lost;

/// A [blocking](crate::blocking) call was made inside an async runtime, whose thread it would have blocked.
///
/// Nothing has changed. Use the async API there. Threads of tokio's `spawn_blocking` belong to the runtime, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a blocking call inside an async runtime: use the async API of hallpass there")]
pub struct InsideRuntime;
