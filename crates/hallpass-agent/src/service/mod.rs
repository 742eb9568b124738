//! What all front doors of an agent stand on: leases, what clients hold, and events.
//!
//! A client of the Unix socket is its connection: what it holds ends with that. A client that comes over HTTP or gRPC has a
//! **lease** instead, and keeps it alive.
//!
//! - **In**: [`grant`](Service::grant), [`keepalive`](Service::keepalive), [`revoke`](Service::revoke),
//!   [`acquire`](Service::acquire) and [`release`](Service::release) under a lease, [`acquire_new`](Service::acquire_new) with a lease of
//!   its own.
//! - **Out**: [`time_to_live`](Service::time_to_live), [`leases`](Service::leases), [`subscribe`](Service::subscribe).
//!
//! **Every ttl that a client is told counts from when the client sent the request that it answers.** So:
//!
//! 1. It is never longer than what is left of the client's lease, of the validity of the guards and of the node's session, and until the
//!    end of an agent that ends, less the drift of clocks. An agent that is cut off or killed needs to tell nobody: its clients end first.
//!    [`Service::told`] alone makes a [`Told`], and no door makes a ttl of anything else.
//! 2. A lock that was waited for counts from the client's next keepalive, since the wait may have taken longer than the ttl.
//! 3. A lease ends, and its locks pass on, only when its whole ttl and the drift are over since the last keepalive *came in*.
//! 4. Before a deadline is told, [`State::prepare_to_tell`] has written down how long the next agent must wait if this one is killed; where
//!    that cannot be written, nothing longer is told than what was, and nothing is granted. [`Node::promise`](hallpass::Node::promise) makes an
//!    operator's break wait for what is told.
//! 5. A lease that has lost one lock has ended, with all of them: its next keepalive is answered 'not found', the one word that every
//!    client listens to. The locks that it still holds are free then, since no ttl outlasted the one that was lost.

pub(crate) mod clients;
pub(crate) mod counts;
pub(crate) mod events;
mod lease;
mod watcher;

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use hallpass::{AcquireError, AcquireOptions, GroupError, Guard, Mode, Refusal};
use hallpass_node::leases::{Bounds, LeaseTerm, Promise};
use tokio::sync::{broadcast, watch};
use tracing::{Instrument, Span};

pub(crate) use self::clients::{Clients, Entry, Origin, Used};
pub(crate) use self::events::{Event, Events, Kind};
use self::lease::{Held, Lease};
pub(crate) use self::lease::{LeaseId, Leases};
pub(crate) use self::watcher::Watcher;
use crate::agent::State;
use crate::{audit, os, status, telemetry};

/// Bounds the memory that leases take: some hundred bytes each, and their locks.
const LEASES_MAX: usize = 100_000;
/// Bounds what one lease can hold or wait for, so that ending one does not take long.
const LEASE_LOCKS_MAX: usize = 10_000;
/// How many requests of the API may wait for locks at a time: each takes a task and a connection or stream.
const WAITS_MAX: usize = 20_000;
/// The longest a lease can last without being kept alive: etcd's limit, in seconds. Every lease ends with its agent.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(9_000_000_000);
/// What is shorter is over on the way.
const TOLD_MIN: Duration = Duration::from_millis(1);
/// How late clients that count whole seconds may notice that theirs are over: Go's looks twice a second.
const SECONDS_LATE: Duration = Duration::from_millis(500);
/// Where sessions are shorter, too few whole seconds would be left if that were always taken off.
const SECONDS_SESSION_MIN: Duration = Duration::from_secs(3);

/// Leases and locks of one agent's clients. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    state: Arc<State>,
}

/// A lease, as its client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) id: LeaseId,
    /// How long it lasts from keepalive to keepalive.
    pub(crate) granted: Duration,
    promise: Promise,
    /// How long a session lasts.
    session: Duration,
}

