//! The systems under test, each as one process sees it.

pub(crate) mod agent;
pub(crate) mod hallpass;
pub(crate) mod locker;
pub(crate) mod ping;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod redlock;
pub(crate) mod zookeeper;

/// The name of a lock by its number; the same for all systems.
pub(crate) fn lock_name(lock: u32) -> String {
    format!("bench/{lock}")
}

/// More locks than any workload has.
pub(crate) const LOCKS_MAX: u32 = 256;
