//! A voter: the consensus engine, and the group as consensus has it.

use std::collections::BTreeMap;

use hallpass_core::codec::Reader;
use hallpass_core::{NodeId, Ticks};

use super::base::{Base, Purpose};
use super::orders::known;
use super::{Action, Views};
use crate::faults::Conduct;
use crate::membership::control::Control;
use crate::membership::engine::{Engine, Event};
use crate::membership::group::{Command, Group};
use crate::membership::keys;
use crate::membership::steward::Steward;
use crate::output::Write;

/// What the steward works with.
pub(super) type Serving<'a, F> = (&'a mut Engine, &'a Group, &'a mut Steward<F>);

/// A node's part in consensus.
pub(super) struct Voter<F> {
    pub(super) engine: Engine,
    /// `None` until the leader has sent it.
    replica: Option<Replica<F>>,
    /// The group that this node has founded. It is written together with the first state of the log: with one of them alone a node
    /// that crashed in between would be in a group that it never votes in.
    founded: Option<Vec<u8>>,
    /// When the engine's clock ticks next; 0 is at once.
    tick_at: Ticks,
    /// Until when the founders' first leader is sought.
    campaign_until: Ticks,
    /// How often this node became the steward.
    elections: u64,
}

/// The group as consensus has it.
struct Replica<F> {
    group: Group,
    /// What the steward knows; `None` on every other voter.
    steward: Option<Steward<F>>,
}

impl<F: Conduct> Voter<F> {
    fn new(engine: Engine) -> Self {
        Self { engine, replica: None, founded: None, tick_at: 0, campaign_until: 0, elections: 0 }
    }

    /// A founder that votes.
    pub(super) fn found(base: &Base<F>, group: &Group, voters: &[NodeId], campaign_until: Ticks) -> Self {
        let mut state = Vec::new();
        group.encode(&mut state);
        let mut engine = Engine::found(base.me.id, voters, state.clone(), base.settings.seed);
        if voters.first() == Some(&base.me.id) {
            engine.campaign();
        }
        let replica = Replica { group: group.clone(), steward: None };
        Self { replica: Some(replica), founded: Some(state), campaign_until, ..Self::new(engine) }
    }

    /// A node that was chosen to vote, and waits for the group.
    fn join(base: &Base<F>) -> Self {
        Self::new(Engine::join(base.me.id, base.settings.seed))
    }

    /// Goes on from what is stored, if there is something.
    pub(super) fn restore(base: &Base<F>, stored: &BTreeMap<u64, Vec<u8>>) -> Result<Option<Self>, String> {
        let restored = Engine::restore(base.me.id, stored, base.settings.seed).map_err(|error| error.to_string())?;
        let Some(engine) = restored else { return Ok(None) };
        Ok(Some(Self::new(engine)))
    }

    pub(super) fn elections(&self) -> u64 {
        self.elections
    }

    /// The group as consensus has it.
    pub(super) fn group(&self) -> Option<&Group> {
        self.replica.as_ref().map(|replica| &replica.group)
    }

    pub(super) fn steward(&self) -> Option<&Steward<F>> {
        self.replica.as_ref()?.steward.as_ref()
    }

    /// What the steward works with; `None` on every other node.
    pub(super) fn serving(voter: &mut Option<Self>) -> Option<Serving<'_, F>> {
        let Self { engine, replica, .. } = voter.as_mut()?;
        let Replica { group, steward } = replica.as_mut()?;
        Some((engine, group, steward.as_mut()?))
    }

    /// The engine's clock goes on, if its time has come.
    fn tick_if_due(&mut self, me: NodeId, now: Ticks, tick: Ticks) {
        if now < self.tick_at {
            return;
        }
        self.tick_at = now + tick;
        self.engine.tick();
        let seeks_leader = now < self.campaign_until && self.engine.leader().is_none();
        if seeks_leader && self.engine.voters().first() == Some(&me) {
            self.engine.campaign();
        }
    }
}

/// What consensus does.
impl<F: Conduct> Views<F> {
    pub(super) fn tick_if_due(&mut self) {
        let (now, tick) = (self.base.now, self.tick());
        if let Some(voter) = &mut self.voter {
            voter.tick_if_due(self.base.me.id, now, tick);
        }
    }

