//! Every claim can fail: a bug planted for each id turns at least one of its rows to not ok.

use hallpass_core::protocol::Mutation;
use hallpass_lab::claims::{ClaimsSpec, Row, run};

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

#[test]
fn a_planted_bug_turns_each_claim() {
    for (id, mutation) in PLANTED {
        let spec = ClaimsSpec { only: Some((*id).to_owned()), mutation: Some(*mutation), ..ClaimsSpec::default() };
        let rows = run(&spec, |_| {});
        assert!(!rows.is_empty(), "{id} has no rows");
        // An exploration that ended early has noticed nothing.
        let noticed = |row: &Row| !row.ok && !row.measured.starts_with("incomplete");
        assert!(rows.iter().any(noticed), "{id} does not notice {mutation:?}: {rows:#?}");
    }
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
