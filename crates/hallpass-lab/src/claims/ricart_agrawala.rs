//! Ricart and Agrawala 1981, sections 2 to 6.

use hallpass_sim::Order;
use hallpass_sim::trace::EventKind;

use super::{Claim, Harness, Row, list};
use crate::{CheckSpec, RunSpec};

pub(super) const CLAIMS: &[Claim] = &[
    ("RA-1", ra_1),
    ("RA-2", ra_2),
    ("RA-3", ra_3),
    ("RA-5", ra_5),
    ("RA-6", ra_6),
    ("RA-7", ra_7),
    ("RA-8", ra_8),
    ("RA-9", ra_9),
    ("RA-10", ra_10),
    ("RA-11", ra_11),
    ("RA-12", ra_12),
    ("RA-13", ra_13),
    ("RA-14", ra_14),
    ("RA-15", ra_15),
    ("RA-16", ra_16),
    ("RA-17", ra_17),
    ("RA-18", ra_18),
];

/// The group sizes that a claim about any N is measured at.
const SIZES: [u32; 7] = [2, 3, 4, 5, 10, 20, 50];

fn plain(nodes: u32) -> RunSpec {
    RunSpec { nodes, entries: 400, latency: "500us..1500us".to_owned(), ..RunSpec::of("ricart-agrawala") }
}

/// A row with one number for each group size.
fn per_size(harness: &Harness, id: &str, claim: &str, expected: fn(f64) -> f64, spec: impl Fn(u32) -> RunSpec) -> Row {
    let reports: Vec<_> = SIZES.map(|nodes| harness.simulate(spec(nodes))).into();
    let expected = list(SIZES.map(|nodes| expected(f64::from(nodes))));
    let measured = list(reports.iter().map(|report| report.messages_per_entry));
    Row::new(id, &format!("{claim}, N = 2, 3, 4, 5, 10, 20, 50"), expected, measured).without_violations(&reports)
}

fn ra_1(harness: &Harness) -> Vec<Row> {
    // Three requests per T are far more than the group can serve, so callers queue up on their nodes.
    let report = harness.simulate(RunSpec { load: "3".to_owned(), ..plain(5) });
    let kinds: Vec<String> = report
        .messages_by_kind
        .iter()
        .map(|(kind, count)| format!("{kind} {}", *count as f64 / report.entries.max(1) as f64))
        .collect();
    let served = Row::new(
        "RA-1/serialised",
        "local requests wait for each other, all are served",
        "400 entries",
        format!("{} entries", report.entries),
    );
    vec![
        Row::new("RA-1", "REQUEST and REPLY, N-1 of each an entry, N = 5", "REQUEST 4, REPLY 4", kinds.join(", "))
            .without_violations([&report]),
        served,
    ]
}

fn ra_2(harness: &Harness) -> Vec<Row> {
    vec![harness.scenario("RA-2", "the decision table, rules 1 to 5", "ricart-agrawala-decision-table")]
}

fn ra_3(harness: &Harness) -> Vec<Row> {
    let order = harness.play("ricart-agrawala-figure-1").map_or(String::new(), |played| {
        let events = &played.trace.events;
        let entries: Vec<String> = events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::Enter { .. }))
            .map(|event| event.node.to_string())
            .collect();
        let messages = events.iter().filter(|event| matches!(event.kind, EventKind::Send { .. })).count();
        format!("{}; {messages} messages", entries.join(", "))
    });
    vec![
        harness.scenario("RA-3", "Figure 1, steps (a) to (j)", "ricart-agrawala-figure-1"),
        Row::new("RA-3/order", "nodes enter in this order", "2, 3, 1; 12 messages", order),
    ]
}

