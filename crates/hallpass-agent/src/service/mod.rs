//! The base of all front doors of an agent: leases, the locks that clients hold, and events.
//!
//! The locks of a client of the Unix socket end with its connection ([`ConnectionHolds`]). A client that comes over HTTP or gRPC has a
//! **lease** instead, and keeps it alive. Both acquire, count, report deadlines and release in one way: [`acquire`], [`hold`], [`ttl`].
//!
//! - **In**: [`grant`](Service::grant), [`keepalive`](Service::keepalive), [`revoke`](Service::revoke),
//!   [`acquire`](Service::acquire) and [`release`](Service::release) under a lease, [`acquire_new`](Service::acquire_new) with a lease of
//!   its own, [`ConnectionHolds::acquire`] and [`ConnectionHolds::release`] without one.
//! - **Out**: [`promise_lease`](Service::promise_lease), [`leases`](Service::leases), [`subscribe`](Service::subscribe).
//!
//! **Every ttl that a client is told counts from when the client sent the request that it answers.** So:
//!
//! 1. It is never longer than what is left of the client's lease, of the validity of the guards and of the node's session, less the
//!    drift of clocks. If the agent ends it is not longer than until that end. An agent that is cut off or killed needs to tell nobody: its clients end first.
//!    [`Service::lease_ttl`] alone makes a [`LeaseTtl`], and no door makes a ttl of anything else.
//! 2. A lock that was waited for counts from the client's next keepalive, since the wait may have taken longer than the ttl.
//! 3. A lease ends, and its locks pass on, only when its whole ttl and the drift are over since the last keepalive *came in*.
//! 4. Before a deadline is told, [`AgentShared::prepare_to_tell`] has written down how long the next agent must wait if this one is
//!    killed. Where that cannot be written, nothing longer is told than what was, and nothing is granted. [`Node::promise`](hallpass::Node::promise) makes an
//!    operator's break wait for what is told.
//! 5. A lease that somebody else ends, or whose token is taken back, is *withdrawn*: nobody keeps it alive or acquires under it any more.
//!    Its locks pass on when what its client was told is over.
//! 6. A lease that has lost one lock has ended, with all of them: its next keepalive is answered 'not found', the one word that every
//!    client listens to. The locks that it still holds are free then, since no ttl outlasted the one that was lost.

mod acquire;
mod connection;
mod error;
mod hold;
mod lease;
mod operators;
mod ttl;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use hallpass::Mode;
use tokio::sync::{broadcast, watch};

use self::acquire::closed;
pub(crate) use self::connection::{ConnectionHolds, News};
pub(crate) use self::error::{AcquireFault, LeaseError};
pub(crate) use self::hold::Hold;
pub(crate) use self::lease::LeaseId;
use self::lease::{Lease, Leases};
pub(crate) use self::ttl::LeaseTtl;
pub(crate) use self::watcher::Watcher;
use crate::account::Account;
use crate::os;
use crate::owner::Owner;
use crate::registry::{Event, Origin};
use crate::shared::AgentShared;
use crate::tokens::TokenFile;

/// Bounds the memory that leases take: some hundred bytes each, and their locks.
const LEASES_MAX: usize = 100_000;
/// Bounds what one lease can hold or wait for, so that ending one does not take long.
const LEASE_LOCKS_MAX: usize = 10_000;
/// How many requests of the API may wait for locks at a time: each takes a task and a connection or stream.
const WAITS_MAX: usize = 20_000;
/// The longest a lease can last without being kept alive: etcd's limit, in seconds. Every lease ends with its agent.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(9_000_000_000);

/// Leases and locks of one agent's clients. A clone serves the same clients.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    shared: Arc<AgentShared>,
    leases: Arc<Leases>,
    tokens: Option<Arc<TokenFile>>,
}

/// A lease, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseInfo {
    pub(crate) id: LeaseId,
    pub(crate) granted: Duration,
    /// For how long its client may count on it; none if it may not at present.
    pub(crate) ttl: Option<LeaseTtl>,
    pub(crate) owner: Owner,
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
    pub(crate) lease: LeaseTtl,
}

/// How a client wants a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) mode: Mode,
    /// Only if it is free now.
    pub(crate) tries: bool,
    pub(crate) timeout: Option<Duration>,
}

impl Service {
    /// With a file of tokens, leases end when the token is taken back that made them.
    pub(crate) fn new(shared: Arc<AgentShared>, tokens: Option<Arc<TokenFile>>) -> Self {
        Self { shared, leases: Arc::default(), tokens }
    }

    pub(crate) fn shared(&self) -> &Arc<AgentShared> {
        &self.shared
    }

    /// The agent ends: what is held is to be released.
    pub(crate) fn is_ending(&self) -> bool {
        self.shared.is_ending()
    }

    // ---- leases ----

    /// Makes a lease that holds nothing yet. Without an id it gets one of its own.
    pub(crate) fn grant(
        &self,
        id: Option<LeaseId>,
        ttl: Duration,
        owner: Owner,
        origin: Arc<Origin>,
    ) -> Result<LeaseTtl, LeaseError> {
        let quota = owner.account().map(Account::enter_leases).transpose()?;
        let registration = self.shared.clients.register(origin);
        let lease = Lease::new(ttl.min(TTL_MAX), self.shared.drift_ppm(), owner, quota, registration);
        self.insert(id, lease)
    }

