//! The records of a run, which the checker reads: three files with one JSON document a line.
//!
//! Holders append to `records.jsonl`, the resource to `work.jsonl`, the harness to `events.jsonl`. All times are nanoseconds of
//! CLOCK_BOOTTIME.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ChaosError;

/// A record of a holder about its own grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Record {
    /// The grant has arrived.
    Start { client: String, lock: String, shared: bool, fence: u64, at: u64 },
    /// The holder has stopped working. For a release, `at` is read before the release is sent. If the lock was lost, `worked` is when
    /// the holder last worked, and `at` is when it noticed the loss.
    End { client: String, lock: String, fence: u64, at: u64, worked: u64, lost: bool },
}

/// A request to the resource. The file has them in the order of the decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) client: String,
    pub(crate) lock: String,
    /// True for a read, false for a write.
    pub(crate) shared: bool,
    pub(crate) fence: u64,
    /// When the grant arrived.
    pub(crate) start: u64,
    /// When the holder last checked that it held the lock, just before the request.
    pub(crate) asked: u64,
    /// When the resource decided.
    pub(crate) at: u64,
    pub(crate) accepted: bool,
}

/// An action of the harness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Event {
    /// A fault begins.
    Fault { kind: String, what: String, at: u64 },
    /// All faults are over. From now on every client must get in, until `until`.
    Healed { at: u64, until: u64, limit: u64, clients: Vec<String> },
    /// A client is killed. The time is read before the signal is sent.
    Killed { client: String, at: u64 },
    /// A client was stopped by SIGSTOP.
    Stopped { client: String, from: u64, to: u64 },
}

/// The files of one run.
#[derive(Clone, Debug)]
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    pub(crate) fn records(&self) -> PathBuf {
        self.0.join("records.jsonl")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work.jsonl")
    }

    pub(crate) fn events(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }
}

/// A file to which many processes append lines. Each line is one system call, so lines never mix.
#[derive(Debug)]
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    pub(crate) fn append(&mut self, line: &impl Serialize) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// Calls `each` with every line of a file. A missing file counts as empty.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, mut each: impl FnMut(T)) -> Result<(), ChaosError> {
    let broken = |why: String| ChaosError::Failed(format!("cannot read {}: {why}", path.display()));
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(|error| broken(error.to_string()))?,
    };
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|error| broken(error.to_string()))?;
        each(serde_json::from_str(&line).map_err(|error| broken(error.to_string()))?);
    }
    Ok(())
}
