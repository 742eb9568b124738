//! One node joins, stops, leaves, is evicted, lapses and comes back, under incarnations k and k+1, and the messages about that
//! arrive in every order: nobody is taken for another incarnation of itself, and who wants to join or leave gets in or out.

use std::collections::BTreeSet;
use std::sync::Arc;

use hallpass_check::Space;
use hallpass_core::{NodeId, Ticks};
use hallpass_node::model::{Candidate, Change, Command, Group, Order, OrderState, Steward, Withdrawal};
use hallpass_node::{Honest, Incarnation, Request};
use hallpass_sim::oracle::Violation;

use super::{Described, group, incarnation, member};

/// The node that comes and goes.
const NODE: NodeId = NodeId(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// A command is applied whatever the term, epoch and incarnation that it was made for.
    StaleCommand,
    /// Any incarnation takes the place of the one that is there.
    AnyIncarnation,
    /// The steward takes the node for a namesake of another member.
    Namesake,
}

pub(super) const BUGS: &[(&str, Bug)] =
    &[("stale-command", Bug::StaleCommand), ("any-incarnation", Bug::AnyIncarnation), ("namesake", Bug::Namesake)];

#[derive(Clone, Copy, Debug)]
pub(super) struct IncarnationsModel {
    pub(super) bug: Option<Bug>,
    incarnations: u32,
    epochs: u64,
}

