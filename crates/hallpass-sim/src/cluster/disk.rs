use std::collections::{BTreeMap, VecDeque};

use hallpass_node::Write;

use crate::Rng;

/// What a machine stores. Writes are carried out in order, each wholly or not at all, unless the disk tears one.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) records: BTreeMap<u64, Vec<u8>>,
    /// What is being written: all of it is synced at once, or nothing.
    writing: Vec<Write>,
    /// What waits for that to be done.
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

    /// Nothing is being written, and something could be.
    pub(super) fn may_take(&self) -> bool {
        self.writing.is_empty() && !self.pending.is_empty()
    }

    /// What has come together is written together, as the thread that writes does; at most `most` of them.
    pub(super) fn take(&mut self, most: usize) {
        debug_assert!(self.writing.is_empty(), "one after the other");
        let count = self.pending.len().min(most);
        self.writing.extend(self.pending.drain(..count));
    }

    /// What was being written is synced.
    pub(super) fn sync(&mut self) -> Vec<Write> {
        let writes = std::mem::take(&mut self.writing);
        writes.iter().for_each(|write| self.apply(write));
        writes
    }

    /// The process is gone. What was being written may have been done, and nothing that waited for that; with `tears`, a
    /// write in part.
    pub(super) fn on_crash(&mut self, tears: bool, rng: &mut Rng) {
        self.is_torn |= tears && !(self.writing.is_empty() && self.pending.is_empty());
        if rng.chance(0.5) {
            self.sync();
        }
        self.writing.clear();
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
    fn what_is_written_together_is_synced_wholly_or_not_at_all_and_the_rest_is_lost() {
        let mut kept = [0; 4];
        for seed in 0..100 {
            let mut disk = Disk::default();
            (1..=3).for_each(|number| disk.submit(write(number, 10 + number)));
            disk.take(2);
            assert!(!disk.may_take(), "one after the other");
            disk.on_crash(false, &mut Rng::new(seed));
            assert!(disk.sync().is_empty() && !disk.may_take() && !disk.is_torn);
            kept[disk.records.len()] += 1;
        }
        assert!(kept[0] > 0 && kept[2] > 0 && kept[1] + kept[3] == 0, "{kept:?}");
    }

    #[test]
    fn a_write_removes_first_and_a_torn_one_shows() {
        let mut disk = Disk::default();
        disk.submit(write(1, 5));
        disk.submit(write(2, 6));
        disk.take(1);
        assert_eq!(disk.sync().iter().map(|write| write.number).collect::<Vec<_>>(), [1]);
        disk.take(usize::MAX);
        disk.sync();
        assert_eq!(disk.records, BTreeMap::from([(6, vec![2])]));
        disk.on_crash(true, &mut Rng::new(1));
        assert!(!disk.is_torn, "nothing was being written");
        disk.submit(write(3, 5));
        disk.on_crash(true, &mut Rng::new(1));
        assert!(disk.is_torn);
    }
}
