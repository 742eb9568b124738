//! What there is to choose: protocols with their options, tours, scenarios.

use std::sync::OnceLock;

use hallpass_lab::scenario::SHIPPED;
use hallpass_lab::traps::{Show, TRAPS};
use hallpass_lab::{RunSpec, SETTINGS, Setting, Values, simulate};
use serde_json::{Value, json};

use crate::query::{MAX_CHECK_NODES, MAX_ENTRIES, MAX_EVENTS, MAX_NODES, MAX_STATES, run_defaults};

/// A protocol, for people.
struct Entry {
    name: &'static str,
    title: &'static str,
    /// One sentence.
    about: &'static str,
    /// Options with the values to offer; any other value may be written.
    options: &'static [(&'static str, &'static [&'static str])],
}

const TREES: &[&str] = &["star:3", "line", "star:2", "star:4", "random"];

const PROTOCOLS: &[Entry] = &[
    Entry {
        name: "ricart-agrawala",
        title: "Ricart-Agrawala 1981",
        about: "Ask everybody, enter when all have replied; a node whose own request comes first defers its REPLY. Exactly 2(N-1) messages.",
        options: &[
            ("reply", &["explicit", "implicit"]),
            ("request", &["unicast", "broadcast"]),
            ("medium", &["unordered", "sequenced"]),
            ("numbers", &["unbounded", "modulo:5", "modulo:4", "modulo:3"]),
            ("increment", &["unit", "random:4", "priority"]),
            ("reply-number", &["true", "false"]),
            ("clock", &["sequence", "lamport"]),
            ("membership", &["static", "classic"]),
            ("fence", &["on", "off"]),
            ("as-printed", &["T1", "T2", "T3", "T4", "T5", "T6", "T8", "T9", "T10"]),
        ],
    },
    Entry {
        name: "ricart-agrawala-ring",
        title: "Ricart-Agrawala on a ring",
        about: "The REQUEST travels once around; a node whose own request comes first holds it back, or adds its name to it.",
        options: &[("ring", &["echo", "annotate"]), ("as-printed", &["T11"])],
    },
    Entry {
        name: "carvalho-roucairol",
        title: "Carvalho-Roucairol 1983",
        about: "A permission stays until it is asked back, so that a node that uses the lock alone asks nobody.",
        options: &[("cache-idle", &["10T", "100T"]), ("as-printed", &["T15", "T16"])],
    },
    Entry {
        name: "central",
        title: "Central server",
        about: "Request, grant, release: three messages, and a server that everything depends on.",
        options: &[("queue", &["fifo", "round-robin", "lowest-id"]), ("server", &["member"]), ("as-printed", &["T22"])],
    },
    Entry {
        name: "lamport",
        title: "Lamport, any order",
        about: "Everybody keeps the queue of all requests, ordered by logical clocks. 3(N-1) messages.",
        options: &[("as-printed", &["T23", "T24"])],
    },
    Entry {
        name: "lamport-fifo",
        title: "Lamport 1978",
        about: "As first published, for links that keep order. 3(N-1) messages.",
        options: &[("links", &["fifo", "any"])],
    },
    Entry {
        name: "token",
        title: "Ricart-Agrawala token 1983",
        about: "Ask everybody for one token; the node that has it serves the next around. 0 or N messages.",
        options: &[("start", &["node-1", "ricart-agrawala"]), ("as-printed", &["T20"])],
    },
    Entry {
        name: "suzuki-kasami",
        title: "Suzuki-Kasami 1985",
        about: "As the token algorithm, but the token carries the queue. 0 or N messages.",
        options: &[],
    },
    Entry {
        name: "token-ring",
        title: "Token ring",
        about: "The token goes round; a node that wants in keeps it for a while.",
        // A token that spins while nobody wants it (idle=spin) makes more events than a page can hold: it is not offered.
        options: &[("as-printed", &["T25"])],
    },
    Entry {
        name: "raymond",
        title: "Raymond 1989",
        about: "A token on a tree: every node knows only in which direction it is. O(log N) messages, 4 under load.",
        options: &[
            ("tree", TREES),
            ("piggyback", &["false", "true"]),
            ("greedy", &["false", "true"]),
            ("start", &["placed", "initialize"]),
            ("recovery", &["off", "classic"]),
            ("as-printed", &["T26", "T27"]),
        ],
    },
    Entry {
        name: "maekawa",
        title: "Maekawa 1985",
        about: "Ask a row and a column of a grid: any two of them share an arbiter. 3 to 5 times the root of N messages.",
        options: &[("failed", &["overtaken", "arrival"])],
    },
    Entry {
        name: "directory",
        title: "Directory",
        about: "Ask the lock's home, which keeps the order; the holder hands the lock to the next one. About 3 messages, whatever N is.",
        options: &[
            ("give-back", &["at-once", "when-asked"]),
            ("block", &["1", "2", "16"]),
            ("block-chained", &["1", "2"]),
            ("home", &["1", "2"]),
            ("leave-out", &["1", "4", "6", "9", "22"]),
        ],
    },
    Entry {
        name: "naimi-trehel",
        title: "Naimi-Trehel 1987",
        about: "Follow the guesses who asked last; every node on the way turns its guess around. O(log N) messages.",
        options: &[],
    },
];

