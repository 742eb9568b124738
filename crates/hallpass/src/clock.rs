use hallpass_core::Ticks;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since this machine was started, counted also while it is suspended: a session must not outlive a nap.
pub(crate) fn now() -> Ticks {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
