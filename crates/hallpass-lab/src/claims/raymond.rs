//! Raymond 1989.
//!
//! Saturated loads are measured with the default hold of one T. With a hold of 0 they would be meaningless: the holder
//! leaves and asks again before any REQUEST can arrive.

use std::collections::BTreeMap;

use hallpass_core::protocol::raymond::Raymond;
use hallpass_core::protocol::{Mutant, Options};
use hallpass_core::{Message, NodeId, Protocol};
use hallpass_sim::trace::{Event, EventKind};
use hallpass_sim::{Limits, Model, ModelConfig, Order, Report};

use super::{Claim, Harness, Row, list};
use crate::{CheckSpec, RunSpec};

pub(super) const CLAIMS: &[Claim] = &[
    ("RY-9", ry_9),
    ("RY-4", ry_4),
    ("RY-5", ry_5),
    ("RY-1", ry_1),
    ("RY-2", ry_2),
    ("RY-3", ry_3),
    ("RY-6", ry_6),
    ("RY-7", ry_7),
    ("RY-8", ry_8),
];

fn spec(nodes: u32, words: &str) -> RunSpec {
    RunSpec { nodes, entries: 1000 * u64::from(nodes), ..RunSpec::of("raymond") }.with(words)
}

fn light(nodes: u32, entries: u64, words: &str) -> RunSpec {
    RunSpec { entries, load: "light".to_owned(), ..spec(nodes, words) }
}

fn explored(nodes: u32, entries: u8, words: &str) -> CheckSpec {
    CheckSpec { nodes, entries: Some(entries), ..CheckSpec::of("raymond") }.with(words)
}

/// One crash and one restart, in a model with time.
fn explored_crash(nodes: u32, entries: u8, words: &str) -> CheckSpec {
    CheckSpec { faults: "crash:1,restart:1".to_owned(), ..explored(nodes, entries, words).with("recovery=classic") }
}

/// A row that is ok if every number is within 1 % of the paper's.
fn near(id: &str, claim: &str, expected: &[f64], measured: &[f64]) -> Row {
    let close = |(expected, measured): (&f64, &f64)| (expected - measured).abs() <= 0.01 * expected;
    let ok = expected.len() == measured.len() && expected.iter().zip(measured).all(close);
    Row { ok, ..Row::new(id, claim, list(expected.iter().copied()), list(measured.iter().copied())) }
}

fn events(report: &Report) -> &[Event] {
    report.trace.as_ref().map_or(&[], |trace| &trace.events)
}

/// Light load: how many messages each request took.
fn costs(report: &Report) -> Vec<u32> {
    let mut costs = Vec::new();
    for event in events(report) {
        match event.kind {
            EventKind::Request(_) => costs.push(0),
            EventKind::Send { .. } => costs.iter_mut().last().into_iter().for_each(|cost| *cost += 1),
            _ => {}
        }
    }
    costs
}

/// Light load: the most messages that a request took.
fn worst(harness: &Harness, nodes: u32, entries: u64, words: &str) -> f64 {
    let report = harness.simulate(RunSpec { keep_trace: true, ..light(nodes, entries, words) });
    costs(&report).into_iter().max().unwrap_or(0).into()
}

fn ry_1(harness: &Harness) -> Vec<Row> {
    let walks: Vec<Walk> = (1..=20).map(|seed| Walk::take(harness, 7, "tree=star:3", seed)).collect();
    let fullest = walks.iter().map(|walk| walk.queue_over).max().unwrap_or(0);
    vec![
        harness.holds("RY-1", "3 nodes x 2 entries in a line, any order", explored(3, 2, "tree=line")),
        harness.holds("RY-1/star", "4 nodes x 1 entry in a star, any order", explored(4, 1, "tree=star:3")),
        harness.holds(
            "RY-1/fifo",
            "3 nodes x 2 entries in a line, links in order",
            CheckSpec { order: Order::Fifo, ..explored(3, 2, "tree=line") },
        ),
        harness.holds(
            "RY-1/cancel",
            "3 nodes x 2 entries, one gives up at any moment",
            CheckSpec { cancels: Some(1), ..explored(3, 2, "tree=line") },
        ),
        Row::new(
            "RY-1/queue",
            "the longest REQUEST_Q: neighbours and self",
            "neighbours + 1",
            format!("neighbours + {fullest}"),
        ),
    ]
}

