//! The one clock of all records: CLOCK_BOOTTIME, which every process of a machine reads alike and which counts suspended time.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was started.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
