//! The rest of the story: from a state on, everything is played in a fixed order.

use hallpass_check::fingerprint;
use hallpass_core::Ticks;
use hallpass_node::model::Step as Phase;

use super::state::{Caller, Node, ProgressState};
use super::{LAST, NODES, ProgressModel, TTL};

/// How long everything is played on: longer than the longest pause before a node is admitted again.
const PATIENCE: Ticks = 40 * TTL;

/// How the story goes on to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Fate {
    /// Nothing goes wrong any more: links are repaired, nodes live.
    Well,
    /// Everything stays as it is.
    Stays,
    /// The last node dies whenever it hears of this phase of a view, and is back at once.
    DiesAt(Phase),
    /// It lives and is dead in turn, for this long each time.
    ComesAndGoes(Ticks),
}

impl Fate {
    pub(super) fn text(self) -> String {
        match self {
            Self::Well => "if all links are repaired and all nodes live".to_owned(),
            Self::Stays => "if everything stays as it is".to_owned(),
            Self::DiesAt(phase) => format!("if 3 dies whenever it is told of a view that is {phase:?}"),
            Self::ComesAndGoes(time) => format!("if 3 lives and is dead for {time} in turn"),
        }
    }
}

impl ProgressState {
    /// The first of `count` nodes that waits or will wait. If all count, a node that takes no part is one, too.
    fn stuck(&self, count: usize) -> Option<usize> {
        let is_served = |node: &Node| node.caller == Caller::Away && node.entries == 0;
        let takes_part = |node: &Node| node.install.open() == Some(self.group.epoch);
        self.nodes[..count].iter().position(|node| !is_served(node) || count == NODES && !takes_part(node))
    }

    /// Everybody does what it can, in order, until there is nothing left to do at this time.
    fn play_moment(&mut self, model: &ProgressModel, fate: Fate) {
        let mut may_die = true;
        loop {
            let mut is_done = true;
            for node in 0..NODES {
                if self.nodes[node].is_alive && self.nodes[node].caller == Caller::Away && self.nodes[node].entries > 0
                {
                    self.acquire(node);
                    is_done = false;
                }
                if matches!(self.nodes[node].caller, Caller::Inside(_)) && self.nodes[node].is_alive {
                    self.release(node);
                    is_done = false;
                }
                for from in 0..NODES {
                    while self.can_deliver(from, node) {
                        self.deliver(from, node);
                        is_done = false;
                    }
                }
                if self.can_join(node) {
                    self.join(node);
                }
            }
            let epoch = self.group.epoch;
            self.decide(model);
            is_done &= self.group.epoch == epoch;
            for node in 0..NODES {
                if !self.can_tell(node) {
                    continue;
                }
                if node == LAST && fate == Fate::DiesAt(self.steward.installation.step) {
                    // One that is started again and again is so with some time between.
                    if std::mem::take(&mut may_die) {
                        self.die();
                        self.live();
                        is_done = false;
                    }
                    continue;
                }
                let before = self.steward.installation.missing.len();
                let step = self.steward.installation.step;
                self.tell(model, node);
                let installation = &self.steward.installation;
                is_done &= (before, step) == (installation.missing.len(), installation.step);
            }
            if is_done {
                return;
            }
        }
    }

    /// Plays until nobody waits. Returns a node that waits in the end.
    pub(super) fn play(mut self, model: &mut ProgressModel, fate: Fate) -> Option<usize> {
        if fate == Fate::Well {
            self.cut = None;
            if !self.nodes[LAST].is_alive {
                self.live();
            }
        }
        // The requests of a node that keeps failing do not count, nor those of a node that is cut off from another member.
        let is_well = fate == Fate::Well || self.cut.is_none() && fate == Fate::Stays && self.nodes[LAST].is_alive;
        let count = if is_well { NODES } else { LAST };
        let end = self.now + PATIENCE;
        let mut passed = Vec::new();
        while self.now < end {
            if let Fate::ComesAndGoes(time) = fate {
                match (self.now / time).is_multiple_of(2) {
                    true if !self.nodes[LAST].is_alive => self.live(),
                    false if self.nodes[LAST].is_alive => self.die(),
                    _ => {}
                }
            }
            self.play_moment(model, fate);
            let number = fingerprint(&(&self, fate));
            if self.stuck(count).is_none() || model.good.contains(&number) {
                model.good.extend(passed);
                return None;
            }
            passed.push(number);
            self.tick();
        }
        self.stuck(count)
    }
}
