//! The log in memory, and what of it is not on disk yet.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use hallpass_core::codec::DecodeError;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, StorageError};

use super::codec;
use crate::output::Write;

/// The term, the vote and the commit index.
pub(crate) const HARD_STATE_KEY: u64 = 16;
/// The newest snapshot.
pub(crate) const SNAPSHOT_KEY: u64 = 17;
/// The log's entries: this plus the index.
pub(crate) const LOG_KEY: u64 = 1024;

/// A snapshot and the entries after it. The engine reads all of it here; the disk follows by [`Log::write`].
pub(super) struct Log {
    pub(super) hard_state: HardState,
    pub(super) snapshot: Snapshot,
    /// Without a gap, from the one after the snapshot.
    entries: Vec<Entry>,
    /// The indices of the entries on disk, once everything that was asked for is written.
    on_disk: Range<u64>,
    /// Entries from here on have changed since the last write.
    changed_from: Option<u64>,
    snapshot_changed: bool,
}

impl Log {
    /// The log of a node that has heard of nothing yet.
    pub(super) fn empty() -> Self {
        Self {
            hard_state: HardState::default(),
            snapshot: Snapshot::default(),
            entries: Vec::new(),
            on_disk: 1..1,
            changed_from: None,
            snapshot_changed: false,
        }
    }

    /// A log that begins with a snapshot, which is not on disk.
    pub(super) fn founded(snapshot: Snapshot) -> Self {
        let mut log = Self::empty();
        let (index, term) = (snapshot.get_metadata().index, snapshot.get_metadata().term);
        log.hard_state = HardState { term, commit: index, ..HardState::default() };
        log.restore(snapshot);
        log
    }

