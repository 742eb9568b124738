//! From every state that can be reached, every waiting caller is granted its lock, if from then on nothing more goes wrong than is
//! said: two members never reach each other again, or a node that joins goes on to come and go.
//!
//! Three nodes use one lock, and the first one is the steward. That consensus decides, and that control messages may be lost
//! or late, is what other models are about: here a proposal is decided at once, and what is said to a node that lives is
//! answered. In each state the rest of the story is played in a fixed order, every node doing what it can, for as long as the
//! longest pause of the steward lasts.

mod play;
mod state;

use std::collections::HashSet;
use std::sync::Arc;

use hallpass_check::{Space, fingerprint};
use hallpass_core::protocol::Options;
use hallpass_core::protocol::carvalho_roucairol::CarvalhoRoucairol;
use hallpass_core::{Protocol, Ticks};
use hallpass_node::model::{Group, Step as Phase, Steward};
use hallpass_sim::oracle::Violation;

use self::play::Fate;
use self::state::{Caller, Node, ProgressState, id, member};
use super::{Described, group, incarnation};
use crate::LabError;

const NODES: usize = 3;
const STEWARD: usize = 0;
/// The node at the far end of the link that breaks, or the one that joins.
const LAST: usize = 2;
const TTL: Ticks = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// Members that do not reach each other both stay.
    KeepBoth,
    /// A node that keeps failing is admitted again at once.
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

impl Space for ProgressModel {
    type State = ProgressState;
    type Step = Step;

    fn first(&self) -> ProgressState {
        let mut nodes = [1; NODES].map(|number| Node::new(number, 1));
        let members = (0..self.members).map(|node| member(node, incarnation(1)));
        let first = Arc::new(Group { ttl: TTL, ..group(members) });
        let mut steward = Steward::new(&first, 0, hallpass_node::Honest);
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
        let mut state = ProgressState {
            now: 0,
            group: first,
            steward,
            nodes,
            links,
            cut: None,
            cuts: self.cuts,
            lives: self.lives,
        };
        for index in 0..self.members {
            state.nodes[index].install.on_start(1, 0, 1, Vec::new());
            state.open(self, index, 1, &[]);
        }
        state
    }

    fn steps(&self, state: &ProgressState, steps: &mut Vec<Step>) {
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

    fn apply(&mut self, state: &mut ProgressState, step: Step) -> Option<Violation> {
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
        Some(Violation { property: "progress", text: format!("{}, {} waits forever", fate.text(), stuck + 1) })
    }

    fn must_happen(&self, _: Step) -> bool {
        true
    }

    fn check_end(&self, _: &ProgressState) -> Option<Violation> {
        None
    }
}

impl Described for ProgressModel {
    const NODES: u32 = NODES as u32;

    fn describe(&self, state: &ProgressState, step: Step) -> String {
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
