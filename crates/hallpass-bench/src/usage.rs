//! What processes use, as Linux counts it; nothing on other systems.

use std::collections::{HashMap, HashSet};

/// The processor time and the memory of some processes and all they have started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Since they were started.
    pub(crate) cpu_seconds: f64,
    /// Resident now. Pages that several share are counted for each.
    pub(crate) memory_bytes: u64,
}

impl Usage {
    pub(crate) fn of(roots: &[u32]) -> Self {
        let all = processes();
        let mut wanted: HashSet<u32> = roots.iter().copied().collect();
        // A process is younger than its parent, but numbers wrap: repeat until nothing is new.
        loop {
            let before = wanted.len();
            let children = all.iter().filter(|(_, process)| wanted.contains(&process.parent));
            let children: Vec<u32> = children.map(|(id, _)| *id).collect();
            wanted.extend(children);
            if wanted.len() == before {
                break;
            }
        }
        let mine = || wanted.iter().filter_map(|id| all.get(id).map(|process| (*id, process)));
        let ticks: u64 = mine().map(|(_, process)| process.ticks).sum();
        Self {
            cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            memory_bytes: mine().map(|(id, _)| resident(id).unwrap_or(0)).sum(),
        }
    }
}

struct Process {
    parent: u32,
    ticks: u64,
}

fn processes() -> HashMap<u32, Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return HashMap::new() };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(|id| Some((id, parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?))).collect()
}

fn parse(stat: &str) -> Option<Process> {
    // The name is in parentheses and may hold anything, parentheses too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // User and system time, its own and that of children that have ended.
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some(Process { parent: u32::try_from(number(1)?).ok()?, ticks })
}

fn resident(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        assert!(Usage::of(&[std::process::id()]).memory_bytes > 100_000);
        assert_eq!(Usage::of(&[]), Usage::default());
    }

    #[test]
    fn names_may_hold_parentheses() {
        let stat = "42 (a) b) S 7 1 1 0 -1 0 0 0 0 0 100 20 3 4 20 0";
        let process = parse(stat).unwrap();
        assert_eq!((process.parent, process.ticks), (7, 127));
    }
}
