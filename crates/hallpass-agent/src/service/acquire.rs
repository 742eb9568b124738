//! One way to acquire a lock, to count how that ended, and to release it, whichever door asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hallpass::{AcquireError, AcquireOptions, Guard, Mode};
use tokio::sync::watch;
use tracing::Instrument;

use super::hold::Hold;
use super::lease::{Lease, Leases};
use super::{AcquireFault, Acquired, LEASE_LOCKS_MAX, LeaseError, LeaseId, Service, TTL_MAX, WAITS_MAX, Wanted};
use crate::account::{Account, Permit};
use crate::owner::Owner;
use crate::registry::{Counts, Origin, UseGuard};
use crate::shares::Share;
use crate::{status, telemetry};

/// The first step of a request under a lease.
enum Claim {
    /// The lease holds the lock.
    Held(u64),
    /// Another request waits for it under the same lease.
    Pending(watch::Receiver<()>),
    /// This one waits from now on.
    Ours(Pending, UseGuard, watch::Receiver<()>),
}

/// Marks a lock as waited for in a lease, until it is dropped.
struct Pending {
    leases: Arc<Leases>,
    lease: LeaseId,
    lock: Arc<str>,
    _quota: Option<Permit>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(lease) = self.leases.lock().get_mut(&self.lease) {
            lease.pending.remove(&self.lock);
            lease.changed.send_replace(());
        }
    }
}

/// Counts a request as cancelled if it is dropped before it is answered.
struct Unanswered<'a>(Option<&'a Counts>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|counts| counts.cancelled.add());
    }
}

impl Service {
    /// Acquires a lock under a lease that exists. Dropping the future leaves no waiter.
    ///
    /// A lock that the lease holds already is granted again, with the same fence. The lease does not last longer by it: a client that
    /// waits keeps it alive.
    pub(crate) async fn acquire(&self, id: LeaseId, lock: &str, wanted: Wanted) -> Result<Acquired, AcquireFault> {
        let _share = self.begin_waiting(&self.owner(id).unwrap_or_default())?;
        self.count(lock, wanted.mode, self.acquire_under(id, lock, wanted), |acquired| acquired.fence).await
    }

    /// Acquires a lock under a new lease, which begins when the lock is granted. Dropping the future leaves no waiter and no lease.
    pub(crate) async fn acquire_new(
        &self,
        ttl: Duration,
        owner: Owner,
        origin: Arc<Origin>,
        lock: &str,
        wanted: Wanted,
    ) -> Result<Acquired, AcquireFault> {
        let _share = self.begin_waiting(&owner)?;
        let acquire = async {
            let account = owner.account();
            let lease_quota = account.map(Account::enter_leases).transpose().map_err(LeaseError::from)?;
            let wait_quota = account.map(Account::enter_waits).transpose()?;
            let registration = self.shared.clients.register(origin);
            let client_use = registration.waits(lock, wanted.mode);
            let guard = self.wait(lock, wanted, wanted.timeout).await?;
            drop(wait_quota);
            let hold = Hold::new(wanted.mode, guard, client_use);
            let fence = hold.fence();
            let mut lease = Lease::new(ttl.min(TTL_MAX), self.shared.drift_ppm(), owner, lease_quota, registration);
            lease.held.insert(lock.into(), hold);
            Ok(Acquired { fence, already: false, lease: self.insert(None, lease)? })
        };
        self.count(lock, wanted.mode, acquire, |acquired| acquired.fence).await
    }

    /// Acquires a lock for a client that is shown as waiting. Dropping the future leaves no waiter.
    pub(super) async fn acquire_hold(
        &self,
        client_use: UseGuard,
        lock: &str,
        wanted: Wanted,
    ) -> Result<Hold, AcquireFault> {
        let acquire = async {
            let guard = self.wait(lock, wanted, wanted.timeout).await?;
            Ok(Hold::new(wanted.mode, guard, client_use))
        };
        self.count(lock, wanted.mode, acquire, Hold::fence).await
    }

    /// Releases a lock of a lease, unless its fence is another one: a late request never frees a newer grant. False if the lease
    /// did not hold it, or had lost it.
    pub(crate) async fn release(&self, id: LeaseId, lock: &str, fence: Option<u64>) -> Result<bool, LeaseError> {
        let hold = {
            let mut table = self.leases.lock();
            let lease = table.get_mut(&id).ok_or(LeaseError::NotFound(id))?;
            let is_meant = |hold: &Hold| fence.is_none_or(|fence| hold.fence() == fence);
            let hold = if lease.held.get(lock).is_some_and(is_meant) { lease.held.remove(lock) } else { None };
            lease.changed.send_replace(());
            hold
        };
        match hold {
            Some(hold) => Ok(hold.release().await),
            None => Ok(false),
        }
    }

    // ---- inside ----

    /// Counts a request of the API that waits.
    fn begin_waiting(&self, owner: &Owner) -> Result<Share, AcquireFault> {
        self.shared.counts.waiting.enter(owner, WAITS_MAX).ok_or(AcquireFault::TooManyWaits)
    }

