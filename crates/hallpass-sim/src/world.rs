use std::collections::VecDeque;

use hallpass_core::protocol::{Medium, Needs};
use hallpass_core::{
    Effect, Effects, Fence, InitialHolders, Input, Message, Mode, NodeId, Protocol, Setup, Ticks, View,
};

use crate::oracle::{Exclusion, FenceOrder, MessageCount, Overtaking, Progress, Violation};
use crate::queue::Queue;
use crate::trace::{Event, EventKind, Scale, Trace};
use crate::{Config, Delays, FaultEvent, Load, Order, Report, Response, Rng, Spread};

/// A world in virtual time that runs one lock among its nodes.
///
/// - **Input**: [`new`](Self::new) takes everything that decides the run.
/// - **Output**: [`run`](Self::run) plays it to its end and tells what it measured.
pub struct World<'a, P: Protocol> {
    config: &'a Config,
    options: &'a P::Options,
    needs: Needs,
    view: View,
    now: Ticks,
    rng: Rng,
    queue: Queue<Happening<P>>,
    effects: Effects<P::Message, P::Timer>,
    /// In rising order of their ids, those that join later included.
    nodes: Vec<Node<P>>,
    /// FIFO: when the last message on each link arrives, by sender and receiver.
    links: Vec<Ticks>,
    /// Sequenced medium: when each node hears the last broadcast.
    heard: Vec<Ticks>,
    fault_events: VecDeque<(Ticks, FaultEvent)>,
    /// One side of a partition, while there is one.
    cut: Option<Vec<NodeId>>,

    issued: u64,
    outstanding: u64,
    in_flight: u64,
    abandoned: u64,
    last_entered: Option<usize>,
    /// When the section was left last while somebody waited.
    left_at: Option<Ticks>,

    exclusion: Exclusion,
    fences: FenceOrder,
    overtaking: Overtaking,
    progress: Progress,
    messages: MessageCount,
    violations: Vec<Violation>,
    response_times: Vec<u64>,
    sync_sum: f64,
    sync_count: u64,
    sync_max: Ticks,
    spread: Spread,
    watch_numbers: bool,
    events: u64,
    events_max: u64,
    sent: u64,
    trace: Option<Vec<Event>>,
}

struct Node<P: Protocol> {
    id: NodeId,
    /// None while it is down.
    protocol: Option<P>,
    incarnation: u32,
    /// In the group, so that it is asked to ask.
    member: bool,
    phase: Phase,
    /// Requests that wait for the one before them on this node, by when they came.
    backlog: VecDeque<Wish>,
    timers: Vec<(P::Timer, u64)>,
    timers_set: u64,
    paused: bool,
    /// What came while it was paused.
    parked: Vec<Happening<P>>,
    entries: u64,
}

/// A request, from the moment it is issued.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wish {
    mode: Mode,
    since: Ticks,
    /// Entries in all, and of this node, when it was issued.
    entries: u64,
    own_entries: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Waiting(Wish),
    Inside { mode: Mode, entry: u64 },
}

enum Happening<P: Protocol> {
    Deliver { from: NodeId, to: u32, message: P::Message, id: u64 },
    Timer { node: u32, timer: P::Timer, set: u64 },
    Exit { node: u32, entry: u64 },
    Arrive,
    FaultEvent,
}

