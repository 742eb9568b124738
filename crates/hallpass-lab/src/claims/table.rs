//! Table I of the authors' response to Carvalho and Roucairol, 1983: three algorithms side by side.
//!
//! Its delays are in round trips, with messages that all take the same time. The last column, 'the maximum to grant ANY
//! critical section from network quiescent state', is found by a search: nodes ask at all times of a grid, after histories
//! that leave the permissions with different nodes, and the longest wait for the first entry counts.

use std::collections::BTreeMap;

use hallpass_core::protocol::{Bounds, Effect, Input, Mode, Mutant, Mutation, Options, Protocol, Visitor};
use hallpass_core::{InitialHolders, NodeId, Setup, View};
use hallpass_sim::Report;
use hallpass_sim::trace::EventKind;

use super::{Claim, Harness, Row, list};
use crate::{RunSpec, select};

pub(super) const CLAIMS: &[Claim] = &[("TBL-1", tbl_1)];

const NODES: u32 = 5;
const PROTOCOLS: [&str; 3] = ["ricart-agrawala", "carvalho-roucairol", "token"];

fn tbl_1(harness: &Harness) -> Vec<Row> {
    let run = |protocol: &str, load: &str| {
        let load = load.to_owned();
        harness.simulate(RunSpec { nodes: NODES, entries: 2000, load, keep_trace: true, ..RunSpec::of(protocol) })
    };
    let of_load = |load: &str| PROTOCOLS.map(|protocol| run(protocol, load));
    let (busy, single, light) = (of_load("saturated"), of_load("hotspot:0.5"), of_load("light"));
    let three = "R-A, C-R, token";
    // T is a message, two of them a round trip.
    let first = busy.each_ref().map(|report| report.sync_delay.mean / 2.0);
    let at_least = first[1] >= 0.5;
    let [ra, _, token] = first.map(|delay| (delay * 100.0).round() / 100.0);
    let note_1 = format!("{ra}, {}, {token}", if at_least { "at least 0.5" } else { "less" });
    let waits = single.each_ref().map(response_times);
    let least = waits.each_ref().map(|waits| waits.iter().copied().fold(f64::INFINITY, f64::min) / 2.0);
    let typical = light.each_ref().map(|report| report.response_time.p50 / 2.0);
    let wait = |protocol, nodes| longest_wait(protocol, nodes, harness.mutation);
    vec![
        Row::new(
            "TBL-1",
            &format!("messages an entry, fewest and most, N = {NODES}: {three}"),
            "8 to 8, 0 to 8, 0 to 5",
            single.each_ref().map(fewest_and_most).join(", "),
        )
        .without_violations(&single),
        Row::new(
            "TBL-1/note-1",
            &format!("round trips from a release to the next entry when all wait: {three}"),
            "0.5, at least 0.5, 0.5",
            note_1,
        )
        .without_violations(&busy),
        Row::new(
            "TBL-1/note-2",
            &format!("the fewest round trips to enter from quiescence: {three}"),
            "1, 0, 0",
            list(least),
        ),
        Row::new("TBL-1/note-3", &format!("what is typical: {three}"), "1, 1, 1", list(typical))
            .without_violations(&light),
        Row::new(
            "TBL-1/note-4",
            "the most round trips to ANY entry from quiescence, N = 2, 3, 4: R-A",
            "1.5, 1.5, 1.5",
            list([2, 3, 4].map(|nodes| wait("ricart-agrawala", nodes))),
        ),
        Row::new("TBL-1/note-4-token", "the same: token", "1, 1, 1", list([2, 3, 4].map(|nodes| wait("token", nodes)))),
        Row::new(
            "TBL-1/note-4-C-R",
            "the same: C-R, N = 2 to 5: (N-1)/2, and half a round trip for the last REPLY that the table leaves out",
            "0.5, 1, 1.5, 2 and 0.5 each",
            format!("{} and 0.5 each", list([2, 3, 4, 5].map(|nodes| wait("carvalho-roucairol", nodes) - 0.5))),
        ),
    ]
}

/// The fewest and the most messages of an entry when there is one request at a time.
fn fewest_and_most(report: &Report) -> String {
    let costs = super::token::costs(report);
    format!("{} to {}", costs.first().copied().unwrap_or(0), costs.last().copied().unwrap_or(0))
}

/// From each request to its entry, in T.
fn response_times(report: &Report) -> Vec<f64> {
    let (mut since, mut waits) = (BTreeMap::new(), Vec::new());
    let Some(trace) = &report.trace else { return waits };
    for event in &trace.events {
        match event.kind {
            EventKind::Request(_) => drop(since.insert(event.node, event.at)),
            EventKind::Enter { .. } => {
                waits.extend(since.remove(&event.node).map(|asked| (event.at - asked) as f64 / 1e6))
            }
            _ => {}
        }
    }
    waits
}

/// The longest wait for the first entry from quiescence that a search finds, in round trips.
fn longest_wait(protocol: &str, nodes: u32, mutation: Option<Mutation>) -> f64 {
    let (kind, _, options) = select(protocol, nodes, &[]).expect("a claim uses existing protocols");
    kind.visit(Search { nodes, options: &options, mutation })
}

