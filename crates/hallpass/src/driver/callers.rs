//! What callers ask for: locks, guards, and requests to the group.

use std::sync::Arc;
use std::time::Duration;

use hallpass_core::{Mode, Ticks};
use hallpass_node::{Answer, Grant, Patience, Request, RequestError, Slot, Ticket};
use tokio::sync::oneshot;

use super::{Driver, State, TICK};
use crate::AcquireError;
use crate::clock::sleep_before;
use crate::os::now;
use crate::waiter::Waiter;

/// A lock that a caller has waited for within this time is also wanted by other members.
const CONTENDED: Ticks = 1_000_000;

/// The answer to a request.
pub(crate) enum Asked {
    Granted(Granted),
    Waiting(Ticket, Arc<Waiter>),
}

/// A grant, and the session that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    /// How often everything had been lost when it was granted: after one more lapse it is void.
    pub(crate) lapse_count: u64,
}

/// How long a grant is held, as known now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Validity {
    Lost,
    Held { until: Ticks, at_risk_from: Ticks },
}

impl Driver {
    /// The fast path: see [`Node::handle_fast_acquire`](hallpass_node::Node::handle_fast_acquire). Without a grant it returns whether the
    /// caller must yield to other tasks before it asks.
    ///
    /// A caller that always finds the lock here never waits. It must yield now and then, or the tasks that read the sockets do not run,
    /// and the other members' requests stay unread. If the lock has just come from another member, the next request for it is on its
    /// way or unread. It is read before the lock is taken again, unless the lock has been given away already: then the caller asks at
    /// once.
    #[inline]
    pub(crate) fn acquire_fast(
        &self,
        slot: Option<Slot>,
        lock: &str,
        mode: Mode,
        waited: Ticks,
    ) -> Result<Granted, bool> {
        let mut state = self.state();
        // Read under the lock: the session must not end between the reading and the grant.
        let now = state.read_clock();
        if self.turn.is_over(now) {
            return Err(true);
        }
        if now.saturating_sub(waited) < CONTENDED {
            let must_wait = slot.is_some_and(|slot| state.node.must_wait(slot, lock, mode));
            return Err(!must_wait);
        }
        if self.is_stopped() {
            return Err(false);
        }
        let slot = slot.ok_or(false)?;
        let grant = state.node.handle_fast_acquire(slot, lock, mode, now).ok_or(false)?;
        state.grants += 1;
        let lapse_count = state.node.lapse_count();
        self.drain_if_needed(state);
        Ok(Granted { grant, lapse_count })
    }

    pub(crate) fn acquire(&self, lock: &str, mode: Mode, patience: Patience) -> Result<Asked, AcquireError> {
        let mut waiter = None;
        let mut state = self.state();
        if self.is_stopped() {
            return Err(AcquireError::Stopped);
        }
        let now = state.read_clock();
        let answer = state.node.handle_acquire(lock, mode, patience, now, || {
            Arc::clone(waiter.get_or_insert_with(|| Arc::new(Waiter::default())))
        });
        state.grants += u64::from(matches!(answer, Ok(Answer::Granted(_))));
        let lapse_count = state.node.lapse_count();
        self.drain_if_needed(state);
        Ok(match (answer?, waiter) {
            (Answer::Granted(grant), _) => Asked::Granted(Granted { grant, lapse_count }),
            (Answer::Waiting(ticket), Some(waiter)) => Asked::Waiting(ticket, waiter),
            _ => return Err(AcquireError::Busy),
        })
    }

    /// Releases a lock, without a look at the clock: the next caller looks.
    #[inline]
    pub(crate) fn release(&self, ticket: Ticket) -> bool {
        let mut state = self.state();
        if self.is_stopped() {
            return false;
        }
        let now = state.now;
        state.forget_revoked(ticket);
        let held = state.node.handle_release(ticket, now);
        self.drain_if_needed(state);
        held
    }

    /// Releases a lock, and returns false if it had been lost before.
    #[inline]
    pub(crate) fn release_held(&self, granted: &Granted) -> bool {
        let mut state = self.state();
        let now = state.read_clock();
        if self.is_stopped() {
            return false;
        }
        let is_held = now < state.held_until(granted);
        state.forget_revoked(granted.grant.ticket);
        let released = state.node.handle_release(granted.grant.ticket, now);
        self.drain_if_needed(state);
        released && is_held
    }

