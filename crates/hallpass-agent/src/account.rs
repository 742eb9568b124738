//! What the clients with a token use at a time, and how much they may.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::registry::counts::{Counter, Gauge};
use crate::tokens::Token;

/// How much of its rate a token may use at once, after it was not used for a while.
const BURST: Duration = Duration::from_secs(1);

/// The account of a token. It lasts while the token is in its file with the same name and secret.
#[derive(Debug)]
pub(crate) struct Account {
    /// As the file has it now.
    token: Mutex<Arc<Token>>,
    closed: AtomicBool,
    leases: Gauge,
    waits: Gauge,
    watches: Gauge,
    /// When the next request would be due, if requests came evenly.
    due: Mutex<Option<Instant>>,
    refused: [Counter; Quota::ALL.len()],
}

/// What is counted for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quota {
    Leases,
    /// Requests that wait for a lock.
    Waits,
    /// What is told to a client for as long as it listens: watches of etcd's API, events, messages of locks.
    Watches,
    /// Requests a second.
    Rate,
}

impl Quota {
    pub(crate) const ALL: [(Self, &'static str); 4] =
        [(Self::Leases, "leases"), (Self::Waits, "waits"), (Self::Watches, "watches"), (Self::Rate, "rate")];
}

/// A token has used up a quota.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotaError {
    /// It has so many.
    #[error(
        "token '{token}' may have {max} leases at a time, and has them; end one, or raise leases_max in the file of tokens"
    )]
    Leases { token: String, max: u32 },
    #[error(
        "{max} requests with token '{token}' may wait for locks at a time, and do; try again later, or raise waits_max in the file of tokens"
    )]
    Waits { token: String, max: u32 },
    #[error(
        "clients with token '{token}' may listen to {max} things at a time, and do; end a watch or a stream, or raise watches_max in the file of tokens"
    )]
    Watches { token: String, max: u32 },
    #[error("token '{token}' may send {max} requests a second; wait, or raise rate_max in the file of tokens")]
    Rate { token: String, max: u32, wait: Duration },
}

/// A part of a quota, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    account: Arc<Account>,
    of: Quota,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.account.gauge(self.of).iter().for_each(|gauge| gauge.leave());
    }
}

impl Account {
    pub(crate) fn new(token: Arc<Token>) -> Arc<Self> {
        Arc::new(Self {
            token: Mutex::new(token),
            closed: AtomicBool::new(false),
            leases: Gauge::default(),
            waits: Gauge::default(),
            watches: Gauge::default(),
            due: Mutex::default(),
            refused: Default::default(),
        })
    }