struct Search<'a> {
    nodes: u32,
    options: &'a Options,
    mutation: Option<Mutation>,
}

impl Visitor for Search<'_> {
    type Output = f64;

    fn visit<P: Protocol + 'static>(self) -> f64 {
        let options = (P::parse(self.options).expect("a claim uses existing options"), self.mutation);
        let mut longest = 0.0_f64;
        for history in histories(self.nodes) {
            let quiet = Clocked::<Mutant<P>>::after(&history, self.nodes, &options);
            // Each node asks at one of these times, in message delays, or not at all; at least one asks at 0.
            let moments = u64::from(self.nodes);
            for schedule in 0..(moments + 1).pow(self.nodes) {
                let digit = |node: u32| schedule / (moments + 1).pow(node) % (moments + 1);
                let asks: Vec<(u64, NodeId)> = (0..self.nodes)
                    .filter(|node| digit(*node) < moments)
                    .map(|node| (digit(node), NodeId(node + 1)))
                    .collect();
                if asks.iter().any(|(moment, _)| *moment == 0) {
                    let wait = quiet.clone().first_entry(&asks);
                    longest = longest.max(wait.map_or(f64::INFINITY, |wait| wait as f64));
                }
            }
        }
        longest / (2 * TRANSIT) as f64
    }
}

/// All orders in which every node enters once.
fn histories(nodes: u32) -> Vec<Vec<NodeId>> {
    let mut all = vec![Vec::new()];
    for node in (1..=nodes).map(NodeId) {
        let inserted = |history: &Vec<NodeId>, position| {
            let mut history = history.clone();
            history.insert(position, node);
            history
        };
        all = all
            .iter()
            .flat_map(|history| (0..=history.len()).map(move |position| inserted(history, position)))
            .collect();
    }
    all
}

/// How long a message takes, in steps of the grid.
const TRANSIT: u64 = 1;

/// Nodes whose messages all take the same time.
#[derive(Clone)]
struct Clocked<P: Protocol> {
    nodes: Vec<P>,
    /// Messages with their time of arrival, sender and receiver, in the order of arrival.
    in_flight: Vec<(u64, NodeId, NodeId, P::Message)>,
    now: u64,
}

impl<P: Protocol> Clocked<P> {
    fn after(history: &[NodeId], nodes: u32, options: &P::Options) -> Self {
        let view = View::new((1..=nodes).map(NodeId));
        let new = |me: &NodeId| {
            P::new(&Setup {
                me: *me,
                view: &view,
                initial: InitialHolders::NOBODY,
                home: NodeId(1),
                incarnation: 0,
                bounds: Bounds::NONE,
                options,
            })
        };
        let mut group = Self { nodes: view.members().iter().map(new).collect(), in_flight: Vec::new(), now: 0 };
        for node in history {
            group.first_entry(&[(0, *node)]);
            group.handle(*node, Input::Release);
            while let Some((at, from, to, message)) = group.take_first(u64::MAX) {
                group.now = at;
                group.handle(to, Input::Deliver { from, message });
            }
        }
        group
    }

    /// Simulates until a node enters, and returns how long that took; `None` if none enters. A request at the time of an
    /// arrival comes before it.
    fn first_entry(&mut self, asks: &[(u64, NodeId)]) -> Option<u64> {
        let start = self.now;
        let mut asks: Vec<(u64, NodeId)> = asks.iter().map(|(moment, node)| (start + moment, *node)).collect();
        asks.sort_unstable();
        let mut asks = asks.into_iter().peekable();
        loop {
            let until = asks.peek().map_or(u64::MAX, |(moment, _)| *moment);
            let entered = match self.take_first(until) {
                Some((at, from, to, message)) => {
                    self.now = at;
                    self.handle(to, Input::Deliver { from, message })
                }
                None => {
                    let (moment, node) = asks.next()?;
                    self.now = moment;
                    self.handle(node, Input::Acquire { mode: Mode::Exclusive, draw: 0 })
                }
            };
            if entered {
                return Some(self.now - start);
            }
        }
    }

    /// The first message to arrive, if it arrives before this time.
    fn take_first(&mut self, until: u64) -> Option<(u64, NodeId, NodeId, P::Message)> {
        self.in_flight.first().is_some_and(|(at, ..)| *at < until).then(|| self.in_flight.remove(0))
    }

    /// Gives a node one input. True if it enters.
    fn handle(&mut self, node: NodeId, input: Input<P::Message, P::Timer>) -> bool {
        let mut out = Vec::new();
        self.nodes[node.0 as usize - 1].handle(input, &mut out);
        let (arrival, mut entered) = (self.now + TRANSIT, false);
        for effect in out {
            match effect {
                Effect::Send { to, message } => self.in_flight.push((arrival, node, to, message)),
                Effect::Broadcast { message } => {
                    let others = (1..=self.nodes.len() as u32).map(NodeId).filter(|to| *to != node);
                    self.in_flight.extend(others.map(|to| (arrival, node, to, message.clone())));
                }
                Effect::Enter { .. } => entered = true,
                _ => {}
            }
        }
        entered
    }
}
