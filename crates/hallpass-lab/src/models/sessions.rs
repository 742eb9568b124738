//! Sessions: nobody is out of the group while its own clock says that its session is valid.
//!
//! Three voters, of which two can be the steward, and one member whose session is watched. Proposing, storing, committing and
//! applying are separate steps; messages are late, lost and repeated; commands are inherited by the next leader or forwarded
//! to it; every clock runs at one of two rates.
//!
//! One rule is not among those that can be broken here: that a steward acknowledges nothing before it has applied an entry of
//! its own term. Breaking that alone harms nobody, in any of 2.3 million states. Without it a new steward may acknowledge a
//! member whose removal is in its log and not applied yet; but a removed member had lapsed before, by its own clock, or had
//! given everything up, and a lapse is final: the acknowledgement comes to nothing. The rule stays as a second line behind that.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_check::Space;
use hallpass_core::{NodeId, Ticks};
use hallpass_node::Incarnation;
use hallpass_node::model::{Change, Command, Group, Renewal, Session, Sessions};
use hallpass_sim::oracle::Violation;

use super::consensus::{Applied, Consensus, Faults, QUORUM, VOTERS};
use super::{Described, group, incarnation, member};

/// The member whose session is watched. It votes, too.
const MEMBER: NodeId = NodeId(3);
const TTL: Ticks = 3;
/// Clocks run at the rates 1 and 2.
const DRIFT_PPM: u32 = 1_000_000;

/// A rule that is broken, to see that this is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// The steward waits for a ttl by its own clock, and not for what the drift adds.
    EvictEarly,
    /// An acknowledgement revives a session that is over.
    LateAck,
    /// Renewals are acknowledged without asking a quorum.
    NoQuorum,
    /// A command is applied in whatever term.
    AnyTerm,
    /// The session counts from when the acknowledgement comes.
    CountFromReceipt,
    /// A member that is to be removed is still acknowledged.
    AckDoomed,
}

pub(super) const BUGS: &[(&str, Bug)] = &[
    ("evict-early", Bug::EvictEarly),
    ("late-ack", Bug::LateAck),
    ("no-quorum", Bug::NoQuorum),
    ("any-term", Bug::AnyTerm),
    ("count-from-receipt", Bug::CountFromReceipt),
    ("ack-doomed", Bug::AckDoomed),
];

/// How much happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: u8,
    pub(super) renewals: u8,
    pub(super) terms: u64,
    pub(super) proposals: u8,
    pub(super) incarnations: u32,
    pub(super) orders: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SessionsModel {
    pub(super) limits: Limits,
    pub(super) bug: Option<Bug>,
}

