//! Functions that only Linux offers: the parent-death signal, adoption of orphans, and `/proc`.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_dumpable_behavior, set_parent_process_death_signal, waitid,
};

use super::process::forbid_core_files;

/// The program that this process runs, even if its file has been replaced or removed.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    Ok(PathBuf::from("/proc/self/exe"))
}

/// Makes the system kill this process when its parent dies, also after an exec. Returns false if that failed or the parent is dead
/// already.
pub(crate) fn die_with_parent(parent: u32) -> bool {
    set_parent_process_death_signal(Some(Signal::KILL)).is_ok()
        // The call does not notice a parent that died before it. In that case this process has another parent by now.
        && getppid().is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(parent))
}

/// Makes this process the parent of descendants whose own parent ends, so that it can find and kill them. It must reap them.
pub(crate) fn adopt_orphans() {
    let _ = set_child_subreaper(Some(getpid()));
}

/// Returns whether a descendant of this process may still be running, apart from spared ones and programs with these first arguments.
/// If the answer is not known, it is true.
pub(crate) fn any_descendant_except(args: &[&str], spared: &[u32]) -> bool {
    for _ in 0..5 {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, peek), Err(Errno::CHILD)) {
            return false;
        }
        // The kernel's list may miss a child while another one ends: an empty list is read again.
        match running_children() {
            Some(children) if !children.is_empty() => {
                return children.iter().any(|child| !spared.contains(child) && !has_args(*child, args));
            }
            Some(_) => thread::sleep(Duration::from_millis(1)),
            None => return true,
        }
    }
    true
}

/// Kills all descendants until none is left, apart from spared ones and programs with these first arguments. Returns false if some are
/// left after the limit: this user may not kill them. It finds descendants that have closed every descriptor and left the session,
/// too, since a process whose parent ends becomes a child of this one.
pub(crate) fn kill_descendants_except(args: &[&str], spared: &[u32], limit: Option<Duration>) -> bool {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut pause = Duration::from_millis(1);
    while any_descendant_except(args, spared) {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return false;
        }
        for pid in descendants_except(args, spared).into_iter().filter_map(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    true
}

/// All running descendants, apart from spared ones and programs with these first arguments.
fn descendants_except(args: &[&str], spared: &[u32]) -> Vec<u32> {
    let mut found = running_children().unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        if spared.contains(&pid) || has_args(pid, args) {
            found.swap_remove(next);
            continue;
        }
        found.extend(children_of(&pid.to_string()).unwrap_or_default());
        next += 1;
    }
    found
}

/// The signals that this process ignores because its parent ignored them.
pub(super) fn ignored_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}

/// The current children of this process.
pub(crate) fn children() -> Vec<u32> {
    running_children().unwrap_or_default()
}

/// The running children of this process. `None` if the list cannot be read.
fn running_children() -> Option<Vec<u32>> {
    // The /proc of another namespace would show other process ids.
    if std::fs::read_link("/proc/self").ok()? != Path::new(&std::process::id().to_string()) {
        return None;
    }
    children_of("self")
}

fn children_of(process: &str) -> Option<Vec<u32>> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let lists: Vec<String> =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok()).collect();
    let all = lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok());
    (!lists.is_empty()).then(|| all.filter(|pid| is_running(*pid)).collect())
}

/// Keeps the keys in this process's memory out of core files, and from other processes of this user. Call it after the last exec, which undoes it.
pub(crate) fn protect_memory() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    forbid_core_files();
}

/// Names this process `hallpass`. A program that is started by its link in `/proc` has the name `exe`.
pub(crate) fn name_process() {
    let _ = rustix::thread::set_name(c"hallpass");
}

/// A process whose first thread has ended looks like a zombie, but other threads may still run.
fn is_running(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let ended = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X']));
    !ended || std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
}

fn has_args(pid: u32, args: &[&str]) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).skip(1).take(args.len()).eq(args.iter().map(|arg| arg.as_bytes()))
}