fn ry_2(harness: &Harness) -> Vec<Row> {
    let run = RunSpec { latency: "exp:1ms".to_owned(), keep_trace: true, ..spec(12, "tree=random tree-seed=5") };
    let report = harness.simulate(RunSpec { entries: 2000, ..run });
    let (edges, strays) = pattern(events(&report));
    vec![
        harness.scenario("RY-2", "Figures 1 to 3", "raymond-figure-1"),
        harness.scenario("RY-2/overtaking", "3.5: a REQUEST overtakes the PRIVILEGE before it", "raymond-overtaking"),
        Row::new(
            "RY-2/pattern",
            "Figure 4: on each edge REQUEST, PRIVILEGE back, REQUEST after it, PRIVILEGE back",
            "11 edges, 0 strays",
            format!("{edges} edges, {strays} strays"),
        )
        .without_violations([&report]),
    ]
}

/// How many edges carried messages, and how many messages were not the next in Figure 4's pattern.
fn pattern(events: &[Event]) -> (usize, usize) {
    // By edge, who sent the last message and what it was.
    let mut last = BTreeMap::new();
    let mut strays = 0;
    for event in events {
        let EventKind::Send { to, kind, .. } = &event.kind else { continue };
        let edge = (event.node.min(*to), event.node.max(*to));
        let fits = match last.insert(edge, (event.node, *kind)) {
            None => *kind == "REQUEST",
            Some((from, "REQUEST")) => *kind == "PRIVILEGE" && from == *to,
            Some((from, _)) => *kind == "REQUEST" && from == event.node,
        };
        strays += usize::from(!fits);
    }
    (last.len(), strays)
}

fn ry_3(harness: &Harness) -> Vec<Row> {
    let trees = ["tree=line", "tree=star:3", "tree=random tree-seed=3", "tree=star:3 piggyback=true"];
    let walks: Vec<Walk> =
        trees.iter().flat_map(|words| (1..=25).map(|seed| Walk::take(harness, 6, words, seed))).collect();
    let sum = |number: fn(&Walk) -> usize| walks.iter().map(number).sum::<usize>();
    let (rises, acts) = (sum(|walk| walk.rises), sum(|walk| walk.acts));
    let expected = format!("0 rises in {acts} actions, all served");
    let served = if sum(|walk| walk.unserved) == 0 { "all served" } else { "some wait forever" };
    let row = Row::new(
        "RY-3",
        "the ranking vector falls with every action of the privileged node and never rises",
        expected,
        format!("{rises} rises in {acts} actions, {served}"),
    );
    vec![Row { ok: row.ok && acts > 1000, ..row }]
}

type Machine = Mutant<Raymond>;

/// A random walk through a model, with the ranking vectors of the starvation proof (4.3) compared at every step.
#[derive(Default)]
struct Walk {
    /// Vectors that rose, or did not fall when the privileged node acted.
    rises: usize,
    /// Actions of the privileged node, counted for each vector they must lower.
    acts: usize,
    /// Nodes that still wait when no step is left.
    unserved: usize,
    /// The most entries that a queue had beyond the number of neighbours.
    queue_over: usize,
}

