//! Ricart and Agrawala 1981, section 7: join, leave, failure, restart.

use hallpass_sim::trace::EventKind;
use hallpass_sim::{Order, Report};

use super::{Claim, Harness, Row};
use crate::{CheckSpec, RunSpec};

pub(super) const CLAIMS: &[Claim] =
    &[("RA-19", ra_19), ("RA-20", ra_20), ("RA-21", ra_21), ("RA-22", ra_22), ("RA-23", ra_23)];

fn classic(nodes: u32, faults: &str) -> RunSpec {
    RunSpec {
        nodes,
        entries: 300,
        latency: "500us..1500us".to_owned(),
        faults: faults.to_owned(),
        ..RunSpec::of("ricart-agrawala")
    }
    .with("membership=classic")
}

fn explored(nodes: u32, faults: &str) -> CheckSpec {
    CheckSpec { nodes, entries: Some(1), faults: faults.to_owned(), ..CheckSpec::of("ricart-agrawala") }
        .with("membership=classic")
}

/// Twelve seeds of a run.
fn seeds(harness: &Harness, spec: impl Fn() -> RunSpec) -> Vec<Report> {
    (1..=12).map(|seed| harness.simulate(RunSpec { seed, keep_trace: true, ..spec() })).collect()
}

/// In how many runs at least one node joined, and every node that joined entered afterwards.
fn joined(reports: &[Report]) -> usize {
    let all_entered = |report: &&Report| {
        let Some(trace) = &report.trace else { return false };
        let mut newcomers =
            trace.events.iter().enumerate().filter(|(_, event)| event.kind == EventKind::Joined).peekable();
        newcomers.peek().is_some()
            && newcomers.all(|(index, newcomer)| {
                trace.events[index..]
                    .iter()
                    .any(|event| event.node == newcomer.node && matches!(event.kind, EventKind::Enter { .. }))
            })
    };
    reports.iter().filter(all_entered).count()
}

fn ra_19(harness: &Harness) -> Vec<Row> {
    let reports = seeds(harness, || classic(5, "crash:1,restart:1"));
    vec![
        harness.scenario(
            "RA-19",
            "a returning node announces its failure and waits its old messages out",
            "ricart-agrawala-restart",
        ),
        Row::new(
            "RA-19/seeds",
            "N = 5, a crash and a return: the node is back and enters",
            "12 of 12",
            format!("{} of 12", joined(&reports)),
        )
        .without_violations(&reports),
        harness.holds(
            "RA-19/safe",
            "2 nodes x 1 entry, one crash, one return, timed",
            explored(2, "crash:1,restart:1"),
        ),
    ]
}

fn ra_20(harness: &Harness) -> Vec<Row> {
    let reports = seeds(harness, || classic(4, "join:2"));
    vec![
        harness.scenario(
            "RA-20",
            "insertion through a sponsor that holds the mutual exclusion",
            "ricart-agrawala-join",
        ),
        Row::new(
            "RA-20/seeds",
            "N = 4, two join: they are in and enter",
            "12 of 12",
            format!("{} of 12", joined(&reports)),
        )
        .without_violations(&reports),
        harness.holds("RA-20/safe", "2 nodes and a newcomer x 1 entry, any order", explored(2, "join:1")),
        harness.holds(
            "RA-20/broadcast",
            "the same with the broadcast alternative",
            explored(2, "join:1").with("insert=broadcast"),
        ),
        harness.fails(
            "RA-20/printed",
            "as printed the newcomer may meet another inside (T8)",
            "exclusion",
            explored(2, "join:1").with("as-printed=T8"),
        ),
    ]
}

fn ra_21(harness: &Harness) -> Vec<Row> {
    let ways = [
        ("ask", "(1) ask all for their highest number"),
        ("each", "(2) one REQUEST from each"),
        ("risen", "(3) numbers risen by N-1"),
        ("quiet", "(4) a wait in which everybody could have entered"),
        ("fourth", "(5) the fourth REQUEST from one node, links in order"),
    ];
    let mut rows: Vec<Row> = ways
        .iter()
        .map(|(way, claim)| {
            let order = if *way == "fourth" { Order::Fifo } else { Order::Any };
            let reports = seeds(harness, || RunSpec { order, ..classic(4, "join:1") }.with(&format!("hsn={way}")));
            Row::new(&format!("RA-21/{way}"), claim, "12 of 12 in", format!("{} of 12 in", joined(&reports)))
                .without_violations(&reports)
        })
        .collect();
    rows.push(harness.holds(
        "RA-21/safe",
        "(1): 2 nodes and a newcomer x 1 entry, any order",
        explored(2, "join:1").with("hsn=ask"),
    ));
    rows
}

fn ra_22(harness: &Harness) -> Vec<Row> {
    let reports = seeds(harness, || classic(5, "leave:2"));
    let left = reports
        .iter()
        .filter(|report| {
            report.messages_of("LEAVE") >= 4 + 3 && report.messages_of("LEAVE") == report.messages_of("LEAVE_ACK")
        })
        .count();
    vec![
        harness.scenario("RA-22", "leaving; who waits for the leaver pretends its REPLY", "ricart-agrawala-leave"),
        Row::new("RA-22/seeds", "N = 5, two leave: every notice is acknowledged", "12 of 12", format!("{left} of 12"))
            .without_violations(&reports),
        harness.holds("RA-22/safe", "3 nodes x 1 entry, one leaves, any order", explored(3, "leave:1")),
    ]
}

fn ra_23(harness: &Harness) -> Vec<Row> {
    let crashes = seeds(harness, || classic(5, "crash:2"));
    let found = crashes
        .iter()
        .filter(|report| report.messages_of("FAILED") > 0 && report.entries + report.abandoned + 1 >= 300)
        .count();
    let long = harness
        .simulate(RunSpec { hold: Some("60ms".to_owned()), entries: 40, ..classic(4, "") }.with("section-max=2T"));
    let alive = format!(
        "{} FAILED, {} answered",
        long.messages_of("FAILED"),
        if long.messages_of("YES_I_AM_HERE") > 0 { "probes" } else { "nothing" }
    );
    let paused =
        harness.simulate(RunSpec { hold: Some("5ms".to_owned()), entries: 60, ..classic(3, "pause:1@3ms..60ms") });
    let told = if paused.messages_of("RESTART") + paused.messages_of("JOIN") > 0 && paused.entries == 60 {
        "restarts and is served"
    } else {
        "is not"
    };
    vec![
        harness.scenario(
            "RA-23",
            "Awaiting_Reply, ARE_YOU_THERE, YES_I_AM_HERE, the failure broadcast",
            "ricart-agrawala-failure",
        ),
        Row::new(
            "RA-23/seeds",
            "N = 5, two crash: found by the others, who go on",
            "12 of 12",
            format!("{found} of 12"),
        )
        .without_violations(&crashes),
        Row::new(
            "RA-23/long",
            "no upper limit on a section: 60 T where 2 T were estimated",
            "0 FAILED, probes answered",
            alive,
        )
        .without_violations([&long]),
        Row::new(
            "RA-23/unknown",
            "a node that was removed wrongly is told to restart (two were inside: T7)",
            "restarts and is served",
            told,
        ),
        harness.holds(
            "RA-23/safe",
            "3 nodes x 1 entry, one crash at any moment, timed",
            explored(3, "crash:1").with("probes=1"),
        ),
        harness.holds("RA-23/lost", "2 nodes x 1 entry, one message lost, timed (T5)", explored(2, "loss:1")),
    ]
}
