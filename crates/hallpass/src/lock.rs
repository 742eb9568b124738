use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hallpass_core::{Fence, Mode, Ticks};
use hallpass_node::{Grant, Outcome, Patience, Slot, Ticket};

use crate::driver::{Asked, Driver};
use crate::node::Running;
use crate::os;
use crate::waiter::{Verdict, Waiter};
use crate::{AcquireError, Lost};

/// A lock by its name, on one node. Cheap to clone; it holds nothing.
#[derive(Clone)]
pub struct Lock(Arc<Named>);

struct Named {
    running: Arc<Running>,
    name: Arc<str>,
    /// Where the node found the lock the last time.
    slot: SlotHint,
    /// When a caller last had to wait for it.
    waited: AtomicU64,
    /// Turns so far, as far as they were counted: two at once may count as one.
    turns: AtomicU32,
}

/// Where a lock was found the last time, if it was.
struct SlotHint(AtomicU32);

impl SlotHint {
    /// No table has a slot of this number.
    const NONE: u32 = u32::MAX;

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

/// After so many turns without waiting others have theirs: by then a message could have come from another machine.
const TURNS_MAX: u32 = 256;

/// A lock that somebody waited for so short a time ago is wanted elsewhere, too.
const WANTED: Ticks = 1_000_000;

/// Who only tries does not wait longer for a member that is there but says nothing.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

impl Lock {
    pub(crate) fn new(running: Arc<Running>, name: Arc<str>) -> Self {
        Self(Arc::new(Named {
            running,
            name,
            slot: SlotHint::default(),
            waited: AtomicU64::new(0),
            turns: AtomicU32::new(0),
        }))
    }

    fn driver(&self) -> &Driver {
        &self.0.running.driver
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Waits until nobody else is inside, and enters alone. Dropping the future leaves no trace behind.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let node = hallpass::Node::builder().start().await?;
    /// let guard = node.lock("invoices/42").acquire().await?;
    /// println!("inside, with fence {}", guard.fence());
    /// drop(guard);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire(&self) -> Result<Guard, AcquireError> {
        self.acquire_as(Mode::Exclusive).await
    }

    /// Waits until nobody is inside alone, and enters together with others who share.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let node = hallpass::Node::builder().start().await?;
    /// let one = node.lock("report").acquire_shared().await?;
    /// let other = node.lock("report").acquire_shared().await?;
    /// assert_eq!(one.fence(), other.fence());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_shared(&self) -> Result<Guard, AcquireError> {
        self.acquire_as(Mode::Shared).await
    }

    /// Enters if nobody is inside or waits: one round trip, or nothing if a member does not answer for two seconds. Two who try at the same moment may both be refused.
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
        self.attempt(Mode::Exclusive).await
    }

    /// The same, together with others who share.
    pub async fn try_acquire_shared(&self) -> Result<Option<Guard>, AcquireError> {
        self.attempt(Mode::Shared).await
    }

    /// Waits, but not longer than this.
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
        tokio::time::timeout(limit, self.acquire()).await.unwrap_or(Err(AcquireError::Timeout))
    }

    #[inline]
    async fn acquire_as(&self, mode: Mode) -> Result<Guard, AcquireError> {
        let (now, others_first) = self.turn();
        if !others_first && let Some(guard) = self.enter_fast(mode, now) {
            return Ok(guard);
        }
        self.enter(mode, Patience::Wait, others_first).await?.ok_or(AcquireError::Timeout)
    }

    async fn attempt(&self, mode: Mode) -> Result<Option<Guard>, AcquireError> {
        let enters = self.enter(mode, Patience::Try, self.turn().1);
        tokio::time::timeout(ATTEMPT_MAX, enters).await.unwrap_or(Ok(None))
    }

    /// The time, and whether others have their turn first.
    ///
    /// A caller who always finds the lock here never waits: now and then the tasks that read the sockets must have their
    /// turn, or the other members' requests are not heard. And where the lock has just come from another member, the next
    /// request for it is on its way or lies unread: it is heard before the lock is taken again.
    #[inline]
    fn turn(&self) -> (Ticks, bool) {
        let turn = self.0.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.0.turns.store(turn, Ordering::Relaxed);
        let now = os::now();
        let wanted = now.saturating_sub(self.0.waited.load(Ordering::Relaxed)) < WANTED;
        (now, wanted || turn.is_multiple_of(TURNS_MAX))
    }

    /// The fast path, where the permissions are here and nobody is inside.
    #[inline]
    fn enter_fast(&self, mode: Mode, now: Ticks) -> Option<Guard> {
        let Grant { ticket, fence } = self.driver().acquire_fast(self.0.slot.get()?, &self.0.name, mode, now)?;
        Some(Guard { lock: self.clone(), ticket, fence, held: true })
    }

    async fn enter(&self, mode: Mode, patience: Patience, others_first: bool) -> Result<Option<Guard>, AcquireError> {
        if others_first {
            tokio::task::yield_now().await;
        }
        match self.driver().acquire(&self.0.name, mode, patience, os::now())? {
            Asked::Granted(grant) => Ok(Some(self.guard(grant))),
            Asked::Busy => Ok(None),
            Asked::Waiting(ticket, waiter) => Waiting { lock: self, ticket, waiter, done: false }.wait().await,
        }
    }

    fn guard(&self, Grant { ticket, fence }: Grant) -> Guard {
        self.0.slot.set(ticket.slot());
        Guard { lock: self.clone(), ticket, fence, held: true }
    }
}

