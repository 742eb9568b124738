//! A simulated world in virtual time that runs one lock among its nodes.
//!
//! This file holds the event loop and carries out a protocol's effects; [`network`] transports messages, [`load`] makes
//! requests, [`faults`] breaks things, and [`report`] sums up.

mod faults;
mod load;
mod network;
mod report;

use std::collections::VecDeque;
use std::ops::ControlFlow;

use hallpass_core::protocol::{Needs, Variables};
use hallpass_core::{Effect, Effects, InitialHolders, Input, Mode, NodeId, Protocol, Setup, Ticks, View};

use crate::oracle::{Arrivals, Exclusion, FenceOrder, MessageCount, Overtaking, Progress, Violation};
use crate::queue::Queue;
use crate::trace::{self, EventKind, States};
use crate::{Config, ConfigError, FaultEvent, Report, Rng};

use network::Network;
use report::Stats;

/// A world in virtual time that runs one lock among its nodes.
///
/// - **Input**: [`new`](Self::new) takes everything that decides the run.
/// - **Output**: [`run`](Self::run) simulates it to its end and returns the measurements.
pub struct World<'a, P: Protocol> {
    config: &'a Config,
    options: &'a P::Options,
    needs: Needs,
    view: View,
    now: Ticks,
    rng: Rng,
    queue: Queue<Event<P>>,
    effects: Effects<P::Message, P::Timer>,
    /// In ascending order of their ids, including those that join later. Functions name a node by its index here.
    nodes: Vec<Node<P>>,
    network: Network,
    /// The faults still to come, the next one first.
    faults: VecDeque<(Ticks, FaultEvent)>,

    /// Requests made so far, and those of them that neither have left the critical section nor were abandoned.
    issued: u64,
    outstanding: u64,
    last_entered: Option<usize>,
    /// When the last holder left, if somebody was waiting then.
    freed_at: Option<Ticks>,

    exclusion: Exclusion,
    fences: FenceOrder,
    overtaking: Overtaking,
    arrivals: Arrivals,
    progress: Progress,
    messages: MessageCount,
    violations: Vec<Violation>,
    stats: Stats,
    watch_numbers: bool,
    events: u64,
    events_max: u64,
    trace: Option<Vec<trace::Event>>,
    /// The nodes' variables beside the trace, if they are wanted.
    states: Option<States>,
}

struct Node<P: Protocol> {
    id: NodeId,
    /// None while it is down.
    protocol: Option<P>,
    incarnation: u32,
    /// Belongs to the group, so that the workload may pick it.
    member: bool,
    phase: Phase,
    /// Requests that wait for an earlier one on this node, first come, first served.
    backlog: VecDeque<Request>,
    /// The timers that are set, each with the value of `timers_set` at that time.
    timers: Vec<(P::Timer, u64)>,
    timers_set: u64,
    paused: bool,
    /// Events that came while it was paused.
    parked: Vec<Event<P>>,
    entries: u64,
}

/// A request of a local caller, from the moment it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Request {
    mode: Mode,
    since: Ticks,
    /// Entries of all nodes, and of this node, when it was made.
    entries: u64,
    own_entries: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Waiting(Request),
    Inside { mode: Mode, entry: u64 },
}

/// Something scheduled to happen. Nodes are given by index, in 32 bits to keep events small.
enum Event<P: Protocol> {
    Deliver { from: NodeId, to: u32, message: P::Message, id: u64 },
    Timer { node: u32, timer: P::Timer, set: u64 },
    Exit { node: u32, entry: u64 },
    Arrival,
    Fault,
}

/// More messages than this in flight would fill the memory.
const IN_FLIGHT_MAX: u64 = 4_000_000;

impl<'a, P: Protocol> World<'a, P> {
    /// A world before its first event. The caller has checked that the configuration gives the protocol what it needs.
    pub fn new(config: &'a Config, options: &'a P::Options) -> Self {
        let mut rng = Rng::new(config.seed);
        let faults: VecDeque<_> = config.faults.schedule(&config.nodes, config.tick(), &mut rng).into();
        let view = View::new(config.nodes.iter().copied());
        let needs = P::needs(options);
        let mut ids: Vec<NodeId> = view.members().to_vec();
        ids.extend(needs.server.then_some(NodeId::SERVER));
        ids.extend(faults.iter().filter_map(|(_, event)| match event {
            FaultEvent::Join(node) => Some(*node),
            _ => None,
        }));
        ids.sort_unstable();
        ids.dedup();
        let count = ids.len();
        let patience = config.tick() * 200 * (count as Ticks + 4) + config.hold * 50 * (count as Ticks + 4);
        let mut world = Self {
            config,
            options,
            needs,
            view,
            now: 0,
            rng,
            queue: Queue::new(),
            effects: Effects::with_capacity(2 * count + 8),
            nodes: Vec::new(),
            network: Network::new(count, config.order),
            faults,
            issued: 0,
            outstanding: 0,
            last_entered: None,
            freed_at: None,
            exclusion: Exclusion::default(),
            fences: FenceOrder::default(),
            overtaking: Overtaking::new(config.overtakes_max),
            arrivals: Arrivals::default(),
            progress: Progress::new(patience),
            messages: MessageCount::default(),
            violations: Vec::new(),
            stats: Stats::new(config.entries),
            watch_numbers: false,
            events: 0,
            events_max: (config.entries + 1000).saturating_mul(count as u64 + 4).saturating_mul(200),
            trace: config.keep_trace.then(Vec::new),
            states: (config.keep_trace && config.keep_states).then(States::default),
        };
        world.nodes = ids.into_iter().map(|id| world.new_node(id)).collect();
        world
    }