fn ra_5(harness: &Harness) -> Vec<Row> {
    let spec = || CheckSpec::of("ricart-agrawala");
    let mut rows = vec![
        harness.holds("RA-5", "exclusion, no deadlock, no starvation: 3 nodes x 2 entries, any order", spec()),
        harness.holds("RA-5/fifo", "the same on links that keep order", CheckSpec { order: Order::Fifo, ..spec() }),
        harness.holds(
            "RA-5/cancel",
            "3 nodes x 1 entry, any request may be cancelled",
            CheckSpec { entries: Some(1), cancels: None, ..spec() },
        ),
    ];
    if harness.full {
        rows.push(harness.holds(
            "RA-5/cancel-2",
            "3 nodes x 2 entries, one cancellation",
            CheckSpec { cancels: Some(1), ..spec() },
        ));
    }
    let reports: Vec<_> = (1..=20)
        .map(|seed| harness.simulate(RunSpec { seed, latency: "exp:1ms".to_owned(), ..plain(2 + seed as u32) }))
        .collect();
    let entries: u64 = reports.iter().map(|report| report.entries).sum();
    rows.push(
        Row::new("RA-5/seeds", "20 seeds, N = 3 to 22, wild latencies", "8000 entries", format!("{entries} entries"))
            .without_violations(&reports),
    );
    rows
}

fn ra_6(harness: &Harness) -> Vec<Row> {
    let messages = |n: f64| 2.0 * (n - 1.0);
    ["saturated", "light", "0.3"]
        .map(|load| {
            let (id, claim) = match load {
                "0.3" => ("RA-6/poisson".to_owned(), "2(N-1) messages an entry, 0.3 requests a T".to_owned()),
                _ => (format!("RA-6/{load}"), format!("2(N-1) messages an entry, {load}")),
            };
            per_size(harness, &id, &claim, messages, |nodes| RunSpec { load: load.to_owned(), ..plain(nodes) })
        })
        .into()
}

/// Delays in T, with constant latency and critical sections of length 0, as in the paper.
fn ra_7(harness: &Harness) -> Vec<Row> {
    let timed = |nodes, load: &str| RunSpec {
        nodes,
        entries: 200,
        load: load.to_owned(),
        hold: Some("0ns".to_owned()),
        ..RunSpec::of("ricart-agrawala")
    };
    let quiet = harness.simulate(timed(10, "light"));
    let conflict = harness.simulate(RunSpec { entries: 2, ..timed(2, "saturated") });
    let busy = harness.simulate(timed(10, "saturated"));
    vec![
        Row::new(
            "RA-7/bound-1",
            "from quiet: one round trip",
            "2.000 T, at most 2.000 T",
            format!("{:.3} T, at most {:.3} T", quiet.response_time.mean, quiet.response_time.max),
        )
        .without_violations([&quiet]),
        Row::new(
            "RA-7/bound-2",
            "two ask at once: the winner after a round trip, the other one way after the release",
            "2.000 T and 3.000 T",
            format!(
                "{:.3} T and {:.3} T",
                2.0 * conflict.response_time.mean - conflict.response_time.max,
                conflict.response_time.max
            ),
        )
        .without_violations([&conflict]),
        Row::new(
            "RA-7/bound-3",
            "after a release with somebody waiting: one way",
            "1.000 T, at most 1.000 T",
            format!("{:.3} T, at most {:.3} T", busy.sync_delay.mean, busy.sync_delay.max),
        )
        .without_violations([&busy]),
    ]
}

