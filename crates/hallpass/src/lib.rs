//! Locks across processes and machines, without a lock server.
//!
//! Each process of your program runs a [`Node`]. The nodes form a group, exchange messages, and agree who holds which lock:
//! there is no server and no shared store to operate. Locks are exclusive or shared, have names, and cost nothing while
//! they are not used. Every acquisition comes with a [fence](#fences), a number that grows from holder to holder.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use hallpass::Node;
//!
//! // A group of one. A real group lists the addresses of its members: see below.
//! let node = Node::builder().name("a").listen("127.0.0.1:0").start().await?;
//!
//! let lock = node.lock("invoices/42");
//! let guard = lock.acquire().await?;
//! println!("nobody else holds the lock; its fence is {}", guard.fence());
//! assert!(lock.try_acquire().await?.is_none(), "it is held");
//! guard.release().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! Acquiring a free lock takes one round trip to the other members. After that its permissions stay with the node until
//! another one asks for them: a node that keeps using the same lock sends nothing, and nodes that only read
//! ([`Lock::acquire_shared`]) send nothing until one of them writes. [`AcquireOptions`] combines exclusive and shared with
//! timeouts and with not waiting at all, [`Node::acquire_all`] acquires several locks without deadlocks, and
//! [`Node::elect`] elects a leader.
//!
//! # A group of several nodes
//!
//! Those that found a group get the same list of addresses, and one of them to listen on. They found it when all of them have found
//! each other; a caller who asks earlier waits. From then on members come and go: others [join](Builder::join) through any
//! member, one that [stops](Node::stop) is out at once, and one that fails or is cut off has lost its locks after its
//! [session](Builder::ttl), whereupon the others go on, as long as more than half of those that vote are there.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let node = hallpass::Node::builder()
//!     .group("billing")
//!     .name("b")
//!     .listen("127.0.0.1:7402")
//!     .peers(["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"])
//!     .data("/var/lib/billing/hallpass")
//!     .start()
//!     .await?;
//! node.ready().await;
//! # Ok(())
//! # }
//! ```
//!
//! Give each node a [data directory](Builder::data): then a node that is restarted is the same member, and fences keep growing
//! over a restart of the whole group. [`Node::status`] shows the members, and why one is missing. A member can also run as a process of its own,
//! `hallpass agent`, and serve other programs of its machine.
//!
//! # Fences
//!
//! A process that is suspended, or was thought dead, may continue to work after its lock has passed to somebody else. No
//! lock can prevent that; the storage behind it can. [`Guard::fence`] is a positive number that fits a signed 64-bit column.
//! Exclusive holders of a lock get strictly increasing ones. A shared holder's is larger than those of all earlier
//! exclusive holders, and not larger than the next one's; two shared holders may have different ones. So let the storage
//! remember the fence of the last write, and
//!
//! - accept a write if its fence is not smaller than that, and remember it;
//! - accept a read if its fence is larger than that, and do not remember it: other readers may rightfully have smaller ones.
//!
//! With SQL that is a column and a condition: `UPDATE invoices SET body = $1, fence = $2 WHERE id = $3 AND fence <= $2`, and
//! no row updated means that the lock was lost. The example `fenced_write` does it with a file.
//!
//! # Losing a lock
//!
//! [`Guard::lost`] resolves when a lock is no longer held although it was not released, and [`Guard::release`] returns
//! [`Lost`]: the node was cut off from its group for a whole session, an operator broke the lock, or the node stopped. That is
//! known here before anybody else gets the lock, as long as this process runs at all; for the rest there are fences.
//! [`Guard::at_risk`] warns before. Work that can be cancelled belongs into a `select`:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let node = hallpass::Node::builder().start().await?;
//! # let work = std::future::ready(());
//! let guard = node.lock("nightly").acquire().await?;
//! tokio::select! {
//!     () = work => guard.release().await?,
//!     () = guard.lost() => eprintln!("the lock is lost, the work was cancelled"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Threads
//!
//! A node has a thread of its own for its session and its group, and one that writes to its directory. Locks are granted where
//! callers run; a runtime that is blocked for a while loses no session and keeps no other member waiting.
//!
//! # Keys
//!
//! Without keys a node listens on loopback addresses and connects to loopback addresses only, and trusts its machine. To
//! span machines, give every member [`Keys`]: members then authenticate each other by mutual TLS 1.3, each with a certificate
//! that names it and is signed by the group's own authority, and the list of members says which name belongs to which
//! address: `name@host:port`. `hallpass init` makes the keys and configurations of a group.
//!
//! # Logging
//!
//! Nodes log with [`tracing`], under targets that begin with `hallpass`: connections that begin
//! and end at level `info`; peers that cannot be reached, were rejected or broke the protocol at `warn`; a node that fails
//! and stops at `error`. Acquiring and releasing locks is not logged. What others can cause is logged once a minute, and the
//! field `left_out` says how many such lines were not logged before.
//!
//! # Programs without async
//!
//! The async API needs a tokio runtime with I/O and time enabled. The module [`blocking`] has the same types and methods for
//! programs without one.

#![warn(missing_debug_implementations)]

pub mod blocking;
mod builder;
#[doc(hidden)]
pub mod clock;
mod connect;
mod connection;
mod control;
mod data;
mod disk;
mod driver;
mod error;
mod greeting;
mod guard;
mod lock;
mod log_limiter;
mod members;
mod node;
mod options;
mod os;
mod peer;
mod readers;
mod status;
mod strangers;
mod tasks;
mod text;
mod tls;
mod trace;
mod turn;
mod waiter;

pub use builder::Builder;
pub use data::{DataDirectory, recover};
pub use error::{AcquireError, GroupError, Lost, StartError};
pub use guard::{Guard, Term};
#[doc(inline)]
pub use hallpass_core::Mode;
#[doc(inline)]
pub use hallpass_node::{Counters, LockState, Refusal, RequestError, ViewState};
pub use lock::Lock;
#[doc(hidden)]
pub use log_limiter::LogLimiter;
pub use node::Node;
pub use options::AcquireOptions;
pub use status::{LockInfo, Member, Status};
pub use tls::Keys;
pub use trace::{Trace, TracedMessage};
