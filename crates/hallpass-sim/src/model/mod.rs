//! The same protocols without a clock or chance: at every point, all steps that may come next are open.
//!
//! A state is cloned, compared and hashed millions of times in an exploration, so it is kept small: nodes are named by
//! their position in [`ModelConfig::ids`] and counters are bytes.

mod apply;
mod config;
mod countdown;
mod holders;
mod limits;
mod network;
mod step;

use hallpass_core::{Effects, Input, Mode, NodeId, Protocol};

use crate::oracle::{Exclusion, FenceOrder, Progress, Violation, check_bound};
use crate::trace::{Event, EventKind};

pub use config::ModelConfig;
pub use holders::Holders;
pub use limits::Limits;
pub use network::InFlight;
pub use step::Step;

use countdown::Countdown;
use limits::{Quota, Remaining};
use network::Packet;

/// The nodes and the messages between them, with every next step open.
///
/// - **Inputs**: [`apply`](Self::apply) takes one of the steps that [`steps`](Self::steps) lists.
/// - **Outputs**: the violation that a step causes; [`check_end`](Self::check_end) once no step must happen any more.
/// - **Getters**: the rest, for observers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Model<P: Protocol> {
    actors: Vec<Actor<P>>,
    /// Messages in flight, sorted, so that equal networks are equal. On lanes that keep order, in that order.
    packets: Vec<Packet<P::Message>>,
    exclusion: Exclusion,
    fences: FenceOrder,
    remaining: Remaining,
    /// Entries by others since the last founding member asked.
    overtaken: u16,
}

/// One node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Actor<P: Protocol> {
    /// None while it is down or not yet a member.
    protocol: Option<P>,
    phase: Phase,
    requests_left: Quota,
    /// The timers that are set, sorted.
    timers: Vec<(P::Timer, Countdown)>,
    incarnation: u8,
    member: bool,
    leaving: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Idle,
    Waiting(Mode),
    /// As waiting, but not for a holder.
    Trying(Mode),
    Inside(Mode),
    /// Inside in shared mode, and it has asked to be alone.
    Upgrading,
}

/// Buffers that a caller keeps between steps, so that a step allocates nothing that it does not keep.
#[derive(Debug)]
pub struct Scratch<P: Protocol> {
    effects: Effects<P::Message, P::Timer>,
}

impl<P: Protocol> Default for Scratch<P> {
    fn default() -> Self {
        Self { effects: Effects::new() }
    }
}

/// What a step needs besides the model: the configuration, buffers, and the trace if one is kept.
struct Context<'a, P: Protocol> {
    config: &'a ModelConfig<P>,
    scratch: &'a mut Scratch<P>,
    trace: Option<&'a mut Vec<Event>>,
}

impl<P: Protocol> Context<'_, P> {
    fn id(&self, node: u8) -> NodeId {
        self.config.ids[usize::from(node)]
    }

    fn record(&mut self, node: u8, kind: EventKind) {
        self.record_with(node, || kind);
    }

    /// For what takes time to describe.
    fn record_with(&mut self, node: u8, kind: impl FnOnce() -> EventKind) {
        let node = self.id(node);
        if let Some(trace) = &mut self.trace {
            trace.push(Event { at: 0, node, kind: kind() });
        }
    }
}

impl<P: Protocol> Model<P> {
    /// The model before the first step.
    pub fn new(config: &ModelConfig<P>) -> Self {
        let limits = &config.limits;
        let count = config.ids.len();
        let founders = config.view.members().len();
        let started = founders + usize::from(config.needs.server);
        let actor = |index: usize| {
            let last_entries = limits.last_entries.filter(|_| index + 1 == count);
            let own_entries = last_entries.or(limits.first_entries.filter(|_| index == 0));
            Actor {
                protocol: (index < started).then(|| config.first_protocol(index)),
                phase: Phase::Idle,
                requests_left: Quota::new(own_entries.or(limits.entries)),
                timers: Vec::new(),
                incarnation: 0,
                member: index < founders,
                leaving: false,
            }
        };
        let mut model = Self {
            actors: (0..count).map(actor).collect(),
            packets: Vec::new(),
            exclusion: Exclusion::default(),
            fences: FenceOrder::default(),
            remaining: Remaining::new(limits),
            overtaken: 0,
        };
        for node in config.holders.nodes.iter().filter_map(|id| config.position(*id)) {
            let mode = config.holders.mode;
            model.actor_mut(node).phase = Phase::Inside(mode);
            model.exclusion.on_enter(config.ids[usize::from(node)], mode);
        }
        if config.needs.start {
            let mut context = Context { config, scratch: &mut Scratch::default(), trace: None };
            for (index, sponsor) in config.ids.iter().enumerate().take(started) {
                model.handle_input(&mut context, index as u8, Input::Join { sponsor: *sponsor });
            }
        }
        model
    }

