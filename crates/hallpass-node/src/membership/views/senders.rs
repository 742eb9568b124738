//! Who the sender of a control message is to this node, and whom it does not listen to.

use std::collections::BTreeSet;

use hallpass_core::NodeId;

use super::{Action, Views};
use crate::faults::Conduct;
use crate::membership::HelloError;
use crate::membership::control::Control;
use crate::membership::engine::Engine;
use crate::membership::group::{Group, Member};
use crate::membership::rights::{Ban, Standing};
use crate::wire::{Hello, Plane};

/// The most nodes that are remembered as found at given addresses.
const SEEDS_MAX: usize = 256;

impl<F: Conduct> Views<F> {
    /// What this node knows of a node that is connected; `None` of any other.
    pub(super) fn standing(&self, id: NodeId) -> Option<Standing> {
        let name = self.base.connected.get(&id)?;
        let is_member = self.find_member(id).is_some_and(|member| member.name == *name);
        let replica = self.replica().and_then(|group| group.members.get(&id)).filter(|member| member.name == *name);
        Some(Standing {
            name: name.clone(),
            ban: self.ban(id, name),
            member: replica.map(|member| member.incarnation),
            votes: is_member || self.votes_with_me(id),
            is_steward: self.is_steward(id, is_member),
            is_guide: is_member || self.is_guide(id, name),
            prepared: self.member.prepared_by(id),
        })
    }

    /// A node was found at an address that this node was given.
    pub(crate) fn on_seed(&mut self, id: NodeId, name: &str) {
        let seeds = &mut self.base.seeds;
        seeds.insert(id, name.to_owned());
        while seeds.len() > SEEDS_MAX {
            seeds.pop_first();
        }
    }

    /// Whether a greeting may come under this name and id.
    pub(super) fn check_name(&self, hello: &Hello) -> Result<(), HelloError> {
        let is_needed = hello.plane == Plane::Control;
        match self.ban(hello.from, &hello.name) {
            Ban::Yes => return Err(HelloError::Banned),
            Ban::Votes if !is_needed => return Err(HelloError::Banned),
            Ban::Votes | Ban::No => {}
        }
        let known = self.find_member(hello.from).map(|member| &member.name);
        match known.or_else(|| self.base.connected.get(&hello.from)) {
            Some(name) if *name != hello.name => Err(HelloError::Name(name.clone())),
            _ => Ok(()),
        }
    }

    /// Ends the connections of those who may not be connected, as this node knows now.
    pub(super) fn refuse_wrong_peers(&mut self) {
        let is_wrong =
            |member: &&Member| self.base.connected.get(&member.id).is_some_and(|connected| *connected != member.name);
        let mut wrong: BTreeSet<NodeId> = self.newest_members().filter(is_wrong).map(|member| member.id).collect();
        if !self.base.bans.names.is_empty() {
            let banned = self.base.connected.iter().filter(|(id, name)| self.ban(**id, name) == Ban::Yes);
            wrong.extend(banned.map(|(id, _)| *id));
        }
        for id in wrong {
            self.base.connected.remove(&id);
            self.base.actions.push_back(Action::Refuse(id));
        }
    }

    /// Notes who is banned in a group of this epoch.
    pub(super) fn follow_bans(&mut self, epoch: u64, banned: &BTreeSet<String>) {
        let bans = &mut self.base.bans;
        if epoch >= bans.epoch {
            bans.epoch = epoch;
            if bans.names != *banned {
                bans.names.clone_from(banned);
            }
        }
        self.refuse_wrong_peers();
    }

    /// An operator of this node, which is in no view, says that a ban is lifted. It may have been while this node was away, and those who
    /// would say so may be those whom this node does not listen to.
    pub(super) fn lift_ban_here(&mut self, name: &str) {
        if self.member.install().open().is_none() && self.base.bans.names.remove(name) {
            self.base.actions.push_back(Action::View);
        }
    }

    /// A message that its sender may not send: it is dropped.
    pub(super) fn deny(&mut self, from: NodeId, message: &Control) {
        self.base.denied = self.base.denied.saturating_add(1);
        let name = self.base.connected.get(&from).cloned().unwrap_or_default();
        self.base.actions.push_back(Action::Denied { from, name, message: message.name() });
    }

    pub(crate) fn denied(&self) -> u64 {
        self.base.denied
    }

