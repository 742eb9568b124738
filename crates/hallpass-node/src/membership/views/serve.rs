//! What a node does for its group without being asked: it founds it with others, and as the steward it goes on with whatever
//! is due.

use hallpass_core::NodeId;

use super::{Action, Views, break_token};
use crate::Incarnation;
use crate::config::Sabotage;
use crate::membership::control::Control;
use crate::membership::group::Command;
use crate::membership::install::{Step, parts};
use crate::membership::steward::OrderState;
use crate::output::Request;

impl Views {
    /// One step; false if there is nothing to do.
    pub(super) fn serve_group(&mut self) -> bool {
        if !self.is_in_group()
            && let Some(founders) = self.founders.as_ref().and_then(|founders| founders.agreed())
        {
            self.found(&founders);
            return true;
        }
        let serves = self.steward.is_some() && self.held_back.is_none();
        serves && (self.confirm() || self.expel() || self.propose() || self.announce() || self.answer())
    }

    /// Has the renewals that came in confirmed by a quorum.
    fn confirm(&mut self) -> bool {
        let (Some(steward), Some(engine)) = (&mut self.steward, &mut self.engine) else { return false };
        let batch = steward.sessions.close_batch();
        batch.inspect(|batch| engine.confirm(*batch)).is_some()
    }

    /// Members that do not reach each other cannot both stay.
    fn expel(&mut self) -> bool {
        let voters = self.voters();
        let (Some(steward), Some(group)) = (&mut self.steward, &self.replica) else { return false };
        let expelled = steward.to_expel(group, &voters, self.now);
        let expelled: Vec<(NodeId, Incarnation)> = expelled
            .into_iter()
            .filter_map(|id| group.incarnation_of(id).map(|incarnation| (id, incarnation)))
            .collect();
        for (id, incarnation) in &expelled {
            if let Some(steward) = &mut self.steward {
                steward.sessions.doom(*id);
            }
            self.send(*id, Control::Expelled { incarnation: *incarnation });
        }
        !expelled.is_empty()
    }

    /// Proposes the next view, if there is a reason for one.
    fn propose(&mut self) -> bool {
        self.renew_alone();
        let (voters, now) = (self.voters(), self.now);
        let (Some(steward), Some(group), Some(engine)) = (&mut self.steward, &self.replica, &mut self.engine) else {
            return false;
        };
        if steward.forget_silent(group.ttl, now) {
            self.actions.push_back(Action::Peers);
        }
        let is_early = self.settings.sabotage == Some(Sabotage::EvictEarly);
        let expiry = if is_early { group.ttl / 4 + group.ttl / 16 } else { group.expiry() };
        let Some(changes) = steward.next_view(group, &voters, expiry, now) else { return false };
        if self.waits_for_lost {
            return false;
        }
        // The engine takes none while the office is being handed over. It is asked again with its next tick.
        let command = Command { term: engine.term(), base: group.epoch, changes };
        let is_proposed = engine.propose(command.encode());
        if is_proposed || self.settings.sabotage == Some(Sabotage::CountRefusedProposals) {
            steward.on_proposed(group.epoch);
        }
        is_proposed
    }

    /// Goes on with the installation of the view: whoever has not answered is told again.
    fn announce(&mut self) -> bool {
        let (voters, now, interval) = (self.voters(), self.now, self.repeat_after());
        let me = self.me.id;
        let limits = (self.settings.voters_max, self.settings.replace_after);
        let (Some(steward), Some(group), Some(engine)) = (&mut self.steward, &self.replica, &mut self.engine) else {
            return false;
        };
        let target = steward.voters(group, &voters, me, limits, now);
        if !target.is_empty() && target != engine.voters() {
            engine.set_voters(&target);
        }
        let step = (steward.installation.epoch, steward.installation.step);
        let is_new = steward.announced != Some(step);
        if !is_new && now < self.timers.steward {
            return false;
        }
        steward.announced = Some(step);
        self.timers.steward = now + interval;
        let (epoch, missing) = (steward.installation.epoch, steward.installation.missing.clone());
        let messages: Vec<Control> = match steward.installation.step {
            Step::Probing => vec![Control::Probe { epoch }],
            Step::Preparing => vec![Control::Prepare { group: group.clone(), voters }],
            Step::Starting => {
                let chunks = parts(&steward.installation.locks);
                let count = chunks.len() as u32;
                let start = |(part, locks)| Control::Start { epoch, part, parts: count, locks };
                (0..).zip(chunks).map(start).collect()
            }
            Step::Done | Step::Void => Vec::new(),
        };
        let breaking: Vec<(u64, String)> = steward
            .orders
            .iter()
            .filter_map(|order| match (&order.request, &order.state) {
                (Request::Break { lock }, OrderState::Breaking(_)) => {
                    Some((break_token(order.from, order.token), lock.clone()))
                }
                _ => None,
            })
            .collect();
        let members: Vec<NodeId> = group.members.keys().copied().collect();
        for id in missing.into_keys() {
            for message in &messages {
                self.send(id, message.clone());
            }
        }
        for (token, lock) in breaking {
            for id in &members {
                self.send(*id, Control::Break { token, lock: lock.clone() });
            }
        }
        if is_new && step.1 == Step::Done {
            self.actions.push_back(Action::View);
        }
        // Members that have not heard of a candidate cannot be reached by it.
        let has_candidates = self.steward.as_ref().is_some_and(|steward| !steward.candidates.is_empty());
        if is_new && step.1 == Step::Done {
            self.spread_contacts();
        } else if !is_new && has_candidates {
            self.spread_candidates();
        }
        is_new
    }

    /// Answers what has been done.
    fn answer(&mut self) -> bool {
        let (voters, me) = (self.voters(), self.me.id);
        let (Some(steward), Some(group), Some(engine)) = (&mut self.steward, &self.replica, &self.engine) else {
            return false;
        };
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
        for (id, _) in &out {
            steward.withdrawn.remove(id);
        }
        let is_installed = steward.is_installed();
        let mut answers = Vec::new();
        steward.orders.retain(|order| {
            let result = match (&order.request, &order.state) {
                (_, OrderState::Until(epoch)) if is_installed && group.epoch >= *epoch => Ok(()),
                (Request::Evict { node, .. }, OrderState::Evicted) => {
                    // One that was admitted again has its vote again.
                    let keeps_vote = is_needed(node) && group.find(*node).is_none();
                    if keeps_vote || !is_installed || order.bans.is_some() {
                        return true;
                    }
                    Ok(())
                }
                (_, OrderState::Breaking(said)) => {
                    let all = group.members.keys().all(|id| said.get(id).is_some_and(|(_, left)| *left == 0));
                    let held = said.values().any(|(before, _)| *before > 0);
                    match (all, held) {
                        (false, _) => return true,
                        (true, true) => Ok(()),
                        (true, false) => Err("nobody holds this lock".to_owned()),
                    }
                }
                _ => return true,
            };
            answers.push((order.from, order.token, result));
            false
        });
        let any = !out.is_empty() || !answers.is_empty();
        for (id, incarnation) in out {
            self.send(id, Control::Withdrawn { incarnation });
        }
        for (to, token, result) in answers {
            self.send(to, Control::Answer { token, result });
        }
        any
    }
}
