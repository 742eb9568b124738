//! The properties that must hold in every run, one oracle per file. Each has tests that feed it violations.

mod answers;
mod arrivals;
mod attempts;
mod bound;
mod epochs;
mod exclusion;
mod fairness;
mod fence;
mod holders;
mod leftovers;
mod messages;
mod overtaking;
mod progress;

use std::fmt;

pub use answers::Answers;
pub use arrivals::Arrivals;
pub use attempts::Attempts;
pub(crate) use bound::check_bound;
pub use epochs::Epochs;
pub use exclusion::Exclusion;
pub use fairness::{Entered, Fairness};
pub use fence::FenceOrder;
pub use holders::{Holder, Holders};
pub use leftovers::Leftovers;
pub use messages::{MessageCount, PerEntry};
pub use overtaking::Overtaking;
pub use progress::Progress;

/// A property was violated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// The property, such as `exclusion`.
    pub property: &'static str,
    /// What happened, in one line.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.text)
    }
}
