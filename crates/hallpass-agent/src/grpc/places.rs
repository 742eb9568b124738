//! Places at locks that clients made with KV transactions, as Go's `concurrency.Mutex` and `etcdctl lock` do.
//!
//! Such a client writes its key, and waits until no older key is left. The agent does not know the group's queue, and need not: a
//! task of its own asks for the lock, and until that is granted the client is shown one older key, its predecessor, which
//! is deleted by the grant.
//!
//! **Revisions.** A grant's revision is its fence. A waiter has none yet, but its client compares revisions, so it gets an even
//! number from a count of the agent, and its predecessor the odd one before. Fences are larger than all of these (they have the
//! epoch in their high bits), so that the two are never confused, and every holder's fence exceeds what was shown before it. The
//! number stays the key's create revision when the lock is granted, since the client has kept it; its mod revision is the fence then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hallpass::Mode;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;

use super::error;
use super::key::LockKey;
use super::proto::KeyValue;
use crate::service::{AcquireFault, LeaseError, Service, Wanted};

/// How long a transaction waits for its lock before the client is told to wait: what is granted meanwhile saves the client three
/// requests. Who only tries (Go's `TryLock`) waits so long for a lock that is not free.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bounds the memory that places take: some hundred bytes each.
const PLACES_MAX: usize = 100_000;
/// The least number of places at which those are looked for that hold nothing any more.
const SWEEP_MIN: usize = 1024;

/// All places of an agent. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Places {
    service: Service,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    places: BTreeMap<LockKey, Place>,
    by_ticket: BTreeMap<i64, LockKey>,
    last_ticket: i64,
    /// When there are so many, those that hold nothing any more are removed.
    sweep_at: usize,
}

#[derive(Debug)]
struct Place {
    /// Even, and no other place's: its create revision if it has to wait.
    ticket: i64,
    /// Its create revision, from when it was first told.
    revision: Option<i64>,
    phase: watch::Receiver<Phase>,
    /// Asks for the lock. None once the place is closing.
    task: Option<JoinHandle<()>>,
    /// It is about to be removed; nobody may count on it.
    closing: bool,
    /// Closed when it is removed.
    removed: watch::Sender<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Granted(u64),
    Failed(AcquireFault),
}

/// A place, as a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The create revision of its key.
    pub(super) revision: i64,
    /// None while it waits.
    pub(super) fence: Option<i64>,
}

impl Seen {
    /// What the answer says, as its own revision.
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

/// Removes a place that was made for a client which does not listen any more.
struct Made<'a> {
    places: &'a Places,
    key: &'a LockKey,
    ticket: i64,
    answered: bool,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // Without a runtime the agent has ended, and its locks with it.
        if !self.answered && tokio::runtime::Handle::try_current().is_ok() {
            self.places.begin_closing(self.key, |place| place.ticket == self.ticket);
        }
    }
}

/// What closing a place comes to.
enum Closing {
    /// There is none.
    None,
    /// There is another one than was meant.
    Other,
    /// Another request removes it.
    Already(watch::Receiver<()>),
    /// This task removes it, and returns true if the place was one.
    Begun(JoinHandle<bool>),
}

impl Places {
    pub(super) fn new(service: Service) -> Self {
        Self { service, table: Arc::default() }
    }

    /// What there is at a key.
    pub(super) fn see(&self, key: &LockKey) -> Result<Option<Seen>, Status> {
        let place = {
            let mut table = self.lock();
            match table.places.get_mut(key) {
                Some(place) if place.closing => return Ok(None),
                Some(place) => {
                    let phase = place.phase.borrow().clone();
                    let ticket = place.ticket;
                    let told = match phase {
                        Phase::Waiting => ticket,
                        Phase::Granted(fence) => fence as i64,
                        Phase::Failed(_) => return Ok(None),
                    };
                    Some((*place.revision.get_or_insert(told), phase))
                }
                None => None,
            }
        };
        if let Some((revision, Phase::Waiting)) = place {
            return Ok(Some(Seen { revision, fence: None }));
        }
        let held = match self.service.held(key.lease, &key.lock) {
            Ok(held) => held,
            Err(LeaseError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(held.map(|fence| {
            // One that was granted since, in another way, is another key.
            let made = place.filter(|(_, phase)| *phase == Phase::Granted(fence));
            Seen { revision: made.map_or(fence as i64, |(revision, _)| revision), fence: Some(fence as i64) }
        }))
    }

    /// Which place was told to wait with this create revision.
    pub(super) fn of_ticket(&self, lock: &str, revision: i64) -> Option<LockKey> {
        self.lock().by_ticket.get(&revision).filter(|key| *key.lock == *lock).cloned()
    }

    /// Makes a place, and waits a moment for its lock. Dropping the future removes it again.
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
            let mut made = ticket.map(|ticket| Made { places: self, key, ticket, answered: false });
            let decided = phase.wait_for(|phase| *phase != Phase::Waiting);
            let _ = tokio::time::timeout(PATIENCE, decided).await;
            if let Phase::Failed(fault) = &*phase.borrow() {
                return Err(fault.clone().into());
            }
            let seen = self.see(key)?.ok_or_else(error::lease_not_found)?;
            made.iter_mut().for_each(|made| made.answered = true);
            return Ok(seen);
        }
    }

