//! One process of a group, pure.

mod answer;
mod config;
mod link;
#[cfg(test)]
mod link_tests;
mod machine;
mod node;
mod status;
mod table;
#[cfg(test)]
mod tests;
pub mod wire;

pub use answer::{Answer, HelloError, Output, Patience, Refusal, Ticket};
pub use config::{Class, NodeConfig};
pub use link::LinkError;
pub use node::Node;
pub use status::{LockStatus, MemberStatus};
