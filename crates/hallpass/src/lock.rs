use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hallpass_core::Mode;
use hallpass_node::{Slot, Ticket};
use tokio::time::timeout;

use crate::driver::{Asked, Driver, Granted, Validity};
use crate::node::StopOnDrop;
use crate::os;
use crate::waiter::{Verdict, Waiter};
use crate::{AcquireError, AcquireOptions, Guard};

/// A lock by its name, on one node. Cheap to clone.
///
/// It holds nothing: [`acquire`](Self::acquire) returns the [`Guard`] that does. Keep it if you acquire the same lock repeatedly: that is
/// faster than calling [`Node::lock`](crate::Node::lock) each time.
#[derive(Clone)]
pub struct Lock(Arc<Named>);

struct Named {
    running: Arc<StopOnDrop>,
    name: Arc<str>,
    /// Where the node last found the lock.
    slot: SlotHint,
    /// When a caller last had to wait for it.
    waited: AtomicU64,
}

/// Where a lock was last found, if it was.
struct SlotHint(AtomicU32);

impl SlotHint {
    /// No table has a slot of this number.
    const NONE: u32 = u32::MAX;

    #[inline]
    fn get(&self) -> Option<Slot> {
        let number = self.0.load(Ordering::Relaxed);
        (number != Self::NONE).then(|| Slot::new(number))
    }

    fn set(&self, slot: Option<Slot>) {
        self.0.store(slot.map_or(Self::NONE, Slot::get), Ordering::Relaxed);
    }
}

impl Default for SlotHint {
    fn default() -> Self {
        Self(AtomicU32::new(Self::NONE))
    }
}

impl Lock {
    pub(crate) fn new(running: Arc<StopOnDrop>, name: Arc<str>) -> Self {
        Self(Arc::new(Named { running, name, slot: SlotHint::default(), waited: AtomicU64::new(0) }))
    }

    #[inline]
    pub(crate) fn driver(&self) -> &Driver {
        &self.0.running.driver
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Waits without a limit until the lock can be held exclusively.
    ///
    /// Callers of one node are served in order, and members take turns. Dropping the future gives up: the request is
    /// withdrawn, or the lock is released if it was granted at that moment.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let node = hallpass::Node::builder().start().await?;
    /// let guard = node.lock("invoices/42").acquire().await?;
    /// println!("holding the lock with fence {}", guard.fence());
    /// drop(guard);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[inline]
    pub async fn acquire(&self) -> Result<Guard, AcquireError> {
        self.acquire_with(AcquireOptions::exclusive()).await
    }

    /// Waits until the lock can be shared: held by several callers and members, while nobody holds it exclusively.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let node = hallpass::Node::builder().start().await?;
    /// let lock = node.lock("report");
    /// let one = lock.acquire_shared().await?;
    /// let other = lock.acquire_shared().await?;
    /// assert!(lock.try_acquire().await?.is_none(), "readers keep a writer out");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[inline]
    pub async fn acquire_shared(&self) -> Result<Guard, AcquireError> {
        self.acquire_with(AcquireOptions::shared()).await
    }

    /// Acquires the lock exclusively if it is free, without waiting for other holders: `None` if it is not.
    ///
    /// Answers within [two seconds](AcquireOptions::TRY_TIMEOUT), normally within one round trip. See
    /// [`AcquireOptions::try_now`] for details.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let node = hallpass::Node::builder().start().await?;
    /// let lock = node.lock("nightly");
    /// let guard = lock.try_acquire().await?;
    /// assert!(guard.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, AcquireError> {
        busy_is_none(self.acquire_with(AcquireOptions::exclusive().try_now()).await)
    }

    /// Waits up to this time until the lock can be held exclusively.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # let node = hallpass::Node::builder().start().await?;
    /// let lock = node.lock("nightly");
    /// let guard = lock.acquire_timeout(Duration::from_secs(1)).await?;
    /// let late = lock.acquire_timeout(Duration::from_millis(1)).await;
    /// assert_eq!(late.unwrap_err(), hallpass::AcquireError::Timeout);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<Guard, AcquireError> {
        self.acquire_with(AcquireOptions::exclusive().timeout(limit)).await
    }

    /// Acquires the lock with any combination of mode, timeout and not waiting: see [`AcquireOptions`].
    ///
    /// Dropping the future gives up, as with [`acquire`](Self::acquire).
    #[inline]
    pub async fn acquire_with(&self, options: AcquireOptions) -> Result<Guard, AcquireError> {
        match self.acquire_fast(options.mode()) {
            Ok(guard) => Ok(guard),
            Err(yields) => self.acquire_slow(options, yields).await,
        }
    }

    /// Takes the fast path if the permissions are here and nobody holds the lock. Otherwise says whether to yield to other tasks first.
    #[inline]
    fn acquire_fast(&self, mode: Mode) -> Result<Guard, bool> {
        let waited = self.0.waited.load(Ordering::Relaxed);
        let granted = self.driver().acquire_fast(self.0.slot.get(), &self.0.name, mode, waited)?;
        Ok(Guard::new(self.clone(), granted))
    }

    async fn acquire_slow(&self, options: AcquireOptions, yields: bool) -> Result<Guard, AcquireError> {
        if yields {
            tokio::task::yield_now().await;
        }
        let asked = self.ask(options);
        match options.limit() {
            None => asked.await,
            Some(limit) => timeout(limit, asked).await.unwrap_or_else(|_| Err(options.expired())),
        }
    }

    async fn ask(&self, options: AcquireOptions) -> Result<Guard, AcquireError> {
        loop {
            match self.driver().acquire(&self.0.name, options.mode(), options.patience())? {
                Asked::Granted(granted) => return Ok(self.guard(granted)),
                Asked::Waiting(ticket, waiter) => {
                    let waiting = Waiting { lock: self, ticket, waiter, answered: false };
                    let verdict = poll_fn(|cx| waiting.waiter.poll(cx)).await;
                    // A grant that was picked up too late is void: the session has ended in the meantime.
                    if let Some(result) = waiting.end(verdict) {
                        return result;
                    }
                }
            }
        }
    }

    fn guard(&self, granted: Granted) -> Guard {
        self.0.slot.set(granted.grant.ticket.slot());
        Guard::new(self.clone(), granted)
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.name()).finish_non_exhaustive()
    }
}

pub(crate) fn busy_is_none<G>(acquired: Result<G, AcquireError>) -> Result<Option<G>, AcquireError> {
    match acquired {
        Ok(guard) => Ok(Some(guard)),
        Err(AcquireError::Busy) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A caller in the queue. If it is dropped before its answer, it leaves the queue, or releases the lock if it was granted at that moment.
struct Waiting<'a> {
    lock: &'a Lock,
    ticket: Ticket,
    waiter: Arc<Waiter>,
    answered: bool,
}

impl Waiting<'_> {
    /// Returns the result, or `None` if the lock must be requested again.
    fn end(mut self, verdict: Verdict) -> Option<Result<Guard, AcquireError>> {
        self.answered = true;
        let granted = match verdict {
            Ok(granted) => granted,
            Err(error) => return Some(Err(error)),
        };
        let driver = self.lock.driver();
        if driver.validity(granted) == Validity::Lost {
            driver.release(granted.grant.ticket);
            return None;
        }
        let now = os::now();
        self.lock.0.waited.store(now, Ordering::Relaxed);
        driver.turn.begin(now);
        Some(Ok(self.lock.guard(granted)))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.lock.driver().cancel(self.ticket);
        }
    }
}
