//! A lock with a home: what `docs/protocols/directory.md` promises.

mod group;

use hallpass_core::Mode::{self, Exclusive, Shared};
use hallpass_sim::{Order, Report, Rng};

use super::{Claim, Harness, Row};
use crate::{CheckSpec, InitialSpec, RunSpec};

use group::{Cost, Group};

pub(super) const CLAIMS: &[Claim] =
    &[("DIR-5", dir_5), ("DIR-2", dir_2), ("DIR-3", dir_3), ("DIR-4", dir_4), ("DIR-1", dir_1)];

const SIZES: [u32; 3] = [3, 10, 50];
const SIZES_IN_WORDS: &str = "N = 3, 10, 50";

/// One request after the other. Member 1 is the home, and there are members that nobody asks.
fn dir_1(harness: &Harness) -> Vec<Row> {
    vec![
        case(
            harness,
            "DIR-1",
            "a free lock, to the end: asked for by another member, by its home",
            "3 in 2, 0 in 0",
            |new| vec![new("").visit(2, Exclusive), new("").visit(1, Exclusive)],
        ),
        case(
            harness,
            "DIR-1/kept",
            "a lock that is here: to write, to read, to write when its block is used up",
            "0 in 0, 0 in 0, 2 in 2",
            |new| {
                let (mut writes, mut reads) = (new("block=2"), new(""));
                let asks = writes.visit(2, Exclusive);
                let kept = writes.visit(2, Exclusive);
                reads.visit(2, Shared);
                // The first one of each asked, or it is not what was meant.
                let is_right = asks == Cost { messages: 2, trips: 2 };
                vec![if is_right { kept } else { asks }, reads.visit(2, Shared), writes.visit(2, Exclusive)]
            },
        ),
        case(
            harness,
            "DIR-1/elsewhere",
            "unused and kept by another member, until inside: X to X, X to X at home, X to S, two readers to X",
            "3 in 3, 2 in 2, 4 in 3, 5 in 3",
            |new| {
                let kept_by = |holder: u32| {
                    let mut group = new("block=2");
                    group.visit(holder, Exclusive);
                    group
                };
                let mut readers = new("");
                readers.visit(3, Shared);
                readers.visit(4, Shared);
                vec![
                    kept_by(3).ask(2, Exclusive),
                    kept_by(1).ask(2, Exclusive),
                    kept_by(3).ask(2, Shared),
                    readers.ask(2, Exclusive),
                ]
            },
        ),
        case(
            harness,
            "DIR-1/handover",
            "in use, from the last exit to the entry: X to X, X to two readers, two readers to X, past one that gave up",
            "1 in 1, 3 in 1, 1 in 1, 2 in 2",
            |new| {
                let [mut single, mut batch, mut writer, mut zombie] = [new(""), new(""), new(""), new("")];
                for group in [&mut single, &mut batch, &mut zombie] {
                    group.ask(3, Exclusive);
                }
                single.ask(2, Exclusive);
                batch.ask(2, Shared);
                batch.ask(4, Shared);
                for reader in [3, 4] {
                    writer.ask(reader, Shared);
                }
                writer.ask(2, Exclusive);
                writer.exit(3);
                zombie.ask(4, Exclusive);
                zombie.ask(2, Exclusive);
                zombie.cancel(4);
                vec![single.exit(3), batch.exit(3), writer.exit(4), zombie.exit(3)]
            },
        ),
        case(
            harness,
            "DIR-1/try",
            "an attempt: free, unused by another member, in use, unused by two readers",
            "2 in 2, 4 in 4, 4 in 4, 6 in 4",
            |new| {
                let [mut unused, mut used, mut readers] = [new("block=2"), new(""), new("")];
                unused.visit(3, Exclusive);
                used.ask(3, Exclusive);
                readers.visit(3, Shared);
                readers.visit(4, Shared);
                let attempt = |group: &mut Group| group.attempt(2, Exclusive);
                vec![attempt(&mut new("")), attempt(&mut unused), attempt(&mut used), attempt(&mut readers)]
            },
        ),
        case(
            harness,
            "DIR-1/upgrade",
            "a reader becomes a writer: alone, beside an unused reader; a writer becomes a reader",
            "2 in 2, 3 in 3, 0 in 0",
            |new| {
                let [mut alone, mut beside] = [new(""), new("")];
                beside.visit(3, Shared);
                alone.ask(2, Shared);
                beside.ask(2, Shared);
                vec![alone.upgrade(2), beside.upgrade(2), alone.downgrade(2)]
            },
        ),
    ]
}

