//! Something that every node on the list must answer: the step that joining and leaving have in common.

use super::message::{ANY_INCARNATION, Body};
use super::rules::NumberSource;
use super::{Classic, ClassicTimer, Membership, Out};
use crate::NodeId;
use crate::protocol::Effect;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Task {
    pub(super) goal: Goal,
    /// Who has not answered.
    pub(super) missing: Vec<NodeId>,
    /// The highest number that an answer carried.
    highest: u64,
    asked_again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Goal {
    /// A sponsor inserts this incarnation of a node.
    Sponsor { node: NodeId, incarnation: u32 },
    /// This node leaves.
    Leave,
    /// A newcomer asks for the highest number.
    Ask,
    /// A newcomer inserts itself by broadcast.
    Include,
}

impl Goal {
    /// What every node must answer.
    fn question(self) -> Body {
        match self {
            Self::Sponsor { node, incarnation } => Body::Add { node, incarnation },
            Self::Leave => Body::Leave,
            Self::Ask => Body::AskHighest,
            Self::Include => Body::IncludeMe,
        }
    }
}

impl Classic {
    pub(super) fn begin(&mut self, goal: Goal, out: &mut Out) {
        if goal == Goal::Leave {
            self.membership = Membership::Leaving;
        }
        let newcomer = if let Goal::Sponsor { node, .. } = goal { Some(node) } else { None };
        let missing: Vec<NodeId> = self.listed().filter(|node| Some(*node) != newcomer).collect();
        if goal == Goal::Include {
            out.push(Effect::Broadcast { message: self.message(ANY_INCARNATION, goal.question()) });
        } else {
            missing.iter().for_each(|node| self.send(*node, goal.question(), out));
        }
        self.task = Some(Task { goal, missing, highest: self.base.highest, asked_again: false });
        self.set(ClassicTimer::Task, self.round_trip(), out);
        self.finish_if_answered(out);
    }

    /// An answer counts for the task it names only: one to an earlier task may come late, or twice.
    pub(super) fn on_answer(&mut self, from: NodeId, goal: Goal, highest: u64, out: &mut Out) {
        if let Some(task) = self.task.as_mut().filter(|task| task.goal == goal) {
            task.missing.retain(|node| *node != from);
            task.highest = task.highest.max(highest);
            self.finish_if_answered(out);
        }
    }

    /// Who is silent is asked once more, and then has failed.
    pub(super) fn on_task_timeout(&mut self, out: &mut Out) {
        let Some(task) = &mut self.task else { return };
        let (goal, missing) = (task.goal, task.missing.clone());
        if task.asked_again {
            return missing.iter().for_each(|node| self.declare_failed(*node, out));
        }
        task.asked_again = true;
        missing.iter().for_each(|node| self.send(*node, goal.question(), out));
        self.set(ClassicTimer::Task, self.round_trip(), out);
    }

    pub(super) fn finish_if_answered(&mut self, out: &mut Out) {
        let Some(task) = self.task.take_if(|task| task.missing.is_empty()) else { return };
        out.push(Effect::CancelTimer(ClassicTimer::Task));
        match task.goal {
            Goal::Sponsor { node, incarnation } => {
                let highest = match self.rules.0.number_source {
                    NumberSource::Sponsor => task.highest,
                    NumberSource::Quiet => self.base.highest,
                    _ => 0,
                };
                self.send_to(node, incarnation, Body::Welcome { names: self.list(), highest }, out);
                self.on_release(out);
            }
            Goal::Leave => {
                self.on_release(out);
                out.push(Effect::Left);
            }
            Goal::Ask => self.become_member(task.highest, out),
            Goal::Include if self.rules.0.number_source == NumberSource::Sponsor => {
                self.become_member(task.highest, out);
            }
            Goal::Include => self.start_learning(task.highest, out),
        }
    }
}
