//! What a node knows of its group and shows.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_core::NodeId;

use super::Views;
use super::member::Phase;
use crate::faults::Conduct;
use crate::links::Links;
use crate::membership::group::{Group, Member};
use crate::status::{MemberStatus, Status, ViewState};

impl<F: Conduct> Views<F> {
    pub(crate) fn state(&self) -> ViewState {
        self.member.state()
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        self.member.install().open().or_else(|| self.member.install().group().map(|group| group.epoch))
    }

    /// Who is banned, as this node knows it best. It does not forget it while it is in no view.
    pub(crate) fn banned(&self) -> &BTreeSet<String> {
        &self.base.bans.names
    }

    /// Who is in the view that this node is in, or has reported for.
    pub(crate) fn view(&self) -> Vec<NodeId> {
        self.member.install().group().into_iter().flat_map(|group| group.members.keys().copied()).collect()
    }

    pub(crate) fn status(&self, links: &Links) -> Status {
        let view = self.state();
        Status {
            view,
            epoch: self.epoch(),
            group_id: (self.base.group_id != 0).then_some(self.base.group_id),
            steward: self.steward_id(),
            voters: self.certain_voters(),
            session_until: self.member.session().valid_until().filter(|_| !self.needs_no_session()),
            ttl: self.member.session().ttl(),
            drift_ppm: self.base.settings.drift_ppm,
            waits_for: (view != ViewState::Open).then(|| self.waits_for(links)),
        }
    }

    /// What is missing before locks are granted, for people.
    pub(super) fn waits_for(&self, links: &Links) -> String {
        if let Some(held_back) = &self.outside.held_back {
            return held_back.why().to_owned();
        }
        if let Some(why) = self.waits_for_earlier_voters() {
            return why;
        }
        if let Some(why) = self.member.refusal.as_ref().map(|(_, why)| why).or(self.base.why.as_ref()) {
            return why.clone();
        }
        if let Some(founders) = self.outside.founders.as_ref().filter(|_| !self.is_in_group()) {
            if let Some(other) = founders.other_settings() {
                return format!(
                    "'{}' ({}) has another ttl, drift or number of voters, another time after which voters are replaced, or other lock \
                     classes: give all members the same",
                    other.name, other.address
                );
            }
            let known = founders.known();
            let names: Vec<String> = known.iter().map(|founder| format!("'{}'", founder.name)).collect();
            if known.len() > founders.expect() {
                return format!(
                    "{} nodes have found each other, and {} are expected to found the group: {}; stop those that are too many \
                     and start the others again, or have all expect {}",
                    known.len(),
                    founders.expect(),
                    names.join(", "),
                    known.len()
                );
            }
            return format!(
                "to found the group {} of {} nodes have found each other: {}",
                known.len(),
                founders.expect(),
                names.join(", ")
            );
        }
        match self.member.phase() {
            Phase::Waiting { .. } => return "waits until the session of its predecessor is over".to_owned(),
            Phase::Persisting => return "writes to its data directory".to_owned(),
            Phase::Withdrawing { .. } | Phase::Gone => return "leaves the group".to_owned(),
            Phase::Running => {}
        }
        if self.steward_id().is_none() {
            let voters = self.voters();
            let reached =
                voters.iter().filter(|id| **id == self.base.me.id || self.base.connected.contains_key(id)).count();
            return format!(
                "no member is the steward: {reached} of {} voters can be reached, and more than half are needed",
                voters.len().max(1)
            );
        }
        let missing: Vec<String> = self
            .base
            .known
            .members
            .iter()
            .filter(|member| member.id != self.base.me.id)
            .filter(|member| links.position(member.id).is_none_or(|link| !links[link].connected))
            .map(|member| format!("'{}' ({})", member.name, member.address))
            .collect();
        if missing.is_empty() {
            "waits for the next view".to_owned()
        } else {
            format!("waits to reach {}", missing.join(", "))
        }
    }

    /// Voters were being replaced, and most of those before are gone.
    fn waits_for_earlier_voters(&self) -> Option<String> {
        let engine = self.engine().filter(|engine| engine.leader().is_none() && self.has_vote(engine))?;
        let before = engine.outgoing();
        let is_away = |id: &NodeId| *id != self.base.me.id && !self.base.connected.contains_key(id);
        let away: Vec<NodeId> = before.iter().copied().filter(is_away).collect();
        if before.is_empty() || 2 * (before.len() - away.len()) > before.len() {
            return None;
        }
        let name =
            |id: &NodeId| self.find_member(*id).map_or_else(|| id.to_string(), |member| format!("'{}'", member.name));
        let away: Vec<String> = away.iter().map(name).collect();
        Some(format!(
            "voters were being replaced, and most of those before must agree: {} cannot be reached; if that is for good, run 'hallpass \
             recover' on one member",
            away.join(", ")
        ))
    }

    pub(crate) fn members(&self, links: &Links) -> Vec<MemberStatus> {
        let group = self.group();
        let (voters, steward) = (self.certain_voters(), self.steward_id());
        let expiry = group.map_or(0, Group::expiry);
        let mut all: BTreeMap<NodeId, &Member> = self.peers();
        all.insert(self.base.me.id, &self.base.me);
        let status = |(id, member): (NodeId, &Member)| {
            let mut status = match links.position(id) {
                Some(link) => MemberStatus::of(&links[link]),
                None => MemberStatus::new(id),
            };
            status.name.clone_from(&member.name);
            status.address.clone_from(&member.address);
            status.incarnation = Some(member.incarnation);
            status.in_view = group.is_some_and(|group| group.incarnation_of(id) == Some(member.incarnation));
            (status.voter, status.steward) = (voters.contains(&id), steward == Some(id));
            status.session_until = match self.steward() {
                Some(steward) if id != self.base.me.id => steward.sessions.last(id).map(|last| last + expiry),
                _ if id == self.base.me.id => self.member.session().valid_until().filter(|_| !self.needs_no_session()),
                _ => None,
            };
            status.connected |= id == self.base.me.id;
            status
        };
        all.into_iter().map(status).collect()
    }
}
