//! From every state that can be reached, whoever waits is granted its lock, if from then on nothing more goes wrong than is
//! said: two members never reach each other again, or a node that joins goes on to come and go.
//!
//! Three nodes use one lock, and the first one is the steward. That consensus decides, and that control messages may be lost
//! or late, is what other models are about: here a proposal is decided at once, and what is said to a node that lives is
//! answered. In each state the rest of the story is played in a fixed order, every node doing what it can, for as long as the
//! longest pause of the steward lasts.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use hallpass_check::{Space, fingerprint};
use hallpass_core::protocol::carvalho_roucairol::{CarvalhoRoucairol, CrMessage};
use hallpass_core::protocol::{Capabilities, Floor, Options};
use hallpass_core::{Bounds, Effect, Fence, InitialHolders, Input, Mode, NodeId, Protocol, Setup, Ticks, View};
use hallpass_node::Incarnation;
use hallpass_node::model::{
    Candidate, Command, Group, Held, HeldLock, Install, Prepare, Renewal, Session, Step as Phase, Steward,
};
use hallpass_sim::oracle::Violation;

use super::{Described, group, incarnation};
use crate::LabError;

const NODES: usize = 3;
const STEWARD: usize = 0;
/// The node at the far end of the link that breaks, or the one that joins.
const LAST: usize = 2;
const TTL: Ticks = 4;
/// So long everything is played on: longer than the longest pause before a node is admitted again.
const PATIENCE: Ticks = 40 * TTL;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// Members that do not reach each other both stay.
    KeepBoth,
    /// Whoever fails again and again is admitted again at once.
    NoBackOff,
}

pub(super) const LINK_BUGS: &[(&str, Bug)] = &[("keep-both", Bug::KeepBoth)];
pub(super) const JOINER_BUGS: &[(&str, Bug)] = &[("no-back-off", Bug::NoBackOff)];

#[derive(Clone, Debug)]
pub(super) struct ProgressModel {
    bug: Option<Bug>,
    rules: <CarvalhoRoucairol as Protocol>::Options,
    /// How many of the nodes are members at the start.
    members: usize,
    /// How long things go wrong in every way.
    time: Ticks,
    /// How often the link of the last two members breaks, and is repaired.
    cuts: u8,
    /// How often the last node is started, and dies.
    lives: u8,
    /// Fingerprints of states from which everything was played to its good end.
    good: HashSet<u64>,
}

impl ProgressModel {
    /// Three members, two of which do not reach each other.
    pub(super) fn dead_link(bug: Option<Bug>) -> Result<Self, LabError> {
        Self::new(bug, NODES, 5, (1, 0))
    }

    /// Two members, and a third node that joins and fails again and again.
    pub(super) fn flapping_joiner(bug: Option<Bug>) -> Result<Self, LabError> {
        Self::new(bug, NODES - 1, 3, (0, 1))
    }