    fn ban(&self, id: NodeId, name: &str) -> Ban {
        if !self.base.bans.names.contains(name) {
            return Ban::No;
        }
        let is_needed = match self.current_engine() {
            Some(engine) => self.is_needed(id, &engine.incoming()) || self.is_needed(id, &engine.outgoing()),
            None => self.is_needed(id, &self.base.known.voters),
        };
        // It is told when it may go.
        let leaves = self.steward().is_some_and(|steward| steward.withdrawn.contains_key(&id));
        match is_needed {
            true => Ban::No,
            false if leaves || self.voters().contains(&id) => Ban::Votes,
            false => Ban::Yes,
        }
    }

    /// It is one of these voters, and those of them that are not banned are no majority: without the others nothing can be decided.
    fn is_needed(&self, id: NodeId, voters: &[NodeId]) -> bool {
        let name = |id| self.find_member(id).map(|member| &member.name).or_else(|| self.base.connected.get(&id));
        let is_banned = |voter: &&NodeId| name(**voter).is_some_and(|name| self.base.bans.names.contains(name));
        // Of the one that greets the name is known to be banned.
        let others = voters.iter().filter(|voter| **voter != id && !is_banned(voter)).count();
        voters.contains(&id) && others <= voters.len() / 2
    }

    /// The epoch of the newest group that this node knows.
    fn newest_epoch(&self) -> u64 {
        let groups = [self.replica(), self.member.install().group()];
        groups.iter().flatten().map(|group| group.epoch).fold(self.base.known.epoch, u64::max)
    }

    /// The newest group that this node knows, if it has been told all of it.
    fn newest_group(&self) -> Option<&Group> {
        let newest = self.newest_epoch();
        [self.replica(), self.member.install().group()].into_iter().flatten().find(|group| group.epoch == newest)
    }

    /// The members of the newest group that this node knows, and those that are away and may vote.
    fn newest_members(&self) -> impl Iterator<Item = &Member> {
        let (group, known) = (self.newest_group(), &self.base.known);
        let agreed = group.into_iter().flat_map(|group| group.members.values().chain(group.absent.values()));
        let told = known.members.iter().chain(&known.absent).filter(move |_| group.is_none());
        agreed.chain(told)
    }

    pub(super) fn find_member(&self, id: NodeId) -> Option<&Member> {
        match self.newest_group() {
            Some(group) => group.find(id),
            None => self.base.known.members.iter().chain(&self.base.known.absent).find(|member| member.id == id),
        }
    }

    /// This node's consensus, unless it may have gone on without this node.
    fn current_engine(&self) -> Option<&Engine> {
        let is_current = self.replica().is_some_and(|group| group.epoch == self.newest_epoch());
        self.engine().filter(|engine| is_current && self.has_vote(engine))
    }

    /// It votes where this node does. One that was evicted or leaves does so until another one has its vote. A node that has no vote yet, or is
    /// behind, goes by what it was told of who votes, and before that by what it has stored: it may be the one that is to take the vote.
    fn votes_with_me(&self, id: NodeId) -> bool {
        match (self.current_engine(), &self.base.known.voters) {
            (Some(engine), _) => engine.voters().contains(&id),
            (None, told) if told.is_empty() => self.engine().is_some_and(|engine| engine.voters().contains(&id)),
            (None, told) => told.contains(&id),
        }
    }

    fn is_steward(&self, id: NodeId, is_member: bool) -> bool {
        match self.current_engine().and_then(Engine::leader) {
            Some(leader) => leader == id,
            // Voters change, and this node may not have heard who votes now.
            None => self.base.known.steward == Some(id) || is_member,
        }
    }

    fn is_guide(&self, id: NodeId, name: &str) -> bool {
        // One that has lost its directory is another node under the name of a member.
        let is_namesake = || self.newest_members().any(|member| member.name == name);
        let is_seed =
            || !self.member.install().is_in_view() && self.base.seeds.get(&id).is_some_and(|seed| seed == name);
        // Of those that found a group with this node one may have done so first.
        let founders = self.outside.founders.as_ref().filter(|_| !self.is_in_group());
        let founds =
            || founders.is_some_and(|founders| founders.known().iter().any(|one| one.id == id && one.name == name));
        self.votes_with_me(id) || is_seed() || is_namesake() || founds()
    }
}
