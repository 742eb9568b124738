//! What a node knows of its group and shows.

use std::collections::BTreeMap;

use hallpass_core::{NodeId, Ticks};

use super::{Phase, Views};
use crate::links::Links;
use crate::membership::engine::Engine;
use crate::membership::group::{Group, Member};
use crate::membership::steward::Steward;
use crate::status::{Contact, MemberStatus, Status, ViewState};

impl Views {
    pub(crate) fn state(&self) -> ViewState {
        match self.phase {
            Phase::Persisting => ViewState::Lapsed,
            Phase::Waiting { .. } | Phase::Withdrawing { .. } | Phase::Gone => ViewState::Joining,
            Phase::Running if self.session.has_lapsed() => ViewState::Lapsed,
            Phase::Running if self.install.open().is_some() => ViewState::Open,
            Phase::Running if self.view.is_some() => ViewState::Changing,
            Phase::Running => ViewState::Joining,
        }
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        self.install.open().or_else(|| self.view.as_ref().map(|group| group.epoch))
    }

    pub(crate) fn term(&self) -> Option<u64> {
        self.engine.as_ref().map(Engine::term)
    }

    /// Nobody can take away what a node holds that is alone and decides alone.
    pub(super) fn is_alone(&self) -> bool {
        let alone = |group: &Group| group.members.len() == 1 && group.members.contains_key(&self.me.id);
        self.decides_alone() && self.replica.as_ref().is_some_and(alone)
    }

    /// It is the steward, and nobody else votes: what it says to itself is confirmed at once.
    pub(super) fn decides_alone(&self) -> bool {
        self.steward.is_some() && self.engine.as_ref().is_some_and(|engine| engine.voters() == [self.me.id])
    }

    /// A steward that decides alone is acknowledged by itself, unless it is to be removed as any other member may be.
    pub(super) fn renews_alone(&self) -> bool {
        let is_doomed = |steward: &Steward| steward.sessions.is_doomed(self.me.id);
        let is_member = |group: &Group| group.incarnation_of(self.me.id) == Some(self.me.incarnation);
        self.decides_alone()
            && !self.steward.as_ref().is_some_and(is_doomed)
            && self.replica.as_ref().is_some_and(is_member)
    }

    /// It is alone, and nobody wants to join. Whoever is told until when it holds a lock is to know it before a second member
    /// is there.
    pub(super) fn needs_no_session(&self) -> bool {
        self.is_alone()
            && self.renews_alone()
            && self.steward.as_ref().is_none_or(|steward| steward.candidates.is_empty())
    }

    /// Until when what is held here is held for certain; 0 without a session.
    pub(crate) fn valid_until(&self) -> Ticks {
        if self.needs_no_session() { Ticks::MAX } else { self.session.valid_until().unwrap_or(0) }
    }

    pub(crate) fn at_risk_from(&self) -> Ticks {
        match self.valid_until() {
            Ticks::MAX => Ticks::MAX,
            until => until.saturating_sub(self.session.ttl() / 2),
        }
    }

    /// Whom this node is to be connected with.
    pub(super) fn peers(&self) -> BTreeMap<NodeId, &Member> {
        let members = self.known.members.iter().chain(self.replica.iter().flat_map(|group| group.members.values()));
        let members = members.chain(self.view.iter().flat_map(|group| group.members.values()));
        let candidates = self.steward.iter().flat_map(|steward| steward.candidates.values()).map(|one| &one.member);
        // Whoever leaves waits for an answer.
        let leaving = self.steward.iter().flat_map(|steward| steward.withdrawn.values());
        let leaving = leaving.filter_map(|withdrawal| withdrawal.member.as_ref());
        let present = members.chain(&self.known.candidates).chain(candidates).chain(leaving);
        let mut peers: BTreeMap<NodeId, &Member> = BTreeMap::new();
        for member in present {
            let known = peers.entry(member.id).or_insert(member);
            if known.incarnation < member.incarnation {
                *known = member;
            }
        }
        let absent = self.known.absent.iter().chain(self.replica.iter().flat_map(|group| group.absent.values()));
        // Where a voter that is away was reached, its successor may be by now.
        let is_taken = |address: &str| peers.values().any(|member| member.address == address);
        let away: Vec<&Member> = absent.filter(|member| !is_taken(&member.address)).collect();
        for member in away {
            peers.entry(member.id).or_insert(member);
        }
        peers.remove(&self.me.id);
        peers
    }

    /// Who is in the view that this node is in, or has reported for.
    pub(crate) fn view(&self) -> Vec<NodeId> {
        self.view.iter().flat_map(|group| group.members.keys().copied()).collect()
    }

