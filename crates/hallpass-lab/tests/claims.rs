//! Every claim holds, and every claim can fail: a bug planted for each id turns at least one of its rows to not ok.
//!
//! Ids that explore for long are left out unless `HALLPASS_LONG_TESTS` is set: `.ci/run` sets it.

use std::sync::atomic::{AtomicUsize, Ordering};

use hallpass_core::protocol::Mutation;
use hallpass_lab::claims::{ClaimsSpec, Row, run};

/// Every id, with a bug that one of its rows must notice.
const PLANTED: &[(&str, Mutation)] = &[
    ("RA-1", Mutation::SendTwice),
    ("RA-2", Mutation::NeverDefer),
    ("RA-3", Mutation::NeverDefer),
    ("RA-4", Mutation::NeverDefer),
    ("RA-5", Mutation::StuckFence),
    ("RA-6", Mutation::SendTwice),
    ("RA-7", Mutation::HalfDone),
    ("RA-8", Mutation::Impatient),
    ("RA-9", Mutation::SendTwice),
    ("RA-10", Mutation::SendTwice),
    ("RA-11", Mutation::Swallow("REPLY")),
    ("RA-12", Mutation::HalfDone),
    ("RA-13", Mutation::Swallow("REPLY")),
    ("RA-14", Mutation::NeverDefer),
    ("RA-15", Mutation::LoadedDice),
    ("RA-16", Mutation::Impatient),
    ("RA-17", Mutation::WritersOnly),
    ("RA-18", Mutation::NeverDefer),
    ("RA-19", Mutation::Swallow("FAILED")),
    ("RA-20", Mutation::Swallow("ADD")),
    ("RA-21", Mutation::Deaf("TELL_HSN")),
    ("RA-22", Mutation::Swallow("LEAVE_ACK")),
    ("RA-23", Mutation::Deaf("YES_I_AM_HERE")),
    ("RA-24", Mutation::NeverDefer),
    ("CMU-1", Mutation::SendTwice),
    ("CMU-2", Mutation::NeverDefer),
    ("CMU-3", Mutation::NeverDefer),
    ("CMU-4", Mutation::NeverDefer),
    ("CMU-5", Mutation::Deaf("RELEASE")),
    ("CMU-6", Mutation::Swallow("REQUEST")),
    ("CMU-7", Mutation::StuckFence),
    ("CR-1", Mutation::NeverDefer),
    ("CR-2", Mutation::SendTwice),
    ("RT-1", Mutation::SendTwice),
    ("RT-2", Mutation::Swallow("REPLY")),
    ("NT-1", Mutation::StuckFence),
    ("SK-1", Mutation::SendTwice),
    ("MK-1", Mutation::Swallow("FAILED")),
    ("RY-1", Mutation::NeverDefer),
    ("RY-2", Mutation::HalfDone),
    ("RY-3", Mutation::HalfDone),
    ("RY-4", Mutation::SendTwice),
    ("RY-5", Mutation::SendTwice),
    ("RY-6", Mutation::SendTwice),
    ("RY-7", Mutation::SendTwice),
    ("RY-8", Mutation::Swallow("INITIALIZE")),
    ("RY-9", Mutation::Deaf("ADVISE")),
    ("TBL-1", Mutation::SendTwice),
];

/// Ids that explore for a second or more.
const LONG: &[&str] = &["RA-5", "RA-10", "RA-20", "RA-21", "RA-22", "RA-23", "CMU-4", "CMU-7", "MK-1", "RY-9"];

/// Calls `measure` with every id that is due, on all cores.
fn for_each_id(measure: impl Fn(&str, Mutation) + Sync) {
    let long_tests = std::env::var_os("HALLPASS_LONG_TESTS").is_some();
    let due: Vec<_> = PLANTED.iter().filter(|(id, _)| long_tests || !LONG.contains(id)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((id, mutation)) = due.get(next.fetch_add(1, Ordering::Relaxed)) {
            measure(id, *mutation);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
}

fn rows_of(id: &str, mutation: Option<Mutation>) -> Vec<Row> {
    let rows = run(&ClaimsSpec { only: Some(id.to_owned()), mutation, ..ClaimsSpec::default() }, |_| {});
    assert!(!rows.is_empty(), "{id} has no rows");
    rows
}

#[test]
fn claims_hold() {
    for_each_id(|id, _| {
        let rows = rows_of(id, None);
        assert!(rows.iter().all(|row| row.ok), "{rows:#?}");
    });
}

#[test]
fn a_planted_bug_turns_each_claim() {
    for_each_id(|id, mutation| {
        let rows = rows_of(id, Some(mutation));
        // An exploration that ended early has noticed nothing.
        let noticed = |row: &Row| !row.ok && !row.measured.starts_with("incomplete");
        assert!(rows.iter().any(noticed), "{id} does not notice {mutation:?}: {rows:#?}");
    });
}

#[test]
fn every_id_has_a_planted_bug() {
    let ids: Vec<&str> = PLANTED.iter().map(|(id, _)| *id).collect();
    let mut expected: Vec<String> = (1..=24).map(|n| format!("RA-{n}")).collect();
    expected.extend((1..=7).map(|n| format!("CMU-{n}")));
    expected.extend((1..=2).map(|n| format!("CR-{n}")));
    expected.extend(["RT-1", "RT-2", "NT-1", "SK-1", "MK-1"].map(str::to_owned));
    expected.extend((1..=9).map(|n| format!("RY-{n}")));
    expected.push("TBL-1".to_owned());
    assert_eq!(ids, expected);
}

#[test]
fn only_picks_an_id_or_a_row() {
    let ids = |only: &str| -> Vec<String> {
        let spec = ClaimsSpec { only: Some(only.to_owned()), ..ClaimsSpec::default() };
        run(&spec, |_| {}).into_iter().map(|row| row.id).collect()
    };
    assert_eq!(ids("RA-1"), ["RA-1", "RA-1/serialised"]);
    assert_eq!(ids("RA-3/order"), ["RA-3/order"]);
    assert!(ids("RA-99").is_empty());
}