/// A row about groups of 5 and of 50: the costs are the same.
fn case(
    harness: &Harness,
    id: &str,
    claim: &str,
    expected: &str,
    costs: impl Fn(&dyn Fn(&str) -> Group) -> Vec<Cost>,
) -> Row {
    let of_size = |members: u32| {
        let costs = costs(&|words| Group::new(members, words, harness.mutation));
        let costs: Vec<String> =
            costs.iter().map(|Cost { messages, trips }| format!("{messages} in {trips}")).collect();
        costs.join(", ")
    };
    let (few, many) = (of_size(5), of_size(50));
    let measured = if few == many { few } else { format!("{few}; with 50 members {many}") };
    Row::new(id, &format!("messages, and T until inside, with 5 and with 50 members. {claim}"), expected, measured)
}

/// How many requests are simulated, and how many of them are left out at the beginning.
const REQUESTS: usize = 40_000;
const LEFT_OUT: usize = REQUESTS / 5;

/// One request at a time, each long after the one before, from members drawn at random: the last one may come again.
fn dir_2(harness: &Harness) -> Vec<Row> {
    let writes = |member| (member, Exclusive);
    vec![
        drawn(
            harness,
            "DIR-2",
            "any member writes",
            ["1.85 in 1.41", "2.68 in 1.87", "2.94 in 1.98"],
            |rng, members, _| writes(any(rng, members)),
        ),
        drawn(harness, "DIR-2/two", "two alternate, neither is the home", ["3 in 2"; 3], |_, _, nth| {
            writes(2 + nth as u32 % 2)
        }),
        drawn(harness, "DIR-2/two-home", "two alternate, one is the home", ["1.5 in 1"; 3], |_, _, nth| {
            writes(1 + nth as u32 % 2)
        }),
        drawn(
            harness,
            "DIR-2/hotspot",
            "90 % by one that is not the home, the rest by any",
            ["0.53 in 0.44", "0.75 in 0.59", "0.83 in 0.64"],
            |rng, members, _| writes(if rng.chance(0.9) { 2 } else { any(rng, members) }),
        ),
        drawn(harness, "DIR-2/alone", "one member only, and not the home", ["0 in 0"; 3], |_, _, _| writes(2)),
        drawn(harness, "DIR-2/readers", "any member reads", ["0 in 0"; 3], |rng, members, _| {
            (any(rng, members), Shared)
        }),
        drawn(
            harness,
            "DIR-2/mixed",
            "any member, 95 % of them read",
            ["0.39 in 0.3", "1.25 in 0.74", "2.79 in 1.5"],
            |rng, members, _| {
                let member = any(rng, members);
                (member, if rng.chance(0.95) { Shared } else { Exclusive })
            },
        ),
    ]
}

fn any(rng: &mut Rng, members: u32) -> u32 {
    1 + rng.below(members.into()) as u32
}

