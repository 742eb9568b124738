//! Ricart and Agrawala 1981, section 2.4 and the Appendix: how often a request is overtaken, and how far numbers spread.

use hallpass_core::protocol::ricart_agrawala::RicartAgrawala;
use hallpass_core::protocol::{Mutant, Options};
use hallpass_core::{Message, Mode, NodeId, Protocol};
use hallpass_sim::{Limits, Model, ModelConfig, Order, Scratch, Step};

use super::{Claim, Harness, Row};
use crate::CheckSpec;

pub(super) const CLAIMS: &[Claim] = &[("RA-4", ra_4), ("RA-24", ra_24)];

type Machine = Mutant<RicartAgrawala>;

fn config(harness: &Harness, nodes: u32, entries: u8, order: Order) -> ModelConfig<Machine> {
    config_with(harness, "reply-number=false", nodes, Some(entries), order)
}

fn config_with(harness: &Harness, words: &str, nodes: u32, entries: Option<u8>, order: Order) -> ModelConfig<Machine> {
    let options = Options::default().with(words).expect("a claim uses existing options");
    let rules = RicartAgrawala::parse(&options).expect("a claim uses existing options");
    let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
    let limits = Limits { entries, cancels: Some(0), ..Limits::default() };
    ModelConfig::new(&ids, (rules, harness.mutation), order, limits).expect("a claim uses a valid configuration")
}

/// Observes the model after every step of a random walk.
fn walk(config: &ModelConfig<Machine>, seed: u64, mut observe: impl FnMut(&Model<Machine>)) {
    config.walk(seed, 2000, |_, model, _| observe(model));
}

/// 'Once node A's REQUEST messages have been processed by all other nodes, no other node may enter its critical section
/// twice before node A has entered.'
fn ra_4(harness: &Harness) -> Vec<Row> {
    let sizes = [2u32, 3, 4, 6];
    let worst = sizes.map(|nodes| {
        let config = config(harness, nodes, 6, Order::Any);
        (0..1500).map(|seed| entries_after_processing(&config, nodes as usize, seed)).max().unwrap_or(0)
    });
    let measured: Vec<String> = worst.map(|count| count.to_string()).into();
    vec![Row::new(
        "RA-4",
        "entries of one node between A's REQUEST being processed everywhere and A's entry, N = 2, 3, 4, 6",
        "1, 1, 1, 1",
        measured.join(", "),
    )]
}

fn entries_after_processing(config: &ModelConfig<Machine>, nodes: usize, seed: u64) -> u32 {
    // By the waiting node and by the node that enters.
    let mut entries = vec![vec![0u32; nodes]; nodes];
    let mut was_inside = vec![false; nodes];
    let mut worst = 0;
    walk(config, seed, |model| {
        for node in 0..nodes {
            let is_inside = model.is_inside(node as u8);
            if is_inside && !was_inside[node] {
                for waiting in (0..nodes).filter(|other| *other != node && model.is_waiting(*other as u8)) {
                    if is_processed(model, waiting as u8) {
                        entries[waiting][node] += 1;
                        worst = worst.max(entries[waiting][node]);
                    }
                }
            }
            was_inside[node] = is_inside;
            if !model.is_waiting(node as u8) {
                entries[node].fill(0);
            }
        }
    });
    worst
}

/// True if every REQUEST of this node has been delivered.
fn is_processed(model: &Model<Machine>, node: u8) -> bool {
    !model.packets().any(|packet| packet.from == node && packet.message.kind() == "REQUEST")
}

/// Section 6.4: 'the numbers must fall within the range from x to x + N - 1'.
pub(super) fn number_range(harness: &Harness) -> Option<Row> {
    let sizes = [2u32, 3, 4];
    let widest = sizes.map(|nodes| {
        let config = config(harness, nodes, 6, Order::Any);
        let mut widest = 0;
        for seed in 0..3000 {
            walk(&config, seed, |model| {
                let numbers = || (0..nodes as u8).filter_map(|node| model.protocol(node)?.request_number());
                widest = widest.max(numbers().max().unwrap_or(0) - numbers().min().unwrap_or(0));
            });
        }
        widest
    });
    let measured: Vec<String> = widest.map(|gap| gap.to_string()).into();
    Some(Row::new(
        "RA-14/range",
        "outstanding numbers lie within x .. x+N-1: the widest gap, N = 2, 3, 4",
        "1, 2, 3",
        measured.join(", "),
    ))
}

