//! What the benchmark tells its workers, a line each way.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// What a worker says first: it is up, and where it listens if it does.
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
    /// Every caller takes a lock and leaves it, again and again: caller i in round r lock (i + r) mod `locks`.
    /// Each entry is written down in the file, if one is named.
    Run { callers: Vec<u32>, locks: u32, seconds: f64, record: Option<PathBuf> },
    /// One caller takes each lock once.
    Each { locks: u32 },
    /// One caller takes the same lock again and again; timed in batches, since reading the clock takes as long.
    Hot { shared: bool, seconds: f64 },
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) grants: u64,
    /// How long it took.
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

/// One stay inside, as the caller saw it, on the clock that all processes of a machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    pub(crate) lock: u32,
    pub(crate) caller: u32,
    pub(crate) entered: u64,
    pub(crate) left: u64,
}

impl Stay {
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lock.to_le_bytes());
        out.extend_from_slice(&self.caller.to_le_bytes());
        out.extend_from_slice(&self.entered.to_le_bytes());
        out.extend_from_slice(&self.left.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let four = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let eight = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Self { lock: four(0), caller: four(4), entered: eight(8), left: eight(16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stay_survives_the_way_between_processes() {
        let stay = Stay { lock: 7, caller: 31, entered: u64::MAX / 5, left: u64::MAX / 3 };
        let mut bytes = Vec::new();
        stay.encode(&mut bytes);
        assert_eq!(Stay::decode(bytes.as_slice().try_into().unwrap()), stay);
    }
}