/// A caller in the queue; dropped, it leaves the queue, or the lock if its turn has just come.
struct Waiting<'a> {
    lock: &'a Lock,
    ticket: Ticket,
    waiter: Arc<Waiter>,
    done: bool,
}

impl Waiting<'_> {
    async fn wait(mut self) -> Result<Option<Guard>, AcquireError> {
        match poll_fn(|cx| self.waiter.poll(cx)).await {
            Verdict::Outcome(Outcome::Granted(grant)) => {
                self.done = true;
                self.lock.0.waited.store(os::now(), Ordering::Relaxed);
                Ok(Some(self.lock.guard(grant)))
            }
            Verdict::Outcome(Outcome::Busy) => {
                self.done = true;
                Ok(None)
            }
            Verdict::Outcome(Outcome::Refused(refusal)) => {
                self.done = true;
                Err(refusal.into())
            }
            Verdict::Stopped => Err(AcquireError::Stopped),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.lock.driver().cancel(self.ticket);
        }
    }
}

/// The lock is held as long as this lives. It can move between tasks and threads and be released from any.
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
    /// The entry's fencing token: larger than that of every earlier exclusive entry. Give it to what you protect, and let
    /// that refuse smaller ones.
    pub fn fence(&self) -> u64 {
        self.fence.get()
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Comes true when the lock is held no more though nobody released it: today, when the node has been stopped.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let node = hallpass::Node::builder().start().await?;
    /// let guard = node.lock("nightly").acquire().await?;
    /// let work = async { node.stop().await; std::future::pending::<()>().await };
    /// tokio::select! {
    ///     () = work => unreachable!("it takes for ever"),
    ///     () = guard.lost() => println!("stop at once"),
    /// }
    /// assert!(guard.release().await.is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn lost(&self) {
        self.lock.driver().when_stopped().await;
    }

    /// Comes true when the lock may be lost soon. With a fixed list of members there is no session to run out: it comes
    /// with [`lost`](Self::lost).
    pub async fn at_risk(&self) {
        self.lost().await;
    }

    /// True if the lock has been lost.
    pub fn is_lost(&self) -> bool {
        self.lock.driver().is_stopped()
    }

    /// Leaves, and tells whether the lock was held until now.
    pub async fn release(mut self) -> Result<(), Lost> {
        let lost = self.is_lost();
        self.held = false;
        let held = self.lock.driver().release(self.ticket);
        if held && !lost { Ok(()) } else { Err(Lost) }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.held {
            self.lock.driver().release(self.ticket);
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("lock", &self.lock.name())
            .field("fence", &self.fence.get())
            .finish_non_exhaustive()
    }
}

/// A time as leader: see [`Node::elect`](crate::Node::elect).
#[derive(Debug)]
#[must_use = "dropping the term resigns"]
pub struct Term(pub(crate) Guard);

impl Term {
    /// The term's number: larger than every earlier one's.
    pub fn number(&self) -> u64 {
        self.0.fence()
    }

    /// Comes true when somebody else may lead.
    pub async fn lost(&self) {
        self.0.lost().await;
    }

    /// Lets somebody else lead.
    pub async fn resign(self) -> Result<(), Lost> {
        self.0.release().await
    }
}