/// Section 6.4 where there are too many states to explore: four nodes, random walks. Modulo 2N-1 none of them meets a
/// violation or an end; modulo 2N-2 one lets two inside.
pub(super) fn modulo_of_four(harness: &Harness) -> [Row; 2] {
    const WALKS: u64 = 600;
    let (violation, steps) = walk_modulo(harness, 7, WALKS);
    let measured = violation.map_or_else(|| format!("0 in {steps} steps"), str::to_owned);
    let safe = Row {
        ok: steps == WALKS * STEPS && measured.starts_with("0 in"),
        ..Row::new("RA-14/safe-4", "modulo 2N-1 = 7, N = 4, random walks without end", "0 violations", measured)
    };
    let (violation, steps) = walk_modulo(harness, 6, 10 * WALKS);
    let measured = violation.map_or("none found".to_owned(), |property| format!("{property} after {steps} steps"));
    let unsafe_4 = Row {
        ok: measured.starts_with("exclusion"),
        ..Row::new(
            "RA-14/unsafe-4",
            "modulo 2N-2 = 6 is too small, N = 4, random walks",
            "exclusion violated",
            measured,
        )
    };
    [safe, unsafe_4]
}

/// How many steps a random walk takes, unless it comes to an end before.
const STEPS: u64 = 2000;

/// The first violation in this many walks of four nodes with numbers modulo M, and the steps up to it.
fn walk_modulo(harness: &Harness, modulus: u32, walks: u64) -> (Option<&'static str>, u64) {
    let words = format!("fence=off numbers=modulo:{modulus}");
    let config = config_with(harness, &words, 4, None, Order::Any);
    let mut steps = 0;
    for seed in 0..walks {
        let mut violated = None;
        config.walk(seed, STEPS as usize, |_, _, violation| {
            steps += u64::from(violated.is_none());
            violated = violated.or(violation.map(|violation| violation.property));
        });
        if violated.is_some() {
            return (violated, steps);
        }
    }
    (None, steps)
}

/// The Appendix: at most N(N+1)/2 - 1 entries by others before A without order, 2(N-1) with it. Exhaustive for N = 2 and
/// 3; for larger N, the Appendix's own schedule.
fn ra_24(harness: &Harness) -> Vec<Row> {
    let explored = |nodes, entries, order| {
        let spec = CheckSpec {
            nodes,
            entries: Some(entries),
            last_entries: Some(1),
            order,
            ..CheckSpec::of("ricart-agrawala")
        };
        let report = harness.check(spec.with("reply-number=false fence=off"));
        match report.violations.first() {
            Some(found) => found.property.to_owned(),
            None if report.complete => report.overtaken.0.to_string(),
            None => "incomplete".to_owned(),
        }
    };
    let any = |nodes: u32| overtakes(without_order(harness, nodes));
    let fifo = |nodes: u32| overtakes(with_order(harness, nodes));
    let extra = u8::from(harness.full);
    let walked = (most_overtaken(harness, Order::Any), most_overtaken(harness, Order::Fifo));
    vec![
        Row::new(
            "RA-24/any",
            "without order at most N(N+1)/2 - 1 overtakes: N = 2, 3 exhaustive",
            "2, 5",
            format!("{}, {}", explored(2, 4, Order::Any), explored(3, 3 + extra, Order::Any)),
        ),
        Row::new(
            "RA-24/any-played",
            "the Appendix's schedule attains it: N = 2, 3, 4, 8",
            "2, 5, 9, 35",
            [2, 3, 4, 8].map(any).join(", "),
        ),
        Row::new(
            "RA-24/fifo",
            "with order at most 2(N-1) overtakes: N = 2, 3 exhaustive",
            "2, 4",
            format!("{}, {}", explored(2, 4, Order::Fifo), explored(3, 3 + extra, Order::Fifo)),
        ),
        Row::new(
            "RA-24/fifo-played",
            "the Appendix's schedule attains it: N = 2, 3, 4, 8",
            "2, 4, 6, 14",
            [2, 3, 4, 8].map(fifo).join(", "),
        ),
        Row {
            // Walks that overtake nobody would show nothing.
            ok: (3..=9).contains(&walked.0) && (3..=6).contains(&walked.1),
            ..Row::new(
                "RA-24/walks",
                "and nothing exceeds it: N = 4, random walks, without and with order",
                "3 .. 9 and 3 .. 6",
                format!("{} and {}", walked.0, walked.1),
            )
        },
    ]
}

