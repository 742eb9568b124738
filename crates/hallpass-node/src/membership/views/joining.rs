//! Joining a group, and asking its steward for something: both are repeated until they are answered.

use std::collections::BTreeSet;

use hallpass_core::{NodeId, Ticks};

use super::member::Phase;
use super::voter::Voter;
use super::{Action, Views};
use crate::faults::Conduct;
use crate::links::Links;
use crate::locks::Classes;
use crate::membership::control::{Contacts, Control};
use crate::membership::group::{Group, Member};
use crate::membership::steward::Candidate;
use crate::output::Request;

/// The side of a node that asks.
impl<F: Conduct> Views<F> {
    /// Says again what has not been answered.
    pub(super) fn repeat(&mut self, links: &Links) {
        let rests = matches!(self.member.phase(), Phase::Waiting { .. } | Phase::Persisting | Phase::Gone);
        if rests || self.outside.held_back.is_some() {
            return;
        }
        let is_in_group = self.is_in_group();
        if let Some(founders) = self.outside.founders.as_mut().filter(|_| !is_in_group) {
            let message = Control::Founding { expect: founders.expect() as u32, known: founders.known() };
            for peer in founders.to_tell(self.base.connected.keys().copied()) {
                self.base.send(peer, message.clone());
            }
            return;
        }
        let is_out = !self.member.install().is_in_view() && !self.member.next().is_too_early();
        if let Phase::Withdrawing { keeps_vote, .. } = self.member.phase() {
            self.hand_over_office();
            let message = Control::Withdraw { incarnation: self.base.me.incarnation, keeps_vote };
            self.ask_steward(message);
        } else if self.refuses() {
            // It votes on, and is out of the view: the others do not wait for it.
            let message = Control::Withdraw { incarnation: self.base.me.incarnation, keeps_vote: self.base.me.durable };
            self.ask_steward(message);
        } else if is_out && self.base.now >= self.member.joins_from && !self.base.is_remembering() {
            let reached = links.iter().filter(|link| link.connected).map(|link| link.peer).collect();
            let message = Control::Join { member: self.base.me.clone(), reached };
            self.ask_steward(message);
        }
        for (token, request) in self.base.requests.clone() {
            if !matches!(request, Request::Stop | Request::Leave) {
                self.ask_steward(Control::Ask { token, request });
            }
        }
    }

    /// When something is to be said again.
    pub(super) fn repeat_deadline(&self) -> Option<Ticks> {
        let repeats = self.outside.founders.is_some() && !self.is_in_group()
            || !self.base.requests.is_empty()
            || self.member.install().open().is_none()
            || self.member.phase() != Phase::Running;
        (repeats && self.outside.held_back.is_none()).then_some(self.base.repeat_at)
    }

    /// True while the group has a class of locks whose protocol this version does not know.
    fn refuses(&mut self) -> bool {
        let is_over = |group: &Group, epoch| group.epoch > epoch && Classes::unknown(&group.classes).is_none();
        let group = self.voter.as_ref().and_then(Voter::group);
        self.member.refusal.take_if(|(epoch, _)| group.is_some_and(|group| is_over(group, *epoch)));
        self.member.refusal.is_some()
    }

    /// Asks the steward, or those who vote where it is not known or not reached: they know it first.
    pub(super) fn ask_steward(&mut self, message: Control) {
        self.base.asked = self.base.asked.wrapping_add(1);
        // Now and then everybody is asked: the one who is taken for the steward may not be it any more, unless it has just
        // said so itself.
        let doubts = self.base.now >= self.base.steward_heard + 4 * self.repeat_after();
        let asks_all = doubts && self.base.asked.is_multiple_of(8);
        let steward = self.steward_id().filter(|id| *id == self.base.me.id || self.base.connected.contains_key(id));
        match steward.filter(|id| *id == self.base.me.id || !asks_all) {
            Some(steward) => self.base.send(steward, message),
            None => {
                let voters: BTreeSet<NodeId> =
                    self.voters().into_iter().filter(|id| self.base.connected.contains_key(id)).collect();
                let knows_voters = !voters.is_empty() && !asks_all;
                let all = || self.base.connected.keys().copied().collect();
                for peer in if knows_voters { voters } else { all() } {
                    self.base.send(peer, message.clone());
                }
            }
        }
    }

    /// A node stores that it is in a group before it asks to join: members that wait for a view do not wait for its disk.
    fn remember_before_joining(&mut self) {
        let Contacts { epoch, ttl, drift_ppm, .. } = self.base.known;
        let joins = !self.member.install().is_in_view() && !self.member.next().is_too_early() && ttl > 0;
        if !joins || self.base.remembered == self.base.group_id || self.base.is_remembering() {
            return;
        }
        let by_id = |members: &[Member]| members.iter().map(|member| (member.id, member.clone())).collect();
        // Of a term in which nothing is decided: it was in no view yet, and cannot be what a group is recovered from.
        let group = Group {
            id: self.base.group_id,
            epoch,
            term: 0,
            members: by_id(&self.base.known.members),
            absent: by_id(&self.base.known.absent),
            banned: self.base.bans.names.clone(),
            classes: Vec::new(),
            ttl,
            drift_ppm,
            durable: self.base.me.durable,
        };
        // Another node has told of it, also where that lists no member yet: a recovered group waits before its first view.
        self.base.is_shared = true;
        self.base.remember(&group);
    }

