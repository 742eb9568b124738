use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hallpass_core::Ticks;

/// How many requests a caller makes before it yields: by then a message could have come from another machine.
const REQUESTS: u32 = 256;
/// How long a caller goes on before it yields, since it may do much between two requests.
const TIME: Ticks = 200_000;

/// How long callers of a node have been served since one of them yielded or waited.
///
/// It is the node's, not a lock's or a handle's: a loop that takes a new handle each time must yield, too. Approximate, since
/// two requests at once may count as one.
#[derive(Default)]
pub(crate) struct Turn {
    requests: AtomicU32,
    since: AtomicU64,
}

impl Turn {
    /// Counts a request. True if its caller must yield; then the next turn begins.
    #[inline]
    pub(crate) fn is_over(&self, now: Ticks) -> bool {
        let requests = self.requests.load(Ordering::Relaxed) + 1;
        if requests < REQUESTS && now.saturating_sub(self.since.load(Ordering::Relaxed)) < TIME {
            self.requests.store(requests, Ordering::Relaxed);
            return false;
        }
        self.begin(now);
        true
    }

    pub(crate) fn begin(&self, now: Ticks) {
        self.requests.store(0, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }
}