impl<'a, P: Protocol> World<'a, P> {
    /// A world before its first event. The caller has checked that the configuration gives the protocol what it needs.
    pub fn new(config: &'a Config, options: &'a P::Options) -> Self {
        let mut rng = Rng::new(config.seed);
        let fault_events: VecDeque<_> = config.faults.schedule(&config.nodes, config.tick(), &mut rng).into();
        let view = View::new(config.nodes.iter().copied());
        let mut ids: Vec<NodeId> = view.members().to_vec();
        let needs = P::needs(options);
        ids.extend(needs.server.then_some(NodeId::SERVER));
        ids.extend(
            fault_events.iter().filter_map(
                |(_, fault_event)| if let FaultEvent::Join(node) = fault_event { Some(*node) } else { None },
            ),
        );
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
            links: if config.order == Order::Fifo { vec![0; count * count] } else { Vec::new() },
            heard: vec![0; count],
            fault_events,
            cut: None,
            issued: 0,
            outstanding: 0,
            in_flight: 0,
            abandoned: 0,
            last_entered: None,
            left_at: None,
            exclusion: Exclusion::default(),
            fences: FenceOrder::default(),
            overtaking: Overtaking::new(config.overtakes_max),
            progress: Progress::new(patience),
            messages: MessageCount::default(),
            violations: Vec::new(),
            response_times: Vec::with_capacity(config.entries.min(1 << 24) as usize),
            sync_sum: 0.0,
            sync_count: 0,
            sync_max: 0,
            spread: Spread::default(),
            watch_numbers: false,
            events: 0,
            events_max: (config.entries + 1000).saturating_mul(count as u64 + 4).saturating_mul(200),
            sent: 0,
            trace: config.keep_trace.then(Vec::new),
        };
        world.nodes = ids.into_iter().map(|id| world.new_node(id)).collect();
        world
    }

    /// Also measures the spread of outstanding numbers, which costs time at every request.
    pub fn watching_numbers(mut self) -> Self {
        self.watch_numbers = true;
        self
    }

    /// Plays the run to its end.
    pub fn run(mut self) -> Report {
        for at in 0..self.fault_events.len() {
            self.queue.push(self.fault_events[at].0, Happening::FaultEvent);
        }
        for at in 0..if self.needs.start { self.nodes.len() } else { 0 } {
            self.handle(at, Input::Join { sponsor: self.nodes[at].id });
        }
        self.start_load();
        while let Some((at, happening)) = self.queue.pop() {
            if self.is_over() {
                break;
            }
            self.now = at;
            let stuck = self.progress.is_stuck(at) && self.outstanding > 0 && self.fault_events.is_empty();
            if stuck || self.is_endless() {
                break;
            }
            self.happen(happening);
        }
        self.finish()
    }

    fn new_node(&self, id: NodeId) -> Node<P> {
        let member = self.view.members().contains(&id);
        Node {
            id,
            protocol: (member || (self.needs.server && id == NodeId::SERVER)).then(|| self.new_protocol(id, 0)),
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
        let bounds = self.config.bounds();
        P::new(&Setup {
            me,
            view: &self.view,
            initial: InitialHolders::NOBODY,
            incarnation,
            bounds,
            options: self.options,
        })
    }

    /// All requests are served and nothing is under way: every message has been counted.
    fn is_over(&self) -> bool {
        self.issued >= self.config.entries
            && self.outstanding == 0
            && self.in_flight == 0
            && self.fault_events.is_empty()
    }

    /// A run that goes on for too long goes in circles; one whose messages pile up will fill the memory.
    fn is_endless(&self) -> bool {
        self.events > self.events_max || self.in_flight > 4_000_000
    }

    fn happen(&mut self, happening: Happening<P>) {
        self.events += 1;
        match happening {
            Happening::Deliver { from, to, message, id } => self.deliver(from, to as usize, message, id),
            Happening::Timer { node, timer, set } => self.fire(node as usize, timer, set),
            Happening::Exit { node, entry } => self.exit(node as usize, entry),
            Happening::Arrive => self.arrive(),
            Happening::FaultEvent => {
                if let Some((_, fault_event)) = self.fault_events.pop_front() {
                    self.progress.on_progress(self.now);
                    self.perform(fault_event);
                }
            }
        }
        self.offer_next();
    }

    fn deliver(&mut self, from: NodeId, to: usize, message: P::Message, id: u64) {
        let node = &mut self.nodes[to];
        if node.paused {
            return node.parked.push(Happening::Deliver { from, to: to as u32, message, id });
        }
        self.in_flight -= 1;
        let lost = node.protocol.is_none() || (self.cut.is_some() && self.is_cut(from, self.nodes[to].id));
        if self.trace.is_some() {
            let (kind, text) = (message.kind(), message.to_string());
            let kind = if lost {
                EventKind::Lose { from, id, kind, text }
            } else {
                EventKind::Deliver { from, id, kind, text }
            };
            self.note(to, kind);
        }
        if !lost {
            self.handle(to, Input::Deliver { from, message });
        }
    }

    fn fire(&mut self, at: usize, timer: P::Timer, set: u64) {
        let node = &mut self.nodes[at];
        let Some(position) = node.timers.iter().position(|(_, current)| *current == set) else { return };
        if node.paused {
            return node.parked.push(Happening::Timer { node: at as u32, timer, set });
        }
        node.timers.swap_remove(position);
        if self.trace.is_some() {
            self.note(at, EventKind::Timer(format!("{timer:?}")));
        }
        self.handle(at, Input::Timeout(timer));
    }

    fn handle(&mut self, at: usize, input: Input<P::Message, P::Timer>) {
        let mut effects = std::mem::take(&mut self.effects);
        let Some(protocol) = &mut self.nodes[at].protocol else { return self.effects = effects };
        protocol.handle(input, &mut effects);
        let mut restart = false;
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { to, message } => self.send(at, to, message),
                Effect::Broadcast { message } => self.broadcast(at, message),
                Effect::Enter { fence } => self.enter(at, fence),
                Effect::SetTimer { timer, after } => {
                    let wait =
                        after.min + self.rng.below(after.max.saturating_sub(after.min).min(self.config.tick()) + 1);
                    self.set_timer(at, timer, wait);
                }
                Effect::CancelTimer(timer) => self.nodes[at].timers.retain(|(other, _)| *other != timer),
                Effect::Joined => {
                    self.nodes[at].member = true;
                    self.note(at, EventKind::Joined);
                }
                Effect::Left => {
                    self.note(at, EventKind::Left);
                    self.switch_off(at);
                }
                Effect::Restart => restart = true,
            }
        }
        self.effects = effects;
        if restart {
            self.restart(at, true);
        }
    }

    fn set_timer(&mut self, at: usize, timer: P::Timer, wait: Ticks) {
        let node = &mut self.nodes[at];
        node.timers.retain(|(other, _)| *other != timer);
        node.timers_set += 1;
        let set = node.timers_set;
        node.timers.push((timer, set));
        self.queue.push(self.now + wait, Happening::Timer { node: at as u32, timer, set });
    }

    fn perform(&mut self, fault_event: FaultEvent) {
        match fault_event {
            FaultEvent::Crash(id) => {
                if let Some(at) = self.index(id).filter(|at| self.nodes[*at].protocol.is_some()) {
                    self.note(at, EventKind::Crash);
                    self.switch_off(at);
                }
            }
            FaultEvent::Restart(id) => {
                if let Some(at) = self.index(id).filter(|at| self.nodes[*at].protocol.is_none()) {
                    self.restart(at, false);
                }
            }
            FaultEvent::Pause(id) => {
                if let Some(at) = self.index(id) {
                    self.nodes[at].paused = true;
                    self.note(at, EventKind::Pause);
                }
            }
            FaultEvent::Resume(id) => {
                if let Some(at) = self.index(id) {
                    self.nodes[at].paused = false;
                    self.note(at, EventKind::Resume);
                    for happening in std::mem::take(&mut self.nodes[at].parked) {
                        self.happen(happening);
                    }
                }
            }
            FaultEvent::Cut(side) => {
                let names: Vec<String> = side.iter().map(NodeId::to_string).collect();
                self.note(0, EventKind::Network(format!("cut: {} on one side", names.join(", "))));
                self.cut = Some(side);
            }
            FaultEvent::Mend => {
                self.note(0, EventKind::Network("mended".to_owned()));
                self.cut = None;
            }
            FaultEvent::Join(id) => {
                if let Some(at) = self.index(id).filter(|at| self.nodes[*at].protocol.is_none()) {
                    self.nodes[at].protocol = Some(self.new_protocol(id, self.nodes[at].incarnation));
                    self.note(at, EventKind::Join);
                    self.join(at);
                }
            }
            FaultEvent::Leave(id) => {
                if let Some(at) = self.index(id).filter(|at| self.nodes[*at].protocol.is_some()) {
                    self.note(at, EventKind::Leave);
                    self.nodes[at].member = false;
                    self.handle(at, Input::Leave);
                }
            }
        }
    }

    fn join(&mut self, at: usize) {
        let sponsors: Vec<NodeId> =
            self.nodes.iter().filter(|node| node.member && node.protocol.is_some()).map(|node| node.id).collect();
        if !sponsors.is_empty() {
            let sponsor = sponsors[self.rng.below(sponsors.len() as u64) as usize];
            self.handle(at, Input::Join { sponsor });
        } else if self.needs.recovery {
            // Who is back in its own place needs no sponsor.
            self.handle(at, Input::Join { sponsor: self.nodes[at].id });
        }
    }

    /// The node is gone, with whoever waited there or was inside.
    fn switch_off(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.protocol = None;
        node.member = false;
        node.timers.clear();
        let lost = node.backlog.len() as u64 + u64::from(matches!(node.phase, Phase::Waiting(_)));
        node.backlog.clear();
        self.outstanding -= lost;
        self.abandoned += lost;
        if let Phase::Inside { mode, .. } = std::mem::replace(&mut node.phase, Phase::Idle) {
            self.exclusion.on_exit(node.id, mode);
            self.outstanding -= 1;
        }
    }

    /// A new life: without memory, but whoever waits on a node that was told to restart keeps waiting.
    fn restart(&mut self, at: usize, keep_callers: bool) {
        self.nodes[at].timers.clear();
        self.nodes[at].incarnation += 1;
        let (id, incarnation) = (self.nodes[at].id, self.nodes[at].incarnation);
        self.nodes[at].protocol = Some(self.new_protocol(id, incarnation));
        self.note(at, EventKind::Restart);
        if !self.needs.membership && !self.needs.recovery {
            self.nodes[at].member = true;
            return;
        }
        self.nodes[at].member = false;
        self.join(at);
        if let (true, Phase::Waiting(Wish { mode, .. })) = (keep_callers, self.nodes[at].phase) {
            let draw = self.rng.next_u64() as u32;
            self.handle(at, Input::Acquire { mode, draw });
        }
    }

    fn finish(mut self) -> Report {
        let waits = |node: &&Node<P>| matches!(node.phase, Phase::Waiting(_));
        let waiting: Vec<NodeId> = self.nodes.iter().filter(waits).map(|node| node.id).collect();
        if let Some(violation) = self.progress.on_end(&waiting) {
            self.violate(self.index(waiting[0]).unwrap_or(0), violation);
        }
        if self.is_endless() {
            let text = format!("the run does not end: {} events, {} messages under way", self.events, self.in_flight);
            self.violate(0, Violation { property: "progress", text });
        }
        if self.issued < self.config.entries && waiting.is_empty() {
            let text =
                format!("nobody was left to ask: {} of {} requests were issued", self.issued, self.config.entries);
            self.violate(0, Violation { property: "progress", text });
        }
        let tick = self.config.tick() as f64;
        let entries: u64 = self.nodes.iter().map(|node| node.entries).sum();
        Report {
            protocol: String::new(),
            nodes: self.config.nodes.len(),
            seed: self.config.seed,
            entries,
            messages: self.messages.total(),
            messages_per_entry: self.messages.total() as f64 / entries.max(1) as f64,
            messages_by_kind: self.messages.by_kind().to_vec(),
            sync_delay: Delays {
                mean: self.sync_sum / self.sync_count.max(1) as f64 / tick,
                max: self.sync_max as f64 / tick,
            },
            response_time: Response::of(&mut self.response_times, tick),
            entries_by_node: self
                .nodes
                .iter()
                .filter(|node| node.id != NodeId::SERVER || !self.needs.server)
                .map(|node| (node.id.0, node.entries))
                .collect(),
            max_overtakes: self.overtaking.worst(),
            events: self.events,
            violations: self.violations,
            spread: self.spread,
            trace: self.trace.map(|events| Trace {
                title: String::new(),
                nodes: self.nodes.iter().map(|node| node.id).collect(),
                scale: Scale::Time { tick: self.config.tick() },
                events,
            }),
            abandoned: self.abandoned,
            duration: self.now as f64 / tick,
        }
    }

    fn index(&self, id: NodeId) -> Option<usize> {
        // Ids are 1 to N more often than not.
        let guess = (id.0 as usize).wrapping_sub(1);
        if self.nodes.get(guess).is_some_and(|node| node.id == id) {
            return Some(guess);
        }
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }

    fn note(&mut self, at: usize, kind: EventKind) {
        if let Some(trace) = &mut self.trace {
            trace.push(Event { at: self.now, node: self.nodes[at].id, kind });
        }
    }

    fn violate(&mut self, at: usize, violation: Violation) {
        self.note(at, EventKind::Violation(violation.to_string()));
        // The first few tell the story; a protocol that is broken breaks all the time.
        if self.violations.len() < 20 {
            self.violations.push(violation);
        }
    }
}

