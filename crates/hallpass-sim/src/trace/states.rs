use std::collections::BTreeMap;

use hallpass_core::NodeId;
use hallpass_core::protocol::Variables;

/// What a node's variables are from one moment of a trace on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// How many events come before: the last of them is what changed the state. 0 for the state at the start.
    pub from: usize,
    /// The node.
    pub node: NodeId,
    /// All its variables; none while it is down.
    pub variables: Variables,
}

/// Collects the states beside a trace: only what differs from the state before.
#[derive(Clone, Debug, Default)]
pub struct States {
    changes: Vec<StateChange>,
    /// The position of each node's last change.
    last: BTreeMap<NodeId, usize>,
}

impl States {
    /// Notes a node's state, if it has changed.
    pub fn note(&mut self, from: usize, node: NodeId, variables: Variables) {
        if self.last.get(&node).is_some_and(|last| self.changes[*last].variables == variables) {
            return;
        }
        self.last.insert(node, self.changes.len());
        self.changes.push(StateChange { from, node, variables });
    }

    /// All changes, in the order in which they happened.
    pub fn into_changes(self) -> Vec<StateChange> {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_stays_is_noted_once() {
        let variables = |value: u8| {
            let mut variables = Variables::default();
            variables.set("x", value);
            variables
        };
        let mut states = States::default();
        for (from, node, value) in [(0, 1, 0), (0, 2, 0), (1, 1, 0), (2, 1, 1), (3, 2, 0), (4, 1, 0)] {
            states.note(from, NodeId(node), variables(value));
        }
        let seen: Vec<(usize, u32)> = states.into_changes().iter().map(|change| (change.from, change.node.0)).collect();
        assert_eq!(seen, [(0, 1), (0, 2), (2, 1), (4, 1)]);
    }
}
