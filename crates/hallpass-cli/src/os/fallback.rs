//! The same functions for Unixes other than Linux, where they can do less. Exclusion does not depend on them. Every process that the
//! command starts has a copy of the client connection, and the agent frees the lock when the last copy is closed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::getppid;

/// The program that this process runs. If its file was replaced since, this is the new program.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Returns false if the parent is dead already. There is no parent-death signal here: if `run` is killed, its command goes on, and
/// keeps the lock until it ends.
pub(crate) fn die_with_parent(parent: u32) -> bool {
    getppid().is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(parent))
}

/// Does nothing: the system's first process adopts orphans, and this process cannot find them.
pub(crate) fn adopt_orphans() {}

/// Returns true, since descendants cannot be listed and there may be one. So the lock is not released, but freed when the connection
/// closes, a moment after `run` has ended. A loss just before the end of the command is not reported.
pub(crate) fn any_descendant_except(_args: &[&str], _spared: &[u32]) -> bool {
    true
}

/// Does nothing, since descendants cannot be listed. When the lock is lost, only the command itself is killed, not what it started.
pub(crate) fn kill_descendants_except(_args: &[&str], _spared: &[u32], _limit: Option<Duration>) -> bool {
    true
}

/// Returns nothing: children cannot be listed, and none of them is killed.
pub(crate) fn children() -> Vec<u32> {
    Vec::new()
}

/// Keeps the keys in this process's memory out of core files. Other processes of this user may still read them.
pub(crate) fn protect_memory() {
    super::process::forbid_core_files();
}

/// Does nothing: the process has the name of its program.
pub(crate) fn name_process() {}

/// Returns nothing: the system does not say which signals our parent ignores. So under `nohup` SIGHUP is passed on to the command.
pub(super) fn ignored_signals() -> Vec<i32> {
    Vec::new()
}
