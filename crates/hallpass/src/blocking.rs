//! The same API for programs without async: every call blocks its thread until it has an answer.
//!
//! ```
//! use hallpass::AcquireOptions;
//!
//! let node = hallpass::Node::builder().name("a").start_blocking()?;
//! let lock = node.lock("invoices/42");
//! let guard = lock.acquire()?;
//! println!("holding the lock with fence {}", guard.fence());
//! assert!(lock.acquire_with(AcquireOptions::shared().try_now()).is_err(), "it is held");
//! guard.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A blocking node has one thread of its own for its connections. Where the async API waits for a future, this one has a
//! method that waits and one that waits up to a given time: [`Guard::lost`] and [`Guard::lost_timeout`],
//! [`Node::ready`] and [`Node::ready_timeout`].
//!
//! Calls that wait return [`InsideRuntime`], alone or as a variant of their error, if they are made inside a tokio runtime:
//! use the async API there. Releasing and dropping work everywhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Runtime};

pub use crate::error::InsideRuntime;
use crate::lock::busy_is_none;
use crate::{AcquireError, AcquireOptions, Builder, GroupError, LockInfo, Lost, Member, StartError, Status};

/// The thread of a blocking node.
#[derive(Debug)]
struct Background(Option<Runtime>);

impl Background {
    fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("hallpass")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn wait<F: Future>(&self, future: F) -> Result<F::Output, InsideRuntime> {
        check_outside()?;
        let runtime = self.0.as_ref().expect("it is taken only when it is dropped");
        Ok(runtime.block_on(future))
    }

    /// True if the future was ready in time.
    fn wait_timeout(&self, limit: Duration, future: impl Future<Output = ()>) -> Result<bool, InsideRuntime> {
        self.wait(async { tokio::time::timeout(limit, future).await.is_ok() })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Waiting for the thread to end would be a panic there.
        if check_outside().is_err()
            && let Some(runtime) = self.0.take()
        {
            runtime.shutdown_background();
        }
    }
}

/// Tokio panics when a thread that runs its tasks is blocked. This check comes before.
fn check_outside() -> Result<(), InsideRuntime> {
    if Handle::try_current().is_ok() { Err(InsideRuntime) } else { Ok(()) }
}

impl Builder {
    /// Starts the node for a program without async, with a thread of its own: see [`blocking`](crate::blocking).
    pub fn start_blocking(self) -> Result<Node, StartError> {
        check_outside()?;
        let background = Background::start().map_err(StartError::Thread)?;
        let node = background.wait(self.start())??;
        Ok(Node { node, background: Arc::new(background) })
    }
}

/// A member of a group, running. See [`hallpass::Node`](crate::Node).
///
/// Clones are the same member. It stops when the last one is dropped, locks and guards included.
#[derive(Clone, Debug)]
pub struct Node {
    // In this order: the node stops before its thread ends.
    node: crate::Node,
    background: Arc<Background>,
}

impl Node {
    /// Starts to describe a node: [`Builder::start_blocking`] starts it.
    pub fn builder() -> Builder {
        crate::Node::builder()
    }

