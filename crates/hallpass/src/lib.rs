//! Locks across processes with no lock server: the members of a group exchange messages and agree who goes first.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use hallpass::Node;
//!
//! // A group of one; give `peers` for more.
//! let node = Node::builder().name("a").listen("127.0.0.1:0").start().await?;
//! let guard = node.lock("invoices/42").acquire().await?;
//! println!("nobody else is inside; tell the storage fence {}", guard.fence());
//! guard.release().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! All members are given the same list of members, and a lock is granted once all of them have been met. Permissions stay
//! where they were used last: a node that uses a lock alone asks nobody, readers ask once until a writer comes. For programs
//! without async there is [`blocking`].

#![warn(missing_debug_implementations)]

pub mod blocking;
mod builder;
mod connection;
mod data;
mod driver;
mod error;
mod guard;
mod lock;
mod node;
mod options;
mod os;
mod status;
mod tasks;
mod tls;
mod waiter;

pub use builder::Builder;
pub use data::DataDirectory;
pub use error::{AcquireError, Lost, StartError};
pub use guard::{Guard, Term};
#[doc(inline)]
pub use hallpass_core::Mode;
#[doc(inline)]
pub use hallpass_node::Refusal;
pub use lock::Lock;
pub use node::Node;
pub use options::AcquireOptions;
pub use status::{LockInfo, Member, Status};
pub use tls::Keys;
