//! An agent is started again while a client of it is alive and holds a lock: the agent's new incarnation takes no part before
//! the client's deadline is over, so that nobody else gets the lock meanwhile.

use hallpass_check::Space;
use hallpass_core::{NodeId, Ticks};
use hallpass_node::Incarnation;
use hallpass_node::model::{Change, Command, Group, Renewal, Session, Sessions};
use hallpass_sim::oracle::Violation;

use super::{Described, group, incarnation, member};

const AGENT: NodeId = NodeId(1);
const TTL: Ticks = 3;
const DRIFT_PPM: u32 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// The agent joins again at once.
    NoWait,
    /// It waits for a ttl less than its predecessor's clients may.
    ShortWait,
}

pub(super) const BUGS: &[(&str, Bug)] = &[("no-wait", Bug::NoWait), ("short-wait", Bug::ShortWait)];

#[derive(Clone, Copy, Debug)]
pub(super) struct RestartModel {
    pub(super) bug: Option<Bug>,
    time: u8,
    restarts: u8,
}

impl RestartModel {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        Self { bug, time: 9, restarts: 2 }
    }

    fn wait(&self, group: &Group) -> Ticks {
        match self.bug {
            Some(Bug::NoWait) => 0,
            Some(Bug::ShortWait) => group.ttl - 1,
            None => group.ttl + group.ttl * Ticks::from(group.drift_ppm) / 1_000_000,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct RestartState {
    time: u8,
    /// How fast the agent's and the steward's clocks run.
    rates: Option<[u8; 2]>,
    session: Session,
    /// The agent, started again, takes no part before this time of its own clock.
    waits_until: Option<Ticks>,
    /// Until when clients may hold what they were granted, by the clock of the agent's machine.
    deadline: Ticks,
    /// A renewal that is acknowledged and whose acknowledgement is on its way.
    acknowledged: Option<(Incarnation, Ticks)>,
    /// When the last renewal was sent: one at a time is enough.
    renewed: Option<u8>,
    sessions: Sessions,
    group: Group,
    candidate: Option<Incarnation>,
    restarts: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Rates([u8; 2]),
    Tick,
    Renew,
    Acknowledged,
    Restart,
    Join,
    /// The steward changes the view.
    Change,
}

impl RestartState {
    fn now(&self, node: usize) -> Ticks {
        Ticks::from(self.time) * self.rates.map_or(1, |rates| Ticks::from(rates[node]))
    }

    fn changes(&self) -> Vec<Change> {
        let expired = self.sessions.clone().expire(self.group.expiry(), self.now(1)).into_iter();
        let mut changes: Vec<Change> =
            expired.map(|(id, incarnation)| Change::Remove { id, incarnation, keeps_vote: true }).collect();
        if changes.is_empty() {
            changes.extend(self.candidate.map(|incarnation| Change::Add(member(AGENT, incarnation.get()))));
        }
        changes
    }
}

impl Space for RestartModel {
    type State = RestartState;
    type Step = Step;

    fn first(&self) -> RestartState {
        let group = Group { ttl: TTL, drift_ppm: DRIFT_PPM, ..group([member(AGENT, 1)]) };
        let mut session = Session::new(incarnation(1), TTL);
        session.on_acknowledged(incarnation(1), 0, 0);
        RestartState {
            time: 0,
            rates: None,
            deadline: session.valid_until().unwrap_or(0),
            session,
            waits_until: None,
            acknowledged: None,
            renewed: None,
            sessions: Sessions::new(&group, 0),
            group,
            candidate: None,
            restarts: self.restarts,
        }
    }

    fn steps(&self, state: &RestartState, steps: &mut Vec<Step>) {
        if state.rates.is_none() {
            return steps.extend([[1, 1], [1, 2], [2, 1], [2, 2]].map(Step::Rates));
        }
        if state.time < self.time {
            steps.push(Step::Tick);
        }
        let is_in = state.group.incarnation_of(AGENT) == Some(state.session.incarnation);
        if is_in && !state.session.has_lapsed() && state.renewed != Some(state.time) {
            steps.push(Step::Renew);
        }
        if state.acknowledged.is_some() {
            steps.push(Step::Acknowledged);
        }
        if state.restarts > 0 {
            steps.push(Step::Restart);
        }
        let is_over = state.waits_until.is_none_or(|until| state.now(0) >= until);
        if !is_in && is_over && state.candidate != Some(state.session.incarnation) {
            steps.push(Step::Join);
        }
        if !state.changes().is_empty() {
            steps.push(Step::Change);
        }
    }

    fn apply(&mut self, state: &mut RestartState, step: Step) -> Option<Violation> {
        let now = state.now(0);
        match step {
            Step::Rates(rates) => state.rates = Some(rates),
            Step::Tick => state.time += 1,
            Step::Renew => {
                state.renewed = Some(state.time);
                let (incarnation, received) = (state.session.incarnation, state.now(1));
                state.sessions.on_renewal(AGENT, Renewal { incarnation, sent: now, received });
                let confirmed = state.sessions.close_batch().map(|batch| state.sessions.on_confirmed(batch));
                let renewal = confirmed.into_iter().flatten().next();
                state.acknowledged =
                    renewal.map(|(_, renewal)| (renewal.incarnation, renewal.sent)).or(state.acknowledged);
            }
            Step::Acknowledged => {
                let (incarnation, sent) = state.acknowledged.take()?;
                state.session.on_acknowledged(incarnation, sent, now);
                // The agent's clients are told at once.
                state.deadline = state.deadline.max(state.session.valid_until().unwrap_or(0));
            }
            Step::Restart => {
                state.restarts -= 1;
                state.session = Session::new(incarnation(state.session.incarnation.get() + 1), TTL);
                state.waits_until = Some(now + self.wait(&state.group));
            }
            Step::Join => {
                let next = state.session.incarnation;
                if state.group.find(AGENT).is_none_or(|known| known.incarnation < next) {
                    state.sessions.stop_acknowledging(AGENT);
                    state.candidate = Some(next);
                }
            }
            Step::Change => {
                let changes = state.changes();
                let command = Command { term: 1, base: state.group.epoch, changes };
                state.group.apply(1, &command);
                let now = state.now(1);
                state.sessions.follow(&state.group, now);
                let known = state.group.incarnation_of(AGENT);
                state.candidate = state.candidate.filter(|one| known < Some(*one));
                // In the new view the agent has reported nothing: whatever its clients hold is free.
                if state.now(0) < state.deadline {
                    let text = "the lock is free while a client of the agent's predecessor holds it".to_owned();
                    return Some(Violation { property: "exclusion", text });
                }
            }
        }
        None
    }

    fn must_happen(&self, _: Step) -> bool {
        true
    }

    /// The agent is in again, unless time is up before.
    fn check_end(&self, state: &RestartState) -> Option<Violation> {
        let is_in = state.group.incarnation_of(AGENT).is_some() || state.time >= self.time;
        (!is_in).then(|| Violation { property: "progress", text: "the agent never comes back".to_owned() })
    }
}

impl Described for RestartModel {
    const NODES: u32 = 2;

    fn describe(&self, state: &RestartState, step: Step) -> String {
        match step {
            Step::Rates([agent, steward]) => {
                format!("the clock of the agent runs at rate {agent}, the steward's at {steward}")
            }
            Step::Tick => format!("time {} begins", state.time + 1),
            Step::Renew => format!("the agent renews at its time {}", state.now(0)),
            Step::Acknowledged => format!("the agent hears that it is valid, at its time {}", state.now(0)),
            Step::Restart => format!("the agent is started again; clients may hold until {}", state.deadline),
            Step::Join => {
                format!("incarnation {} asks to join at its time {}", state.session.incarnation, state.now(0))
            }
            Step::Change => format!("the steward changes the view at its time {}", state.now(1)),
        }
    }
}
