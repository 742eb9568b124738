use std::fmt;

use hallpass_core::Fence;
use hallpass_node::{Grant, Ticket};

use crate::{Lock, Lost};

/// A held lock. Dropping it releases the lock.
///
/// A guard is owned: it can move between tasks and threads, and be released from any of them.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let node = hallpass::Node::builder().start().await?;
/// let guard = node.lock("invoices/42").acquire().await?;
/// let fence = guard.fence();
/// let elsewhere = tokio::spawn(async move { guard.release().await });
/// elsewhere.await??;
/// let next = node.lock("invoices/42").acquire().await?;
/// assert!(next.fence() > fence);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    lock: Lock,
    ticket: Ticket,
    fence: Fence,
    held: bool,
}

impl Guard {
    #[inline]
    pub(crate) fn new(lock: Lock, Grant { ticket, fence }: Grant) -> Self {
        Self { lock, ticket, fence, held: true }
    }

    /// The fencing token: larger than that of every earlier exclusive holder of this lock.
    ///
    /// Send it along with everything you do under the lock. The storage accepts a write whose fence is not below the last
    /// write's, and a read whose fence is above it: see [Fences](crate#fences). A shared holder's fence is not larger than
    /// that of the next exclusive one; shared holders may have equal or different ones.
    pub fn fence(&self) -> u64 {
        self.fence.get()
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Resolves when the lock is lost: it is no longer held, although it was not released.
    ///
    /// Today that happens only when the node stops, by [`Node::stop`](crate::Node::stop) or by a failure of its own. Stop
    /// working on what the lock protects at once: others may hold it from then on.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let node = hallpass::Node::builder().start().await?;
    /// let guard = node.lock("nightly").acquire().await?;
    /// let work = async { node.stop().await; std::future::pending::<()>().await };
    /// tokio::select! {
    ///     () = work => unreachable!("this work never ends"),
    ///     () = guard.lost() => println!("lost the lock, stopping"),
    /// }
    /// assert!(guard.release().await.is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn lost(&self) {
        self.lock.driver().when_stopped().await;
    }

    /// Resolves when the lock is still held but may soon be [lost](Self::lost).
    ///
    /// As long as the members of a group are a fixed list, nothing announces a loss: this resolves together with `lost`.
    pub async fn at_risk(&self) {
        self.lost().await;
    }

    /// True if the lock has been [lost](Self::lost).
    pub fn is_lost(&self) -> bool {
        self.lock.driver().is_stopped()
    }

    /// Releases the lock. An error means that it had been lost before: others may have held it meanwhile.
    pub async fn release(self) -> Result<(), Lost> {
        self.release_now()
    }

    /// Nothing has to be waited for: the messages that follow from it leave by themselves.
    pub(crate) fn release_now(mut self) -> Result<(), Lost> {
        let lost = self.is_lost();
        self.held = false;
        let held = self.lock.driver().release(self.ticket);
        if held && !lost { Ok(()) } else { Err(Lost) }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.held {
            self.lock.driver().release(self.ticket);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("lock", &self.name())
            .field("fence", &self.fence())
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// A term as leader: see [`Node::elect`](crate::Node::elect). Dropping it resigns.
#[derive(Debug)]
#[must_use = "dropping the term resigns"]
pub struct Term(pub(crate) Guard);

impl Term {
    /// The term's number: larger than that of every earlier leader. It is the [fence](Guard::fence) of the lock behind it.
    pub fn number(&self) -> u64 {
        self.0.fence()
    }

    /// What was elected: the name given to [`Node::elect`](crate::Node::elect).
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Resolves when the term has ended although it was not resigned: somebody else may lead from then on.
    pub async fn lost(&self) {
        self.0.lost().await;
    }

    /// Resolves when the term may soon be [lost](Self::lost): see [`Guard::at_risk`].
    pub async fn at_risk(&self) {
        self.0.at_risk().await;
    }

    /// True if the term has been [lost](Self::lost).
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Ends the term, so that somebody else can lead. An error means that it had been lost before.
    pub async fn resign(self) -> Result<(), Lost> {
        self.0.release().await
    }
}