/// A row of means, each within 5 % of what is expected, or within a hundredth. What is expected was measured over ten times
/// as many requests, by the simulator with which the protocol was designed.
fn drawn(
    harness: &Harness,
    id: &str,
    claim: &str,
    expected: [&str; 3],
    next: impl Fn(&mut Rng, u32, usize) -> (u32, Mode),
) -> Row {
    let (mut measured, mut is_wrong) = (Vec::new(), false);
    for members in SIZES {
        let mut group = Group::new(members, "", harness.mutation);
        let mut rng = Rng::new(1);
        let (mut messages, mut trips) = (0, 0);
        for nth in 0..REQUESTS {
            let (member, mode) = next(&mut rng, members, nth);
            let cost = group.visit(member, mode);
            if nth >= LEFT_OUT {
                messages += cost.messages;
                trips += cost.trips;
            }
        }
        let mean = |sum: u64| (100.0 * sum as f64 / (REQUESTS - LEFT_OUT) as f64).round() / 100.0;
        measured.push([mean(messages), mean(trips)]);
        is_wrong |= group.is_wrong();
    }
    let shown: Vec<String> = measured.iter().map(|[messages, trips]| format!("{messages} in {trips}")).collect();
    let near = |expected: &str, measured: &[f64; 2]| {
        let expected: Vec<f64> = expected.split(" in ").map(|word| word.parse().expect("a number")).collect();
        expected
            .iter()
            .zip(measured)
            .all(|(expected, measured)| (measured - expected).abs() <= (0.05 * expected).max(0.01))
    };
    let ok = !is_wrong && expected.iter().zip(&measured).all(|(expected, measured)| near(expected, measured));
    let claim = format!("messages an entry, and T until inside, one request at a time, {SIZES_IN_WORDS}: {claim}");
    Row { ok, ..Row::new(id, &claim, expected.join(", "), shown.join(", ")) }
}

fn plain(nodes: u32, load: &str) -> RunSpec {
    RunSpec { nodes, load: load.to_owned(), order: Order::Fifo, ..RunSpec::of("directory") }
}

/// Many at a time, in virtual time.
fn dir_3(harness: &Harness) -> Vec<Row> {
    let of_sizes =
        |spec: fn(u32) -> RunSpec| SIZES.map(|nodes| harness.simulate(RunSpec { entries: 8000, ..spec(nodes) }));
    let light = of_sizes(|nodes| plain(nodes, "light"));
    let saturated = of_sizes(|nodes| plain(nodes, "saturated"));
    let mixed = of_sizes(|nodes| RunSpec { readers: 0.9, ..plain(nodes, "saturated") });
    let share = |nodes: u32| f64::from(nodes - 1) / f64::from(nodes);
    let messages = |report: &Report| report.messages_per_entry;
    let about =
        |id: &str, claim: &str, expected: [f64; 3], reports: &[Report; 3], value: fn(&Report) -> f64, within: f64| {
            let measured = reports.each_ref().map(value);
            let ok =
                expected.iter().zip(measured).all(|(expected, measured)| (measured / expected - 1.0).abs() < within);
            let claim = format!("{claim}; {SIZES_IN_WORDS}");
            Row { ok, ..Row::new(id, &claim, super::list(expected), super::list(measured)) }.without_violations(reports)
        };
    vec![
        about(
            "DIR-3",
            "saturated: REQ, FWD and GRANT, of which the home sends itself two an own entry: 3 - 2/N messages",
            SIZES.map(|nodes| 3.0 - 2.0 / f64::from(nodes)),
            &saturated,
            messages,
            0.01,
        ),
        about(
            "DIR-3/delay",
            "saturated: T from a release to the next entry",
            [1.0; 3],
            &saturated,
            |report| report.sync_delay.mean,
            0.01,
        ),
        about(
            "DIR-3/light",
            "light, never the same member twice in a row: 3 messages but for the home's entries",
            SIZES.map(|nodes| 3.0 * share(nodes)),
            &light,
            messages,
            0.02,
        ),
        about(
            "DIR-3/light-delay",
            "light: a round trip but for the home's entries, in T",
            SIZES.map(|nodes| 2.0 * share(nodes)),
            &light,
            |report| report.response_time.mean,
            0.02,
        ),
        about("DIR-3/mixed", "saturated, 90 % read: messages", [0.86, 2.18, 4.63], &mixed, messages, 0.05),
        about(
            "DIR-3/mixed-wait",
            "saturated, 90 % read: mean wait in T",
            [1.0, 3.2, 17.9],
            &mixed,
            |report| report.response_time.mean,
            0.05,
        ),
    ]
}

