use std::fmt;

use hallpass_core::protocol::{Medium, Needs};
use hallpass_core::{
    Bounds, Effect, Effects, InitialHolders, Input, Message, Mode, NodeId, Protocol, Setup, Ticks, View,
};

use crate::oracle::{Exclusion, FenceOrder, Violation};
use crate::trace::{Event, EventKind};
use crate::{ConfigError, Order};

/// What does not change while a [`Model`] is played on.
#[derive(Clone, Debug)]
pub struct ModelConfig<P: Protocol> {
    view: View,
    /// All nodes, the founding members first.
    ids: Vec<NodeId>,
    options: P::Options,
    needs: Needs,
    draws: u32,
    order: Order,
    limits: Limits,
    /// How many slots a message may be under way, where the protocol counts on a bound; else time does not exist.
    delay: Option<u8>,
    drops_moot: bool,
}

/// How much may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests a node; `None` for ever.
    pub entries: Option<u8>,
    /// Requests of the node with the highest id, if it makes another number of them.
    pub last_entries: Option<u8>,
    /// Cancellations in all; `None` for as many as there are requests.
    pub cancels: Option<u8>,
    /// Requests may be shared.
    pub readers: bool,
    /// Crashes in all.
    pub crashes: u8,
    /// Restarts in all.
    pub restarts: u8,
    /// Messages lost in all.
    pub losses: u8,
    /// Messages repeated in all.
    pub duplicates: u8,
    /// Nodes that join.
    pub joins: u8,
    /// Nodes that leave.
    pub leaves: u8,
}

/// The nodes and the messages between them, with every next step open.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Model<P: Protocol> {
    actors: Vec<Actor<P>>,
    /// Messages under way, sorted, so that equal networks are equal. On lanes that keep order, in that order.
    packets: Vec<Packet<P::Message>>,
    exclusion: Exclusion,
    fences: FenceOrder,
    left: Left,
    /// While somebody is watched: entries by others since it asked.
    overtaken: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Actor<P: Protocol> {
    /// None while it is down or outside.
    protocol: Option<P>,
    phase: Phase,
    asks_left: u8,
    /// Timers that are set, with the slots left where time exists.
    timers: Vec<(P::Timer, u16)>,
    incarnation: u8,
    member: bool,
    leaving: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Idle,
    Waiting(Mode),
    Inside(Mode),
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Packet<M> {
    to: u8,
    /// The sender's position, or [`MEDIUM`].
    lane: u8,
    message: M,
    from: u8,
    due: u8,
}

/// The lane of broadcasts on a sequenced medium.
const MEDIUM: u8 = u8::MAX;
/// In place of the slots left, for a timer that may fire at any time.
const ANY_TIME: u16 = u16::MAX;

/// A wait of this length or more does not end, short of `u64::MAX`, which may end at any time.
const NEVER: Ticks = u64::MAX / 1024;

/// What is left of [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Left {
    cancels: u8,
    crashes: u8,
    restarts: u8,
    losses: u8,
    duplicates: u8,
    joins: u8,
    leaves: u8,
}

/// One thing that may happen next. Nodes and packets are given by their positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A node's caller asks, with one of the draws that matter.
    Ask(u8, Mode, u8),
    /// A waiting caller gives up.
    Cancel(u8),
    /// Whoever is inside leaves.
    Exit(u8),
    /// A message arrives.
    Deliver(u16),
    /// A message is lost.
    Lose(u16),
    /// A message is repeated.
    Repeat(u16),
    /// A node's timer fires, by its position.
    Timeout(u8, u8),
    /// One slot of time passes.
    Tick,
    /// A node dies.
    Crash(u8),
    /// A dead node starts anew.
    Restart(u8),
    /// The next newcomer asks to join.
    Join(u8),
    /// A member asks to leave.
    Leave(u8),
}

