use super::connection::renumber;
use super::*;

#[test]
fn whole_nodes_keep_their_promises_under_faults() {
    let mut faults = [0; 6];
    let (mut grants, mut busy, mut overtaken) = (0, 0, 0);
    for seed in 0..300 {
        let report = run(seed);
        assert_eq!(report.violation, None, "seed {seed}");
        assert_eq!(report.refused, 0, "no run comes near a limit");
        grants += report.grants;
        busy += report.busy;
        overtaken = report.overtaken.max(overtaken);
        faults.iter_mut().zip(report.faults).for_each(|(sum, count)| *sum += count);
    }
    assert!(grants > 10_000, "{grants}");
    assert!(busy > 500 && overtaken > 2, "attempts fail, nodes are overtaken: {busy}, {overtaken}");
    assert!(faults.iter().all(|count| *count > 20), "every fault happens: {faults:?}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    for seed in [3, 17, 4711] {
        let first = run_logged(seed);
        assert_eq!(first, run_logged(seed));
        assert_eq!(first.hash, run(seed).hash, "logging changes nothing");
        assert_ne!(first.hash, run(seed + 1).hash);
    }
}

/// True if this oracle notices a planted bug in one of many runs.
fn notices(oracle: &str, lock: &str, bug: Bug) -> bool {
    let found = |seed| run_with_bug(seed, lock, bug).violation;
    (0..500).any(|seed| found(seed).is_some_and(|violation| violation.property == oracle))
}

#[test]
fn planted_bugs_are_noticed() {
    for (lock, bug, oracle) in [
        ("ry/x", Bug::Twice, "exclusion"),
        ("ry/x", Bug::Twice, "fence"),
        ("nt/x", Bug::Twice, "progress"),
        ("lf/x", Bug::Lost, "exclusion"),
        ("x", Bug::Lost, "progress"),
        ("x", Bug::ReleaseEarly, "exclusion"),
        ("x", Bug::AnswerTwice, "answers"),
        ("x", Bug::AnswerNever, "progress"),
        ("x", Bug::AnswerGone, "answers"),
        ("x", Bug::ReleaseNever, "progress"),
        ("x", Bug::BusyForNothing, "busy"),
        ("ra/x", Bug::BusyForNothing, "busy"),
        ("x", Bug::RefuseForNothing, "refusal"),
        ("x", Bug::LastInFirst, "overtaking"),
        ("x", Bug::NeverYield, "overtaking"),
        ("x", Bug::ReadersBehind, "fence"),
        ("x", Bug::ReadersAhead, "fence"),
    ] {
        assert!(notices(oracle, lock, bug), "{bug:?} is not noticed by {oracle}");
    }
}

#[test]
fn the_default_protocol_does_not_mind_messages_that_come_twice() {
    for seed in 0..50 {
        assert_eq!(run_with_bug(seed, "x", Bug::Twice).violation, None, "seed {seed}");
    }
}

#[test]
fn without_a_planted_bug_renumbering_changes_nothing() {
    let frame = [0, 10, 1, 4, 0x85, 0x01, 7, 3, 1, 1, 1, 9];
    assert_eq!(renumber(&frame, 0, 0), frame);
    assert_eq!(renumber(&frame, -10, 7), [0, 9, 1, 4, 123, 0, 3, 1, 1, 1, 9]);
}

/// With low limits callers are refused, and always for the reason that they are told.
#[test]
fn refusals_have_the_reason_that_they_give() {
    let log = |seed: u64, limit: fn(&Plan) -> Plan| {
        let mut group = Group::new(seed, None, true);
        group.plan = limit(&group.plan);
        let report = group.run();
        assert_eq!(report.violation, None, "seed {seed}");
        report.log
    };
    let few = (0..50).flat_map(|seed| log(seed, Plan::with_few_locks_and_callers));
    // It takes many messages on one connection.
    let busy = (900..920).flat_map(|seed| log(seed, Plan::without_backlog));
    let log = few.chain(busy).collect::<Vec<_>>().join("\n");
    for reason in ["Err(Locks)", "Err(Callers)", "Err(Backlog("] {
        assert!(log.contains(reason), "{reason}");
    }
}