    /// Also measures the spread of outstanding sequence numbers, which takes time at every request.
    pub fn watching_numbers(mut self) -> Self {
        self.watch_numbers = true;
        self
    }

    /// Simulates the run to its end, which must fit into memory.
    pub fn run(self) -> Report {
        self.try_run(&mut |_| ControlFlow::Continue(())).expect("the run fits into memory")
    }

    /// The same, with an error that says the limit if the run does not fit into memory. `on_progress` gets the number of
    /// entries now and then, and may give the run up.
    pub fn try_run(mut self, on_progress: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Report, ConfigError> {
        for index in 0..self.nodes.len() {
            self.note_state(index, 0);
        }
        for (at, _) in &self.faults {
            self.queue.push(*at, Event::Fault);
        }
        if self.needs.start {
            for index in 0..self.nodes.len() {
                self.handle_input(index, Input::Join { sponsor: self.nodes[index].id });
            }
        }
        self.start_load();
        while let Some((at, event)) = self.queue.pop() {
            if self.is_done() {
                break;
            }
            self.now = at;
            let stuck = self.progress.is_stuck(at) && self.outstanding > 0 && self.faults.is_empty();
            if stuck || self.is_runaway() || self.is_trace_full() {
                break;
            }
            self.handle_event(event);
            if self.events.is_multiple_of(1 << 16) && on_progress(self.overtaking.entries()).is_break() {
                return Err(ConfigError("the run was given up before its end".to_owned()));
            }
        }
        match self.too_large() {
            Some(why) => Err(ConfigError(why)),
            None => Ok(self.into_report()),
        }
    }

    fn is_trace_full(&self) -> bool {
        self.trace.as_ref().is_some_and(|events| events.len() > self.config.trace_max)
    }

    fn new_node(&self, id: NodeId) -> Node<P> {
        let member = self.view.members().contains(&id);
        let is_server = self.needs.server && id == NodeId::SERVER;
        Node {
            id,
            protocol: (member || is_server).then(|| self.new_protocol(id, 0)),
            incarnation: 0,
            member,
            phase: Phase::Idle,
            backlog: VecDeque::new(),
            timers: Vec::new(),
            timers_set: 0,
            paused: false,
            parked: Vec::new(),
            entries: 0,
        }
    }

    fn new_protocol(&self, me: NodeId, incarnation: u32) -> P {
        P::new(&Setup {
            me,
            view: &self.view,
            initial: InitialHolders::NOBODY,
            home: self.view.members()[0],
            incarnation,
            bounds: self.config.bounds(),
            options: self.options,
        })
    }

    /// All requests are served and no message is in flight, so that every message has been counted.
    fn is_done(&self) -> bool {
        self.issued >= self.config.entries
            && self.outstanding == 0
            && self.network.in_flight == 0
            && self.faults.is_empty()
    }

    /// True if the run has taken more events than any run without a loop, or so many messages in flight that they
    /// fill the memory.
    fn is_runaway(&self) -> bool {
        self.events > self.events_max || self.network.in_flight > IN_FLIGHT_MAX
    }

    /// Why this run does not fit into memory, though nothing is wrong with the protocol.
    fn too_large(&self) -> Option<String> {
        let nodes = self.nodes.len() as u64;
        // In a group as large as this, a few messages between any two nodes are normal.
        if self.network.in_flight > IN_FLIGHT_MAX && 3 * nodes * nodes > IN_FLIGHT_MAX {
            return Some(format!(
                "{nodes} nodes have more than {} million messages in flight, the most that a simulation keeps; use fewer \
                 nodes or --load light",
                IN_FLIGHT_MAX / 1_000_000
            ));
        }
        self.is_trace_full().then(|| {
            let most = self.config.trace_max;
            format!("a trace keeps at most {most} events; use fewer --entries or --nodes")
        })
    }

    fn handle_event(&mut self, event: Event<P>) {
        self.events += 1;
        let touched = match event {
            Event::Deliver { to, .. } => Some(to as usize),
            Event::Exit { node, .. } => Some(node as usize),
            Event::Timer { .. } | Event::Arrival | Event::Fault => None,
        };
        match event {
            Event::Deliver { from, to, message, id } => self.on_deliver(from, to as usize, message, id),
            Event::Timer { node, timer, set } => self.on_timer(node as usize, timer, set),
            Event::Exit { node, entry } => self.on_exit(node as usize, entry),
            Event::Arrival => self.on_arrival(),
            Event::Fault => {
                if let Some((_, event)) = self.faults.pop_front() {
                    self.progress.on_progress(self.now);
                    self.on_fault(event);
                }
            }
        }
        touched.into_iter().for_each(|index| self.give_back_unused(index));
        self.request_next();
    }

    /// What a protocol does not keep for a caller to come goes back, after the next one has had its chance to ask.
    fn give_back_unused(&mut self, index: usize) {
        let Node { phase: Phase::Idle, paused: false, protocol: Some(protocol), .. } = &self.nodes[index] else {
            return;
        };
        if protocol.gives_back() {
            self.record(index, EventKind::GiveBack);
            self.handle_input(index, Input::GiveBack);
        }
    }

    /// Gives a node's protocol one input and carries out the effects.
    fn handle_input(&mut self, index: usize, input: Input<P::Message, P::Timer>) {
        let mut effects = std::mem::take(&mut self.effects);
        let Some(protocol) = &mut self.nodes[index].protocol else { return self.effects = effects };
        protocol.handle(input, &mut effects);
        self.note_state(index, self.trace.as_ref().map_or(0, Vec::len));
        let mut restart = false;
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { to, message } => self.send(index, to, message),
                Effect::Broadcast { message } => self.broadcast(index, message),
                Effect::Enter { fence } => self.on_enter(index, fence),
                Effect::SetTimer { timer, after } => {
                    let play = after.max.saturating_sub(after.min).min(self.config.tick());
                    let wait = after.min + self.rng.below(play + 1);
                    self.set_timer(index, timer, wait);
                }
                Effect::CancelTimer(timer) => self.nodes[index].timers.retain(|(other, _)| *other != timer),
                Effect::Joined => {
                    self.nodes[index].member = true;
                    self.record(index, EventKind::Joined);
                }
                Effect::Left => {
                    self.record(index, EventKind::Left);
                    self.stop(index);
                }
                Effect::Restart => restart = true,
                Effect::Busy | Effect::Refused => {
                    let text = format!("node {} is refused what it has not tried", self.nodes[index].id);
                    self.report_violation(index, Violation { property: "protocol", text });
                }
            }
        }
        self.effects = effects;
        if restart {
            self.restart(index, true);
        }
    }

    fn set_timer(&mut self, index: usize, timer: P::Timer, wait: Ticks) {
        let node = &mut self.nodes[index];
        node.timers.retain(|(other, _)| *other != timer);
        node.timers_set += 1;
        let set = node.timers_set;
        node.timers.push((timer, set));
        self.queue.push(self.now + wait, Event::Timer { node: index as u32, timer, set });
    }

    fn on_timer(&mut self, index: usize, timer: P::Timer, set: u64) {
        let node = &mut self.nodes[index];
        let Some(position) = node.timers.iter().position(|(_, current)| *current == set) else { return };
        if node.paused {
            return node.parked.push(Event::Timer { node: index as u32, timer, set });
        }
        node.timers.swap_remove(position);
        if self.trace.is_some() {
            self.record(index, EventKind::Timer(format!("{timer:?}")));
        }
        self.handle_input(index, Input::Timeout(timer));
    }

    fn index_of(&self, id: NodeId) -> Option<usize> {
        // Ids are usually 1 to N.
        let guess = (id.0 as usize).wrapping_sub(1);
        if self.nodes.get(guess).is_some_and(|node| node.id == id) {
            return Some(guess);
        }
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }

    fn record(&mut self, index: usize, kind: EventKind) {
        if let Some(trace) = &mut self.trace {
            trace.push(trace::Event { at: self.now, node: self.nodes[index].id, kind });
        }
    }

    /// Notes a node's variables as they are after the first `from` events.
    fn note_state(&mut self, index: usize, from: usize) {
        let Some(states) = &mut self.states else { return };
        let mut variables = Variables::default();
        if let Some(protocol) = &self.nodes[index].protocol {
            protocol.variables(&mut variables);
        }
        states.note(from, self.nodes[index].id, variables);
    }

    fn report_violation(&mut self, index: usize, violation: Violation) {
        self.record(index, EventKind::Violation(violation.to_string()));
        // The first few are enough to find the cause; a broken protocol violates all the time.
        if self.violations.len() < 20 {
            self.violations.push(violation);
        }
    }
}
