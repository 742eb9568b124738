//! The settings of a simulated run: one table, which the command line, `key=value` words, the printed command and the page's
//! form share. Their defaults are those of [`RunSpec::of`].

use hallpass_sim::Order;

use crate::{LabError, RunSpec, key_value, parse_order, parse_value};

/// One setting: the flag `--KEY` of `lab run`, the key of a word `KEY=VALUE`, and a field of the page's form.
pub struct Setting {
    /// Its name everywhere.
    pub key: &'static str,
    /// What stands for its value in the command line's help.
    pub value_name: &'static str,
    /// What it means, for the command line's help.
    pub help: &'static str,
    /// Its name in the page's form.
    pub label: &'static str,
    /// A short explanation in the page's form; may be empty.
    pub hint: &'static str,
    /// Which values it takes.
    pub values: Values,
    /// The printed command names it even if it has its default.
    is_always_printed: bool,
    get: fn(&RunSpec) -> String,
    set: fn(&mut RunSpec, &str) -> Result<(), LabError>,
}

/// Which values a setting takes, as far as a parser of arguments or a form must know.
pub enum Values {
    /// A whole number up to this one.
    Whole(u64),
    /// A number from 0 to 1.
    Fraction,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Text with a grammar of its own, and examples with what they mean.
    Text(&'static [(&'static str, &'static str)]),
}

/// All settings, in the order of the help and of the printed command.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "nodes",
        value_name: "N",
        help: "Number of nodes",
        label: "Nodes",
        hint: "",
        values: Values::Whole(u32::MAX as u64),
        is_always_printed: true,
        get: |spec| spec.nodes.to_string(),
        set: |spec, word| parse_value(word).map(|nodes| spec.nodes = nodes),
    },
    Setting {
        key: "entries",
        value_name: "K",
        help: "Number of requests in all",
        label: "Requests",
        hint: "",
        values: Values::Whole(u64::MAX),
        is_always_printed: true,
        get: |spec| spec.entries.to_string(),
        set: |spec, word| parse_value(word).map(|entries| spec.entries = entries),
    },
    Setting {
        key: "seed",
        value_name: "S",
        help: "Seed: determines every random choice",
        label: "Seed",
        hint: "",
        values: Values::Whole(u64::MAX),
        is_always_printed: true,
        get: |spec| spec.seed.to_string(),
        set: |spec, word| parse_value(word).map(|seed| spec.seed = seed),
    },
    Setting {
        key: "load",
        value_name: "LOAD",
        help: "How often nodes request: saturated, light, RATE or hotspot:F; see 'load' below",
        label: "Load",
        hint: "",
        values: Values::Text(&[
            ("saturated", "saturated: everybody, all the time"),
            ("light", "light: one at a time"),
            ("0.1", "0.1 requests per T"),
            ("0.5", "0.5 requests per T"),
            ("hotspot:0.9", "hotspot: mostly the lowest node"),
        ]),
        is_always_printed: false,
        get: |spec| spec.load.clone(),
        set: |spec, word| text(word).map(|load| spec.load = load),
    },
    Setting {
        key: "hold",
        value_name: "D",
        help: "How long a node holds the lock, such as 250us [default: T]",
        label: "Hold",
        hint: "time inside",
        values: Values::Text(&[]),
        is_always_printed: false,
        get: |spec| spec.hold.clone().unwrap_or_default(),
        set: |spec, word| text(word).map(|hold| spec.hold = Some(hold)),
    },
    Setting {
        key: "latency",
        value_name: "D",
        help: "How long messages take; see 'latency' below",
        label: "Latency",
        hint: "T is its mean",
        values: Values::Text(&[
            ("1ms", "always 1 ms"),
            ("1ms..3ms", "1 to 3 ms, evenly"),
            ("exp:1ms", "exponential, 1 ms on average"),
        ]),
        is_always_printed: false,
        get: |spec| spec.latency.clone(),
        set: |spec, word| text(word).map(|latency| spec.latency = latency),
    },
    Setting {
        key: "order",
        value_name: "any|fifo",
        help: "Order of messages on a link; fifo: as sent",
        label: "Order",
        hint: "",
        values: Values::OneOf(&["any", "fifo"]),
        is_always_printed: false,
        get: |spec| if spec.order == Order::Fifo { "fifo" } else { "any" }.to_owned(),
        set: |spec, word| parse_order(word).map(|order| spec.order = order),
    },
    Setting {
        key: "readers",
        value_name: "F",
        help: "The fraction of requests in shared mode, 0 to 1",
        label: "Readers",
        hint: "share of requests",
        values: Values::Fraction,
        is_always_printed: false,
        get: |spec| spec.readers.to_string(),
        set: |spec, word| parse_value(word).map(|readers| spec.readers = readers),
    },
    Setting {
        key: "faults",
        value_name: "SPEC",
        help: "What goes wrong; see 'faults' below [default: nothing]",
        label: "Faults",
        hint: "what goes wrong",
        values: Values::Text(&[]),
        is_always_printed: false,
        get: |spec| spec.faults.clone(),
        set: |spec, word| text(word).map(|faults| spec.faults = faults),
    },
];

impl Setting {
    /// The setting with this key.
    pub fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Its value in a run, as text; empty if the run leaves it open.
    pub fn value(&self, spec: &RunSpec) -> String {
        (self.get)(spec)
    }

    /// Takes its value from a word `KEY=VALUE`.
    pub(crate) fn set(&self, spec: &mut RunSpec, word: &str) -> Result<(), LabError> {
        (self.set)(spec, word)
    }

    /// Its value, if the command that repeats a run must name it.
    pub(crate) fn printed(&self, spec: &RunSpec, defaults: &RunSpec) -> Option<String> {
        let value = self.value(spec);
        (self.is_always_printed || value != self.value(defaults)).then_some(value)
    }
}

fn text(word: &str) -> Result<String, LabError> {
    key_value(word).map(|(_, value)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_read_back_as_it_was_set() {
        let others = ["7", "20", "9", "light", "3ms", "exp:1ms", "fifo", "0.5", "loss:0.1"];
        assert_eq!(SETTINGS.len(), others.len(), "give the new setting a value here");
        let defaults = RunSpec::of("token");
        let mut spec = defaults.clone();
        for (setting, other) in SETTINGS.iter().zip(others) {
            spec.set(&format!("{}={other}", setting.key)).unwrap();
            assert_eq!(setting.value(&spec), other);
            assert_ne!(setting.value(&spec), setting.value(&defaults), "{} has its default", setting.key);
        }
        let command = "hallpass lab run --protocol token --nodes 7 --entries 20 --seed 9 --load light --hold 3ms \
                       --latency exp:1ms --order fifo --readers 0.5 --faults loss:0.1";
        assert_eq!(spec.command(), command);
        let plain = "hallpass lab run --protocol token --nodes 3 --entries 1000 --seed 1";
        assert_eq!(defaults.command(), plain);
    }
}
