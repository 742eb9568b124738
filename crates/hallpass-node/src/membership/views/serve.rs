//! What the steward does without being asked: it confirms renewals, decides who has to go, and proposes the next view.

use hallpass_core::{NodeId, Ticks};

use super::voter::Voter;
use super::{Action, Views};
use crate::Incarnation;
use crate::config::Sabotage;
use crate::membership::control::Control;
use crate::membership::group::Command;
use crate::membership::sessions::Renewal;

impl Views {
    /// One step; false if there is nothing to do.
    pub(super) fn serve_group(&mut self) -> bool {
        let serves = self.steward().is_some() && self.outside.held_back.is_none();
        serves && (self.confirm() || self.expel() || self.propose() || self.announce() || self.answer())
    }

    /// When the steward has something to do next.
    pub(super) fn steward_deadline(&self) -> Option<Ticks> {
        let voter = self.voter.as_ref().filter(|_| self.outside.held_back.is_none())?;
        voter.steward()?.deadline(voter.group()?, self.is_alone())
    }

    pub(super) fn on_renew(&mut self, from: NodeId, renewal: Renewal, unreachable: &[NodeId], wants_epoch: bool) {
        let Some((_, group, steward)) = Voter::serving(&mut self.voter) else {
            // Another one is the steward: the sender is told who.
            if from != self.base.me.id && self.base.known.steward != Some(self.base.me.id) {
                self.send_contacts(from);
            }
            return;
        };
        if group.incarnation_of(from) != Some(renewal.incarnation) {
            // It was removed, and does not know.
            let incarnation = renewal.incarnation;
            return self.base.send(from, Control::Expelled { incarnation });
        }
        steward.on_unreachable(from, unreachable, self.base.now);
        steward.needs_epoch |= wants_epoch;
        steward.sessions.on_renewal(from, renewal);
    }

    /// Has the renewals that came in confirmed by a quorum.
    fn confirm(&mut self) -> bool {
        let Some((engine, _, steward)) = Voter::serving(&mut self.voter) else { return false };
        let batch = steward.sessions.close_batch();
        batch.inspect(|batch| engine.confirm(*batch)).is_some()
    }

    /// A quorum has confirmed these renewals: they are acknowledged.
    pub(super) fn acknowledge(&mut self, batch: u64) {
        let Some((_, _, steward)) = Voter::serving(&mut self.voter) else { return };
        for (to, renewal) in steward.sessions.on_confirmed(batch) {
            let Renewal { incarnation, sent, .. } = renewal;
            self.base.send(to, Control::Renewed { incarnation, sent });
        }
    }

    /// Members that do not reach each other cannot both stay.
    fn expel(&mut self) -> bool {
        let voters = self.voters();
        let Some((_, group, steward)) = Voter::serving(&mut self.voter) else { return false };
        let expelled = steward.to_expel(group, &voters, self.base.now);
        let expelled: Vec<(NodeId, Incarnation)> = expelled
            .into_iter()
            .filter_map(|id| group.incarnation_of(id).map(|incarnation| (id, incarnation)))
            .collect();
        for (id, incarnation) in &expelled {
            steward.sessions.stop_acknowledging(*id);
            self.base.send(*id, Control::Expelled { incarnation: *incarnation });
        }
        !expelled.is_empty()
    }

    /// Proposes the next view, if there is a reason for one.
    fn propose(&mut self) -> bool {
        self.renew_alone();
        let (voters, now) = (self.voters(), self.base.now);
        let Some((engine, group, steward)) = Voter::serving(&mut self.voter) else { return false };
        if steward.forget_silent(group.ttl, now) {
            self.base.actions.push_back(Action::Peers);
        }
        let is_early = self.base.breaks(Sabotage::EvictEarly);
        let expiry = if is_early { group.ttl / 4 + group.ttl / 16 } else { group.expiry() };
        let Some(changes) = steward.next_view(group, &voters, expiry, now) else { return false };
        if self.member.waits_for_lost() {
            return false;
        }
        // The engine takes none while the office is being handed over. It is asked again with its next tick.
        let command = Command { term: engine.term(), base: group.epoch, changes };
        let is_proposed = engine.propose(command.encode());
        if is_proposed || self.base.breaks(Sabotage::CountRefusedProposals) {
            steward.on_proposed(group.epoch);
        }
        is_proposed
    }
}