    pub(super) fn on_contacts(&mut self, from: NodeId, mut contacts: Contacts) {
        if contacts.epoch < self.base.known.epoch {
            return;
        }
        if contacts.steward == Some(from) {
            self.base.steward_heard = self.base.now;
        } else if contacts.epoch == self.base.known.epoch && self.base.known.steward.is_some() {
            // Only the steward knows who wants to join. What others have heard of it differs from one to the next, and would be
            // news each time.
            contacts.candidates.clone_from(&self.base.known.candidates);
        }
        self.base.why = None;
        self.base.is_stored = true;
        // A node that is known under a higher incarnation, or was removed under this one, takes the next.
        let me = &self.base.me;
        let mine = contacts.members.iter().chain(&contacts.absent).find(|member| member.id == me.id);
        let in_view = contacts.members.iter().any(|one| one.id == me.id && one.incarnation == me.incarnation);
        let is_out = mine.is_some_and(|member| member.incarnation >= me.incarnation) && !in_view;
        // A node that knows no steward tells nothing new about it: else it would be asked again for every answer.
        let contacts = Contacts { steward: contacts.steward.or(self.base.known.steward), ..contacts };
        // A leader that lost its vote while it was cut off is told so by nobody else.
        let is_behind = self.replica().is_some_and(|group| contacts.epoch > group.epoch);
        if let Some(voter) = self.voter.as_mut().filter(|_| is_behind && !contacts.voters.contains(&me.id)) {
            voter.engine.step_down();
        }
        let changed = self.base.known != contacts;
        self.base.known = contacts;
        if let Some(banned) = self.base.known.banned.clone().filter(|_| changed) {
            self.follow_bans(self.base.known.epoch, &banned);
        } else if changed {
            self.refuse_wrong_peers();
        }
        self.remember_before_joining();
        if self.member.phase() == Phase::Running && is_out {
            self.return_after_removal();
        }
        if changed {
            self.member.renew_at = self.member.renew_at.min(self.base.now);
            self.repeat_soon();
            self.base.actions.push_back(Action::Peers);
        }
    }

    /// The group does not have this incarnation in its view any more: the node comes back as a later one.
    fn return_after_removal(&mut self) {
        let known = &self.base.known;
        let mine = known.members.iter().chain(&known.absent).find(|member| member.id == self.base.me.id);
        let last = mine.map_or(0, |member| member.incarnation.get());
        let next = last.max(self.base.me.incarnation.get()).saturating_add(1);
        if self.member.takes_part() {
            self.end_view();
        }
        self.come_back_as(next);
    }

    /// The steward has new candidates.
    pub(super) fn on_candidates(&mut self, epoch: u64, candidates: Vec<Member>) {
        if epoch >= self.base.known.epoch && candidates != self.base.known.candidates {
            self.base.known.candidates = candidates;
            self.base.actions.push_back(Action::Peers);
        }
    }

    /// It is not admitted, for this reason.
    pub(super) fn on_refused(&mut self, why: String) {
        self.base.why = Some(why);
        self.base.actions.push_back(Action::View);
    }
}

/// The steward's side.
impl<F: Conduct> Views<F> {
    pub(super) fn on_join(&mut self, from: NodeId, member: Member, reached: Vec<NodeId>) {
        let Some((_, group, steward)) = Voter::serving(&mut self.voter) else {
            self.send_founding(from);
            return self.send_contacts(from);
        };
        if self.outside.held_back.is_some() {
            return self.send_contacts(from);
        }
        if !self.base.is_called(from, &member.name) {
            let why = format!("it is not called '{}' in its greeting", member.name);
            return self.base.send(from, Control::Refused { why });
        }
        if group.banned.contains(&member.name) {
            let why = format!("'{}' was evicted from the group for good", member.name);
            return self.base.send(from, Control::Refused { why });
        }
        let same_name = |known: &&Member| known.name == member.name && known.id != member.id;
        if let Some(known) = group.members.values().find(same_name) {
            // A node that has lost its directory takes the place of the old one when that is gone.
            let why = format!(
                "a member of the name '{}' is in the group ({}): it is admitted when that one is gone, or under another name",
                known.name, known.address
            );
            self.base.send(from, Control::Refused { why });
            return self.send_contacts(from);
        }
        if group.find(from).is_some_and(|known| known.incarnation >= member.incarnation)
            && group.incarnation_of(from) != Some(member.incarnation)
        {
            // It was here before under this incarnation: it must come back under the next.
            return self.send_contacts(from);
        }
        if group.incarnation_of(from) == Some(member.incarnation) {
            steward.announce_at = 0;
            return self.send_contacts(from);
        }
        let connected = &self.base.connected;
        if let Some(why) = steward.why_no_candidate(group, &member, |id| connected.contains_key(&id)) {
            return self.base.send(from, Control::Refused { why });
        }
        // Its predecessor is dead: the node vouches for it.
        steward.sessions.stop_acknowledging(from);
        let candidate = Candidate { member, reached: reached.into_iter().collect(), heard: self.base.now };
        let is_new = steward.candidates.insert(from, candidate).is_none();
        if is_new {
            // All members hear of it soon, and of all others that come at about the same time.
            self.announce_soon();
            self.base.actions.push_back(Action::Peers);
        }
        self.send_contacts(from);
    }
}
