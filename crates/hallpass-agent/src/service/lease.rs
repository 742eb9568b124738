use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hallpass_node::leases::LeaseTerm;
use tokio::sync::{Notify, watch};

use super::hold::Hold;
use crate::account::Permit;
use crate::os;
use crate::owner::Owner;
use crate::registry::{ClientRegistration, EventKind};
use crate::shares::{Share, Shares};

/// The name of a lease: positive as a signed number, too. It is drawn at random, so that nobody guesses another client's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LeaseId(u64);

impl LeaseId {
    /// None for numbers that cannot be a lease's.
    pub(crate) fn new(number: u64) -> Option<Self> {
        (1..=i64::MAX as u64).contains(&number).then_some(Self(number))
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }

    /// Reads what [`Display`](fmt::Display) writes: lower-case hexadecimal, without leading zeros.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = u64::from_str_radix(text, 16).ok().and_then(Self::new)?;
        (number.to_string() == text).then_some(number)
    }

    pub(super) fn random() -> Option<Self> {
        let mut bytes = [0; 8];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes).ok()?;
        Self::new(u64::from_be_bytes(bytes) >> 1)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.get())
    }
}

/// All leases of an agent. They are in its memory only: a client of an agent that is killed has lost its lease.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    table: Mutex<BTreeMap<LeaseId, Lease>>,
    /// Notified when the watcher is to look: a new lease may end sooner than all others.
    pub(super) sooner: Notify,
    pub(super) shares: Arc<Shares>,
}

impl Leases {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Lease>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the watcher look at all of them soon.
    pub(crate) fn look(&self) {
        self.sooner.notify_one();
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

/// The locks of a client, until it is silent for too long.
#[derive(Debug)]
pub(super) struct Lease {
    /// How long it lasts, by the system's clock that counts suspended time.
    pub(super) term: LeaseTerm,
    pub(super) owner: Owner,
    /// Why nobody keeps it alive any more, if that is so: its locks pass on when its client has stopped counting on them.
    pub(super) withdrawn: Option<&'static str>,
    /// By the locks' names.
    pub(super) held: BTreeMap<Arc<str>, Hold>,
    /// The locks that a request waits for under this lease.
    pub(super) pending: BTreeSet<Arc<str>>,
    /// Changes with `held` and `pending`; closed when the lease ends.
    pub(super) changed: watch::Sender<()>,
    /// Dropped after the locks.
    pub(super) registration: ClientRegistration,
    _quota: Option<Permit>,
    /// Its part of all leases, once it is in the table.
    pub(super) share: Option<Share>,
}

impl Lease {
    /// Counts from now.
    pub(super) fn new(
        granted: Duration,
        drift_ppm: u32,
        owner: Owner,
        quota: Option<Permit>,
        registration: ClientRegistration,
    ) -> Self {
        let granted = u64::try_from(granted.as_nanos()).unwrap_or(u64::MAX);
        let term = LeaseTerm::new(granted, os::now(), drift_ppm);
        let (held, pending, changed) = (BTreeMap::new(), BTreeSet::new(), watch::Sender::new(()));
        Self { term, owner, withdrawn: None, held, pending, changed, registration, _quota: quota, share: None }
    }

    /// How long it lasts from keepalive to keepalive.
    pub(super) fn granted(&self) -> Duration {
        Duration::from_nanos(self.term.granted())
    }

    /// What it holds: names and fences.
    pub(super) fn fences(&self) -> Vec<(String, u64)> {
        self.held.iter().map(|(name, held)| (name.to_string(), held.fence())).collect()
    }

    /// The lease has ended by the clock, or was withdrawn. The watcher may not have removed it yet.
    pub(super) fn has_ended(&self) -> bool {
        self.withdrawn.is_some() || os::now() >= self.term.deadline()
    }

    /// Why it may be removed before its deadline, if it may: its agent ends or it was withdrawn, and it holds nothing that its client counts
    /// on.
    pub(super) fn is_over_early(&self, now: u64, ending: bool) -> Option<EventKind> {
        let why = if self.withdrawn.is_some() { EventKind::LeaseLost } else { EventKind::Ending };
        let is_over = self.held.is_empty() || self.term.is_over(now, true);
        ((ending || self.withdrawn.is_some()) && is_over).then_some(why)
    }

    /// Nobody keeps it alive any more. The requests that wait under it are told so at once.
    pub(super) fn withdraw(&mut self, why: &'static str) {
        self.withdrawn = self.withdrawn.or(Some(why));
        self.changed = watch::Sender::new(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_one_name() {
        let lease = LeaseId::new(0x1f).unwrap();
        assert_eq!(lease.to_string(), "1f");
        assert_eq!(LeaseId::parse("1f"), Some(lease));
        for wrong in ["", "0", "01f", "1F", "+1f", "-1", "g", "8000000000000000", "1ffffffffffffffff"] {
            assert_eq!(LeaseId::parse(wrong), None, "{wrong}");
        }
        assert!(LeaseId::new(i64::MAX as u64).is_some() && LeaseId::new(1 << 63).is_none());
        assert_ne!(LeaseId::random(), LeaseId::random());
    }
}
