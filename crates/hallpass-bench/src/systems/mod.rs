//! The systems under test that need no other software, each as one process sees it.

pub(crate) mod agent;
pub(crate) mod changes;
pub(crate) mod hallpass;
pub(crate) mod locker;
pub(crate) mod ping;

/// The name of a lock by its number; the same for all systems.
pub fn lock_name(lock: u32) -> String {
    format!("bench/{lock}")
}

/// More locks than any workload has.
pub(crate) const LOCKS_MAX: u32 = 256;
