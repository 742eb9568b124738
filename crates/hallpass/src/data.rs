//! What a node keeps between its starts: who it is, how often it was started, and what it must not forget of its group.

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
    started: Started,
    files: Mutex<Files>,
}

/// What was found at the start.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Everything that is stored.
    pub(crate) stored: BTreeMap<u64, Vec<u8>>,
    /// A group that is founded from here has epochs above this one.
    pub(crate) epoch_floor: u64,
    /// The process that had the directory before has ended: it ran on this machine, since it was booted, in this directory.
    pub(crate) predecessor_is_dead: bool,
}

struct Files {
    store: Store,
    /// The file behind the store, to see whether it is still there.
    data: File,
    /// Last: nobody else may lock the directory before the store is closed.
    lock: File,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Files")
    }
}

/// The file with everything that is stored, one that is being made, and the lock.
const FILE: &str = "node.redb";
const DRAFT: &str = "node.new";
const LOCK: &str = "lock";
/// The file of earlier versions: a number above all epochs of the group.
const OLD_FILE: &str = "incarnation";

impl DataDirectory {
    /// Locks the directory, creates it if needed, and counts a new start, which is on disk when this returns.
    ///
    /// A new directory makes a new node. One that is damaged is refused, and left as it is.
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
        let identity = identity.ok_or_else(|| unusable("read", StoreError::Damaged("it names no node".to_owned())))?;
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