impl<P: Protocol> ModelConfig<P> {
    /// Nodes, options and limits, found to fit together.
    pub fn new(nodes: &[NodeId], options: P::Options, order: Order, limits: Limits) -> Result<Self, ConfigError> {
        let view = View::new(nodes.iter().copied());
        let needs = P::needs(&options);
        let refuse = |why: &str| Err(ConfigError(why.to_owned()));
        if view.members().is_empty() || view.members().len() > 32 {
            return refuse("exploration takes 1 to 32 nodes");
        }
        if let (Some(option), Order::Any) = (needs.fifo, order) {
            return refuse(&format!("{option} needs links that keep order; add --order fifo"));
        }
        if let Some(why) = needs.no_shared.filter(|_| limits.readers) {
            return refuse(why);
        }
        if let Some(why) = needs.no_cancel.filter(|_| limits.cancels != Some(0)) {
            return refuse(why);
        }
        if let Some(why) = needs.no_loss.filter(|_| limits.losses + limits.duplicates > 0) {
            return refuse(why);
        }
        if limits.restarts > 0 && !needs.membership && !needs.recovery {
            return refuse("restart needs a protocol whose nodes come back, such as --option membership=classic");
        }
        if limits.joins + limits.leaves > 0 && !needs.membership {
            return refuse("join and leave need a protocol whose members change; add --option membership=classic");
        }
        if let Some(why) = needs.unexplorable {
            return refuse(why);
        }
        if needs.server && view.members().contains(&NodeId::SERVER) {
            return refuse("0 is the server's number; name the nodes otherwise");
        }
        let newest = view.members().last().map_or(0, |node| node.0);
        if newest > u32::MAX - 256 {
            return refuse("node numbers leave no room above them for newcomers");
        }
        let newcomers = (1..=u32::from(limits.joins)).map(|n| NodeId(newest + n));
        // A server comes last, but for newcomers, which no protocol with a server takes.
        let server = needs.server.then_some(NodeId::SERVER);
        let ids = view.members().iter().copied().chain(server).chain(newcomers).collect();
        let delay = needs.delay_bound.map(|_| 1);
        Ok(Self { view, ids, draws: P::draws(&options), options, needs, order, limits, delay, drops_moot: true })
    }

    /// Messages that would change nothing stay until they are delivered: for those who watch every one of them.
    pub fn keeping_moot(self) -> Self {
        Self { drops_moot: false, ..self }
    }

    /// All nodes, newcomers last.
    pub fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    /// The position of a node.
    pub fn position(&self, id: NodeId) -> Option<u8> {
        self.ids.iter().position(|known| *known == id).map(|at| at as u8)
    }

    fn protocol(&self, at: usize, incarnation: u8) -> P {
        // A slot is a T. A section may always be left later, so nobody gives up waiting for one, unless nodes or messages
        // may be gone for good: then the earliest moment to ask after them is the hardest test.
        let section_max = if self.limits.crashes + self.limits.losses > 0 { 0 } else { NEVER };
        let bounds = Bounds { transit_max: u64::from(self.delay.unwrap_or(0)), section_max };
        let incarnation = incarnation.into();
        P::new(&Setup {
            me: self.ids[at],
            view: &self.view,
            initial: InitialHolders::NOBODY,
            incarnation,
            bounds,
            options: &self.options,
        })
    }

    fn is_server(&self, at: u8) -> bool {
        self.needs.server && self.ids[usize::from(at)] == NodeId::SERVER
    }

    /// True if packets of a lane arrive in the order in which they were sent.
    fn keeps_order(&self, lane: u8) -> bool {
        self.order == Order::Fifo || lane == MEDIUM
    }
}

