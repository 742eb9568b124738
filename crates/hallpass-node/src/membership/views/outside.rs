//! A node outside any group, until it has founded one with others or has heard of one to join.

use hallpass_core::NodeId;

use super::elsewhere::HeldBack;
use super::member::Phase;
use super::voter::Voter;
use super::{Action, Purpose, Views};
use crate::faults::Conduct;
use crate::membership::control::{Contacts, Control, Founder};
use crate::membership::founding::Founders;
use crate::membership::group::Group;
use crate::membership::keys;

/// What belongs to how a node comes to a group.
#[derive(Default)]
pub(super) struct Outside {
    /// With whom it founds a group. It says so again after that, for those who have missed it, until it joins a group of others.
    pub(super) founders: Option<Founders>,
    /// Why it grants nothing though it could decide alone.
    pub(super) held_back: Option<HeldBack>,
}

impl<F: Conduct> Views<F> {
    pub(super) fn is_in_group(&self) -> bool {
        self.base.group_id != 0 || self.voter.is_some()
    }

    /// This node is in the group of this id from now on: it joins it, or comes back to it.
    pub(super) fn enter_group(&mut self, group_id: u64) {
        self.base.group_id = group_id;
        self.outside.founders = None;
    }

    /// Founds the group, once all founders agree; false if there is nothing to do.
    pub(super) fn found_if_agreed(&mut self) -> bool {
        if self.is_in_group() {
            return false;
        }
        let agreed = self.outside.founders.as_ref().and_then(Founders::agreed);
        agreed.inspect(|founders| self.found(founders)).is_some()
    }

    /// Founds the group with all who agree.
    pub(super) fn found(&mut self, founders: &[Founder]) {
        let group = self.base.founding(founders);
        self.base.group_id = group.id;
        self.base.known = Contacts {
            epoch: group.epoch,
            members: group.members.values().cloned().collect(),
            voters: self.base.founding_voters(&group),
            ttl: group.ttl,
            drift_ppm: group.drift_ppm,
            banned: Some(group.banned.clone()),
            ..Contacts::default()
        };
        self.member.begin_session(self.base.me.incarnation, group.ttl);
        self.base.is_stored = false;
        if !self.begin_to_vote(&group) {
            // The group itself is stored with the first view. Before that the voters may lose it, and it is founded again.
            let mut bytes = Vec::new();
            Founder::encode_all(founders, &mut bytes);
            self.base.persist(Purpose::Nothing, 0..0, vec![(keys::FOUNDERS, bytes)]);
        }
        self.base.actions.push_back(Action::Peers);
    }

    /// A founder that votes begins with the group as it was founded, and hears from others what has changed. False if it does not vote.
    fn begin_to_vote(&mut self, group: &Group) -> bool {
        let voters = self.base.founding_voters(group);
        if !voters.contains(&self.base.me.id) {
            return false;
        }
        let campaign_until = self.base.now + 40 * self.tick();
        self.voter = Some(Voter::found(&self.base, group, &voters, campaign_until));
        true
    }

    pub(super) fn on_founding(&mut self, from: NodeId, expect: u32, known: Vec<Founder>) {
        if self.is_in_group() {
            self.send_founding(from);
            return self.send_contacts(from);
        }
        let own = known.iter().find(|founder| founder.id == from);
        if !own.is_some_and(|founder| self.base.is_called(from, &founder.name)) {
            return;
        }
        let Some(founders) = &mut self.outside.founders else { return };
        if expect as usize != founders.expect() {
            self.base.why = Some(format!(
                "another node expects {expect} members, this one {}: give all members the same list",
                founders.expect()
            ));
            return;
        }
        self.base.why = None;
        if founders.on_said(from, known) {
            self.repeat_soon();
            self.base.actions.push_back(Action::View);
        }
    }

    /// What this node founded with others it says again: they may have missed it, or not have stored it.
    pub(super) fn send_founding(&mut self, to: NodeId) {
        if self.outside.held_back.is_some() {
            return;
        }
        if let Some(founders) = self.outside.founders.as_ref().filter(|_| to != self.base.me.id) {
            let message = Control::Founding { expect: founders.expect() as u32, known: founders.known() };
            self.base.send(to, message);
        }
    }

    /// Others have founded a group with this node, which has not, or died before that was stored. If it is to vote it has never
    /// done so: it begins where the others began, as one that was away since then.
    pub(super) fn on_founded(&mut self, group_id: u64, founders: &[Founder]) {
        let settings = self.base.founder().settings;
        let is_mine = founders.iter().any(|founder| founder.id == self.base.me.id)
            && founders.iter().all(|founder| founder.settings == settings);
        let group = self.base.founding(founders);
        if self.member.phase() == Phase::Gone || self.voter.is_some() || !is_mine || group.id != group_id {
            return;
        }
        if self.base.group_id == 0 {
            self.found(founders);
        } else if self.base.group_id == group_id {
            self.begin_to_vote(&group);
        }
    }
}