/// The network.
impl<P: Protocol> World<'_, P> {
    fn send(&mut self, from: usize, to: NodeId, message: P::Message) {
        self.messages.on_send(message.kind(), 1);
        if let Some(to) = self.index(to) {
            self.carry(from, to, message);
        }
    }

    fn broadcast(&mut self, from: usize, message: P::Message) {
        let receivers = self.nodes.len() as u64 - 1;
        let counted = if self.needs.medium == Medium::Unicast && !self.needs.membership { receivers } else { 1 };
        self.messages.on_send(message.kind(), counted);
        for to in 0..self.nodes.len() {
            if self.needs.medium == Medium::Sequenced {
                self.put_on_medium(from, to, message.clone());
            } else if to != from {
                self.carry(from, to, message.clone());
            }
        }
    }

    fn carry(&mut self, from: usize, to: usize, message: P::Message) {
        let id = self.note_sending(from, to, &message);
        let faults = &self.config.faults;
        if self.rng.chance(faults.loss) || (self.cut.is_some() && self.is_cut(self.nodes[from].id, self.nodes[to].id)) {
            if self.trace.is_some() {
                let (kind, text) = (message.kind(), message.to_string());
                self.note(to, EventKind::Lose { from: self.nodes[from].id, id, kind, text });
            }
            return;
        }
        if self.rng.chance(faults.duplication) {
            self.put_on_link(from, to, message.clone(), id);
        }
        self.put_on_link(from, to, message, id);
    }

    fn put_on_link(&mut self, from: usize, to: usize, message: P::Message, id: u64) {
        let mut at = self.now + self.config.latency.draw(self.nodes[from].id, self.nodes[to].id, &mut self.rng);
        if self.config.order == Order::Fifo {
            let last = &mut self.links[from * self.nodes.len() + to];
            at = at.max(*last);
            *last = at;
        }
        self.in_flight += 1;
        self.queue.push(at, Happening::Deliver { from: self.nodes[from].id, to: to as u32, message, id });
    }

    /// Every node hears all broadcasts in the order in which they were put on the medium.
    fn put_on_medium(&mut self, from: usize, to: usize, message: P::Message) {
        let id = self.note_sending(from, to, &message);
        let at = self.now + self.config.latency.draw(self.nodes[from].id, self.nodes[to].id, &mut self.rng);
        let at = at.max(self.heard[to]);
        self.heard[to] = at;
        self.in_flight += 1;
        self.queue.push(at, Happening::Deliver { from: self.nodes[from].id, to: to as u32, message, id });
    }

    fn note_sending(&mut self, from: usize, to: usize, message: &P::Message) -> u64 {
        self.sent += 1;
        if self.trace.is_some() && from != to {
            let (id, to, kind) = (self.sent, self.nodes[to].id, message.kind());
            self.note(from, EventKind::Send { to, id, kind, text: message.to_string() });
        }
        self.sent
    }

    fn is_cut(&self, a: NodeId, b: NodeId) -> bool {
        self.cut.as_ref().is_some_and(|side| side.contains(&a) != side.contains(&b))
    }
}