    /// Keeps a lease alive, and tells for how long.
    pub(crate) fn keepalive(&self, id: LeaseId) -> Result<LeaseTtl, LeaseError> {
        let drift_ppm = self.shared.drift_ppm();
        let mut table = self.table_to_tell();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended()).ok_or(LeaseError::NotFound(id))?;
        let mut renewed = lease.term.renewed(os::now(), drift_ppm);
        let ttl = self.lease_ttl(id, &mut renewed, &lease.held)?;
        lease.term = renewed;
        self.shared.counts.leases_kept.add();
        Ok(ttl)
    }

    /// Ends a lease for its client, and releases what it holds: names and fences.
    pub(crate) fn revoke(&self, id: LeaseId) -> Result<Vec<(String, u64)>, LeaseError> {
        let ended = self.leases.lock().remove(&id).ok_or(LeaseError::NotFound(id))?;
        self.shared.counts.leases_revoked.add();
        Ok(ended.fences())
    }

    /// Ends a lease for somebody else. Returns when its client has stopped counting on its locks, and they are released: names and fences.
    pub(crate) async fn withdraw(&self, id: LeaseId) -> Result<Vec<(String, u64)>, LeaseError> {
        let (locks, over) = {
            let mut table = self.leases.lock();
            let lease = table.get_mut(&id).filter(|lease| !lease.has_ended()).ok_or(LeaseError::NotFound(id))?;
            lease.withdraw("an operator has ended it");
            (lease.fences(), lease.changed.subscribe())
        };
        self.leases.look();
        closed(over).await;
        Ok(locks)
    }

    /// Ends the leases whose tokens were taken back, or may not acquire what they hold or wait for any more.
    fn withdraw_leases_of_tokens(&self) {
        if !self.tokens.as_ref().is_some_and(|tokens| tokens.take_changed()) {
            return;
        }
        let mut table = self.leases.lock();
        let all = table.values_mut().filter(|lease| lease.withdrawn.is_none());
        for lease in all {
            if !lease.owner.may_hold(lease.held.keys().chain(&lease.pending)) {
                lease.withdraw("its token was taken back");
            }
        }
    }

    /// Describes a lease and what it holds, and promises its client what is left. It does not keep the lease alive.
    pub(crate) fn promise_lease(&self, id: LeaseId) -> Result<LeaseInfo, LeaseError> {
        let mut table = self.table_to_tell();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended()).ok_or(LeaseError::NotFound(id))?;
        let ending = self.is_ending();
        let locks = lease.held.iter().map(|(name, held)| HeldInfo {
            name: name.to_string(),
            mode: held.mode(),
            fence: held.fence(),
            at_risk: ending || held.guard().is_at_risk(),
            broken: held.guard().is_broken(),
        });
        Ok(LeaseInfo {
            id,
            granted: lease.granted(),
            ttl: self.lease_ttl(id, &mut lease.term, &lease.held).ok(),
            owner: lease.owner.clone(),
            origin: Arc::clone(lease.registration.origin()),
            locks: locks.collect(),
        })
    }

    /// The owner of a lease that has not ended.
    pub(crate) fn owner(&self, id: LeaseId) -> Result<Owner, LeaseError> {
        let table = self.leases.lock();
        let lease = table.get(&id).filter(|lease| !lease.has_ended());
        lease.map(|lease| lease.owner.clone()).ok_or(LeaseError::NotFound(id))
    }

    /// All leases, in rising order.
    pub(crate) fn leases(&self) -> Vec<LeaseId> {
        self.leases_of(|_| true)
    }

    /// The leases of some owners, in rising order.
    pub(crate) fn leases_of(&self, is_meant: impl Fn(&Owner) -> bool) -> Vec<LeaseId> {
        let table = self.leases.lock();
        table.iter().filter(|(_, lease)| is_meant(&lease.owner)).map(|(id, _)| *id).collect()
    }

    /// The rare events of the past, and all that follow. A subscriber that is too far behind misses some.
    pub(crate) fn subscribe(&self) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        self.shared.events.subscribe()
    }

    /// How many leases there are.
    pub(crate) fn lease_count(&self) -> usize {
        self.leases.len()
    }

    /// Ends leases that are over, soon: also those that hold nothing, if the agent ends.
    pub(crate) fn look_at_leases_soon(&self) {
        self.leases.look();
    }

    /// Promises a client that its lease holds a lock at this moment. Returns the fence.
    pub(crate) fn confirm_held(&self, id: LeaseId, lock: &str) -> Result<Option<u64>, LeaseError> {
        let mut table = self.table_to_tell();
        let lease = table.get_mut(&id).filter(|lease| !lease.has_ended()).ok_or(LeaseError::NotFound(id))?;
        let Some(fence) = lease.held.get(lock).map(|held| held.fence()) else { return Ok(None) };
        self.lease_ttl(id, &mut lease.term, &lease.held).map(|_| Some(fence))
    }

    /// Changes with what a lease holds and waits for; closed when the lease ends.
    pub(crate) fn changes(&self, id: LeaseId) -> Result<watch::Receiver<()>, LeaseError> {
        self.leases.lock().get(&id).map(|lease| lease.changed.subscribe()).ok_or(LeaseError::NotFound(id))
    }

    /// Puts a new lease into the table, and tells its client for how long.
    fn insert(&self, id: Option<LeaseId>, mut lease: Lease) -> Result<LeaseTtl, LeaseError> {
        if self.is_ending() {
            return Err(LeaseError::Ending);
        }
        self.shared.may_grant().map_err(LeaseError::NotPersisted)?;
        let mut table = self.leases.lock();
        lease.share = self.leases.shares.enter(&lease.owner, LEASES_MAX);
        if lease.share.is_none() {
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
        if !lease.owner.may_hold(lease.held.keys()) {
            return Err(LeaseError::TakenBack);
        }
        let ttl = self.lease_ttl(id, &mut lease.term, &lease.held)?;
        table.insert(id, lease);
        drop(table);
        self.shared.counts.leases_granted.add();
        self.leases.look();
        Ok(ttl)
    }
}

#[cfg(test)]
mod tests;