impl IncarnationsModel {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        Self { bug, incarnations: 3, epochs: 5 }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct IncarnationsState {
    incarnation: Incarnation,
    life: Life,
    /// Every message that was ever sent.
    network: BTreeSet<Message>,
    /// What has been agreed and proposed, with the term of the entry.
    agreed: Vec<(u64, Command)>,
    proposed: Option<(u64, Command)>,
    group: Arc<Group>,
    /// The group as the steward has applied it.
    steward: (u64, Arc<Group>, Steward),
    /// A proposal of an earlier steward that is on its way to the next.
    forwarded: Option<(u64, Command)>,
    evictions: u8,
    elections: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Life {
    /// It takes part, or wants to.
    Running,
    /// It holds nothing any more, and waits until it is out.
    Leaving { keeps_vote: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Message {
    Join(Incarnation),
    Withdraw { incarnation: Incarnation, keeps_vote: bool },
    Evict,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The node's session ends, or its process: it comes back as the next incarnation.
    Restart,
    Leave {
        keeps_vote: bool,
    },
    Ask,
    Evict,
    Receive {
        message: u8,
    },
    Propose,
    Commit,
    Apply,
    Elect {
        inherits: bool,
    },
    /// What an earlier steward has proposed reaches the log of the next.
    Forward,
}

impl IncarnationsState {
    fn expiry(&self) -> (Ticks, Ticks) {
        // The session is over once its incarnation is: then any time is late enough.
        let known = self.steward.1.incarnation_of(NODE);
        let is_over = known.is_some_and(|known| known < self.incarnation);
        (10, if is_over { 10 } else { 0 })
    }

    fn changes(&self) -> Vec<Change> {
        let mut steward = self.steward.2.clone();
        let (expiry, now) = self.expiry();
        let changes = steward.changes(&self.steward.1, &[NodeId(1)], expiry, now);
        let is_one = |change: &Change| !matches!(change, Change::Remove { id, .. } if *id != NODE);
        changes.into_iter().filter(is_one).collect()
    }

    fn is_current(&self) -> bool {
        self.proposed.is_none() && self.steward.1.epoch == self.group.epoch
    }

    /// Whether a message that is there tells the steward anything.
    fn is_news(&self, message: Message, bug: Option<Bug>) -> bool {
        let mut next = self.clone();
        next.receive(message, bug);
        message == Message::Evict || next.steward != self.steward
    }

    fn receive(&mut self, message: Message, bug: Option<Bug>) {
        let any = bug == Some(Bug::AnyIncarnation);
        let (_, group, steward) = &mut self.steward;
        match message {
            Message::Join(incarnation) => {
                if any || group.find(NODE).is_none_or(|known| known.incarnation < incarnation) {
                    steward.sessions.stop_acknowledging(NODE);
                    let reached = BTreeSet::from([NodeId(1)]);
                    let mut member = member(NODE, incarnation.get());
                    if bug == Some(Bug::Namesake) {
                        member.name = NodeId(1).to_string();
                    }
                    steward.candidates.insert(NODE, Candidate { member, reached, heard: 0 });
                }
            }
            Message::Withdraw { incarnation, keeps_vote } => {
                let is_in = group.incarnation_of(NODE) == Some(incarnation);
                let votes = !keeps_vote && group.absent.contains_key(&NODE);
                if is_in || votes {
                    steward.sessions.stop_acknowledging(NODE);
                    steward.withdrawn.insert(NODE, Withdrawal { incarnation, keeps_vote, member: None });
                } else {
                    steward.withdrawn.remove(&NODE);
                }
            }
            Message::Evict => {
                if let Some(known) = group.find(NODE)
                    && steward.orders.is_empty()
                {
                    steward.sessions.stop_acknowledging(NODE);
                    let (request, state) =
                        (Request::Evict { node: NODE, ban: false }, OrderState::Evicting(known.incarnation));
                    steward.orders.push(Order { from: NodeId(1), token: 1, request, state, bans: None });
                }
            }
        }
    }

    /// Also answers the orders that have been carried out, as the steward does.
    fn follow(&mut self) {
        let (_, group, steward) = &mut self.steward;
        *group = Arc::clone(&self.group);
        steward.follow(group, 0);
        steward.orders.retain(|order| order.state != OrderState::Evicted);
        let is_out = group.incarnation_of(NODE).is_none();
        steward.withdrawn.retain(|_, withdrawal| !(is_out && (withdrawal.keeps_vote || group.find(NODE).is_none())));
    }

    fn violation(&self, before: &Group) -> Option<Violation> {
        let (was, is) =
            (before.find(NODE).map(|one| one.incarnation), self.group.find(NODE).map(|one| one.incarnation));
        let text = if was > is && is.is_some() {
            "an earlier incarnation takes the place of a later one".to_owned()
        } else if before.incarnation_of(NODE) == Some(self.incarnation)
            && self.group.incarnation_of(NODE) != Some(self.incarnation)
            && self.life == Life::Running
        {
            format!("incarnation {} is removed while it runs", self.incarnation)
        } else if self.group.incarnation_of(NODE) > Some(self.incarnation) {
            "an incarnation that never was is a member".to_owned()
        } else {
            return None;
        };
        Some(Violation { property: "incarnation", text })
    }
}

impl Space for IncarnationsModel {
    type State = IncarnationsState;
    type Step = Step;

    fn first(&self) -> IncarnationsState {
        let first = Arc::new(group([member(NodeId(1), 1), member(NODE, 1)]));
        let mut steward = Steward::new(&first, 0, Honest);
        for id in [NodeId(1), NODE] {
            steward.installation.on_probed(1, id, incarnation(1), 1, false);
        }
        IncarnationsState {
            incarnation: incarnation(1),
            life: Life::Running,
            network: BTreeSet::new(),
            agreed: Vec::new(),
            proposed: None,
            group: Arc::clone(&first),
            steward: (1, first, steward),
            forwarded: None,
            evictions: 1,
            elections: 1,
        }
    }

    fn steps(&self, state: &IncarnationsState, steps: &mut Vec<Step>) {
        if state.incarnation.get() < self.incarnations {
            steps.push(Step::Restart);
        }
        let is_in = state.group.incarnation_of(NODE) == Some(state.incarnation);
        if state.life == Life::Running && is_in {
            steps.extend([true, false].map(|keeps_vote| Step::Leave { keeps_vote }));
        }
        let asks = match state.life {
            Life::Running if !is_in => Some(Message::Join(state.incarnation)),
            Life::Leaving { keeps_vote } => Some(Message::Withdraw { incarnation: state.incarnation, keeps_vote }),
            Life::Running => None,
        };
        if asks.is_some_and(|message| !state.network.contains(&message)) {
            steps.push(Step::Ask);
        }
        if state.evictions > 0 {
            steps.push(Step::Evict);
        }
        let news = (0..).zip(&state.network).filter(|(_, message)| state.is_news(**message, self.bug));
        steps.extend(news.map(|(message, _)| Step::Receive { message }));
        if state.is_current() && state.steward.1.epoch < self.epochs && !state.changes().is_empty() {
            steps.push(Step::Propose);
        }
        if state.proposed.is_some() {
            steps.push(Step::Commit);
        }
        if state.forwarded.is_some() && state.proposed.is_none() {
            steps.push(Step::Forward);
        }
        if state.steward.1.epoch != state.group.epoch {
            steps.push(Step::Apply);
        }
        if state.elections > 0 {
            steps.push(Step::Elect { inherits: false });
            steps.extend(state.proposed.is_some().then_some(Step::Elect { inherits: true }));
        }
    }

    fn apply(&mut self, state: &mut IncarnationsState, step: Step) -> Option<Violation> {
        let before = Arc::clone(&state.group);
        match step {
            Step::Restart => {
                state.incarnation = incarnation(state.incarnation.get() + 1);
                state.life = Life::Running;
            }
            Step::Leave { keeps_vote } => state.life = Life::Leaving { keeps_vote },
            Step::Ask => {
                let incarnation = state.incarnation;
                state.network.insert(match state.life {
                    Life::Running => Message::Join(incarnation),
                    Life::Leaving { keeps_vote } => Message::Withdraw { incarnation, keeps_vote },
                });
            }
            Step::Evict => {
                state.evictions -= 1;
                state.network.insert(Message::Evict);
            }
            Step::Receive { message } => {
                let message = *state.network.iter().nth(message.into())?;
                // The order of an operator is carried out once.
                if message == Message::Evict {
                    state.network.remove(&message);
                }
                state.receive(message, self.bug);
            }
            Step::Propose => {
                let changes = state.changes();
                let (expiry, now) = state.expiry();
                state.steward.2.sessions.expire(expiry, now);
                let base = state.steward.1.epoch;
                state.proposed = Some((state.steward.0, Command { term: state.steward.0, base, changes }));
            }
            Step::Forward => {
                state.proposed = state.forwarded.take().map(|(_, command)| (state.steward.0, command));
            }
            Step::Commit => self.commit(state),
            Step::Apply => state.follow(),
            Step::Elect { inherits } => {
                state.elections -= 1;
                if inherits {
                    self.commit(state);
                }
                state.forwarded = state.proposed.take();
                let mut steward = Steward::new(&state.group, 0, Honest);
                steward.installation.step = hallpass_node::model::Step::Done;
                state.steward = (state.steward.0 + 1, Arc::clone(&state.group), steward);
            }
        }
        state.violation(&before)
    }

    fn must_happen(&self, step: Step) -> bool {
        !matches!(step, Step::Restart | Step::Leave { .. } | Step::Evict | Step::Elect { .. })
    }

    fn check_end(&self, state: &IncarnationsState) -> Option<Violation> {
        let is_in = state.group.incarnation_of(NODE) == Some(state.incarnation);
        let (is_as_wanted, wanted) = match state.life {
            Life::Running => (is_in, "in"),
            Life::Leaving { keeps_vote: true } => (!is_in, "out"),
            Life::Leaving { keeps_vote: false } => (state.group.find(NODE).is_none(), "out"),
        };
        let text = format!("incarnation {} never gets {wanted}", state.incarnation);
        let is_over = state.steward.1.epoch >= self.epochs;
        (!is_as_wanted && !is_over).then_some(Violation { property: "progress", text })
    }
}

impl IncarnationsModel {
    fn commit(&self, state: &mut IncarnationsState) {
        let Some((term, mut command)) = state.proposed.take() else { return };
        let group = Arc::make_mut(&mut state.group);
        let mut term = term;
        if self.bug == Some(Bug::StaleCommand) {
            (command.base, term) = (group.epoch, command.term);
            let known = group.incarnation_of(NODE);
            for change in &mut command.changes {
                if let (Change::Remove { incarnation, .. }, Some(known)) = (change, known) {
                    *incarnation = known;
                }
            }
        }
        if self.bug == Some(Bug::AnyIncarnation)
            && command.changes.iter().any(|change| matches!(change, Change::Add(_)))
        {
            group.members.remove(&NODE);
            group.absent.remove(&NODE);
        }
        group.apply(term, &command);
        state.agreed.push((term, command));
    }
}

impl Described for IncarnationsModel {
    const NODES: u32 = 2;

    fn describe(&self, state: &IncarnationsState, step: Step) -> String {
        match step {
            Step::Restart => format!("2 comes back as incarnation {}", state.incarnation.get() + 1),
            Step::Leave { keeps_vote: true } => "2 stops".to_owned(),
            Step::Leave { keeps_vote: false } => "2 leaves".to_owned(),
            Step::Ask => format!("2/{} asks the steward", state.incarnation),
            Step::Evict => "an operator evicts 2".to_owned(),
            Step::Receive { message } => {
                format!("the steward receives {:?}", state.network.iter().nth(message.into()).expect("it is there"))
            }
            Step::Propose => format!("the steward proposes {:?}", state.changes()),
            Step::Commit => "the proposal is committed".to_owned(),
            Step::Forward => "a proposal of the earlier steward is in the log".to_owned(),
            Step::Apply => "the steward applies it".to_owned(),
            Step::Elect { inherits } => {
                format!("another steward is elected{}", if inherits { ", with the proposal" } else { "" })
            }
        }
    }
}
