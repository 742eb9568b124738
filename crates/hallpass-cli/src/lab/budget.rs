//! When an exploration stops automatically: near its memory, while the machine still has some left, or on Ctrl-C.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hallpass_lab::Flow;

use crate::cli::Size;
use crate::exit::Fault;
use crate::os::{self, Memory};

/// How often the memory is measured while no table is about to grow.
const MEASURE_EVERY: Duration = Duration::from_millis(50);
/// This part of the machine's memory stays free: other explorations may run beside this one.
const FREE_SHARE: u64 = 16;

/// Why an exploration was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The next states could take more than this.
    Memory(Size),
    /// The machine has only so much left.
    Machine(Size),
    Interrupted,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(size) => write!(f, "near {size} of memory; --memory SIZE explores more"),
            Self::Machine(size) => write!(f, "because only {size} of memory are left on this machine"),
            Self::Interrupted => f.write_str("by Ctrl-C"),
        }
    }
}

/// The limits of an exploration.
pub(super) struct Budget {
    /// `None` where memory cannot be measured.
    memory: Option<Size>,
    interrupted: Arc<AtomicBool>,
    measured: Option<Instant>,
    pub(super) stopped: Option<Stop>,
}

impl Budget {
    /// With this much memory, or half of what is free now.
    pub(super) fn new(memory: Option<Size>) -> Result<Self, Fault> {
        let now = Memory::now();
        if memory.is_some() && now.is_none() {
            return Err(Fault::Usage(
                "--memory: this system does not say how much is used; use --states-max".to_owned(),
            ));
        }
        let interrupted = os::interrupted().map_err(|error| Fault::Failed(format!("cannot catch Ctrl-C: {error}")))?;
        let half = || now.map(|now| Size(now.available / 2));
        Ok(Self { memory: memory.or_else(half), interrupted, measured: None, stopped: None })
    }

    /// Stops an exploration whose tables will grow by too many bytes at once.
    pub(super) fn check(&mut self, growth: usize) -> Flow {
        if self.interrupted.load(Ordering::Relaxed) {
            self.stopped = Some(Stop::Interrupted);
        } else if growth > 0 || self.measured.is_none_or(|measured| measured.elapsed() > MEASURE_EVERY) {
            self.measured = Some(Instant::now());
            let now = self.memory.zip(Memory::now());
            self.stopped = now.and_then(|(limit, memory)| too_much(&memory, limit, growth as u64));
        }
        if self.stopped.is_some() { Flow::Stop } else { Flow::Continue }
    }
}

fn too_much(memory: &Memory, limit: Size, growth: u64) -> Option<Stop> {
    if memory.used + growth > limit.0 {
        return Some(Stop::Memory(limit));
    }
    (memory.available < memory.total / FREE_SHARE + growth).then_some(Stop::Machine(Size(memory.available)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1 << 20;

    #[test]
    fn it_stops_before_the_limit_is_passed_and_before_the_machine_is_full() {
        let limit = Size(500 * MEGABYTE);
        let memory = Memory { total: 16_000 * MEGABYTE, available: 8000 * MEGABYTE, used: 300 * MEGABYTE };
        let stop = |memory: Memory, growth: u64| too_much(&memory, limit, growth * MEGABYTE);
        assert_eq!(stop(memory, 0), None);
        assert_eq!(stop(memory, 200), None);
        assert_eq!(stop(memory, 201), Some(Stop::Memory(limit)));
        let full = Memory { available: 1100 * MEGABYTE, ..memory };
        assert_eq!(stop(full, 0), None);
        assert_eq!(stop(full, 150), Some(Stop::Machine(Size(1100 * MEGABYTE))));
    }

    #[test]
    fn a_stop_says_why() {
        assert_eq!(Stop::Memory(Size(60 * MEGABYTE)).to_string(), "near 60 MB of memory; --memory SIZE explores more");
        assert_eq!(Stop::Memory(Size(3 << 30)).to_string(), "near 3 GB of memory; --memory SIZE explores more");
        let left = Stop::Machine(Size(20_000 * MEGABYTE)).to_string();
        assert_eq!(left, "because only 19 GB of memory are left on this machine");
    }
}