impl Walk {
    fn take(harness: &Harness, nodes: u32, words: &str, seed: u64) -> Self {
        let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let mut options = Options::default().with(words).expect("a claim uses existing options");
        options.nodes.clone_from(&ids);
        let rules = Raymond::parse(&options).expect("a claim uses existing options");
        let limits = Limits { entries: Some(4), cancels: Some(2), ..Limits::default() };
        let config = ModelConfig::<Machine>::new(&ids, (rules, harness.mutation), Order::Any, limits)
            .expect("a claim uses a valid configuration");
        let (mut walk, mut before) = (Self::default(), Model::new(&config));
        let end = config.walk(seed, 10_000, |_, after, _| {
            walk.compare(&config, &before, after);
            before.clone_from(after);
        });
        walk.unserved = (0..nodes as u8).filter(|node| end.is_waiting(*node)).count();
        walk
    }

    fn compare(&mut self, config: &ModelConfig<Machine>, before: &Model<Machine>, after: &Model<Machine>) {
        let all = 0..config.ids().len() as u8;
        let another_entered =
            |node: u8| all.clone().any(|other| other != node && after.is_inside(other) && !before.is_inside(other));
        let moved = privileged(config, before) != privileged(config, after);
        for node in all.clone() {
            let queue_over = |raymond: &Raymond| raymond.queue().len().saturating_sub(raymond.neighbours().len());
            self.queue_over = self.queue_over.max(raymond(after, node).map_or(0, queue_over));
            if !before.is_waiting(node) || !after.is_waiting(node) {
                continue;
            }
            let (old, new) = (ranking(config, before, node), ranking(config, after, node));
            let must_fall = (moved || another_entered(node)) && !old.contains(&usize::MAX);
            self.acts += usize::from(must_fall);
            self.rises += usize::from(if must_fall { new >= old } else { new > old });
        }
    }
}

fn raymond(model: &Model<Machine>, node: u8) -> Option<&Raymond> {
    model.protocol(node).map(Mutant::inner)
}

/// The node that has the privilege, or will have it once its message has arrived.
fn privileged(config: &ModelConfig<Machine>, model: &Model<Machine>) -> Option<u8> {
    let receiver = model.packets().find(|packet| packet.message.kind() == "PRIVILEGE").map(|packet| packet.to);
    let holds = |node: &u8| {
        raymond(model, *node).is_some_and(|raymond| raymond.holder() == Some(config.ids()[usize::from(*node)]))
    };
    receiver.or_else(|| (0..config.ids().len() as u8).find(holds))
}

/// The vector of a waiting node: its position in its own queue, then, along the path to the privileged node, the position of
/// each node in the next one's queue. It ends with `usize::MAX`, for infinity, where a REQUEST is still in flight.
fn ranking(config: &ModelConfig<Machine>, model: &Model<Machine>, waiting: u8) -> Vec<usize> {
    let (privileged, ids) = (privileged(config, model), config.ids());
    let (mut node, mut queued, mut vector) = (waiting, ids[usize::from(waiting)], Vec::new());
    while let Some(raymond) = raymond(model, node).filter(|_| vector.len() < ids.len()) {
        let position = raymond.queue().iter().position(|other| *other == queued);
        vector.push(position.map_or(usize::MAX, |position| position + 1));
        let next = raymond.holder().and_then(|holder| config.position(holder));
        let Some(next) = next.filter(|_| position.is_some() && privileged != Some(node)) else { break };
        (queued, node) = (ids[usize::from(node)], next);
    }
    vector
}

/// 5: the diameter of a radiating star.
fn diameter(nodes: u32, valency: u32) -> f64 {
    let (nodes, valency) = (f64::from(nodes), f64::from(valency));
    // The logarithm of a whole power may come out slightly too large, which must not count as another level.
    2.0 * (((nodes - 1.0) * (valency - 2.0) / valency + 1.0).ln() / (valency - 1.0).ln() - 1e-9).ceil()
}

