//! What a node keeps between its starts: the highest incarnation or epoch that it knows of.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hallpass_node::Incarnation;

use crate::{StartError, os};

/// 2026-01-01, from where incarnations are counted if nothing is known of earlier ones.
const START: Duration = Duration::from_secs(1_767_225_600);
/// How long an incarnation that was counted so lasts at least.
const STEP_SECONDS: u64 = 4;
/// A clock counts up to here, into the year 2038. The rest of the numbers is counted start by start, so that no clock can
/// use them up.
const CLOCK_MAX: u32 = Incarnation::MAX / 4 * 3;
/// No member comes so far ahead of another one by counting starts.
const AHEAD_MAX: u32 = 1 << 20;

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
    lock: Mutex<File>,
    /// The highest number that was written here.
    highest: AtomicU32,
}

/// The incarnation of a start, after the last number that is known, by what the clock says.
///
/// It is above the last one, whatever the clock says. The clock is for what is not known here: a directory that was lost, or
/// members that went on without this one. That holds while the clock is right, and until 2038; then fences rise over starts as
/// long as the directory is kept.
pub(crate) fn next_incarnation(last: Option<u32>, clock: SystemTime) -> Result<Incarnation, Exhausted> {
    let counted = last.map_or(1, |last| last.saturating_add(1));
    let since = clock.duration_since(UNIX_EPOCH + START).map(|since| since.as_secs() / STEP_SECONDS + 1);
    let (number, is_plausible) = match since {
        Ok(steps) if steps <= CLOCK_MAX.into() => (counted.max(steps as u32), true),
        // What was given before is not above this, unless it was counted from there.
        Ok(_) => (last.map_or(CLOCK_MAX, |_| counted), false),
        Err(_) => (counted, false),
    };
    let incarnation = Incarnation::new(number).ok_or(Exhausted(number))?;
    if !is_plausible {
        tracing::warn!(
            year = year(clock), %incarnation,
            "this machine's clock cannot be right, and was not used to count this start; set it"
        );
    }
    Ok(incarnation)
}

/// Whether a member may have this incarnation, if this node has its own.
///
/// The highest one of the members becomes everybody's epoch, and the next starts are counted from there. A single one at the
/// end of the numbers would leave none.
pub(crate) fn is_plausible(own: Incarnation, peers: Incarnation) -> bool {
    peers.get() <= own.get().max(CLOCK_MAX) + AHEAD_MAX
}

/// About the year that a clock shows, for people.
fn year(clock: SystemTime) -> u64 {
    const YEAR_SECONDS: u64 = 31_556_952;
    1970 + clock.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / YEAR_SECONDS)
}

/// There is no incarnation of this number, or none above it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("start {0} is above the last that can be counted, {max}", max = Incarnation::MAX)]
pub(crate) struct Exhausted(u32);

impl DataDirectory {
    /// Locks the directory, creates it if needed, and counts a new start: its incarnation is above every incarnation and
    /// epoch that was seen here, and is on disk when this returns.
    ///
    /// While this machine's clock is right, it is also above all that were counted before the directory was lost, and by
    /// other members meanwhile. A clock before 2026 or after 2038 is not used, and a warning is logged.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StartError> {
        let path = path.into();
        let fail = |why: String| StartError::Data { path: path.clone(), why };
        let io = |what: &'static str| {
            let path = path.clone();
            move |error: std::io::Error| StartError::Data { path, why: format!("{what}: {error}") }
        };
        let elsewhere =
            |what: &str, error: std::io::Error| fail(format!("{what}: {error}; name one that this user can write to"));
        os::create_private_directory(&path).map_err(|error| elsewhere("cannot create it", error))?;
        let found = std::fs::metadata(&path).map_err(io("cannot look at it"))?;
        // Whoever can write there could point a file somewhere else, or turn back the count.
        if !os::is_private(&found) {
            return Err(fail("others can write there; give it to this user alone, with mode 700".to_owned()));
        }
        let lock = open_lock(&path).map_err(|error| elsewhere("cannot write there", error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StartError::InUse(path.clone()),
            TryLockError::Error(error) => io("cannot lock it")(error),
        })?;
        let last = match std::fs::read_to_string(path.join(FILE)) {
            Ok(text) => Some(text.trim().parse().map_err(|_| {
                fail("its file 'incarnation' holds no number; if the node is new, remove the directory".to_owned())
            })?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(io("cannot read 'incarnation'")(error)),
        };
        let incarnation =
            next_incarnation(last, SystemTime::now()).map_err(|error| fail(format!("{error}; {WAY_OUT}")))?;
        write(&path, incarnation.get()).map_err(io("cannot write 'incarnation'"))?;
        Ok(Self { path, incarnation, lock: Mutex::new(lock), highest: AtomicU32::new(incarnation.get()) })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// False if its files were removed or replaced meanwhile: then another node can be started with it.
    pub fn is_intact(&self) -> bool {
        os::is_same_file(&self.lock.lock().unwrap_or_else(PoisonError::into_inner), &self.path.join("lock"))
    }

    /// Makes the files again that were removed, with the same numbers. Only for those who know that nobody else has opened the
    /// directory since: what another node counted there meanwhile is not known here.
    pub fn repair(&self) -> std::io::Result<()> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        os::create_private_directory(&self.path)?;
        let lock = open_lock(&self.path)?;
        lock.try_lock().map_err(|_| std::io::Error::other("another node uses the directory"))?;
        write(&self.path, self.highest.load(Ordering::Relaxed))?;
        *held = lock;
        Ok(())
    }

    /// The incarnation that was counted when it was opened.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// An epoch begins that may be above this incarnation: the next one will be above both.
    pub(crate) fn remember(&self, epoch: u64) -> std::io::Result<()> {
        let epoch = u32::try_from(epoch).ok().and_then(Incarnation::new);
        let epoch = epoch.ok_or_else(|| std::io::Error::other("there is no epoch of this number"))?.get();
        let last: u32 = std::fs::read_to_string(self.path.join(FILE))?.trim().parse().unwrap_or(0);
        self.highest.fetch_max(epoch, Ordering::Relaxed);
        if last < epoch { write(&self.path, epoch) } else { Ok(()) }
    }
}

