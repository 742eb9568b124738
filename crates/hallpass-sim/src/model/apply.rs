//! What a step does.

use hallpass_core::{Effect, Fence, Input, Mode, NodeId, Protocol};

use super::{Context, Countdown, Model, ModelConfig, Phase, Scratch, Step};
use crate::oracle::Violation;
use crate::trace::{Event, EventKind};

impl<P: Protocol> Model<P> {
    /// Takes one of the steps that [`steps`](Self::steps) lists, appends its events to the trace if there is one, and
    /// returns what it violates.
    pub fn apply(
        &mut self,
        config: &ModelConfig<P>,
        step: Step,
        scratch: &mut Scratch<P>,
        trace: Option<&mut Vec<Event>>,
    ) -> Option<Violation> {
        let context = &mut Context { config, scratch, trace };
        let violation = self.take(context, step);
        let found = violation.or_else(|| self.check_quiet(config)).or_else(|| self.check_bounds(None, 0));
        if let Some(violation) = &found
            && !matches!(violation.property, "exclusion" | "fence" | "protocol")
        {
            context.record_with(0, || EventKind::Violation(violation.to_string()));
        }
        found
    }

    fn take(&mut self, context: &mut Context<'_, P>, step: Step) -> Option<Violation> {
        let config = context.config;
        match step {
            Step::Request { node, mode, draw } => {
                context.record(node, EventKind::Request(mode));
                let actor = self.actor_mut(node);
                actor.phase = Phase::Waiting(mode);
                actor.requests_left.spend();
                self.handle_input(context, node, Input::Acquire { mode, draw: draw.into() })
            }
            Step::Try { node, mode } => {
                context.record(node, EventKind::Try(mode));
                let actor = self.actor_mut(node);
                actor.phase = Phase::Trying(mode);
                actor.requests_left.spend();
                self.handle_input(context, node, Input::Try { mode })
            }
            Step::Cancel(node) => {
                context.record(node, EventKind::Cancel);
                self.remaining.cancels.spend();
                let actor = self.actor_mut(node);
                let upgrades = actor.phase == Phase::Upgrading;
                actor.phase = if upgrades { Phase::Inside(Mode::Shared) } else { Phase::Idle };
                self.handle_input(context, node, Input::Cancel)
            }
            Step::Downgrade(node) => {
                context.record(node, EventKind::Downgrade);
                // It enters again at once, in the other mode.
                self.on_exit(config, node);
                self.actor_mut(node).phase = Phase::Waiting(Mode::Shared);
                self.handle_input(context, node, Input::Downgrade)
            }
            Step::Upgrade(node) => {
                context.record(node, EventKind::Upgrade);
                let actor = self.actor_mut(node);
                actor.phase = Phase::Upgrading;
                actor.requests_left.spend();
                self.handle_input(context, node, Input::Upgrade)
            }
            Step::Reenter(node) => self.reenter(context, node),
            Step::GiveBack(node) => {
                context.record(node, EventKind::GiveBack);
                self.handle_input(context, node, Input::GiveBack)
            }
            Step::Exit(node) => {
                context.record(node, EventKind::Exit);
                self.on_exit(config, node);
                self.handle_input(context, node, Input::Release)
            }
            Step::Drop(node) => {
                context.record(node, EventKind::Forget);
                let fresh = self.after_drop(config, node);
                let actor = self.actor_mut(node);
                actor.protocol = fresh.or(actor.protocol.take());
                None
            }
            Step::Deliver(index) => self.deliver(context, index),
            Step::Lose(index) => {
                self.remaining.losses -= 1;
                self.lose(context, index);
                None
            }
            Step::Duplicate(index) => {
                self.remaining.duplicates -= 1;
                self.duplicate(index);
                None
            }
            Step::Timeout { node, timer } => {
                let (timer, _) = self.actor_mut(node).timers.remove(timer.into());
                context.record_with(node, || EventKind::Timer(format!("{timer:?}")));
                self.handle_input(context, node, Input::Timeout(timer))
            }
            Step::Tick => {
                self.actors.iter_mut().flat_map(|actor| &mut actor.timers).for_each(|(_, countdown)| countdown.tick());
                self.tick_packets(config);
                None
            }
            Step::Crash(node) => {
                context.record(node, EventKind::Crash);
                self.remaining.crashes -= 1;
                self.stop(config, node);
                None
            }
            Step::Restart(node) => {
                self.remaining.restarts -= 1;
                self.restart(context, node)
            }
            Step::Join(node) => {
                self.remaining.joins -= 1;
                context.record(node, EventKind::Join);
                self.actor_mut(node).protocol = Some(config.protocol(node.into(), 0));
                let sponsor = self.sponsor(config, node);
                self.handle_input(context, node, Input::Join { sponsor })
            }
            Step::Leave(node) => {
                self.remaining.leaves -= 1;
                context.record(node, EventKind::Leave);
                self.actor_mut(node).leaving = true;
                self.handle_input(context, node, Input::Leave)
            }
        }
    }

