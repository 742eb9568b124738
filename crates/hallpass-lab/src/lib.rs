//! The laboratory: the functions behind `hallpass lab`.
//!
//! Protocols are chosen by name at run time. [`simulate`] runs one in a simulated world, [`check`] explores every order of
//! events, a [`scenario`] is one order given by a text file, [`claims`] measures what the papers claim, [`sweep`] compares
//! protocols, and [`swarm`] runs whole nodes under faults.
//!
//! ```
//! let spec = hallpass_lab::RunSpec { nodes: 4, entries: 100, ..hallpass_lab::RunSpec::of("ricart-agrawala") };
//! let report = hallpass_lab::simulate(&spec).unwrap();
//! assert_eq!(report.messages_per_entry, 6.0);
//! ```

mod check;
pub mod claims;
mod models;
mod run;
pub mod scenario;
mod settings;
mod states;
mod swarm;
pub mod sweep;
pub mod traps;

use std::fmt;

use hallpass_core::NodeId;
use hallpass_core::protocol::{OptionError, Options, ProtocolKind};
use hallpass_sim::{ConfigError, Order};

pub use check::{CheckReport, CheckSpec, Counterexample, InitialSpec, check};
pub use hallpass_check::{Flow, Progress};
pub use models::{ModelSpec, check_model, models};
pub use run::{RunSpec, simulate, simulate_watched};
pub use settings::{SETTINGS, Setting, Values};
pub use states::{state_charts, state_text};
pub use swarm::{Failure, FailureKind, SwarmReport, SwarmSpec, swarm};

/// Invalid input, described in one line. Nothing has been run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabError(pub String);

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LabError {}

impl From<OptionError> for LabError {
    fn from(error: OptionError) -> Self {
        Self(error.0)
    }
}

impl From<ConfigError> for LabError {
    fn from(error: ConfigError) -> Self {
        Self(error.0)
    }
}

/// The most nodes in a run. The number of messages grows with its square.
const NODES_MAX: u32 = 5000;

/// Looks up the protocol, and separates the nodes' ids from the protocol's own options.
fn select(protocol: &str, nodes: u32, words: &[String]) -> Result<(ProtocolKind, Vec<NodeId>, Options), LabError> {
    if !(1..=NODES_MAX).contains(&nodes) {
        return Err(LabError(format!("a group has 1 to {NODES_MAX} nodes, not {nodes}")));
    }
    let mut options = Options::from_words(words.iter().map(String::as_str))?;
    let kind = ProtocolKind::select(protocol, &mut options)?;
    let ids = match options.take("names") {
        None => (1..=nodes).map(NodeId).collect(),
        Some(names) => parse_names(&names, nodes)?,
    };
    options.nodes.clone_from(&ids);
    Ok((kind, ids, options))
}

fn parse_names(names: &str, nodes: u32) -> Result<Vec<NodeId>, LabError> {
    let ids: Option<Vec<NodeId>> = names.split(',').map(|name| name.trim().parse().ok().map(NodeId)).collect();
    let ids =
        ids.ok_or_else(|| LabError(format!("option names={names} is not a list of whole numbers such as 5,17,3")))?;
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != ids.len() {
        return Err(LabError(format!("option names={names} names a node twice")));
    }
    if ids.len() != nodes as usize {
        return Err(LabError(format!("option names has {} numbers for {nodes} nodes; give one for each", ids.len())));
    }
    Ok(ids)
}

/// Splits a word of the form `key=value`.
fn key_value(word: &str) -> Result<(&str, &str), LabError> {
    word.split_once('=').ok_or_else(|| LabError(format!("'{word}' is not key=value")))
}

/// Parses the value of a `key=value` word.
fn parse_value<T: std::str::FromStr>(word: &str) -> Result<T, LabError> {
    let (_, value) = key_value(word)?;
    value.parse().map_err(|_| LabError(format!("'{word}' has an invalid value")))
}

fn parse_order(word: &str) -> Result<Order, LabError> {
    match word {
        "order=any" => Ok(Order::Any),
        "order=fifo" => Ok(Order::Fifo),
        _ => Err(LabError("order takes any or fifo".to_owned())),
    }
}

/// An option that is given again replaces the earlier one.
fn replace_option(options: &mut Vec<String>, word: &str) {
    let key = word.split_once('=').map(|(key, _)| key);
    options.retain(|option| option.split_once('=').map(|(other, _)| other) != key);
    options.push(word.to_owned());
}

/// How many steps, in words.
fn steps(count: usize) -> String {
    format!("{count} {}", if count == 1 { "step" } else { "steps" })
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_step_is_a_step() {
        assert_eq!([1, 2].map(super::steps), ["1 step", "2 steps"]);
    }
}
