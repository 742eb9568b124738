//! How far the end of a node has come.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// The life of a node, in order. No phase comes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Phase {
    Running,
    /// Callers get nothing more. The node may still tell the others that it leaves.
    Stopping,
    /// Nothing is sent or received any more.
    Closed,
    /// The node's threads have ended, and its directory and address are free.
    Ended,
}

/// The current phase. Looking at it is one atomic load.
pub(super) struct CurrentPhase {
    phase: AtomicU8,
    changed: Notify,
}

impl CurrentPhase {
    pub(super) fn new() -> Self {
        Self { phase: AtomicU8::new(Phase::Running as u8), changed: Notify::new() }
    }

    /// True from the beginning of this phase on.
    #[inline]
    pub(super) fn has_reached(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8
    }

    /// Goes on to this phase. Returns false if it had been reached before. Those who wait for it are woken by
    /// [`notify`](Self::notify), which the caller calls without the node's lock.
    pub(super) fn advance(&self, phase: Phase) -> bool {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel) < phase as u8
    }

    pub(super) fn notify(&self) {
        self.changed.notify_waiters();
    }

    /// Resolves when this phase has been reached.
    pub(super) async fn reached(&self, phase: Phase) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.has_reached(phase) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_entered_once_and_none_comes_back() {
        let current = CurrentPhase::new();
        assert!(current.has_reached(Phase::Running) && !current.has_reached(Phase::Stopping));
        assert!(current.advance(Phase::Closed), "a crash skips the stop");
        assert!(!current.advance(Phase::Stopping) && !current.advance(Phase::Closed));
        assert!(current.has_reached(Phase::Stopping) && !current.has_reached(Phase::Ended));
    }
}
