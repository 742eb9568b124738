//! Who is to be connected with whom.

use std::collections::BTreeMap;

use hallpass_core::NodeId;

use super::member::Phase;
use super::voter::Voter;
use super::{Action, Views};
use crate::faults::Conduct;
use crate::membership::control::{Contacts, Control, Envelope};
use crate::membership::group::Member;
use crate::status::Contact;

impl<F: Conduct> Views<F> {
    /// Whom this node is to be connected with.
    pub(super) fn peers(&self) -> BTreeMap<NodeId, &Member> {
        let members =
            self.base.known.members.iter().chain(self.replica().into_iter().flat_map(|group| group.members.values()));
        let members = members.chain(self.member.install().group().into_iter().flat_map(|group| group.members.values()));
        let candidates =
            self.steward().into_iter().flat_map(|steward| steward.candidates.values()).map(|one| &one.member);
        // A member that leaves waits for an answer.
        let leaving = self.steward().into_iter().flat_map(|steward| steward.withdrawn.values());
        let leaving = leaving.filter_map(|withdrawal| withdrawal.member.as_ref());
        let present = members.chain(&self.base.known.candidates).chain(candidates).chain(leaving);
        let mut peers: BTreeMap<NodeId, &Member> = BTreeMap::new();
        for member in present {
            let known = peers.entry(member.id).or_insert(member);
            if known.incarnation < member.incarnation {
                *known = member;
            }
        }
        let absent =
            self.base.known.absent.iter().chain(self.replica().into_iter().flat_map(|group| group.absent.values()));
        // Where a voter that is away was reached, its successor may be by now.
        let is_taken = |address: &str| peers.values().any(|member| member.address == address);
        let away: Vec<&Member> = absent.filter(|member| !is_taken(&member.address)).collect();
        for member in away {
            peers.entry(member.id).or_insert(member);
        }
        peers.remove(&self.base.me.id);
        peers
    }

    /// It is a member of no group that this node knows, and has no vote: all that is known of it is that it wants to join.
    pub(super) fn joins(&self, id: NodeId) -> bool {
        let groups = [self.replica(), self.member.install().group()];
        let agreed = groups.iter().flatten().any(|group| group.find(id).is_some());
        let leaves = self.steward().is_some_and(|steward| steward.withdrawn.contains_key(&id));
        let told = || self.base.known.members.iter().chain(&self.base.known.absent).any(|member| member.id == id);
        !agreed && !leaves && !told()
    }

    pub(crate) fn contacts(&self) -> Vec<Contact> {
        if self.member.phase() == Phase::Gone {
            return Vec::new();
        }
        let contact = |(id, member): (NodeId, &Member)| Contact {
            id,
            name: member.name.clone(),
            address: member.address.clone(),
            joins: self.joins(id),
        };
        self.peers().into_iter().map(contact).collect()
    }

    pub(crate) fn needs_seeds(&self) -> bool {
        match self.member.phase() {
            Phase::Gone => false,
            _ if !self.is_in_group() => self.outside.founders.as_ref().is_none_or(|founders| founders.expect() > 1),
            _ if self.outside.held_back.is_some() => true,
            _ if self.is_alone() => false,
            // Only the steward lets it in, and does not dial whom it does not know.
            _ => {
                let me = self.base.me.id;
                // Where a steward is that was evicted, and still leads, the others can no longer look up.
                let is_listed = self.group().is_some_and(|group| group.find(me).is_some());
                let is_reached = |id: NodeId| if id == me { is_listed } else { self.base.connected.contains_key(&id) };
                let reaches_steward = self.steward_id().is_some_and(is_reached);
                self.member.install().open().is_none() && !reaches_steward
            }
        }
    }

    pub(super) fn my_contacts(&self) -> Contacts {
        let candidates = self.steward().into_iter().flat_map(|steward| steward.candidates.values());
        let candidates = candidates.map(|candidate| candidate.member.clone());
        match self.group().filter(|group| group.epoch >= self.base.known.epoch) {
            Some(group) => Contacts {
                epoch: group.epoch,
                steward: self.steward_id(),
                members: group.members.values().cloned().collect(),
                absent: group.absent.values().cloned().collect(),
                candidates: candidates.collect(),
                voters: self.voters(),
                ttl: group.ttl,
                drift_ppm: group.drift_ppm,
                banned: Some(group.banned.clone()),
            },
            None => Contacts { steward: self.steward_id(), voters: self.voters(), ..self.base.known.clone() },
        }
    }

    pub(super) fn send_contacts(&mut self, to: NodeId) {
        // Nobody is to enter a group that may be the wrong one.
        if let Some(held_back) = &self.outside.held_back {
            let why = format!("'{}' admits nobody: {}", self.base.me.name, held_back.why());
            return self.base.send(to, Control::Refused { why });
        }
        if self.base.group_id != 0 && self.base.is_stored {
            let contacts = self.my_contacts();
            self.base.send(to, Control::Contacts(contacts));
        }
    }

    /// All members are told who is to be connected with whom.
    pub(super) fn spread_contacts(&mut self) {
        let message = Control::Contacts(self.my_contacts());
        self.spread(message);
    }

    /// All members are told who wants to join.
    pub(super) fn spread_candidates(&mut self) {
        let (Some(steward), Some(group)) = (self.steward(), self.replica()) else { return };
        let candidates = steward.candidates.values().map(|candidate| candidate.member.clone()).collect();
        let message = Control::Candidates { epoch: group.epoch, candidates };
        self.spread(message);
    }

    /// What all members are to be told is written once.
    fn spread(&mut self, message: Control) {
        let Some(group) = self.voter.as_ref().and_then(Voter::group) else { return };
        let bytes = Envelope { group_id: self.base.group_id, message }.encode();
        for to in group.members.keys().copied().filter(|id| self.base.connected.contains_key(id)) {
            self.base.actions.push_back(Action::Send { to, bytes: bytes.clone() });
        }
    }
}
