use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::hold::{Hold, HoldState};
use super::watcher::look_interval;
use super::{AcquireFault, Service, Wanted};
use crate::os;
use crate::registry::{ClientRegistration, Origin};

/// The locks of a client without a lease. Dropping this releases them: they end with the client's connection.
///
/// - **In**: [`acquire`](Self::acquire), then [`insert`](Self::insert); [`release`](Self::release).
/// - **Out**: [`next_look`](Self::next_look), then [`look`](Self::look) for what the client is to be told.
#[derive(Debug)]
pub(crate) struct ConnectionHolds {
    service: Service,
    /// By name and fence. A client that shares a lock with itself holds it several times with one fence.
    holds: BTreeMap<(String, u64), Vec<Hold>>,
    /// The deadline that the client was told last; the outer one is none before it was told any.
    told_deadline: Option<Option<u64>>,
    /// Dropped after the locks.
    registration: ClientRegistration,
}

/// News for a client about the locks that it holds. A deadline is none if nothing can take the locks away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// All locks are held until then.
    Session(Option<u64>),
    /// A lock will be lost then, unless a later deadline follows. If it is broken none does.
    AtRisk { lock: String, fence: u64, deadline: Option<u64>, broken: bool },
    /// A lock is not held any more.
    Lost { lock: String, fence: u64 },
}

impl ConnectionHolds {
    pub(crate) fn new(service: Service, origin: Arc<Origin>) -> Self {
        let registration = service.shared.clients.register(origin);
        Self { service, holds: BTreeMap::new(), told_deadline: None, registration }
    }

    pub(crate) fn origin(&self) -> &Arc<Origin> {
        self.registration.origin()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Acquires a lock, to be [inserted](Self::insert). Dropping the future leaves no waiter.
    pub(crate) fn acquire(
        &self,
        lock: &str,
        wanted: Wanted,
    ) -> impl Future<Output = Result<Hold, AcquireFault>> + Send + use<> {
        let (service, lock) = (self.service.clone(), lock.to_owned());
        let client_use = self.registration.waits(&lock, wanted.mode);
        async move { service.acquire_hold(client_use, &lock, wanted).await }
    }

    /// Holds a lock that was acquired. Returns its deadline.
    pub(crate) fn insert(&mut self, lock: String, hold: Hold) -> Option<u64> {
        let deadline = self.service.deadline(&hold);
        self.told_deadline = Some(deadline);
        self.holds.entry((lock, hold.fence())).or_default().push(hold);
        deadline
    }

    /// Releases a lock. False if the client did not hold it with this fence, or had lost it.
    pub(crate) async fn release(&mut self, lock: String, fence: u64) -> bool {
        let key = (lock, fence);
        let hold = self.holds.get_mut(&key).and_then(Vec::pop);
        if self.holds.get(&key).is_some_and(Vec::is_empty) {
            self.holds.remove(&key);
        }
        match hold {
            Some(hold) => hold.release().await,
            None => false,
        }
    }

    /// Returns what has changed since the client was told last.
    pub(crate) fn look(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        let mut session = None;
        for ((lock, fence), holds) in &mut self.holds {
            for hold in holds.iter_mut().filter(|hold| !hold.is_told_lost()) {
                let change = hold.look(self.service.shared.has_ended());
                let deadline = self.service.deadline(hold);
                if matches!(change.now, HoldState::Held | HoldState::AtRisk) {
                    // The session is the same for all of them: of two looks the later one knows more.
                    session = Some(deadline);
                }
                if change.now == change.before {
                    continue;
                }
                let (lock, fence) = (lock.clone(), *fence);
                match change.now {
                    HoldState::Held => {}
                    HoldState::AtRisk => news.push(News::AtRisk { lock, fence, deadline, broken: false }),
                    HoldState::Broken => news.push(News::AtRisk { lock, fence, deadline, broken: true }),
                    HoldState::Lost => {
                        // A client that was not told in time that an operator takes the lock learns now why it is lost.
                        if change.before != HoldState::Broken && hold.guard().is_broken() {
                            news.push(News::AtRisk { lock: lock.clone(), fence, deadline, broken: true });
                        }
                        news.push(News::Lost { lock, fence });
                    }
                }
            }
        }
        if let Some(deadline) = session.filter(|deadline| is_news(self.told_deadline.flatten(), *deadline)) {
            self.told_deadline = session;
            news.insert(0, News::Session(deadline));
        }
        news
    }

    /// Resolves when it is time to [look](Self::look): at once if something is at risk or lost, at the deadline, and now and then, to tell a
    /// later one. Never if the client holds nothing.
    pub(crate) async fn next_look(&self) {
        let kept = || self.holds.values().flatten().filter(|hold| !hold.is_told_lost());
        let Some(first) = kept().next() else { return std::future::pending().await };
        let interval = look_interval(self.service.shared.ttl());
        // The session is the same for all of them.
        let deadline = self.service.deadline(first);
        let left = deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(os::now())));
        let mut all: Vec<_> = kept().map(|hold| Box::pin(hold.news())).collect();
        let any_news = poll_fn(|context| {
            let any = all.iter_mut().any(|news| news.as_mut().poll(context).is_ready());
            if any { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = tokio::time::sleep(left.map_or(interval, |left| left.min(interval))) => {}
            () = any_news => {}
            // The first deadline is told at once: another member may be in soon.
            () = first.guard().became_revocable(), if deadline.is_none() => {}
        }
    }
}

/// True if a deadline is to be told in place of another one. It is derived from clocks anew each time, and never moves back.
fn is_news(told: Option<u64>, now: Option<u64>) -> bool {
    const NOISE_NS: u64 = 1_000_000;
    match (told, now) {
        (Some(told), Some(now)) => now > told + NOISE_NS,
        (told, now) => told.is_some() != now.is_some(),
    }
}
