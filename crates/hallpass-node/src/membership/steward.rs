//! What the leader of the consensus does for the group: it hears of everybody, decides who is in the next view, and brings
//! that view about.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_core::{NodeId, Ticks};

use super::founding::voters;
use super::group::{Change, Group, Member};
use super::install::{Installation, Step};
use super::sessions::Sessions;
use crate::Incarnation;
use crate::faults::{Conduct, Honest, Sabotage};
use crate::output::Request;

/// How often the pause doubles before a node is admitted that was removed again and again.
const PAUSES_MAX: u32 = 4;

/// How many nodes may want to join at a time. All members are told of each, and try to reach it.
const CANDIDATES_MAX: usize = 1024;

/// How long nobody is admitted after a view has begun: the time that a group needs to work between two changes grows with it, and
/// nodes that come meanwhile are admitted together. A thousandth of a second a member, with sessions of five seconds.
fn admission_pause(group: &Group) -> Ticks {
    (group.ttl / 5000).saturating_mul(group.members.len() as u64)
}

/// The steward's knowledge. It begins with its election, and nothing of it is replicated.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Steward<F = Honest> {
    pub sessions: Sessions,
    pub installation: Installation,
    /// Nodes that want to join.
    pub candidates: BTreeMap<NodeId, Candidate>,
    /// The epoch on which a proposal that is under way is based.
    pub proposed: Option<u64>,
    /// What members have asked for, until it is done.
    pub orders: Vec<Order>,
    /// What was answered not long ago: a copy of it that was under way meanwhile must not undo what came after it.
    answered: Vec<Answered>,
    /// Members that leave the view by their own will.
    pub withdrawn: BTreeMap<NodeId, Withdrawal>,
    /// Pairs of members that do not reach each other: since when, and when that was last said.
    unreachable: BTreeMap<(NodeId, NodeId), (Ticks, Ticks)>,
    /// Since when voters are away.
    absent_since: BTreeMap<NodeId, Ticks>,
    /// How often members were removed against their will, and when last: those wait longer before they are admitted again.
    removals: BTreeMap<NodeId, (u32, Ticks)>,
    /// Nobody is admitted before: see [`admission_pause`].
    admits_from: Ticks,
    /// Somebody's fences run out, or a view was not started by all: the next epoch is needed without any change.
    pub needs_epoch: bool,
    /// The step of which all members have been told.
    pub announced: Option<(u64, Step)>,
    /// When members that have not answered are told again; 0 is at once.
    pub announce_at: Ticks,
    conduct: F,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Candidate {
    pub member: Member,
    pub reached: BTreeSet<NodeId>,
    pub heard: Ticks,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Withdrawal {
    pub incarnation: Incarnation,
    pub keeps_vote: bool,
    /// Where it is reached.
    pub member: Option<Member>,
}

/// A request of a member that is being carried out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Order {
    pub from: NodeId,
    pub token: u64,
    pub request: Request,
    pub state: OrderState,
    /// The name that it keeps out for good, until that is proposed: one that is admitted again after that stays.
    pub bans: Option<String>,
}

/// An order that was carried out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Answered {
    /// A later incarnation counts its orders from the beginning.
    incarnation: Incarnation,
    order: (NodeId, u64, Request),
    result: Result<(), String>,
    at: Ticks,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum OrderState {
    /// To be proposed.
    New,
    /// A member, in this incarnation, is to go.
    Evicting(Incarnation),
    /// It has gone. Its vote may not have, and it may come back.
    Evicted,
    /// Proposed: it is done when a view of at least this epoch has been started by all.
    Until(u64),
    /// For [`Request::Break`]: what each member has answered, how many holders there were and are.
    Breaking(BTreeMap<NodeId, (u64, u64)>),
}

impl<F: Conduct> Steward<F> {
    pub fn new(group: &Group, now: Ticks, conduct: F) -> Self {
        Self {
            sessions: Sessions::new(group, now),
            installation: Installation::new(group),
            candidates: BTreeMap::new(),
            proposed: None,
            orders: Vec::new(),
            answered: Vec::new(),
            withdrawn: BTreeMap::new(),
            unreachable: BTreeMap::new(),
            absent_since: BTreeMap::new(),
            removals: BTreeMap::new(),
            admits_from: now,
            needs_epoch: false,
            announced: None,
            announce_at: 0,
            conduct,
        }
    }