fn ra_8(harness: &Harness) -> Vec<Row> {
    let implicit =
        |nodes, load: &str| RunSpec { load: load.to_owned(), entries: 2000, ..plain(nodes) }.with("reply=implicit");
    let light = per_size(
        harness,
        "RA-8/light",
        "implicit reply: N-1 messages an entry, light",
        |n| n - 1.0,
        |nodes| RunSpec { entries: 200, ..implicit(nodes, "light") },
    );
    let busy = harness.simulate(implicit(10, "saturated"));
    let between = harness.simulate(implicit(10, "0.2"));
    let timed =
        harness.simulate(RunSpec { latency: "1ms".to_owned(), hold: Some("0ns".to_owned()), ..implicit(5, "light") });
    let near = |measured: f64| (measured - 27.0).abs() < 0.3 && measured <= 27.0;
    let range = |measured: f64| measured > 9.0 && measured < 27.0;
    let (high, mid) = (busy.messages_per_entry, between.messages_per_entry);
    let mut rows = vec![
        light,
        Row {
            ok: near(high),
            ..Row::new(
                "RA-8/saturated",
                "up to 3(N-1) where everybody defers, N = 10",
                "27, less the start",
                format!("{high:.3}"),
            )
        }
        .without_violations([&busy]),
        Row {
            ok: range(mid),
            ..Row::new("RA-8/range", "between N-1 and 3(N-1) in between, N = 10", "9 .. 27", format!("{mid:.3}"))
        }
        .without_violations([&between]),
        Row::new(
            "RA-8/wait",
            "the longest round trip is waited out",
            "2.000 T",
            format!("{:.3} T", timed.response_time.max),
        )
        .without_violations([&timed]),
        harness.holds(
            "RA-8/safe",
            "safe under its bound: 2 nodes x 2 entries, timed",
            CheckSpec { nodes: 2, ..CheckSpec::of("ricart-agrawala") }.with("reply=implicit"),
        ),
        harness.holds(
            "RA-8/safe-3",
            "safe under its bound: 3 nodes x 1 entry, timed",
            CheckSpec { entries: Some(1), ..CheckSpec::of("ricart-agrawala") }.with("reply=implicit"),
        ),
    ];
    if harness.full {
        let spec = CheckSpec::of("ricart-agrawala").with("reply=implicit");
        rows.push(harness.holds("RA-8/safe-3x2", "safe under its bound: 3 nodes x 2 entries, timed", spec));
    }
    rows
}

fn ra_9(harness: &Harness) -> Vec<Row> {
    let broadcast = |nodes| plain(nodes).with("request=broadcast");
    vec![
        per_size(harness, "RA-9", "broadcast REQUEST: N messages an entry", |n| n, broadcast),
        per_size(
            harness,
            "RA-9/implicit",
            "with implicit reply as low as 1",
            |_| 1.0,
            |nodes| RunSpec { load: "light".to_owned(), ..broadcast(nodes).with("reply=implicit") },
        ),
        harness.holds(
            "RA-9/safe",
            "3 nodes x 2 entries, any order",
            CheckSpec::of("ricart-agrawala").with("request=broadcast"),
        ),
    ]
}

fn ra_10(harness: &Harness) -> Vec<Row> {
    vec![
        per_size(
            harness,
            "RA-10",
            "medium sequencing: 2 messages an entry",
            |_| 2.0,
            |nodes| plain(nodes).with("medium=sequenced"),
        ),
        harness.holds(
            "RA-10/safe",
            "3 nodes x 2 entries, every node hears at its own time",
            CheckSpec::of("ricart-agrawala").with("medium=sequenced"),
        ),
    ]
}

fn ra_11(harness: &Harness) -> Vec<Row> {
    let busy = harness.simulate(plain(10).with("request=broadcast release=broadcast"));
    let measured = busy.messages_per_entry;
    let mut rows = vec![
        harness.scenario(
            "RA-11",
            "footnote 2: without its list of recipients a broadcast REPLY lets two inside",
            "ricart-agrawala-footnote-2",
        ),
        Row {
            ok: (2.0..3.0).contains(&measured),
            ..Row::new(
                "RA-11/messages",
                "owed REPLYs in one broadcast, saturated, N = 10",
                "2 .. 3, not N",
                format!("{measured:.3}"),
            )
        }
        .without_violations([&busy]),
        harness.holds(
            "RA-11/safe",
            "with the list: 3 nodes x 1 entry, any order",
            CheckSpec { entries: Some(1), ..CheckSpec::of("ricart-agrawala") }.with("release=broadcast"),
        ),
    ];
    if harness.full {
        rows.push(harness.holds(
            "RA-11/safe-2",
            "with the list: 3 nodes x 2 entries, any order",
            CheckSpec::of("ricart-agrawala").with("release=broadcast"),
        ));
    }
    rows
}

fn ring(nodes: u32, words: &str) -> RunSpec {
    RunSpec { protocol: "ricart-agrawala-ring".to_owned(), ..plain(nodes) }.with(words)
}

