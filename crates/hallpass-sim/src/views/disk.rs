use std::collections::{BTreeMap, VecDeque};

use hallpass_node::Write;

use crate::Rng;

/// What a machine stores. Writes are carried out in order, each wholly or not at all, unless the disk tears one.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) records: BTreeMap<u64, Vec<u8>>,
    /// Writes that are not synced yet.
    pending: VecDeque<Write>,
    /// A record as it was at the last start, for a planted bug.
    at_start: Option<Vec<u8>>,
    /// A write was torn: no process starts from this any more.
    pub(super) is_torn: bool,
    /// The process crashes in the middle of the next write.
    pub(super) tears_next: bool,
    /// Writes fail.
    pub(super) is_full: bool,
}

impl Disk {
    pub(super) fn submit(&mut self, write: Write) {
        self.pending.push_back(write);
    }

    /// The oldest write that is under way is synced.
    pub(super) fn sync_next(&mut self) -> Option<Write> {
        let write = self.pending.pop_front()?;
        self.apply(&write);
        Some(write)
    }

    /// The process is gone. Of what was not synced a beginning may have been written; with `tears`, a write in part.
    pub(super) fn on_crash(&mut self, tears: bool, rng: &mut Rng) {
        self.is_torn |= tears && !self.pending.is_empty();
        while rng.chance(0.5) && self.sync_next().is_some() {}
        self.pending.clear();
    }

    /// For a planted bug: a record is again as it was when the last process started.
    pub(super) fn forget_since_start(&mut self, key: u64) {
        if let Some(old) = self.at_start.take() {
            self.records.insert(key, old);
        }
        self.at_start = self.records.get(&key).cloned();
    }

    fn apply(&mut self, write: &Write) {
        self.records.retain(|key, _| !write.remove.contains(key));
        self.records.extend(write.put.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(number: u64, key: u64) -> Write {
        Write { number, remove: 5..7, put: vec![(key, vec![number as u8])] }
    }

    #[test]
    fn what_is_not_synced_is_lost_from_some_write_on() {
        let mut kept = [0; 4];
        for seed in 0..100 {
            let mut disk = Disk::default();
            (1..=3).for_each(|number| disk.submit(write(number, 10 + number)));
            disk.on_crash(false, &mut Rng::new(seed));
            assert!(disk.records.keys().copied().eq((11..).take(disk.records.len())), "a beginning is kept");
            assert!(disk.sync_next().is_none() && !disk.is_torn);
            kept[disk.records.len()] += 1;
        }
        assert!(kept.iter().all(|runs| *runs > 0), "{kept:?}");
    }

    #[test]
    fn a_write_removes_first_and_a_torn_one_shows() {
        let mut disk = Disk::default();
        disk.submit(write(1, 5));
        disk.submit(write(2, 6));
        assert_eq!(disk.sync_next().map(|write| write.number), Some(1));
        disk.sync_next();
        assert_eq!(disk.records, BTreeMap::from([(6, vec![2])]));
        disk.on_crash(true, &mut Rng::new(1));
        assert!(!disk.is_torn, "nothing was being written");
        disk.submit(write(3, 5));
        disk.on_crash(true, &mut Rng::new(1));
        assert!(disk.is_torn);
    }
}
