//! The steps that may come next.

use std::fmt;

use hallpass_core::{Mode, Protocol};

use super::{Actor, Model, ModelConfig, Phase};

/// One step that may come next. Nodes, timers and messages are given by their positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A node's caller asks to enter.
    Request {
        /// The node.
        node: u8,
        /// How the caller wants to enter.
        mode: Mode,
        /// The random number it gets, out of those that make a difference.
        draw: u8,
    },
    /// A node's caller asks to enter, but does not wait for a holder.
    Try {
        /// The node.
        node: u8,
        /// How the caller wants to enter.
        mode: Mode,
    },
    /// A node's waiting caller gives up, or one that has asked to be alone.
    Cancel(u8),
    /// A node's caller leaves the critical section.
    Exit(u8),
    /// A node's caller, inside alone, goes on in shared mode.
    Downgrade(u8),
    /// A node's caller, inside in shared mode, asks to be alone.
    Upgrade(u8),
    /// A node's next caller follows the one inside.
    Reenter(u8),
    /// A node gives up what it keeps and does not use.
    GiveBack(u8),
    /// A node forgets the lock, which is idle.
    Drop(u8),
    /// A message arrives.
    Deliver(u16),
    /// A message is lost.
    Lose(u16),
    /// A message is duplicated.
    Duplicate(u16),
    /// A timer fires.
    Timeout {
        /// The node.
        node: u8,
        /// The timer's position among those that the node has set.
        timer: u8,
    },
    /// One slot of time passes.
    Tick,
    /// A node stops and forgets everything.
    Crash(u8),
    /// A node that is down starts again.
    Restart(u8),
    /// The next newcomer asks to join.
    Join(u8),
    /// A member asks to leave.
    Leave(u8),
}

impl Step {
    /// True if the step is taken sooner or later. False if it is optional: a caller's choice, or a fault.
    pub fn must_happen(self) -> bool {
        match self {
            Self::Exit(_) | Self::Deliver(_) | Self::Timeout { .. } | Self::Tick | Self::Restart(_) => true,
            Self::Request { .. } | Self::Cancel(_) | Self::Drop(_) | Self::Lose(_) | Self::Duplicate(_) => false,
            Self::Try { .. } | Self::Downgrade(_) | Self::Upgrade(_) | Self::Reenter(_) | Self::GiveBack(_) => false,
            Self::Crash(_) | Self::Join(_) | Self::Leave(_) => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl<P: Protocol> Model<P> {
    /// Appends every step that may come next.
    pub fn steps(&self, config: &ModelConfig<P>, out: &mut Vec<Step>) {
        for (node, actor) in self.actors.iter().enumerate() {
            self.node_steps(config, node as u8, actor, out);
        }
        for index in 0..self.packets.len() {
            if self.is_deliverable(config, index) {
                let index = index as u16;
                out.push(Step::Deliver(index));
                if self.remaining.losses > 0 {
                    out.push(Step::Lose(index));
                }
                if self.remaining.duplicates > 0 {
                    out.push(Step::Duplicate(index));
                }
            }
        }
        if config.delay.is_some() && self.may_tick() {
            out.push(Step::Tick);
        }
    }

    fn node_steps(&self, config: &ModelConfig<P>, node: u8, actor: &Actor<P>, out: &mut Vec<Step>) {
        let index = usize::from(node);
        if actor.protocol.is_none() {
            if self.remaining.joins > 0 && index == config.ids.len() - usize::from(self.remaining.joins) {
                out.push(Step::Join(node));
            } else if self.remaining.restarts > 0 && !actor.leaving && index < config.view.members().len() {
                out.push(Step::Restart(node));
            }
            return;
        }
        match actor.phase {
            Phase::Idle if actor.requests_left.is_left() && !actor.leaving && !config.is_server(node) => {
                let modes: &[Mode] =
                    if config.limits.readers { &[Mode::Exclusive, Mode::Shared] } else { &[Mode::Exclusive] };
                for mode in modes {
                    out.extend((0..config.draws).map(|draw| Step::Request { node, mode: *mode, draw }));
                    if config.limits.tries {
                        out.push(Step::Try { node, mode: *mode });
                    }
                }
            }
            Phase::Idle => {}
            Phase::Waiting(_) | Phase::Trying(_) | Phase::Upgrading if self.remaining.cancels.is_left() => {
                out.push(Step::Cancel(node));
            }
            Phase::Waiting(_) | Phase::Trying(_) | Phase::Upgrading => {}
            Phase::Inside(mode) => {
                out.push(Step::Exit(node));
                if config.limits.upgrades && mode == Mode::Exclusive {
                    out.push(Step::Downgrade(node));
                } else if config.limits.upgrades && actor.requests_left.is_left() {
                    out.push(Step::Upgrade(node));
                }
                let mut next = actor.protocol.clone();
                let mut can_reenter = || next.as_mut().is_some_and(|protocol| protocol.reenter().is_some());
                if config.limits.reentry && actor.requests_left.is_left() && can_reenter() {
                    out.push(Step::Reenter(node));
                }
            }
        }
        if config.needs.home && self.can_give_back(node) {
            out.push(Step::GiveBack(node));
        }
        for (timer, (_, countdown)) in actor.timers.iter().enumerate() {
            if countdown.may_fire() {
                out.push(Step::Timeout { node, timer: timer as u8 });
            }
        }
        if config.limits.drop_idle && self.after_drop(config, node).is_some() {
            out.push(Step::Drop(node));
        }
        if self.remaining.crashes > 0 && !config.is_server(node) {
            out.push(Step::Crash(node));
        }
        // The first node sponsors newcomers, so it stays: a newcomer whose sponsor is gone asks another one, which takes
        // more time but leads to no new order of events.
        let is_sponsor = node == 0 && config.limits.joins > 0;
        if self.remaining.leaves > 0 && actor.member && !actor.leaving && !is_sponsor {
            out.push(Step::Leave(node));
        }
    }

    /// Time passes only while a message or a timer needs it, and not before everything that is due has happened.
    fn may_tick(&self) -> bool {
        let countdowns = self.actors.iter().flat_map(|actor| &actor.timers).map(|(_, countdown)| countdown);
        let mut timed = countdowns.filter(|countdown| countdown.is_timed()).peekable();
        let needs_time = !self.packets.is_empty() || timed.peek().is_some();
        needs_time && self.packets.iter().all(|packet| packet.due > 0) && timed.all(|countdown| !countdown.is_due())
    }
}
