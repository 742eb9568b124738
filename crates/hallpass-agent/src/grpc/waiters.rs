//! Waiters of etcd's clients that lock with KV transactions, as Go's `concurrency.Mutex` and `etcdctl lock` do.
//!
//! Such a client writes its key, and waits until no older key is left. The agent does not know the group's queue, and need not. A
//! task of its own asks for the lock. Until that is granted the client is shown one older key, its predecessor. The grant deletes it.
//!
//! **Revisions.** A grant's revision is its fence. A waiter has none yet, but its client compares revisions. So it gets an even number
//! from a count of the agent, and its predecessor gets the odd one before. Fences have the epoch in their high bits, so they are larger
//! than all of these numbers. The two are never confused, and every holder's fence exceeds what was shown before it. The number stays the
//! key's create revision when the lock is granted, since the client has kept it. The mod revision is the fence then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hallpass::Mode;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;

use super::error;
use super::key::LockKey;
use super::proto::KeyValue;
use crate::service::{AcquireFault, LeaseError, Service, Wanted};
use crate::shares::{Share, Shares};

/// How long a transaction waits for its lock before the client is told to wait: what is granted meanwhile saves the client three
/// requests. A client that only tries (Go's `TryLock`) waits this long for a lock that is not free.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bounds the memory that waiters take: some hundred bytes each.
const WAITERS_MAX: usize = 100_000;
/// The sweep for waiters that hold nothing any more begins at this number.
const SWEEP_MIN: usize = 1024;
/// How often to sweep at most for an owner who has used up its share: it may be used up by waiters that hold nothing.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// All waiters of an agent. A clone shares the same table.
#[derive(Clone, Debug)]
pub(super) struct EtcdWaiters {
    service: Service,
    table: Arc<Mutex<Table>>,
    /// Whose they are: that of their leases.
    shares: Arc<Shares>,
}

#[derive(Debug, Default)]
struct Table {
    waiters: BTreeMap<LockKey, EtcdWaiter>,
    by_ticket: BTreeMap<i64, LockKey>,
    last_ticket: i64,
    /// The number of waiters at which the next sweep begins.
    sweep_at: usize,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct EtcdWaiter {
    /// An even number of its own: its create revision if it has to wait.
    ticket: i64,
    /// Its create revision, from when it was first told.
    revision: Option<i64>,
    phase: watch::Receiver<Phase>,
    /// Asks for the lock. None once the waiter is closing.
    task: Option<JoinHandle<()>>,
    /// It is about to be removed; nobody may count on it.
    closing: bool,
    /// Closed when it is removed.
    removed: watch::Sender<()>,
    _share: Share,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Granted(u64),
    Failed(AcquireFault),
}

/// A waiter, as a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The create revision of its key.
    pub(super) revision: i64,
    /// None while it waits.
    pub(super) fence: Option<i64>,
}

impl Seen {
    /// The revision of an answer about this key.
    pub(super) fn now(self) -> i64 {
        self.fence.unwrap_or(self.revision)
    }

    fn fence(self) -> Option<u64> {
        self.fence.map(|fence| fence as u64)
    }

    pub(super) fn key_value(self, key: &LockKey) -> KeyValue {
        KeyValue {
            key: key.bytes(),
            create_revision: self.revision,
            mod_revision: self.now(),
            version: 1,
            value: Vec::new(),
            lease: key.lease.get() as i64,
        }
    }

    /// The key that stands before this one, while it waits.
    pub(super) fn predecessor(self, key: &LockKey) -> Option<KeyValue> {
        let revision = self.revision - 1;
        let key = self.fence.is_none().then(|| key.predecessor())?;
        Some(KeyValue { key, create_revision: revision, mod_revision: revision, version: 1, ..KeyValue::default() })
    }
}

/// Removes a new waiter if its client stops listening before it is answered.
struct Made<'a> {
    waiters: &'a EtcdWaiters,
    key: &'a LockKey,
    ticket: i64,
    answered: bool,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // Without a runtime the agent has ended, and its locks with it.
        if !self.answered && tokio::runtime::Handle::try_current().is_ok() {
            self.waiters.begin_closing(self.key, |waiter| waiter.ticket == self.ticket);
        }
    }
}