/// First come, first served, from the moment of arrival at the home; and the home knows a bound of every fence.
fn dir_4(harness: &Harness) -> Vec<Row> {
    let reports: Vec<Report> = (1..=10)
        .map(|seed| {
            let latency = ["1ms", "200us..3ms", "exp:1ms"][seed as usize % 3].to_owned();
            let load = ["saturated", "0.5", "2", "hotspot:0.8"][seed as usize % 4];
            let readers = [0.0, 0.3, 0.9][seed as usize / 4];
            harness.simulate(RunSpec { seed, latency, readers, ..plain(2 + seed as u32, load) })
        })
        .collect();
    let entries: u64 = reports.iter().map(|report| report.entries).sum();
    let of = |property: &str| {
        reports.iter().flat_map(|report| &report.violations).filter(|violation| violation.property == property).count()
    };
    let runs = "10 seeds, N = 3 to 12, four loads, wild latencies, readers";
    let row = |id: &str, claim: &str, found: &str, property: &str| {
        Row::new(
            id,
            &format!("{claim}: {runs}"),
            format!("10000 entries, 0 {found}"),
            format!("{entries} entries, {} {found}", of(property)),
        )
        .without_violations(&reports)
    };
    let bound = |spec: CheckSpec| CheckSpec { readers: true, property: Some("bound".to_owned()), ..spec };
    vec![
        row(
            "DIR-4",
            "nobody enters before a conflicting request that arrived at the home earlier",
            "overtaken",
            "arrivals",
        ),
        row("DIR-4/bound", "no fence is above what the home knows", "above", "bound"),
        harness.holds(
            "DIR-4/bound-explored",
            "the same explored: 3 nodes x 1 entry, readers, blocks of 2 counts, any request may be given up",
            bound(CheckSpec { entries: Some(1), ..explored() }).with("block=2"),
        ),
        harness.fails(
            "DIR-4/bound-lowered",
            "a home that lowers its bound though somebody follows (leave-out=8)",
            "bound",
            bound(explored()).with("block=2 leave-out=8"),
        ),
    ]
}

fn explored() -> CheckSpec {
    CheckSpec { order: Order::Fifo, cancels: None, ..CheckSpec::of("directory") }
}

fn dir_5(harness: &Harness) -> Vec<Row> {
    let all = |nodes: u32, entries: u8| CheckSpec {
        nodes,
        entries: Some(entries),
        readers: true,
        tries: true,
        upgrades: true,
        reentry: true,
        drop_idle: true,
        initial: InitialSpec::All,
        ..explored()
    };
    let left_out = |id: &str, claim: &str, property: &str, rule: u8, spec: CheckSpec| {
        let id = format!("DIR-5/{id}");
        harness.fails(&id, &format!("{claim} (leave-out={rule})"), property, spec.with(&format!("leave-out={rule}")))
    };
    let writers = || CheckSpec { cancels: Some(0), ..explored() };
    let readers = || CheckSpec { readers: true, ..writers() };
    let mut rows = vec![
        harness.holds(
            "DIR-5",
            "2 nodes x 1 entry, readers, attempts, upgrades, given up, forgotten, every set of holders at the start",
            all(2, 1).with("block=2"),
        ),
        harness.holds(
            "DIR-5/three",
            "3 nodes x 1 entry, readers and writers, any request may be given up",
            CheckSpec { entries: Some(1), readers: true, ..explored() }.with("block=2"),
        ),
        left_out("in-place", "nobody grants in the place of one whose BACK has crossed FWD", "progress", 1, writers()),
        left_out("need-all", "a writer enters with one of its grants", "exclusion", 4, readers()),
        left_out(
            "zombie",
            "a request that is given up is forgotten",
            "leftovers",
            6,
            CheckSpec { entries: Some(1), ..explored() },
        ),
        left_out(
            "back-first",
            "what a REQ gives back does not count",
            "progress",
            23,
            CheckSpec { nodes: 2, ..writers() }.with("block=1"),
        ),
        harness.scenario("DIR-5/crossing", "BACK crosses FWD, step by step", "directory-crossing"),
        harness.scenario("DIR-5/upgrade", "two upgrades at once, step by step", "directory-upgrade"),
        harness.scenario("DIR-5/attempt", "attempts against an unused, a used and a wanted lock", "directory-attempt"),
    ];
    if harness.full {
        rows.push(harness.holds("DIR-5/more", "the first with 2 nodes x 2 entries", all(2, 2).with("block=2")));
        rows.push(harness.holds("DIR-5/three-more", "the first with 3 nodes x 1 entry", all(3, 1).with("block=2")));
    }
    rows
}