    /// When the engine's clock ticks next. One that decides alone, and teaches nobody, needs none.
    pub(super) fn tick_deadline(&self) -> Option<Ticks> {
        let voter = self.voter.as_ref()?;
        (!self.decides_alone() || !voter.engine.learners().is_empty()).then_some(voter.tick_at)
    }

    pub(super) fn on_engine(&mut self, from: NodeId, bytes: &[u8]) {
        // A leader has chosen this node to vote, or it has voted since the group was founded and never knew: its
        // directory is its own, so it has never voted otherwise.
        if self.voter.is_none() && self.base.group_id != 0 {
            self.voter = Some(Voter::join(&self.base));
        }
        if let Some(voter) = &mut self.voter {
            // A peer that sends what makes no sense is ignored.
            let _ = voter.engine.receive(from, bytes);
        }
    }

    /// Takes one event of the consensus engine; false if there is none.
    pub(super) fn pump_engine(&mut self) -> bool {
        let Some(voter) = &mut self.voter else { return false };
        let Some(event) = voter.engine.poll() else { return false };
        match event {
            Event::Send { to, bytes } => self.base.send(to, Control::Engine(bytes)),
            Event::Persist(Write { number, remove, mut put }) => {
                put.extend(voter.founded.take().map(|group| (keys::GROUP, group)));
                self.base.persist(Purpose::Engine(number), remove, put);
            }
            Event::Apply { term, data, .. } => {
                // What was committed was proposed by a steward: it can be read.
                let Ok(command) = Command::decode(&data) else { return true };
                let Some(replica) = &mut voter.replica else { return true };
                let before = replica.steward.is_some().then(|| known(&replica.group));
                if replica.group.apply(term, &command) {
                    before.iter().for_each(|before| self.report_changes(before));
                    self.on_group_changed();
                }
            }
            Event::Restore { data, .. } => {
                if let Ok(group) = Group::decode(&mut Reader::new(&data)) {
                    self.base.group_id = group.id;
                    match &mut voter.replica {
                        Some(replica) => replica.group = group,
                        empty => *empty = Some(Replica { group, steward: None }),
                    }
                    self.on_group_changed();
                }
            }
            Event::OwnTerm => self.on_elected(),
            Event::Confirmed { batch } => self.acknowledge(batch),
            Event::Leader(leader) => self.on_leader(leader),
            Event::Voters(voters) => {
                self.base.known.voters = voters;
                self.refuse_wrong_peers();
                self.base.actions.push_back(Action::View);
            }
        }
        self.offer_snapshot();
        true
    }

    /// Consensus has another group than before.
    fn on_group_changed(&mut self) {
        if let Some((_, group, steward)) = Voter::serving(&mut self.voter) {
            steward.follow(group, self.base.now);
            steward.announce_at = 0;
        }
        if let Some(group) = self.replica() {
            let (epoch, banned) = (group.epoch, group.banned.clone());
            self.follow_bans(epoch, &banned);
        }
        self.base.actions.push_back(Action::Peers);
    }

    /// This node is the steward.
    fn on_elected(&mut self) {
        let Some(voter) = &mut self.voter else { return };
        let Some(replica) = &mut voter.replica else { return };
        voter.elections += 1;
        replica.steward = Some(Steward::new(&replica.group, self.base.now, self.base.settings.conduct));
        self.member.renew_at = 0;
        self.base.actions.push_back(Action::View);
    }

    fn on_leader(&mut self, leader: Option<NodeId>) {
        if leader != Some(self.base.me.id)
            && let Some(replica) = self.voter.as_mut().and_then(|voter| voter.replica.as_mut())
        {
            replica.steward = None;
        }
        self.base.known.steward = leader.or(self.base.known.steward);
        // The new steward counts from its election, and is to hear from everybody soon.
        self.member.renew_at = self.member.renew_at.min(self.base.now);
        self.base.repeat_at = self.base.repeat_at.min(self.base.now);
        self.base.actions.push_back(Action::View);
    }

