//! For how long clients may count on what they hold. No door derives a ttl or a deadline from anything else.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use hallpass_node::leases::{Bounds, LeaseTerm, Promise};

use super::hold::Hold;
use super::lease::Lease;
use super::{LeaseError, LeaseId, Service};
use crate::os;
use crate::shared::AgentShared;

/// A shorter ttl would be over before the client has read it.
const TOLD_MIN: Duration = Duration::from_millis(1);
/// How late clients that count whole seconds may notice that theirs are over: Go's looks twice a second.
const SECONDS_LATE: Duration = Duration::from_millis(500);
/// Where sessions are shorter, too few whole seconds would be left if that were always taken off.
const SECONDS_SESSION_MIN: Duration = Duration::from_secs(3);

/// For how long the client of a lease may count on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTtl {
    pub(crate) id: LeaseId,
    /// How long it lasts from keepalive to keepalive.
    pub(crate) granted: Duration,
    pub(super) promise: Promise,
    /// How long a session lasts.
    pub(super) session: Duration,
}

impl LeaseTtl {
    /// Counts from when the client sent its request.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.promise.ttl())
    }

    /// The same in milliseconds.
    pub(crate) fn millis(&self) -> u64 {
        self.ttl().as_millis() as u64
    }

    /// The same in whole seconds, for clients that look at them now and then: 0 if they would look too late. Where sessions are too short
    /// for that, all whole seconds that are left.
    pub(crate) fn seconds(&self) -> u64 {
        match self.ttl().saturating_sub(SECONDS_LATE).as_secs() {
            0 if self.session < SECONDS_SESSION_MIN => self.ttl().as_secs(),
            seconds => seconds,
        }
    }
}

impl Service {
    /// Until when a lock is held for certain, by the clock that clients share. None if nothing can take it away.
    pub(super) fn deadline(&self, hold: &Hold) -> Option<u64> {
        self.shared.prepare_to_tell();
        let now = os::now();
        self.shared.bounds(std::iter::once(hold.guard())).deadline(now)
    }

    /// The leases, to tell a client the [ttl](Self::lease_ttl) of one.
    pub(super) fn table_to_tell(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Lease>> {
        // Not with the table, which all clients need.
        self.shared.prepare_to_tell();
        self.leases.lock()
    }

    /// For how long the client of a lease may count on it, from when its request came in.
    pub(super) fn lease_ttl(
        &self,
        id: LeaseId,
        term: &mut LeaseTerm,
        held: &BTreeMap<Arc<str>, Hold>,
    ) -> Result<LeaseTtl, LeaseError> {
        let shared = &self.shared;
        let (node, now) = (shared.node(), os::now());
        // Before the guards are looked at: one that is broken after this look waits for what is told.
        node.promise(shared.ttl().min(Duration::from_nanos(term.deadline().saturating_sub(now))));
        let bounds = shared.bounds(held.values().map(Hold::guard));
        let session = node.session_left().map(|left| now.saturating_add(left.as_nanos() as u64));
        let held_until = [bounds.held_until, session].into_iter().flatten().min();
        let promise = term.promise(now, &Bounds { held_until, ..bounds });
        let (granted, session) = (Duration::from_nanos(term.granted()), Duration::from_nanos(bounds.session));
        let ttl = promise.map(|promise| LeaseTtl { id, granted, promise, session });
        ttl.filter(|ttl| ttl.ttl() >= TOLD_MIN).ok_or_else(|| {
            if held.is_empty() { LeaseError::NoSession(why_no_session(shared)) } else { LeaseError::NotFound(id) }
        })
    }
}

fn why_no_session(shared: &AgentShared) -> String {
    shared.node().status().waits_for.unwrap_or_else(|| "its session has just ended".to_owned())
}