fn ry_4(harness: &Harness) -> Vec<Row> {
    let worst_of = |nodes, entries, words: &str| worst(harness, nodes, entries, words);
    let full = [(4, 3), (10, 3), (22, 3), (46, 3), (5, 4), (17, 4), (53, 4), (6, 5), (26, 5)];
    let star: Vec<f64> =
        full.iter().map(|(nodes, valency)| worst_of(*nodes, 1500, &format!("tree=star:{valency}")) / 2.0).collect();
    let formula: Vec<f64> = full.iter().map(|(nodes, valency)| diameter(*nodes, *valency)).collect();
    let lines: Vec<f64> = [5, 10, 20]
        .iter()
        .map(|nodes| harness.simulate(light(*nodes, 60_000, "tree=line")).per_entry("PRIVILEGE"))
        .collect();
    let growing = [10, 100, 1000];
    let bounds: Vec<f64> = growing.iter().map(|nodes| 2.0 * diameter(*nodes, 3)).collect();
    let found: Vec<f64> = growing.iter().map(|nodes| worst_of(*nodes, 2000, "tree=star:3")).collect();
    let within = found.iter().zip(&bounds).all(|(found, bound)| found <= bound && *found >= bound - 4.0);
    vec![
        Row::new(
            "RY-4",
            "the worst entry, 2D messages: a line, Figure 7, star:9 of 10 nodes",
            "18, 8, 4",
            list([
                worst_of(10, 3000, "tree=line"),
                worst_of(10, 1000, "tree=figure-7"),
                worst_of(10, 500, "tree=star:9"),
            ]),
        ),
        near("RY-4/line", "a line of 5, 10, 20: mean distance (N+1)/3", &[2.0, 11.0 / 3.0, 7.0], &lines),
        Row::new(
            "RY-4/star",
            "radiating stars that are full: D by the formula, K = 3, 4, 5",
            list(formula.iter().copied()),
            list(star.iter().copied()),
        ),
        Row {
            ok: within,
            ..Row::new(
                "RY-4/log",
                "star:3 of 10, 100, 1000 nodes: at most 2D messages, O(log N)",
                format!("at most {}", list(bounds.iter().copied())),
                list(found.iter().copied()),
            )
        },
        random_trees(harness),
        Row::new(
            "RY-4/T30",
            "star:2, for which the formula is undefined, is a line: N = 9, worst entry 2(N-1)",
            "16",
            list([worst_of(9, 3000, "tree=star:2")]),
        ),
    ]
}

/// 'The diameter of such trees is typically O(log N)'.
fn random_trees(harness: &Harness) -> Row {
    let mean = |nodes: u32| {
        let a_seed = |seed: u32| harness.simulate(light(nodes, 400, &format!("tree=random tree-seed={seed}")));
        (1..=6).map(|seed| a_seed(seed).messages_per_entry).sum::<f64>() / 6.0
    };
    let shares: Vec<f64> = [64, 256, 1024].iter().map(|nodes| mean(*nodes) / f64::from(*nodes).log2()).collect();
    Row {
        ok: shares.iter().all(|share| (1.0..3.0).contains(share)) && shares[2] < 1.3 * shares[0],
        ..Row::new(
            "RY-4/random",
            "random trees of 64, 256, 1024: messages an entry over log2 N",
            "bounded: 1 to 3",
            list(shares.iter().copied()),
        )
    }
}

fn saturated(harness: &Harness, nodes: u32, words: &str) -> Report {
    harness.simulate(spec(nodes, words))
}