    /// Makes a directory that no node uses a new node's: who its node was, and in which group, is forgotten. Fences of a group that is
    /// founded from there are above those of the forgotten one.
    pub fn forget(path: impl Into<PathBuf>) -> Result<(), StartError> {
        let path = path.into();
        if !path.join(FILE).exists() {
            return Ok(());
        }
        let data = Self::open(&path)?;
        let fail =
            |error: std::io::Error| StartError::Data { path: path.clone(), why: format!("cannot empty it: {error}") };
        // What cannot be read says nothing about fences either.
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

    /// Has what is founded from this directory begin above all that was founded from another one: one user's fences never fall, though
    /// its agent keeps its data elsewhere by now. What the other one stored is forgotten there. Neither may be in use.
    ///
    /// A node that was alone in its group gives that up for a new one if its epochs are not above. A node with others in its group
    /// stays there: what it will be granted is above what that group has granted.
    #[doc(hidden)]
    pub fn take_over(path: impl Into<PathBuf>, former: impl Into<PathBuf>) -> Result<(), StartError> {
        let (path, former) = (path.into(), former.into());
        if !former.join(FILE).exists() && !former.join(OLD_FILE).exists() {
            return Ok(());
        }
        let floor = Self::open(&former)?.floor();
        let data = Self::open(&path)?;
        let is_shared = hallpass_node::last_members(&data.started.stored).is_some_and(|members| members > 1);
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

    /// No epoch of a group that was founded from here is above this one.
    fn floor(&self) -> u64 {
        self.epochs_used().unwrap_or(0).max(self.started.epoch_floor)
    }

    /// How far the epochs of the group may have come that is stored here, if there is one that can be read.
    fn epochs_used(&self) -> Option<u64> {
        hallpass_node::recover(&self.started.stored, self.started.node).ok().map(|(epoch, _)| epoch)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if its node is in a group, or has been.
    pub fn is_in_group(&self) -> bool {
        self.started.stored.contains_key(&keys::GROUP)
    }

    /// False if its files were removed or replaced meanwhile: then another node can be started with it.
    pub fn is_intact(&self) -> bool {
        let files = self.files();
        os::is_same_file(&files.lock, &self.path.join(LOCK)) && os::is_same_file(&files.data, &self.path.join(FILE))
    }

    /// Makes the files again that were removed, with the same content. Only for those who know that nobody else has opened the
    /// directory since: what another node stored there meanwhile is not known here.
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
            // The file that was removed can still be read.
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

    /// What was found when it was opened.
    pub(crate) fn started(&self) -> &Started {
        &self.started
    }

    /// Carries out these changes, in order. They are on disk when this returns.
    pub(crate) fn write(&self, writes: &[Write]) -> std::io::Result<()> {
        self.files().store.apply(writes).map_err(std::io::Error::other)
    }

    /// This node takes part in its group: whatever process had the directory before, the group has dealt with it.
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

/// Makes a group of one out of what a node has stored, for a group that has lost more than half of the members that vote for good.
/// Returns the new group's first epoch.
///
/// The node must not run. Of the other members none may go on: they join the new group, each with an empty directory. Its
/// fences are above those of the lost group, unless that had been ahead of this member by 65,536 views.
pub fn recover(directory: impl Into<PathBuf>) -> Result<u64, StartError> {
    let path = directory.into();
    let fail = |why: String| StartError::Data { path: path.clone(), why };
    if !path.join(FILE).is_file() {
        return Err(fail("no node has stored anything there".to_owned()));
    }
    let data = DataDirectory::open(&path)?;
    let Started { node, stored, .. } = data.started();
    let (epoch, mut records) = hallpass_node::recover(stored, *node).map_err(|error| fail(error.to_string()))?;
    // Who the node is, and how often it was started, stays.
    records.extend(
        [keys::IDENTITY, keys::INCARNATION].into_iter().filter_map(|key| Some((key, stored.get(&key)?.clone()))),
    );
    let replaced = Write { number: 0, remove: 0..u64::MAX, put: records.into_iter().collect() };
    data.write(&[replaced]).map_err(|error| fail(format!("cannot write to '{FILE}': {error}")))?;
    Ok(epoch)
}

const WAY_OUT: &str = "restore it, or start with another directory, as a new node; if too few members are left then to \
                       agree on anything, run 'hallpass recover' on one of them";

/// The next start after the one that is stored.
fn next(stored: &[u8]) -> Result<Incarnation, String> {
    let last = stored
        .try_into()
        .map(u32::from_be_bytes)
        .map_err(|_| format!("it is damaged (the count of starts); {WAY_OUT}"))?;
    Incarnation::new(last.saturating_add(1))
        .ok_or_else(|| "all starts are counted: start with another directory, as a new node".to_owned())
}

/// A number that is not 0 and most likely nobody else's.
pub(crate) fn random_id() -> NodeId {
    loop {
        let drawn = random((os::now(), std::process::id())) as u32;
        if drawn != 0 {
            return NodeId(drawn);
        }
    }
}

/// A number that nobody can guess, from what the standard library seeds its hash tables with.
pub(crate) fn random(salt: impl std::hash::Hash) -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), salt)
}

/// Creates the directory if needed, and locks it.
fn lock(path: &Path) -> Result<File, StartError> {
    let fail = |why: String| StartError::Data { path: path.to_owned(), why };
    let elsewhere =
        |what: &str, error: std::io::Error| fail(format!("{what}: {error}; name one that this user can write to"));
    os::create_private_directory(path).map_err(|error| elsewhere("cannot create it", error))?;
    let found = std::fs::metadata(path).map_err(|error| fail(format!("cannot look at it: {error}")))?;
    // A user who can write there could point a file somewhere else, or turn back the count.
    if !os::is_private(&found) {
        return Err(fail(
            "it belongs to another user, or others can write there; give it to this user alone, with mode 700"
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

/// Makes the file, all of it or none: one that exists is never half made.
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

/// Stores a number that all epochs of a group that is founded from here are above.
fn keep_floor(directory: &Path, epoch: u64) -> std::io::Result<()> {
    // Whole and on disk, before what it was read from is removed.
    let draft = directory.join(DRAFT);
    std::fs::write(&draft, epoch.to_string())?;
    File::open(&draft)?.sync_all()?;
    std::fs::rename(&draft, directory.join(OLD_FILE))?;
    os::sync_directory(directory)
}

/// What a directory of an earlier version says: all epochs of its group were not above this number.
fn old_number(directory: &Path) -> Result<u64, StartError> {
    let fail = |why: String| StartError::Data { path: directory.to_owned(), why };
    match std::fs::read_to_string(directory.join(OLD_FILE)) {
        Ok(text) => {
            let number = text.trim().parse().map_err(|_| {
                fail("its file 'incarnation' holds no number; if the node is new, remove the directory".to_owned())
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

/// What to do when the numbers of an earlier version are used up.
const OLD_WAY_OUT: &str = "stop all members, remove the file 'incarnation' from the data directory of each and start them; \
                           fences begin anew, so let storages forget the largest that they have seen";

/// Who a directory belongs to.
struct Identity {
    node: NodeId,
    /// Where its last process ran, if that can be told.
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