impl<P: Protocol> Model<P> {
    /// The model before the first step.
    pub fn new(config: &ModelConfig<P>) -> Self {
        let founders = config.view.members().len();
        let started = founders + usize::from(config.needs.server);
        let limits = &config.limits;
        let mut model = Self {
            actors: (0..config.ids.len())
                .map(|at| Actor {
                    protocol: (at < started).then(|| config.protocol(at, 0)),
                    phase: Phase::Idle,
                    asks_left: limits
                        .last_entries
                        .filter(|_| at + 1 == config.ids.len())
                        .or(limits.entries)
                        .unwrap_or(u8::MAX),
                    timers: Vec::new(),
                    incarnation: 0,
                    member: at < founders,
                    leaving: false,
                })
                .collect(),
            packets: Vec::new(),
            exclusion: Exclusion::default(),
            fences: FenceOrder::default(),
            left: Left {
                cancels: limits.cancels.unwrap_or(u8::MAX),
                crashes: limits.crashes,
                restarts: limits.restarts,
                losses: limits.losses,
                duplicates: limits.duplicates,
                joins: limits.joins,
                leaves: limits.leaves,
            },
            overtaken: 0,
        };
        if config.needs.start {
            for (at, sponsor) in config.ids.iter().enumerate().take(started) {
                let input = Input::Join { sponsor: *sponsor };
                model.handle(config, at as u8, input, &mut Scratch::default(), &mut None);
            }
        }
        model
    }