    /// A lock by its name: 1 to 255 bytes of UTF-8. Nothing is sent until it is acquired.
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock { lock: self.node.lock(name), background: Arc::clone(&self.background) }
    }

    /// Acquires several locks exclusively, or none. See [`hallpass::Node::acquire_all`](crate::Node::acquire_all).
    pub fn acquire_all<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> Result<Vec<Guard>, AcquireError> {
        let guards = self.background.wait(self.node.acquire_all(names))??;
        Ok(guards.into_iter().map(|guard| Guard { guard, background: Arc::clone(&self.background) }).collect())
    }

    /// Waits to become the leader of this name. The term ends when it is resigned, dropped or lost.
    pub fn elect(&self, name: &str) -> Result<Term, AcquireError> {
        self.lock(name).acquire().map(Term)
    }

    /// Waits until the group is complete and locks are granted, or the node is stopped.
    pub fn ready(&self) -> Result<(), InsideRuntime> {
        self.background.wait(self.node.ready())
    }

    /// Waits like [`ready`](Self::ready), up to this time. Returns false if the time is over.
    pub fn ready_timeout(&self, limit: Duration) -> Result<bool, InsideRuntime> {
        self.background.wait_timeout(limit, self.node.ready())
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        self.node.name()
    }

    /// The state of the node and its group.
    pub fn status(&self) -> Status {
        self.node.status()
    }

    /// The members of the group, as this node sees them.
    pub fn members(&self) -> Vec<Member> {
        self.node.members()
    }

    /// The locks that are held, waited for or cached on this node, by name.
    pub fn locks(&self) -> Vec<LockInfo> {
        self.node.locks()
    }

    /// One lock, if it is held, waited for or cached on this node.
    pub fn lock_info(&self, name: &str) -> Option<LockInfo> {
        self.node.lock_info(name)
    }

    /// Asks for whom the callers of a lock wait. See [`hallpass::Node::inquire`](crate::Node::inquire).
    pub fn inquire(&self, name: &str) {
        self.node.inquire(name);
    }

    /// Stops the node. See [`hallpass::Node::stop`](crate::Node::stop).
    ///
    /// Waits for its end, except inside an async runtime.
    pub fn stop(&self) {
        self.node.stop_now();
        let _ = self.background.wait(self.node.stop());
    }

    /// Leaves the group for good. See [`hallpass::Node::leave`](crate::Node::leave).
    pub fn leave(&self, limit: Duration) -> Result<(), GroupError> {
        self.background.wait(self.node.leave(limit))?
    }

    /// Joins the group of this member. See [`hallpass::Node::join`](crate::Node::join).
    pub fn join(&self, address: &str, limit: Duration) -> Result<(), GroupError> {
        self.background.wait(self.node.join(address, limit))?
    }

    /// Removes a member. See [`hallpass::Node::evict`](crate::Node::evict).
    pub fn evict(&self, member: u32, ban: bool, limit: Duration) -> Result<(), GroupError> {
        self.background.wait(self.node.evict(member, ban, limit))?
    }

    /// Admits nodes of this name again. See [`hallpass::Node::admit`](crate::Node::admit).
    pub fn admit(&self, name: impl Into<String>, limit: Duration) -> Result<(), GroupError> {
        self.background.wait(self.node.admit(name, limit))?
    }

    /// Changes the protocol of locks. See [`hallpass::Node::set_class`](crate::Node::set_class).
    pub fn set_class(
        &self,
        prefix: impl Into<String>,
        protocol: impl Into<String>,
        options: &[&str],
        limit: Duration,
    ) -> Result<(), GroupError> {
        self.background.wait(self.node.set_class(prefix, protocol, options, limit))?
    }

    /// Takes a lock from its holder. See [`hallpass::Node::break_lock`](crate::Node::break_lock).
    pub fn break_lock(&self, lock: impl Into<String>, limit: Duration) -> Result<(), GroupError> {
        self.background.wait(self.node.break_lock(lock, limit))?
    }

    /// Waits until the node has been stopped, by [`stop`](Self::stop) or by a failure of its own.
    pub fn stopped(&self) -> Result<(), InsideRuntime> {
        self.background.wait(self.node.stopped())
    }

    /// Waits like [`stopped`](Self::stopped), up to this time. Returns false if the time is over.
    pub fn stopped_timeout(&self, limit: Duration) -> Result<bool, InsideRuntime> {
        self.background.wait_timeout(limit, self.node.stopped())
    }
}

/// A lock by its name, on one node. See [`hallpass::Lock`](crate::Lock).
#[derive(Clone, Debug)]
pub struct Lock {
    lock: crate::Lock,
    background: Arc<Background>,
}

impl Lock {
    /// The lock's name.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Waits without a limit until the lock can be held exclusively.
    pub fn acquire(&self) -> Result<Guard, AcquireError> {
        self.acquire_with(AcquireOptions::exclusive())
    }

    /// Waits until the lock can be shared: held by several callers and members, while nobody holds it exclusively.
    pub fn acquire_shared(&self) -> Result<Guard, AcquireError> {
        self.acquire_with(AcquireOptions::shared())
    }

