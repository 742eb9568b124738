//! What a node keeps between its lives: a counter.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use crate::StartError;

/// 2026-01-01, from where lives without a directory are counted.
const START: Duration = Duration::from_secs(1_767_225_600);
/// How long such a life is at the least.
const STEP_SECONDS: u64 = 4;

/// A directory in use by this process. Dropping it frees the directory.
#[derive(Debug)]
pub(crate) struct Data {
    _lock: File,
}

/// The life that begins now, from the clock: for nodes that keep nothing.
pub(crate) fn incarnation_from_clock() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH + START).unwrap_or_default();
    u32::try_from(since.as_secs() / STEP_SECONDS + 1).unwrap_or(u32::MAX)
}

impl Data {
    /// Takes the directory, makes it if needed, and counts a new life: the number is on the disk before it is used.
    pub(crate) fn open(path: &Path) -> Result<(Self, u32), StartError> {
        let fail = |why: String| StartError::Data { path: path.to_owned(), why };
        let io = |what: &str| {
            let what = what.to_owned();
            move |error: std::io::Error| StartError::Data { path: path.to_owned(), why: format!("{what}: {error}") }
        };
        std::fs::create_dir_all(path).map_err(io("cannot make it"))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(io("cannot write there"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| fail("another node uses it; give each node a directory of its own".to_owned()))?;
        let file = path.join("incarnation");
        let last = match std::fs::read_to_string(&file) {
            Ok(text) => text.trim().parse::<u32>().map_err(|_| {
                fail("its file 'incarnation' holds no number; if the node is new, remove the directory".to_owned())
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(io("cannot read 'incarnation'")(error)),
        };
        let incarnation = last.checked_add(1).ok_or_else(|| fail("it has seen too many lives".to_owned()))?;
        let draft = path.join("incarnation.new");
        let write = || {
            let mut out = File::create(&draft)?;
            writeln!(out, "{incarnation}")?;
            out.sync_all()?;
            std::fs::rename(&draft, &file)?;
            File::open(path)?.sync_all()
        };
        write().map_err(io("cannot write 'incarnation'"))?;
        Ok((Self { _lock: lock }, incarnation))
    }
}
