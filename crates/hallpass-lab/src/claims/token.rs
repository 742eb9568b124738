//! Ricart and Agrawala's token algorithm of 1983, Naimi-Trehel, Suzuki-Kasami and Maekawa.

use std::collections::BTreeSet;

use hallpass_sim::trace::EventKind;
use hallpass_sim::{Order, Report};

use super::{Claim, Harness, Row, list};
use crate::{CheckSpec, RunSpec};

pub(super) const CLAIMS: &[Claim] = &[("RT-1", rt_1), ("RT-2", rt_2), ("NT-1", nt_1), ("SK-1", sk_1), ("MK-1", mk_1)];

/// The group sizes that a claim about any N is measured at.
const SIZES: [u32; 5] = [2, 3, 5, 10, 30];
const SIZES_TEXT: &str = "N = 2, 3, 5, 10, 30";

fn run(protocol: &str, nodes: u32, load: &str) -> RunSpec {
    RunSpec { nodes, entries: 400, load: load.to_owned(), latency: "500us..1500us".to_owned(), ..RunSpec::of(protocol) }
}

/// Every number of messages that an entry took, under a load with one request at a time.
pub(super) fn costs(report: &Report) -> BTreeSet<u64> {
    let (mut costs, mut cost) = (BTreeSet::new(), None);
    for event in report.trace.iter().flat_map(|trace| &trace.events) {
        match event.kind {
            EventKind::Request(_) => costs.extend(cost.replace(0)),
            EventKind::Send { .. } => cost = cost.map(|messages| messages + 1),
            _ => {}
        }
    }
    costs.extend(cost);
    costs
}

/// '0 or N' for each entry, and in total under any load: one TOKEN for every N-1 REQUESTs.
fn zero_or_n(harness: &Harness, id: &str, protocol: &str) -> Vec<Row> {
    let single: Vec<Report> =
        SIZES.map(|nodes| harness.simulate(RunSpec { keep_trace: true, ..run(protocol, nodes, "hotspot:0.5") })).into();
    let texts = |sets: Vec<BTreeSet<u64>>| {
        let words = |set: &BTreeSet<u64>| set.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ");
        sets.iter().map(words).collect::<Vec<_>>().join(", ")
    };
    let expected = texts(SIZES.map(|nodes| BTreeSet::from([0, u64::from(nodes)])).into());
    let measured = texts(single.iter().map(costs).collect());
    let mut rows = vec![
        Row::new(id, &format!("0 or N messages for each entry, {SIZES_TEXT}"), expected, measured)
            .without_violations(&single),
    ];
    for load in ["saturated", "light", "0.4"] {
        let reports: Vec<Report> = SIZES.map(|nodes| harness.simulate(run(protocol, nodes, load))).into();
        let each = reports.iter().map(|report| report.messages as f64 / report.messages_of("TOKEN").max(1) as f64);
        let (id, claim) = match load {
            "0.4" => (format!("{id}/poisson"), "N messages for each move of the token, 0.4 requests a T".to_owned()),
            _ => (format!("{id}/{load}"), format!("N messages for each move of the token, {load}")),
        };
        let row = Row::new(&id, &format!("{claim}, {SIZES_TEXT}"), list(SIZES.map(f64::from)), list(each));
        rows.push(row.without_violations(&reports));
    }
    rows
}

/// Explorations that every protocol of this module must pass.
fn explored(harness: &Harness, id: &str, protocol: &str, words: &str) -> Vec<Row> {
    let spec = || CheckSpec::of(protocol).with(words);
    vec![
        harness.holds(&format!("{id}/explored"), "3 nodes x 2 entries, any order", spec()),
        harness.holds(
            &format!("{id}/fifo"),
            "the same on links that keep order",
            CheckSpec { order: Order::Fifo, ..spec() },
        ),
        harness.holds(
            &format!("{id}/cancel"),
            "3 nodes x 1 entry, any request may be cancelled",
            CheckSpec { entries: Some(1), cancels: None, ..spec() },
        ),
    ]
}

fn rt_1(harness: &Harness) -> Vec<Row> {
    let twice = || CheckSpec { nodes: 2, faults: "dup:1".to_owned(), ..CheckSpec::of("token") };
    let mut rows = zero_or_n(harness, "RT-1", "token");
    rows.push(harness.scenario("RT-1/scan", "the cyclic scan from ME + 1", "token-cyclic-scan"));
    rows.extend(explored(harness, "RT-1", "token", ""));
    rows.push(harness.fails(
        "RT-1/T20-printed",
        "as printed a repeated TOKEN is a second one",
        "exclusion",
        CheckSpec { property: Some("exclusion".to_owned()), ..twice().with("as-printed=T20") },
    ));
    rows.push(harness.holds("RT-1/T20", "a TOKEN that has been here is dropped: 2 nodes x 2 entries", twice()));
    rows
}