/// What a value of an option needs besides: the protocol, the option, the value, and the word to add. `1..N` stands for a
/// number for each node.
const NEEDS: &[(&str, &str, &str, &str)] = &[
    ("ricart-agrawala", "increment", "priority", "priorities=1..N"),
    ("ricart-agrawala", "as-printed", "T4", "numbers=modulo:5"),
    ("ricart-agrawala", "as-printed", "T5", "membership=classic"),
    ("ricart-agrawala", "as-printed", "T8", "membership=classic"),
    ("ricart-agrawala", "as-printed", "T9", "membership=classic"),
    ("ricart-agrawala", "as-printed", "T10", "reply=implicit"),
    ("ricart-agrawala-ring", "as-printed", "T11", "ring=annotate"),
    // With links that keep order it would show nothing.
    ("lamport-fifo", "links", "any", "order=any"),
    ("raymond", "as-printed", "T26", "recovery=classic"),
    ("raymond", "as-printed", "T27", "recovery=classic"),
];

/// Faults to offer, each to the protocols that bear it.
const FAULTS: &[(&str, &str)] = &[
    ("loss:0.05", "5% of messages lost"),
    ("dup:0.1", "10% of messages twice"),
    ("crash:1", "a crash"),
    ("crash:1,restart:1", "a crash and a restart"),
    ("pause:1@3ms..20ms", "node 1 pauses"),
    ("partition:1@5ms..20ms", "node 1 is cut off"),
    ("join:1", "a node joins"),
    ("leave:1", "a node leaves"),
];

/// Groups and faults of the page about views.
pub(crate) const STORIES: &[(&str, &str, &str)] = &[
    ("A quiet group", "", ""),
    ("A minority is cut off", "5", "partition:4+5@6s..14s"),
    ("The steward's side is cut off", "5", "partition:2+3@6s..14s"),
    ("A member stands still", "5", "pause:1@6s..11s"),
    ("A member crashes", "5", "crash:2@6s..12s"),
    ("No majority", "4", "partition:1+2@6s..13s"),
    ("All at once", "5", "partition:5@5s..9s,pause:2@12s..16s,crash:1@20s..26s"),
];

/// The guided tours: scenarios in which every step has a sentence.
pub(crate) const TOURS: &[(&str, &str)] = &[
    (
        "ricart-agrawala-figure-1",
        "Three nodes, three requests, twelve messages: the figure with which the paper begins.",
    ),
    ("cmu-example", "The same algorithm on Lamport clocks, with every timestamp of the lecture notes' example."),
    ("raymond-figure-1", "A token walks along a tree, and requests walk after it."),
    ("naimi-trehel-path-reversal", "Requests chase a token along guesses, and every guess they pass turns around."),
    ("directory-handover", "One member keeps the order of the requests; the lock itself goes from holder to holder."),
    ("directory-readers", "A batch of readers, a writer that needs a grant of each, and a writer that reads on."),
    ("maekawa-inquire", "Four arbiters, and a vote that has to be given back."),
];

