//! Marks that an agent leaves in and beside its data, for others to read while no agent runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hallpass::LogLimiter;

use crate::AgentPaths;

/// The pause before a mark that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The marks of an agent that runs.
///
/// The **running** mark says for how many milliseconds clients may outlive the agent. The **membership** mark says to which group its
/// paths belong. The **shared** mark says that others have been in the group.
#[derive(Debug)]
pub(crate) struct Marks {
    paths: AgentPaths,
    /// The number in the running mark.
    persisted_ms: AtomicU64,
    /// Held while marks are written.
    failed: Mutex<Failed>,
    /// The group that the paths belong to, once they do.
    group: OnceLock<String>,
}

/// When the marks could not be written, and why.
#[derive(Debug, Default)]
struct Failed {
    last: Option<(Instant, String)>,
    log: LogLimiter,
}

impl Marks {
    /// Nothing is written yet.
    pub(crate) fn new(paths: AgentPaths, ttl: Duration) -> Self {
        let persisted_ms = AtomicU64::new(ttl.as_millis() as u64);
        Self { paths, persisted_ms, failed: Mutex::default(), group: OnceLock::new() }
    }

    /// From now on the paths belong to a member of this group. The next [`write`](Self::write) says so.
    pub(crate) fn set_group(&self, group: String) {
        let _ = self.group.set(group);
    }

    /// Writes the running mark and the membership mark again, as they are.
    pub(crate) fn write(&self) -> std::io::Result<()> {
        let _writing = self.failed();
        self.write_all(self.persisted_ms.load(Ordering::Relaxed))
    }

    /// How long the next agent waits, at least.
    pub(crate) fn persisted(&self) -> Duration {
        Duration::from_millis(self.persisted_ms.load(Ordering::Acquire))
    }

    /// Makes sure that the next agent waits at least this long. An error if the running mark says less and could not be written.
    pub(crate) fn persist_deadline(&self, needed_ms: u64) -> Result<(), String> {
        if self.is_persisted(needed_ms) { Ok(()) } else { self.try_to_persist(self.failed(), needed_ms) }
    }

    /// The same, unless another thread is writing: on a disk that hangs only one waits.
    pub(crate) fn persist_deadline_unless_busy(&self, needed_ms: u64) {
        if !self.is_persisted(needed_ms)
            && let Ok(failed) = self.failed.try_lock()
        {
            let _ = self.try_to_persist(failed, needed_ms);
        }
    }

    /// True if others have been in the group.
    pub(crate) fn is_shared(&self) -> bool {
        self.paths.shared_mark().exists()
    }

    /// Writes down that others are in the group, and whose member these paths belong to.
    pub(crate) fn write_shared(&self, group: String) -> std::io::Result<()> {
        // The directory above may not be this user's to write to. Then members that look for the lost one tell it.
        let shared = write_durably(&self.paths.shared_mark(), &group);
        self.set_group(group);
        self.write().and(shared)
    }

    /// The next agent need not wait.
    pub(crate) fn remove_running(&self) {
        let _ = std::fs::remove_file(self.paths.running_mark());
    }

    /// The paths do not belong to a member of a group any more.
    pub(crate) fn remove_membership(&self) {
        for file in [self.paths.shared_mark()].iter().chain(&self.paths.member_file) {
            let _ = std::fs::remove_file(file);
        }
    }

    fn is_persisted(&self, needed_ms: u64) -> bool {
        self.persisted_ms.load(Ordering::Acquire) >= needed_ms
    }

    fn try_to_persist(&self, mut failed: MutexGuard<'_, Failed>, needed_ms: u64) -> Result<(), String> {
        if self.is_persisted(needed_ms) {
            return Ok(());
        }
        if let Some((_, why)) = failed.last.as_ref().filter(|(at, _)| at.elapsed() < RETRY) {
            return Err(why.clone());
        }
        match self.write_all(needed_ms) {
            Ok(()) => {
                self.persisted_ms.store(needed_ms, Ordering::Release);
                failed.last = None;
                Ok(())
            }
            Err(error) => {
                let why = error.to_string();
                if failed.log.pass(&why).is_some() {
                    tracing::error!(%error, "cannot write down how long clients may outlive this agent: no locks are granted");
                }
                failed.last = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    fn write_all(&self, persisted_ms: u64) -> std::io::Result<()> {
        write_durably(&self.paths.running_mark(), &persisted_ms.to_string())?;
        match (&self.paths.member_file, self.group.get()) {
            (Some(file), Some(group)) => write_durably(file, group),
            _ => Ok(()),
        }
    }

    fn failed(&self) -> MutexGuard<'_, Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn set_persisted(&self, persisted: Duration) {
        self.persisted_ms.store(persisted.as_millis() as u64, Ordering::Release);
    }

    #[cfg(test)]
    pub(crate) fn is_writing(&self) -> bool {
        self.failed.try_lock().is_err()
    }
}

/// Writes a file so that it is still there after a power failure. On a full disk it stays as it was.
fn write_durably(file: &std::path::Path, text: &str) -> std::io::Result<()> {
    let draft = file.with_extension("new");
    std::fs::write(&draft, text)?;
    std::fs::File::open(&draft)?.sync_all()?;
    std::fs::rename(&draft, file)?;
    file.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all())
}