    /// Gives a node's protocol one input and carries out the effects.
    pub(super) fn handle_input(
        &mut self,
        context: &mut Context<'_, P>,
        node: u8,
        input: Input<P::Message, P::Timer>,
    ) -> Option<Violation> {
        let config = context.config;
        let protocol = self.actor_mut(node).protocol.as_mut()?;
        let mut effects = std::mem::take(&mut context.scratch.effects);
        protocol.handle(input, &mut effects);
        let (mut violation, mut restart) = (None, false);
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { to, message } => {
                    if let Some(to) = config.position(to) {
                        self.send(context, node, to, message);
                    }
                }
                Effect::Broadcast { message } => self.broadcast(context, node, &message),
                Effect::Enter { fence } => violation = violation.or(self.on_enter(context, node, fence)),
                Effect::SetTimer { timer, after } => {
                    if let Some(countdown) = Countdown::new(after) {
                        let countdown = if config.delay.is_some() { countdown } else { Countdown::DUE };
                        self.set_timer(node, timer, countdown);
                    }
                }
                Effect::CancelTimer(timer) => self.actor_mut(node).timers.retain(|(other, _)| *other != timer),
                Effect::Joined => {
                    self.actor_mut(node).member = true;
                    context.record(node, EventKind::Joined);
                }
                Effect::Left => {
                    context.record(node, EventKind::Left);
                    self.stop(config, node);
                }
                Effect::Restart => restart = true,
                Effect::Busy | Effect::Refused => violation = violation.or(self.on_refused(context, node)),
            }
        }
        context.scratch.effects = effects;
        if restart {
            violation = violation.or(self.restart(context, node));
        }
        if config.drops_moot {
            self.drop_moot(config, node);
        }
        violation
    }

    fn set_timer(&mut self, node: u8, timer: P::Timer, countdown: Countdown) {
        let timers = &mut self.actor_mut(node).timers;
        timers.retain(|(other, _)| *other != timer);
        timers.push((timer, countdown));
        timers.sort_unstable();
    }

    fn on_enter(&mut self, context: &mut Context<'_, P>, node: u8, fence: Fence) -> Option<Violation> {
        let id = context.id(node);
        let mode = match self.actor(node).phase {
            Phase::Waiting(mode) | Phase::Trying(mode) => mode,
            Phase::Upgrading => {
                self.exclusion.on_exit(id, Mode::Shared);
                Mode::Exclusive
            }
            Phase::Idle | Phase::Inside(_) => {
                return Some(Violation {
                    property: "protocol",
                    text: format!("node {id} entered without having asked"),
                });
            }
        };
        self.actor_mut(node).phase = Phase::Inside(mode);
        context.record(node, EventKind::Enter { mode, fence: fence.get() });
        let last = context.config.view.members().len() as u8 - 1;
        if node == last {
            self.overtaken = 0;
        } else if self.is_waiting(last) {
            self.overtaken += 1;
        }
        let exclusion = self.exclusion.on_enter(id, mode);
        let fences = if context.config.needs.fences { self.fences.on_enter(id, mode, fence) } else { None };
        let violation = exclusion.or(fences);
        if let Some(violation) = &violation {
            context.record_with(node, || EventKind::Violation(violation.to_string()));
        }
        violation.or_else(|| self.check_bounds(Some(mode), fence.count()))
    }

    /// The node's next caller follows the one inside, in the same mode.
    fn reenter(&mut self, context: &mut Context<'_, P>, node: u8) -> Option<Violation> {
        let actor = self.actor_mut(node);
        let Phase::Inside(mode) = actor.phase else { return None };
        let fence = actor.protocol.as_mut().and_then(|protocol| protocol.reenter())?;
        actor.requests_left.spend();
        context.record(node, EventKind::Exit);
        context.record(node, EventKind::Request(mode));
        self.on_exit(context.config, node);
        self.actor_mut(node).phase = Phase::Waiting(mode);
        self.on_enter(context, node, fence)
    }

    /// An attempt or an upgrade is refused.
    fn on_refused(&mut self, context: &mut Context<'_, P>, node: u8) -> Option<Violation> {
        let id = context.id(node);
        context.record(node, EventKind::Refused);
        let actor = self.actor_mut(node);
        actor.phase = match actor.phase {
            Phase::Trying(_) => Phase::Idle,
            Phase::Upgrading => Phase::Inside(Mode::Shared),
            Phase::Waiting(_) | Phase::Idle | Phase::Inside(_) => {
                let text = format!("node {id} is refused what it has not tried");
                return Some(Violation { property: "protocol", text });
            }
        };
        None
    }

    fn on_exit(&mut self, config: &ModelConfig<P>, node: u8) {
        if let Phase::Inside(mode) = std::mem::replace(&mut self.actor_mut(node).phase, Phase::Idle) {
            self.exclusion.on_exit(config.ids[usize::from(node)], mode);
        }
    }

    fn stop(&mut self, config: &ModelConfig<P>, node: u8) {
        self.on_exit(config, node);
        let actor = self.actor_mut(node);
        actor.protocol = None;
        actor.phase = Phase::Idle;
        actor.member = false;
        actor.timers.clear();
    }

    /// Starts a node with a new incarnation and no memory. A caller that was waiting asks again.
    fn restart(&mut self, context: &mut Context<'_, P>, node: u8) -> Option<Violation> {
        context.record(node, EventKind::Restart);
        let actor = self.actor_mut(node);
        actor.incarnation = actor.incarnation.checked_add(1).expect("a run has few restarts");
        actor.member = false;
        actor.timers.clear();
        actor.protocol = Some(context.config.protocol(node.into(), actor.incarnation));
        let phase = actor.phase;
        let sponsor = self.sponsor(context.config, node);
        let violation = self.handle_input(context, node, Input::Join { sponsor });
        let Phase::Waiting(mode) = phase else { return violation };
        violation.or(self.handle_input(context, node, Input::Acquire { mode, draw: 0 }))
    }

    /// The first other member that is up.
    fn sponsor(&self, config: &ModelConfig<P>, node: u8) -> NodeId {
        let can_sponsor = |other: &usize| {
            self.actors[*other].member && self.actors[*other].protocol.is_some() && *other != usize::from(node)
        };
        config.ids[(0..self.actors.len()).find(can_sponsor).unwrap_or(0)]
    }
}
