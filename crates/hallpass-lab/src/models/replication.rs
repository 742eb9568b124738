//! Consensus itself, as the other models take it for granted: what was applied anywhere is applied everywhere, in one order,
//! whichever voters are started again. It shows that a vote and an entry count only once they are on the disk.

use std::sync::Arc;

use hallpass_check::Space;
use hallpass_core::NodeId;
use hallpass_node::model::{Change, Command, Group};
use hallpass_sim::oracle::Violation;

use super::consensus::{Consensus, Faults, LogEntry, VOTERS};
use super::{Described, group, member};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// A voter that is started again has forgotten whom it has voted for.
    ForgetVote,
    /// A voter acknowledges what is not on its disk yet.
    SendBeforeSync,
}

pub(super) const BUGS: &[(&str, Bug)] = &[("forget-vote", Bug::ForgetVote), ("send-before-sync", Bug::SendBeforeSync)];

#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicationModel {
    pub(super) bug: Option<Bug>,
    terms: u64,
    restarts: u8,
    proposals: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ReplicationState {
    consensus: Consensus,
    first: Arc<Group>,
    /// All that was applied anywhere.
    applied: Vec<LogEntry>,
    restarts: u8,
    proposals: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Elect { candidate: usize, voter: usize },
    Propose { leader: usize },
    Replicate { leader: usize, voter: usize },
    Sync { voter: usize },
    Acknowledge { leader: usize, voter: usize },
    Commit { leader: usize },
    Apply { voter: usize },
    Restart { voter: usize },
}

impl ReplicationModel {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        Self { bug, terms: 2, restarts: 1, proposals: 1 }
    }

    fn faults(&self) -> Faults {
        Faults {
            forgets_vote: self.bug == Some(Bug::ForgetVote),
            sends_before_sync: self.bug == Some(Bug::SendBeforeSync),
            any_term: false,
        }
    }
}

impl Space for ReplicationModel {
    type State = ReplicationState;
    type Step = Step;

    fn first(&self) -> ReplicationState {
        let first = group([member(NodeId(1), 1)]);
        ReplicationState {
            consensus: Consensus::without_leader(first.clone()),
            first: Arc::new(first),
            applied: Vec::new(),
            restarts: self.restarts,
            proposals: self.proposals,
        }
    }

    fn steps(&self, state: &ReplicationState, steps: &mut Vec<Step>) {
        for (node, replica) in state.consensus.replicas.iter().enumerate() {
            let others = (0..VOTERS).filter(|other| *other != node);
            // Two candidates are enough for every quarrel.
            if node < 2 && replica.term < self.terms {
                let voters = others.clone().filter(|voter| state.consensus.can_elect(node, *voter));
                steps.extend(voters.map(|voter| Step::Elect { candidate: node, voter }));
            }
            if state.consensus.can_apply(node) {
                steps.push(Step::Apply { voter: node });
            }
            if state.consensus.clone().sync(node) {
                steps.push(Step::Sync { voter: node });
            }
            if state.restarts > 0 {
                steps.push(Step::Restart { voter: node });
            }
            if replica.lead.is_none() {
                continue;
            }
            if state.proposals > 0 {
                steps.push(Step::Propose { leader: node });
            }
            if state.consensus.clone().commit(node) {
                steps.push(Step::Commit { leader: node });
            }
            for voter in others {
                if state.consensus.clone().replicate(node, voter) {
                    steps.push(Step::Replicate { leader: node, voter });
                }
                if state.consensus.clone().acknowledge(voter, node, self.faults()) {
                    steps.push(Step::Acknowledge { leader: node, voter });
                }
            }
        }
    }

    fn apply(&mut self, state: &mut ReplicationState, step: Step) -> Option<Violation> {
        let faults = self.faults();
        match step {
            Step::Elect { candidate, voter } => {
                state.consensus.elect(candidate, voter);
                let term = state.consensus.replicas[candidate].term;
                let leaders = state.consensus.replicas.iter().filter(|one| one.lead.is_some() && one.term == term);
                if leaders.count() > 1 {
                    return Some(Violation { property: "one-leader", text: format!("two voters lead in term {term}") });
                }
            }
            Step::Propose { leader } => {
                state.proposals -= 1;
                let replica = &state.consensus.replicas[leader];
                let change = Change::Add(member(NodeId(2), 1));
                let command = Command { term: replica.term, base: replica.group.epoch, changes: vec![change] };
                state.consensus.append(leader, Some(command));
            }
            Step::Replicate { leader, voter } => drop(state.consensus.replicate(leader, voter)),
            Step::Sync { voter } => drop(state.consensus.sync(voter)),
            Step::Acknowledge { leader, voter } => drop(state.consensus.acknowledge(voter, leader, faults)),
            Step::Commit { leader } => drop(state.consensus.commit(leader)),
            Step::Apply { voter } => {
                state.consensus.apply(voter, faults);
                let applied = state.consensus.applied(voter);
                if applied.len() > state.applied.len() {
                    state.applied.extend(applied.last().cloned());
                }
                let place = applied.len() - 1;
                if state.applied[place] != applied[place] {
                    let text =
                        format!("{} applies another entry in place {} than was applied before", voter + 1, place + 1);
                    return Some(Violation { property: "agreement", text });
                }
            }
            Step::Restart { voter } => {
                state.restarts -= 1;
                state.consensus.restart(voter, &state.first, faults);
            }
        }
        None
    }

    fn must_happen(&self, _: Step) -> bool {
        true
    }

    fn check_end(&self, _: &ReplicationState) -> Option<Violation> {
        None
    }
}

impl Described for ReplicationModel {
    const NODES: u32 = VOTERS as u32;

    fn describe(&self, state: &ReplicationState, step: Step) -> String {
        match step {
            Step::Elect { candidate, voter } => {
                let term = state.consensus.replicas[candidate].term + 1;
                format!("{} is elected in term {term} with the vote of {}", candidate + 1, voter + 1)
            }
            Step::Propose { leader } => format!("{} proposes a member", leader + 1),
            Step::Replicate { leader, voter } => format!("{} receives the log of {}", voter + 1, leader + 1),
            Step::Sync { voter } => format!("the disk of {} has all it was told", voter + 1),
            Step::Acknowledge { leader, voter } => format!("{} acknowledges to {}", voter + 1, leader + 1),
            Step::Commit { leader } => format!("{} commits", leader + 1),
            Step::Apply { voter } => format!("{} applies an entry", voter + 1),
            Step::Restart { voter } => format!("{} is started again", voter + 1),
        }
    }
}
