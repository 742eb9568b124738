//! A member's session: it is renewed with the steward, runs out by the member's own clock, and is followed by the next incarnation's.

use std::collections::BTreeSet;

use hallpass_core::{NodeId, Ticks};

use super::base::Purpose;
use super::member::Phase;
use super::voter::Voter;
use super::{Action, Views};
use crate::Incarnation;
use crate::faults::{Conduct, Sabotage};
use crate::links::Links;
use crate::membership::control::Control;
use crate::membership::keys;
use crate::node::Checked;

impl<F: Conduct> Views<F> {
    pub(super) fn renew(&mut self, links: &Links) {
        let ttl = self.member.session().ttl();
        self.member.renew_at = self.base.now + ttl / 4;
        // Its steward is gone, and this node may not know the next one: it asks to join again, and hears who that is.
        if self.member.next().too_early().is_some_and(|prepared| self.base.now >= prepared.at.saturating_add(2 * ttl)) {
            self.member.take_prepared();
            self.repeat_soon();
        }
        // One whose disk does not take the group lets its session end: the others go on without it.
        let waits = self.member.next().too_early();
        let is_awaited = waits.is_some_and(|prepared| self.base.remembered == prepared.group.id);
        let is_member = self.member.phase() == Phase::Running
            && !self.member.session().has_lapsed()
            && (self.member.install().is_in_view() || is_awaited || waits.is_some() && self.base.joins_unstored());
        if !is_member {
            return;
        }
        let now = self.base.now;
        let unreachable = links
            .iter()
            .filter(|link| link.in_view && !link.connected && now.saturating_sub(link.disconnected_at) > ttl / 2)
            .map(|link| link.peer)
            .collect();
        let message = Control::Renew {
            incarnation: self.base.me.incarnation,
            sent: now,
            unreachable,
            wants_epoch: self.member.wants_epoch,
        };
        let answered = self.member.renewed != 0 && now.saturating_sub(self.member.renewed) < ttl / 2;
        match self.steward_id() {
            Some(steward) if answered => self.base.send(steward, message),
            // Nobody answers: any voter may be the steward by now. If all of those are gone, others know who is.
            steward => {
                self.member.renew_at = now + ttl / 16;
                let is_reached = |id: &NodeId| *id == self.base.me.id || self.base.connected.contains_key(id);
                let voters: BTreeSet<NodeId> = self.voters().into_iter().chain(steward).filter(is_reached).collect();
                let all = || self.base.connected.keys().copied().collect();
                for peer in if voters.is_empty() { all() } else { voters } {
                    self.base.send(peer, message.clone());
                }
            }
        }
    }

    pub(super) fn renew_deadline(&self) -> Option<Ticks> {
        let renews =
            self.member.install().is_in_view() && !self.needs_no_session() || self.member.next().is_too_early();
        renews.then_some(self.member.renew_at)
    }

    pub(super) fn on_renewed(&mut self, from: NodeId, incarnation: Incarnation, sent: Ticks) {
        #[cfg(any(test, feature = "planted-bugs"))]
        if self.base.breaks(Sabotage::LateAckUndoesLapse) {
            self.member.revive(sent);
        }
        // The time is this node's own, as the steward repeats it: nobody has seen one that is still to come.
        if sent > self.base.now {
            return;
        }
        self.member.on_acknowledged(incarnation, sent, self.base.now);
        if self.member.session().has_lapsed() {
            return;
        }
        if incarnation == self.base.me.incarnation {
            self.member.renewed = self.member.renewed.max(sent);
            self.member.renew_at = sent + self.member.session().ttl() / 4;
            self.base.known.steward = Some(from);
        }
        self.take_up_pending();
    }

    /// The steward will not acknowledge this incarnation any more.
    pub(super) fn on_expelled(&mut self, incarnation: Incarnation) {
        let is_me = incarnation == self.base.me.incarnation;
        if is_me && !self.member.session().has_lapsed() && self.member.takes_part() {
            self.lapse();
        }
    }

    pub(crate) fn ask_for_new_epoch(&mut self, now: Checked) {
        self.base.now = now.ticks();
        if !std::mem::replace(&mut self.member.wants_epoch, true) {
            self.member.renew_at = 0;
        }
    }

    /// The session is over, if its time is.
    pub(crate) fn lapse_if_due(&mut self, now: Ticks) {
        self.base.now = now;
        self.renew_alone();
        if !self.base.breaks(Sabotage::KeepPermissionsAfterLapse) && self.member.lapse_if_due(now) {
            self.lapse();
        }
    }

    /// A steward that decides alone renews its own session: asked, confirmed and answered in one moment.
    pub(super) fn renew_alone(&mut self) {
        if self.renews_alone() {
            if self.member.install().is_in_view() {
                self.member.renew_alone(self.base.now);
            }
            if let Some((_, _, steward)) = Voter::serving(&mut self.voter) {
                steward.sessions.touch(self.base.me.id, self.base.now);
            }
        }
    }

    /// Everything that was held is lost, and the node comes back as its next incarnation.
    fn lapse(&mut self) {
        let comes_back = self.member.phase() == Phase::Running;
        self.end_view();
        if comes_back {
            self.come_back_as(self.base.me.incarnation.get() + 1);
        }
    }

    pub(super) fn end_view(&mut self) {
        self.member.end();
        self.say_lapsed();
    }

    /// Nothing is held any more.
    pub(super) fn say_lapsed(&mut self) {
        self.base.actions.push_back(Action::Lapse);
        self.base.actions.push_back(Action::Peers);
    }

    /// Writes the next incarnation, which is to be on disk before it joins.
    pub(super) fn come_back_as(&mut self, number: u32) {
        self.member.persist();
        let Some(next) = Incarnation::new(number) else {
            let why = "this node has used up its incarnations: give it another data directory";
            self.base.why = Some(why.to_owned());
            return;
        };
        self.base.me.incarnation = next;
        self.base.actions.push_back(Action::BeginLinks);
        let put = vec![(keys::INCARNATION, number.to_be_bytes().to_vec())];
        self.base.persist(Purpose::Incarnation, 0..0, put);
    }

    /// The next incarnation is on disk.
    pub(super) fn on_incarnation_stored(&mut self) {
        self.member.come_back(self.base.me.incarnation);
        self.base.repeat_at = 0;
        self.base.actions.push_back(Action::View);
    }

    /// It is alone, and nobody wants to join. A holder that is told a deadline is to know it before a second member
    /// is there.
    pub(super) fn needs_no_session(&self) -> bool {
        self.is_alone() && self.renews_alone() && self.steward().is_none_or(|steward| steward.candidates.is_empty())
    }

    /// Until when what is held here is held for certain; 0 without a session.
    pub(crate) fn valid_until(&self) -> Ticks {
        if self.needs_no_session() { Ticks::MAX } else { self.member.session().valid_until().unwrap_or(0) }
    }

    pub(crate) fn at_risk_from(&self) -> Ticks {
        match self.valid_until() {
            Ticks::MAX => Ticks::MAX,
            until => until.saturating_sub(self.member.session().ttl() / 2),
        }
    }
}
