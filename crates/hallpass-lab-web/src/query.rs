//! What a request asks for, within limits.

use hallpass_core::protocol::ProtocolKind;
use hallpass_lab::{CheckSpec, LabError, RunSpec};
use percent_encoding::percent_decode_str;

/// The most nodes in a run.
pub const MAX_NODES: u32 = 1000;
/// The most events in a run that is drawn: a page holds them all.
pub const MAX_EVENTS: usize = 250_000;
/// The most requests in a run. Most protocols come to [`MAX_EVENTS`] long before.
pub(crate) const MAX_ENTRIES: u64 = 20_000;
/// Beyond five nodes no exploration is complete in a minute.
pub(crate) const MAX_CHECK_NODES: u32 = 5;
/// A few hundred megabytes.
pub(crate) const MAX_STATES: usize = 3_000_000;

/// The `key=value` words of a request, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(pub(crate) Vec<String>);

impl Query {
    /// Reads the part of an address after the question mark. A plus sign stands for itself, as in `partition:1+2@..`.
    pub(crate) fn parse(text: &str) -> Result<Self, LabError> {
        let words = text.split('&').filter(|word| !word.is_empty());
        let words: Result<Vec<String>, _> =
            words.map(|word| percent_decode_str(word).decode_utf8().map(|word| word.into_owned())).collect();
        words.map(Self).map_err(|_| LabError("the request is not UTF-8".to_owned()))
    }

    /// Takes out the value of a key.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        let found = self.0.iter().position(|word| word.split_once('=').is_some_and(|(name, _)| name == key))?;
        self.0.remove(found).split_once('=').map(|(_, value)| value.to_owned())
    }

    /// Takes out a number between two bounds, or its default.
    pub(crate) fn take_number(&mut self, key: &str, default: u64, low: u64, high: u64) -> Result<u64, LabError> {
        let Some(text) = self.take(key) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (low..=high).contains(number));
        number.ok_or_else(|| LabError(format!("{key} '{text}' is not a number from {low} to {high}")))
    }

    /// The run it asks for: as `lab run`, but ten requests unless it says more, as `lab trace`.
    pub(crate) fn run(&self) -> Result<RunSpec, LabError> {
        let mut spec = run_defaults();
        self.words().try_for_each(|word| spec.set(word))?;
        if spec.nodes > MAX_NODES {
            return Err(LabError(format!("in a browser a group has at most {MAX_NODES} nodes")));
        }
        if spec.entries > MAX_ENTRIES {
            return Err(LabError(format!("in a browser a run has at most {MAX_ENTRIES} requests")));
        }
        Ok(spec)
    }

    /// The exploration it asks for.
    pub(crate) fn check(&self) -> Result<CheckSpec, LabError> {
        let mut spec = CheckSpec { states_max: MAX_STATES, ..CheckSpec::of("ricart-agrawala") };
        self.words().try_for_each(|word| spec.set(word))?;
        if spec.nodes > MAX_CHECK_NODES {
            return Err(LabError(format!(
                "in a browser an exploration has at most {MAX_CHECK_NODES} nodes; 'hallpass lab check' takes more"
            )));
        }
        Ok(spec)
    }

    /// An empty value stands for the default.
    fn words(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str).filter(|word| !word.ends_with('=') || !word.contains('='))
    }
}

/// A run for which nothing was chosen.
pub(crate) fn run_defaults() -> RunSpec {
    RunSpec { entries: 10, keep_trace: true, trace_max: MAX_EVENTS, ..RunSpec::of("ricart-agrawala") }
}

/// The names of all protocols.
pub(crate) fn protocols() -> Vec<&'static str> {
    let mut names: Vec<&str> = ProtocolKind::ALL.iter().map(|kind| kind.name()).collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_decoded_and_a_plus_stays() {
        let query = Query::parse("protocol=token&faults=partition%3A1+2%4010ms..50ms&&option=").unwrap();
        assert_eq!(query.0, ["protocol=token", "faults=partition:1+2@10ms..50ms", "option="]);
        assert_eq!(query.run().unwrap().faults, "partition:1+2@10ms..50ms");
        assert!(Query::parse("%ff").is_err());
    }

    #[test]
    fn runs_and_explorations_have_limits() {
        let refused = |text: &str| Query::parse(text).unwrap().run().is_err();
        assert!(refused("nodes=1001") && refused("entries=20001") && refused("nodes=x") && refused("word"));
        assert!(!refused("nodes=1000&entries=20000"));
        assert!(Query::parse("nodes=6").unwrap().check().is_err());
    }

    #[test]
    fn what_is_not_a_setting_is_an_option_of_the_protocol() {
        let spec = Query::parse("protocol=ricart-agrawala&numbers=modulo:5&seed=7&load=").unwrap().run().unwrap();
        assert_eq!((spec.seed, spec.options.as_slice()), (7, ["numbers=modulo:5".to_owned()].as_slice()));
        assert_eq!(spec.load, "saturated");
    }
}