pub(crate) fn about() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "limits": {
            "nodes": MAX_NODES, "entries": MAX_ENTRIES, "events": MAX_EVENTS,
            "check_nodes": MAX_CHECK_NODES, "states": MAX_STATES,
        },
        "protocols": PROTOCOLS.iter().map(|entry| json!({
            "name": entry.name, "title": entry.title, "about": entry.about,
            "options": entry.options.iter().map(|(key, values)| json!({
                "key": key, "values": values, "needs": needs(entry.name, key),
            })).collect::<Vec<_>>(),
            "order": default_order(entry.name),
            "faults": faults(entry.name),
        })).collect::<Vec<_>>(),
        "settings": SETTINGS.iter().map(setting).collect::<Vec<_>>(),
        "tours": TOURS.iter().map(|(name, about)| json!({
            "name": name, "about": about, "title": heading(name, "title"), "protocol": heading(name, "protocol"),
        })).collect::<Vec<_>>(),
        "scenarios": SHIPPED.iter().map(|(name, text)| json!({
            "name": name, "title": heading(name, "title"), "protocol": heading(name, "protocol"),
            "about": text.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']),
        })).collect::<Vec<_>>(),
        "stories": STORIES.iter().map(|(title, nodes, faults)| json!({
            "title": title, "nodes": nodes, "faults": faults,
        })).collect::<Vec<_>>(),
        "traps": TRAPS.iter().map(|trap| {
            let (how, why) = match trap.show {
                Show::Explore { .. } => ("explore", ""),
                Show::Simulate { .. } => ("simulate", ""),
                Show::Told(why) => ("told", why),
            };
            json!({
                "id": trap.id, "title": trap.title, "place": trap.place, "breaks": trap.breaks, "instead": trap.instead,
                "how": how, "why": why,
            })
        }).collect::<Vec<_>>(),
    })
}

/// A setting of a run, as the page's form shows it. What the page can hold is less than what the command line takes.
fn setting(setting: &Setting) -> Value {
    let Setting { key, label, hint, values, .. } = setting;
    let (kind, max, choices) = match *values {
        Values::Whole(max) => ("whole", Some(max), &[][..]),
        Values::Fraction => ("fraction", None, &[][..]),
        Values::OneOf(_) => ("choice", None, &[][..]),
        Values::Text(examples) => ("text", None, examples),
    };
    let max = match *key {
        "nodes" => Some(MAX_NODES.into()),
        "entries" => Some(MAX_ENTRIES),
        // Larger numbers are not exact in the page.
        _ => max.map(|max| max.min(1_000_000_000_000_000)),
    };
    let default = setting.value(&run_defaults());
    json!({"key": key, "label": label, "hint": hint, "kind": kind, "max": max, "choices": choices, "default": default})
}

/// Two protocols are for links that keep order, and refuse others.
pub(crate) fn default_order(protocol: &str) -> &'static str {
    if matches!(protocol, "lamport-fifo" | "directory") { "fifo" } else { "any" }
}

/// By value, the word that a value of an option needs besides.
fn needs(protocol: &str, option: &str) -> Value {
    let of = NEEDS.iter().filter(|(name, key, ..)| (*name, *key) == (protocol, option));
    of.map(|(_, _, value, word)| ((*value).to_owned(), json!(word))).collect::<serde_json::Map<_, _>>().into()
}

