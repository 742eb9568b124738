//! State diagrams of a node: drawn from the tables of transitions that the code itself keeps to.

use std::fmt::Write;

use hallpass_chart::StateChart;
use hallpass_node::model::{STEPS, TRANSITIONS};

/// Where each state of a member's life is drawn: column and row.
const MEMBER: &[(&str, (u32, u32))] = &[
    ("Prepared", (2, 0)),
    ("Reported", (4, 0)),
    ("Waiting", (0, 1)),
    ("Joining", (1, 1)),
    ("Closing", (3, 1)),
    ("Open", (5, 1)),
    ("Persisting", (1, 2)),
    ("Lapsed", (3, 2)),
    ("Withdrawing", (2, 3)),
    ("Gone", (3, 3)),
];

/// The same for the steps of an installation.
const INSTALLATION: &[(&str, (u32, u32))] =
    &[("Probing", (0, 0)), ("Preparing", (1, 0)), ("Starting", (2, 0)), ("Void", (0, 1)), ("Done", (3, 1))];

/// The state diagrams: a name for the file, and the diagram.
pub fn state_charts() -> [(&'static str, StateChart); 2] {
    let member = TRANSITIONS.iter().map(|(from, to, by)| (format!("{from:?}"), format!("{to:?}"), (*by).to_owned()));
    let steps = STEPS.iter().map(|(from, to, by)| (format!("{from:?}"), format!("{to:?}"), (*by).to_owned()));
    [
        ("member", chart("A member's life", MEMBER, member.collect())),
        ("installation", chart("The installation of a view, by its steward", INSTALLATION, steps.collect())),
    ]
}

fn chart(title: &str, places: &[(&str, (u32, u32))], changes: Vec<(String, String, String)>) -> StateChart {
    let states = places.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
    StateChart { title: title.to_owned(), states, changes }
}

/// The same as text: a line for each change.
pub fn state_text(chart: &StateChart) -> String {
    let mut text = format!("{}\n\n", chart.title);
    for (from, to, by) in &chart.changes {
        let _ = writeln!(text, "{from:<12} -> {to:<12} {by}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_state_has_a_place_in_its_diagram() {
        for (name, chart) in state_charts() {
            let drawn: BTreeSet<&String> = chart.states.iter().map(|(state, _)| state).collect();
            let used: BTreeSet<&String> = chart.changes.iter().flat_map(|(from, to, _)| [from, to]).collect();
            assert_eq!(drawn, used, "{name}");
        }
    }
}
