//! Who held which lock when, put together from the records of all callers. It knows nothing of how the lock works.

use std::path::PathBuf;

use crate::BenchError;
use crate::histogram::Histogram;
use crate::task::Hold;

/// What the records of one run show.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    /// Grants to another caller than the last.
    pub(crate) changes: u64,
    /// From one caller's release to another caller's grant.
    pub(crate) handovers: Histogram,
    /// Grants while another caller still held the lock.
    pub(crate) violations: u64,
}

pub(crate) fn read(files: &[PathBuf]) -> Result<Vec<Hold>, BenchError> {
    let mut holds = Vec::new();
    for file in files {
        let bytes = std::fs::read(file).map_err(BenchError::new)?;
        let (records, rest) = bytes.as_chunks::<{ Hold::BYTES }>();
        if !rest.is_empty() {
            return Err(BenchError::new("a worker's record is cut short"));
        }
        holds.extend(records.iter().map(Hold::decode));
    }
    Ok(holds)
}

pub(crate) fn observe(mut holds: Vec<Hold>) -> Observed {
    holds.sort_unstable_by_key(|hold| (hold.lock, hold.acquired_ns));
    let mut observed = Observed::default();
    for pair in holds.windows(2).filter(|pair| pair[0].lock == pair[1].lock) {
        if pair[1].acquired_ns < pair[0].released_ns {
            observed.violations += 1;
        }
        if pair[1].caller != pair[0].caller {
            observed.changes += 1;
            observed.handovers.add(pair[1].acquired_ns.saturating_sub(pair[0].released_ns));
        }
    }
    observed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(lock: u32, caller: u32, acquired_ns: u64, released_ns: u64) -> Hold {
        Hold { lock, caller, acquired_ns, released_ns }
    }

    #[test]
    fn changes_of_hands_are_counted_for_each_lock() {
        let holds = vec![hold(0, 1, 0, 1), hold(1, 2, 2, 3), hold(0, 1, 4, 5), hold(0, 2, 9, 12), hold(1, 3, 20, 21)];
        let observed = observe(holds);
        assert_eq!((observed.changes, observed.violations), (2, 0));
        assert_eq!(observed.handovers.quantile(0.5), Some(4.0));
    }

    #[test]
    fn two_holders_at_once_are_seen() {
        assert_eq!(observe(vec![hold(0, 1, 0, 10), hold(0, 2, 9, 12)]).violations, 1);
        assert_eq!(observe(vec![hold(0, 1, 0, 10), hold(1, 2, 9, 12)]).violations, 0);
    }
}
