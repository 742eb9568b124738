//! Carvalho and Roucairol 1983: permissions that are kept.

use std::collections::BTreeMap;

use hallpass_sim::trace::{EventKind, Trace};
use hallpass_sim::{Order, Report};

use super::{Claim, Harness, Row, list};
use crate::{CheckSpec, InitialSpec, RunSpec};

pub(super) const CLAIMS: &[Claim] = &[("CR-1", cr_1), ("CR-2", cr_2)];

const SIZES: [u32; 6] = [2, 3, 4, 5, 10, 20];
const SIZES_IN_WORDS: &str = "N = 2, 3, 4, 5, 10, 20";

fn plain(nodes: u32, load: &str) -> RunSpec {
    RunSpec { nodes, load: load.to_owned(), latency: "500us..1500us".to_owned(), ..RunSpec::of("carvalho-roucairol") }
}

fn cr_1(harness: &Harness) -> Vec<Row> {
    let scenario = |id, claim, name| harness.scenario(id, claim, name);
    let mut rows = vec![
        each_entry(harness),
        light(harness),
        hotspot(harness),
        saturated(harness),
        scenario("CR-1/branches", "the three branches on a REQUEST, one by one", "carvalho-roucairol-reentry"),
    ];
    rows.extend(fences(harness));
    rows.extend(safe(harness));
    rows
}

/// How many messages each entry of a run took. Every REQUEST that a node sends between asking and entering belongs to that
/// entry, and has one REPLY.
fn costs(trace: &Trace) -> Vec<u64> {
    let (mut asked, mut costs) = (BTreeMap::new(), Vec::new());
    for event in &trace.events {
        match &event.kind {
            EventKind::Request(_) => drop(asked.insert(event.node, 0)),
            EventKind::Send { kind: "REQUEST", .. } => *asked.entry(event.node).or_insert(0) += 2,
            EventKind::Enter { .. } => costs.extend(asked.remove(&event.node)),
            _ => {}
        }
    }
    costs
}

fn each_entry(harness: &Harness) -> Row {
    let loads = ["light", "saturated", "0.3", "hotspot:0.8"];
    let mut measured = Vec::new();
    let mut reports = Vec::new();
    for nodes in SIZES {
        let mut all = Vec::new();
        for load in loads {
            let report = harness.simulate(RunSpec { entries: 400, keep_trace: true, ..plain(nodes, load) });
            let costs = report.trace.as_ref().map(costs).unwrap_or_default();
            // The entries' messages must add up to those of the run, or some were overlooked.
            let sum: u64 = costs.iter().sum();
            all.extend(if sum == report.messages { costs } else { vec![report.messages] });
            reports.push(report);
        }
        let (least, most) = (all.iter().min().copied().unwrap_or(0), all.iter().max().copied().unwrap_or(0));
        measured.push(format!("{least} to {most}"));
    }
    let expected: Vec<String> = SIZES.map(|nodes| format!("0 to {}", 2 * (nodes - 1))).into();
    let claim =
        format!("each entry costs 0 to 2(N-1) messages; light, saturated, Poisson, one node busier; {SIZES_IN_WORDS}");
    Row::new("CR-1", &claim, expected.join(", "), measured.join(", ")).without_violations(&reports)
}

/// A row of random numbers: ok if each is within a fraction of its expected value.
fn about(id: &str, claim: &str, expected: &[f64], reports: &[Report], within: f64) -> Row {
    let measured: Vec<f64> = reports.iter().map(|report| report.messages_per_entry).collect();
    let ok = measured.iter().zip(expected).all(|(measured, expected)| (measured / expected - 1.0).abs() < within);
    Row { ok, ..Row::new(id, claim, list(expected.iter().copied()), list(measured)) }.without_violations(reports)
}

/// The permission between two nodes is with the one that entered last. In a random walk without repetition the probability
/// that j entered since i did is N/2(N-1), so a node asks N/2 others: N messages.
fn light(harness: &Harness) -> Row {
    let reports: Vec<Report> =
        SIZES.map(|nodes| harness.simulate(RunSpec { entries: 8000, ..plain(nodes, "light") })).into();
    let expected = SIZES.map(f64::from);
    about("CR-1/light", &format!("light: N messages an entry, {SIZES_IN_WORDS}"), &expected, &reports, 0.02)
}

/// One node makes a fraction F of the requests, the others an equal part of the rest. The permission of a pair moves with
/// probability p q / (p + q), there and back, with two messages each.
fn hotspot(harness: &Harness) -> Row {
    let shares = [0.5, 0.75, 0.9];
    let expected = shares.map(|share| {
        let rest = (1.0 - share) / 9.0;
        4.0 * (9.0 * share * rest / (share + rest) + 36.0 * rest / 2.0)
    });
    let reports: Vec<Report> = shares
        .map(|share| harness.simulate(RunSpec { entries: 40_000, ..plain(10, &format!("hotspot:{share}")) }))
        .into();
    let claim = "N = 10, one node makes 50, 75, 90 % of the requests: 4 times the sum of p q / (p + q) over all pairs";
    about("CR-1/hotspot", claim, &expected, &reports, 0.04)
}