impl SessionsModel {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        Self { limits: Limits { time: 4, renewals: 1, terms: 2, proposals: 2, incarnations: 1, orders: 1 }, bug }
    }

    fn faults(&self) -> Faults {
        Faults { any_term: self.bug == Some(Bug::AnyTerm), ..Faults::default() }
    }

    fn expiry(&self, group: &Group) -> Ticks {
        if self.bug == Some(Bug::EvictEarly) { group.ttl } else { group.expiry() }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct SessionsState {
    time: u8,
    /// How fast the clock of each node runs; `None` before that is chosen.
    rates: Option<[u8; VOTERS]>,
    consensus: Consensus,
    /// What each voter knows as the steward.
    stewards: [Option<Steward>; VOTERS],
    session: Session,
    renewals: u8,
    proposals: u8,
    /// How often an operator still asks for the member's removal.
    orders: u8,
    /// Every message that was ever sent: it may arrive at any time, again and again, or never.
    network: BTreeSet<Message>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Steward {
    sessions: Sessions,
    /// The batch that is being confirmed, and by whom it has been.
    batch: Option<(u64, BTreeSet<usize>)>,
    proposed: bool,
    candidate: Option<Incarnation>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Message {
    Renew {
        to: usize,
        incarnation: Incarnation,
        sent: Ticks,
    },
    Renewed {
        incarnation: Incarnation,
        sent: Ticks,
    },
    Expelled {
        incarnation: Incarnation,
    },
    Join {
        incarnation: Incarnation,
    },
    /// A proposal on its way to the leader: for this term and epoch, to remove or add these.
    Forwarded {
        term: u64,
        base: u64,
        removed: Option<Incarnation>,
        added: Option<Incarnation>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Rates([u8; VOTERS]),
    Tick,
    Renew,
    /// The message in this place arrives at this node.
    Deliver {
        message: u8,
        to: usize,
    },
    /// A voter confirms to the steward that it still leads.
    Confirm {
        steward: usize,
        voter: usize,
    },
    Acknowledge {
        steward: usize,
    },
    /// An operator asks for the member's removal, or it does not reach another one.
    Doom {
        steward: usize,
    },
    Propose {
        steward: usize,
    },
    Forward {
        steward: usize,
    },
    Elect {
        candidate: usize,
        voter: usize,
    },
    Replicate {
        leader: usize,
        voter: usize,
    },
    Commit {
        leader: usize,
    },
    Apply {
        voter: usize,
    },
    Lapse,
    Restart,
}

impl SessionsState {
    fn now(&self, node: usize) -> Ticks {
        Ticks::from(self.time) * self.rates.map_or(1, |rates| Ticks::from(rates[node]))
    }

    fn member_now(&self) -> Ticks {
        self.now(2)
    }

    fn is_steward(&self, node: usize) -> bool {
        self.consensus.replicas[node].lead.is_some()
    }

    /// The next proposal of a steward, if one is due.
    fn command(&self, model: &SessionsModel, node: usize) -> Option<Command> {
        let steward = self.stewards[node].as_ref().filter(|steward| !steward.proposed)?;
        let replica = &self.consensus.replicas[node];
        let expired = steward.sessions.clone().expire(model.expiry(&replica.group), self.now(node));
        let mut changes: Vec<Change> = Vec::new();
        for (id, incarnation) in expired {
            changes.push(Change::Remove { id, incarnation, keeps_vote: true });
        }
        if let Some(candidate) = steward.candidate.filter(|_| changes.is_empty()) {
            changes.push(Change::Add(member(MEMBER, candidate.get())));
        }
        (!changes.is_empty()).then(|| Command { term: replica.term, base: replica.group.epoch, changes })
    }

    /// The steward decides: from now on it does not acknowledge whom it removes.
    fn decide(&mut self, model: &SessionsModel, node: usize) {
        let (expiry, now) = (model.expiry(&self.consensus.replicas[node].group), self.now(node));
        self.proposals -= 1;
        let Some(steward) = &mut self.stewards[node] else { return };
        steward.sessions.expire(expiry, now);
        steward.proposed = true;
    }

    fn end_session(&mut self, limits: &Limits) {
        let next = self.session.incarnation.get() + 1;
        if next > limits.incarnations {
            return self.session.end();
        }
        let incarnation = incarnation(next);
        self.session = Session::new(incarnation, TTL);
        self.network.insert(Message::Join { incarnation });
    }

    fn close_batch(&mut self, node: usize) {
        if let Some(steward) = &mut self.stewards[node]
            && let Some(number) = steward.sessions.close_batch()
        {
            steward.batch = Some((number, BTreeSet::from([node])));
        }
    }

    fn acknowledge(&mut self, model: &SessionsModel, node: usize) {
        let Some(steward) = &mut self.stewards[node] else { return };
        let Some((number, _)) = steward.batch.take() else { return };
        let confirmed = match model.bug {
            Some(Bug::AckDoomed) => steward.sessions.confirm_all(number),
            _ => steward.sessions.on_confirmed(number),
        };
        for (_, renewal) in confirmed {
            let Renewal { incarnation, sent, .. } = renewal;
            self.network.insert(Message::Renewed { incarnation, sent });
        }
        self.close_batch(node);
    }

    fn deliver(&mut self, model: &SessionsModel, message: Message, to: usize) {
        match message {
            Message::Renew { incarnation, sent, .. } => {
                let received = self.now(to);
                let is_member = self.consensus.replicas[to].group.incarnation_of(MEMBER) == Some(incarnation);
                let Some(steward) = &mut self.stewards[to] else { return };
                if !is_member {
                    self.network.insert(Message::Expelled { incarnation });
                    return;
                }
                steward.sessions.on_renewal(MEMBER, Renewal { incarnation, sent, received });
                self.close_batch(to);
                if model.bug == Some(Bug::NoQuorum) {
                    self.acknowledge(model, to);
                }
            }
            Message::Join { incarnation } => {
                let known = self.consensus.replicas[to].group.find(MEMBER).map(|member| member.incarnation);
                let Some(steward) = &mut self.stewards[to] else { return };
                if known.is_none_or(|known| known < incarnation) {
                    steward.sessions.stop_acknowledging(MEMBER);
                    steward.candidate = Some(incarnation);
                }
            }
            Message::Renewed { incarnation, sent } => {
                let now = self.member_now();
                if model.bug == Some(Bug::LateAck) && incarnation == self.session.incarnation {
                    self.session.revive(sent);
                }
                let sent = if model.bug == Some(Bug::CountFromReceipt) { now } else { sent };
                self.session.on_acknowledged(incarnation, sent, now);
            }
            Message::Expelled { incarnation } => {
                if incarnation == self.session.incarnation && !self.session.has_lapsed() {
                    self.end_session(&model.limits);
                }
            }
            Message::Forwarded { term, base, removed, added } => {
                let mut changes = Vec::new();
                changes.extend(removed.map(|incarnation| Change::Remove { id: MEMBER, incarnation, keeps_vote: true }));
                changes.extend(added.map(|incarnation| Change::Add(member(MEMBER, incarnation.get()))));
                self.consensus.append(to, Some(Command { term, base, changes }));
            }
        }
    }

    fn apply_entry(&mut self, model: &SessionsModel, voter: usize) {
        let applied = self.consensus.apply(voter, model.faults());
        let now = self.now(voter);
        let group = &self.consensus.replicas[voter].group;
        match applied {
            Applied::Nothing => {}
            Applied::OwnTerm => self.become_steward(voter),
            Applied::View => {
                if let Some(steward) = &mut self.stewards[voter] {
                    steward.sessions.follow(group, now);
                    steward.proposed = false;
                    steward.candidate = steward.candidate.filter(|one| group.incarnation_of(MEMBER) < Some(*one));
                }
            }
        }
    }

    fn become_steward(&mut self, voter: usize) {
        let sessions = Sessions::new(&self.consensus.replicas[voter].group, self.now(voter));
        self.stewards[voter] = Some(Steward { sessions, batch: None, proposed: false, candidate: None });
    }

    /// A node that no longer leads stops being a steward.
    fn step_down(&mut self) {
        for node in 0..VOTERS {
            if !self.is_steward(node) {
                self.stewards[node] = None;
            }
        }
    }

    fn violation(&self) -> Option<Violation> {
        let is_valid = self.session.is_valid(self.member_now());
        let incarnation = self.session.incarnation;
        let latest = self.consensus.replicas.iter().map(|replica| &replica.group).max_by_key(|group| group.epoch)?;
        if !is_valid || latest.incarnation_of(MEMBER) == Some(incarnation) {
            return None;
        }
        let epoch = latest.epoch;
        Some(Violation {
            property: "session",
            text: format!(
                "view {epoch} is agreed, without member 3/{incarnation}, whose session is valid by its own clock"
            ),
        })
    }
}

impl Space for SessionsModel {
    type State = SessionsState;
    type Step = Step;

    fn first(&self) -> SessionsState {
        let first = incarnation(1);
        let group = Group { ttl: TTL, drift_ppm: DRIFT_PPM, ..group([member(MEMBER, 1)]) };
        let mut session = Session::new(first, TTL);
        session.on_acknowledged(first, 0, 0);
        let mut state = SessionsState {
            time: 0,
            rates: None,
            consensus: Consensus::new(group),
            stewards: [None, None, None],
            session,
            renewals: self.limits.renewals,
            proposals: self.limits.proposals,
            orders: self.limits.orders,
            network: BTreeSet::new(),
        };
        state.become_steward(0);
        state
    }

    fn steps(&self, state: &SessionsState, steps: &mut Vec<Step>) {
        if state.rates.is_none() {
            steps.extend([[2, 2, 1], [1, 1, 2], [2, 1, 1], [1, 2, 1]].map(Step::Rates));
            return;
        }
        if state.time < self.limits.time {
            steps.push(Step::Tick);
        }
        let is_alive = !state.session.has_lapsed();
        if is_alive && state.renewals > 0 {
            steps.push(Step::Renew);
        }
        if state.session.incarnation.get() < self.limits.incarnations {
            let is_due = is_alive && state.session.clone().lapse_if_due(state.member_now());
            steps.extend(is_due.then_some(Step::Lapse));
            steps.push(Step::Restart);
        }
        for (message, content) in (0..).zip(&state.network) {
            match content {
                Message::Renewed { .. } | Message::Expelled { .. } => steps.push(Step::Deliver { message, to: 2 }),
                // That of a member that is heard twice counts from the later time, which helps it.
                Message::Renew { to, .. } => {
                    if state.stewards[*to].is_some() {
                        steps.push(Step::Deliver { message, to: *to });
                    }
                }
                Message::Join { .. } => {
                    let stewards = (0..VOTERS).filter(|node| state.stewards[*node].is_some());
                    steps.extend(stewards.map(|to| Step::Deliver { message, to }));
                }
                // What was forwarded arrives once, and at a leader: engines do not repeat it.
                Message::Forwarded { .. } => {
                    let leaders = (0..VOTERS).filter(|node| state.is_steward(*node));
                    steps.extend(leaders.map(|to| Step::Deliver { message, to }));
                }
            }
        }
        for node in 0..VOTERS {
            self.voter_steps(state, node, steps);
        }
    }

    fn apply(&mut self, state: &mut SessionsState, step: Step) -> Option<Violation> {
        match step {
            Step::Rates(rates) => state.rates = Some(rates),
            Step::Tick => state.time += 1,
            Step::Renew => {
                state.renewals -= 1;
                let (incarnation, sent) = (state.session.incarnation, state.member_now());
                state.network.extend([0, 1].map(|to| Message::Renew { to, incarnation, sent }));
            }
            Step::Deliver { message, to } => {
                let message = state.network.iter().nth(message.into()).cloned()?;
                if matches!(message, Message::Forwarded { .. } | Message::Renew { .. }) {
                    state.network.remove(&message);
                }
                state.deliver(self, message, to);
            }
            Step::Confirm { steward, voter } => {
                if state.consensus.hear(steward, voter)
                    && let Some((_, by)) = state.stewards[steward].as_mut().and_then(|steward| steward.batch.as_mut())
                {
                    by.insert(voter);
                }
                state.step_down();
            }
            Step::Acknowledge { steward } => state.acknowledge(self, steward),
            Step::Doom { steward } => {
                state.orders -= 1;
                if let Some(steward) = &mut state.stewards[steward] {
                    steward.sessions.stop_acknowledging(MEMBER);
                }
            }
            Step::Propose { steward } => {
                if let Some(command) = state.command(self, steward) {
                    state.decide(self, steward);
                    state.consensus.append(steward, Some(command));
                }
            }
            Step::Forward { steward } => {
                if let Some(Command { term, base, changes }) = state.command(self, steward) {
                    state.decide(self, steward);
                    let (mut removed, mut added) = (None, None);
                    for change in changes {
                        match change {
                            Change::Remove { incarnation, .. } => removed = Some(incarnation),
                            Change::Add(member) => added = Some(member.incarnation),
                            _ => {}
                        }
                    }
                    state.network.insert(Message::Forwarded { term, base, removed, added });
                }
            }
            Step::Elect { candidate, voter } => {
                state.consensus.elect(candidate, voter);
                state.step_down();
            }
            Step::Replicate { leader, voter } => {
                state.consensus.replicate(leader, voter);
                // Crashes are another model's matter: here disks are fast.
                state.consensus.sync(voter);
                state.consensus.acknowledge(voter, leader, self.faults());
                state.step_down();
            }
            Step::Commit { leader } => drop(state.consensus.commit(leader)),
            Step::Apply { voter } => state.apply_entry(self, voter),
            Step::Lapse | Step::Restart => state.end_session(&self.limits),
        }
        state.violation()
    }

    fn must_happen(&self, _: Step) -> bool {
        true
    }

    fn check_end(&self, _: &SessionsState) -> Option<Violation> {
        None
    }
}

impl SessionsModel {
    fn voter_steps(&self, state: &SessionsState, node: usize, steps: &mut Vec<Step>) {
        let replicas = &state.consensus.replicas;
        let others = (0..VOTERS).filter(|other| *other != node);
        if node < 2 && replicas[node].term < self.limits.terms {
            let voters = others.clone().filter(|voter| state.consensus.can_elect(node, *voter));
            steps.extend(voters.map(|voter| Step::Elect { candidate: node, voter }));
        }
        // What others apply, and when, cannot be seen: an elected node applies everything first.
        if !state.is_steward(node) {
            return;
        }
        if state.consensus.can_apply(node) {
            steps.push(Step::Apply { voter: node });
        }
        for voter in others {
            if replicas[voter].term <= replicas[node].term {
                steps.push(Step::Replicate { leader: node, voter });
            }
        }
        if state.consensus.clone().commit(node) {
            steps.push(Step::Commit { leader: node });
        }
        let Some(steward) = &state.stewards[node] else { return };
        if let Some((_, by)) = &steward.batch {
            if by.len() >= QUORUM {
                steps.push(Step::Acknowledge { steward: node });
            } else {
                let voters = (0..VOTERS).filter(|voter| !by.contains(voter));
                steps.extend(voters.map(|voter| Step::Confirm { steward: node, voter }));
            }
        }
        if state.orders > 0 && !steward.sessions.is_unacknowledged(MEMBER) {
            steps.push(Step::Doom { steward: node });
        }
        if state.proposals > 0 && state.command(self, node).is_some() {
            steps.push(Step::Propose { steward: node });
            steps.push(Step::Forward { steward: node });
        }
    }
}

impl Described for SessionsModel {
    const NODES: u32 = VOTERS as u32;

    fn describe(&self, state: &SessionsState, step: Step) -> String {
        match step {
            Step::Rates(rates) => {
                format!("the clocks of 1, 2, 3 run at the rates {}, {}, {}", rates[0], rates[1], rates[2])
            }
            Step::Tick => format!("time {} begins", state.time + 1),
            Step::Renew => format!("3 sends a renewal at its time {}", state.member_now()),
            Step::Deliver { message, to } => {
                format!("{} receives {:?}", to + 1, state.network.iter().nth(message.into()).expect("it is there"))
            }
            Step::Confirm { steward, voter } => format!("{} asks {} whether it still leads", steward + 1, voter + 1),
            Step::Acknowledge { steward } => format!("{} acknowledges what a quorum has confirmed", steward + 1),
            Step::Doom { steward } => format!("{} is asked to remove 3", steward + 1),
            Step::Propose { steward } => format!("{} proposes {:?}", steward + 1, brief(state.command(self, steward))),
            Step::Forward { steward } => {
                format!("{} proposes {:?}, to be forwarded", steward + 1, brief(state.command(self, steward)))
            }
            Step::Elect { candidate, voter } => {
                let term = state.consensus.replicas[candidate].term + 1;
                format!("{} is elected in term {term} with the vote of {}", candidate + 1, voter + 1)
            }
            Step::Replicate { leader, voter } => format!("{} stores the log of {}", voter + 1, leader + 1),
            Step::Commit { leader } => format!("{} commits", leader + 1),
            Step::Apply { voter } => format!("{} applies an entry", voter + 1),
            Step::Lapse => "3 finds that its session is over".to_owned(),
            Step::Restart => "3 is started again".to_owned(),
        }
    }
}

/// The changes of a command, shortly.
fn brief(command: Option<Command>) -> BTreeMap<&'static str, u32> {
    let changes = command.into_iter().flat_map(|command| command.changes);
    let one = |change| match change {
        Change::Remove { incarnation, .. } => ("remove", incarnation.get()),
        Change::Add(member) => ("add", member.incarnation.get()),
        _ => ("other", 0),
    };
    changes.map(one).collect()
}
