//! What a node keeps between its starts: its identity, its count of starts, and the state of its group that it must not forget.

mod clock;
mod store;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hallpass_core::{Fence, NodeId};
use hallpass_node::{Incarnation, Write, keys};

pub(crate) use clock::next_incarnation;
use store::{Store, StoreError};

use crate::{StartError, os};

/// The data directory of one node, locked by this process until the value is dropped.
///
/// [`Builder::data`](crate::Builder::data) opens it when the node starts. To lock it earlier, open it yourself and pass it to
/// [`Builder::data_directory`](crate::Builder::data_directory): of two processes that start at the same moment only one gets it.
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
    started: Started,
    files: Mutex<Files>,
}

/// What was found at the start.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// All stored records.
    pub(crate) stored: BTreeMap<u64, Vec<u8>>,
    /// A group that is founded from this directory has epochs above this one.
    pub(crate) epoch_floor: u64,
    /// The last process with this directory has certainly ended: it ran on this machine, since its boot, in this directory.
    pub(crate) predecessor_is_dead: bool,
}

struct Files {
    store: Store,
    /// The file behind the store, to notice that it was removed or replaced.
    data: File,
    /// The last field, dropped last: nobody else may lock the directory before the store is closed.
    lock: File,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Files")
    }
}

/// The file with all records, a new file that is not complete yet, and the lock.
const FILE: &str = "node.redb";
const DRAFT: &str = "node.new";
const LOCK: &str = "lock";
/// The file of earlier versions: a number above all epochs of the group.
const OLD_FILE: &str = "incarnation";

