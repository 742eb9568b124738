use super::*;

#[test]
fn whole_nodes_keep_their_promises_under_faults() {
    let mut faults = [0; 6];
    let mut grants = 0;
    for seed in 0..300 {
        let report = run(seed);
        assert_eq!(report.violation, None, "seed {seed}");
        grants += report.grants;
        faults.iter_mut().zip(report.faults).for_each(|(sum, count)| *sum += count);
    }
    assert!(grants > 10_000, "{grants}");
    assert!(faults.iter().all(|count| *count > 20), "every fault happens: {faults:?}");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    for seed in [3, 17, 4711] {
        let first = tell(seed);
        assert_eq!(first, tell(seed));
        assert_eq!(first.hash, run(seed).hash, "telling changes nothing");
        assert_ne!(first.hash, run(seed + 1).hash);
    }
}

/// Runs seeds until a planted bug is noticed, and says by which oracle.
fn noticed(lock: &str, plant: Plant) -> &'static str {
    let found = (0..100).find_map(|seed| run_planted(seed, lock, plant).violation);
    found.map_or("nobody", |violation| violation.property)
}

#[test]
fn planted_bugs_are_noticed() {
    for (lock, plant, oracle) in [
        ("nt/x", Plant::Twice, "exclusion"),
        ("x", Plant::Lost, "progress"),
        ("x", Plant::ReleaseEarly, "exclusion"),
        ("x", Plant::AnswerTwice, "answers"),
        ("x", Plant::AnswerNever, "progress"),
        ("x", Plant::AnswerGone, "answers"),
        ("x", Plant::ReleaseNever, "progress"),
    ] {
        assert_eq!(noticed(lock, plant), oracle, "{plant:?}");
    }
}

#[test]
fn without_a_planted_bug_renumbering_changes_nothing() {
    let frame = [0, 10, 1, 4, 0x85, 0x01, 7, 3, 1, 1, 1, 9];
    assert_eq!(renumber(&frame, 0, 0), frame);
    assert_eq!(renumber(&frame, -10, 7), [0, 9, 1, 4, 123, 0, 3, 1, 1, 1, 9]);
}
