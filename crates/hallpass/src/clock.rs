//! The clock that measures sessions: how long the machine has been running, suspended time included, at a rate that nobody changes.
//!
//! Sessions are safe only while the clocks of two members run at nearly the same rate. The group's drift, 1 %, is all that they may
//! differ by. CLOCK_BOOTTIME does not keep to that: a program that corrects the time of day changes the rate of CLOCK_MONOTONIC, and
//! with it that of CLOCK_BOOTTIME. chrony changes it by up to 8.3 % unless configured otherwise.
//!
//! CLOCK_MONOTONIC_RAW is the hardware's own clock, accurate to some ten millionths, but it stands still while the machine is
//! suspended. So this clock is CLOCK_MONOTONIC_RAW plus the lead of CLOCK_BOOTTIME over CLOCK_MONOTONIC.
//!
//! All processes of a machine read the same time, within 120 microseconds.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use hallpass_core::Ticks;

/// Nanoseconds since the machine was started.
pub fn now() -> Ticks {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        static CLOCK: Clock = Clock::new();
        CLOCK.now(read)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    boot_time()
}

/// Nanoseconds since the machine was started by CLOCK_BOOTTIME, which any program can read, in any language. Two processes name a
/// moment to each other by this clock, and measure time from then on by their own.
#[cfg(unix)]
pub fn boot_time() -> Ticks {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return read(Source::Boot);
    // On other systems CLOCK_MONOTONIC counts suspended time.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return read_clock(rustix::time::ClockId::Monotonic);
}

/// Nanoseconds since the first call, by a clock that may stand still while the machine is suspended.
#[cfg(not(unix))]
pub fn boot_time() -> Ticks {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// How long to sleep until a moment that is `left` away by [`now`]. The system's timers run by CLOCK_MONOTONIC, which may have been
/// slowed down. So a long sleep ends early, and the caller looks at the time again.
pub fn sleep_before(left: Ticks) -> std::time::Duration {
    const NEAR: Ticks = 8_000_000;
    std::time::Duration::from_nanos(if left > NEAR { left - left / 8 } else { left })
}

/// A clock of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Boot,
    Monotonic,
    Raw,
}

/// How long a reading of RAW - MONOTONIC stays valid. It changes by at most a tenth of the time that passes: the system allows no
/// larger change of the rate.
const GOOD_FOR: Ticks = 1_000_000;
/// The clocks cannot be read at the same moment. A reading that took longer than this is repeated.
const READING_MAX: Ticks = 20_000;
/// How often a reading is tried on a busy machine.
const READINGS_MAX: usize = 8;
/// How far two readings may contradict each other.
#[cfg(test)]
const ERROR_MAX: Ticks = GOOD_FOR / 10 + READING_MAX;

/// BOOTTIME + (RAW - MONOTONIC). The difference changes slowly and is remembered, so a look at the clock costs one reading.
struct Clock {
    raw_ahead: AtomicI64,
    /// When `raw_ahead` was read last, by BOOTTIME; 0 for never.
    read_at: AtomicU64,
}

impl Clock {
    const fn new() -> Self {
        Self { raw_ahead: AtomicI64::new(0), read_at: AtomicU64::new(0) }
    }

    fn now(&self, read: impl Fn(Source) -> Ticks) -> Ticks {
        let boot = read(Source::Boot);
        let read_at = self.read_at.load(Ordering::Acquire);
        // Another thread may have read it since.
        let is_good = read_at != 0 && boot.saturating_sub(read_at) < GOOD_FOR;
        let raw_ahead = if is_good { self.raw_ahead.load(Ordering::Relaxed) } else { self.look(boot, read) };
        boot.saturating_add_signed(raw_ahead)
    }

