//! How much memory there is, from `/proc` on Linux. Other systems do not say.

use std::fs;

/// The memory of this machine, or of the container that this process runs in, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// How much new work can use before anything is swapped out.
    pub(crate) available: u64,
    /// How much this process uses.
    pub(crate) used: u64,
}

impl Memory {
    /// The present numbers, if the system says them.
    pub(crate) fn now() -> Option<Self> {
        let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let of_group = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?.trim().parse().ok();
        Self::parse(&meminfo, &status, of_group("memory.max"), of_group("memory.current"))
    }

    fn parse(meminfo: &str, status: &str, limit: Option<u64>, in_group: Option<u64>) -> Option<Self> {
        let (total, available) = (kilobytes(meminfo, "MemTotal:")?, kilobytes(meminfo, "MemAvailable:")?);
        let left = limit.zip(in_group).map_or(u64::MAX, |(limit, used)| limit.saturating_sub(used));
        Some(Self {
            total: total.min(limit.unwrap_or(u64::MAX)),
            available: available.min(left),
            used: kilobytes(status, "VmRSS:")?,
        })
    }
}

/// The value of a line such as `VmRSS:  1234 kB`, in bytes.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:        4000 kB\nMemFree:  100 kB\nMemAvailable:    3000 kB\n";
    const STATUS: &str = "Name:\thallpass\nVmRSS:\t     200 kB\n";

    #[test]
    fn the_systems_numbers_are_read() {
        let memory = Memory { total: 4000 * 1024, available: 3000 * 1024, used: 200 * 1024 };
        assert_eq!(Memory::parse(MEMINFO, STATUS, None, None), Some(memory));
        assert_eq!(Memory::parse("MemTotal: 7 kB", STATUS, None, None), None);
        assert_eq!(Memory::parse(MEMINFO, "", None, None), None);
    }

    #[test]
    fn a_containers_limit_counts_where_it_is_lower() {
        let parse = |limit, used| {
            let memory = Memory::parse(MEMINFO, STATUS, Some(limit), Some(used)).unwrap();
            (memory.total, memory.available)
        };
        assert_eq!(parse(1000 * 1024, 300 * 1024), (1000 * 1024, 700 * 1024));
        assert_eq!(parse(1000, 2000), (1000, 0));
        assert_eq!(parse(1 << 60, 0), (4000 * 1024, 3000 * 1024));
    }
}