    /// Appends every step that may come next.
    pub fn steps(&self, config: &ModelConfig<P>, out: &mut Vec<Step>) {
        for (at, actor) in self.actors.iter().enumerate() {
            self.steps_of(config, at as u8, actor, out);
        }
        for (at, packet) in self.packets.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &self.packets[before]);
            let blocked = before.is_some_and(|before| {
                let same_lane = (before.to, before.lane) == (packet.to, packet.lane);
                (same_lane && config.keeps_order(packet.lane)) || before == packet
            });
            if !blocked {
                out.push(Step::Deliver(at as u16));
                if self.left.losses > 0 {
                    out.push(Step::Lose(at as u16));
                }
                if self.left.duplicates > 0 {
                    out.push(Step::Repeat(at as u16));
                }
            }
        }
        if config.delay.is_some() && self.may_tick() {
            out.push(Step::Tick);
        }
    }

    fn steps_of(&self, config: &ModelConfig<P>, at: u8, actor: &Actor<P>, out: &mut Vec<Step>) {
        if actor.protocol.is_none() {
            if self.left.joins > 0 && usize::from(at) == config.ids.len() - usize::from(self.left.joins) {
                out.push(Step::Join(at));
            } else if self.left.restarts > 0 && !actor.leaving && usize::from(at) < config.view.members().len() {
                out.push(Step::Restart(at));
            }
            return;
        }
        match actor.phase {
            Phase::Idle if actor.asks_left > 0 && !actor.leaving && !config.is_server(at) => {
                let modes: &[Mode] =
                    if config.limits.readers { &[Mode::Exclusive, Mode::Shared] } else { &[Mode::Exclusive] };
                for mode in modes {
                    out.extend((0..config.draws.min(8) as u8).map(|draw| Step::Ask(at, *mode, draw)));
                }
            }
            Phase::Idle => {}
            Phase::Waiting(_) if self.left.cancels > 0 => out.push(Step::Cancel(at)),
            Phase::Waiting(_) => {}
            Phase::Inside(_) => out.push(Step::Exit(at)),
        }
        for (timer, (_, slots)) in actor.timers.iter().enumerate() {
            if config.delay.is_none() || *slots == 0 || *slots == ANY_TIME {
                out.push(Step::Timeout(at, timer as u8));
            }
        }
        if self.left.crashes > 0 && !config.is_server(at) {
            out.push(Step::Crash(at));
        }
        // Whoever newcomers ask stays: a newcomer whose sponsor is gone asks another, which takes time, not a new order.
        let needed = at == 0 && config.limits.joins > 0;
        if self.left.leaves > 0 && actor.member && !actor.leaving && !needed {
            out.push(Step::Leave(at));
        }
    }

    /// Time passes only once everything that is due has happened, and while something is under way.
    fn may_tick(&self) -> bool {
        let mut timers =
            self.actors.iter().flat_map(|actor| &actor.timers).filter(|(_, slots)| *slots != ANY_TIME).peekable();
        let something = !self.packets.is_empty() || timers.peek().is_some();
        something && self.packets.iter().all(|packet| packet.due > 0) && timers.all(|(_, slots)| *slots > 0)
    }

    /// Takes one step. Says what it violates, and writes what happened into the trace if there is one.
    pub fn take(
        &mut self,
        config: &ModelConfig<P>,
        step: Step,
        scratch: &mut Scratch<P>,
        mut trace: Option<&mut Vec<Event>>,
    ) -> Option<Violation> {
        let note = &mut trace;
        match step {
            Step::Ask(at, mode, draw) => {
                self.note(config, note, at, EventKind::Request(mode));
                let actor = &mut self.actors[usize::from(at)];
                actor.phase = Phase::Waiting(mode);
                if config.limits.entries.is_some() {
                    actor.asks_left -= 1;
                }
                self.handle(config, at, Input::Acquire { mode, draw: draw.into() }, scratch, note)
            }
            Step::Cancel(at) => {
                self.note(config, note, at, EventKind::Cancel);
                if config.limits.cancels.is_some() {
                    self.left.cancels -= 1;
                }
                self.actors[usize::from(at)].phase = Phase::Idle;
                self.handle(config, at, Input::Cancel, scratch, note)
            }
            Step::Exit(at) => {
                self.note(config, note, at, EventKind::Exit);
                self.exit(config, at);
                self.handle(config, at, Input::Release, scratch, note)
            }
            Step::Deliver(index) => {
                let packet = self.packets.remove(index.into());
                self.deliver(config, packet, scratch, note)
            }
            Step::Lose(index) => {
                let packet = self.packets.remove(index.into());
                self.left.losses -= 1;
                self.note_arrival(config, note, &packet, true);
                None
            }
            Step::Repeat(index) => {
                let packet = self.packets[usize::from(index)].clone();
                self.left.duplicates -= 1;
                self.packets.insert(usize::from(index), packet);
                None
            }
            Step::Timeout(at, position) => {
                let (timer, _) = self.actors[usize::from(at)].timers.remove(position.into());
                self.note(config, note, at, EventKind::Timer(format!("{timer:?}")));
                self.handle(config, at, Input::Timeout(timer), scratch, note)
            }
            Step::Tick => {
                self.packets.iter_mut().for_each(|packet| packet.due -= 1);
                let timers = self.actors.iter_mut().flat_map(|actor| &mut actor.timers);
                timers.filter(|(_, slots)| *slots != ANY_TIME).for_each(|(_, slots)| *slots -= 1);
                self.packets_are_sorted(config);
                None
            }
            Step::Crash(at) => {
                self.note(config, note, at, EventKind::Crash);
                self.left.crashes -= 1;
                self.switch_off(config, at);
                None
            }
            Step::Restart(at) => {
                self.left.restarts -= 1;
                self.start(config, at, scratch, note)
            }
            Step::Join(at) => {
                self.left.joins -= 1;
                self.note(config, note, at, EventKind::Join);
                self.actors[usize::from(at)].protocol = Some(config.protocol(at.into(), 0));
                let sponsor = self.sponsor(config, at);
                self.handle(config, at, Input::Join { sponsor }, scratch, note)
            }
            Step::Leave(at) => {
                self.left.leaves -= 1;
                self.note(config, note, at, EventKind::Leave);
                self.actors[usize::from(at)].leaving = true;
                self.handle(config, at, Input::Leave, scratch, note)
            }
        }
    }

    /// If nothing more must happen, says who waits for ever. Steps that nobody owes anybody do not count: that a caller may
    /// give up, or a node die, is no way out for those who wait.
    pub fn check_end(&self, config: &ModelConfig<P>) -> Option<Violation> {
        let waits = |actor: &Actor<P>| matches!(actor.phase, Phase::Waiting(_));
        let waiting: Vec<NodeId> =
            (0..config.ids.len()).filter(|at| waits(&self.actors[*at])).map(|at| config.ids[at]).collect();
        crate::oracle::Progress::new(0).on_end(&waiting)
    }

    /// How often the node at the last position has been overtaken since it asked.
    pub fn overtaken(&self) -> u64 {
        self.overtaken.into()
    }

    /// A node's part, while it is up.
    pub fn protocol(&self, at: u8) -> Option<&P> {
        self.actors[usize::from(at)].protocol.as_ref()
    }

    /// True if the node's caller is inside.
    pub fn is_inside(&self, at: u8) -> bool {
        matches!(self.actors[usize::from(at)].phase, Phase::Inside(_))
    }

    /// True if the node's caller waits.
    pub fn is_waiting(&self, at: u8) -> bool {
        matches!(self.actors[usize::from(at)].phase, Phase::Waiting(_))
    }

    /// Messages under way: their positions, senders, receivers and what they say.
    pub fn packets(&self) -> impl Iterator<Item = (u16, u8, u8, &P::Message)> {
        self.packets.iter().enumerate().map(|(at, packet)| (at as u16, packet.from, packet.to, &packet.message))
    }

    /// The timers a node has set, by position.
    pub fn timers(&self, at: u8) -> impl Iterator<Item = P::Timer> + '_ {
        self.actors[usize::from(at)].timers.iter().map(|(timer, _)| *timer)
    }

    fn handle(
        &mut self,
        config: &ModelConfig<P>,
        at: u8,
        input: Input<P::Message, P::Timer>,
        scratch: &mut Scratch<P>,
        trace: &mut Option<&mut Vec<Event>>,
    ) -> Option<Violation> {
        let protocol = self.actors[usize::from(at)].protocol.as_mut()?;
        let mut effects = std::mem::take(&mut scratch.effects);
        protocol.handle(input, &mut effects);
        let (mut violation, mut restart) = (None, false);
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { to, message } => {
                    if let Some(to) = config.position(to) {
                        self.post(config, at, to, at, message, trace);
                    }
                }
                Effect::Broadcast { message } => self.broadcast(config, at, &message, trace),
                Effect::Enter { fence } => violation = violation.or(self.enter(config, at, fence, trace)),
                Effect::SetTimer { after, .. } if (NEVER..u64::MAX).contains(&after.max) => {}
                Effect::SetTimer { timer, after } => {
                    let slots =
                        if after.max == u64::MAX { ANY_TIME } else { after.max.min(u64::from(ANY_TIME) - 1) as u16 };
                    let timers = &mut self.actors[usize::from(at)].timers;
                    timers.retain(|(other, _)| *other != timer);
                    timers.push((timer, if config.delay.is_some() { slots } else { 0 }));
                    timers.sort_unstable();
                }
                Effect::CancelTimer(timer) => self.actors[usize::from(at)].timers.retain(|(other, _)| *other != timer),
                Effect::Joined => {
                    self.actors[usize::from(at)].member = true;
                    self.note(config, trace, at, EventKind::Joined);
                }
                Effect::Left => {
                    self.note(config, trace, at, EventKind::Left);
                    self.switch_off(config, at);
                }
                Effect::Restart => restart = true,
            }
        }
        scratch.effects = effects;
        if restart {
            violation = violation.or(self.start(config, at, scratch, trace));
        }
        if config.drops_moot {
            self.drop_moot(config, at);
        }
        violation
    }

    /// Drops what would change nothing whenever it arrived: fewer states, the same behaviours.
    fn drop_moot(&mut self, config: &ModelConfig<P>, at: u8) {
        let Some(protocol) = &self.actors[usize::from(at)].protocol else { return };
        self.packets.retain(|packet| packet.to != at || !is_moot(config, protocol, packet.from, &packet.message));
    }

    fn deliver(
        &mut self,
        config: &ModelConfig<P>,
        packet: Packet<P::Message>,
        scratch: &mut Scratch<P>,
        trace: &mut Option<&mut Vec<Event>>,
    ) -> Option<Violation> {
        let down = self.actors[usize::from(packet.to)].protocol.is_none();
        self.note_arrival(config, trace, &packet, down);
        if down {
            return None;
        }
        let from = config.ids[usize::from(packet.from)];
        self.handle(config, packet.to, Input::Deliver { from, message: packet.message }, scratch, trace)
    }

    fn broadcast(
        &mut self,
        config: &ModelConfig<P>,
        at: u8,
        message: &P::Message,
        trace: &mut Option<&mut Vec<Event>>,
    ) {
        let sequenced = config.needs.medium == Medium::Sequenced;
        for to in (0..config.ids.len() as u8).filter(|to| sequenced || *to != at) {
            self.post(config, at, to, if sequenced { MEDIUM } else { at }, message.clone(), trace);
        }
    }

    fn post(
        &mut self,
        config: &ModelConfig<P>,
        from: u8,
        to: u8,
        lane: u8,
        message: P::Message,
        trace: &mut Option<&mut Vec<Event>>,
    ) {
        if trace.is_some() && from != to {
            let (to, kind, text) = (config.ids[usize::from(to)], message.kind(), message.to_string());
            self.note(config, trace, from, EventKind::Send { to, id: 0, kind, text });
        }
        let receiver = self.actors[usize::from(to)].protocol.as_ref();
        if config.drops_moot && receiver.is_some_and(|receiver| is_moot(config, receiver, from, &message)) {
            return;
        }
        let packet = Packet { to, lane, message, from, due: config.delay.unwrap_or(0) };
        let at = if config.keeps_order(lane) {
            self.packets.partition_point(|other| (other.to, other.lane) <= (to, lane))
        } else {
            self.packets.partition_point(|other| *other < packet)
        };
        self.packets.insert(at, packet);
    }

    /// Lanes without order are sorted by all that a packet is; time changes that for all packets alike, but for those due.
    fn packets_are_sorted(&mut self, config: &ModelConfig<P>) {
        if config.order == Order::Any && config.needs.medium != Medium::Sequenced {
            self.packets.sort_unstable();
        }
    }

    fn enter(
        &mut self,
        config: &ModelConfig<P>,
        at: u8,
        fence: hallpass_core::Fence,
        trace: &mut Option<&mut Vec<Event>>,
    ) -> Option<Violation> {
        let id = config.ids[usize::from(at)];
        let Phase::Waiting(mode) = self.actors[usize::from(at)].phase else {
            return Some(Violation { property: "protocol", text: format!("node {id} entered without having asked") });
        };
        self.actors[usize::from(at)].phase = Phase::Inside(mode);
        self.note(config, trace, at, EventKind::Enter { mode, fence: fence.get() });
        let last = config.view.members().len() - 1;
        if usize::from(at) == last {
            self.overtaken = 0;
        } else if matches!(self.actors[last].phase, Phase::Waiting(_)) {
            self.overtaken += 1;
        }
        let exclusion = self.exclusion.on_enter(id, mode);
        let fences = if config.needs.fences { self.fences.on_enter(id, mode, fence) } else { None };
        let violation = exclusion.or(fences);
        if let Some(violation) = &violation {
            self.note(config, trace, at, EventKind::Violation(violation.to_string()));
        }
        violation
    }

    fn exit(&mut self, config: &ModelConfig<P>, at: u8) {
        if let Phase::Inside(mode) = std::mem::replace(&mut self.actors[usize::from(at)].phase, Phase::Idle) {
            self.exclusion.on_exit(config.ids[usize::from(at)], mode);
        }
    }

    fn switch_off(&mut self, config: &ModelConfig<P>, at: u8) {
        self.exit(config, at);
        let actor = &mut self.actors[usize::from(at)];
        actor.protocol = None;
        actor.phase = Phase::Idle;
        actor.member = false;
        actor.timers.clear();
    }

    /// A new life; a caller that waits keeps waiting.
    fn start(
        &mut self,
        config: &ModelConfig<P>,
        at: u8,
        scratch: &mut Scratch<P>,
        trace: &mut Option<&mut Vec<Event>>,
    ) -> Option<Violation> {
        self.note(config, trace, at, EventKind::Restart);
        let actor = &mut self.actors[usize::from(at)];
        actor.incarnation = actor.incarnation.checked_add(1).expect("a run has few restarts");
        actor.member = false;
        actor.timers.clear();
        actor.protocol = Some(config.protocol(at.into(), actor.incarnation));
        let phase = actor.phase;
        let sponsor = self.sponsor(config, at);
        let first = self.handle(config, at, Input::Join { sponsor }, scratch, trace);
        let Phase::Waiting(mode) = phase else { return first };
        first.or(self.handle(config, at, Input::Acquire { mode, draw: 0 }, scratch, trace))
    }

    /// The lowest member that is up, whoever asks.
    fn sponsor(&self, config: &ModelConfig<P>, at: u8) -> NodeId {
        let up = |other: &usize| {
            self.actors[*other].member && self.actors[*other].protocol.is_some() && *other != usize::from(at)
        };
        config.ids[(0..self.actors.len()).find(up).unwrap_or(0)]
    }

    fn note(&self, config: &ModelConfig<P>, trace: &mut Option<&mut Vec<Event>>, at: u8, kind: EventKind) {
        if let Some(trace) = trace {
            trace.push(Event { at: 0, node: config.ids[usize::from(at)], kind });
        }
    }

    fn note_arrival(
        &self,
        config: &ModelConfig<P>,
        trace: &mut Option<&mut Vec<Event>>,
        packet: &Packet<P::Message>,
        lost: bool,
    ) {
        if trace.is_some() {
            let (from, kind, text) =
                (config.ids[usize::from(packet.from)], packet.message.kind(), packet.message.to_string());
            let kind = if lost {
                EventKind::Lose { from, id: 0, kind, text }
            } else {
                EventKind::Deliver { from, id: 0, kind, text }
            };
            self.note(config, trace, packet.to, kind);
        }
    }
}

