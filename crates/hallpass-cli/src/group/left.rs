//! What a command leaves behind. `run` takes orphans in, so whatever still works is among its children or theirs.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, wait, waitid};

/// Waits for the command and tells how it ended, and then for whatever else ends here: whoever takes orphans in buries them.
pub(super) fn bury(command: Pid, tell: impl Fn(Option<ExitStatus>)) {
    let mut told = false;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                told = true;
                tell(Some(ExitStatus::from_raw(status.as_raw())));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) if told => return,
            Err(_) => return tell(None),
        }
    }
}

/// True if something that the command started may still be at work. In doubt it is.
pub(super) fn is_anybody() -> bool {
    for _ in 0..5 {
        let looks = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, looks), Err(Errno::CHILD)) {
            return false;
        }
        // The system's list may miss one while another ends: an empty one is looked at again.
        match children() {
            Some(children) if !children.is_empty() => return children.iter().any(|child| !is_agent(*child)),
            Some(_) => thread::sleep(Duration::from_millis(1)),
            None => return true,
        }
    }
    true
}

/// The lock is lost: nothing that the command started goes on. The children of those that are killed become this process's.
pub(super) fn kill_all() {
    for _ in 0..100 {
        let found: Vec<u32> = children().unwrap_or_default().into_iter().filter(|child| !is_agent(*child)).collect();
        if found.is_empty() && !is_anybody() {
            return;
        }
        for pid in found.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The children of this process that are at work. Nothing if that cannot be known.
fn children() -> Option<Vec<u32>> {
    // In a /proc of another namespace processes have other numbers.
    if std::fs::read_link("/proc/self").ok()? != Path::new(&std::process::id().to_string()) {
        return None;
    }
    let tasks = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let lists: Vec<String> =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok()).collect();
    let all = lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok());
    (!lists.is_empty()).then(|| all.filter(|pid| is_at_work(*pid)).collect())
}

/// One whose first thread has ended may have others that have not.
fn is_at_work(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let ended = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X']));
    !ended || std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 1)
}

/// A private agent is there for all, whoever has started it.
fn is_agent(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).skip(1).take(2).eq([&b"agent"[..], b"--private"])
}
