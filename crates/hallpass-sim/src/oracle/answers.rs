use std::collections::BTreeMap;

use hallpass_core::NodeId;

use super::Violation;

/// A waiting caller is answered exactly once, and not at all after it has cancelled.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Every caller that ever waited.
    callers: BTreeMap<u64, State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting(NodeId),
    Answered,
    Cancelled,
}

impl Answers {
    /// A caller starts waiting. Each has its own number.
    pub fn on_wait(&mut self, node: NodeId, caller: u64) -> Option<Violation> {
        let before = self.callers.insert(caller, State::Waiting(node));
        before.and_then(|_| violation(node, caller, "was told to wait twice"))
    }

    /// A waiting caller is answered: it has the lock, or its request failed.
    pub fn on_answer(&mut self, node: NodeId, caller: u64) -> Option<Violation> {
        match self.callers.insert(caller, State::Answered) {
            Some(State::Waiting(_)) => None,
            Some(State::Answered) => violation(node, caller, "was answered twice"),
            Some(State::Cancelled) => violation(node, caller, "was answered after it had given up"),
            None => violation(node, caller, "was answered and had not asked"),
        }
    }

    /// A caller cancels. `known`: the node still knew it.
    pub fn on_cancel(&mut self, node: NodeId, caller: u64, known: bool) -> Option<Violation> {
        self.callers.insert(caller, State::Cancelled);
        if known { None } else { violation(node, caller, "waited and was not known when it gave up") }
    }

    /// The nodes with callers that have not been answered.
    pub fn waiting(&self) -> Vec<NodeId> {
        let waiting = |state: &State| if let State::Waiting(node) = state { Some(*node) } else { None };
        let mut nodes: Vec<NodeId> = self.callers.values().filter_map(waiting).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

fn violation(node: NodeId, caller: u64, what: &str) -> Option<Violation> {
    Some(Violation { property: "answers", text: format!("caller {caller:x} on node {node} {what}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);

    #[test]
    fn a_second_answer_and_one_to_an_unknown_caller_are_caught() {
        let mut oracle = Answers::default();
        assert_eq!(oracle.on_wait(NODE, 7), None);
        assert_eq!(oracle.on_answer(NODE, 7), None);
        let twice = oracle.on_answer(NODE, 7).unwrap();
        assert_eq!(twice.to_string(), "answers: caller 7 on node 1 was answered twice");
        assert!(oracle.on_answer(NODE, 8).is_some());
        assert!(oracle.on_wait(NODE, 7).is_some());
    }

    #[test]
    fn an_answer_after_a_cancellation_is_caught() {
        let mut oracle = Answers::default();
        assert_eq!(oracle.on_wait(NODE, 7), None);
        assert_eq!(oracle.on_cancel(NODE, 7, true), None);
        assert!(oracle.on_answer(NODE, 7).is_some());
        assert_eq!(oracle.on_wait(NODE, 8), None);
        assert!(oracle.on_cancel(NODE, 8, false).is_some());
    }

    #[test]
    fn nodes_with_unanswered_callers_are_listed() {
        let mut oracle = Answers::default();
        for (node, caller) in [(3, 1), (2, 2), (3, 3), (1, 4)] {
            oracle.on_wait(NodeId(node), caller);
        }
        oracle.on_answer(NodeId(1), 4);
        assert_eq!(oracle.waiting(), [NodeId(2), NodeId(3)]);
    }
}
