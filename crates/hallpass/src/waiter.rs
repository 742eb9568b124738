//! Callers that wait for an answer of the node, and how they are woken.

use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::driver::Granted;
use crate::error::AcquireError;

/// The answer to a waiting caller.
pub(crate) type Verdict = Result<Granted, AcquireError>;

/// Where a waiting caller finds its answer.
#[derive(Debug, Default)]
pub(crate) struct Waiter(Mutex<WaiterState>);

#[derive(Debug, Default)]
struct WaiterState {
    verdict: Option<Verdict>,
    waker: Option<Waker>,
}

impl Waiter {
    /// Answers, and returns the task to wake. The first answer counts: a caller whose node was stopped is not granted a lock later.
    pub(crate) fn answer(&self, verdict: Verdict) -> Option<Waker> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.verdict.get_or_insert(verdict);
        state.waker.take()
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = &state.verdict {
            return Poll::Ready(verdict.clone());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// Tasks to wake after a mutex is unlocked, since they may want it at once. Most often there is one, which needs no
/// allocation.
#[derive(Default)]
pub(crate) struct Wakers {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakers {
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        match (&self.first, waker) {
            (None, waker) => self.first = waker,
            (Some(_), waker) => self.rest.extend(waker),
        }
    }

    pub(crate) fn wake(self) {
        self.first.into_iter().chain(self.rest).for_each(Waker::wake);
    }
}
