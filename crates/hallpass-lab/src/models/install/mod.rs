//! From view to view: two stewards install views against each other, members lapse, come back, release and enter between.
//!
//! Two members use one lock. What consensus agrees on is a list; a new steward may inherit
//! or drop what its predecessor has proposed, and that one does not know that it is none any more. The control plane loses,
//! repeats and reorders; the lock plane keeps its order between two incarnations. That nobody is removed before its session is
//! over is what the model of sessions shows: here it is given.

mod state;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hallpass_check::Space;
use hallpass_core::protocol::Options;
use hallpass_core::{Fence, Input, Mode, Protocol};
use hallpass_node::model::{Install, Installation, Step as Phase};
use hallpass_sim::oracle::Violation;

use self::state::{Caller, Control, InstallState, Member, Steward, id};
use super::{Described, group, incarnation, member};
use crate::LabError;

const MEMBERS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// A view is started when the first report is there.
    NoWaitForReports,
    /// Messages of a view that is over are taken for the current one's.
    StaleEpoch,
    /// A view is started although a later one has been reported for.
    StaleStart,
    /// A member that has lapsed keeps what it holds.
    KeepPermissions,
}

/// Those that show with a protocol in which each permission names its request: what is left of an older view answers none.
pub(super) const BUGS: &[(&str, Bug)] =
    &[("no-wait-for-reports", Bug::NoWaitForReports), ("stale-start", Bug::StaleStart)];

/// Those that show with a token.
pub(super) const TOKEN_BUGS: &[(&str, Bug)] = &[
    ("no-wait-for-reports", Bug::NoWaitForReports),
    ("stale-epoch", Bug::StaleEpoch),
    ("stale-start", Bug::StaleStart),
];

/// Those that a lapse shows.
pub(super) const LAPSE_BUGS: &[(&str, Bug)] = &[("keep-permissions", Bug::KeepPermissions)];

#[derive(Clone, Debug)]
pub(super) struct InstallModel<P: Protocol> {
    bug: Option<Bug>,
    options: P::Options,
    /// The last epoch.
    epochs: u64,
    stewards: usize,
    lapses: u8,
    /// How often each member asks for the lock.
    entries: u8,
}

impl<P: Protocol> InstallModel<P> {
    /// Two stewards.
    pub(super) fn new(bug: Option<Bug>) -> Result<Self, LabError> {
        Ok(Self { bug, options: P::parse(&Options::default())?, epochs: 3, stewards: 2, lapses: 0, entries: 1 })
    }

