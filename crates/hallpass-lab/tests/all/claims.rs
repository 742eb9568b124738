//! Every claim holds, and every row of it can fail: of the bugs planted for its id one turns it to not ok.
//!
//! Ids that explore for long are left out, and the tests say so, unless `HALLPASS_LONG_TESTS` is set: `.ci/full` sets it.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use hallpass_core::protocol::Mutation::{
    self, Deaf, EnterAtOnce, HalfDone, Impatient, LoadedDice, NeverDefer, ReadersAhead, SendTwice, StuckFence, Swallow,
    WritersOnly,
};
use hallpass_lab::claims::{ClaimsSpec, Row, run};

/// Every id, with bugs: each of its rows must notice one of them, and the first is what the claim is about.
const PLANTED: &[(&str, &[Mutation])] = &[
    ("RA-1", &[SendTwice, HalfDone]),
    ("RA-2", &[NeverDefer, HalfDone]),
    ("RA-3", &[NeverDefer, HalfDone]),
    ("RA-4", &[NeverDefer, Swallow("REQUEST")]),
    ("RA-5", &[StuckFence]),
    ("RA-6", &[SendTwice, HalfDone, StuckFence]),
    ("RA-7", &[HalfDone, StuckFence]),
    ("RA-8", &[Impatient, HalfDone]),
    ("RA-9", &[SendTwice, HalfDone]),
    ("RA-10", &[SendTwice, StuckFence]),
    ("RA-11", &[Swallow("REPLY")]),
    ("RA-12", &[HalfDone]),
    ("RA-13", &[Swallow("REPLY"), StuckFence]),
    ("RA-14", &[NeverDefer, HalfDone, Swallow("REQUEST")]),
    ("RA-15", &[LoadedDice, HalfDone]),
    ("RA-16", &[Impatient, HalfDone]),
    ("RA-17", &[WritersOnly, HalfDone, StuckFence]),
    ("RA-18", &[NeverDefer, HalfDone]),
    ("RA-19", &[Swallow("FAILED"), HalfDone]),
    ("RA-20", &[Swallow("ADD"), HalfDone]),
    ("RA-21", &[Deaf("TELL_HSN"), HalfDone]),
    ("RA-22", &[Swallow("LEAVE_ACK"), HalfDone]),
    ("RA-23", &[Deaf("YES_I_AM_HERE"), HalfDone]),
    ("RA-24", &[NeverDefer, HalfDone, Swallow("REQUEST")]),
    ("CMU-1", &[SendTwice, StuckFence, Swallow("REQUEST")]),
    ("CMU-2", &[NeverDefer, HalfDone]),
    ("CMU-3", &[NeverDefer, HalfDone]),
    ("CMU-4", &[NeverDefer, HalfDone, StuckFence, Swallow("REQUEST"), EnterAtOnce]),
    ("CMU-5", &[Deaf("RELEASE"), HalfDone]),
    ("CMU-6", &[Swallow("REQUEST"), StuckFence, Swallow("OK")]),
    ("CMU-7", &[StuckFence, HalfDone]),
    ("CR-1", &[NeverDefer, HalfDone, StuckFence, Swallow("REQUEST")]),
    ("CR-2", &[SendTwice, HalfDone, StuckFence, Swallow("REQUEST")]),
    ("DIR-1", &[SendTwice]),
    ("DIR-2", &[SendTwice, StuckFence, WritersOnly]),
    ("DIR-3", &[SendTwice, StuckFence]),
    ("DIR-4", &[EnterAtOnce, ReadersAhead, Swallow("REQ")]),
    ("DIR-5", &[EnterAtOnce, HalfDone, StuckFence]),
    ("RT-1", &[SendTwice, StuckFence]),
    ("RT-2", &[Swallow("REPLY")]),
    ("NT-1", &[StuckFence]),
    ("SK-1", &[SendTwice, StuckFence]),
    ("MK-1", &[Swallow("FAILED"), HalfDone, StuckFence]),
    ("RY-1", &[NeverDefer, HalfDone, Swallow("REQUEST")]),
    ("RY-2", &[HalfDone]),
    ("RY-3", &[HalfDone]),
    ("RY-4", &[SendTwice, Swallow("REQUEST")]),
    ("RY-5", &[SendTwice, HalfDone, Swallow("REQUEST")]),
    ("RY-6", &[SendTwice, StuckFence, Swallow("REQUEST"), Swallow("PRIVILEGE")]),
    ("RY-7", &[SendTwice, HalfDone, StuckFence]),
    ("RY-8", &[Swallow("INITIALIZE")]),
    ("RY-9", &[Deaf("ADVISE"), StuckFence]),
    ("TBL-1", &[SendTwice, HalfDone, Swallow("REQUEST")]),
];

/// Ids that explore for a second or more.
const LONG: &[&str] = &["RA-5", "RA-10", "RA-20", "RA-21", "RA-22", "RA-23", "CMU-4", "CMU-7", "MK-1", "RY-9"];

/// Past the test runner, which keeps what a passing test prints to itself.
fn say_loudly(line: &str) {
    let _ = writeln!(std::io::stderr(), "NOTE: {line}");
}

/// Calls `measure` with every id that is due, on all cores.
fn for_each_id(measure: impl Fn(&str, &[Mutation]) + Sync) {
    let long_tests = std::env::var_os("HALLPASS_LONG_TESTS").is_some();
    if !long_tests {
        say_loudly(&format!("HALLPASS_LONG_TESTS is not set: {} were NOT measured", LONG.join(", ")));
    }
    let due: Vec<_> = PLANTED.iter().filter(|(id, _)| long_tests || !LONG.contains(id)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((id, mutations)) = due.get(next.fetch_add(1, Ordering::Relaxed)) {
            measure(id, mutations);
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
fn a_planted_bug_turns_each_row() {
    for_each_id(|id, mutations| {
        let mut unmoved: Vec<String> = rows_of(id, None).into_iter().map(|row| row.id).collect();
        for mutation in mutations {
            // An exploration that ended early has noticed nothing.
            let noticed = |row: &Row| !row.ok && !row.measured.contains("incomplete");
            let turned: Vec<Row> = rows_of(id, Some(*mutation)).into_iter().filter(noticed).collect();
            assert!(!turned.is_empty(), "{id} does not notice {mutation:?}");
            unmoved.retain(|row| turned.iter().all(|turned| turned.id != *row));
        }
        assert!(unmoved.is_empty(), "{unmoved:?} notice none of {mutations:?}");
    });
}

#[test]
fn every_id_has_a_planted_bug() {
    let ids: Vec<&str> = PLANTED.iter().map(|(id, _)| *id).collect();
    let mut expected: Vec<String> = (1..=24).map(|n| format!("RA-{n}")).collect();
    expected.extend((1..=7).map(|n| format!("CMU-{n}")));
    expected.extend((1..=2).map(|n| format!("CR-{n}")));
    expected.extend((1..=5).map(|n| format!("DIR-{n}")));
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
