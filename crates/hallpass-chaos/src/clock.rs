//! The one clock of all records: CLOCK_BOOTTIME. All processes of a machine read the same time, and suspended time counts.
//!
//! The library can read it too. This crate does not use the library, because it sees the program from outside only.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was started.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
