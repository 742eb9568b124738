//! Who was inside when, put together from what all callers wrote down. It knows nothing of how the lock works.

use std::path::{Path, PathBuf};

use crate::task::Stay;
use crate::{BenchError, Histogram};

/// What the stays of one run tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// Entries by another caller than the last.
    pub(crate) changes: u64,
    /// From one caller's leaving to the next one's entering, where that was another.
    pub(crate) handovers: Histogram,
    /// Entries while somebody else was still inside.
    pub(crate) violations: u64,
}

pub(crate) fn read(files: &[PathBuf]) -> Result<Vec<Stay>, BenchError> {
    let read = |file: &Path| std::fs::read(file).map_err(BenchError::new);
    let mut stays = Vec::new();
    for file in files {
        let bytes = read(file)?;
        let (records, rest) = bytes.as_chunks::<{ Stay::BYTES }>();
        if !rest.is_empty() {
            return Err(BenchError::new("a worker's record is cut short"));
        }
        stays.extend(records.iter().map(Stay::decode));
    }
    Ok(stays)
}

pub(crate) fn observe(mut stays: Vec<Stay>) -> Observed {
    stays.sort_unstable_by_key(|stay| (stay.lock, stay.entered));
    let mut observed = Observed::default();
    for pair in stays.windows(2).filter(|pair| pair[0].lock == pair[1].lock) {
        if pair[1].entered < pair[0].left {
            observed.violations += 1;
        }
        if pair[1].caller != pair[0].caller {
            observed.changes += 1;
            observed.handovers.add(pair[1].entered.saturating_sub(pair[0].left));
        }
    }
    observed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(lock: u32, caller: u32, entered: u64, left: u64) -> Stay {
        Stay { lock, caller, entered, left }
    }

    #[test]
    fn changes_of_hands_are_counted_for_each_lock() {
        let stays = vec![stay(0, 1, 0, 1), stay(1, 2, 2, 3), stay(0, 1, 4, 5), stay(0, 2, 9, 12), stay(1, 3, 20, 21)];
        let observed = observe(stays);
        assert_eq!((observed.changes, observed.violations), (2, 0));
        assert_eq!(observed.handovers.quantile(0.5), Some(4.0));
    }

    #[test]
    fn two_inside_at_once_are_seen() {
        assert_eq!(observe(vec![stay(0, 1, 0, 10), stay(0, 2, 9, 12)]).violations, 1);
        assert_eq!(observe(vec![stay(0, 1, 0, 10), stay(1, 2, 9, 12)]).violations, 0);
    }
}
