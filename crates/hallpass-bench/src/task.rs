//! What the benchmark and its workers send each other, a JSON document a line; and the records that workers write.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// A worker's first line: it is up, and where it listens if it does.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) addresses: Vec<String>,
}

/// What a worker is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum Task {
    /// Have these callers ready, connected to what they need.
    Open { callers: Vec<u32> },
    /// Every caller acquires a lock and releases it, again and again: caller i in round r lock (i + r) mod `locks`.
    /// Each hold is written to the file, if one is named.
    Run { callers: Vec<u32>, locks: u32, seconds: f64, record: Option<PathBuf> },
    /// One caller acquires each lock once.
    Each { locks: u32 },
    /// One caller acquires the same lock again and again; timed in batches, since reading the clock takes as long. With
    /// `checked` it asks each time whether it has held the lock until the end.
    Hot { shared: bool, checked: bool, seconds: f64 },
    /// The group changes as it does in this worker, once.
    Change,
}

/// What a task has measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) grants: u64,
    /// How long the whole task took.
    pub(crate) nanos: u64,
    /// Of acquiring and releasing together, for each grant or batch.
    pub(crate) cycles: Histogram,
    /// Protocol messages sent since the process was started.
    pub(crate) messages: u64,
}

/// One line from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    Ready(Ready),
    Done(Done),
    Failed(String),
}

/// One hold of a lock as its caller saw it, on the clock that all processes of a machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) lock: u32,
    pub(crate) caller: u32,
    pub(crate) acquired_ns: u64,
    pub(crate) released_ns: u64,
}

impl Hold {
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lock.to_le_bytes());
        out.extend_from_slice(&self.caller.to_le_bytes());
        out.extend_from_slice(&self.acquired_ns.to_le_bytes());
        out.extend_from_slice(&self.released_ns.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let four = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"));
        let eight = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"));
        Self { lock: four(0), caller: four(4), acquired_ns: eight(8), released_ns: eight(16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_read_as_it_was_written() {
        let hold = Hold { lock: 7, caller: 31, acquired_ns: u64::MAX / 5, released_ns: u64::MAX / 3 };
        let mut bytes = Vec::new();
        hold.encode(&mut bytes);
        assert_eq!(Hold::decode(bytes.as_slice().try_into().unwrap()), hold);
    }
}