fn ra_12(harness: &Harness) -> Vec<Row> {
    vec![
        per_size(
            harness,
            "RA-12",
            "ring, echo held at each deferring stop: N messages an entry",
            |n| n,
            |nodes| ring(nodes, "ring=echo"),
        ),
        harness.holds(
            "RA-12/safe",
            "3 nodes x 2 entries, any order",
            CheckSpec::of("ricart-agrawala-ring").with("ring=echo"),
        ),
    ]
}

fn ra_13(harness: &Harness) -> Vec<Row> {
    let busy = harness.simulate(ring(10, "ring=annotate"));
    let [requests, replies] = ["REQUEST", "REPLY"].map(|kind| busy.per_entry(kind));
    let shown = format!("REQUEST {requests}, REPLY {replies:.3}");
    vec![
        per_size(
            harness,
            "RA-13",
            "ring without pause: N messages an entry, light",
            |n| n,
            |nodes| RunSpec { load: "light".to_owned(), ..ring(nodes, "ring=annotate") },
        ),
        Row {
            ok: requests == 10.0 && replies > 8.5 && replies <= 9.0,
            ..Row::new(
                "RA-13/saturated",
                "N, and one REPLY a deferral: N-1 where everybody defers, N = 10",
                "REQUEST 10, REPLY up to 9",
                shown,
            )
        }
        .without_violations([&busy]),
        harness.holds(
            "RA-13/safe",
            "3 nodes x 2 entries, any order",
            CheckSpec::of("ricart-agrawala-ring").with("ring=annotate"),
        ),
    ]
}

fn ra_14(harness: &Harness) -> Vec<Row> {
    let endless = |nodes: u32, modulus: u32| {
        CheckSpec { nodes, entries: None, ..CheckSpec::of("ricart-agrawala") }
            .with(&format!("fence=off numbers=modulo:{modulus}"))
    };
    let mut rows = vec![
        harness.holds("RA-14/safe-2", "modulo 2N-1 = 3, N = 2, entries without end", endless(2, 3)),
        harness.holds("RA-14/safe-3", "modulo 2N-1 = 5, N = 3, entries without end", endless(3, 5)),
        harness.fails("RA-14/unsafe-2", "modulo 2N-2 = 2 is too small, N = 2", "exclusion", endless(2, 2)),
        harness.fails(
            "RA-14/unsafe-3",
            "modulo 2N-2 = 4 is too small, N = 3",
            "exclusion",
            CheckSpec { property: Some("exclusion".to_owned()), ..endless(3, 4) },
        ),
        harness.fails("RA-14/stuck-3", "and it can deadlock", "progress", endless(3, 4)),
    ];
    rows.extend(super::appendix::modulo_of_four(harness));
    let sizes = [2u32, 3, 4, 5, 10, 50];
    let reports: Vec<_> = sizes
        .map(|nodes| {
            harness.simulate(
                RunSpec { latency: "exp:1ms".to_owned(), ..plain(nodes) }
                    .with(&format!("numbers=modulo:{}", 2 * nodes - 1)),
            )
        })
        .into();
    let entries: u64 = reports.iter().map(|report| report.entries).sum();
    rows.push(
        Row::new(
            "RA-14/seeds",
            "modulo 2N-1, N = 2, 3, 4, 5, 10, 50, wild latencies",
            "2400 entries",
            format!("{entries} entries"),
        )
        .without_violations(&reports),
    );
    rows.extend(super::appendix::number_range(harness));
    rows
}

fn ra_15(harness: &Harness) -> Vec<Row> {
    let lead = |increment: &str| {
        let spec =
            RunSpec { entries: 60_000, latency: "exp:1ms".to_owned(), hold: Some("0ns".to_owned()), ..plain(10) };
        let report = harness.simulate(spec.with(&format!("reply-number=false increment={increment}")));
        let entries = |index: usize| report.entries_by_node.get(index).map_or(1.0, |(_, count)| *count as f64);
        (100.0 * (entries(0) / entries(9) - 1.0), report)
    };
    let (unit, first) = lead("unit");
    let (random, second) = lead("random:100");
    vec![
        Row {
            ok: unit > 4.0,
            ..Row::new(
                "RA-15/unit",
                "unit increments favour low node numbers: node 1 over node 10",
                "leads",
                format!("{unit:+.1} %"),
            )
        }
        .without_violations([&first]),
        Row {
            ok: random.abs() < 1.5 && random < unit / 3.0,
            ..Row::new("RA-15/random", "random increments take that away", "about 0 %", format!("{random:+.1} %"))
        }
        .without_violations([&second]),
    ]
}

