//! A group of real agents on a network that fails, clients that contend for locks meanwhile, and a checker of what they saw.
//!
//! [`run`] needs root: it makes network namespaces, one a host. [`Sandbox`] gives it namespaces of its own first, so that nothing of the
//! machine is touched and everything is gone with it. `records` says what is written down, `checker` what must follow from it, and
//! `faults` what goes wrong.

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

/// Why a run could not be made, or not be ended. Displayed as one line.
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
