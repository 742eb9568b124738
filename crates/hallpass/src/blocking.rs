//! The same for programs without async: every call waits where it stands.
//!
//! ```
//! let node = hallpass::blocking::Node::start(hallpass::Node::builder().name("a"))?;
//! let guard = node.lock("invoices/42").acquire()?;
//! assert!(guard.fence() > 0);
//! guard.release()?;
//! let both = node.acquire_all(["b", "a"])?;
//! assert!(node.lock("a").try_acquire_shared()?.is_none());
//! drop(both);
//! assert!(node.elect("scheduler")?.fence() > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::{AcquireError, Builder, Guard, Lost, StartError};

/// A member of a group with a thread of its own for its connections.
#[derive(Clone)]
pub struct Node {
    runtime: Arc<Runtime>,
    node: crate::Node,
}

impl Node {
    /// Starts it. Must not be called from async code, which has [`Builder::start`].
    pub fn start(builder: Builder) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("hallpass")
            .enable_all()
            .build()
            .map_err(|error| StartError::Setting(format!("cannot start a thread: {error}")))?;
        let node = runtime.block_on(builder.start())?;
        Ok(Self { runtime: Arc::new(runtime), node })
    }

    /// A lock by its name.
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock { runtime: Arc::clone(&self.runtime), lock: self.node.lock(name) }
    }

    /// Waits for all of these, in an order in which nobody waits in a circle; all or nothing.
    pub fn acquire_all<N: Into<String>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Vec<BlockingGuard>, AcquireError> {
        let guards = self.runtime.block_on(self.node.acquire_all(names))?;
        Ok(guards.into_iter().map(|guard| BlockingGuard::new(guard, &self.runtime)).collect())
    }

    /// Waits to become the leader of this name, and is it until the guard is released, dropped or lost. Its fence is the
    /// term's number.
    pub fn elect(&self, name: &str) -> Result<BlockingGuard, AcquireError> {
        self.lock(name).acquire()
    }

    /// The node as async code sees it.
    pub fn node(&self) -> &crate::Node {
        &self.node
    }
}

/// A lock by its name, on one node.
#[derive(Clone)]
pub struct Lock {
    runtime: Arc<Runtime>,
    lock: crate::Lock,
}

impl Lock {
    /// Waits until nobody else is inside, and enters alone.
    pub fn acquire(&self) -> Result<BlockingGuard, AcquireError> {
        self.runtime.block_on(self.lock.acquire()).map(|guard| BlockingGuard::new(guard, &self.runtime))
    }

    /// Waits until nobody is inside alone, and enters together with others who share.
    pub fn acquire_shared(&self) -> Result<BlockingGuard, AcquireError> {
        self.runtime.block_on(self.lock.acquire_shared()).map(|guard| BlockingGuard::new(guard, &self.runtime))
    }

    /// Waits, but not longer than this.
    pub fn acquire_timeout(&self, limit: Duration) -> Result<BlockingGuard, AcquireError> {
        self.runtime.block_on(self.lock.acquire_timeout(limit)).map(|guard| BlockingGuard::new(guard, &self.runtime))
    }

    /// Enters if nobody is inside or waits.
    pub fn try_acquire(&self) -> Result<Option<BlockingGuard>, AcquireError> {
        let entered = self.runtime.block_on(self.lock.try_acquire())?;
        Ok(entered.map(|guard| BlockingGuard::new(guard, &self.runtime)))
    }

    /// The same, together with others who share.
    pub fn try_acquire_shared(&self) -> Result<Option<BlockingGuard>, AcquireError> {
        let entered = self.runtime.block_on(self.lock.try_acquire_shared())?;
        Ok(entered.map(|guard| BlockingGuard::new(guard, &self.runtime)))
    }
}

/// The lock is held as long as this lives.
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct BlockingGuard {
    // In this order: the guard is released while its node still runs.
    guard: Guard,
    runtime: Arc<Runtime>,
}

impl BlockingGuard {
    fn new(guard: Guard, runtime: &Arc<Runtime>) -> Self {
        Self { guard, runtime: Arc::clone(runtime) }
    }

    /// The entry's fencing token.
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// True if the lock has been lost.
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Leaves, and tells whether the lock was held until now.
    pub fn release(self) -> Result<(), Lost> {
        let Self { guard, runtime } = self;
        runtime.block_on(guard.release())
    }
}