fn ry_5(harness: &Harness) -> Vec<Row> {
    let figure = saturated(harness, 10, "tree=figure-7");
    let trees = ["tree=line", "tree=star:9", "tree=random tree-seed=2", "tree=random tree-seed=9"];
    let others: Vec<f64> = trees.iter().map(|words| saturated(harness, 10, words).messages_per_entry).collect();
    let sizes = [2, 5, 20, 60];
    let sized: Vec<f64> = sizes.iter().map(|nodes| saturated(harness, *nodes, "").messages_per_entry).collect();
    let formula: Vec<f64> = sizes.iter().map(|nodes| 4.0 * f64::from(nodes - 1) / f64::from(*nodes)).collect();
    let loads = ["tree=figure-7", "tree=line", "tree=star:9"];
    let idle: Vec<f64> =
        loads.iter().map(|words| harness.simulate(light(10, 60_000, words)).messages_per_entry).collect();
    vec![
        near("RY-5", "Figure 7 saturated: 4(N-1)/N messages an entry", &[3.6], &[figure.messages_per_entry])
            .without_violations([&figure]),
        near("RY-5/hops", "mean hops of the privilege between entries", &[1.8], &[figure.per_entry("PRIVILEGE")]),
        near("RY-5/trees", "the same on a line, a star and two random trees of 10", &[3.6; 4], &others),
        near("RY-5/sizes", "star:3 of 2, 5, 20, 60: 4(N-1)/N", &formula, &sized),
        near("RY-5/light", "light load, N = 10: Figure 7, line, star:9", &[5.2, 22.0 / 3.0, 3.6], &idle),
    ]
}

fn ry_6(harness: &Harness) -> Vec<Row> {
    let figure = saturated(harness, 10, "tree=figure-7 piggyback=true");
    let saved = |nodes: u32, words: &str| {
        let report = saturated(harness, nodes, words);
        1.0 - report.per_entry("REQUEST") / report.per_entry("PRIVILEGE")
    };
    let quiet = harness.simulate(light(10, 5000, "tree=figure-7 piggyback=true"));
    let rode = (quiet.per_entry("PRIVILEGE") - quiet.per_entry("REQUEST")).abs();
    vec![
        near("RY-6", "Figure 7 saturated, piggybacking", &[2.4], &[figure.messages_per_entry])
            .without_violations([&figure]),
        near(
            "RY-6/share",
            "REQUESTs saved, valencies of nonleaf nodes over all: Figure 7, a line of 50",
            &[2.0 / 3.0, 96.0 / 98.0],
            &[saved(10, "tree=figure-7 piggyback=true"), saved(50, "tree=line piggyback=true")],
        ),
        Row::new("RY-6/light", "almost none are saved under light demand", "0", list([rode])),
        harness.holds("RY-6/safe", "3 nodes x 2 entries, any order", explored(3, 2, "tree=line piggyback=true")),
    ]
}

fn ry_7(harness: &Harness) -> Vec<Row> {
    let greedy = saturated(harness, 10, "tree=figure-7 greedy=true");
    let both = saturated(harness, 10, "tree=figure-7 greedy=true piggyback=true");
    let plain = saturated(harness, 10, "tree=figure-7");
    let mean = |report: &Report, leaves: bool| {
        let of_kind = |(node, _): &&(u32, u64)| (*node > 4) == leaves;
        let entries: Vec<f64> =
            report.entries_by_node.iter().filter(of_kind).map(|(_, entries)| *entries as f64).collect();
        entries.iter().sum::<f64>() / entries.len().max(1) as f64
    };
    let ratio = |report: &Report| mean(report, false) / mean(report, true).max(1.0);
    vec![
        near("RY-7", "Figure 7 saturated, greedy", &[2.0], &[greedy.messages_per_entry]).without_violations([&greedy]),
        near(
            "RY-7/share",
            "entries of an inner node for one of a leaf: greedy, standard",
            &[3.0, 1.0],
            &[ratio(&greedy), ratio(&plain)],
        ),
        near("RY-7/both", "greedy with piggybacking", &[4.0 / 3.0], &[both.messages_per_entry])
            .without_violations([&both]),
        harness.holds("RY-7/safe", "3 nodes x 2 entries, any order", explored(3, 2, "tree=line greedy=true")),
        harness.holds(
            "RY-7/both-safe",
            "the same with piggybacking",
            explored(3, 2, "tree=line greedy=true piggyback=true"),
        ),
    ]
}

