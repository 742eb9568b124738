use std::fmt;

use super::{Ticks, Trap, TrapSet};
use crate::{NodeId, duration};

/// Options as a user gives them: `key=value`, not yet parsed by a protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pairs: Vec<(String, String)>,
    /// The ticks of one T, the mean delay of a message, for values such as `0.5T`.
    pub tick: Ticks,
    /// The nodes that will take part: some options are a list with a value for each.
    pub nodes: Vec<NodeId>,
}

impl Options {
    /// Options from `key=value` words.
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| OptionError(format!("option '{word}' has no value; write key=value")))?;
            options.set(key.trim(), value.trim())?;
        }
        Ok(options)
    }

    /// Adds one option.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), OptionError> {
        if self.get(key).is_some() {
            return Err(OptionError(format!("option '{key}' is given twice")));
        }
        self.pairs.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    /// The value of an option, if given.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Adds each `key=value` of a text.
    pub fn with(mut self, words: &str) -> Result<Self, OptionError> {
        for (key, value) in Self::from_words(words.split_whitespace())?.pairs {
            self.set(&key, &value)?;
        }
        Ok(self)
    }

    /// No options, for the same nodes and T.
    pub fn emptied(&self) -> Self {
        Self { pairs: Vec::new(), tick: self.tick, nodes: self.nodes.clone() }
    }

    /// Removes an option and returns its value.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let index = self.pairs.iter().position(|(k, _)| k == key)?;
        Some(self.pairs.remove(index).1)
    }

    /// All options, as given.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Starts parsing them for a protocol.
    pub fn read(&self, protocol: &'static str) -> Parsed<'_> {
        Parsed { options: self, protocol, known: Vec::new() }
    }
}

/// An option that was refused: one line for people, with the cause and what to do. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError(pub String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

/// The longest duration of an option, a day: it leaves room for sums of many.
const DURATION_MAX: Ticks = 86_400_000_000_000;

/// Parses options one by one and remembers which exist, so that [`finish`](Self::finish) can refuse the rest.
#[derive(Debug)]
pub struct Parsed<'a> {
    options: &'a Options,
    protocol: &'static str,
    known: Vec<&'static str>,
}

impl<'a> Parsed<'a> {
    /// An option as text.
    pub fn text(&mut self, key: &'static str) -> Option<&'a str> {
        self.known.push(key);
        self.options.get(key)
    }

    /// One of several words, of which the first is the default.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Result<T, OptionError> {
        let Some(text) = self.text(key) else { return Ok(choices[0].1) };
        choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            OptionError(format!("option {key}={text} is not known; it takes {}", words.join(", ")))
        })
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, OptionError> {
        match self.text(key) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(text) => Err(OptionError(format!("option {key}={text} is not known; it takes true, false"))),
        }
    }

    /// A whole number.
    pub fn number(&mut self, key: &'static str) -> Result<Option<u64>, OptionError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| OptionError(format!("option {key}={text} is not a whole number")))
    }

    /// A list of whole numbers, one for each node.
    pub fn number_each_node(&mut self, key: &'static str) -> Result<Option<Vec<u64>>, OptionError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let numbers: Vec<u64> =
            text.split(',').map(|word| word.trim().parse()).collect::<Result<_, _>>().map_err(|_| {
                OptionError(format!("option {key}={text} is not a list of whole numbers such as 1,2,2"))
            })?;
        let nodes = self.options.nodes.len();
        if numbers.len() != nodes {
            return Err(OptionError(format!(
                "option {key} has {} numbers for {nodes} nodes; give one for each",
                numbers.len()
            )));
        }
        Ok(Some(numbers))
    }

    /// A duration: `250us`, `10ms`, `2s`, or in units of T, `0.5T`. Where a T is one tick, as in an exploration, it must
    /// be a whole number of T.
    pub fn duration(&mut self, key: &'static str) -> Result<Option<Ticks>, OptionError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let (ticks, expected) = if self.options.tick == 1 {
            let whole = text.strip_suffix('T').and_then(|number| number.parse().ok()).filter(|number| *number <= 1000);
            (whole, ": in an exploration time is whole T, such as 2T, up to 1000T")
        } else {
            (self.parse_ticks(text), " is not a duration such as 500us, 10ms, 2s or 0.5T, up to a day")
        };
        ticks.map(Some).ok_or_else(|| OptionError(format!("option {key}={text}{expected}")))
    }

    fn parse_ticks(&self, text: &str) -> Option<Ticks> {
        match duration::split_unit(text)? {
            (number, "T") => duration::scale(number, self.options.tick, DURATION_MAX as f64),
            _ => duration::parse(text).filter(|ticks| *ticks <= DURATION_MAX),
        }
    }

    /// The traps whose printed text is put back: `as-printed=T1,T5`.
    pub fn as_printed(&mut self, offered: &[Trap]) -> Result<TrapSet, OptionError> {
        let Some(text) = self.text("as-printed") else { return Ok(TrapSet::default()) };
        let find = |id: &str| {
            offered.iter().copied().find(|trap| trap.id() == id.trim()).ok_or_else(|| {
                let ids: Vec<&str> = offered.iter().map(|trap| trap.id()).collect();
                let offered = if ids.is_empty() { "none here".to_owned() } else { ids.join(", ") };
                OptionError(format!(
                    "as-printed={id}: with these options no such text can be put back; offered: {offered}"
                ))
            })
        };
        text.split(',').map(find).collect()
    }

    /// True if the option was given at all.
    pub fn is_given(&self, key: &str) -> bool {
        self.options.get(key).is_some()
    }

    /// The options that are being parsed.
    pub fn options(&self) -> &'a Options {
        self.options
    }

    /// Refuses options that the protocol does not have.
    pub fn finish(self) -> Result<(), OptionError> {
        match self.options.pairs().find(|(key, _)| !self.known.contains(key)) {
            None => Ok(()),
            Some((key, _)) => Err(OptionError(format!(
                "{} has no option '{key}' here; it takes {}",
                self.protocol,
                self.known.join(", ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations_in_seconds_and_in_t() {
        let read = |text: &str, tick| {
            let options = Options { tick, ..Options::from_words([format!("wait={text}").as_str()]).unwrap() };
            options.read("ricart-agrawala").duration("wait")
        };
        assert_eq!(read("250us", 7), Ok(Some(250_000)));
        assert_eq!(read("1.5T", 1000), Ok(Some(1500)));
        assert_eq!(read("24h", 1000), Ok(Some(DURATION_MAX)));
        assert_eq!(read("3T", 1), Ok(Some(3)));
        for bad in ["", "5", "ms", "T", "1e9s", "-1s", "5parsec", "25h", "99999999999999999999T"] {
            assert!(read(bad, 1000).unwrap_err().0.contains("is not a duration"), "{bad}");
        }
        for bad in ["1.5T", "1001T", "2ms"] {
            assert!(read(bad, 1).unwrap_err().0.contains("whole T"), "{bad}");
        }
    }

    #[test]
    fn refuses_unknown_options_and_those_given_twice() {
        let options = Options::from_words(["colour=red"]).unwrap();
        let mut parsed = options.read("ricart-agrawala");
        parsed.text("reply");
        let error = parsed.finish().unwrap_err().to_string();
        assert_eq!(error, "ricart-agrawala has no option 'colour' here; it takes reply");
        assert!(Options::from_words(["a=1", "a=2"]).is_err());
        assert!(Options::from_words(["a"]).is_err());
    }
}