impl Told {
    /// How long the client may count on it, from when it sent its request.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.promise.ttl())
    }

    /// The same in milliseconds.
    pub(crate) fn millis(&self) -> u64 {
        self.ttl().as_millis() as u64
    }

    /// The same in whole seconds, for clients that look at them now and then: 0 if they would look too late. Where sessions are too short for
    /// that they get what there is.
    pub(crate) fn seconds(&self) -> u64 {
        match self.ttl().saturating_sub(SECONDS_LATE).as_secs() {
            0 if self.session < SECONDS_SESSION_MIN => self.ttl().as_secs(),
            seconds => seconds,
        }
    }
}

/// A lease, for whoever asks about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseInfo {
    pub(crate) id: LeaseId,
    pub(crate) granted: Duration,
    /// What its client may count on, unless that is nothing at present.
    pub(crate) told: Option<Told>,
    pub(crate) owner: Option<Arc<str>>,
    pub(crate) origin: Arc<Origin>,
    /// By name.
    pub(crate) locks: Vec<HeldInfo>,
}

/// A lock that is held under a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldInfo {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) fence: u64,
    pub(crate) at_risk: bool,
    pub(crate) broken: bool,
}

/// A lock that was acquired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acquired {
    pub(crate) fence: u64,
    /// It was held under this lease before.
    pub(crate) already: bool,
    pub(crate) lease: Told,
}

/// How a client wants a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) mode: Mode,
    /// Only if it is free now.
    pub(crate) tries: bool,
    pub(crate) timeout: Option<Duration>,
}

/// Why a lease is not there. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LeaseError {
    /// It has never been, has ended, or was lost.
    #[error(
        "there is no lease {0}: it was not kept alive, has lost a lock or was released, or the agent was restarted"
    )]
    NotFound(LeaseId),
    /// Another one has this id.
    #[error("lease {0} exists already; choose another id, or none")]
    Exists(LeaseId),
    /// There are too many.
    #[error("there are {LEASES_MAX} leases already; try again when some have ended")]
    TooMany,
    /// The node has no session at present, so that nothing can be promised.
    #[error("the agent is not in touch with its group: {0}; try again")]
    NoSession(String),
    /// The agent cannot write down for how long the next one would have to wait.
    #[error(
        "the agent cannot write to its data directory, so it grants nothing: {0}; make room there, or see to the disk"
    )]
    Uncovered(String),
    /// The agent ends.
    #[error("the agent was ended")]
    Ending,
}

/// Why a lock was not acquired. Nobody waits for it any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum AcquireFault {
    /// The lock is not free, and the client only tried.
    #[error("the lock is not free{}", because(.0))]
    Busy(Option<String>),
    /// The lock was not free in time.
    #[error("the lock was not free in time{}", because(.0))]
    Late(Option<String>),
    /// The lease is not there, or there cannot be one.
    #[error("{0}")]
    Lease(#[from] LeaseError),
    /// The lease has ended while the client waited.
    #[error("lease {0} has ended while the lock was waited for")]
    LeaseEnded(LeaseId),
    /// The lease holds the lock in the other mode.
    #[error("lease {0} holds the lock in {1} mode already; release it first, or take another lease")]
    OtherMode(LeaseId, Mode),
    /// The lease holds too much.
    #[error("lease {0} holds or waits for {LEASE_LOCKS_MAX} locks already; take another lease")]
    TooManyLocks(LeaseId),
    /// Too many wait.
    #[error("{WAITS_MAX} requests wait for locks already; try again later")]
    TooManyWaits,
    /// The node does not take the request.
    #[error("{0}")]
    Refused(Refusal),
}

fn because(why: &Option<String>) -> String {
    why.as_ref().map_or_else(String::new, |why| format!(": {why}"))
}

/// What becomes of a request under a lease.
enum Claim {
    /// The lease holds the lock.
    Held(u64),
    /// Another request waits for it under the same lease.
    Pending(watch::Receiver<()>),
    /// This one waits from now on.
    Ours(Pending, Used, watch::Receiver<()>),
}

/// A request's mark in its lease, until it is dropped.
struct Pending {
    state: Arc<State>,
    lease: LeaseId,
    lock: Arc<str>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(lease) = self.state.leases.lock().get_mut(&self.lease) {
            lease.pending.remove(&self.lock);
            lease.changed.send_replace(());
        }
    }
}

/// Counts a request that waits. Dropped before the end, it was cancelled.
struct Wait<'a> {
    state: &'a State,
    answered: bool,
}