    /// A proposal that is based on this epoch is under way, with all that was due.
    pub fn on_proposed(&mut self, base: u64) {
        self.proposed = Some(base);
        self.orders.iter_mut().for_each(|order| order.bans = None);
        for order in self.orders.iter_mut().filter(|order| order.state == OrderState::New) {
            order.state = OrderState::Until(base + 1);
        }
    }

    /// An order was carried out, with this result. Members repeat their orders, and the answer may be lost.
    pub fn on_answered(
        &mut self,
        group: &Group,
        order: (NodeId, u64, Request),
        result: &Result<(), String>,
        now: Ticks,
    ) {
        let is_recent = |answered: &Answered| now < answered.at.saturating_add(group.ttl.saturating_mul(2));
        self.answered.retain(is_recent);
        if let Some(incarnation) = group.incarnation_of(order.0) {
            self.answered.push(Answered { incarnation, order, result: result.clone(), at: now });
        }
    }

    /// What was answered to this order, if it was carried out not long ago.
    pub fn answer_to(&self, group: &Group, from: NodeId, token: u64, request: &Request) -> Option<Result<(), String>> {
        let is_same = |answered: &&Answered| {
            let (by, number, what) = &answered.order;
            (*by, *number, what) == (from, token, request) && group.incarnation_of(from) == Some(answered.incarnation)
        };
        self.answered.iter().find(is_same).map(|answered| answered.result.clone())
    }

    /// The group has changed.
    pub fn follow(&mut self, group: &Group, now: Ticks) {
        // One that comes back before its session is over has failed as well: else a node that fails again and again while a
        // view is installed, and is back at once, would keep all others from ever starting one.
        let failed: Vec<NodeId> = (self.installation.incarnations())
            .filter(|(id, known)| group.incarnation_of(*id) != Some(*known) && !self.withdrawn.contains_key(id))
            .map(|(id, _)| id)
            .collect();
        for id in failed {
            self.on_removed(id, group.ttl, now);
        }
        self.sessions.follow(group, now);
        self.installation = Installation::new(group);
        // Every member of the new view has reached everybody in it.
        self.unreachable.clear();
        self.proposed = None;
        self.admits_from = now.saturating_add(admission_pause(group));
        self.needs_epoch = false;
        self.candidates.retain(|id, candidate| group.incarnation_of(*id) != Some(candidate.member.incarnation));
        if !self.conduct.breaks(Sabotage::ProposeBanned) {
            self.candidates.retain(|_, candidate| !group.banned.contains(&candidate.member.name));
        }
        // One that was to be banned as a candidate may have become a member with this view.
        for order in &mut self.orders {
            if let (Request::Evict { node, .. }, OrderState::Evicting(incarnation)) = (&order.request, &order.state)
                && group.find(*node).is_none_or(|member| member.incarnation != *incarnation)
            {
                order.state = OrderState::Evicted;
            }
            if let Request::Evict { node, .. } = order.request
                && matches!(order.state, OrderState::New | OrderState::Until(_))
                && let Some(incarnation) = group.incarnation_of(node)
            {
                self.sessions.stop_acknowledging(node);
                order.state = OrderState::Evicting(incarnation);
            }
        }
        self.withdrawn.retain(|id, withdrawal| {
            group.incarnation_of(*id) == Some(withdrawal.incarnation) || !withdrawal.keeps_vote
        });
        self.absent_since.retain(|id, _| group.absent.contains_key(id));
        for id in group.absent.keys() {
            self.absent_since.entry(*id).or_insert(now);
        }
    }

    /// Two members do not reach each other, says one of them.
    pub fn on_unreachable(&mut self, from: NodeId, others: &[NodeId], now: Ticks) {
        for other in others {
            let pair = (from.min(*other), from.max(*other));
            let entry = self.unreachable.entry(pair).or_insert((now, now));
            entry.1 = now;
        }
    }