fn most_overtaken(harness: &Harness, order: Order) -> u64 {
    let config = config(harness, 4, 5, order);
    let mut most = 0;
    for seed in 0..3000 {
        walk(&config, seed, |model| most = most.max(model.overtaken()));
    }
    most
}

fn overtakes(overtaken: Option<u64>) -> String {
    overtaken.map_or("cannot be played".to_owned(), |count| count.to_string())
}

/// A schedule whose steps are chosen one by one. They return `None` if a step is impossible.
struct Schedule {
    config: ModelConfig<Machine>,
    model: Model<Machine>,
    scratch: Scratch<Machine>,
}

impl Schedule {
    fn new(config: ModelConfig<Machine>) -> Self {
        Self { model: Model::new(&config), config, scratch: Scratch::default() }
    }

    fn step(&mut self, step: Step) -> Option<()> {
        let mut possible = Vec::new();
        self.model.steps(&self.config, &mut possible);
        possible.contains(&step).then(|| {
            self.model.apply(&self.config, step, &mut self.scratch, None);
        })
    }

    fn ask(&mut self, node: u8) -> Option<()> {
        self.step(Step::Request { node, mode: Mode::Exclusive, draw: 0 })
    }

    fn exit(&mut self, node: u8) -> Option<()> {
        self.step(Step::Exit(node))
    }

    /// Delivers every message that is wanted, including those sent meanwhile, until no such message can be delivered.
    fn deliver(&mut self, wanted: impl Fn(u8, u8, &str) -> bool) {
        loop {
            let mut possible = Vec::new();
            self.model.steps(&self.config, &mut possible);
            let next = self.model.packets().find(|packet| {
                possible.contains(&Step::Deliver(packet.index)) && wanted(packet.from, packet.to, packet.message.kind())
            });
            let Some(step) = next.map(|packet| Step::Deliver(packet.index)) else { return };
            self.model.apply(&self.config, step, &mut self.scratch, None);
        }
    }
}

/// The Appendix's worst case without order: each other node enters with every number from its first up to A's.
fn without_order(harness: &Harness, nodes: u32) -> Option<u64> {
    let last = nodes as u8 - 1;
    let mut schedule = Schedule::new(config(harness, nodes, nodes as u8 + 1, Order::Any));
    // All choose distinct numbers, A's the highest: each node receives only the REQUEST of the one before it.
    schedule.ask(0)?;
    for node in 1..=last {
        schedule.deliver(|from, to, kind| (from, to) == (node - 1, node) && kind == "REQUEST");
        schedule.ask(node)?;
    }
    for number in 1..=nodes as u8 {
        for node in 0..number.min(last) {
            schedule.deliver(|from, _, kind| from == node && kind == "REQUEST");
            schedule.deliver(|_, to, kind| to == node && kind == "REPLY");
            schedule.exit(node)?;
            if number < nodes as u8 {
                schedule.ask(node)?;
            }
        }
    }
    schedule.model.is_waiting(last).then(|| schedule.model.overtaken())
}

/// The worst case with order: each other node enters once with a REQUEST that A has approved, and once more with a number
/// that ties with A's.
fn with_order(harness: &Harness, nodes: u32) -> Option<u64> {
    let last = nodes as u8 - 1;
    let mut schedule = Schedule::new(config(harness, nodes, 2, Order::Fifo));
    for node in 0..last {
        schedule.ask(node)?;
    }
    schedule.deliver(|_, _, kind| kind == "REQUEST");
    schedule.ask(last)?;
    for node in 0..last {
        schedule.deliver(|_, to, kind| to == node && kind == "REPLY");
        schedule.exit(node)?;
        schedule.ask(node)?;
    }
    for node in 0..last {
        schedule.deliver(|_, _, _| true);
        schedule.exit(node)?;
    }
    schedule.model.is_waiting(last).then(|| schedule.model.overtaken())
}