impl<'a> Wait<'a> {
    fn begin(state: &'a State) -> Result<Self, AcquireFault> {
        if !state.counts.waiting.enter(WAITS_MAX) {
            return Err(AcquireFault::TooManyWaits);
        }
        Ok(Self { state, answered: false })
    }

    fn end(mut self) {
        self.answered = true;
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.state.counts.waiting.leave();
        if !self.answered {
            self.state.counts.cancelled.add();
        }
    }
}

impl Service {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    // ---- leases ----

    /// Makes a lease that holds nothing yet. Without an id it gets one of its own.
    pub(crate) fn grant(
        &self,
        id: Option<LeaseId>,
        ttl: Duration,
        owner: Option<Arc<str>>,
        origin: Arc<Origin>,
    ) -> Result<Told, LeaseError> {
        let entry = Entry::new(Arc::clone(&self.state), origin);
        let lease = Lease::new(ttl.min(TTL_MAX), self.state.drift_ppm(), owner, entry);
        self.insert(id, lease)
    }

    /// Keeps a lease alive, and tells for how long.
    pub(crate) fn keepalive(&self, id: LeaseId) -> Result<Told, LeaseError> {
        let drift_ppm = self.state.drift_ppm();
        let mut table = self.table_to_tell();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended()).ok_or(LeaseError::NotFound(id))?;
        let mut renewed = lease.term.renewed(os::now(), drift_ppm);
        let told = self.told(id, &mut renewed, &lease.held)?;
        lease.term = renewed;
        self.state.counts.leases_kept.add();
        Ok(told)
    }

    /// Ends a lease, and releases what it holds: names and fences.
    pub(crate) fn revoke(&self, id: LeaseId) -> Result<Vec<(String, u64)>, LeaseError> {
        let ended = self.state.leases.lock().remove(&id).ok_or(LeaseError::NotFound(id))?;
        self.state.counts.leases_revoked.add();
        Ok(ended.held.iter().map(|(name, held)| (name.to_string(), held.guard.fence())).collect())
    }

    /// A lease and what it holds. Asking does not keep it alive.
    pub(crate) fn time_to_live(&self, id: LeaseId) -> Result<LeaseInfo, LeaseError> {
        let mut table = self.table_to_tell();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended()).ok_or(LeaseError::NotFound(id))?;
        let ending = self.is_ending();
        let locks = lease.held.iter().map(|(name, held)| HeldInfo {
            name: name.to_string(),
            mode: held.mode,
            fence: held.guard.fence(),
            at_risk: ending || held.guard.is_at_risk(),
            broken: held.guard.is_broken(),
        });
        Ok(LeaseInfo {
            id,
            granted: lease.granted(),
            told: self.told(id, &mut lease.term, &lease.held).ok(),
            owner: lease.owner.clone(),
            origin: Arc::clone(lease.entry.origin()),
            locks: locks.collect(),
        })
    }

    /// Whose lease it is, where clients have names.
    pub(crate) fn owner(&self, id: LeaseId) -> Result<Option<Arc<str>>, LeaseError> {
        self.state.leases.lock().get(&id).map(|lease| lease.owner.clone()).ok_or(LeaseError::NotFound(id))
    }

    /// All leases, in rising order.
    pub(crate) fn leases(&self) -> Vec<LeaseId> {
        self.state.leases.lock().keys().copied().collect()
    }

    /// The rare events of the past, and all that follow. A subscriber that is too far behind misses some.
    pub(crate) fn subscribe(&self) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        self.state.events.subscribe()
    }

    // ---- locks ----

    /// Acquires a lock under a lease that exists. Dropping the future leaves no waiter.
    ///
    /// A lock that the lease holds already is granted again, with the same fence. The lease does not last longer by it: whoever
    /// waits keeps it alive.
    pub(crate) async fn acquire(&self, id: LeaseId, lock: &str, wanted: Wanted) -> Result<Acquired, AcquireFault> {
        let wait = Wait::begin(&self.state)?;
        let span = telemetry::acquire(lock, wanted.mode);
        let result = self.acquire_under(id, lock, wanted).instrument(span.clone()).await;
        wait.end();
        self.count(&span, &result);
        result
    }

    /// Acquires a lock under a new lease, which begins when the lock is granted. Dropping the future leaves no waiter and no lease.
    pub(crate) async fn acquire_new(
        &self,
        ttl: Duration,
        owner: Option<Arc<str>>,
        origin: Arc<Origin>,
        lock: &str,
        wanted: Wanted,
    ) -> Result<Acquired, AcquireFault> {
        let wait = Wait::begin(&self.state)?;
        let span = telemetry::acquire(lock, wanted.mode);
        let result = async {
            let entry = Entry::new(Arc::clone(&self.state), origin);
            let mut used = entry.waits(lock, wanted.mode);
            let guard = self.wait(lock, wanted, wanted.timeout).await?;
            let fence = guard.fence();
            used.granted(fence);
            let mut lease = Lease::new(ttl.min(TTL_MAX), self.state.drift_ppm(), owner, entry);
            lease.held.insert(lock.into(), Held::new(wanted.mode, guard, used));
            Ok(Acquired { fence, already: false, lease: self.insert(None, lease)? })
        }
        .instrument(span.clone())
        .await;
        wait.end();
        self.count(&span, &result);
        result
    }

    /// Releases a lock of a lease, unless its fence is another one: a late request never frees a newer grant. False if the lease
    /// did not hold it, or had lost it.
    pub(crate) async fn release(&self, id: LeaseId, lock: &str, fence: Option<u64>) -> Result<bool, LeaseError> {
        let held = {
            let mut table = self.state.leases.lock();
            let lease = table.get_mut(&id).ok_or(LeaseError::NotFound(id))?;
            let is_meant = |held: &Held| fence.is_none_or(|fence| held.guard.fence() == fence);
            let held = if lease.held.get(lock).is_some_and(is_meant) { lease.held.remove(lock) } else { None };
            lease.changed.send_replace(());
            held
        };
        let Some(Held { guard, used, .. }) = held else { return Ok(false) };
        let released = guard.release().await.is_ok();
        drop(used);
        Ok(released)
    }

    /// The fence of a lock that a lease holds for certain at this moment.
    pub(crate) fn held(&self, id: LeaseId, lock: &str) -> Result<Option<u64>, LeaseError> {
        let mut table = self.table_to_tell();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended()).ok_or(LeaseError::NotFound(id))?;
        let Some(fence) = lease.held.get(lock).map(|held| held.guard.fence()) else { return Ok(None) };
        self.told(id, &mut lease.term, &lease.held).map(|_| Some(fence))
    }

    /// The agent ends: what is held is to be released.
    pub(crate) fn is_ending(&self) -> bool {
        *self.state.ending.borrow()
    }

    /// Changes with what a lease holds and waits for; closed when the lease ends.
    pub(crate) fn changes(&self, id: LeaseId) -> Result<watch::Receiver<()>, LeaseError> {
        self.state.leases.lock().get(&id).map(|lease| lease.changed.subscribe()).ok_or(LeaseError::NotFound(id))
    }

    // ---- what operators do ----

    /// Takes a lock from whoever holds it. It is done, and noted in the log, also if whoever asked is gone.
    pub(crate) async fn break_lock(&self, lock: &str, limit: Duration, by: &Arc<Origin>) -> Result<(), GroupError> {
        let (state, lock, by) = (Arc::clone(&self.state), lock.to_owned(), Arc::clone(by));
        finish(async move {
            let done = state.node().break_lock(lock.as_str(), limit).await;
            audit::breaks(&lock, &by, &done);
            done
        })
        .await
    }

    /// Removes a member, as [`break_lock`](Self::break_lock).
    pub(crate) async fn evict(
        &self,
        (id, name): (u32, &str),
        ban: bool,
        limit: Duration,
        by: &Arc<Origin>,
    ) -> Result<(), GroupError> {
        let (state, member, by) = (Arc::clone(&self.state), name.to_owned(), Arc::clone(by));
        finish(async move {
            let done = state.node().evict(id, ban, limit).await;
            audit::evicts(&member, ban, &by, &done);
            if done.is_ok() {
                state.events.send(Kind::Evicted, || Event { member: Some(member), ..Event::default() });
            }
            done
        })
        .await
    }

    // ---- inside ----

    fn count(&self, span: &Span, result: &Result<Acquired, AcquireFault>) {
        telemetry::acquired(span, result.as_ref().map(|acquired| acquired.fence));
        let counts = &self.state.counts;
        match result {
            Ok(_) => {}
            Err(AcquireFault::Busy(_)) => counts.busy.add(),
            Err(AcquireFault::Late(_)) => counts.late.add(),
            Err(_) => counts.refused.add(),
        }
    }

    async fn acquire_under(&self, id: LeaseId, lock: &str, wanted: Wanted) -> Result<Acquired, AcquireFault> {
        let end = wanted.timeout.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            match self.claim(id, lock, wanted.mode)? {
                Claim::Held(fence) => {
                    let mut table = self.table_to_tell();
                    let lease = table.get_mut(&id).ok_or(LeaseError::NotFound(id))?;
                    let told = self.told(id, &mut lease.term, &lease.held)?;
                    return Ok(Acquired { fence, already: true, lease: told });
                }
                Claim::Pending(_) if wanted.tries => return Err(AcquireFault::Busy(None)),
                Claim::Pending(mut changed) => {
                    let limit = left.unwrap_or(Duration::MAX);
                    if tokio::time::timeout(limit, changed.changed()).await.is_err() {
                        return Err(AcquireFault::Late(None));
                    }
                }
                Claim::Ours(pending, used, changed) => {
                    let guard = tokio::select! {
                        biased;
                        () = closed(changed) => return Err(AcquireFault::LeaseEnded(id)),
                        guard = self.wait(lock, wanted, left) => guard?,
                    };
                    return self.hold(pending, used, wanted.mode, guard);
                }
            }
        }
    }

    /// Looks what the lease has to do with the lock, and marks it as waited for if that is nothing.
    fn claim(&self, id: LeaseId, lock: &str, mode: Mode) -> Result<Claim, AcquireFault> {
        let mut table = self.state.leases.lock();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended()).ok_or(LeaseError::NotFound(id))?;
        if let Some(held) = lease.held.get(lock) {
            if held.mode != mode {
                return Err(AcquireFault::OtherMode(id, held.mode));
            }
            return Ok(Claim::Held(held.guard.fence()));
        }
        let changed = lease.changed.subscribe();
        if lease.pending.contains(lock) {
            return Ok(Claim::Pending(changed));
        }
        if lease.held.len() + lease.pending.len() >= LEASE_LOCKS_MAX {
            return Err(AcquireFault::TooManyLocks(id));
        }
        let name: Arc<str> = lock.into();
        lease.pending.insert(Arc::clone(&name));
        let used = lease.entry.waits(lock, mode);
        Ok(Claim::Ours(Pending { state: Arc::clone(&self.state), lease: id, lock: name }, used, changed))
    }

    /// Puts a lock that was granted into its lease, if that has not ended.
    fn hold(&self, pending: Pending, mut used: Used, mode: Mode, guard: Guard) -> Result<Acquired, AcquireFault> {
        let (id, name, fence) = (pending.lease, Arc::clone(&pending.lock), guard.fence());
        let mut table = self.table_to_tell();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended());
        let Some(lease) = lease else {
            drop(table);
            return Err(AcquireFault::LeaseEnded(id));
        };
        used.granted(fence);
        // Never both: it would count twice against the lease's limit.
        lease.pending.remove(&name);
        lease.held.insert(Arc::clone(&name), Held::new(mode, guard, used));
        let told = self.told(id, &mut lease.term, &lease.held);
        // Whoever is told that it has not got the lock must not have it.
        let refused = if told.is_err() { lease.held.remove(&name) } else { None };
        drop(table);
        drop((refused, pending));
        Ok(Acquired { fence, already: false, lease: told? })
    }

    /// Waits for a lock at the node.
    async fn wait(&self, lock: &str, wanted: Wanted, left: Option<Duration>) -> Result<Guard, AcquireFault> {
        let state = &self.state;
        let mut options = AcquireOptions::new(wanted.mode);
        if wanted.tries {
            options = options.try_now();
        }
        if let Some(limit) = left {
            options = options.timeout(limit);
        }
        if self.is_ending() {
            return Err(LeaseError::Ending.into());
        }
        state.may_grant().map_err(LeaseError::Uncovered)?;
        // While the agent joins a group, callers wait.
        let acquire = async {
            state.is_settled().await;
            state.node().lock(lock).acquire_with(options).await
        };
        let acquired = tokio::select! {
            biased;
            acquired = acquire => acquired,
            () = state.ends() => return Err(LeaseError::Ending.into()),
        };
        acquired.map_err(|error| match error {
            AcquireError::Busy => AcquireFault::Busy(status::why_busy(state, lock)),
            AcquireError::Timeout => AcquireFault::Late(status::why_busy(state, lock)),
            AcquireError::Refused(refusal) => AcquireFault::Refused(refusal),
            _ => LeaseError::Ending.into(),
        })
    }

    /// The leases, to [tell](Self::told) a client of one.
    fn table_to_tell(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Lease>> {
        // Not with the table, which all clients need.
        self.state.prepare_to_tell();
        self.state.leases.lock()
    }

    /// Puts a new lease into the table, and tells its client for how long.
    fn insert(&self, id: Option<LeaseId>, mut lease: Lease) -> Result<Told, LeaseError> {
        if self.is_ending() {
            return Err(LeaseError::Ending);
        }
        self.state.may_grant().map_err(LeaseError::Uncovered)?;
        let mut table = self.state.leases.lock();
        if table.len() >= LEASES_MAX {
            // The guards are dropped without the table.
            drop(table);
            return Err(LeaseError::TooMany);
        }
        let id = match id {
            Some(id) if table.contains_key(&id) => return Err(LeaseError::Exists(id)),
            Some(id) => id,
            None => std::iter::repeat_with(LeaseId::random)
                .take(100)
                .flatten()
                .find(|id| !table.contains_key(id))
                .ok_or_else(|| LeaseError::NoSession("the system gives no random numbers".to_owned()))?,
        };
        let told = self.told(id, &mut lease.term, &lease.held)?;
        table.insert(id, lease);
        drop(table);
        self.state.counts.leases_granted.add();
        self.state.leases.look();
        Ok(told)
    }

    /// For how long the client of a lease may count on it, from when its request came in.
    fn told(&self, id: LeaseId, term: &mut LeaseTerm, held: &BTreeMap<Arc<str>, Held>) -> Result<Told, LeaseError> {
        let state = &self.state;
        let (node, now) = (state.node(), os::now());
        // Before the guards are looked at: one that is broken after this look waits for what is told.
        node.promise(state.ttl().min(Duration::from_nanos(term.deadline().saturating_sub(now))));
        let bounds = state.bounds(held.values().map(|held| &held.guard));
        let session = node.session_left().map(|left| now.saturating_add(left.as_nanos() as u64));
        let held_until = [bounds.held_until, session].into_iter().flatten().min();
        let promise = term.promise(now, &Bounds { held_until, ..bounds });
        let (granted, session) = (Duration::from_nanos(term.granted()), Duration::from_nanos(bounds.session));
        let told = promise.map(|promise| Told { id, granted, promise, session });
        told.filter(|told| told.ttl() >= TOLD_MIN).ok_or_else(|| {
            if held.is_empty() { LeaseError::NoSession(why_no_session(state)) } else { LeaseError::NotFound(id) }
        })
    }
}

/// Goes on to the end, whether or not it is waited for.
async fn finish(work: impl Future<Output = Result<(), GroupError>> + Send + 'static) -> Result<(), GroupError> {
    // A task that is not awaited to its end was cut off with the runtime.
    tokio::spawn(work).await.unwrap_or(Err(GroupError::Stopped))
}

/// Resolves when a lease has ended.
async fn closed(mut changed: watch::Receiver<()>) {
    while changed.changed().await.is_ok() {}
}

fn why_no_session(state: &State) -> String {
    state.node().status().waits_for.unwrap_or_else(|| "its session has just ended".to_owned())
}

#[cfg(test)]
mod tests;