    /// Acquires the lock exclusively if it is free, without waiting for other holders: `None` if it is not.
    ///
    /// Answers within [two seconds](AcquireOptions::TRY_TIMEOUT), normally within one round trip.
    pub fn try_acquire(&self) -> Result<Option<Guard>, AcquireError> {
        busy_is_none(self.acquire_with(AcquireOptions::exclusive().try_now()))
    }

    /// Waits up to this time until the lock can be held exclusively.
    pub fn acquire_timeout(&self, limit: Duration) -> Result<Guard, AcquireError> {
        self.acquire_with(AcquireOptions::exclusive().timeout(limit))
    }

    /// Acquires the lock with any combination of mode, timeout and not waiting: see [`AcquireOptions`].
    pub fn acquire_with(&self, options: AcquireOptions) -> Result<Guard, AcquireError> {
        let guard = self.background.wait(self.lock.acquire_with(options))??;
        Ok(Guard { guard, background: Arc::clone(&self.background) })
    }
}

/// A held lock. Dropping it releases the lock. See [`hallpass::Guard`](crate::Guard).
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    // In this order: the lock is released while its node still runs.
    guard: crate::Guard,
    background: Arc<Background>,
}

impl Guard {
    /// The fencing token: larger than that of every earlier exclusive holder of this lock. See [Fences](crate#fences).
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// Waits until the lock is lost: no longer held, although it was not released. A thread of its own can wait here while
    /// another one works.
    pub fn lost(&self) -> Result<(), InsideRuntime> {
        self.background.wait(self.guard.lost())
    }

    /// Waits like [`lost`](Self::lost), up to this time. Returns false if the time is over: the lock is still held.
    pub fn lost_timeout(&self, limit: Duration) -> Result<bool, InsideRuntime> {
        self.background.wait_timeout(limit, self.guard.lost())
    }

    /// Waits until the lock may soon be lost. See [`hallpass::Guard::at_risk`](crate::Guard::at_risk).
    pub fn at_risk(&self) -> Result<(), InsideRuntime> {
        self.background.wait(self.guard.at_risk())
    }

    /// Waits like [`at_risk`](Self::at_risk), up to this time. Returns false if the time is over.
    pub fn at_risk_timeout(&self, limit: Duration) -> Result<bool, InsideRuntime> {
        self.background.wait_timeout(limit, self.guard.at_risk())
    }

    /// True if the lock has been lost.
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Until when the lock is held for certain. See [`hallpass::Guard::valid_until`](crate::Guard::valid_until).
    pub fn valid_until(&self) -> Option<Instant> {
        self.guard.valid_until()
    }

    /// Releases the lock. An error means that it had been lost before: others may have held it meanwhile.
    pub fn release(self) -> Result<(), Lost> {
        self.guard.release_now()
    }
}

/// A term as leader: see [`Node::elect`]. Dropping it resigns.
#[derive(Debug)]
#[must_use = "dropping the term resigns"]
pub struct Term(Guard);

impl Term {
    /// The term's number: larger than that of every earlier leader.
    pub fn number(&self) -> u64 {
        self.0.fence()
    }

    /// What was elected: the name given to [`Node::elect`].
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Waits until the term has ended although it was not resigned: somebody else may lead from then on.
    pub fn lost(&self) -> Result<(), InsideRuntime> {
        self.0.lost()
    }

    /// Waits like [`lost`](Self::lost), up to this time. Returns false if the time is over: the term goes on.
    pub fn lost_timeout(&self, limit: Duration) -> Result<bool, InsideRuntime> {
        self.0.lost_timeout(limit)
    }

    /// Waits until the term may soon be lost. See [`hallpass::Guard::at_risk`](crate::Guard::at_risk).
    pub fn at_risk(&self) -> Result<(), InsideRuntime> {
        self.0.at_risk()
    }

    /// Waits like [`at_risk`](Self::at_risk), up to this time. Returns false if the time is over.
    pub fn at_risk_timeout(&self, limit: Duration) -> Result<bool, InsideRuntime> {
        self.0.at_risk_timeout(limit)
    }

    /// True if the term has been lost.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Until when the term lasts for certain.
    pub fn valid_until(&self) -> Option<Instant> {
        self.0.valid_until()
    }

    /// Ends the term, so that somebody else can lead. An error means that it had been lost before.
    pub fn resign(self) -> Result<(), Lost> {
        self.0.release()
    }
}