    /// Deletes a key, and with it the place: false if there was none, or another than was seen. What is begun is finished though
    /// nobody waits for it.
    pub(super) async fn delete(&self, key: &LockKey, seen: Option<Seen>) -> Result<bool, Status> {
        let is_meant = |place: &Place| seen.is_none_or(|seen| place.revision == Some(seen.revision));
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

    /// Resolves when the place does not wait any more: its predecessor is gone.
    pub(super) async fn wait(&self, key: &LockKey) {
        let phase = self.lock().places.get(key).map(|place| place.phase.clone());
        if let Some(mut phase) = phase {
            let _ = phase.wait_for(|phase| *phase != Phase::Waiting).await;
        }
    }

    /// Resolves when the key is gone.
    pub(super) async fn gone(&self, key: &LockKey) {
        loop {
            self.wait(key).await;
            let Ok(mut changes) = self.service.changes(key.lease) else { return };
            match self.see(key) {
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
        let waits = |key: &LockKey| table.places.get(key).is_some_and(|place| *place.phase.borrow() == Phase::Waiting);
        table.by_ticket.values().filter(|key| *key.lock == *lock && waits(key)).cloned().collect()
    }

    /// The keys of a lease that wait.
    pub(super) fn waiting(&self, lease: crate::service::LeaseId) -> Vec<LockKey> {
        let table = self.lock();
        let waits = |place: &Place| *place.phase.borrow() == Phase::Waiting && !place.closing;
        table
            .places
            .iter()
            .filter(|(key, place)| key.lease == lease && waits(place))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// How many places there are that hold or wait, and tickets of them: as many.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        let mut table = self.lock();
        self.sweep(&mut table);
        (table.places.len(), table.by_ticket.len())
    }

    // ---- inside ----

    /// Finds the place, or makes one: then its ticket comes with it. The inner error is a place that is about to be removed.
    #[allow(clippy::type_complexity, reason = "the one caller takes it apart at once")]
    fn enter(
        &self,
        key: &LockKey,
    ) -> Result<Result<(watch::Receiver<Phase>, Option<i64>), watch::Receiver<()>>, Status> {
        let mut table = self.lock();
        if table.places.len() >= table.sweep_at.max(SWEEP_MIN) {
            self.sweep(&mut table);
        }
        if let Some(place) = table.places.get(key) {
            if place.closing {
                return Ok(Err(place.removed.subscribe()));
            }
            let is_over = match &*place.phase.borrow() {
                Phase::Waiting => false,
                Phase::Granted(fence) => self.service.held(key.lease, &key.lock) != Ok(Some(*fence)),
                Phase::Failed(_) => true,
            };
            if !is_over {
                return Ok(Ok((place.phase.clone(), None)));
            }
            table.remove(key);
        }
        if table.places.len() >= PLACES_MAX {
            return Err(error::too_many());
        }
        table.last_ticket += 2;
        let ticket = table.last_ticket;
        let (sender, phase) = watch::channel(Phase::Waiting);
        let task = tokio::spawn(self.clone().ask(key.clone(), ticket, sender));
        let (closing, removed) = (false, watch::Sender::new(()));
        let place = Place { ticket, revision: None, phase: phase.clone(), task: Some(task), closing, removed };
        table.places.insert(key.clone(), place);
        table.by_ticket.insert(ticket, key.clone());
        Ok(Ok((phase, Some(ticket))))
    }

    /// Asks for the lock of a place.
    async fn ask(self, key: LockKey, ticket: i64, phase: watch::Sender<Phase>) {
        let wanted = Wanted { mode: Mode::Exclusive, tries: false, timeout: None };
        let acquired = self.service.acquire(key.lease, &key.lock, wanted).await;
        // Nothing is awaited from here on: whoever ends this task finds either a lock that is known, or none.
        match acquired {
            Ok(acquired) => {
                phase.send_replace(Phase::Granted(acquired.fence));
            }
            Err(fault) => {
                phase.send_replace(Phase::Failed(fault));
                let mut table = self.lock();
                if table.places.get(&key).is_some_and(|place| place.ticket == ticket && !place.closing) {
                    table.remove(&key);
                }
            }
        }
    }

    fn begin_closing(&self, key: &LockKey, is_meant: impl Fn(&Place) -> bool) -> Closing {
        let mut table = self.lock();
        let Some(place) = table.places.get_mut(key) else { return Closing::None };
        if !is_meant(place) {
            return Closing::Other;
        }
        if place.closing {
            return Closing::Already(place.removed.subscribe());
        }
        place.closing = true;
        let (task, phase) = (place.task.take(), place.phase.clone());
        Closing::Begun(tokio::spawn(self.clone().close(key.clone(), phase, task)))
    }

    /// Ends a place. Until it is removed nobody makes it again, so that only its own grant is released.
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

    /// Removes places that hold nothing any more: their leases have ended. It is done again when there are twice as many.
    fn sweep(&self, table: &mut Table) {
        let is_over = |key: &LockKey, place: &Place| match &*place.phase.borrow() {
            Phase::Granted(fence) => self.service.held(key.lease, &key.lock) != Ok(Some(*fence)),
            _ => false,
        };
        let places = table.places.iter().filter(|(key, place)| !place.closing && is_over(key, place));
        let over: Vec<LockKey> = places.map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| table.remove(key));
        table.sweep_at = 2 * table.places.len();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn remove(&mut self, key: &LockKey) {
        if let Some(place) = self.places.remove(key) {
            self.by_ticket.remove(&place.ticket);
        }
    }
}
