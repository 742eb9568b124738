//! Leaving a group, for good or until the node is started again.

use hallpass_core::NodeId;

use super::member::Phase;
use super::voter::Voter;
use super::{Action, Views};
use crate::Incarnation;
use crate::faults::{Conduct, Sabotage};
use crate::membership::control::Control;
use crate::membership::steward::Withdrawal;
use crate::output::Request;

/// The side of the member that leaves.
impl<F: Conduct> Views<F> {
    /// Members without directories have no vote in a group whose members have some: they cannot go on without the last one that has. Only the
    /// steward knows who else leaves.
    pub(super) fn cannot_leave(&self) -> Option<String> {
        let group = self.group().filter(|group| group.durable && self.base.me.durable)?;
        let withdrawal = |id: &NodeId| self.steward().and_then(|steward| steward.withdrawn.get(id));
        let leaves = |id: &NodeId| withdrawal(id).is_some_and(|withdrawal| !withdrawal.keeps_vote);
        // One that was expelled comes back, but not for certain.
        let is_out = |id: NodeId| self.steward().is_some_and(|steward| steward.sessions.is_unacknowledged(id));
        let others = || group.members.values().chain(group.absent.values());
        let staying = || others().filter(|member| member.id != self.base.me.id && !leaves(&member.id));
        let is_last = !staying().any(|member| member.durable && !is_out(member.id));
        (staying().count() > 0 && is_last).then(|| {
            "no other member that stays has a data directory, so nobody could take its vote over: start one with a directory first, \
             or stop the others"
                .to_owned()
        })
    }

    /// Leaves the view of its own accord: it holds nothing from now on.
    pub(super) fn withdraw(&mut self, keeps_vote: bool) {
        if self.member.withdraw(keeps_vote) {
            self.say_lapsed();
        }
        self.hand_over_office();
        self.base.repeat_at = self.base.now;
    }

    /// Another member is to be the steward: it stays when this one is gone. To be said again while this one still is, since the word may be lost.
    pub(super) fn hand_over_office(&mut self) {
        let half_session = self.member.session().ttl() / 2;
        let Phase::Withdrawing { keeps_vote, offers_at } = self.member.phase() else { return };
        let is_once = self.base.breaks(Sabotage::CountRefusedProposals) && offers_at > 0;
        if self.base.now < offers_at || is_once {
            return;
        }
        // Meanwhile the engine takes no proposals: there is time for some before it is tried again.
        self.member.offer_again_at(self.base.now + half_session);
        let Some((engine, group, steward)) = Voter::serving(&mut self.voter) else { return };
        let me = &self.base.me;
        let heir = engine
            .voters()
            .into_iter()
            .filter(|id| *id != me.id && group.members.contains_key(id) && self.base.connected.contains_key(id))
            .min_by_key(|id| engine.ticks_since(*id).unwrap_or(u64::MAX));
        if let Some(heir) = heir {
            engine.transfer(heir);
        } else if !keeps_vote || group.members.len() == 1 {
            let withdrawal = Withdrawal { incarnation: me.incarnation, keeps_vote, member: None };
            steward.withdrawn.insert(me.id, withdrawal);
        }
    }

    /// A node that is alone, or votes alone, has nobody to wait for.
    pub(super) fn finish_withdrawing(&mut self) {
        let Phase::Withdrawing { keeps_vote, .. } = self.member.phase() else { return };
        let group = self.replica().or(self.member.install().group());
        let alone = group.is_none_or(|group| group.members.keys().all(|id| *id == self.base.me.id));
        if !self.is_in_group() || alone && self.steward().is_some() || keeps_vote && self.decides_alone() {
            self.gone();
        }
    }

    /// The steward says that this incarnation is out.
    pub(super) fn on_withdrawn(&mut self, incarnation: Incarnation) {
        if incarnation == self.base.me.incarnation {
            self.gone();
        }
    }

    pub(super) fn gone(&mut self) {
        self.member.leave();
        let leaving = |request: &Request| matches!(request, Request::Stop | Request::Leave);
        let done: Vec<u64> =
            self.base.requests.iter().filter(|(_, request)| leaving(request)).map(|(token, _)| *token).collect();
        for token in done {
            self.base.requests.remove(&token);
            self.base.actions.push_back(Action::Done { token, result: Ok(()) });
        }
        self.base.actions.push_back(Action::View);
    }
}

/// The steward's side.
impl<F: Conduct> Views<F> {
    pub(super) fn on_withdraw(&mut self, from: NodeId, incarnation: Incarnation, keeps_vote: bool) {
        let voters = self.voters();
        let Some((engine, group, steward)) = Voter::serving(&mut self.voter) else {
            return self.send_contacts(from);
        };
        let is_in = group.incarnation_of(from) == Some(incarnation);
        let votes = !keeps_vote && (voters.contains(&from) || group.absent.contains_key(&from));
        // A steward that leaves goes when another one has taken over, and says so.
        let is_steward = from == self.base.me.id && !group.members.is_empty();
        if !is_in && !votes && !is_steward {
            // It may have voted until just now, and be needed if the voters are started again; or it is anybody. Nothing is kept of it:
            // it asks again until it may go.
            if keeps_vote || engine.voters_are_stored() {
                steward.withdrawn.remove(&from);
                self.base.send(from, Control::Withdrawn { incarnation });
            }
            return;
        }
        steward.sessions.stop_acknowledging(from);
        let known = steward.withdrawn.get(&from).and_then(|withdrawal| withdrawal.member.clone());
        let member = group.find(from).cloned().or(known);
        steward.withdrawn.insert(from, Withdrawal { incarnation, keeps_vote, member });
        steward.announce_at = 0;
    }

    /// How many leave, as far as the steward knows.
    #[cfg(test)]
    pub(crate) fn leaving(&self) -> usize {
        self.steward().map_or(0, |steward| steward.withdrawn.len())
    }

    /// Tells those that are out, and whose votes nobody needs; false if there are none.
    pub(super) fn release_withdrawn(&mut self) -> bool {
        let (voters, me) = (self.voters(), self.base.me.id);
        let Some((engine, group, steward)) = Voter::serving(&mut self.voter) else { return false };
        let is_needed = |id: &NodeId| voters.contains(id) || !engine.voters_are_stored();
        let out: Vec<(NodeId, Incarnation)> = steward
            .withdrawn
            .iter()
            .filter(|(id, withdrawal)| {
                let is_in = group.incarnation_of(**id) == Some(withdrawal.incarnation);
                let votes = is_needed(id) || group.absent.contains_key(id);
                let may_go = **id != me || group.members.is_empty();
                !is_in && (withdrawal.keeps_vote || !votes) && may_go
            })
            .map(|(id, withdrawal)| (*id, withdrawal.incarnation))
            .collect();
        for (id, incarnation) in &out {
            steward.withdrawn.remove(id);
            self.base.send(*id, Control::Withdrawn { incarnation: *incarnation });
        }
        !out.is_empty()
    }
}