fn ry_8(harness: &Harness) -> Vec<Row> {
    let flood = harness.simulate(RunSpec { entries: 500, ..spec(40, "tree=random start=initialize") });
    let count = flood.messages_of("INITIALIZE");
    vec![
        harness.scenario("RY-8", "INITIALIZE floods the tree; a node may ask at once after it", "raymond-initialize"),
        Row::new(
            "RY-8/cost",
            "N = 40: one INITIALIZE an edge, and everybody is served",
            "39 and 500",
            format!("{count} and {}", flood.entries),
        )
        .without_violations([&flood]),
        harness.holds(
            "RY-8/safe",
            "4 nodes x 1 entry in a line, any order",
            explored(4, 1, "tree=line start=initialize"),
        ),
    ]
}

fn ry_9(harness: &Harness) -> Vec<Row> {
    let runs = |faults: &str, words: &str| -> Vec<Report> {
        let run = |seed| RunSpec {
            entries: 400,
            seed,
            latency: "500us..1500us".to_owned(),
            faults: faults.to_owned(),
            keep_trace: true,
            ..spec(10, words).with("recovery=classic")
        };
        (1..=12).map(|seed| harness.simulate(run(seed))).collect()
    };
    let row = |id: &str, claim: &str, faults: &str, words: &str, returns: usize| {
        let reports = runs(faults, words);
        let good = reports.iter().filter(|report| recovered(events(report)) == returns).count();
        Row::new(id, claim, "12 of 12", format!("{good} of 12")).without_violations(&reports)
    };
    let apart = "crash:5@20ms,crash:6@21ms,crash:9@22ms,crash:3@23ms,\
                 restart:9@30ms,restart:5@31ms,restart:6@31ms,restart:3@33ms";
    let again = "crash:2@20ms,restart:2@25ms,crash:2@29ms,restart:2@31ms,crash:2@35ms,restart:2@50ms";
    vec![
        harness.scenario(
            "RY-9",
            "wait, RESTART, ADVISE; HOLDER, ASKED, REQUEST_Q and USING rebuilt",
            "raymond-recovery",
        ),
        row(
            "RY-9/seeds",
            "N = 10, two crash one after the other: back, and they enter",
            "crash:2,restart:2",
            "tree=figure-7",
            2,
        ),
        row("RY-9/apart", "four that are no neighbours are down at once", apart, "tree=figure-7", 4),
        row(
            "RY-9/again",
            "8.7: a node crashes three times, twice while it recovers",
            again,
            "tree=figure-7 piggyback=true",
            1,
        ),
        harness.holds(
            "RY-9/line",
            "a line of 3 x 1 entry, a crash and a return, timed",
            explored_crash(3, 1, "tree=line"),
        ),
        harness.holds(
            "RY-9/star",
            "a star of 4 x 1 entry, a crash and a return, timed",
            explored_crash(4, 1, "tree=star:3"),
        ),
        harness.holds(
            "RY-9/fence",
            "T28: 2 nodes x 3 entries, a neighbour told of every single count",
            explored_crash(2, 3, "fence-reserve=1"),
        ),
        harness.fails(
            "RY-9/T26",
            "as printed, 8.1's states 3 and 4: who has not asked believes it has",
            "progress",
            explored_crash(3, 1, "tree=line as-printed=T26"),
        ),
        harness.fails(
            "RY-9/T27",
            "as printed, without incarnations: two privileges",
            "exclusion",
            explored_crash(3, 1, "tree=line as-printed=T27"),
        ),
    ]
}

/// How many nodes recovered and then entered.
fn recovered(events: &[Event]) -> usize {
    let joined = events.iter().enumerate().filter(|(_, event)| matches!(event.kind, EventKind::Joined));
    let entered = |index: usize, node: NodeId| {
        events[index..].iter().any(|event| event.node == node && matches!(event.kind, EventKind::Enter { .. }))
    };
    joined.filter(|(index, event)| entered(*index, event.node)).count()
}