    pub(crate) fn cancel(&self, ticket: Ticket) {
        self.input(|state| {
            state.forget_revoked(ticket);
            state.node.handle_cancel(ticket, state.now)
        });
    }

    /// Asks whom the callers of a lock wait for.
    pub(crate) fn inquire(&self, lock: &str) {
        self.input(|state| state.node.handle_inquiry(lock, state.now));
    }

    /// Says whether a grant is still held, by the clock: the session may have ended unnoticed.
    pub(crate) fn validity(&self, granted: Granted) -> Validity {
        let state = self.state();
        let until = state.held_until(&granted);
        if self.is_stopped() || now() >= until {
            return Validity::Lost;
        }
        let is_revoked = state.revoked.contains_key(&granted.grant.ticket);
        Validity::Held { until, at_risk_from: if is_revoked { 0 } else { state.node.at_risk_from() } }
    }

    /// How long what is held here stays held without a message from the group: zero while nothing can be held, `None` if forever.
    pub(crate) fn session_left(&self) -> Option<Duration> {
        let state = self.state();
        if self.is_stopped() || !state.node.has_session() {
            return Some(Duration::ZERO);
        }
        let until = state.node.valid_until();
        (until != Ticks::MAX).then(|| Duration::from_nanos(until.saturating_sub(now())))
    }

    /// See [`Node::promise`](hallpass_node::Node::promise).
    pub(crate) fn promise(&self, left: Duration) {
        let mut state = self.state();
        let until = now().saturating_add(left.as_nanos() as Ticks);
        state.node.promise(until);
    }

    /// True if a grant was or will be taken away although the session goes on.
    pub(crate) fn is_revoked(&self, granted: Granted) -> bool {
        self.state().revoked.contains_key(&granted.grant.ticket)
    }

    /// Resolves at the time that `due` computes from the end of the grant and the time since when it is at risk; at its loss at the latest.
    pub(crate) async fn when_due(&self, granted: Granted, due: impl Fn(Ticks, Ticks) -> Ticks) {
        loop {
            let changed = self.session.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let Validity::Held { until, at_risk_from } = self.validity(granted) else { return };
            let (at, now) = (due(until, at_risk_from), now());
            if now >= at {
                return;
            }
            let left = sleep_before(at - now).max(Duration::from_millis(1));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(left.min(TICK)), if at != Ticks::MAX => {}
            }
        }
    }

    /// Sends a request to the whole group. If the node is closed, no answer comes.
    pub(crate) fn request(&self, request: Request) -> (u64, oneshot::Receiver<Result<(), RequestError>>) {
        let (sender, done) = oneshot::channel();
        let token = self.input(|state| state.request(request, sender));
        (token.unwrap_or(0), done)
    }

    /// Forgets a request whose caller no longer waits.
    pub(crate) fn forget_request(&self, token: u64) {
        self.input(|state| {
            state.requests.remove(&token);
            state.node.handle_request_cancel(token);
        });
    }

    /// Resolves when locks are granted, or the node is stopped.
    pub(crate) async fn when_complete(&self) {
        loop {
            let completed = self.completed.notified();
            tokio::pin!(completed);
            completed.as_mut().enable();
            if self.state().node.is_complete() || self.is_stopped() {
                return;
            }
            completed.await;
        }
    }
}

impl State {
    pub(super) fn request(&mut self, request: Request, asked: oneshot::Sender<Result<(), RequestError>>) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.requests.insert(token, asked);
        self.node.handle_request(request, token, self.now);
        token
    }

    /// Until when a grant is certainly held; 0 if it is lost already.
    #[inline]
    fn held_until(&self, granted: &Granted) -> Ticks {
        if self.node.lapse_count() != granted.lapse_count {
            return 0;
        }
        let revoked = if self.revoked.is_empty() { None } else { self.revoked.get(&granted.grant.ticket) };
        self.node.valid_until().min(revoked.copied().unwrap_or(Ticks::MAX))
    }

    #[inline]
    pub(super) fn forget_revoked(&mut self, ticket: Ticket) {
        if !self.revoked.is_empty() {
            self.revoked.remove(&ticket);
        }
    }
}
