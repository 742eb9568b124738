//! The view layer at small size: every model is clean, and notices every bug that is planted in it.

use hallpass_lab::{CheckReport, ModelSpec, check_model, models};

fn explore(spec: &ModelSpec) -> CheckReport {
    check_model(spec, |_| {}).expect("the model is known")
}

/// Explores a model in full: it has at least this many states, none of them bad.
fn is_clean(model: &str, states_min: usize) {
    let report = explore(&ModelSpec::of(model));
    assert!(report.violations.is_empty(), "{model}: {:#?}", report.violations[0].lines);
    assert!(report.complete, "{model} was not explored in full");
    assert!(report.states >= states_min, "{model} has only {} states: it shows little", report.states);
}

#[test]
fn nobody_is_removed_while_its_session_is_valid() {
    is_clean("sessions", 300_000);
}

#[test]
fn views_are_installed_by_two_stewards() {
    is_clean("install", 100_000);
    is_clean("install-token", 50_000);
}

#[test]
fn a_member_lapses_in_a_view_that_lives_on() {
    is_clean("lapse", 500_000);
}

#[test]
fn incarnations_come_and_go_in_every_order() {
    is_clean("incarnations", 200_000);
}

#[test]
fn one_group_is_founded_when_nodes_lose_their_disks() {
    is_clean("founding", 1_000);
    // All three lost take some minutes: `lab check --model founding-all-lost`.
    is_clean("founding-two-lost", 30_000);
}

#[test]
fn an_agent_waits_for_its_predecessors_clients() {
    is_clean("restart", 50_000);
}

#[test]
fn nothing_passes_on_that_a_client_was_told_it_holds() {
    is_clean("leases", 1_000_000);
}

#[test]
fn consensus_agrees_over_restarts() {
    is_clean("consensus", 500_000);
}

#[test]
fn the_group_goes_on_without_one_of_two_that_do_not_reach_each_other() {
    is_clean("progress-link", 100_000);
}

#[test]
fn a_node_that_joins_and_fails_for_ever_keeps_nobody_from_working() {
    is_clean("progress-joiner", 50_000);
}

#[test]
fn more_waiters_than_a_buffer_takes_are_refused_or_served() {
    is_clean("progress-buffer", 5_000);
}

/// For each model: the planted bugs, the property that each breaks, and the most steps of the path there.
const BUGS: &[(&str, &str, &str, usize)] = &[
    ("sessions", "evict-early", "session", 8),
    ("sessions", "late-ack", "session", 16),
    ("sessions", "no-quorum", "session", 18),
    ("sessions", "any-term", "session", 20),
    ("sessions", "count-from-receipt", "session", 20),
    ("sessions", "ack-doomed", "session", 15),
    ("install", "no-wait-for-reports", "kept", 16),
    ("install", "stale-start", "kept", 30),
    ("install-token", "no-wait-for-reports", "kept", 16),
    ("install-token", "stale-epoch", "exclusion", 18),
    ("install-token", "stale-start", "kept", 30),
    ("lapse", "keep-permissions", "exclusion", 16),
    ("incarnations", "stale-command", "incarnation", 14),
    ("incarnations", "any-incarnation", "incarnation", 16),
    ("incarnations", "namesake", "progress", 10),
    ("founding", "no-agreement", "one-group", 8),
    ("founding", "keep-id", "one-history", 5),
    ("founding-two-lost", "no-agreement", "one-group", 8),
    ("founding-two-lost", "keep-id", "one-history", 5),
    ("founding-all-lost", "no-agreement", "one-group", 8),
    ("founding-all-lost", "keep-id", "one-history", 5),
    ("restart", "no-wait", "exclusion", 6),
    ("restart", "short-wait", "exclusion", 8),
    ("leases", "ttl-past-lease", "told", 5),
    ("leases", "told-past-end", "told", 8),
    ("leases", "told-past-session", "told", 6),
    ("leases", "no-drift", "told", 5),
    ("leases", "told-uncovered", "told", 5),
    ("leases", "break-past-promise", "told", 5),
    ("leases", "promise-without-drift", "told", 5),
    ("leases", "end-at-once", "told", 3),
    ("consensus", "forget-vote", "one-leader", 4),
    ("consensus", "send-before-sync", "agreement", 12),
    ("progress", "keep-both", "progress", 2),
    ("progress", "no-back-off", "progress", 2),
    ("progress", "forget-held-up", "progress", 2),
    ("progress-link", "keep-both", "progress", 2),
    ("progress-joiner", "no-back-off", "progress", 2),
    ("progress-buffer", "forget-held-up", "progress", 2),
];

#[test]
fn every_bug_that_is_planted_is_found() {
    for (model, bug, property, steps_max) in BUGS {
        let report = explore(&ModelSpec::of(model).with_bug(bug));
        let Some(found) = report.violations.first() else { panic!("{model} does not notice '{bug}'") };
        assert_eq!(found.property, *property, "{model} with '{bug}': {:#?}", found.lines);
        assert!(found.steps <= *steps_max, "{model} with '{bug}' takes {} steps", found.steps);
        assert_eq!(found.lines.len(), found.steps, "each step is told");
    }
}

#[test]
fn what_is_not_known_is_refused_with_what_is() {
    let error = check_model(&ModelSpec::of("session"), |_| {}).expect_err("there is none");
    assert!(error.0.contains("there is no model 'session'; there are sessions, install"), "{error}");
    let error = check_model(&ModelSpec::of("restart").with_bug("none"), |_| {}).expect_err("there is none");
    assert_eq!(error.0, "model 'restart' has no bug 'none'; it has no-wait, short-wait");
    let error = check_model(&ModelSpec::of("progress").with_bug("none"), |_| {}).expect_err("there is none");
    assert_eq!(error.0, "model 'progress' has no bug 'none'; it has keep-both, no-back-off, forget-held-up");
    for (model, bugs) in models() {
        for bug in bugs {
            let planted = BUGS.iter().any(|(known, name, ..)| *name == bug && *known == model);
            assert!(planted, "'{bug}' of model '{model}' is not tried");
        }
    }
}