    /// Of members that do not reach each other, those that are to go: as few as possible, voters last, then the lower id
    /// stays.
    pub fn to_expel(&mut self, group: &Group, voters: &[NodeId], now: Ticks) -> Vec<NodeId> {
        self.unreachable.retain(|_, (_, last)| *last + group.ttl > now);
        let is_lasting = |(first, last): &(Ticks, Ticks)| last.saturating_sub(*first) >= group.ttl / 4;
        // Only of two that are both alive one has to go: one that has fallen silent expires anyway.
        let is_alive = |id: NodeId| self.sessions.last(id).is_some_and(|last| now < last.saturating_add(group.ttl / 2));
        // Nobody listens to a banned one any more: its session is about to run out.
        let stays = |id: &NodeId| group.members.get(id).is_some_and(|member| !group.banned.contains(&member.name));
        let gone = |id: &NodeId| !stays(id) || self.sessions.is_unacknowledged(*id) || !is_alive(*id);
        let mut pairs: Vec<(NodeId, NodeId)> =
            self.unreachable.iter().filter(|(_, since)| is_lasting(since)).map(|(pair, _)| *pair).collect();
        pairs.retain(|(a, b)| !gone(a) && !gone(b));
        let mut expelled = Vec::new();
        while !pairs.is_empty() {
            let mut degrees: BTreeMap<NodeId, usize> = BTreeMap::new();
            for (a, b) in &pairs {
                *degrees.entry(*a).or_default() += 1;
                *degrees.entry(*b).or_default() += 1;
            }
            let worst = degrees.into_iter().max_by_key(|(id, degree)| (*degree, !voters.contains(id), *id));
            let Some((worst, _)) = worst else { break };
            expelled.push(worst);
            pairs.retain(|(a, b)| *a != worst && *b != worst);
        }
        expelled
    }

    fn on_removed(&mut self, id: NodeId, ttl: Ticks, now: Ticks) {
        let (count, last) = self.removals.entry(id).or_insert((0, now));
        // What was long ago is forgiven.
        let is_again = now < last.saturating_add(ttl.saturating_mul(4 << PAUSES_MAX));
        (*count, *last) = (if is_again { count.saturating_add(1) } else { 1 }, now);
    }

    /// A planted bug: a node that was removed is admitted again at once, however often.
    #[cfg(any(test, feature = "planted-bugs"))]
    pub fn forget_removals(&mut self) {
        self.removals.clear();
    }

    /// A node that was removed again and again waits longer each time before it is admitted.
    fn may_join(&self, id: NodeId, ttl: Ticks, now: Ticks) -> bool {
        self.removals.get(&id).is_none_or(|(count, last)| {
            let pause = match count {
                0..=2 => 0,
                count => ttl.saturating_mul(1 << (count - 3).min(PAUSES_MAX)),
            };
            now >= last.saturating_add(pause)
        })
    }

    /// Why a node cannot become a candidate now. One that has the name of another candidate takes its place once that is gone.
    pub fn why_no_candidate(
        &mut self,
        group: &Group,
        member: &Member,
        is_connected: impl Fn(NodeId) -> bool,
    ) -> Option<String> {
        let mut rivals = self.candidates.values().map(|candidate| &candidate.member);
        let rival = rivals.find(|rival| rival.name == member.name && rival.id != member.id).cloned();
        if let Some(rival) = rival {
            if is_connected(rival.id) {
                let Member { name, address, .. } = rival;
                return Some(format!(
                    "another node of the name '{name}' wants to join ({address}): it is admitted when that one is gone, or under \
                     another name"
                ));
            }
            self.candidates.remove(&rival.id);
        }
        let is_known = self.candidates.contains_key(&member.id) || group.find(member.id).is_some();
        let is_full = self.candidates.len() >= CANDIDATES_MAX && !is_known;
        is_full.then(|| format!("{CANDIDATES_MAX} nodes want to join already: it asks again"))
    }

