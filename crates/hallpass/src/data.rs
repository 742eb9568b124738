//! What a node keeps between its starts: the highest incarnation or epoch that it knows of.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hallpass_node::Incarnation;

use crate::{StartError, os};

/// 2026-01-01, from where incarnations are counted if nothing is known of earlier ones.
const START: Duration = Duration::from_secs(1_767_225_600);
/// How long an incarnation that was counted so lasts at least.
const STEP_SECONDS: u64 = 4;

/// A directory of one node's own, locked by this process until this is dropped.
///
/// [`Builder::data`](crate::Builder::data) opens it when the node starts. Open it yourself, for
/// [`Builder::data_directory`](crate::Builder::data_directory), to have it before: two processes that start at the same
/// moment must not both do what only one may.
///
/// ```
/// let path = std::env::temp_dir().join(format!("hallpass-doc-{}", std::process::id()));
/// let directory = hallpass::DataDirectory::open(&path)?;
/// assert!(hallpass::DataDirectory::open(&path).is_err(), "it is in use");
/// # drop(directory);
/// # std::fs::remove_dir_all(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    incarnation: Incarnation,
    lock: File,
}

/// An incarnation from the clock, for nodes that know nothing of earlier ones.
pub(crate) fn incarnation_from_clock() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH + START).unwrap_or_default();
    u32::try_from(since.as_secs() / STEP_SECONDS + 1).unwrap_or(u32::MAX)
}

impl DataDirectory {
    /// Locks the directory, creates it if needed, and counts a new start: its incarnation is above every incarnation and
    /// epoch that was seen here, and is on disk when this returns.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StartError> {
        let path = path.into();
        let fail = |why: String| StartError::Data { path: path.clone(), why };
        let io = |what: &'static str| {
            let path = path.clone();
            move |error: std::io::Error| StartError::Data { path, why: format!("{what}: {error}") }
        };
        os::create_private_directory(&path).map_err(io("cannot create it"))?;
        let found = std::fs::metadata(&path).map_err(io("cannot look at it"))?;
        // Whoever can write there could point a file somewhere else, or turn back the count.
        if !os::is_private(&found) {
            return Err(fail("others can write there; give it to this user alone, with mode 700".to_owned()));
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(io("cannot write there"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StartError::InUse(path.clone()),
            TryLockError::Error(error) => io("cannot lock it")(error),
        })?;
        let next = match std::fs::read_to_string(path.join(FILE)) {
            Ok(text) => {
                let last: u32 = text.trim().parse().map_err(|_| {
                    fail("its file 'incarnation' holds no number; if the node is new, remove the directory".to_owned())
                })?;
                // Members that were there meanwhile, without this one, have counted on.
                last.saturating_add(1).max(incarnation_from_clock())
            }
            // What was counted before a directory was lost is below the clock.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => incarnation_from_clock(),
            Err(error) => return Err(io("cannot read 'incarnation'")(error)),
        };
        let incarnation = Incarnation::new(next).ok_or_else(|| fail(exhausted(next)))?;
        write(&path, incarnation.get()).map_err(io("cannot write 'incarnation'"))?;
        Ok(Self { path, incarnation, lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// False if its files were removed or replaced meanwhile: then another node can be started with it.
    pub fn is_intact(&self) -> bool {
        os::is_same_file(&self.lock, &self.path.join("lock"))
    }

    /// The incarnation that was counted when it was opened.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// An epoch begins that may be above this incarnation: the next one will be above both.
    pub(crate) fn remember(&self, epoch: u64) -> std::io::Result<()> {
        let last: u64 = std::fs::read_to_string(self.path.join(FILE))?.trim().parse().unwrap_or(0);
        if last < epoch { write(&self.path, u32::try_from(epoch).unwrap_or(u32::MAX)) } else { Ok(()) }
    }
}

/// The file that holds the number.
const FILE: &str = "incarnation";

fn write(directory: &Path, number: u32) -> std::io::Result<()> {
    let draft = directory.join("incarnation.new");
    let mut out = File::create(&draft)?;
    writeln!(out, "{number}")?;
    out.sync_all()?;
    std::fs::rename(&draft, directory.join(FILE))?;
    os::sync_directory(directory)
}

/// Why there is no incarnation of this number.
pub(crate) fn exhausted(number: u32) -> String {
    format!("incarnation {number} is above the largest one, {}; is the clock right?", Incarnation::MAX)
}
