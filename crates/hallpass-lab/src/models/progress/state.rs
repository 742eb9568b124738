//! What the nodes of the model of progress do.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hallpass_core::protocol::carvalho_roucairol::{CarvalhoRoucairol, CrMessage};
use hallpass_core::protocol::{Capabilities, Floor};
use hallpass_core::{Bounds, Effect, Fence, InitialHolders, Input, Mode, NodeId, Protocol, Setup, Ticks, View};
use hallpass_node::Incarnation;
use hallpass_node::model::{
    Candidate, Command, Group, Held, HeldLock, Install, Prepare, Renewal, Session, Step as Phase, Steward,
};

use super::super::incarnation;
use super::{Bug, LAST, NODES, ProgressModel, STEWARD, TTL};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::models) struct ProgressState {
    pub(super) now: Ticks,
    pub(super) group: Arc<Group>,
    pub(super) steward: Steward,
    pub(super) nodes: [Node; NODES],
    /// What each node has sent to each other one, with the epoch.
    pub(super) links: [[VecDeque<(u64, CrMessage)>; NODES]; NODES],
    /// Since when the last two members do not reach each other.
    pub(super) cut: Option<Ticks>,
    pub(super) cuts: u8,
    pub(super) lives: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    pub(super) is_alive: bool,
    pub(super) incarnation: Incarnation,
    pub(super) session: Session,
    pub(super) install: Install,
    pub(super) view: Option<Arc<Group>>,
    pub(super) lock: Option<CarvalhoRoucairol>,
    pub(super) caller: Caller,
    /// How often it still asks for the lock.
    pub(super) entries: u8,
    /// Its requests are numbered above this.
    pub(super) floor: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Caller {
    Away,
    Waiting,
    Inside(Fence),
}

pub(super) const fn id(node: usize) -> NodeId {
    NodeId(node as u32 + 1)
}

pub(super) fn member(node: usize, incarnation: Incarnation) -> hallpass_node::model::Member {
    super::super::member(id(node), incarnation.get())
}

impl Node {
    pub(super) fn new(number: u32, entries: u8) -> Self {
        Self {
            is_alive: true,
            incarnation: incarnation(number),
            session: Session::new(incarnation(number), TTL),
            install: Install::default(),
            view: None,
            lock: None,
            caller: Caller::Away,
            entries,
            floor: 0,
        }
    }

    /// Holds nothing, and is in no view.
    pub(super) fn end(&mut self) {
        self.incarnation = incarnation(self.incarnation.get() + 1);
        self.session = Session::new(self.incarnation, TTL);
        self.install.end();
        self.view = None;
        if let Some(lock) = self.lock.take() {
            self.floor = self.floor.max(lock.highest_number());
        }
        if matches!(self.caller, Caller::Inside(_)) {
            self.caller = Caller::Away;
        }
    }
}

impl ProgressState {
    pub(super) fn reaches(&self, a: usize, b: usize) -> bool {
        let is_cut = self.cut.is_some() && a != STEWARD && b != STEWARD;
        self.nodes[a].is_alive && self.nodes[b].is_alive && !is_cut
    }

    pub(super) fn clear_links(&mut self, node: usize) {
        for other in 0..NODES {
            self.links[node][other].clear();
            self.links[other][node].clear();
        }
    }

    pub(super) fn end(&mut self, node: usize) {
        self.nodes[node].end();
        self.clear_links(node);
    }

    // ---- sessions ----

    /// Time passes: sessions end, and members that take part renew theirs.
    pub(super) fn tick(&mut self) {
        self.now += 1;
        for node in 0..NODES {
            if self.nodes[node].is_alive && self.nodes[node].session.lapse_if_due(self.now) {
                self.end(node);
            }
        }
        for node in 0..NODES {
            if self.nodes[node].is_alive && self.nodes[node].view.is_some() {
                self.renew(node);
            }
        }
    }

    pub(super) fn renew(&mut self, node: usize) {
        let now = self.now;
        let Node { incarnation, view, install, .. } = &self.nodes[node];
        let incarnation = *incarnation;
        if self.group.incarnation_of(id(node)) != Some(incarnation) {
            return self.end(node);
        }
        let is_other = |other: &usize| view.as_ref().is_some_and(|view| view.members.contains_key(&id(*other)));
        let is_open = install.open().is_some();
        let is_lost = |other: &usize| {
            !self.reaches(node, *other) && self.cut.is_some_and(|since| now.saturating_sub(since) > TTL / 2)
        };
        let others = (0..NODES).filter(|other| *other != node && is_open);
        let unreachable: Vec<NodeId> = others.filter(is_other).filter(is_lost).map(id).collect();
        self.steward.on_unreachable(id(node), &unreachable, now);
        self.steward.sessions.on_renewal(id(node), Renewal { incarnation, sent: now, received: now });
        let batch = self.steward.sessions.close_batch();
        for (_, renewal) in batch.map(|batch| self.steward.sessions.on_confirmed(batch)).unwrap_or_default() {
            self.nodes[node].session.on_acknowledged(renewal.incarnation, renewal.sent, now);
        }
    }

    // ---- the steward ----

    pub(super) fn can_join(&self, node: usize) -> bool {
        let Node { is_alive, incarnation, view, .. } = &self.nodes[node];
        let known = self.group.find(id(node)).map(|member| member.incarnation);
        *is_alive && view.is_none() && known.is_none_or(|known| known < *incarnation)
    }

    pub(super) fn join(&mut self, node: usize) {
        let incarnation = self.nodes[node].incarnation;
        self.steward.sessions.stop_acknowledging(id(node));
        let reached = |other: &usize| self.reaches(node, *other);
        let reached: BTreeSet<NodeId> = (0..NODES).filter(reached).map(id).collect();
        let candidate = Candidate { member: member(node, incarnation), reached, heard: self.now };
        self.steward.candidates.insert(id(node), candidate);
    }

    /// As the node does it, but for consensus: that decides at once.
    pub(super) fn decide(&mut self, model: &ProgressModel) {
        let voters: Vec<NodeId> = if model.members == NODES { (0..NODES).map(id).collect() } else { vec![id(STEWARD)] };
        if model.bug == Some(Bug::NoBackOff) {
            self.steward.forget_removals();
        }
        for gone in self.steward.to_expel(&self.group, &voters, self.now) {
            if model.bug != Some(Bug::KeepBoth) {
                self.steward.sessions.stop_acknowledging(gone);
            }
        }
        self.steward.forget_silent(TTL, self.now);
        let changes = self.steward.next_view(&self.group, &voters, self.group.expiry(), self.now);
        if let Some(changes) = changes {
            let command = Command { term: 1, base: self.group.epoch, changes };
            Arc::make_mut(&mut self.group).apply(1, &command);
            self.steward.follow(&self.group, self.now);
        }
    }

    /// The steward waits for an answer of this node, which can answer.
    pub(super) fn can_tell(&self, node: usize) -> bool {
        let installation = &self.steward.installation;
        let Node { is_alive, incarnation, .. } = &self.nodes[node];
        let waits = matches!(installation.step, Phase::Probing | Phase::Preparing | Phase::Starting);
        waits && *is_alive && installation.missing.get(&id(node)) == Some(incarnation)
    }

    pub(super) fn tell(&mut self, model: &ProgressModel, node: usize) {
        let epoch = self.group.epoch;
        let own = incarnation(self.nodes[node].incarnation.get());
        match self.steward.installation.step {
            Phase::Probing => {
                let started = self.nodes[node].install.open().unwrap_or(0);
                self.steward.installation.on_probed(epoch, id(node), own, started, true);
            }
            Phase::Preparing => {
                let session = &self.nodes[node].session;
                if session.has_lapsed() {
                    return;
                }
                if self.nodes[node].install.on_prepare(epoch) == Prepare::Report {
                    self.nodes[node].view = Some(Arc::clone(&self.group));
                    // It reports once it has a session.
                    if !self.nodes[node].session.is_valid(self.now) {
                        self.renew(node);
                    }
                    let Node { view: Some(_), caller, .. } = &self.nodes[node] else { return };
                    if !self.nodes[node].session.is_valid(self.now) {
                        self.nodes[node].view = None;
                        return;
                    }
                    let held = if let Caller::Inside(fence) = *caller { Some(fence) } else { None };
                    let held = held.map(|fence| Held { name: "lock".into(), mode: Mode::Exclusive, fence });
                    self.nodes[node].install.on_closed(epoch, (), held.into_iter().collect());
                }
                let report = self.nodes[node].install.report().to_vec();
                self.steward.installation.on_report((epoch, id(node), own), 0, 1, report);
            }
            Phase::Starting => {
                let locks = self.steward.installation.locks.clone();
                if let Some(held) = self.nodes[node].install.on_start(epoch, 0, 1, locks) {
                    self.open(model, node, epoch, &held);
                }
                if self.nodes[node].install.open() == Some(epoch) {
                    self.steward.installation.on_started(epoch, id(node), own);
                }
            }
            Phase::Done | Phase::Void => {}
        }
    }

    // ---- the lock ----

    /// As the node's locks do it: afresh from the holders, what was released is released, who waits asks again.
    pub(super) fn open(&mut self, model: &ProgressModel, index: usize, epoch: u64, held: &[HeldLock]) {
        let node = &mut self.nodes[index];
        let Some(group) = node.view.clone() else { return };
        let view = View::new(group.members.keys().copied()).with_epoch(epoch);
        let holders: &[NodeId] = held.first().map_or(&[], |lock| &lock.holders);
        let initial = InitialHolders { holders, mode: Mode::Exclusive, fence: Fence::new(0) };
        let bounds = Bounds::NONE;
        let setup =
            Setup { me: id(index), view: &view, initial, home: id(0), incarnation: 0, bounds, options: &model.rules };
        let mut lock = CarvalhoRoucairol::new(&setup);
        let waits = node.caller == Caller::Waiting;
        let old = node.lock.take();
        let number = old.as_ref().filter(|_| waits).and_then(Capabilities::number_floor);
        node.floor = node.floor.max(old.map_or(0, |old| old.highest_number()));
        lock.raise_floor(Floor { number: number.unwrap_or(node.floor), fence: 0 });
        let is_released = holders.contains(&id(index)) && !matches!(node.caller, Caller::Inside(_));
        node.lock = Some(lock);
        self.links[index].iter_mut().for_each(VecDeque::clear);
        if is_released {
            self.handle(index, Input::Release);
        }
        if waits {
            self.handle(index, Input::Acquire { mode: Mode::Exclusive, draw: 0 });
        }
    }

    pub(super) fn handle(&mut self, index: usize, input: Input<CrMessage, <CarvalhoRoucairol as Protocol>::Timer>) {
        let node = &mut self.nodes[index];
        let (Some(lock), Some(epoch), Some(view)) = (&mut node.lock, node.install.open(), &node.view) else { return };
        let mut effects = Vec::new();
        lock.handle(input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.links[index][to.0 as usize - 1].push_back((epoch, message)),
                Effect::Broadcast { message } => {
                    for to in view.members.keys().filter(|to| **to != id(index)) {
                        self.links[index][to.0 as usize - 1].push_back((epoch, message.clone()));
                    }
                }
                Effect::Enter { fence } => node.caller = Caller::Inside(fence),
                _ => {}
            }
        }
    }

    pub(super) fn can_deliver(&self, from: usize, to: usize) -> bool {
        let install = &self.nodes[to].install;
        let Some((epoch, _)) = self.links[from][to].front() else { return false };
        let waits = install.open().map_or(*epoch >= install.reported(), |open| *epoch > open);
        self.reaches(from, to) && !waits
    }

    pub(super) fn deliver(&mut self, from: usize, to: usize) {
        let Some((epoch, message)) = self.links[from][to].pop_front() else { return };
        if self.nodes[to].install.open() == Some(epoch) {
            self.handle(to, Input::Deliver { from: id(from), message });
        }
    }

    pub(super) fn acquire(&mut self, node: usize) {
        self.nodes[node].entries -= 1;
        self.nodes[node].caller = Caller::Waiting;
        self.handle(node, Input::Acquire { mode: Mode::Exclusive, draw: 0 });
    }

    pub(super) fn release(&mut self, node: usize) {
        self.nodes[node].caller = Caller::Away;
        self.handle(node, Input::Release);
    }

    pub(super) fn die(&mut self) {
        self.nodes[LAST].is_alive = false;
        self.clear_links(LAST);
    }

    pub(super) fn live(&mut self) {
        let Node { incarnation, entries, .. } = self.nodes[LAST];
        self.nodes[LAST] = Node::new(incarnation.get() + 1, entries);
    }
}