/// The start takes REPLYs and nothing else; a node that has been served once needs none again.
fn rt_2(harness: &Harness) -> Vec<Row> {
    let start = |nodes, entries| {
        let spec = RunSpec { entries, ..run("token", nodes, "light") }.with("start=ricart-agrawala");
        harness.simulate(spec)
    };
    let first: Vec<Report> = SIZES.map(|nodes| start(nodes, 1)).into();
    let later: Vec<Report> = SIZES.map(|nodes| start(nodes, 400)).into();
    let pass = list(first.iter().map(|report| report.messages_per_entry));
    let moves = |report: &Report| report.messages_of("REQUEST") + report.messages_of("TOKEN");
    let replies: Vec<u64> = later.iter().map(|report| report.messages_of("REPLY")).collect();
    let bounds = SIZES.map(|nodes| u64::from(nodes * (nodes - 1)));
    let texts = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    // The first entry takes N-1 of them.
    let first_pass = SIZES.map(|nodes| u64::from(nodes - 1));
    let few = replies
        .iter()
        .zip(first_pass.iter().zip(bounds))
        .all(|(replies, (least, most))| (*least..=most).contains(replies));
    let mut rows = vec![
        Row::new(
            "RT-2",
            &format!("the first entry makes the token by one pass of R-A, 2(N-1) messages, {SIZES_TEXT}"),
            list(SIZES.map(|nodes| f64::from(2 * (nodes - 1)))),
            pass,
        )
        .without_violations(&first),
        Row::new(
            "RT-2/after",
            &format!("REQUESTs and TOKENs of 400 entries: N each, less the TOKEN that was made, {SIZES_TEXT}"),
            list(SIZES.map(|nodes| f64::from(nodes * 400 - 1))),
            list(later.iter().map(|report| moves(report) as f64)),
        )
        .without_violations(&later),
        Row {
            ok: few,
            ..Row::new(
                "RT-2/replies",
                &format!("REPLYs die out: at most N-1 for the first entry of each node, {SIZES_TEXT}"),
                format!("{} .. {}", texts(&first_pass), texts(&bounds)),
                texts(&replies),
            )
        },
    ];
    rows.extend(explored(harness, "RT-2", "token", "start=ricart-agrawala"));
    rows
}

/// The mean under `light` is random: 2 % is several times its standard deviation for runs of this length.
fn nt_1(harness: &Harness) -> Vec<Row> {
    let mean = |nodes: u32| {
        let n = f64::from(nodes);
        n / (n - 1.0) * (1..nodes).map(|k| 1.0 / f64::from(k)).sum::<f64>()
    };
    let mut rows: Vec<Row> = [8, 16, 64]
        .map(|nodes| {
            let report = harness.simulate(RunSpec { entries: 20_000, ..run("naimi-trehel", nodes, "light") });
            let (expected, measured) = (mean(nodes), report.messages_per_entry);
            Row {
                ok: (measured / expected - 1.0).abs() < 0.02,
                ..Row::new(
                    &format!("NT-1/{nodes}"),
                    &format!("path reversal: N/(N-1) H(N-1) messages an entry, light, within 2 %, N = {nodes}"),
                    format!("{expected:.2}"),
                    format!("{measured:.2}"),
                )
            }
            .without_violations([&report])
        })
        .into();
    rows.push(harness.scenario(
        "NT-1/reversal",
        "the path turns around behind a REQUEST",
        "naimi-trehel-path-reversal",
    ));
    rows.extend(explored(harness, "NT-1", "naimi-trehel", ""));
    rows
}

fn sk_1(harness: &Harness) -> Vec<Row> {
    let mut rows = zero_or_n(harness, "SK-1", "suzuki-kasami");
    rows.push(harness.scenario("SK-1/queue", "the queue travels with the token", "suzuki-kasami-queue"));
    rows.extend(explored(harness, "SK-1", "suzuki-kasami", ""));
    rows
}

/// A quorum of a square grid has 2 sqrt(N) - 1 nodes, and messages to oneself do not count: 3 to 5 times 2 (sqrt(N) - 1),
/// about twice what the paper's ideal quorums of sqrt(N) nodes would take.
fn mk_1(harness: &Harness) -> Vec<Row> {
    const SIDES: [u32; 5] = [2, 3, 4, 7, 10];
    let grid = |side: u32| f64::from(2 * (side - 1));
    let quiet: Vec<Report> = SIDES.map(|side| harness.simulate(run("maekawa", side * side, "light"))).into();
    let mut rows = vec![
        Row::new(
            "MK-1/light",
            "3 x 2(sqrt N - 1) messages an entry on a grid, light, N = 4, 9, 16, 49, 100",
            list(SIDES.map(|side| 3.0 * grid(side))),
            list(quiet.iter().map(|report| report.messages_per_entry)),
        )
        .without_violations(&quiet),
    ];
    for load in ["saturated", "0.4"] {
        let reports: Vec<Report> = SIDES.map(|side| harness.simulate(run("maekawa", side * side, load))).into();
        let shares: Vec<f64> =
            reports.iter().zip(SIDES).map(|(report, side)| report.messages_per_entry / grid(side)).collect();
        let (id, words) = if load == "0.4" { ("MK-1/poisson", "0.4 requests a T") } else { ("MK-1/saturated", load) };
        rows.push(
            Row {
                ok: shares.iter().all(|share| (3.0..=5.0).contains(share)),
                ..Row::new(
                    id,
                    &format!("3 to 5 times 2(sqrt N - 1), {words}, N = 4, 9, 16, 49, 100"),
                    "3 .. 5",
                    list(shares),
                )
            }
            .without_violations(&reports),
        );
    }
    rows.push(harness.scenario("MK-1/inquire", "INQUIRE, RELINQUISH and FAILED", "maekawa-inquire"));
    rows.extend(explored(harness, "MK-1", "maekawa", ""));
    let four = || CheckSpec { nodes: 4, entries: Some(1), order: Order::Fifo, ..CheckSpec::of("maekawa") };
    rows.push(harness.fails(
        "MK-1/not-told",
        "without FAILED to a waiter that is overtaken: deadlock, 4 nodes x 1 entry",
        "progress",
        four().with("failed=arrival"),
    ));
    if harness.full {
        rows.push(harness.holds("MK-1/four", "with it: 4 nodes x 1 entry", four()));
    }
    rows
}