    pub(crate) fn contacts(&self) -> Vec<Contact> {
        if self.phase == Phase::Gone {
            return Vec::new();
        }
        let contact = |(id, member): (NodeId, &Member)| Contact {
            id,
            name: member.name.clone(),
            address: member.address.clone(),
        };
        self.peers().into_iter().map(contact).collect()
    }

    pub(crate) fn needs_seeds(&self) -> bool {
        match self.phase {
            Phase::Gone => false,
            _ if !self.is_in_group() => self.founders.as_ref().is_none_or(|founders| founders.expect() > 1),
            _ if self.held_back.is_some() => true,
            _ if self.is_alone() => false,
            // Only the steward lets it in, and does not dial whom it does not know.
            _ => {
                let reaches_steward =
                    self.steward_id().is_some_and(|id| id == self.me.id || self.connected.contains(&id));
                self.install.open().is_none() && !reaches_steward
            }
        }
    }

    pub(super) fn voters(&self) -> Vec<NodeId> {
        match &self.engine {
            // A node that has lost its vote may not have heard of later changes.
            Some(engine) if self.has_vote(engine) || self.known.voters.is_empty() => engine.voters(),
            _ => self.known.voters.clone(),
        }
    }

    /// The group as this node knows it best.
    pub(super) fn group(&self) -> Option<&Group> {
        self.replica.iter().chain(&self.view).max_by_key(|group| group.epoch)
    }

    pub(super) fn steward_id(&self) -> Option<NodeId> {
        // What it was told is right, unless that it leads itself: its engine knows better.
        let told = self.known.steward.filter(|id| *id != self.me.id);
        match &self.engine {
            Some(engine) if self.has_vote(engine) => engine.leader().or(told),
            _ => told,
        }
    }

    /// Whoever has lost its vote hears no more of what the voters do.
    pub(super) fn has_vote(&self, engine: &Engine) -> bool {
        let is_ahead = self.replica.as_ref().is_some_and(|group| group.epoch >= self.known.epoch);
        engine.voters().contains(&self.me.id) && (is_ahead || self.known.voters.contains(&self.me.id))
    }

    pub(crate) fn status(&self, links: &Links) -> Status {
        let view = self.state();
        Status {
            view,
            epoch: self.epoch(),
            group_id: (self.group_id != 0).then_some(self.group_id),
            steward: self.steward_id(),
            voters: self.voters(),
            session_until: self.session.valid_until().filter(|_| !self.needs_no_session()),
            ttl: self.session.ttl(),
            drift_ppm: self.settings.drift_ppm,
            waits_for: (view != ViewState::Open).then(|| self.waits_for(links)),
        }
    }

    /// What is missing before locks are granted, for people.
    pub(super) fn waits_for(&self, links: &Links) -> String {
        if let Some(held_back) = &self.held_back {
            return held_back.why().to_owned();
        }
        if let Some(why) = self.refusal.as_ref().map(|(_, why)| why).or(self.why.as_ref()) {
            return why.clone();
        }
        if let Some(founders) = self.founders.as_ref().filter(|_| !self.is_in_group()) {
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
        match self.phase {
            Phase::Waiting { .. } => return "waits until the session of its predecessor is over".to_owned(),
            Phase::Persisting => return "writes to its data directory".to_owned(),
            Phase::Withdrawing { .. } | Phase::Gone => return "leaves the group".to_owned(),
            Phase::Running => {}
        }
        if self.steward_id().is_none() {
            let voters = self.voters();
            let reached = voters.iter().filter(|id| **id == self.me.id || self.connected.contains(id)).count();
            return format!(
                "no member is the steward: {reached} of {} voters can be reached, and more than half are needed",
                voters.len().max(1)
            );
        }
        let missing: Vec<String> = self
            .known
            .members
            .iter()
            .filter(|member| member.id != self.me.id)
            .filter(|member| links.position(member.id).is_none_or(|link| !links[link].connected))
            .map(|member| format!("'{}' ({})", member.name, member.address))
            .collect();
        if missing.is_empty() { "the next view".to_owned() } else { format!("to reach {}", missing.join(", ")) }
    }

    pub(crate) fn members(&self, links: &Links) -> Vec<MemberStatus> {
        let group = self.group();
        let (voters, steward) = (self.voters(), self.steward_id());
        let expiry = group.map_or(0, Group::expiry);
        let mut all: BTreeMap<NodeId, &Member> = self.peers();
        all.insert(self.me.id, &self.me);
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
            status.session_until = match &self.steward {
                Some(steward) if id != self.me.id => steward.sessions.last(id).map(|last| last + expiry),
                _ if id == self.me.id => self.session.valid_until().filter(|_| !self.needs_no_session()),
                _ => None,
            };
            status.connected |= id == self.me.id;
            status
        };
        all.into_iter().map(status).collect()
    }
}
