use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::oracle::Violation;
use crate::trace::{StateChange, Trace};

/// The measurements of a simulated run, delays in T. The JSON keys are part of the public interface.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The protocol's name.
    pub protocol: String,
    /// The number of founding members.
    pub nodes: usize,
    /// The seed that determines the run.
    pub seed: u64,
    /// Entries to the critical section.
    pub entries: u64,
    /// Protocol messages sent.
    pub messages: u64,
    /// Protocol messages per entry.
    pub messages_per_entry: f64,
    /// Protocol messages of each kind, by the paper's name.
    #[serde(serialize_with = "as_map")]
    pub messages_by_kind: Vec<(&'static str, u64)>,
    /// From a release to the next entry, if another node was waiting.
    pub sync_delay: Delays,
    /// From a request to its entry.
    pub response_time: Response,
    /// Entries of each node.
    #[serde(serialize_with = "as_map")]
    pub entries_by_node: Vec<(u32, u64)>,
    /// How often the most overtaken request was overtaken.
    pub max_overtakes: u64,
    /// Simulated events: deliveries, timers, arrivals, exits, faults.
    pub events: u64,
    /// The violations found, at most 20.
    #[serde(serialize_with = "as_texts")]
    pub violations: Vec<Violation>,
    /// How far apart the sequence numbers of outstanding requests were.
    #[serde(skip)]
    pub spread: Spread,
    /// Every event, if [`Config::keep_trace`](crate::Config::keep_trace) asked for them.
    #[serde(skip)]
    pub trace: Option<Trace>,
    /// The nodes' variables beside the trace, if [`Config::keep_states`](crate::Config::keep_states) asked for them.
    #[serde(skip)]
    pub states: Vec<StateChange>,
    /// Requests abandoned because their node crashed or left.
    #[serde(skip)]
    pub abandoned: u64,
    /// How long the run took in virtual time, in T.
    #[serde(skip)]
    pub duration: f64,
}

/// Mean and maximum, in T.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delays {
    /// The mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

/// A distribution, in T.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Response {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// The spread of outstanding sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The largest difference between the highest and the lowest at one time.
    pub widest: u64,
}

impl Report {
    /// How many messages of a kind were sent.
    pub fn messages_of(&self, kind: &str) -> u64 {
        self.messages_by_kind.iter().find(|(known, _)| *known == kind).map_or(0, |(_, count)| *count)
    }

    /// How many messages of a kind were sent per entry.
    pub fn per_entry(&self, kind: &str) -> f64 {
        self.messages_of(kind) as f64 / self.entries.max(1) as f64
    }
}

impl Response {
    pub(crate) fn of(times: &mut [u64], tick: f64) -> Self {
        if times.is_empty() {
            return Self::default();
        }
        times.sort_unstable();
        let quantile = |fraction: f64| times[((times.len() - 1) as f64 * fraction).round() as usize] as f64 / tick;
        let sum: f64 = times.iter().map(|time| *time as f64).sum();
        Self { mean: sum / times.len() as f64 / tick, p50: quantile(0.5), p99: quantile(0.99), max: quantile(1.0) }
    }
}

fn as_map<K: Serialize, S: Serializer>(pairs: &[(K, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

fn as_texts<S: Serializer>(violations: &[Violation], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(violations.iter().map(Violation::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_list() {
        let mut times: Vec<u64> = (1..=101).rev().collect();
        let response = Response::of(&mut times, 1.0);
        assert_eq!(response, Response { mean: 51.0, p50: 51.0, p99: 100.0, max: 101.0 });
        assert_eq!(Response::of(&mut [], 1.0), Response::default());
    }
}
