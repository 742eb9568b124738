//! What a node keeps between its lives: the highest number of a life or an epoch that it knows of.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use crate::StartError;

/// 2026-01-01, from where lives are counted if nothing is known of earlier ones.
const START: Duration = Duration::from_secs(1_767_225_600);
/// How long such a life is at the least.
const STEP_SECONDS: u64 = 4;

/// A directory in use by this process. Dropping it frees the directory.
#[derive(Debug)]
pub(crate) struct Data {
    path: PathBuf,
    _lock: File,
}

/// The life that begins now, from the clock: for nodes that remember nothing.
pub(crate) fn incarnation_from_clock() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH + START).unwrap_or_default();
    u32::try_from(since.as_secs() / STEP_SECONDS + 1).unwrap_or(u32::MAX)
}

impl Data {
    /// Takes the directory, makes it if needed, and counts a new life, above every life and epoch that was seen here. The
    /// number is on the disk before it is used.
    pub(crate) fn open(path: &Path) -> Result<(Self, u32), StartError> {
        let fail = |why: String| StartError::Data { path: path.to_owned(), why };
        let io = |what: &str| {
            let what = what.to_owned();
            move |error: std::io::Error| StartError::Data { path: path.to_owned(), why: format!("{what}: {error}") }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io("cannot make it"))?;
        let found = std::fs::metadata(path).map_err(io("cannot look at it"))?;
        // Whoever can write there could point a file somewhere else, or turn back the count.
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(fail("others can write there; give it to this user alone, with mode 700".to_owned()));
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(io("cannot write there"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| StartError::InUse(path.to_owned()))?;
        let data = Self { path: path.to_owned(), _lock: lock };
        let incarnation = match std::fs::read_to_string(data.file()) {
            Ok(text) => {
                let last: u32 = text.trim().parse().map_err(|_| {
                    fail("its file 'incarnation' holds no number; if the node is new, remove the directory".to_owned())
                })?;
                let next = last.checked_add(1).ok_or_else(|| fail("it has seen too many lives".to_owned()))?;
                // Members that were there meanwhile, without this one, have counted on.
                next.max(incarnation_from_clock())
            }
            // What was counted before a directory was lost is below the clock.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => incarnation_from_clock(),
            Err(error) => return Err(io("cannot read 'incarnation'")(error)),
        };
        data.write(incarnation).map_err(io("cannot write 'incarnation'"))?;
        Ok((data, incarnation))
    }

    /// An epoch begins that may be above this life: the next life comes after both, whoever the members will be.
    pub(crate) fn remember(&self, epoch: u64) -> std::io::Result<()> {
        let last: u64 = std::fs::read_to_string(self.file())?.trim().parse().unwrap_or(0);
        if last < epoch { self.write(u32::try_from(epoch).unwrap_or(u32::MAX)) } else { Ok(()) }
    }

    fn file(&self) -> PathBuf {
        self.path.join("incarnation")
    }

    fn write(&self, number: u32) -> std::io::Result<()> {
        let draft = self.path.join("incarnation.new");
        let mut out = File::create(&draft)?;
        writeln!(out, "{number}")?;
        out.sync_all()?;
        std::fs::rename(&draft, self.file())?;
        File::open(&self.path)?.sync_all()
    }
}
