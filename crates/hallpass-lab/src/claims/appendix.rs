//! Ricart and Agrawala 1981, section 2.4 and the Appendix: who may overtake whom, and how far numbers spread.

use hallpass_core::protocol::ricart_agrawala::RicartAgrawala;
use hallpass_core::protocol::{Mutant, Options};
use hallpass_core::{Message, Mode, NodeId, Protocol};
use hallpass_sim::{Limits, Model, ModelConfig, Order, Rng, Scratch, Step};

use super::{Bench, Claim, Row};
use crate::CheckSpec;

pub(super) const CLAIMS: &[Claim] = &[("RA-4", ra_4), ("RA-24", ra_24)];

type Machine = Mutant<RicartAgrawala>;

fn config(bench: &Bench, nodes: u32, entries: u8, order: Order) -> ModelConfig<Machine> {
    let options = Options::default().with("reply-number=false").expect("an option that exists");
    let rules = RicartAgrawala::parse(&options).expect("an option that exists");
    let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
    let limits = Limits { entries: Some(entries), cancels: Some(0), ..Limits::default() };
    ModelConfig::new(&ids, (rules, bench.mutation), order, limits).expect("a config that fits")
}

/// Random walks through the state space, watched after every step.
fn walk(config: &ModelConfig<Machine>, seed: u64, mut watch: impl FnMut(&Model<Machine>)) {
    let (mut rng, mut model, mut scratch) = (Rng::new(seed), Model::new(config), Scratch::default());
    let mut steps = Vec::new();
    for _ in 0..2000 {
        steps.clear();
        model.steps(config, &mut steps);
        if steps.is_empty() {
            return;
        }
        let step = steps[rng.below(steps.len() as u64) as usize];
        model.apply(config, step, &mut scratch, None);
        watch(&model);
    }
}

/// 'Once node A's REQUEST messages have been processed by all other nodes, no other node may enter its critical section
/// twice before node A has entered.'
fn ra_4(bench: &Bench) -> Vec<Row> {
    let sizes = [2u32, 3, 4, 6];
    let worst = sizes.map(|nodes| {
        let config = config(bench, nodes, 6, Order::Any);
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
    let mut since = vec![vec![0u32; nodes]; nodes];
    let mut inside = vec![false; nodes];
    let mut worst = 0;
    walk(config, seed, |model| {
        for at in 0..nodes {
            let now = model.is_inside(at as u8);
            if now && !inside[at] {
                for waiting in (0..nodes).filter(|other| *other != at && model.is_waiting(*other as u8)) {
                    if processed(model, waiting as u8) {
                        since[waiting][at] += 1;
                        worst = worst.max(since[waiting][at]);
                    }
                }
            }
            inside[at] = now;
            if !model.is_waiting(at as u8) {
                since[at].fill(0);
            }
        }
    });
    worst
}

fn processed(model: &Model<Machine>, node: u8) -> bool {
    !model.packets().any(|packet| packet.from == node && packet.message.kind() == "REQUEST")
}

/// Section 6.4: 'the numbers must fall within the range from x to x + N - 1'.
pub(super) fn number_range(bench: &Bench) -> Option<Row> {
    let sizes = [2u32, 3, 4];
    let widest = sizes.map(|nodes| {
        let config = config(bench, nodes, 6, Order::Any);
        let mut widest = 0;
        for seed in 0..3000 {
            walk(&config, seed, |model| {
                let numbers = || (0..nodes as u8).filter_map(|at| model.protocol(at)?.request_number());
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

/// The Appendix: at most N(N+1)/2 - 1 entries by others before A without order, 2(N-1) with it. Exhaustive for N = 2 and
/// 3; for larger N the schedule that the Appendix describes is played.
fn ra_24(bench: &Bench) -> Vec<Row> {
    let explored = |nodes, entries, order| {
        let spec = CheckSpec {
            nodes,
            entries: Some(entries),
            last_entries: Some(1),
            order,
            ..CheckSpec::of("ricart-agrawala")
        };
        let report = bench.check(spec.with("reply-number=false fence=off"));
        if report.complete { report.overtaken.0.to_string() } else { "incomplete".to_owned() }
    };
    let any = |nodes: u32| played(without_order(bench, nodes));
    let fifo = |nodes: u32| played(with_order(bench, nodes));
    let extra = u8::from(bench.full);
    let walked = (most_overtaken(bench, Order::Any), most_overtaken(bench, Order::Fifo));
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
            ok: walked.0 <= 9 && walked.1 <= 6,
            ..Row::new(
                "RA-24/walks",
                "and nothing exceeds it: N = 4, random walks, without and with order",
                "at most 9 and 6",
                format!("{} and {}", walked.0, walked.1),
            )
        },
    ]
}

fn most_overtaken(bench: &Bench, order: Order) -> u64 {
    let config = config(bench, 4, 5, order);
    let mut most = 0;
    for seed in 0..3000 {
        walk(&config, seed, |model| most = most.max(model.overtaken()));
    }
    most
}

fn played(overtaken: Option<u64>) -> String {
    overtaken.map_or("cannot be played".to_owned(), |count| count.to_string())
}

/// Plays chosen steps; `None` as soon as one cannot happen.
struct Director {
    config: ModelConfig<Machine>,
    model: Model<Machine>,
    scratch: Scratch<Machine>,
}

impl Director {
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

    /// Delivers, again and again, whatever may be delivered and is wanted.
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
fn without_order(bench: &Bench, nodes: u32) -> Option<u64> {
    let last = nodes as u8 - 1;
    let mut director = Director::new(config(bench, nodes, nodes as u8 + 1, Order::Any));
    // All choose distinct numbers, A's the highest: each hears only the one before it.
    director.ask(0)?;
    for node in 1..=last {
        director.deliver(|from, to, kind| (from, to) == (node - 1, node) && kind == "REQUEST");
        director.ask(node)?;
    }
    for number in 1..=nodes as u8 {
        for node in 0..number.min(last) {
            director.deliver(|from, _, kind| from == node && kind == "REQUEST");
            director.deliver(|_, to, kind| to == node && kind == "REPLY");
            director.exit(node)?;
            if number < nodes as u8 {
                director.ask(node)?;
            }
        }
    }
    director.model.is_waiting(last).then(|| director.model.overtaken())
}

/// The worst case with order: each other node enters once with a REQUEST that A has approved, and once more with a number
/// that ties with A's.
fn with_order(bench: &Bench, nodes: u32) -> Option<u64> {
    let last = nodes as u8 - 1;
    let mut director = Director::new(config(bench, nodes, 2, Order::Fifo));
    for node in 0..last {
        director.ask(node)?;
    }
    director.deliver(|_, _, kind| kind == "REQUEST");
    director.ask(last)?;
    for node in 0..last {
        director.deliver(|_, to, kind| to == node && kind == "REPLY");
        director.exit(node)?;
        director.ask(node)?;
    }
    for node in 0..last {
        director.deliver(|_, _, _| true);
        director.exit(node)?;
    }
    director.model.is_waiting(last).then(|| director.model.overtaken())
}