impl DataDirectory {
    /// Creates the directory if needed, locks it, and counts a new start. The count is on disk when this returns.
    ///
    /// An empty directory makes a new node. A damaged one is refused and left as it is.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StartError> {
        let path = path.into();
        let lock = lock(&path)?;
        let fail = |why: String| StartError::Data { path: path.clone(), why };
        let unusable = |what: &str, error: StoreError| match error {
            StoreError::Io(_) => fail(format!("cannot {what} '{FILE}': {error}")),
            StoreError::Damaged(_) => fail(format!("{error}; {WAY_OUT}")),
        };
        let epoch_floor = old_number(&path)?;
        let file = path.join(FILE);
        let is_new = !file.try_exists().map_err(|error| fail(format!("cannot look at '{FILE}': {error}")))?;
        if is_new {
            let identity = Identity { node: random_id(), place: os::place(&path) };
            let entries = vec![(keys::IDENTITY, identity.encode())];
            make(&path, entries).map_err(|error| unusable("create", error))?;
        }
        let (store, mut stored) = Store::open(&file).map_err(|error| unusable("read", error))?;
        let identity = stored.get(&keys::IDENTITY).and_then(|bytes| Identity::decode(bytes));
        let identity = identity
            .ok_or_else(|| unusable("read", StoreError::Damaged("it does not contain a node's identity".to_owned())))?;
        let incarnation = match stored.get(&keys::INCARNATION) {
            None => Incarnation::FIRST,
            Some(bytes) => next(bytes).map_err(fail)?,
        };
        let counted = (keys::INCARNATION, incarnation.get().to_be_bytes().to_vec());
        store
            .apply(&[Write { number: 0, remove: 0..0, put: vec![counted.clone()] }])
            .map_err(|error| unusable("write to", error))?;
        stored.extend([counted]);
        let data = File::open(&file).map_err(|error| fail(format!("cannot open '{FILE}': {error}")))?;
        let started = Started {
            node: identity.node,
            incarnation,
            stored,
            epoch_floor,
            predecessor_is_dead: is_new || (identity.place.is_some() && identity.place == os::place(&path)),
        };
        Ok(Self { path, started, files: Mutex::new(Files { lock, store, data }) })
    }

    /// Empties a directory that no node uses, so that it belongs to a new node: the old identity and group are forgotten. A group that
    /// is founded from there has fences above those of the forgotten group.
    pub fn forget(path: impl Into<PathBuf>) -> Result<(), StartError> {
        let path = path.into();
        if !path.join(FILE).exists() {
            return Ok(());
        }
        let data = Self::open(&path)?;
        let fail =
            |error: std::io::Error| StartError::Data { path: path.clone(), why: format!("cannot empty it: {error}") };
        // Records that cannot be read say nothing about fences either.
        if let Some(epoch) = data.epochs_used() {
            keep_floor(&path, epoch).map_err(fail)?;
        }
        for file in [FILE, DRAFT] {
            match std::fs::remove_file(path.join(file)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
                _ => {}
            }
        }
        os::sync_directory(&path).map_err(fail)
    }

    /// Makes groups that are founded from this directory begin above all groups that were founded from the former one. So one user's
    /// fences never fall when the agent's data moves. The former directory is emptied. Neither may be in use.
    ///
    /// A node that was alone in its group gives that group up for a new one if its epochs are not above. A node with others in its
    /// group stays: its next grants are above all earlier ones of that group.
    #[doc(hidden)]
    pub fn take_over(path: impl Into<PathBuf>, former: impl Into<PathBuf>) -> Result<(), StartError> {
        let (path, former) = (path.into(), former.into());
        if !former.join(FILE).exists() && !former.join(OLD_FILE).exists() {
            return Ok(());
        }
        let floor = Self::open(&former)?.floor();
        let data = Self::open(&path)?;
        let is_shared = data.has_others();
        let is_above = data.floor() >= floor;
        drop(data);
        if !is_shared && !is_above {
            Self::forget(&path)?;
            let fail = |error: std::io::Error| StartError::Data { path: path.clone(), why: error.to_string() };
            keep_floor(&path, floor).map_err(fail)?;
        }
        Self::forget(&former)?;
        match std::fs::remove_file(former.join(OLD_FILE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StartError::Data { path: former, why: error.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// The upper bound of all epochs of groups that were founded from this directory.
    fn floor(&self) -> u64 {
        self.epochs_used().unwrap_or(0).max(self.started.epoch_floor)
    }

    /// The highest epoch that the stored group may have used, if there is a group and it can be read.
    fn epochs_used(&self) -> Option<u64> {
        hallpass_node::recover(&self.started.stored, self.started.node).ok().map(|(epoch, _)| epoch)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if its node is or was in a group.
    pub fn is_in_group(&self) -> bool {
        self.started.stored.contains_key(&keys::GROUP)
    }

    /// True if its group had other members when it was opened, also some that are away.
    pub fn has_others(&self) -> bool {
        hallpass_node::last_members(&self.started.stored).is_some_and(|members| members > 1)
    }

    /// False if its files were removed or replaced since it was opened. Then another node can be started with it.
    pub fn is_intact(&self) -> bool {
        let files = self.files();
        os::is_same_file(&files.lock, &self.path.join(LOCK)) && os::is_same_file(&files.data, &self.path.join(FILE))
    }

    /// Creates removed files again, with the same content. Call it only if nobody else can have opened the directory since: what
    /// another node stored there would be overwritten.
    pub fn repair(&self) -> std::io::Result<()> {
        let mut files = self.files();
        os::create_private_directory(&self.path)?;
        let lock = if os::is_same_file(&files.lock, &self.path.join(LOCK)) {
            None
        } else {
            let lock = open_lock(&self.path)?;
            lock.try_lock().map_err(|_| std::io::Error::other("another node uses the directory"))?;
            Some(lock)
        };
        if !os::is_same_file(&files.data, &self.path.join(FILE)) {
            // The open file can still be read after it was removed.
            let entries = files.store.entries().map_err(std::io::Error::other)?;
            make(&self.path, entries.into_iter().collect()).map_err(std::io::Error::other)?;
            let (store, _) = Store::open(&self.path.join(FILE)).map_err(std::io::Error::other)?;
            (files.store, files.data) = (store, File::open(self.path.join(FILE))?);
        }
        if let Some(lock) = lock {
            files.lock = lock;
        }
        Ok(())
    }

    /// What was found when the directory was opened.
    pub(crate) fn started(&self) -> &Started {
        &self.started
    }

    /// Applies these changes in order. They are on disk when this returns.
    pub(crate) fn write(&self, writes: &[Write]) -> std::io::Result<()> {
        self.files().store.apply(writes).map_err(std::io::Error::other)
    }

    /// Records that this node takes part in its group. The group has ended the session of any earlier process with this directory.
    pub(crate) fn settle(&self) -> std::io::Result<()> {
        let identity = Identity { node: self.started.node, place: os::place(&self.path) }.encode();
        if self.started.stored.get(&keys::IDENTITY) == Some(&identity) {
            return Ok(());
        }
        self.write(&[Write { number: 0, remove: 0..0, put: vec![(keys::IDENTITY, identity)] }])
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a group of one from the data of a survivor, for a group that has permanently lost more than half of its voters. Returns the
/// new group's first epoch.
///
/// The node must not run. No other member of the lost group may go on: each joins the new group with an empty directory. The new
/// group's fences are above those of the lost one, unless that was ahead of this member by 65,536 views.
pub fn recover(directory: impl Into<PathBuf>) -> Result<u64, StartError> {
    let path = directory.into();
    let fail = |why: String| StartError::Data { path: path.clone(), why };
    if !path.join(FILE).is_file() {
        return Err(fail("it contains no data of a node".to_owned()));
    }
    let data = DataDirectory::open(&path)?;
    let Started { node, stored, .. } = data.started();
    let (epoch, mut records) = hallpass_node::recover(stored, *node).map_err(|error| fail(error.to_string()))?;
    // The node keeps its identity and its count of starts.
    records.extend(
        [keys::IDENTITY, keys::INCARNATION].into_iter().filter_map(|key| Some((key, stored.get(&key)?.clone()))),
    );
    let replaced = Write { number: 0, remove: 0..u64::MAX, put: records.into_iter().collect() };
    data.write(&[replaced]).map_err(|error| fail(format!("cannot write to '{FILE}': {error}")))?;
    Ok(epoch)
}

const WAY_OUT: &str = "restore it, or start a new node with another directory; if the remaining members are then too few \
                       to agree, run 'hallpass recover' on one of them";

/// The number of this start: one above the stored number.
fn next(stored: &[u8]) -> Result<Incarnation, String> {
    let last = stored
        .try_into()
        .map(u32::from_be_bytes)
        .map_err(|_| format!("it is damaged (the count of starts); {WAY_OUT}"))?;
    Incarnation::new(last.saturating_add(1))
        .ok_or_else(|| "its count of starts is used up: start a new node with another directory".to_owned())
}

/// Draws a node id: not 0, and most likely unique.
pub(crate) fn random_id() -> NodeId {
    loop {
        let drawn = random((os::now(), std::process::id())) as u32;
        if drawn != 0 {
            return NodeId(drawn);
        }
    }
}

/// Draws a number that nobody can guess, from the random keys that the standard library gives its hash tables.
pub(crate) fn random(salt: impl std::hash::Hash) -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), salt)
}

/// Creates the directory if needed, and locks it.
fn lock(path: &Path) -> Result<File, StartError> {
    let fail = |why: String| StartError::Data { path: path.to_owned(), why };
    let elsewhere = |what: &str, error: std::io::Error| {
        fail(format!("{what}: {error}; choose a directory that this user can write to"))
    };
    os::create_private_directory(path).map_err(|error| elsewhere("cannot create it", error))?;
    let found = std::fs::metadata(path).map_err(|error| fail(format!("cannot look at it: {error}")))?;
    // Another user with write access could replace a file by a link, or turn back the count of starts.
    if !os::is_private(&found) {
        return Err(fail(
            "it belongs to another user, or other users can write to it; make this user its owner, with mode 700"
                .to_owned(),
        ));
    }
    let lock = open_lock(path).map_err(|error| elsewhere("cannot write there", error))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => StartError::InUse(path.to_owned()),
        TryLockError::Error(error) => fail(format!("cannot lock it: {error}")),
    })?;
    Ok(lock)
}

fn open_lock(directory: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(directory.join(LOCK))
}

/// Creates the file completely or not at all.
fn make(directory: &Path, entries: Vec<(u64, Vec<u8>)>) -> Result<(), StoreError> {
    let draft = directory.join(DRAFT);
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Store::create(&draft, entries)?;
    std::fs::rename(&draft, directory.join(FILE))?;
    Ok(os::sync_directory(directory)?)
}

/// Stores a floor: all epochs of a group that is founded from this directory are above it.
fn keep_floor(directory: &Path, epoch: u64) -> std::io::Result<()> {
    // The floor must be complete and on disk before the records that it was read from are removed.
    let draft = directory.join(DRAFT);
    std::fs::write(&draft, epoch.to_string())?;
    File::open(&draft)?.sync_all()?;
    std::fs::rename(&draft, directory.join(OLD_FILE))?;
    os::sync_directory(directory)
}

/// Reads the floor that [`keep_floor`] or an earlier version has stored: no epoch of the former group is above it.
fn old_number(directory: &Path) -> Result<u64, StartError> {
    let fail = |why: String| StartError::Data { path: directory.to_owned(), why };
    match std::fs::read_to_string(directory.join(OLD_FILE)) {
        Ok(text) => {
            let number = text.trim().parse().map_err(|_| {
                fail(
                    "its file 'incarnation' does not contain a number; if the node is new, remove the directory"
                        .to_owned(),
                )
            })?;
            if number >= Fence::EPOCH_MAX {
                return Err(fail(format!(
                    "its number {number} is above the last epoch, {}; {OLD_WAY_OUT}",
                    Fence::EPOCH_MAX
                )));
            }
            Ok(number)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(fail(format!("cannot read 'incarnation': {error}"))),
    }
}

/// What to do when the epochs are used up.
const OLD_WAY_OUT: &str = "stop all members, remove the file 'incarnation' from the data directory of each and start them; \
                           fences then begin again from the start, so reset the largest fence that each storage remembers";

/// The node that a directory belongs to.
struct Identity {
    node: NodeId,
    /// Where its last process ran, if the system says so.
    place: Option<String>,
}

impl Identity {
    const VERSION: u8 = 1;

    fn encode(&self) -> Vec<u8> {
        let place = self.place.as_deref().unwrap_or_default();
        [&[Self::VERSION][..], &self.node.0.to_be_bytes(), place.as_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (id, place) = bytes.strip_prefix(&[Self::VERSION])?.split_first_chunk()?;
        let place = String::from_utf8(place.to_vec()).ok()?;
        let node = NodeId(u32::from_be_bytes(*id));
        (node.0 != 0).then(|| Self { node, place: Some(place).filter(|place| !place.is_empty()) })
    }
}

#[cfg(test)]
mod tests;
