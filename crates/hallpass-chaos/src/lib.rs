//! Runs real agents on a failing network, lets clients contend for their locks, and checks what the clients saw.
//!
//! [`run`] needs root, because it makes a network namespace for each host. [`Sandbox`] first gives it namespaces of its own. So a run
//! changes nothing of the machine, and leaves nothing behind. `records` defines what is recorded, `checker` checks the records, and
//! `faults` draws the faults.

mod agents;
mod checker;
mod clients;
mod clock;
mod faults;
mod harness;
mod holder;
mod network;
mod random;
mod records;
mod relay;
mod report;
mod resource;
mod sandbox;
mod side;

use std::path::Path;

pub use clients::take_part;
pub use harness::{Options, Progress, run};
pub use report::{Report, check_again};
pub use sandbox::{Sandbox, missing};

/// Why a run could not start or finish. It is displayed as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChaosError {
    /// Something that the test needs is missing.
    #[error("{0}")]
    Unavailable(String),
    /// A setting is wrong.
    #[error("{0}")]
    Usage(String),
    /// The test itself failed: nothing is known about the locks.
    #[error("{0}")]
    Failed(String),
}

impl ChaosError {
    fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::Failed(format!("cannot use {}: {error}", path.display()))
    }
}
