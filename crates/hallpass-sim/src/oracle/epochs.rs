use std::collections::BTreeMap;

use hallpass_core::NodeId;

use super::Violation;

/// Views: there is one group, members of one epoch agree on who they are, and no node goes back to an earlier epoch.
#[derive(Clone, Debug, Default)]
pub struct Epochs {
    groups: Vec<u64>,
    /// How many groups may be founded after the first, one after the other.
    others: usize,
    /// Who is in the view of each epoch.
    views: BTreeMap<u64, Vec<NodeId>>,
    /// The last epoch that each node has opened, and in which of its processes.
    opened: BTreeMap<NodeId, (u64, u64)>,
}

impl Epochs {
    /// A node opens an epoch. `process` tells the starts of a node apart.
    pub fn on_open(
        &mut self,
        (node, process): (NodeId, u64),
        group: u64,
        epoch: u64,
        members: &[NodeId],
    ) -> Option<Violation> {
        if !self.groups.contains(&group) {
            if self.groups.len() > self.others {
                let known = self.groups.last().copied().unwrap_or(0);
                return violation(format!("node {node} is in group {group:x}, others are in group {known:x}"));
            }
            self.groups.push(group);
        }
        let view = self.views.entry(epoch).or_insert_with(|| members.to_vec());
        if view != members {
            return violation(format!("node {node} opens epoch {epoch} of {members:?}, others one of {view:?}"));
        }
        if !members.contains(&node) {
            return violation(format!("node {node} opens epoch {epoch} and is not in it"));
        }
        let (before, opened_by) = self.opened.insert(node, (epoch, process)).unwrap_or_default();
        if epoch < before || (epoch == before && process != opened_by) {
            return violation(format!("node {node} opens epoch {epoch} after it was in epoch {before}"));
        }
        None
    }

    /// The group is lost, and another one is founded in its place.
    pub fn expect_another(&mut self) {
        self.others += 1;
    }

    /// The highest epoch so far.
    pub fn highest(&self) -> u64 {
        self.views.keys().next_back().copied().unwrap_or(0)
    }
}

fn violation(text: String) -> Option<Violation> {
    Some(Violation { property: "epoch", text })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (NodeId, u64) = (NodeId(1), 1);
    const TWO: (NodeId, u64) = (NodeId(2), 1);
    const BOTH: [NodeId; 2] = [NodeId(1), NodeId(2)];

    #[test]
    fn nodes_that_go_on_together_are_fine() {
        let mut oracle = Epochs::default();
        for (node, epoch) in [(ONE, 1), (TWO, 1), (ONE, 1), (ONE, 3), (TWO, 2), (TWO, 3)] {
            assert_eq!(oracle.on_open(node, 7, epoch, &BOTH), None);
        }
        assert_eq!(oracle.on_open((NodeId(1), 2), 7, 4, &BOTH), None);
        assert_eq!(oracle.highest(), 4);
    }

    #[test]
    fn another_group_is_fine_only_where_one_was_lost() {
        let mut oracle = Epochs::default();
        assert_eq!(oracle.on_open(ONE, 7, 1, &BOTH), None);
        oracle.expect_another();
        assert_eq!(oracle.on_open(ONE, 8, 70_000, &[NodeId(1)]), None);
        assert!(oracle.on_open(ONE, 9, 70_001, &[NodeId(1)]).is_some(), "one was lost, and one took its place");
    }

    #[test]
    fn two_groups_two_views_and_a_way_back_are_caught() {
        let mut oracle = Epochs::default();
        assert_eq!(oracle.on_open(ONE, 7, 3, &BOTH), None);
        let text = |node, group, epoch, members: &[NodeId]| {
            oracle.clone().on_open(node, group, epoch, members).map(|violation| violation.text).unwrap_or_default()
        };
        assert_eq!(text(TWO, 8, 4, &BOTH), "node 2 is in group 8, others are in group 7");
        assert!(text(TWO, 7, 3, &[NodeId(2)]).contains("opens epoch 3 of"));
        assert!(text(TWO, 7, 4, &[NodeId(1)]).contains("is not in it"));
        assert_eq!(text(ONE, 7, 2, &BOTH), "node 1 opens epoch 2 after it was in epoch 3");
        assert_eq!(text((NodeId(1), 2), 7, 3, &BOTH), "node 1 opens epoch 3 after it was in epoch 3");
        assert_eq!(text(TWO, 7, 3, &BOTH), "");
    }
}
