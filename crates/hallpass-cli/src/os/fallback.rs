//! Other Unixes than Linux: the same functions, with less to offer. Exclusion does not depend on them, since every process that the
//! command started has a copy of the client connection, and the agent frees the lock when the last copy is closed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::getppid;

/// The program that this process runs. If its file has been replaced meanwhile it is another one.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// There is no parent-death signal: after a `run` that was killed its command goes on, and keeps the lock until it ends. False if
/// the parent is dead already.
pub(crate) fn die_with_parent(parent: u32) -> bool {
    getppid().is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(parent))
}

/// Orphans are adopted by the system's first process, and cannot be found from here.
pub(crate) fn adopt_orphans() {}

/// Descendants cannot be listed, so there may be one. The lock is then not released but left to the closing of the connection: it
/// is free a moment after `run` has ended, and a loss just before the end of the command is not reported.
pub(crate) fn any_descendant_except(_args: &[&str], _spared: &[u32]) -> bool {
    true
}

/// Descendants cannot be listed: when the lock is lost only the command itself is killed, not what it started.
pub(crate) fn kill_descendants_except(_args: &[&str], _spared: &[u32], _limit: Option<Duration>) -> bool {
    true
}

/// Children cannot be listed, and none of them is killed.
pub(crate) fn children() -> Vec<u32> {
    Vec::new()
}

/// The process has the name of its program.
pub(crate) fn name_process() {}

/// It is not known which signals our parent ignores: under `nohup` SIGHUP is passed on to the command.
pub(super) fn ignored_signals() -> Vec<i32> {
    Vec::new()
}