/// The faults that a protocol bears, perhaps with another option. A protocol refuses the others before the run begins.
fn faults(protocol: &str) -> Value {
    static FOUND: OnceLock<Vec<(&str, Value)>> = OnceLock::new();
    let find = |protocol: &'static str| {
        let needed = |fault: &str| {
            ["", "membership=classic", "recovery=classic"].into_iter().find(|word| {
                let order = format!("order={}", default_order(protocol));
                let fault = format!("faults={fault}");
                let mut spec = RunSpec { entries: 1, ..RunSpec::of(protocol) };
                let words = [order.as_str(), fault.as_str(), word];
                words.iter().filter(|word| !word.is_empty()).all(|word| spec.set(word).is_ok())
                    && simulate(&spec).is_ok()
            })
        };
        let borne = FAULTS.iter().filter_map(|(fault, label)| {
            needed(fault).map(|word| json!({"value": fault, "label": label, "needs": word}))
        });
        (protocol, borne.collect::<Vec<_>>().into())
    };
    let found = FOUND.get_or_init(|| PROTOCOLS.iter().map(|entry| find(entry.name)).collect());
    found.iter().find(|(name, _)| *name == protocol).map_or(Value::Null, |(_, borne)| borne.clone())
}

/// A setting of a shipped scenario: the first word of it.
fn heading(name: &str, key: &str) -> String {
    let text = hallpass_lab::scenario::shipped(name).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    let line = line.unwrap_or_default();
    if key == "title" { line.to_owned() } else { line.split(' ').next().unwrap_or_default().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::protocols;

    #[test]
    fn every_protocol_is_on_the_menu() {
        let mut listed: Vec<&str> = PROTOCOLS.iter().map(|entry| entry.name).collect();
        let mut all = protocols();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
    }

    #[test]
    fn every_value_that_is_offered_is_one() {
        for entry in PROTOCOLS {
            for (key, values) in entry.options {
                for value in *values {
                    // As the page runs it: with a trace, which has a limit.
                    let mut words = vec![format!("order={}", default_order(entry.name)), format!("{key}={value}")];
                    if let Some(need) = needs(entry.name, key).get(value) {
                        words.push(need.as_str().unwrap().replace("1..N", "1,2,3"));
                    }
                    let query = crate::query::Query(words);
                    let spec = RunSpec { protocol: entry.name.to_owned(), ..query.run().unwrap() };
                    if let Err(error) = simulate(&spec) {
                        panic!("{} {key}={value}: {error}", entry.name);
                    }
                }
            }
        }
    }

    #[test]
    fn every_fault_is_offered_to_somebody_and_only_to_those_who_bear_it() {
        let borne = |protocol| faults(protocol).as_array().unwrap().clone();
        let names = |protocol| -> Vec<String> {
            borne(protocol).iter().map(|one| one["value"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names("ricart-agrawala").len(), FAULTS.len());
        assert!(
            !names("raymond").contains(&"loss:0.05".to_owned())
                && names("raymond").contains(&"crash:1,restart:1".to_owned())
        );
        let join = borne("ricart-agrawala").into_iter().find(|one| one["value"] == "join:1").unwrap();
        assert_eq!(join["needs"], "membership=classic");
    }

    #[test]
    fn the_steward_is_on_the_side_that_its_story_cuts_off() {
        let (_, nodes, faults) = STORIES.iter().find(|(title, ..)| title.starts_with("The steward")).unwrap();
        let query = crate::query::Query(vec![format!("nodes={nodes}"), format!("faults={faults}")]);
        let told = crate::answer::views(query, &crate::jobs::Watch::patient()).unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        let changes = told["changes"].as_array().unwrap();
        let is_before = |change: &Value| change["at"].as_f64() < Some(6000.0);
        let steward = changes.iter().rfind(|change| change["steward"] == true && is_before(change)).unwrap();
        assert!(told["faults"][0]["nodes"].as_array().unwrap().contains(&steward["node"]), "{steward}");
    }

    #[test]
    fn every_step_of_a_tour_has_a_sentence() {
        for (name, _) in TOURS {
            let text = hallpass_lab::scenario::shipped(name).expect("a tour is a scenario");
            let played = hallpass_lab::scenario::play(text, None).unwrap();
            for step in played.steps.iter().filter(|step| step.events.0 < step.events.1) {
                assert!(!step.comment.is_empty(), "{name}: '{}' has no sentence", step.command);
            }
        }
    }
}
