//! Who the members are, and when there is a view.

mod fixed;

pub use fixed::HelloError;
pub(crate) use fixed::{Advance, FixedList};