    /// One steward, and members that lapse.
    pub(super) fn lapse(bug: Option<Bug>) -> Result<Self, LabError> {
        Ok(Self { epochs: 3, stewards: 1, lapses: 1, entries: 2, ..Self::new(bug)? })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Propose(Reason),
    Commit,
    /// The next steward is elected. What was proposed is inherited or lost.
    Elect {
        inherits: bool,
    },
    Apply {
        steward: usize,
    },
    Probe {
        steward: usize,
    },
    Send {
        steward: usize,
    },
    ToSteward {
        steward: usize,
        message: u8,
    },
    ToMember {
        member: usize,
        message: u8,
    },
    Started {
        steward: usize,
        member: usize,
    },
    Acquire {
        member: usize,
    },
    Release {
        member: usize,
    },
    Receive {
        member: usize,
    },
    Lapse {
        member: usize,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    NextEpoch,
    Remove(usize),
    Add(usize),
}

impl<P: Protocol> Space for InstallModel<P> {
    type State = InstallState<P>;
    type Step = Step;

    fn first(&self) -> InstallState<P> {
        let first = Arc::new(group([member(id(0), 1), member(id(1), 1)]));
        let mut installation = Installation::new(&first);
        for index in 0..MEMBERS {
            installation.on_probed(1, id(index), incarnation(1), 1, false);
        }
        let one = Member {
            incarnation: incarnation(1),
            install: Install::default(),
            view: Some(Arc::clone(&first)),
            lock: None,
            caller: Caller::Away,
            entries: self.entries,
            floor: 0,
            is_over: false,
        };
        let mut state = InstallState {
            agreed: Vec::new(),
            proposed: None,
            stewards: vec![Steward { applied: 0, group: Arc::clone(&first), installation }],
            members: [one.clone(), one],
            control: BTreeSet::new(),
            links: [VecDeque::new(), VecDeque::new()],
            lapses: self.lapses,
            fence: Fence::new(0),
        };
        // The first view runs.
        for index in 0..MEMBERS {
            state.members[index].install.on_closed(1, (), Vec::new());
            state.on_start(self, index, 1, None);
        }
        state
    }

    fn steps(&self, state: &InstallState<P>, steps: &mut Vec<Step>) {
        let leader = state.leader();
        let is_current = leader.applied == state.agreed.len();
        if state.proposed.is_none() && is_current && leader.group.epoch < self.epochs {
            let settled = matches!(leader.installation.step, Phase::Done | Phase::Void);
            let mut reasons = vec![];
            if settled {
                reasons.push(Reason::NextEpoch);
            }
            reasons.extend((0..MEMBERS).map(Reason::Remove));
            if settled {
                reasons.extend((0..MEMBERS).map(Reason::Add));
            }
            reasons.retain(|reason| state.command(*reason).is_some());
            steps.extend(reasons.into_iter().map(Step::Propose));
        }
        if state.proposed.is_some() {
            steps.push(Step::Commit);
        }
        if state.stewards.len() < self.stewards {
            steps.push(Step::Elect { inherits: false });
            if state.proposed.is_some() {
                steps.push(Step::Elect { inherits: true });
            }
        }
        for index in 0..state.stewards.len() {
            self.steward_steps(state, index, steps);
        }
        for (message, content) in (0..).zip(&state.control) {
            match content {
                Control::Report { .. } => {
                    let stewards = 0..state.stewards.len();
                    let waits = stewards.filter(|index| state.stewards[*index].installation.step == Phase::Preparing);
                    steps.extend(waits.map(|steward| Step::ToSteward { steward, message }));
                }
                _ => steps.extend((0..MEMBERS).map(|member| Step::ToMember { member, message })),
            }
        }
        for index in 0..MEMBERS {
            let member = &state.members[index];
            match member.caller {
                Caller::Away if member.entries > 0 => steps.push(Step::Acquire { member: index }),
                Caller::Inside(_) => steps.push(Step::Release { member: index }),
                _ => {}
            }
            let is_newer = |epoch: u64| member.install.open().is_none_or(|open| epoch > open);
            if state.links[1 - index]
                .front()
                .is_some_and(|(epoch, _)| !is_newer(*epoch) || *epoch < member.install.reported())
            {
                steps.push(Step::Receive { member: index });
            }
            if state.lapses > 0 && member.view.is_some() {
                steps.push(Step::Lapse { member: index });
            }
        }
    }

    fn apply(&mut self, state: &mut InstallState<P>, step: Step) -> Option<Violation> {
        match step {
            Step::Propose(reason) => state.proposed = state.command(reason),
            Step::Commit => {
                let by = state.stewards.len();
                state.agreed.extend(state.proposed.take().map(|command| (command, by)));
            }
            Step::Elect { inherits } => {
                let by = state.stewards.len() + 1;
                let inherited = state.proposed.take().filter(|_| inherits);
                state.agreed.extend(inherited.map(|command| (command, by)));
                let first = &state.stewards[0];
                let mut steward = first.clone();
                // It has applied everything before it does anything.
                (steward.applied, steward.group) = (0, Arc::new(group([member(id(0), 1), member(id(1), 1)])));
                steward.installation = Installation::new(&steward.group);
                state.stewards.push(steward);
                while state.leader().applied < state.agreed.len() {
                    state.apply_entry(by - 1);
                }
            }
            Step::Apply { steward } => state.apply_entry(steward),
            Step::Probe { steward } => {
                let term = steward as u64 + 1;
                let own = state.stewards[steward].group.term == term;
                let epoch = state.stewards[steward].group.epoch;
                for index in 0..MEMBERS {
                    let Member { incarnation, install, .. } = &state.members[index];
                    let started = install.open().unwrap_or(0);
                    state.stewards[steward].installation.on_probed(epoch, id(index), *incarnation, started, own);
                }
            }
            Step::Send { steward } => {
                let message = state.announce(steward);
                state.control.extend(message);
            }
            Step::ToSteward { steward, message } => {
                if let Some(message) = state.control.iter().nth(message.into()).cloned() {
                    state.on_report(self, steward, &message);
                }
            }
            Step::ToMember { member, message } => match state.control.iter().nth(message.into()).cloned() {
                Some(Control::Prepare { epoch, members }) => state.on_prepare(member, epoch, &members),
                Some(Control::Start { epoch, holder }) => return state.on_start(self, member, epoch, holder),
                _ => {}
            },
            Step::Started { steward, member } => {
                let (epoch, incarnation) = (state.stewards[steward].group.epoch, state.members[member].incarnation);
                state.stewards[steward].installation.on_started(epoch, id(member), incarnation);
            }
            Step::Acquire { member } => {
                state.members[member].entries -= 1;
                state.members[member].caller = Caller::Waiting;
                return state.handle(member, Input::Acquire { mode: Mode::Exclusive, draw: 0 });
            }
            Step::Release { member } => {
                state.members[member].caller = Caller::Away;
                return state.handle(member, Input::Release);
            }
            Step::Receive { member } => {
                let (epoch, message) = state.links[1 - member].pop_front()?;
                let is_current = state.members[member].install.open() == Some(epoch);
                if is_current || self.bug == Some(Bug::StaleEpoch) {
                    return state.handle(member, Input::Deliver { from: id(1 - member), message });
                }
            }
            Step::Lapse { member } => state.lapse(self, member),
        }
        None
    }

    fn must_happen(&self, _: Step) -> bool {
        true
    }

    /// A caller that waits where nothing more can happen waits forever.
    fn check_end(&self, state: &InstallState<P>) -> Option<Violation> {
        let waits = |index: &usize| state.members[*index].caller == Caller::Waiting && state.members[*index].is_open();
        let all_open =
            (0..MEMBERS).all(|index| state.members[index].install.open() == Some(state.leader().group.epoch));
        let stuck = (0..MEMBERS).find(waits).filter(|_| all_open)?;
        Some(Violation { property: "progress", text: format!("{} waits forever", stuck + 1) })
    }
}

impl<P: Protocol> InstallModel<P> {
    fn steward_steps(&self, state: &InstallState<P>, index: usize, steps: &mut Vec<Step>) {
        let steward = &state.stewards[index];
        // What another one has committed it hears of together with the fact that it leads no more.
        if state.agreed.get(steward.applied).is_some_and(|(_, by)| *by == index + 1) {
            steps.push(Step::Apply { steward: index });
        }
        match steward.installation.step {
            Phase::Probing => steps.push(Step::Probe { steward: index }),
            Phase::Starting => {
                let missing = (0..MEMBERS).filter(|member| steward.installation.missing.contains_key(&id(*member)));
                let epoch = steward.group.epoch;
                let started = missing.filter(|member| state.members[*member].install.open() == Some(epoch));
                steps.extend(started.map(|member| Step::Started { steward: index, member }));
            }
            _ => {}
        }
        if state.announce(index).is_some_and(|message| !state.control.contains(&message)) {
            steps.push(Step::Send { steward: index });
        }
    }
}

impl<P: Protocol> Described for InstallModel<P> {
    const NODES: u32 = MEMBERS as u32;

    fn describe(&self, state: &InstallState<P>, step: Step) -> String {
        let message = |index: u8| format!("{:?}", state.control.iter().nth(index.into()).expect("it is there"));
        let steward = |index: usize| format!("steward {}", index + 1);
        match step {
            Step::Propose(reason) => format!("{} proposes {reason:?}", steward(state.stewards.len() - 1)),
            Step::Commit => "the proposal is committed".to_owned(),
            Step::Elect { inherits } => {
                let with = if inherits { ", with the proposal" } else { "" };
                format!("{} is elected{with}", steward(state.stewards.len()))
            }
            Step::Apply { steward: index } => format!("{} applies what is committed", steward(index)),
            Step::Probe { steward: index } => format!("{} probes everybody", steward(index)),
            Step::Send { steward: index } => format!("{} sends {:?}", steward(index), state.announce(index)),
            Step::ToSteward { steward: index, message: one } => format!("{} receives {}", steward(index), message(one)),
            Step::ToMember { member, message: one } => format!("{} receives {}", member + 1, message(one)),
            Step::Started { steward: index, member } => {
                format!("{} hears that {} has started", steward(index), member + 1)
            }
            Step::Acquire { member } => format!("{} asks for the lock", member + 1),
            Step::Release { member } => format!("{} releases the lock", member + 1),
            Step::Receive { member } => {
                let (epoch, message) = state.links[1 - member].front().expect("it is there");
                format!("{} receives {message} of view {epoch}", member + 1)
            }
            Step::Lapse { member } => format!("the session of {} is over", member + 1),
        }
    }
}