    /// The log as it is on disk, if there is one.
    pub(super) fn stored(records: &BTreeMap<u64, Vec<u8>>) -> Result<Option<Self>, StoredError> {
        let mut log = Self::empty();
        let Some(hard_state) = records.get(&HARD_STATE_KEY) else {
            let other = records.contains_key(&SNAPSHOT_KEY) || records.range(LOG_KEY..).next().is_some();
            return if other { Err(StoredError::Missing("the term and vote")) } else { Ok(None) };
        };
        log.hard_state = codec::decode_hard_state(hard_state).map_err(StoredError::HardState)?;
        if let Some(snapshot) = records.get(&SNAPSHOT_KEY) {
            log.snapshot = codec::decode_snapshot(snapshot).map_err(StoredError::Snapshot)?;
        }
        let (mut index, mut term) = (log.snapshot_index(), log.snapshot_term());
        log.on_disk = index + 1..index + 1;
        for bytes in records.range(LOG_KEY..).map(|(_, bytes)| bytes) {
            let entry =
                codec::decode_entry(bytes, index, term).map_err(|error| StoredError::Entry(index + 1, error))?;
            (index, term) = (entry.index, entry.term);
            log.entries.push(entry);
        }
        if records.range(LOG_KEY..).next_back().is_some_and(|(key, _)| *key != LOG_KEY + index) {
            return Err(StoredError::Missing("a part of the log"));
        }
        log.on_disk.end = index + 1;
        let commit = log.hard_state.commit;
        if !(log.snapshot_index()..=index).contains(&commit) || log.hard_state.term < term {
            return Err(StoredError::Missing("the end of the log"));
        }
        Ok(Some(log))
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn snapshot_index(&self) -> u64 {
        self.snapshot.get_metadata().index
    }

    fn snapshot_term(&self) -> u64 {
        self.snapshot.get_metadata().term
    }

    fn last(&self) -> u64 {
        self.snapshot_index() + self.entries.len() as u64
    }

    /// Appends entries; those in the way are replaced, with everything after them.
    pub(super) fn append(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first().map(|entry| entry.index) else { return };
        let kept = usize::try_from(first - self.snapshot_index() - 1).expect("a log is short");
        assert!(kept <= self.entries.len(), "the engine leaves no gap");
        self.entries.truncate(kept);
        self.entries.extend(entries);
        self.changed_from = Some(self.changed_from.map_or(first, |from| from.min(first)));
    }

    /// A snapshot replaces everything.
    pub(super) fn restore(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot;
        self.entries.clear();
        self.changed_from = None;
        self.snapshot_changed = true;
    }

    /// A snapshot replaces the entries up to its index, which are in the log.
    pub(super) fn compact(&mut self, snapshot: Snapshot) {
        let count = snapshot.get_metadata().index - self.snapshot_index();
        self.entries.drain(..usize::try_from(count).expect("a log is short"));
        self.snapshot = snapshot;
        self.snapshot_changed = true;
    }

    /// Whether a snapshot waits to be written.
    pub(super) fn snapshot_changed(&self) -> bool {
        self.snapshot_changed
    }

    /// Everything that has changed since the last write.
    pub(super) fn write(&mut self, number: u64) -> Write {
        let log = self.snapshot_index() + 1..self.last() + 1;
        let before = self.on_disk.start..self.on_disk.end.min(log.start);
        let after = self.on_disk.start.max(log.end)..self.on_disk.end;
        let mut from = self.changed_from.unwrap_or(log.end).max(log.start);
        let remove = match (before.is_empty(), after.is_empty()) {
            (_, true) => before,
            (true, false) => after,
            // One range is removed: all of the log, which is then written afresh.
            (false, false) => {
                from = log.start;
                self.on_disk.clone()
            }
        };
        let mut put = vec![(HARD_STATE_KEY, codec::encode_hard_state(&self.hard_state))];
        if self.snapshot_changed {
            put.push((SNAPSHOT_KEY, codec::encode_snapshot(&self.snapshot)));
        }
        let changed = self.entries.iter().filter(|entry| entry.index >= from);
        put.extend(changed.map(|entry| (LOG_KEY + entry.index, codec::encode_entry(entry))));
        (self.on_disk, self.changed_from, self.snapshot_changed) = (log, None, false);
        let remove = if remove.is_empty() { 0..0 } else { LOG_KEY + remove.start..LOG_KEY + remove.end };
        Write { number, remove, put }
    }
}

impl raft::Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        // Changes of the voters after the snapshot are applied again.
        let voters: ConfState = self.snapshot.get_metadata().get_conf_state().clone();
        Ok(RaftState::new(self.hard_state.clone(), voters))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let first = self.snapshot_index() + 1;
        if low < first {
            return Err(Error::Store(StorageError::Compacted));
        }
        let (from, to) = ((low - first) as usize, (high - first) as usize);
        let Some(entries) = self.entries.get(from..to) else {
            return Err(Error::Store(StorageError::Unavailable));
        };
        let mut entries = entries.to_vec();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.snapshot_index() {
            return Ok(self.snapshot_term());
        }
        let Some(offset) = index.checked_sub(self.snapshot_index() + 1) else {
            return Err(Error::Store(StorageError::Compacted));
        };
        let entry = self.entries.get(usize::try_from(offset).unwrap_or(usize::MAX));
        entry.map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.snapshot_index() + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// The snapshot, if it names its receiver: no one takes one that does not. Then the application is asked for a newer
    /// one, see [`Engine::wants_snapshot`](super::Engine::wants_snapshot).
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let named = names(self.snapshot.get_metadata().get_conf_state(), to);
        if named && self.snapshot_index() >= request_index {
            Ok(self.snapshot.clone())
        } else {
            Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
        }
    }
}

/// Whether a configuration has this node in any role.
pub(super) fn names(conf: &ConfState, node: u64) -> bool {
    [&conf.voters, &conf.voters_outgoing, &conf.learners].iter().any(|nodes| nodes.contains(&node))
}

/// Why a stored log is not used. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub(crate) enum StoredError {
    /// The record of term and vote.
    HardState(DecodeError),
    /// The record of the snapshot.
    Snapshot(DecodeError),
    /// The record of the entry with this index.
    Entry(u64, DecodeError),
    /// Something that was stored with what is there.
    Missing(&'static str),
}

impl fmt::Display for StoredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored log of the group cannot be used: ")?;
        match self {
            Self::HardState(error) => write!(f, "term and vote are damaged ({error})")?,
            Self::Snapshot(error) => write!(f, "the snapshot is damaged ({error})")?,
            Self::Entry(index, error) => write!(f, "entry {index} is damaged ({error})")?,
            Self::Missing(what) => write!(f, "{what} is missing")?,
        }
        f.write_str("; start this node with an empty directory, to join the group as a new member")
    }
}

impl std::error::Error for StoredError {}
