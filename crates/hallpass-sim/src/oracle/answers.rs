use std::collections::BTreeMap;

use hallpass_core::NodeId;

use super::Violation;

/// Who waits is answered once, and who has given up is not answered at all.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Every caller who was told to wait.
    callers: BTreeMap<u64, Waiting>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Still(NodeId),
    Answered,
    GaveUp,
}

impl Answers {
    /// A caller is told to wait. Each has a name of its own.
    pub fn on_wait(&mut self, node: NodeId, caller: u64) -> Option<Violation> {
        let before = self.callers.insert(caller, Waiting::Still(node));
        before.and_then(|_| violation(node, caller, "was told to wait twice"))
    }

    /// A caller is told that it is inside, or that it has tried in vain.
    pub fn on_answer(&mut self, node: NodeId, caller: u64) -> Option<Violation> {
        match self.callers.insert(caller, Waiting::Answered) {
            Some(Waiting::Still(_)) => None,
            Some(Waiting::Answered) => violation(node, caller, "was answered twice"),
            Some(Waiting::GaveUp) => violation(node, caller, "was answered after it had given up"),
            None => violation(node, caller, "was answered and had not asked"),
        }
    }

    /// A caller gives up; the node says whether it knew of it.
    pub fn on_cancel(&mut self, node: NodeId, caller: u64, known: bool) -> Option<Violation> {
        self.callers.insert(caller, Waiting::GaveUp);
        if known { None } else { violation(node, caller, "waited and was not known when it gave up") }
    }

    /// The nodes of those who have not been answered, each node once.
    pub fn waiting(&self) -> Vec<NodeId> {
        let still = |waiting: &Waiting| if let Waiting::Still(node) = waiting { Some(*node) } else { None };
        let mut nodes: Vec<NodeId> = self.callers.values().filter_map(still).collect();
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
    fn two_answers_and_one_to_nobody_are_caught() {
        let mut oracle = Answers::default();
        assert_eq!(oracle.on_wait(NODE, 7), None);
        assert_eq!(oracle.on_answer(NODE, 7), None);
        let twice = oracle.on_answer(NODE, 7).unwrap();
        assert_eq!(twice.to_string(), "answers: caller 7 on node 1 was answered twice");
        assert!(oracle.on_answer(NODE, 8).is_some());
        assert!(oracle.on_wait(NODE, 7).is_some());
    }

    #[test]
    fn an_answer_to_who_has_given_up_is_caught() {
        let mut oracle = Answers::default();
        assert_eq!(oracle.on_wait(NODE, 7), None);
        assert_eq!(oracle.on_cancel(NODE, 7, true), None);
        assert!(oracle.on_answer(NODE, 7).is_some());
        assert_eq!(oracle.on_wait(NODE, 8), None);
        assert!(oracle.on_cancel(NODE, 8, false).is_some());
    }

    #[test]
    fn who_is_never_answered_is_named() {
        let mut oracle = Answers::default();
        for (node, caller) in [(3, 1), (2, 2), (3, 3), (1, 4)] {
            oracle.on_wait(NodeId(node), caller);
        }
        oracle.on_answer(NodeId(1), 4);
        assert_eq!(oracle.waiting(), [NodeId(2), NodeId(3)]);
    }
}