    /// The nodes that can join now: each is connected with every member and with all others that join with it. While nobody new
    /// is admitted, only those that take the place of their own former incarnation.
    fn admissible(&self, group: &Group, admits: bool, now: Ticks) -> Vec<Member> {
        let mut admitted: Vec<&Candidate> = Vec::new();
        let returns = |id: &NodeId| group.members.contains_key(id);
        // Most of those that have just come have reached few, and need no closer look.
        let enough = |candidate: &Candidate| candidate.reached.len() + 1 >= group.members.len();
        let candidates = self.candidates.iter().filter(|(_, candidate)| enough(candidate));
        for (id, candidate) in candidates.filter(|(id, _)| admits || returns(id)) {
            let reaches_all = group.members.keys().all(|member| member == id || candidate.reached.contains(member));
            let mutual =
                admitted.iter().all(|other| candidate.reached.contains(&other.member.id) && other.reached.contains(id));
            // Two that wanted to join may have one name.
            let is_namesake = |other: &Member| other.name == candidate.member.name && other.id != *id;
            let is_taken = group.members.values().chain(admitted.iter().map(|other| &other.member)).any(is_namesake);
            if reaches_all && mutual && !is_taken && self.may_join(*id, group.ttl, now) {
                admitted.push(candidate);
            }
        }
        admitted.into_iter().map(|candidate| candidate.member.clone()).collect()
    }

    /// The changes that are due, whenever the last view began.
    pub fn changes(&mut self, group: &Group, current_voters: &[NodeId], expiry: Ticks, now: Ticks) -> Vec<Change> {
        self.changes_now(group, current_voters, expiry, true, now)
    }

    fn changes_now(
        &mut self,
        group: &Group,
        current_voters: &[NodeId],
        expiry: Ticks,
        admits: bool,
        now: Ticks,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut removed = BTreeSet::new();
        for (id, withdrawal) in &self.withdrawn {
            let Withdrawal { incarnation, keeps_vote, .. } = *withdrawal;
            let is_in = group.incarnation_of(*id) == Some(incarnation);
            if is_in || !keeps_vote && group.absent.contains_key(id) {
                removed.insert(*id);
                changes.push(Change::Remove { id: *id, incarnation, keeps_vote });
            }
        }
        let evicted: BTreeSet<NodeId> = self
            .orders
            .iter()
            .filter_map(|order| if let Request::Evict { node, .. } = order.request { Some(node) } else { None })
            .collect();
        for (id, incarnation) in self.sessions.expire(expiry, now) {
            // A member that has not started the view yet was in none: there is nothing to wait for, but nothing is lost by it.
            if removed.insert(id) {
                let keeps_vote = current_voters.contains(&id) && !evicted.contains(&id);
                changes.push(Change::Remove { id, incarnation, keeps_vote });
            }
        }
        let banned: BTreeSet<String> = self.orders.iter().filter_map(|order| order.bans.clone()).collect();
        let is_banned = |name: &String| group.banned.contains(name) || banned.contains(name);
        for member in self.admissible(group, admits, now) {
            // An evicted member loses its vote before it comes back.
            let is_out = !evicted.contains(&member.id) || group.find(member.id).is_none();
            let may_come = !is_banned(&member.name) || self.conduct.breaks(Sabotage::ProposeBanned);
            if !removed.contains(&member.id) && is_out && may_come {
                // A voter that comes back under its name as another node has lost what it stored, and its vote with that.
                for (id, old) in group.absent.iter().filter(|(id, old)| old.name == member.name && **id != member.id) {
                    changes.push(Change::Remove { id: *id, incarnation: old.incarnation, keeps_vote: false });
                }
                changes.push(Change::Add(member));
            }
        }
        for order in &self.orders {
            match &order.request {
                Request::SetClass(_) | Request::Ban { .. } | Request::Admit { .. }
                    if order.state != OrderState::New => {}
                Request::SetClass(class) => changes.push(Change::SetClass(class.clone())),
                Request::Ban { name } => changes.push(Change::Ban(name.clone())),
                Request::Admit { name } => changes.push(Change::Admit(name.clone())),
                Request::Evict { node, .. } => {
                    // A voter that is away has no session that could run out.
                    if let Some(absent) = group.absent.get(node) {
                        let incarnation = absent.incarnation;
                        changes.push(Change::Remove { id: *node, incarnation, keeps_vote: false });
                    }
                }
                _ => {}
            }
        }
        let new = banned.into_iter().filter(|name| !group.banned.contains(name));
        changes.extend(new.map(Change::Ban));
        changes
    }

    /// Nodes that wanted to join and have fallen silent are forgotten; true if there were any.
    pub fn forget_silent(&mut self, ttl: Ticks, now: Ticks) -> bool {
        let before = self.candidates.len();
        self.candidates.retain(|_, candidate| now <= candidate.heard.saturating_add(ttl));
        self.candidates.len() < before
    }