/// The workload: who asks, enters and leaves.
impl<P: Protocol> World<'_, P> {
    fn start_load(&mut self) {
        match self.config.load {
            Load::Saturated => {
                for at in 0..self.nodes.len() {
                    self.ask_again(at);
                }
            }
            Load::Rate(_) => self.schedule_arrival(),
            Load::Light | Load::Hotspot(_) => self.offer_next(),
        }
    }

    /// Saturated: a node that is free asks.
    fn ask_again(&mut self, at: usize) {
        let node = &self.nodes[at];
        let ready = node.member && node.protocol.is_some() && !node.paused && node.phase == Phase::Idle;
        if ready && self.issued < self.config.entries {
            let mode = self.draw_mode();
            let wish = self.issue(at, mode);
            self.begin(at, wish);
        }
    }

    /// What comes next without a clock: the next single request, or everybody who is free.
    fn offer_next(&mut self) {
        match self.config.load {
            Load::Light | Load::Hotspot(_) if self.outstanding == 0 && self.in_flight == 0 => {
                if self.issued < self.config.entries
                    && let Some(at) = self.draw_node()
                {
                    let mode = self.draw_mode();
                    let wish = self.issue(at, mode);
                    self.begin(at, wish);
                }
            }
            // Founders never stop asking; those who came or came back later start here.
            Load::Saturated if self.needs.membership || self.needs.recovery => {
                for at in 0..self.nodes.len() {
                    self.ask_again(at);
                }
            }
            _ => {}
        }
    }

    fn schedule_arrival(&mut self) {
        if let (Load::Rate(rate), true) = (self.config.load, self.issued < self.config.entries) {
            let wait = self.rng.exponential(self.config.tick() as f64 / rate) as Ticks;
            self.queue.push(self.now + wait, Happening::Arrive);
        }
    }

    fn arrive(&mut self) {
        if self.issued >= self.config.entries {
            return;
        }
        match self.draw_node() {
            Some(at) => {
                let mode = self.draw_mode();
                let wish = self.issue(at, mode);
                if self.nodes[at].phase == Phase::Idle {
                    self.begin(at, wish);
                } else {
                    // 'It must have a method for serializing those requests': first come, first served.
                    self.nodes[at].backlog.push_back(wish);
                }
            }
            // Nobody is there to ask, and nobody will be.
            None if self.fault_events.is_empty() && self.in_flight == 0 => return,
            None => {}
        }
        self.schedule_arrival();
    }

    fn draw_node(&mut self) -> Option<usize> {
        let can = |node: &Node<P>| node.member && node.protocol.is_some() && !node.paused;
        let last = self.last_entered.filter(|_| self.config.load == Load::Light);
        // The lowest node that asks: a server has the lowest id of all, and never does.
        let hot = usize::from(self.needs.server);
        if let Load::Hotspot(share) = self.config.load
            && can(&self.nodes[hot])
            && self.rng.chance(share)
        {
            return Some(hot);
        }
        let skip_first = matches!(self.config.load, Load::Hotspot(_)) && self.config.nodes.len() > 1;
        let eligible = |at: usize| can(&self.nodes[at]) && Some(at) != last && !(skip_first && at == hot);
        let count = (0..self.nodes.len()).filter(|at| eligible(*at)).count() as u64;
        if count == 0 {
            return (0..self.nodes.len()).find(|at| can(&self.nodes[*at]));
        }
        let pick = self.rng.below(count) as usize;
        (0..self.nodes.len()).filter(|at| eligible(*at)).nth(pick)
    }

    fn draw_mode(&mut self) -> Mode {
        if self.rng.chance(self.config.readers) { Mode::Shared } else { Mode::Exclusive }
    }

    fn issue(&mut self, at: usize, mode: Mode) -> Wish {
        if self.outstanding == 0 {
            self.progress.on_progress(self.now); // Nobody waited until now.
        }
        self.issued += 1;
        self.outstanding += 1;
        let own_entries = self.nodes[at].entries;
        Wish { mode, since: self.now, entries: self.overtaking.on_request(), own_entries }
    }

    fn begin(&mut self, at: usize, wish: Wish) {
        let mode = wish.mode;
        self.nodes[at].phase = Phase::Waiting(wish);
        self.note(at, EventKind::Request(mode));
        let draw = self.rng.next_u64() as u32;
        self.handle(at, Input::Acquire { mode, draw });
        if self.watch_numbers {
            let numbers = || self.nodes.iter().filter_map(|node| node.protocol.as_ref()?.request_number());
            let gap = numbers().max().unwrap_or(0) - numbers().min().unwrap_or(0);
            self.spread.widest = self.spread.widest.max(gap);
        }
    }

    fn enter(&mut self, at: usize, fence: Fence) {
        let id = self.nodes[at].id;
        let Phase::Waiting(Wish { mode, since, entries, own_entries }) = self.nodes[at].phase else {
            let text = format!("node {id} entered without having asked");
            return self.violate(at, Violation { property: "protocol", text });
        };
        self.note(at, EventKind::Enter { mode, fence: fence.get() });
        let found = [
            self.exclusion.on_enter(id, mode),
            if self.needs.fences { self.fences.on_enter(id, mode, fence) } else { None },
            self.overtaking.on_enter(id, entries, self.nodes[at].entries - own_entries),
        ];
        found.into_iter().flatten().for_each(|violation| self.violate(at, violation));
        self.progress.on_progress(self.now);
        self.response_times.push(self.now - since);
        if let Some(left) = self.left_at.take() {
            self.sync_sum += (self.now - left) as f64;
            self.sync_count += 1;
            self.sync_max = self.sync_max.max(self.now - left);
        }
        self.last_entered = Some(at);
        let node = &mut self.nodes[at];
        node.entries += 1;
        let entry = node.entries;
        node.phase = Phase::Inside { mode, entry };
        self.queue.push(self.now + self.config.hold, Happening::Exit { node: at as u32, entry });
    }

    fn exit(&mut self, at: usize, entry: u64) {
        let Phase::Inside { mode, entry: current } = self.nodes[at].phase else { return };
        if current != entry {
            return;
        }
        if self.nodes[at].paused {
            return self.nodes[at].parked.push(Happening::Exit { node: at as u32, entry });
        }
        self.nodes[at].phase = Phase::Idle;
        self.outstanding -= 1;
        self.exclusion.on_exit(self.nodes[at].id, mode);
        let somebody_waits = self.nodes.iter().any(|node| matches!(node.phase, Phase::Waiting(_)));
        self.left_at = (self.exclusion.is_free() && somebody_waits).then_some(self.now);
        self.note(at, EventKind::Exit);
        self.handle(at, Input::Release);
        if let Some(wish) = self.nodes[at].backlog.pop_front() {
            return self.begin(at, wish);
        }
        if self.config.load == Load::Saturated {
            self.ask_again(at);
        }
    }
}