    /// Call this if no step is left that [must happen](Step::must_happen): names the nodes that wait forever.
    ///
    /// Optional steps do not help a node that waits: its caller need not give up, and no node need crash.
    pub fn check_end(&self, config: &ModelConfig<P>) -> Option<Violation> {
        let waits = |actor: &Actor<P>| matches!(actor.phase, Phase::Waiting(_) | Phase::Trying(_) | Phase::Upgrading);
        let nodes = config.ids.iter().zip(&self.actors);
        let waiting: Vec<NodeId> = nodes.filter(|(_, actor)| waits(actor)).map(|(id, _)| *id).collect();
        Progress::new(0).on_end(&waiting)
    }

    /// How often the founding member at the last position has been overtaken since it asked.
    pub fn overtaken(&self) -> u64 {
        self.overtaken.into()
    }

    /// A node's protocol instance, while it is up.
    pub fn protocol(&self, node: u8) -> Option<&P> {
        self.actor(node).protocol.as_ref()
    }

    /// What a state must be like in which nothing is in flight: nobody who only tries waits, no reader waits for readers, and
    /// nobody remembers a lock that nobody holds, wants or keeps.
    fn check_quiet(&self, config: &ModelConfig<P>) -> Option<Violation> {
        if !config.needs.home || !self.packets.is_empty() {
            return None;
        }
        let has = |wanted: fn(Phase) -> bool| self.actors.iter().any(|actor| wanted(actor.phase));
        if has(|phase| matches!(phase, Phase::Trying(_))) {
            let text = "an attempt waits for a holder: nothing is in flight".to_owned();
            return Some(Violation { property: "attempt", text });
        }
        let is_unused = |actor: &Actor<P>| actor.phase == Phase::Idle && actor.timers.is_empty();
        if !self.actors.iter().all(is_unused) {
            return None;
        }
        let protocols = || self.actors.iter().filter_map(|actor| actor.protocol.as_ref());
        let mut effects = Effects::new();
        let mut is_left_over = |protocol: &P| {
            let mut unused = protocol.clone();
            unused.handle(Input::GiveBack, &mut effects);
            unused.floor().is_some() && !unused.is_idle()
        };
        let left_over = protocols().filter(|protocol| is_left_over(protocol)).count();
        // What is given back now is still to be heard of.
        (left_over > 0 && effects.is_empty()).then(|| {
            let text = format!("{left_over} nodes remember a lock that nobody holds, wants or keeps");
            Violation { property: "leftovers", text }
        })
    }

    /// A bound on a protocol's own knowledge: the home knows a bound of every fence, and its memory is bounded.
    fn check_bounds(&self, mode: Option<Mode>, fence: u64) -> Option<Violation> {
        let nodes = self.actors.len();
        for protocol in self.actors.iter().filter_map(|actor| actor.protocol.as_ref()) {
            if protocol.remembered() > 2 * nodes {
                let text = format!("{} requests of {nodes} nodes are remembered", protocol.remembered());
                return Some(Violation { property: "memory", text });
            }
            let Some((bound, mode)) = protocol.fence_bound().zip(mode) else { continue };
            if let Some(violation) = check_bound(mode, fence, bound) {
                return Some(violation);
            }
        }
        None
    }

    /// True if the node's caller is inside.
    pub fn is_inside(&self, node: u8) -> bool {
        matches!(self.actor(node).phase, Phase::Inside(_) | Phase::Upgrading)
    }

    /// True if the node's caller waits.
    pub fn is_waiting(&self, node: u8) -> bool {
        matches!(self.actor(node).phase, Phase::Waiting(_) | Phase::Trying(_))
    }

    /// The timers that a node has set, in the order of their positions.
    pub fn timers(&self, node: u8) -> impl Iterator<Item = P::Timer> + '_ {
        self.actor(node).timers.iter().map(|(timer, _)| *timer)
    }

    /// What replaces a node's instance if the node drops it now; `None` if it may not, or if that would change nothing.
    ///
    /// Nodes do the same: they first drop what was cached, then forget an instance that is idle, and keep its floor for the
    /// next one.
    fn after_drop(&self, config: &ModelConfig<P>, node: u8) -> Option<P> {
        let actor = self.actor(node);
        let protocol = actor.protocol.as_ref().filter(|_| actor.phase == Phase::Idle && actor.timers.is_empty())?;
        let (mut dropped, mut effects) = (protocol.clone(), Effects::new());
        dropped.handle(Input::GiveBack, &mut effects);
        let floor = dropped.floor().filter(|_| dropped.is_idle() && effects.is_empty())?;
        let mut fresh = config.protocol(node.into(), actor.incarnation);
        fresh.raise_floor(floor);
        (fresh != *protocol).then_some(fresh)
    }

    /// The node keeps what it does not use, and giving it up takes messages: a step of its own, which drivers take when they
    /// like.
    fn can_give_back(&self, node: u8) -> bool {
        let actor = self.actor(node);
        let Some(protocol) = actor.protocol.as_ref().filter(|_| actor.phase == Phase::Idle) else { return false };
        let (mut given, mut effects) = (protocol.clone(), Effects::new());
        given.handle(Input::GiveBack, &mut effects);
        !effects.is_empty() || given != *protocol
    }

    fn actor(&self, node: u8) -> &Actor<P> {
        &self.actors[usize::from(node)]
    }

    fn actor_mut(&mut self, node: u8) -> &mut Actor<P> {
        &mut self.actors[usize::from(node)]
    }
}