    /// The changes that make the next view, if there is a reason for one now. A view that is being installed is left alone,
    /// unless it cannot be: somebody in it is gone.
    pub fn next_view(&mut self, group: &Group, voters: &[NodeId], expiry: Ticks, now: Ticks) -> Option<Vec<Change>> {
        if self.proposed.is_some() {
            return None;
        }
        let admits = self.is_installed() && now >= self.admits_from;
        let mut changes = self.changes_now(group, voters, expiry, admits, now);
        // A view that nobody joins or leaves helps nobody, and would be followed by the next one like it.
        if !self.conduct.breaks(Sabotage::ProposeBanned) && !group.is_changed_by(&changes) {
            changes.clear();
            // What they ask for is so already.
            for order in self.orders.iter_mut().filter(|order| order.state == OrderState::New) {
                (order.state, order.bans) = (OrderState::Until(group.epoch), None);
            }
            self.orders.iter_mut().for_each(|order| order.bans = None);
        }
        let removes = changes.iter().any(|change| match change {
            Change::Remove { .. } => true,
            Change::Add(member) => group.members.contains_key(&member.id),
            _ => false,
        });
        let is_wanted = !changes.is_empty() || self.needs_epoch;
        let is_due = removes || self.installation.step == Step::Void || self.is_installed() && is_wanted;
        is_due.then_some(changes)
    }

    /// Who should vote: as many of the members as make 1, 3 or 5, those first who do already. A voter that is away keeps its
    /// vote for a while, and then until another member can take it: the quorum never shrinks because somebody is away.
    pub fn voters(
        &self,
        group: &Group,
        current: &[NodeId],
        me: NodeId,
        limits: (usize, Ticks),
        now: Ticks,
    ) -> Vec<NodeId> {
        #[derive(PartialEq, Eq, PartialOrd, Ord)]
        enum Rank {
            Me,
            Votes,
            /// It is away, and may not come back: it is asked for its vote after those who are here.
            VotesAway,
            MayVote,
            AwayForLong,
        }
        let (voters_max, replace_after) = limits;
        let eligible = |member: &Member| member.durable || !group.durable;
        let staying = |id: &NodeId| self.withdrawn.get(id).is_none_or(|withdrawal| withdrawal.keeps_vote);
        let present = group.members.values().filter(|member| eligible(member) && staying(&member.id)).map(|member| {
            let rank = match member.id {
                id if id == me => Rank::Me,
                id if current.contains(&id) => Rank::Votes,
                _ => Rank::MayVote,
            };
            (rank, member.id)
        });
        // What a process without a directory knew is lost with it.
        let absent = group.absent.keys().filter(|id| group.durable && current.contains(id) && staying(id)).map(|id| {
            let since = self.absent_since.get(id).copied().unwrap_or(now);
            let is_overdue = now >= since.saturating_add(replace_after);
            let away = if self.conduct.breaks(Sabotage::HandVotesToSilence) { Rank::Votes } else { Rank::VotesAway };
            (if is_overdue { Rank::AwayForLong } else { away }, *id)
        });
        let mut ranked: Vec<(Rank, NodeId)> = present.chain(absent).collect();
        ranked.sort_unstable();
        let count = voters(ranked.len(), voters_max);
        let mut chosen: Vec<NodeId> = ranked.into_iter().take(count).map(|(_, id)| id).collect();
        chosen.sort_unstable();
        chosen
    }

    /// When there is something to do: members are told again, or a session runs out. A steward that is alone waits for nobody.
    pub fn deadline(&self, group: &Group, is_alone: bool) -> Option<Ticks> {
        // What is proposed comes first, even if another member is gone meanwhile.
        let waits_for_next = !is_alone && self.proposed.is_none();
        let next = self.sessions.next_expiry(group.expiry()).filter(|_| waits_for_next);
        let is_busy = self.proposed.is_some() || !self.is_installed() || !self.orders.is_empty();
        if is_busy || !self.candidates.is_empty() || !self.withdrawn.is_empty() {
            Some(next.map_or(self.announce_at, |next| next.min(self.announce_at)))
        } else {
            next
        }
    }

    /// The view has been started by all of its members.
    pub fn is_installed(&self) -> bool {
        self.installation.step == Step::Done
    }
}