/// What to do when the numbers are used up.
const WAY_OUT: &str = "stop all members, remove the file 'incarnation' from the data directory of each, set their clocks, \
                       and start them; fences begin anew, so let storages forget the largest that they have seen";

/// The file that holds the number.
const FILE: &str = "incarnation";

fn open_lock(directory: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(directory.join("lock"))
}

fn write(directory: &Path, number: u32) -> std::io::Result<()> {
    let draft = directory.join("incarnation.new");
    let mut out = File::create(&draft)?;
    writeln!(out, "{number}")?;
    out.sync_all()?;
    std::fs::rename(&draft, directory.join(FILE))?;
    os::sync_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    fn next(last: Option<u32>, since_2026: Duration) -> u32 {
        next_incarnation(last, UNIX_EPOCH + START + since_2026).unwrap().get()
    }

    fn next_in_1970(last: Option<u32>) -> u32 {
        next_incarnation(last, UNIX_EPOCH + DAY).unwrap().get()
    }

    #[test]
    fn a_start_is_above_the_last_one_and_not_below_the_clock() {
        assert_eq!(next(None, DAY), 86_400 / 4 + 1);
        assert_eq!(next(Some(7), DAY), 86_400 / 4 + 1, "an old directory");
        assert_eq!(next(Some(1_000_000), DAY), 1_000_001, "a clock that is behind");
        assert!(next(None, DAY + Duration::from_secs(4)) > next(None, DAY));
        assert_eq!(next(None, 12 * YEAR), 12 * 365 * 86_400 / 4 + 1, "a clock counts into 2038");
    }

    #[test]
    fn a_wrong_clock_uses_up_nothing() {
        for wrong in [13 * YEAR, 17 * YEAR, 22 * YEAR, 1000 * YEAR] {
            assert_eq!(next(Some(1_000_000), wrong), 1_000_001, "after {wrong:?}");
            let first = next(None, wrong);
            assert!(Incarnation::MAX - first > 30_000_000, "a fresh directory, {wrong:?}: {first}");
            assert_eq!(next(Some(first), wrong), first + 1, "later starts are accepted");
            assert_eq!(next(Some(first), DAY), first + 1, "also when the clock is right again");
        }
        assert_eq!(next_in_1970(Some(1_000_000)), 1_000_001);
        assert_eq!(next_in_1970(None), 1);
    }

    /// What was counted by a clock that was right is not above what a clock gives that has come to its end.
    #[test]
    fn a_directory_that_is_lost_when_the_clock_has_come_to_its_end_starts_at_that_end() {
        assert!((0..=13).all(|years| next(None, years * YEAR) <= next(None, 14 * YEAR)));
    }

    #[test]
    fn the_end_of_the_numbers_is_an_error_that_names_the_way_out() {
        let directory = std::env::temp_dir().join(format!("hallpass-data-{}", std::process::id()));
        for last in [Incarnation::MAX, Incarnation::MAX + 1, u32::MAX] {
            let _ = std::fs::remove_dir_all(&directory);
            os::create_private_directory(&directory).unwrap();
            write(&directory, last).unwrap();
            let error = DataDirectory::open(&directory).unwrap_err().to_string();
            assert!(error.contains("remove the file 'incarnation'"), "{error}");
            let left = std::fs::read_to_string(directory.join(FILE)).unwrap();
            assert_eq!(left.trim(), last.to_string(), "nothing was stored");
            std::fs::remove_file(directory.join(FILE)).unwrap();
            drop(DataDirectory::open(&directory).unwrap());
        }
        let open = DataDirectory::open(&directory).unwrap();
        let (before, end) = (open.incarnation().get(), u64::from(Incarnation::MAX));
        assert!(open.remember(end + 1).is_err());
        drop(open);
        assert_eq!(DataDirectory::open(&directory).unwrap().incarnation().get(), before + 1);
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// Taken for none, it would be counted anew, and a clock that is behind would let fences fall.
    #[test]
    fn a_number_that_cannot_be_read_is_an_error() {
        let directory = std::env::temp_dir().join(format!("hallpass-unreadable-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        os::create_private_directory(&directory).unwrap();
        std::fs::write(directory.join(FILE), b"\xff\xfe").unwrap();
        let error = DataDirectory::open(&directory).unwrap_err().to_string();
        assert!(error.contains("cannot read 'incarnation'"), "{error}");
        assert_eq!(std::fs::read(directory.join(FILE)).unwrap(), b"\xff\xfe", "nothing was stored");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_directory_whose_files_were_removed_or_replaced_is_not_intact() {
        let directory = std::env::temp_dir().join(format!("hallpass-intact-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let open = DataDirectory::open(&directory).unwrap();
        assert!(open.is_intact());
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(!open.is_intact(), "removed");
        let other = DataDirectory::open(&directory).unwrap();
        assert!(!open.is_intact() && other.is_intact(), "replaced");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_member_far_ahead_of_every_clock_is_not_plausible() {
        let number = |number| Incarnation::new(number).unwrap();
        let (own, end) = (number(7_000_000), number(Incarnation::MAX));
        assert!(is_plausible(own, number(1)) && is_plausible(own, number(CLOCK_MAX + 1000)));
        assert!(!is_plausible(own, end));
        assert!(is_plausible(number(Incarnation::MAX - 10), end), "they have counted so far together");
    }
}