fn saturated(harness: &Harness) -> Row {
    let reports: Vec<Report> =
        SIZES.map(|nodes| harness.simulate(RunSpec { latency: "1ms".to_owned(), ..plain(nodes, "saturated") })).into();
    let expected = SIZES.map(|nodes| 2.0 * f64::from(nodes - 1));
    let claim = format!("saturated: everybody has entered since, 2(N-1) messages; {SIZES_IN_WORDS}");
    about("CR-1/saturated", &claim, &expected, &reports, 0.02)
}

/// Fences have no gaps, although (number, node) sometimes decreases.
fn fences(harness: &Harness) -> Vec<Row> {
    let reports: Vec<Report> = (1..=10)
        .map(|seed| {
            let latency = "exp:1ms".to_owned();
            let load = if seed % 2 == 0 { "saturated" } else { "0.5" };
            harness.simulate(RunSpec { seed, latency, keep_trace: true, ..plain(2 + seed as u32, load) })
        })
        .collect();
    let mut gaps = 0;
    for report in &reports {
        let events = report.trace.iter().flat_map(|trace| &trace.events);
        let fences = events.filter_map(|event| match event.kind {
            EventKind::Enter { fence, .. } => Some(fence),
            _ => None,
        });
        gaps += fences.zip(1..).filter(|(fence, count)| fence != count).count();
    }
    let entries: u64 = reports.iter().map(|report| report.entries).sum();
    vec![
        Row::new(
            "CR-1/fences",
            "the n-th entry has fence n: 10 seeds, N = 3 to 12, wild latencies",
            "10000 entries, 0 others",
            format!("{entries} entries, {gaps} others"),
        )
        .without_violations(&reports),
    ]
}

fn safe(harness: &Harness) -> Vec<Row> {
    let spec = || CheckSpec::of("carvalho-roucairol");
    let small = || CheckSpec { entries: Some(1), ..spec() };
    let pair = || CheckSpec { nodes: 2, ..spec() };
    let mut rows = vec![
        harness.holds(
            "CR-1/safe",
            "exclusion, no deadlock, everybody is served: 3 nodes x 2 entries, any order",
            spec(),
        ),
        harness.holds(
            "CR-1/safe-fifo",
            "the same on links that keep order",
            CheckSpec { order: Order::Fifo, ..spec() },
        ),
        harness.holds(
            "CR-1/safe-cancel",
            "3 nodes x 1 entry, any request may be cancelled",
            CheckSpec { cancels: None, ..small() },
        ),
        harness.holds(
            "CR-1/safe-readers",
            "3 nodes x 1 entry, each a reader or a writer",
            CheckSpec { readers: true, ..small() },
        ),
        harness.holds(
            "CR-1/safe-twice",
            "2 nodes x 2 entries, readers or writers, a message comes twice, any request may be cancelled",
            CheckSpec { readers: true, cancels: None, faults: "dup:1".to_owned(), ..pair() },
        ),
        harness.holds(
            "CR-1/safe-forgetting",
            "2 nodes x 2 entries, readers, any given up, any idle lock forgotten, every set of holders at the start",
            CheckSpec { readers: true, cancels: None, drop_idle: true, initial: InitialSpec::All, ..pair() },
        ),
        harness.fails(
            "CR-1/named-reply",
            "T6: a REPLY without the number of its request, 2 nodes x 2 entries, any request may be cancelled",
            "exclusion",
            CheckSpec { cancels: None, ..pair() }.with("as-printed=T6"),
        ),
        harness.fails(
            "CR-1/using",
            "T15: without the test on Using, 2 nodes x 1 entry",
            "exclusion",
            CheckSpec { entries: Some(1), ..pair() }.with("as-printed=T15"),
        ),
        harness.fails(
            "CR-1/one-step",
            "T16: entering as a step of its own, 2 nodes x 2 entries",
            "exclusion",
            pair().with("as-printed=T16"),
        ),
    ];
    if harness.full {
        rows.push(harness.holds(
            "CR-1/safe-cancel-2",
            "3 nodes x 2 entries, one cancellation",
            CheckSpec { cancels: Some(1), ..spec() },
        ));
    }
    rows
}

fn cr_2(harness: &Harness) -> Vec<Row> {
    let sizes = [2, 3, 5, 10, 50];
    let alone: Vec<Report> = sizes.map(|nodes| harness.simulate(plain(nodes, "hotspot:1.0"))).into();
    let readers: Vec<Report> =
        sizes.map(|nodes| harness.simulate(RunSpec { readers: 1.0, ..plain(nodes, "saturated") })).into();
    let messages = |reports: &[Report]| list(reports.iter().map(|report| report.messages as f64));
    vec![
        Row::new(
            "CR-2",
            "a lone user: 2(N-1) messages for the first entry, 0 for the other 999; N = 2, 3, 5, 10, 50",
            list(sizes.map(|nodes| 2.0 * f64::from(nodes - 1))),
            messages(&alone),
        )
        .without_violations(&alone),
        Row::new(
            "CR-2/readers",
            "all nodes read over and over: 2(N-1) messages for each one's first read, 0 for the rest of 1000",
            list(sizes.map(|nodes| 2.0 * f64::from(nodes * (nodes - 1)))),
            messages(&readers),
        )
        .without_violations(&readers),
        harness.scenario("CR-2/recall", "a writer recalls what readers have", "carvalho-roucairol-readers"),
    ]
}
