use std::net::SocketAddr;
use std::path::PathBuf;

use hallpass_node::Refusal;

/// Why a node could not be started. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address or stop whoever uses it")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// An address that is none.
    #[error("'{0}' is not an address such as 127.0.0.1:7400")]
    Address(String),
    /// Without keys a node talks to its own machine only.
    #[error(
        "{0} is reachable from other machines, and there are no keys: make some with 'hallpass init', or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// A setting that does not fit.
    #[error("{0}")]
    Setting(String),
    /// A key or certificate that cannot be used.
    #[error("cannot use {path}: {why}; make new keys with 'hallpass init'")]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another node has the data directory.
    #[error("another node uses the directory {0}; give each node a directory of its own")]
    InUse(PathBuf),
    /// The data directory cannot be used.
    #[error("cannot use the directory {path}: {why}")]
    Data {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Why a lock was not acquired. The caller holds nothing and waits for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// It was not the caller's turn in time.
    #[error("the lock was not free in time")]
    Timeout,
    /// The node was stopped.
    #[error("the node has been stopped")]
    Stopped,
    /// The node takes no such request now.
    #[error("{0}")]
    Refused(#[from] Refusal),
}

/// The lock was lost before it was released: the node has been stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lock was lost before it was released")]
pub struct Lost;
