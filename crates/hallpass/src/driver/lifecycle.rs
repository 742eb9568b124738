//! Stopping and closing a node.

use std::sync::MutexGuard;
use std::time::Duration;

use hallpass_node::{Output, Request, RequestError};
use tokio::sync::oneshot;

use super::phase::Phase;
use super::{Driver, State, Storage};
use crate::AcquireError;
use crate::waiter::Wakers;

impl Driver {
    /// Stops the node: from here on callers get nothing more, guards are lost, and the group is told. The node's own thread closes the node
    /// when the group knows, or after this time.
    pub(crate) fn stop(&self, limit: Duration) {
        let mut state = self.state();
        if !self.phase.advance(Phase::Stopping) {
            return;
        }
        let mut wakers = Wakers::default();
        state.node.waiting().for_each(|waiter| wakers.add(waiter.answer(Err(AcquireError::Stopped))));
        let (sender, done) = oneshot::channel();
        state.read_clock();
        // Guards are lost before any other member is told.
        state.request(Request::Stop, sender);
        state.stopping = Some((done, limit));
        self.drain_and_schedule(state);
        wakers.wake();
        self.phase.notify();
        self.session.notify_waiters();
        self.completed.notify_waiters();
    }

    /// Stops the node without telling the others, as a crash would.
    pub(crate) fn close_now(&self) {
        let state = self.state();
        if self.phase.advance(Phase::Closed) {
            self.close(state);
        }
    }

    /// Takes the stop that was asked for. Only the node's own thread does so, once.
    pub(crate) fn take_stop(&self) -> Option<(oneshot::Receiver<Result<(), RequestError>>, Duration)> {
        self.state().stopping.take()
    }

    /// Drains the node for the last time: all callers are answered under the lock and woken without it.
    pub(super) fn close(&self, mut state: MutexGuard<'_, State>) {
        let mut wakers = Wakers::default();
        state.node.waiting().for_each(|waiter| wakers.add(waiter.answer(Err(AcquireError::Stopped))));
        // Callers whose answer was not given yet, too.
        while let Some(output) = state.node.poll_output() {
            if let Output::Answer { caller, .. } = output {
                wakers.add(caller.answer(Err(AcquireError::Stopped)));
            }
        }
        state.lock_connections.close_all();
        std::mem::take(&mut state.controls).into_values().flatten().for_each(|outbox| outbox.close());
        state.storage = Storage::Closed;
        state.requests.clear();
        drop(state);
        wakers.wake();
        self.phase.notify();
        self.session.notify_waiters();
        self.completed.notify_waiters();
        self.wake.notify_one();
    }

    /// The node's threads have ended.
    pub(crate) fn set_ended(&self) {
        self.phase.advance(Phase::Ended);
        self.phase.notify();
    }

    /// Resolves when callers get nothing more.
    pub(crate) async fn when_stopped(&self) {
        self.phase.reached(Phase::Stopping).await;
    }

    /// Resolves when nothing is sent or received any more.
    pub(crate) async fn when_closed(&self) {
        self.phase.reached(Phase::Closed).await;
    }

    /// Resolves when the directory and the address are free.
    pub(crate) async fn when_ended(&self) {
        self.phase.reached(Phase::Ended).await;
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.phase.has_reached(Phase::Stopping)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.phase.has_reached(Phase::Closed)
    }
}
