use std::fmt;

use std::time::{Duration, Instant};

use hallpass_core::Ticks;

use crate::driver::{Granted, Validity};
use crate::os::now;
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
    /// `None` once it is released.
    lock: Option<Lock>,
    granted: Granted,
}

impl Guard {
    #[inline]
    pub(crate) fn new(lock: Lock, granted: Granted) -> Self {
        Self { lock: Some(lock), granted }
    }

    fn lock(&self) -> &Lock {
        self.lock.as_ref().expect("releasing it ends the guard")
    }

    /// The fencing token: larger than that of every earlier exclusive holder of this lock.
    ///
    /// Send it along with everything you do under the lock. The storage accepts a write whose fence is not below that of the last write, and
    /// a read whose fence is above it: see [Fences](crate#fences). A shared holder's fence is not larger than that of the next exclusive
    /// holder. Shared holders may have equal or different ones.
    pub fn fence(&self) -> u64 {
        self.granted.grant.fence.get()
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.lock().name()
    }

    /// Resolves when the lock is lost: it is no longer held, although it was not released.
    ///
    /// That happens when this node has not reached the steward of its group for a whole [session](crate::Builder::ttl), when an operator has
    /// broken the lock or removed the node, and when the node stops. Stop working on what the lock protects at once: others may hold it
    /// from then on. If this process runs at all, this resolves before they do.
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
        self.lock().driver().when_due(self.granted, |until, _| until).await;
    }

    /// Resolves when the lock is still held but may soon be [lost](Self::lost): the session was not renewed when it should have
    /// been, or an operator breaks the lock. Resolves together with `lost` at the latest.
    pub async fn at_risk(&self) {
        self.lock().driver().when_due(self.granted, |until, at_risk_from| at_risk_from.min(until)).await;
    }

    /// True if the lock has been [lost](Self::lost). This reads the clock, so it is right even if nothing else in this process has run since.
    pub fn is_lost(&self) -> bool {
        self.lock().driver().validity(self.granted) == Validity::Lost
    }

    /// True if the lock is [at risk](Self::at_risk) now, or lost.
    pub fn is_at_risk(&self) -> bool {
        match self.lock().driver().validity(self.granted) {
            Validity::Lost => true,
            Validity::Held { at_risk_from, .. } => now() >= at_risk_from,
        }
    }

    /// True if an operator has broken the lock: it is lost or will be, even if the session is renewed.
    pub fn is_broken(&self) -> bool {
        self.lock().driver().is_revoked(self.granted)
    }

    /// Until when the lock is certainly held, even if no more messages from the group arrive. It moves on while the session is renewed. Once
    /// the lock is lost it is in the past. `None` if nothing can take the lock away.
    pub fn valid_until(&self) -> Option<Instant> {
        match self.lock().driver().validity(self.granted) {
            Validity::Lost => Some(Instant::now()),
            Validity::Held { until: Ticks::MAX, .. } => None,
            Validity::Held { until, .. } => Some(Instant::now() + Duration::from_nanos(until.saturating_sub(now()))),
        }
    }

    /// Resolves when something can take the lock away: from then on [`valid_until`](Self::valid_until) is not `None`.
    ///
    /// For a node that was alone, this resolves before another member joins.
    pub async fn became_revocable(&self) {
        self.lock().driver().when_due(self.granted, |until, _| if until == Ticks::MAX { until } else { 0 }).await;
    }

    /// Releases the lock. An error means that it had been lost before: others may have held it in the meantime.
    pub async fn release(self) -> Result<(), Lost> {
        self.release_now()
    }

    /// Needs no waiting: the messages that follow are sent automatically.
    pub(crate) fn release_now(mut self) -> Result<(), Lost> {
        let lock = self.lock.take();
        if lock.is_some_and(|lock| lock.driver().release_held(&self.granted)) { Ok(()) } else { Err(Lost) }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            lock.driver().release(self.granted.grant.ticket);
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

    /// Until when the term certainly lasts: see [`Guard::valid_until`].
    pub fn valid_until(&self) -> Option<Instant> {
        self.0.valid_until()
    }

    /// Ends the term, so that somebody else can lead. An error means that it had been lost before.
    pub async fn resign(self) -> Result<(), Lost> {
        self.0.release().await
    }
}
