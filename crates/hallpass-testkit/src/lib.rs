//! What the tests of this workspace share. It works by processes, files and sockets, and knows no type of the other crates.

mod ports;
mod process;
pub mod repository;
mod scratch;
mod wait;

pub use ports::{free_addresses, free_port, free_ports};
pub use process::{StopOnDrop, without_settings};
pub use scratch::Scratch;
pub use wait::{LIMIT, wait_until};