    /// Acquires a lock, and counts and traces how that ends.
    async fn count<T>(
        &self,
        lock: &str,
        mode: Mode,
        acquire: impl Future<Output = Result<T, AcquireFault>>,
        fence: impl FnOnce(&T) -> u64,
    ) -> Result<T, AcquireFault> {
        let counts = &*self.shared.counts;
        let mut unanswered = Unanswered(Some(counts));
        let span = telemetry::acquire(lock, mode);
        let result = acquire.instrument(span.clone()).await;
        unanswered.0 = None;
        telemetry::acquired(&span, result.as_ref().map(fence));
        match &result {
            Ok(_) => {}
            Err(AcquireFault::Busy(_)) => counts.busy.add(),
            Err(AcquireFault::Late(_)) => counts.late.add(),
            Err(_) => counts.refused.add(),
        }
        result
    }

    async fn acquire_under(&self, id: LeaseId, lock: &str, wanted: Wanted) -> Result<Acquired, AcquireFault> {
        let end = wanted.timeout.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            match self.claim(id, lock, wanted.mode)? {
                Claim::Held(fence) => {
                    let mut table = self.table_to_tell();
                    let lease = table.get_mut(&id).ok_or(LeaseError::NotFound(id))?;
                    let ttl = self.lease_ttl(id, &mut lease.term, &lease.held)?;
                    return Ok(Acquired { fence, already: true, lease: ttl });
                }
                Claim::Pending(_) if wanted.tries => return Err(AcquireFault::Busy(None)),
                Claim::Pending(mut changed) => {
                    let limit = left.unwrap_or(Duration::MAX);
                    if tokio::time::timeout(limit, changed.changed()).await.is_err() {
                        return Err(AcquireFault::Late(None));
                    }
                }
                Claim::Ours(pending, client_use, changed) => {
                    let guard = tokio::select! {
                        biased;
                        () = closed(changed) => return Err(AcquireFault::LeaseEnded(id)),
                        guard = self.wait(lock, wanted, left) => guard?,
                    };
                    return self.hold(pending, client_use, wanted.mode, guard);
                }
            }
        }
    }

    /// Looks what the lease has to do with the lock, and marks it as waited for if that is nothing.
    fn claim(&self, id: LeaseId, lock: &str, mode: Mode) -> Result<Claim, AcquireFault> {
        let mut table = self.leases.lock();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended()).ok_or(LeaseError::NotFound(id))?;
        if let Some(held) = lease.held.get(lock) {
            if held.mode() != mode {
                return Err(AcquireFault::OtherMode(id, held.mode()));
            }
            return Ok(Claim::Held(held.fence()));
        }
        let changed = lease.changed.subscribe();
        if lease.pending.contains(lock) {
            return Ok(Claim::Pending(changed));
        }
        if lease.held.len() + lease.pending.len() >= LEASE_LOCKS_MAX {
            return Err(AcquireFault::TooManyLocks(id));
        }
        let quota = lease.owner.account().map(Account::enter_waits).transpose()?;
        let name: Arc<str> = lock.into();
        lease.pending.insert(Arc::clone(&name));
        let client_use = lease.registration.waits(lock, mode);
        let pending = Pending { leases: Arc::clone(&self.leases), lease: id, lock: name, _quota: quota };
        Ok(Claim::Ours(pending, client_use, changed))
    }

    /// Puts a lock that was granted into its lease, if that has not ended.
    fn hold(&self, pending: Pending, client_use: UseGuard, mode: Mode, guard: Guard) -> Result<Acquired, AcquireFault> {
        let (id, name, fence) = (pending.lease, Arc::clone(&pending.lock), guard.fence());
        let mut table = self.table_to_tell();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended());
        let Some(lease) = lease else {
            drop(table);
            return Err(AcquireFault::LeaseEnded(id));
        };
        // Never both: it would count twice against the lease's limit.
        lease.pending.remove(&name);
        lease.held.insert(Arc::clone(&name), Hold::new(mode, guard, client_use));
        let ttl = self.lease_ttl(id, &mut lease.term, &lease.held);
        // A client that is told that it has not got the lock must not have it.
        let refused = if ttl.is_err() { lease.held.remove(&name) } else { None };
        drop(table);
        drop((refused, pending));
        Ok(Acquired { fence, already: false, lease: ttl? })
    }

    /// Waits for a lock at the node.
    async fn wait(&self, lock: &str, wanted: Wanted, left: Option<Duration>) -> Result<Guard, AcquireFault> {
        let shared = &self.shared;
        let mut options = AcquireOptions::new(wanted.mode);
        if wanted.tries {
            options = options.try_now();
        }
        if let Some(limit) = left {
            options = options.timeout(limit);
        }
        if shared.is_ending() {
            return Err(LeaseError::Ending.into());
        }
        shared.may_grant().map_err(LeaseError::NotPersisted)?;
        // While the agent joins a group, callers wait.
        let acquire = async {
            shared.settled().await;
            shared.node().lock(lock).acquire_with(options).await
        };
        let acquired = tokio::select! {
            biased;
            acquired = acquire => acquired,
            () = shared.ends() => return Err(LeaseError::Ending.into()),
        };
        acquired.map_err(|error| match error {
            AcquireError::Busy => AcquireFault::Busy(status::why_busy(shared, lock)),
            AcquireError::Timeout => AcquireFault::Late(status::why_busy(shared, lock)),
            AcquireError::Refused(refusal) => AcquireFault::Refused(refusal),
            _ => LeaseError::Ending.into(),
        })
    }
}

/// Resolves when a lease has ended, or was withdrawn.
pub(super) async fn closed(mut changed: watch::Receiver<()>) {
    while changed.changed().await.is_ok() {}
}
