//! What there is to choose: protocols with their options, tours, scenarios.

use hallpass_lab::scenario::SHIPPED;
use hallpass_lab::traps::{Show, TRAPS};
use serde_json::{Value, json};

use crate::query::{MAX_CHECK_NODES, MAX_ENTRIES, MAX_EVENTS, MAX_NODES, MAX_STATES};

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
        about: "Ask everybody, enter when all have replied; whoever comes first defers its REPLY. Exactly 2(N-1) messages.",
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
        about: "The REQUEST travels once around; whoever comes first holds it back, or adds its name to it.",
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
        options: &[
            ("queue", &["fifo", "round-robin", "lowest-id"]),
            ("server", &["apart", "member"]),
            ("as-printed", &["T22"]),
        ],
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
        about: "Ask everybody for one token; whoever has it serves the next around. 0 or N messages.",
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
        about: "The token goes round; whoever wants in keeps it for a while.",
        options: &[("idle", &["park", "spin"]), ("as-printed", &["T25"])],
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
        name: "naimi-trehel",
        title: "Naimi-Trehel 1987",
        about: "Follow the guesses who asked last; every node on the way turns its guess around. O(log N) messages.",
        options: &[],
    },
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
            "options": entry.options.iter().map(|(key, values)| json!({"key": key, "values": values})).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "tours": TOURS.iter().map(|(name, about)| json!({
            "name": name, "about": about, "title": heading(name, "title"), "protocol": heading(name, "protocol"),
        })).collect::<Vec<_>>(),
        "scenarios": SHIPPED.iter().map(|(name, text)| json!({
            "name": name, "title": heading(name, "title"), "protocol": heading(name, "protocol"),
            "about": text.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']),
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
    use hallpass_lab::{RunSpec, simulate};

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
                    let mut spec = RunSpec { entries: 3, ..RunSpec::of(entry.name) };
                    let helps: &[&str] = match (*key, *value) {
                        ("increment", "priority") => &["priorities=1,2,3"],
                        ("links", "fifo") => &["order=fifo"],
                        ("as-printed", "T4") => &["numbers=modulo:5"],
                        ("as-printed", "T5" | "T8" | "T9") => &["membership=classic"],
                        ("as-printed", "T10") => &["reply=implicit"],
                        ("as-printed", "T11") => &["ring=annotate"],
                        ("as-printed", "T26" | "T27") => &["recovery=classic"],
                        ("server", "apart") => continue,
                        _ => &[],
                    };
                    helps.iter().for_each(|word| spec.set(word).unwrap());
                    if entry.name == "lamport-fifo" {
                        spec.set("order=fifo").unwrap();
                    }
                    spec.set(&format!("{key}={value}")).unwrap();
                    if let Err(error) = simulate(&spec) {
                        panic!("{} {key}={value}: {error}", entry.name);
                    }
                }
            }
        }
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
