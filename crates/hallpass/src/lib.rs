//! Locks across processes and machines, without a lock server.
//!
//! Each process of your program runs a [`Node`]. The nodes form a group, exchange messages, and agree who holds which lock.
//! You operate no server and no shared store. Locks are exclusive or shared, have names, and cost nothing while they are not
//! used. Every acquisition comes with a [fence](#fences), a number that grows from holder to holder.
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
//! another node asks for them. So a node that keeps using the same lock sends nothing. Nodes that only read
//! ([`Lock::acquire_shared`]) send nothing until one of them writes.
//!
//! [`AcquireOptions`] combines exclusive and shared mode with a timeout, or with not waiting at all. [`Node::acquire_all`]
//! acquires several locks without deadlocks. [`Node::elect`] elects a leader.
//!
//! # A group of several nodes
//!
//! Give all founders of a group the same list of addresses, and each of them one of these addresses to listen on. The group
//! begins when all founders are connected with each other. A caller who asks for a lock earlier waits.
//!
//! From then on members come and go. Other nodes [join](Builder::join) through any member. A member that [stops](Node::stop)
//! is out at once. A member that fails or is cut off loses its locks when its [session](Builder::ttl) ends, and the others go
//! on. For that, more than half of the voters must be connected with each other.
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
//! Give each node a [data directory](Builder::data). Then a restarted node is the same member, and fences keep growing over a
//! restart of the whole group. [`Node::status`] shows the members, and why one is missing. A member can also run as a
//! separate process, `hallpass agent`, which serves other programs on its machine.
//!
//! # Fences
//!
//! A process that was suspended may continue to work after its lock has passed to another holder. No lock can prevent that.
//! The storage that the lock protects can. [`Guard::fence`] is a positive number that fits a signed 64-bit column.
//! Exclusive holders of a lock get strictly increasing fences. A shared holder's fence is larger than those of all earlier
//! exclusive holders, and not larger than that of the next one. Two shared holders may have different fences. So let the
//! storage remember the fence of the last write, and
//!
//! - accept a write if its fence is not smaller than that, and remember it;
//! - accept a read if its fence is larger than that, and do not remember it: other readers may rightfully have smaller ones.
//!
//! In SQL this takes a column and a condition: `UPDATE invoices SET body = $1, fence = $2 WHERE id = $3 AND fence <= $2`. If
//! no row was updated, the lock was lost. The example `fenced_write` does the same with a file.
//!
//! # Losing a lock
//!
//! A lock can be lost: the node was cut off from its group for a whole session, an operator broke the lock, or the node
//! stopped. Then [`Guard::lost`] resolves, and [`Guard::release`] returns [`Lost`]. A running process learns of the loss
//! before another caller gets the lock. Fences protect against a process that was suspended. [`Guard::at_risk`] warns before
//! the loss. Put work that can be cancelled into a `select`:
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
//! A node has one thread for its session and its group, and one that writes to its directory. Locks are granted on the
//! callers' threads. So a blocked runtime loses no session, and does not keep other members waiting.
//!
//! # Keys
//!
//! Without keys a node uses loopback addresses only, and trusts every process on its machine. For a group on several
//! machines, give every member [`Keys`]. Members then authenticate each other by mutual TLS 1.3. Each has a certificate with
//! its name, signed by the group's own authority. The list of members says which name belongs to which address:
//! `name@host:port`. `hallpass init` makes the keys and configurations of a group.
//!
//! # Logging
//!
//! Nodes log with [`tracing`], under targets that begin with `hallpass`:
//!
//! - `info`: connections that begin and end;
//! - `warn`: peers that cannot be reached, were rejected or broke the protocol;
//! - `error`: a node that fails and stops.
//!
//! Acquiring and releasing locks is not logged. A line that others can cause is logged at most once a minute, and its field
//! `left_out` counts the lines that were left out before it.
//!
//! # Programs without async
//!
//! The async API needs a tokio runtime with I/O and time enabled. The module [`blocking`] has the same types and methods for
//! programs without one.

#![warn(missing_debug_implementations)]

mod allowance;
pub mod blocking;
mod builder;
mod certificate;
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
mod private_key;
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
pub use certificate::KeyDigest;
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
