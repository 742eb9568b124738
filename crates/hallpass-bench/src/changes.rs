//! How long a group takes to found itself, and to go on when its members change. Each change is made again and again by a
//! worker that runs all nodes of a group.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::child::{Launcher, Worker};
use crate::task::Task;

/// Something that happens to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// Three nodes that know nothing but each other's addresses are started.
    Founding,
    /// The node of a holder is stopped in order.
    Stop,
    /// It leaves for good.
    Leave,
    /// It is killed, and started again at once with its directory.
    Restart,
    /// It is killed.
    Crash,
    /// It is killed, and was the steward.
    StewardCrash,
    /// A node joins a large group.
    Join,
    /// The same while many locks are held, and many cached.
    LoadedJoin,
}

/// How much is there when a group changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Members of the large group.
    pub members: usize,
    /// Locks that its members hold, all together.
    pub held: usize,
    /// Locks whose permissions its members keep, all together.
    pub cached: usize,
    /// The session, where members fail.
    pub ttl_seconds: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { members: 50, held: 10_000, cached: 100_000, ttl_seconds: 5.0 }
    }
}

impl Scale {
    /// As little as shows that it works.
    pub(crate) fn quick() -> Self {
        Self { members: 6, held: 60, cached: 600, ttl_seconds: 0.4 }
    }
}

impl Change {
    pub(crate) const ALL: [Self; 8] = [
        Self::Founding,
        Self::Stop,
        Self::Leave,
        Self::Restart,
        Self::Crash,
        Self::StewardCrash,
        Self::Join,
        Self::LoadedJoin,
    ];

    /// Its name in figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Founding => "founding",
            Self::Stop => "stop",
            Self::Leave => "leave",
            Self::Restart => "restart",
            Self::Crash => "crash",
            Self::StewardCrash => "steward-crash",
            Self::Join => "join",
            Self::LoadedJoin => "loaded-join",
        }
    }

    /// From what until what it is measured.
    pub(crate) fn title(self, scale: &Scale) -> String {
        let Scale { members, held, cached, .. } = scale;
        match self {
            Self::Founding => "3 fresh nodes are started: the first lock".to_owned(),
            Self::Stop => "a holder's node is stopped: the next grant".to_owned(),
            Self::Leave => "a holder's node leaves: the next grant".to_owned(),
            Self::Restart => "a holder's node is killed and restarted: the next grant".to_owned(),
            Self::Crash => "a holder's node is killed: the next grant".to_owned(),
            Self::StewardCrash => "a holder's node, the steward, is killed: the next grant".to_owned(),
            Self::Join => format!("a node joins {members}: its first lock"),
            Self::LoadedJoin => format!("the same, {} locks held, {} cached", thousands(*held), thousands(*cached)),
        }
    }

    /// It should not take longer.
    pub(crate) fn seconds_max(self, scale: &Scale) -> f64 {
        match self {
            Self::Founding => 0.3,
            Self::Stop | Self::Leave => 0.2,
            Self::Restart | Self::Join => 1.0,
            Self::Crash | Self::StewardCrash => scale.ttl_seconds + 1.0,
            Self::LoadedJoin => 2.0,
        }
    }

    /// The worker that makes this change.
    pub(crate) fn start(self, scale: &Scale, launcher: &Launcher, scratch: &Path) -> Result<Worker, BenchError> {
        let directory = scratch.join(self.name()).display().to_string();
        let scale = serde_json::to_string(scale).expect("it is plain data");
        let mut worker = launcher.start(&["change", self.name(), &scale, &directory])?;
        worker.ready_for(PATIENCE_SECONDS)?;
        Ok(worker)
    }
}

/// A group of fifty is started, and all of its locks are acquired, in less than that.
const PATIENCE_SECONDS: f64 = 300.0;

/// Makes the change once: how long it took.
pub(crate) fn make(worker: &mut Worker) -> Result<f64, BenchError> {
    worker.send(&Task::Change)?;
    Ok(worker.done(PATIENCE_SECONDS)?.nanos as f64 / 1e9)
}

/// `10,000`.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_readable() {
        assert_eq!([60, 600, 10_000, 1_234_567].map(thousands), ["60", "600", "10,000", "1,234,567"]);
    }
}