/// Asks the protocol, and in debug builds makes sure that it tells the truth about now.
fn is_moot<P: Protocol>(config: &ModelConfig<P>, protocol: &P, from: u8, message: &P::Message) -> bool {
    let from = config.ids[usize::from(from)];
    let moot = protocol.is_moot(from, message);
    if cfg!(debug_assertions) && moot {
        let (mut after, mut effects) = (protocol.clone(), Effects::new());
        after.handle(Input::Deliver { from, message: message.clone() }, &mut effects);
        assert!(effects.is_empty() && after == *protocol, "{message} is not moot for {protocol:?}");
    }
    moot
}

/// Buffers that a caller keeps between steps, so that a step allocates nothing it does not keep.
#[derive(Debug)]
pub struct Scratch<P: Protocol> {
    effects: Effects<P::Message, P::Timer>,
}

impl<P: Protocol> Default for Scratch<P> {
    fn default() -> Self {
        Self { effects: Effects::new() }
    }
}

impl Step {
    /// True if it happens sooner or later; false if somebody, or fate, may choose that it never does.
    pub fn must_happen(self) -> bool {
        match self {
            Self::Exit(_) | Self::Deliver(_) | Self::Timeout(..) | Self::Tick | Self::Restart(_) => true,
            Self::Ask(..) | Self::Cancel(_) | Self::Lose(_) | Self::Repeat(_) => false,
            Self::Crash(_) | Self::Join(_) | Self::Leave(_) => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl<P: Protocol> ModelConfig<P> {
    /// Plays steps from the beginning and keeps everything that happened. Stops at the first violation.
    pub fn play(&self, steps: &[Step]) -> (Vec<Event>, Option<Violation>) {
        let (mut model, mut scratch, mut events) = (Model::new(self), Scratch::default(), Vec::new());
        let mut violation = None;
        for (number, step) in steps.iter().enumerate() {
            let before = events.len();
            violation = model.take(self, *step, &mut scratch, Some(&mut events));
            events[before..].iter_mut().for_each(|event| event.at = number as u64 + 1);
            if violation.is_some() {
                break;
            }
        }
        crate::trace::link(&mut events);
        (events, violation)
    }
}