fn ra_16(harness: &Harness) -> Vec<Row> {
    let share = |words: &str| {
        let spec =
            RunSpec { nodes: 4, entries: 4000, hold: Some("100us".to_owned()), ..RunSpec::of("ricart-agrawala") };
        let report = harness.simulate(spec.with("reply-number=false").with(words));
        (100.0 * report.entries_by_node[0].1 as f64 / report.entries.max(1) as f64, report)
    };
    let (alike, first) = share("increment=priority priorities=5,5,5,5");
    let (favoured, second) = share("increment=priority priorities=1,40,40,40 hold-back=40T");
    let bound = 4 * 5 / 2 - 1;
    vec![
        Row {
            ok: (alike - 25.0).abs() < 1.0,
            ..Row::new("RA-16/alike", "equal steps: node 1 of 4 gets its share", "25 %", format!("{alike:.1} %"))
        }
        .without_violations([&first]),
        Row {
            ok: favoured > 60.0,
            ..Row::new(
                "RA-16/favoured",
                "small steps and delayed handling: node 1 monopolises",
                "most of 100 %",
                format!("{favoured:.1} %"),
            )
        }
        .without_violations([&second]),
        Row {
            ok: second.max_overtakes > bound,
            ..Row::new(
                "RA-16/bound",
                "that voids the Appendix's bound (T14), and ends",
                format!("more than {bound} overtakes, nobody starves"),
                format!("{} overtakes, {} entries", second.max_overtakes, second.entries),
            )
        },
    ]
}

fn ra_17(harness: &Harness) -> Vec<Row> {
    let readers = harness.simulate(RunSpec {
        nodes: 10,
        readers: 1.0,
        entries: 200,
        hold: Some("20ms".to_owned()),
        ..RunSpec::of("ricart-agrawala")
    });
    let mixed = harness.simulate(RunSpec { readers: 0.7, entries: 2000, ..plain(10) });
    let mut rows = vec![
        Row::new(
            "RA-17",
            "readers never wait for readers: a round trip, however long they read",
            "at most 2.000 T",
            format!("at most {:.3} T", readers.response_time.max),
        )
        .without_violations([&readers]),
        Row::new(
            "RA-17/mixed",
            "readers and writers, N = 10, still 2(N-1) messages",
            "18",
            list([mixed.messages_per_entry]),
        )
        .without_violations([&mixed]),
        harness.holds(
            "RA-17/safe",
            "2 nodes x 2 entries, each a reader or a writer",
            CheckSpec { nodes: 2, readers: true, ..CheckSpec::of("ricart-agrawala") },
        ),
        harness.holds(
            "RA-17/safe-3",
            "3 nodes x 1 entry, each a reader or a writer",
            CheckSpec { entries: Some(1), readers: true, ..CheckSpec::of("ricart-agrawala") },
        ),
    ];
    if harness.full {
        rows.push(harness.holds(
            "RA-17/safe-3x2",
            "3 nodes x 2 entries, each a reader or a writer",
            CheckSpec { readers: true, ..CheckSpec::of("ricart-agrawala") },
        ));
    }
    rows
}

fn ra_18(harness: &Harness) -> Vec<Row> {
    let report = harness.simulate(plain(4).with("names=900,7,65000,42"));
    let nodes: Vec<String> = report.entries_by_node.iter().map(|(node, _)| node.to_string()).collect();
    vec![
        harness.scenario("RA-18", "node numbers from any range, ties go to the lowest value", "ricart-agrawala-names"),
        Row::new(
            "RA-18/run",
            "names 900, 7, 65000, 42: 2(N-1) messages",
            "6; 7, 42, 900, 65000",
            format!("{}; {}", list([report.messages_per_entry]), nodes.join(", ")),
        )
        .without_violations([&report]),
    ]
}
