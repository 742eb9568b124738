//! What the rules of the directory protocol are for: each is left out, and the exploration finds what goes wrong. The table
//! is that of `docs/protocols/directory.md`.

use hallpass_core::protocol::directory::Rule;
use hallpass_lab::{CheckReport, CheckSpec, InitialSpec, check};
use hallpass_sim::Order;

/// The number of a rule, the words of an exploration in which it is missed, what is violated, and the steps to it.
const LEFT_OUT: &[(u8, &str, &str, usize)] = &[
    (1, "entries=1", "progress", 7),
    (2, "entries=1", "progress", 7),
    (3, "entries=1", "progress", 9),
    (4, "entries=1 readers=true", "exclusion", 8),
    (5, "entries=1 readers=true upgrades=true", "exclusion", 9),
    (6, "entries=1 cancels=any", "leftovers", 3),
    (7, "entries=1 drop-idle=true", "fence", 6),
    (8, "entries=1 block=2", "bound", 7),
    (9, "entries=1 readers=true", "exclusion", 8),
    (10, "entries=1 readers=true", "progress", 7),
    (12, "entries=2 readers=true upgrades=true", "progress", 2),
    (13, "entries=2 upgrades=true", "progress", 8),
    (14, "entries=1 tries=true", "attempt", 9),
    (16, "entries=2 block=2", "bound", 7),
    (17, "entries=2 readers=true", "progress", 14),
    (18, "entries=1 readers=true", "fence", 1),
    (19, "entries=2 drop-idle=true", "progress", 11),
    (20, "entries=1 readers=true upgrades=true", "exclusion", 10),
    (22, "entries=1 readers=true", "exclusion", 4),
    (23, "entries=2", "progress", 3),
    (25, "entries=1 readers=true", "progress", 11),
    (26, "entries=1 initial-holders=2", "exclusion", 1),
    (27, "entries=2 tries=true", "attempt", 8),
    (28, "nodes=2 entries=3 readers=true upgrades=true block=2", "memory", 11),
];

/// Without these all stays right.
const HARMLESS: [u8; 2] = [11, 24];

fn explored(words: &str) -> CheckSpec {
    let mut spec = CheckSpec { order: Order::Fifo, ..CheckSpec::of("directory") };
    words.split_whitespace().for_each(|word| spec.set(word).unwrap());
    spec
}

fn explore(spec: &CheckSpec) -> CheckReport {
    check(spec, |_| {}).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

fn clean(spec: &CheckSpec) {
    let report = explore(spec);
    let found: Vec<&str> = report.violations.iter().map(|found| found.text.as_str()).collect();
    assert!(found.is_empty(), "{spec:?}: {found:?}");
    assert!(report.complete, "{spec:?}: incomplete after {} states", report.states);
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    for (rule, words, property, steps) in LEFT_OUT {
        let report = explore(&explored(&format!("{words} leave-out={rule}")));
        let found: Vec<_> = report.violations.iter().map(|found| (found.property, found.steps)).collect();
        assert_eq!(found, [(*property, *steps)], "rule {rule}, {words}");
    }
}

#[test]
fn no_rule_is_missing_from_the_table() {
    let mut known: Vec<u8> = LEFT_OUT.iter().map(|(rule, ..)| *rule).chain(HARMLESS).collect();
    known.sort_unstable();
    assert_eq!(known, Rule::ALL.iter().map(|rule| rule.number()).collect::<Vec<_>>());
}

/// The page has the same table: the rule's number first, the violation and the steps last.
#[test]
fn the_page_has_the_same_table() {
    let page = include_str!("../../../../docs/protocols/directory.md");
    for (rule, words, property, steps) in LEFT_OUT {
        let row = page.lines().find(|line| line.starts_with(&format!("| {rule} | ")));
        let row = row.unwrap_or_else(|| panic!("rule {rule} has no row"));
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        assert_eq!(cells[3..], [*property, &steps.to_string()], "rule {rule}");
        let mut said = explored("");
        for word in cells[2].trim_matches('`').split(" --").map(|word| word.trim_start_matches("--")) {
            let word = word.strip_prefix("option ").unwrap_or(word);
            let word = if word.contains(['=', ' ']) { word.replacen(' ', "=", 1) } else { format!("{word}=true") };
            said.set(&word).unwrap();
        }
        assert_eq!(said, explored(words), "rule {rule}");
    }
}

#[test]
fn two_rules_are_an_economy_or_a_precaution() {
    for rule in HARMLESS {
        clean(&explored(&format!("nodes=2 entries=2 readers=true cancels=any block=2 leave-out={rule}")));
    }
}

/// Everything that a node may do at any moment.
fn everything(words: &str) -> CheckSpec {
    let all = "readers=true tries=true upgrades=true reentry=true drop-idle=true cancels=any block=2";
    CheckSpec { initial: InitialSpec::All, ..explored(&format!("{all} {words}")) }
}

#[test]
fn whatever_callers_do_the_rules_are_enough_with_two_nodes() {
    clean(&everything("nodes=2 entries=1"));
    clean(&everything("nodes=2 entries=2"));
    clean(&everything("nodes=2 entries=2 block-chained=2 cancels=0"));
    clean(&everything("nodes=2 entries=1 home=2 give-back=when-asked"));
}

/// With attempts and upgrades there are three million states, which `.ci/full` explores.
#[test]
fn readers_and_writers_that_give_up_are_safe_with_three_nodes() {
    clean(&CheckSpec { tries: false, upgrades: false, ..everything("nodes=3 entries=1") });
    clean(&CheckSpec { upgrades: false, readers: false, ..everything("nodes=3 entries=1") });
    clean(&CheckSpec { tries: false, cancels: Some(0), drop_idle: false, ..everything("nodes=3 entries=1") });
}

/// It needs links that keep order, to go on.
#[test]
fn links_that_do_not_keep_order_are_refused() {
    let error = check(&CheckSpec { order: Order::Any, ..explored("") }, |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "directory needs links that keep order; add --order fifo");
}
