use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use hallpass_core::Fence;
use hallpass_node::{Refusal, Ticket};

/// What a waiting caller is told, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Granted(Ticket, Fence),
    Busy,
    Refused(Refusal),
    Stopped,
}

/// Where a waiting caller is told.
#[derive(Debug, Default)]
pub(crate) struct Waiter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    verdict: Option<Verdict>,
    waker: Option<Waker>,
}

impl Waiter {
    pub(crate) fn tell(&self, verdict: Verdict) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // The first word counts: who has heard of the end is not let in by another one.
            state.verdict.get_or_insert(verdict);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = state.verdict {
            return Poll::Ready(verdict);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}