    fn new(bug: Option<Bug>, members: usize, time: Ticks, (cuts, lives): (u8, u8)) -> Result<Self, LabError> {
        let rules = CarvalhoRoucairol::parse(&Options::default())?;
        Ok(Self { bug, rules, members, time, cuts, lives, good: HashSet::default() })
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    now: Ticks,
    group: Arc<Group>,
    steward: Steward,
    nodes: [Node; NODES],
    /// What each node has sent to each other one, with the epoch.
    links: [[VecDeque<(u64, CrMessage)>; NODES]; NODES],
    /// Since when the last two members do not reach each other.
    cut: Option<Ticks>,
    cuts: u8,
    lives: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node {
    is_alive: bool,
    incarnation: Incarnation,
    session: Session,
    install: Install,
    view: Option<Arc<Group>>,
    lock: Option<CarvalhoRoucairol>,
    caller: Caller,
    /// How often it still asks for the lock.
    entries: u8,
    /// Its requests are numbered above this.
    floor: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Caller {
    Away,
    Waiting,
    Inside(Fence),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Tick,
    Acquire {
        node: usize,
    },
    Release {
        node: usize,
    },
    Deliver {
        from: usize,
        to: usize,
    },
    /// The steward tells a node how far the view is, and hears its answer.
    Tell {
        node: usize,
    },
    /// A node asks to join.
    Join {
        node: usize,
    },
    /// The steward decides on the next view.
    Decide,
    Cut,
    Repair,
    Die,
    Live,
}

/// What goes on for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Fate {
    /// Nothing goes wrong any more: links are repaired, nodes live.
    Well,
    /// Everything stays as it is.
    Stays,
    /// The last node dies whenever it hears of this phase of a view, and is back at once.
    DiesAt(Phase),
    /// It lives and is dead for so long in turn.
    ComesAndGoes(Ticks),
}

impl Fate {
    fn text(self) -> String {
        match self {
            Self::Well => "if all links are repaired and all nodes live".to_owned(),
            Self::Stays => "if everything stays as it is".to_owned(),
            Self::DiesAt(phase) => format!("if 3 dies whenever it is told of a view that is {phase:?}"),
            Self::ComesAndGoes(time) => format!("if 3 lives and is dead for {time} in turn"),
        }
    }
}

const fn id(node: usize) -> NodeId {
    NodeId(node as u32 + 1)
}

fn member(node: usize, incarnation: Incarnation) -> hallpass_node::model::Member {
    let one = super::member(id(node), incarnation.get());
    hallpass_node::model::Member { name: (node + 1).to_string(), ..one }
}

impl Node {
    fn new(number: u32, entries: u8) -> Self {
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
    fn end(&mut self) {
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

impl State {
    fn reaches(&self, a: usize, b: usize) -> bool {
        let is_cut = self.cut.is_some() && a != STEWARD && b != STEWARD;
        self.nodes[a].is_alive && self.nodes[b].is_alive && !is_cut
    }

    fn clear_links(&mut self, node: usize) {
        for other in 0..NODES {
            self.links[node][other].clear();
            self.links[other][node].clear();
        }
    }

    fn end(&mut self, node: usize) {
        self.nodes[node].end();
        self.clear_links(node);
    }

    // ---- sessions ----

    /// Time passes: sessions end, and whoever takes part renews its own.
    fn tick(&mut self) {
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

    fn renew(&mut self, node: usize) {
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

    fn can_join(&self, node: usize) -> bool {
        let Node { is_alive, incarnation, view, .. } = &self.nodes[node];
        let known = self.group.find(id(node)).map(|member| member.incarnation);
        *is_alive && view.is_none() && known.is_none_or(|known| known < *incarnation)
    }

    fn join(&mut self, node: usize) {
        let incarnation = self.nodes[node].incarnation;
        self.steward.sessions.stop_acknowledging(id(node));
        let reached = |other: &usize| self.reaches(node, *other);
        let reached: BTreeSet<NodeId> = (0..NODES).filter(reached).map(id).collect();
        let candidate = Candidate { member: member(node, incarnation), reached, heard: self.now };
        self.steward.candidates.insert(id(node), candidate);
    }

    /// As the node does it, but for consensus: that decides at once.
    fn decide(&mut self, model: &ProgressModel) {
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
    fn can_tell(&self, node: usize) -> bool {
        let installation = &self.steward.installation;
        let Node { is_alive, incarnation, .. } = &self.nodes[node];
        let waits = matches!(installation.step, Phase::Probing | Phase::Preparing | Phase::Starting);
        waits && *is_alive && installation.missing.get(&id(node)) == Some(incarnation)
    }

    fn tell(&mut self, model: &ProgressModel, node: usize) {
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
    fn open(&mut self, model: &ProgressModel, index: usize, epoch: u64, held: &[HeldLock]) {
        let node = &mut self.nodes[index];
        let Some(group) = node.view.clone() else { return };
        let view = View::new(group.members.keys().copied()).with_epoch(epoch);
        let holders: &[NodeId] = held.first().map_or(&[], |lock| &lock.holders);
        let initial = InitialHolders { holders, mode: Mode::Exclusive, fence: Fence::new(0) };
        let bounds = Bounds::NONE;
        let setup = Setup { me: id(index), view: &view, initial, incarnation: 0, bounds, options: &model.rules };
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

    fn handle(&mut self, index: usize, input: Input<CrMessage, <CarvalhoRoucairol as Protocol>::Timer>) {
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

    fn can_deliver(&self, from: usize, to: usize) -> bool {
        let install = &self.nodes[to].install;
        let Some((epoch, _)) = self.links[from][to].front() else { return false };
        let waits = install.open().map_or(*epoch >= install.reported(), |open| *epoch > open);
        self.reaches(from, to) && !waits
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some((epoch, message)) = self.links[from][to].pop_front() else { return };
        if self.nodes[to].install.open() == Some(epoch) {
            self.handle(to, Input::Deliver { from: id(from), message });
        }
    }

    fn acquire(&mut self, node: usize) {
        self.nodes[node].entries -= 1;
        self.nodes[node].caller = Caller::Waiting;
        self.handle(node, Input::Acquire { mode: Mode::Exclusive, draw: 0 });
    }

    fn release(&mut self, node: usize) {
        self.nodes[node].caller = Caller::Away;
        self.handle(node, Input::Release);
    }

    fn die(&mut self) {
        self.nodes[LAST].is_alive = false;
        self.clear_links(LAST);
    }

    fn live(&mut self) {
        let Node { incarnation, entries, .. } = self.nodes[LAST];
        self.nodes[LAST] = Node::new(incarnation.get() + 1, entries);
    }

    // ---- the rest of the story ----

    /// The first of so many nodes that waits or will wait; if all count, also one that takes no part.
    fn stuck(&self, count: usize) -> Option<usize> {
        let is_served = |node: &Node| node.caller == Caller::Away && node.entries == 0;
        let takes_part = |node: &Node| node.install.open() == Some(self.group.epoch);
        self.nodes[..count].iter().position(|node| !is_served(node) || count == NODES && !takes_part(node))
    }

    /// Everybody does what it can, in order, until there is nothing left to do at this time.
    fn play_moment(&mut self, model: &ProgressModel, fate: Fate) {
        let mut may_die = true;
        loop {
            let mut is_done = true;
            for node in 0..NODES {
                if self.nodes[node].is_alive && self.nodes[node].caller == Caller::Away && self.nodes[node].entries > 0
                {
                    self.acquire(node);
                    is_done = false;
                }
                if matches!(self.nodes[node].caller, Caller::Inside(_)) && self.nodes[node].is_alive {
                    self.release(node);
                    is_done = false;
                }
                for from in 0..NODES {
                    while self.can_deliver(from, node) {
                        self.deliver(from, node);
                        is_done = false;
                    }
                }
                if self.can_join(node) {
                    self.join(node);
                }
            }
            let epoch = self.group.epoch;
            self.decide(model);
            is_done &= self.group.epoch == epoch;
            for node in 0..NODES {
                if !self.can_tell(node) {
                    continue;
                }
                if node == LAST && fate == Fate::DiesAt(self.steward.installation.step) {
                    // One that is started again and again is so with some time between.
                    if std::mem::take(&mut may_die) {
                        self.die();
                        self.live();
                        is_done = false;
                    }
                    continue;
                }
                let before = self.steward.installation.missing.len();
                let step = self.steward.installation.step;
                self.tell(model, node);
                let installation = &self.steward.installation;
                is_done &= (before, step) == (installation.missing.len(), installation.step);
            }
            if is_done {
                return;
            }
        }
    }

    /// Plays until nobody waits. Returns a node that waits in the end.
    fn play(mut self, model: &mut ProgressModel, fate: Fate) -> Option<usize> {
        if fate == Fate::Well {
            self.cut = None;
            if !self.nodes[LAST].is_alive {
                self.live();
            }
        }
        // What a node that fails for ever wants does not count, nor what one wants that is cut off from another member.
        let is_well = fate == Fate::Well || self.cut.is_none() && fate == Fate::Stays && self.nodes[LAST].is_alive;
        let count = if is_well { NODES } else { LAST };
        let end = self.now + PATIENCE;
        let mut passed = Vec::new();
        while self.now < end {
            if let Fate::ComesAndGoes(time) = fate {
                match (self.now / time).is_multiple_of(2) {
                    true if !self.nodes[LAST].is_alive => self.live(),
                    false if self.nodes[LAST].is_alive => self.die(),
                    _ => {}
                }
            }
            self.play_moment(model, fate);
            let number = fingerprint(&(&self, fate));
            if self.stuck(count).is_none() || model.good.contains(&number) {
                model.good.extend(passed);
                return None;
            }
            passed.push(number);
            self.tick();
        }
        self.stuck(count)
    }
}

impl Space for ProgressModel {
    type State = State;
    type Step = Step;

    fn first(&self) -> State {
        let mut nodes = [1; NODES].map(|number| Node::new(number, 1));
        let members = (0..self.members).map(|node| member(node, incarnation(1)));
        let first = Arc::new(Group { ttl: TTL, ..group(members) });
        let mut steward = Steward::new(&first, 0);
        for (index, node) in nodes.iter_mut().enumerate() {
            if index >= self.members {
                // Others wait for it, it waits for nobody.
                (node.is_alive, node.entries) = (false, 0);
                continue;
            }
            steward.installation.on_probed(1, id(index), incarnation(1), 1, false);
            node.session.on_acknowledged(incarnation(1), 0, 0);
            node.view = Some(Arc::clone(&first));
            node.install.on_closed(1, (), Vec::new());
        }
        let links = Default::default();
        let mut state =
            State { now: 0, group: first, steward, nodes, links, cut: None, cuts: self.cuts, lives: self.lives };
        for index in 0..self.members {
            state.nodes[index].install.on_start(1, 0, 1, Vec::new());
            state.open(self, index, 1, &[]);
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.now < self.time {
            steps.push(Step::Tick);
        }
        for (index, node) in state.nodes.iter().enumerate().filter(|(_, node)| node.is_alive) {
            match node.caller {
                Caller::Away if node.entries > 0 => steps.push(Step::Acquire { node: index }),
                Caller::Inside(_) => steps.push(Step::Release { node: index }),
                _ => {}
            }
            let senders = (0..NODES).filter(|from| state.can_deliver(*from, index));
            steps.extend(senders.map(|from| Step::Deliver { from, to: index }));
            steps.extend(state.can_tell(index).then_some(Step::Tell { node: index }));
            steps.extend(state.can_join(index).then_some(Step::Join { node: index }));
        }
        steps.push(Step::Decide);
        match state.cut {
            None if state.cuts > 0 => steps.push(Step::Cut),
            Some(_) => steps.push(Step::Repair),
            None => {}
        }
        if self.members < NODES {
            match state.nodes[LAST].is_alive {
                true => steps.push(Step::Die),
                false if state.lives > 0 => steps.push(Step::Live),
                false => {}
            }
        }
    }

    fn apply(&mut self, state: &mut State, step: Step) -> Option<Violation> {
        match step {
            Step::Tick => state.tick(),
            Step::Acquire { node } => state.acquire(node),
            Step::Release { node } => state.release(node),
            Step::Deliver { from, to } => state.deliver(from, to),
            Step::Tell { node } => state.tell(self, node),
            Step::Join { node } => state.join(node),
            Step::Decide => state.decide(self),
            Step::Cut => {
                state.cuts -= 1;
                state.cut = Some(state.now);
            }
            Step::Repair => state.cut = None,
            Step::Die => state.die(),
            Step::Live => {
                state.lives -= 1;
                state.live();
            }
        }
        let fates: &[Fate] = if self.members == NODES {
            &[Fate::Stays, Fate::Well]
        } else {
            &[
                Fate::Stays,
                Fate::Well,
                Fate::DiesAt(Phase::Probing),
                Fate::DiesAt(Phase::Preparing),
                Fate::DiesAt(Phase::Starting),
                Fate::ComesAndGoes(1),
                Fate::ComesAndGoes(2),
                Fate::ComesAndGoes(TTL),
            ]
        };
        let number = fingerprint(state);
        if !self.good.insert(number) {
            return None;
        }
        let (fate, stuck) = fates.iter().find_map(|fate| Some((*fate, state.clone().play(self, *fate)?)))?;
        Some(Violation { property: "progress", text: format!("{}, {} waits for ever", fate.text(), stuck + 1) })
    }

    fn must_happen(&self, _: Step) -> bool {
        true
    }

    fn check_end(&self, _: &State) -> Option<Violation> {
        None
    }
}

impl Described for ProgressModel {
    const NODES: u32 = NODES as u32;

    fn describe(&self, state: &State, step: Step) -> String {
        match step {
            Step::Tick => format!("time {} begins", state.now + 1),
            Step::Acquire { node } => format!("{} asks for the lock", node + 1),
            Step::Release { node } => format!("{} releases the lock", node + 1),
            Step::Deliver { from, to } => match state.links[from][to].front() {
                Some((epoch, message)) => format!("{} receives {message} of view {epoch}", to + 1),
                None => format!("{} receives nothing", to + 1),
            },
            Step::Tell { node } => {
                format!(
                    "{} answers the steward: view {} is {:?}",
                    node + 1,
                    state.group.epoch,
                    state.steward.installation.step
                )
            }
            Step::Join { node } => format!("{}/{} asks to join", node + 1, state.nodes[node].incarnation),
            Step::Decide => "the steward looks who is in the next view".to_owned(),
            Step::Cut => "2 and 3 do not reach each other any more".to_owned(),
            Step::Repair => "2 and 3 reach each other again".to_owned(),
            Step::Die => "3 dies".to_owned(),
            Step::Live => format!("3 is started, as incarnation {}", state.nodes[LAST].incarnation.get() + 1),
        }
    }
}