/// The result of closing a waiter.
enum Closing {
    /// There is none.
    None,
    /// There is another one than was meant.
    Other,
    /// Another request removes it.
    Already(watch::Receiver<()>),
    /// This task removes it, and returns true if the waiter was one.
    Begun(JoinHandle<bool>),
}

impl EtcdWaiters {
    pub(super) fn new(service: Service) -> Self {
        Self { service, table: Arc::default(), shares: Arc::default() }
    }

    /// Promises a client what there is at a key. The create revision that it is told first stays.
    pub(super) fn promise(&self, key: &LockKey) -> Result<Option<Seen>, Status> {
        let waiter = {
            let mut table = self.lock();
            match table.waiters.get_mut(key) {
                Some(waiter) if waiter.closing => return Ok(None),
                Some(waiter) => {
                    let phase = waiter.phase.borrow().clone();
                    let ticket = waiter.ticket;
                    let told = match phase {
                        Phase::Waiting => ticket,
                        Phase::Granted(fence) => fence as i64,
                        Phase::Failed(_) => return Ok(None),
                    };
                    Some((*waiter.revision.get_or_insert(told), phase))
                }
                None => None,
            }
        };
        if let Some((revision, Phase::Waiting)) = waiter {
            return Ok(Some(Seen { revision, fence: None }));
        }
        let held = match self.service.confirm_held(key.lease, &key.lock) {
            Ok(held) => held,
            Err(LeaseError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(held.map(|fence| {
            // One that was granted since, in another way, is another key.
            let made = waiter.filter(|(_, phase)| *phase == Phase::Granted(fence));
            Seen { revision: made.map_or(fence as i64, |(revision, _)| revision), fence: Some(fence as i64) }
        }))
    }

    /// Which waiter was told to wait with this create revision.
    pub(super) fn of_ticket(&self, lock: &str, revision: i64) -> Option<LockKey> {
        self.lock().by_ticket.get(&revision).filter(|key| *key.lock == *lock).cloned()
    }

    /// Makes a waiter, and waits a moment for its lock. Dropping the future removes it again.
    pub(super) async fn make(&self, key: &LockKey) -> Result<Seen, Status> {
        loop {
            let (mut phase, ticket) = match self.enter(key)? {
                Ok(entered) => entered,
                Err(mut removed) => {
                    // It was deleted, and is not gone yet.
                    let _ = removed.changed().await;
                    continue;
                }
            };
            let mut made = ticket.map(|ticket| Made { waiters: self, key, ticket, answered: false });
            let decided = phase.wait_for(|phase| *phase != Phase::Waiting);
            let _ = tokio::time::timeout(PATIENCE, decided).await;
            if let Phase::Failed(fault) = &*phase.borrow() {
                return Err(fault.clone().into());
            }
            let seen = self.promise(key)?.ok_or_else(error::lease_not_found)?;
            made.iter_mut().for_each(|made| made.answered = true);
            return Ok(seen);
        }
    }

    /// Deletes a key, and with it the waiter: false if there was none, or another than was seen. What is begun is finished though
    /// nobody waits for it.
    pub(super) async fn delete(&self, key: &LockKey, seen: Option<Seen>) -> Result<bool, Status> {
        let is_meant = |waiter: &EtcdWaiter| seen.is_none_or(|seen| waiter.revision == Some(seen.revision));
        match self.begin_closing(key, is_meant) {
            Closing::Other => Ok(false),
            Closing::Begun(closing) => Ok(closing.await.unwrap_or(false)),
            Closing::Already(mut removed) => {
                let _ = removed.changed().await;
                Ok(false)
            }
            // It has been removed since, or it was never one of these.
            Closing::None if seen.is_some_and(|seen| seen.fence.is_none()) => Ok(false),
            Closing::None => match self.service.release(key.lease, &key.lock, seen.and_then(Seen::fence)).await {
                Ok(released) => Ok(released),
                Err(LeaseError::NotFound(_)) => Ok(false),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Resolves when the waiter does not wait any more: its predecessor is gone.
    pub(super) async fn wait(&self, key: &LockKey) {
        let phase = self.lock().waiters.get(key).map(|waiter| waiter.phase.clone());
        if let Some(mut phase) = phase {
            let _ = phase.wait_for(|phase| *phase != Phase::Waiting).await;
        }
    }

    /// Resolves when the key is gone.
    pub(super) async fn gone(&self, key: &LockKey) {
        loop {
            self.wait(key).await;
            let Ok(mut changes) = self.service.changes(key.lease) else { return };
            match self.promise(key) {
                Ok(None) => return,
                // It may be lost, or only in doubt: the lease tells.
                Ok(Some(_)) | Err(_) => {
                    let _ = changes.changed().await;
                }
            }
        }
    }

    /// The keys of a lock that wait, the oldest first.
    pub(super) fn waiting_for(&self, lock: &str) -> Vec<LockKey> {
        let table = self.lock();
        let waits =
            |key: &LockKey| table.waiters.get(key).is_some_and(|waiter| *waiter.phase.borrow() == Phase::Waiting);
        table.by_ticket.values().filter(|key| *key.lock == *lock && waits(key)).cloned().collect()
    }

    /// The keys of a lease that wait.
    pub(super) fn waiting(&self, lease: crate::service::LeaseId) -> Vec<LockKey> {
        let table = self.lock();
        let waits = |waiter: &EtcdWaiter| *waiter.phase.borrow() == Phase::Waiting && !waiter.closing;
        table
            .waiters
            .iter()
            .filter(|(key, waiter)| key.lease == lease && waits(waiter))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Returns how many waiters hold or wait, and how many tickets there are: the same number.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        let mut table = self.lock();
        self.sweep(&mut table);
        (table.waiters.len(), table.by_ticket.len())
    }

    // ---- inside ----

    /// Finds the waiter, or makes one: then its ticket comes with it. The inner error is a waiter that is about to be removed.
    #[allow(clippy::type_complexity, reason = "the one caller takes it apart at once")]
    fn enter(
        &self,
        key: &LockKey,
    ) -> Result<Result<(watch::Receiver<Phase>, Option<i64>), watch::Receiver<()>>, Status> {
        let mut table = self.lock();
        if table.waiters.len() >= table.sweep_at.max(SWEEP_MIN) {
            self.sweep(&mut table);
        }
        if let Some(waiter) = table.waiters.get(key) {
            if waiter.closing {
                return Ok(Err(waiter.removed.subscribe()));
            }
            let is_over = match &*waiter.phase.borrow() {
                Phase::Waiting => false,
                Phase::Granted(fence) => self.service.confirm_held(key.lease, &key.lock) != Ok(Some(*fence)),
                Phase::Failed(_) => true,
            };
            if !is_over {
                return Ok(Ok((waiter.phase.clone(), None)));
            }
            table.remove(key);
        }
        let share = self.share(&mut table, key)?;
        table.last_ticket += 2;
        let ticket = table.last_ticket;
        let (sender, phase) = watch::channel(Phase::Waiting);
        let task = tokio::spawn(self.clone().ask(key.clone(), ticket, sender));
        let (closing, removed) = (false, watch::Sender::new(()));
        let (revision, task, told) = (None, Some(task), phase.clone());
        let waiter = EtcdWaiter { ticket, revision, phase: told, task, closing, removed, _share: share };
        table.waiters.insert(key.clone(), waiter);
        table.by_ticket.insert(ticket, key.clone());
        Ok(Ok((phase, Some(ticket))))
    }

    /// Counts one more waiter of the lease's owner.
    fn share(&self, table: &mut Table, key: &LockKey) -> Result<Share, Status> {
        let owner = self.service.owner(key.lease)?;
        let enter = || self.shares.enter(&owner, WAITERS_MAX);
        let found = enter().or_else(|| {
            if table.swept.is_none_or(|swept| swept.elapsed() >= SWEEP_INTERVAL) {
                self.sweep(table);
            }
            enter()
        });
        found.ok_or_else(error::too_many)
    }

    /// Asks for the lock of a waiter.
    async fn ask(self, key: LockKey, ticket: i64, phase: watch::Sender<Phase>) {
        let wanted = Wanted { mode: Mode::Exclusive, tries: false, timeout: None };
        let acquired = self.service.acquire(key.lease, &key.lock, wanted).await;
        // Nothing is awaited from here on. So a caller that ends this task finds a known lock or none.
        match acquired {
            Ok(acquired) => {
                phase.send_replace(Phase::Granted(acquired.fence));
            }
            Err(fault) => {
                phase.send_replace(Phase::Failed(fault));
                let mut table = self.lock();
                if table.waiters.get(&key).is_some_and(|waiter| waiter.ticket == ticket && !waiter.closing) {
                    table.remove(&key);
                }
            }
        }
    }

    fn begin_closing(&self, key: &LockKey, is_meant: impl Fn(&EtcdWaiter) -> bool) -> Closing {
        let mut table = self.lock();
        let Some(waiter) = table.waiters.get_mut(key) else { return Closing::None };
        if !is_meant(waiter) {
            return Closing::Other;
        }
        if waiter.closing {
            return Closing::Already(waiter.removed.subscribe());
        }
        waiter.closing = true;
        let (task, phase) = (waiter.task.take(), waiter.phase.clone());
        Closing::Begun(tokio::spawn(self.clone().close(key.clone(), phase, task)))
    }

    /// Ends a waiter. Until it is removed nobody makes it again, so that only its own grant is released.
    async fn close(self, key: LockKey, phase: watch::Receiver<Phase>, task: Option<JoinHandle<()>>) -> bool {
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
        let phase = phase.borrow().clone();
        let was_there = match phase {
            Phase::Waiting => true,
            Phase::Granted(fence) => self.service.release(key.lease, &key.lock, Some(fence)).await.unwrap_or(false),
            Phase::Failed(_) => false,
        };
        self.lock().remove(&key);
        was_there
    }

    /// Removes waiters whose leases have ended. The next sweep comes when there are twice as many.
    fn sweep(&self, table: &mut Table) {
        let is_over = |key: &LockKey, waiter: &EtcdWaiter| match &*waiter.phase.borrow() {
            Phase::Granted(fence) => self.service.confirm_held(key.lease, &key.lock) != Ok(Some(*fence)),
            _ => false,
        };
        let waiters = table.waiters.iter().filter(|(key, waiter)| !waiter.closing && is_over(key, waiter));
        let over: Vec<LockKey> = waiters.map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| table.remove(key));
        table.sweep_at = 2 * table.waiters.len();
        table.swept = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn remove(&mut self, key: &LockKey) {
        if let Some(waiter) = self.waiters.remove(key) {
            self.by_ticket.remove(&waiter.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::tests::{TestAgent, within};
    use crate::owner::Owner;
    use crate::service::LeaseId;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_waiters_of_one_client_leave_room_for_those_of_another() {
        let agent = TestAgent::start().await;
        let (etcd, hour) = (agent.etcd(), Duration::from_secs(3600));
        let waiters = &etcd.waiters;
        let lease = |user: u32| -> LeaseId {
            let granted = waiters.service.grant(None, hour, Owner::User(1_900_777_000 + user), Arc::default());
            granted.expect("a lease").id
        };
        let key = |lock: &str, lease: LeaseId| LockKey { lock: lock.into(), lease };
        let (ended, left, others) = (lease(1), lease(1), lease(2));
        within(waiters.make(&key("a", ended))).await.expect("it is free");
        let one = waiters.service.owner(left).expect("it is there");
        let all: Vec<_> = std::iter::from_fn(|| waiters.shares.enter(&one, WAITERS_MAX)).collect();
        assert_eq!(all.len(), WAITERS_MAX / 2 - 1);
        // A lease that has ended takes no room, though nobody has told its waiters.
        waiters.service.revoke(ended).expect("it is there");
        within(waiters.make(&key("b", left))).await.expect("there is room again");
        let refused = within(waiters.make(&key("c", left))).await.expect_err("it has used its share");
        assert_eq!(refused.message(), error::too_many().message());
        within(waiters.make(&key("c", others))).await.expect("there is room for others");
        drop(all);
        within(waiters.make(&key("d", left))).await.expect("there is room again");
        agent.end().await;
    }
}