    pub(crate) fn token(&self) -> Arc<Token> {
        Arc::clone(&self.token.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The token has other rights or quotas from now on.
    pub(crate) fn set_token(&self, token: Arc<Token>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }

    /// The token was taken back, for good.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Counts one more lease, until the permit is dropped.
    pub(crate) fn enter_leases(self: &Arc<Self>) -> Result<Permit, QuotaError> {
        self.enter(Quota::Leases, |token, max| QuotaError::Leases { token, max })
    }

    /// Counts one more request that waits, until the permit is dropped.
    pub(crate) fn enter_waits(self: &Arc<Self>) -> Result<Permit, QuotaError> {
        self.enter(Quota::Waits, |token, max| QuotaError::Waits { token, max })
    }

    /// Counts one more watch or stream, until the permit is dropped.
    pub(crate) fn enter_watches(self: &Arc<Self>) -> Result<Permit, QuotaError> {
        self.enter(Quota::Watches, |token, max| QuotaError::Watches { token, max })
    }

    fn enter(self: &Arc<Self>, of: Quota, refusal: fn(String, u32) -> QuotaError) -> Result<Permit, QuotaError> {
        let max = self.max(of);
        let entered = self.gauge(of).is_none_or(|gauge| gauge.enter(max.map_or(usize::MAX, |max| max as usize)));
        if entered {
            return Ok(Permit { account: Arc::clone(self), of });
        }
        self.refused[of as usize].add();
        Err(refusal(self.token().name.clone(), max.unwrap_or(u32::MAX)))
    }

    /// Counts a request. An error if requests come too fast.
    pub(crate) fn take_request(&self, now: Instant) -> Result<(), QuotaError> {
        let Some(max) = self.max(Quota::Rate) else { return Ok(()) };
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let next = due.map_or(now, |due| due.max(now)) + BURST / max;
        let ahead = next.saturating_duration_since(now);
        if ahead <= BURST {
            *due = Some(next);
            return Ok(());
        }
        drop(due);
        self.refused[Quota::Rate as usize].add();
        Err(QuotaError::Rate { token: self.token().name.clone(), max, wait: ahead - BURST })
    }

    /// How much of a quota is used now.
    pub(crate) fn used(&self, of: Quota, now: Instant) -> usize {
        match (self.gauge(of), self.max(of)) {
            (Some(gauge), _) => gauge.get(),
            (None, None) => 0,
            (None, Some(max)) => {
                let due = *self.due.lock().unwrap_or_else(PoisonError::into_inner);
                let ahead = due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
                (ahead.as_secs_f64() * f64::from(max) / BURST.as_secs_f64()).round() as usize
            }
        }
    }

    /// The quota, if there is one.
    pub(crate) fn max(&self, of: Quota) -> Option<u32> {
        let quotas = self.token().quotas();
        match of {
            Quota::Leases => quotas.leases_max,
            Quota::Waits => quotas.waits_max,
            Quota::Watches => quotas.watches_max,
            Quota::Rate => quotas.rate_max,
        }
        .map(std::num::NonZeroU32::get)
    }

    /// How often a quota has refused something.
    pub(crate) fn refused(&self, of: Quota) -> u64 {
        self.refused[of as usize].get()
    }

    fn gauge(&self, of: Quota) -> Option<&Gauge> {
        match of {
            Quota::Leases => Some(&self.leases),
            Quota::Waits => Some(&self.waits),
            Quota::Watches => Some(&self.watches),
            Quota::Rate => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{Quotas, Right};

    fn account(quotas: Quotas) -> Arc<Account> {
        let (_, token) = Token::new("t", [Right::Acquire], []).unwrap();
        Account::new(token.with_quotas(quotas).into())
    }

    #[test]
    fn a_quota_is_given_back() {
        let one = std::num::NonZeroU32::new(1);
        let account = account(Quotas { leases_max: one, ..Quotas::default() });
        let permit = account.enter_leases().unwrap();
        let refused = account.enter_leases().unwrap_err();
        assert!(refused.to_string().contains("'t' may have 1 leases"), "{refused}");
        let used = |of| account.used(of, Instant::now());
        assert_eq!((used(Quota::Leases), account.refused(Quota::Leases)), (1, 1));
        let waits: Vec<_> = (0..100).map(|_| account.enter_waits().unwrap()).collect();
        assert_eq!(used(Quota::Waits), 100, "counted though there is no quota");
        drop((permit, waits));
        assert_eq!((used(Quota::Leases), used(Quota::Waits)), (0, 0));
        assert!(account.enter_leases().is_ok());
    }

    #[test]
    fn a_rate_allows_a_second_of_requests_at_once() {
        let limited = account(Quotas { rate_max: std::num::NonZeroU32::new(4), ..Quotas::default() });
        let now = Instant::now();
        assert_eq!((0..10).filter(|_| limited.take_request(now).is_ok()).count(), 4);
        let Err(QuotaError::Rate { wait, max: 4, .. }) = limited.take_request(now) else { panic!("it is used up") };
        assert_eq!((wait, limited.used(Quota::Rate, now)), (Duration::from_millis(250), 4));
        let later = now + wait;
        assert!(limited.take_request(later).is_ok() && limited.take_request(later).is_err());
        let free = account(Quotas::default());
        assert!((0..1000).all(|_| free.take_request(now).is_ok()));
    }
}