    fn offer_snapshot(&mut self) {
        if let Some(Voter { engine, replica: Some(replica), .. }) = &mut self.voter
            && engine.wants_snapshot()
        {
            let mut state = Vec::new();
            replica.group.encode(&mut state);
            engine.snapshot(state);
        }
    }
}

/// Who votes, who leads, and what that means for this node.
impl<F: Conduct> Views<F> {
    pub(super) fn engine(&self) -> Option<&Engine> {
        self.voter.as_ref().map(|voter| &voter.engine)
    }

    /// The group as consensus has it, on a node that votes.
    pub(super) fn replica(&self) -> Option<&Group> {
        self.voter.as_ref().and_then(Voter::group)
    }

    pub(super) fn steward(&self) -> Option<&Steward<F>> {
        self.voter.as_ref().and_then(Voter::steward)
    }

    pub(crate) fn elections(&self) -> u64 {
        self.voter.as_ref().map_or(0, Voter::elections)
    }

    pub(crate) fn voters_are_stored(&self) -> bool {
        self.engine().is_some_and(Engine::voters_are_stored)
    }

    pub(crate) fn is_replacing_voters(&self) -> bool {
        self.engine().is_some_and(Engine::is_replacing_voters)
    }

    pub(crate) fn term(&self) -> Option<u64> {
        self.engine().map(Engine::term)
    }

    /// The group as this node knows it best.
    pub(super) fn group(&self) -> Option<&Group> {
        self.replica().into_iter().chain(self.member.install().group()).max_by_key(|group| group.epoch)
    }

    pub(super) fn voters(&self) -> Vec<NodeId> {
        match self.engine() {
            // A node that has lost its vote may not have heard of later changes.
            Some(engine) if self.has_vote(engine) || self.base.known.voters.is_empty() => engine.voters(),
            _ => self.base.known.voters.clone(),
        }
    }

    /// Who votes for certain, as far as this node knows. While voters are being replaced, those before must agree, too: without most of
    /// them nobody can go on.
    pub(super) fn certain_voters(&self) -> Vec<NodeId> {
        let outgoing = self.engine().filter(|engine| self.has_vote(engine)).map(Engine::outgoing);
        outgoing.filter(|outgoing| !outgoing.is_empty()).unwrap_or_else(|| self.voters())
    }

    pub(super) fn steward_id(&self) -> Option<NodeId> {
        // What it was told is right, unless that it leads itself: its engine knows better.
        let told = self.base.known.steward.filter(|id| *id != self.base.me.id);
        match self.engine() {
            Some(engine) if self.has_vote(engine) => engine.leader().or(told),
            _ => told,
        }
    }

    /// A node that has lost its vote hears no more of what the voters do.
    pub(super) fn has_vote(&self, engine: &Engine) -> bool {
        let is_ahead = self.replica().is_some_and(|group| group.epoch >= self.base.known.epoch);
        engine.voters().contains(&self.base.me.id) && (is_ahead || self.base.known.voters.contains(&self.base.me.id))
    }

    pub(super) fn is_own_view(&self) -> bool {
        let term = self.engine().map_or(0, Engine::term);
        self.replica().is_some_and(|group| group.term == term)
    }

    /// Nobody can take away what a node holds that is alone and decides alone.
    pub(super) fn is_alone(&self) -> bool {
        let alone = |group: &Group| group.members.len() == 1 && group.members.contains_key(&self.base.me.id);
        self.decides_alone() && self.replica().is_some_and(alone)
    }

    /// It is the steward, and nobody else votes: what it says to itself is confirmed at once.
    pub(super) fn decides_alone(&self) -> bool {
        self.steward().is_some() && self.engine().is_some_and(|engine| engine.voters() == [self.base.me.id])
    }

    /// A steward that decides alone acknowledges itself, unless it is to be removed.
    pub(super) fn renews_alone(&self) -> bool {
        let is_leaving = |steward: &Steward<F>| steward.sessions.is_unacknowledged(self.base.me.id);
        let is_member = |group: &Group| group.incarnation_of(self.base.me.id) == Some(self.base.me.incarnation);
        self.decides_alone() && !self.steward().is_some_and(is_leaving) && self.replica().is_some_and(is_member)
    }
}