    #[cold]
    fn look(&self, boot: Ticks, read: impl Fn(Source) -> Ticks) -> i64 {
        let mut best: Option<(Ticks, i64)> = None;
        for _ in 0..READINGS_MAX {
            let before = read(Source::Monotonic);
            let raw = read(Source::Raw);
            let took = read(Source::Monotonic).saturating_sub(before);
            let ahead = (raw as i64).wrapping_sub((before + took / 2) as i64);
            if best.is_none_or(|(shortest, _)| took < shortest) {
                best = Some((took, ahead));
            }
            if took <= READING_MAX {
                break;
            }
        }
        let ahead = best.map_or(0, |(_, ahead)| ahead);
        self.raw_ahead.store(ahead, Ordering::Relaxed);
        self.read_at.store(boot, Ordering::Release);
        ahead
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn read(source: Source) -> Ticks {
    use rustix::time::ClockId;
    read_clock(match source {
        Source::Boot => ClockId::Boottime,
        Source::Monotonic => ClockId::Monotonic,
        Source::Raw => ClockId::MonotonicRaw,
    })
}

#[cfg(unix)]
fn read_clock(clock: rustix::time::ClockId) -> Ticks {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SECOND: Ticks = 1_000_000_000;

    /// A machine whose clock is being corrected.
    #[derive(Default)]
    struct Machine {
        raw: Cell<Ticks>,
        monotonic: Cell<Ticks>,
        suspended: Cell<Ticks>,
        /// By how many millionths the system's clock is faster than the hardware's.
        slewed_ppm: Cell<i64>,
        /// How long a reading takes.
        reading: Cell<Ticks>,
    }

    impl Machine {
        fn pass(&self, time: Ticks) {
            self.raw.set(self.raw.get() + time);
            let slewed = time as i64 * self.slewed_ppm.get() / 1_000_000;
            self.monotonic.set(self.monotonic.get() + time.saturating_add_signed(slewed));
        }

        fn read(&self, source: Source) -> Ticks {
            self.pass(self.reading.get());
            match source {
                Source::Raw => self.raw.get(),
                Source::Monotonic => self.monotonic.get(),
                Source::Boot => self.monotonic.get() + self.suspended.get(),
            }
        }
    }

    /// chrony may take 8.3 % unless told otherwise, and the system allows 10 %.
    #[test]
    fn setting_the_time_of_day_does_not_change_how_long_a_session_is() {
        for slewed_ppm in [0, 500, 83_333, -83_333, 100_000, -100_000] {
            let (machine, clock) = (Machine::default(), Clock::new());
            machine.pass(1000 * SECOND);
            machine.slewed_ppm.set(slewed_ppm);
            let begun = (clock.now(|source| machine.read(source)), machine.raw.get());
            let mut last = begun.0;
            for step in [50_000, 3 * GOOD_FOR, 250_000_000].into_iter().cycle().take(100_000) {
                machine.pass(step);
                let now = clock.now(|source| machine.read(source));
                assert!((now - begun.0).abs_diff(machine.raw.get() - begun.1) <= ERROR_MAX, "{slewed_ppm} ppm");
                assert!(now + ERROR_MAX >= last, "it goes back by {} at {slewed_ppm} ppm", last - now);
                last = now;
            }
        }
    }

    #[test]
    fn a_suspended_machine_is_counted_at_the_first_look() {
        let (machine, clock) = (Machine::default(), Clock::new());
        machine.pass(SECOND);
        let before = clock.now(|source| machine.read(source));
        machine.suspended.set(3600 * SECOND);
        machine.pass(1000);
        assert_eq!(clock.now(|source| machine.read(source)) - before, 3600 * SECOND + 1000);
    }

    /// A process may be interrupted between two readings.
    #[test]
    fn a_reading_that_took_long_is_repeated() {
        let (machine, clock) = (Machine::default(), Clock::new());
        machine.pass(SECOND);
        let reads = Cell::new(0);
        let now = clock.now(|source| {
            reads.set(reads.get() + 1);
            machine.reading.set(if reads.get() <= 4 { 30_000_000 } else { 20 });
            machine.read(source)
        });
        assert!(now.abs_diff(SECOND + 30_000_000) <= ERROR_MAX, "{now}");
    }

    #[test]
    fn a_sleep_ends_before_the_moment_on_a_clock_that_was_slowed_down() {
        let mut left: u64 = 5 * SECOND;
        let mut sleeps = 0;
        while left > 8_000_000 {
            // The system's timers take a tenth more.
            let slept = sleep_before(left).as_nanos() as u64 / 10 * 11;
            assert!(slept <= left, "{left}");
            (left, sleeps) = (left - slept, sleeps + 1);
        }
        assert!(sleeps < 8, "{sleeps}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_the_systems_clock_as_long_as_nobody_has_changed_its_rate_much() {
        let machine = Clock::new();
        let (before, mine, after) = (read(Source::Raw), machine.now(read), read(Source::Raw));
        let suspended = read(Source::Boot).saturating_sub(read(Source::Monotonic));
        assert!(mine + ERROR_MAX >= before, "{mine} < {before}");
        assert!(mine <= after + suspended + SECOND, "{mine} > {after} + {suspended}");
    }
}
