//! The tree on which messages travel (sections 2 and 5). Every node computes the same one from the view, and keeps its
//! neighbours only.

use std::sync::Arc;

use crate::protocol::{OptionError, Parsed};
use crate::{NodeId, SplitMix64};

/// The shape of the tree. Unless the shape says otherwise, the root is the lowest id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// Figure 6: every inner node has this many neighbours, filled level by level. Figure 7 is 3 with 10 nodes.
    Star(usize),
    /// Figure 5: a line.
    Line,
    /// The parent of each node is an earlier one, drawn by this seed.
    Random(u64),
    /// The parent of each node; none for the root. Shared, since every node keeps it and it is as long as the group.
    Given(Arc<[(NodeId, Option<NodeId>)]>),
}

impl Tree {
    pub(super) fn read(parsed: &mut Parsed<'_>) -> Result<Self, OptionError> {
        let nodes = &parsed.options().nodes;
        let refuse = |why: String| Err(OptionError(why));
        let text = parsed.text("tree").unwrap_or("star:3");
        let seed = parsed.number("tree-seed")?;
        if seed.is_some() && text != "random" {
            return refuse("tree-seed needs tree=random".to_owned());
        }
        match text.split_once(':').unwrap_or((text, "")) {
            ("line", "") => Ok(Self::Line),
            ("random", "") => Ok(Self::Random(seed.unwrap_or(1))),
            ("figure-7", "") if nodes.len() == 10 => Ok(Self::Star(3)),
            ("figure-7", "") => refuse(format!("tree=figure-7 has 10 nodes, not {}", nodes.len())),
            ("star", valency) => match valency.parse() {
                Ok(valency @ 2..=1_000_000) => Ok(Self::Star(valency)),
                _ => refuse(format!("tree={text}: star:K needs K of at least 2")),
            },
            ("given", parents) => given(parents, nodes).map(|tree| Self::Given(tree.into())),
            _ => refuse(format!(
                "option tree={text} is not known; it takes star:K, line, figure-7, random, given:PARENTS such as given:0,1,1"
            )),
        }
    }

    /// The positions of the parents of all members, by position; none for the root.
    fn parents(&self, members: &[NodeId]) -> Vec<Option<usize>> {
        let shape = |position: usize| match self {
            Self::Star(valency) if position <= *valency => 0,
            Self::Star(valency) => 1 + (position - valency - 1) / (valency - 1),
            Self::Line => position - 1,
            Self::Random(seed) => (SplitMix64::nth(*seed, position as u64) % position as u64) as usize,
            Self::Given(_) => 0,
        };
        let Self::Given(given) = self else {
            return (0..members.len()).map(|position| (position > 0).then(|| shape(position))).collect();
        };
        // In a later view some nodes may be gone: a node without its parent is a child of the root.
        let position = |node: NodeId| members.binary_search(&node).ok();
        let root = given.iter().find(|(_, parent)| parent.is_none()).and_then(|(root, _)| position(*root)).unwrap_or(0);
        let parent = |node: NodeId| {
            given
                .iter()
                .find(|(known, _)| *known == node)
                .and_then(|(_, parent)| *parent)
                .and_then(position)
                .unwrap_or(root)
        };
        members.iter().enumerate().map(|(position, node)| (position != root).then(|| parent(*node))).collect()
    }

    /// A node's neighbours in rising order, and its HOLDER: itself or the neighbour towards the first holder, or towards the
    /// root if there is none.
    pub(super) fn place(&self, members: &[NodeId], me: NodeId, first: Option<NodeId>) -> (Vec<NodeId>, Option<NodeId>) {
        let Ok(own) = members.binary_search(&me) else { return (Vec::new(), None) };
        let parents = self.parents(members);
        let root = parents.iter().position(Option::is_none).unwrap_or(0);
        let target = first.and_then(|first| members.binary_search(&first).ok()).unwrap_or(root);
        let is_neighbour = |other: &usize| parents[own] == Some(*other) || parents[*other] == Some(own);
        let neighbours = (0..members.len()).filter(is_neighbour).map(|other| members[other]).collect();
        // Up from the holder: if the path passes this node, HOLDER is the step before; otherwise it is the parent.
        let mut step = target;
        while parents[step].is_some_and(|parent| parent != own) && step != own {
            step = parents[step].unwrap_or(root);
        }
        let holder = if step == own || parents[step] == Some(own) { Some(step) } else { parents[own] };
        (neighbours, holder.map(|holder| members[holder]))
    }
}

fn given(text: &str, nodes: &[NodeId]) -> Result<Vec<(NodeId, Option<NodeId>)>, OptionError> {
    let refuse = |why: &str| Err(OptionError(format!("tree=given:{text}: {why}")));
    let parents: Option<Vec<NodeId>> = text.split(',').map(|word| word.trim().parse().ok().map(NodeId)).collect();
    let Some(parents) = parents else {
        return refuse("not a list of node numbers such as given:0,1,1, with 0 for the root");
    };
    if parents.len() != nodes.len() {
        return refuse(&format!("{} numbers for {} nodes; give one for each", parents.len(), nodes.len()));
    }
    let is_root = |node: NodeId, parent: NodeId| parent == node || (parent == NodeId(0) && !nodes.contains(&NodeId(0)));
    let tree: Vec<(NodeId, Option<NodeId>)> =
        nodes.iter().zip(parents).map(|(node, parent)| (*node, (!is_root(*node, parent)).then_some(parent))).collect();
    if tree.iter().filter(|(_, parent)| parent.is_none()).count() != 1 {
        return refuse("exactly one node is the root, with 0 in place of its parent");
    }
    let unknown = |parent: &NodeId| !nodes.contains(parent);
    if let Some((node, parent)) = tree.iter().find_map(|(node, parent)| Some((node, parent.filter(unknown)?))) {
        return refuse(&format!("node {parent}, the parent of node {node}, does not exist"));
    }
    let parent = |node: NodeId| tree.iter().find(|(known, _)| *known == node).and_then(|(_, parent)| *parent);
    for (node, _) in &tree {
        let path = std::iter::successors(Some(*node), |node| parent(*node));
        if path.take(nodes.len() + 1).count() > nodes.len() {
            return refuse("the parents go round in a circle; a tree has none");
        }
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Options;
    use proptest::prelude::*;

    fn read(nodes: u32, words: &str) -> Result<Tree, OptionError> {
        let mut options = Options::from_words(words.split_whitespace())?;
        options.nodes = (1..=nodes).map(NodeId).collect();
        Tree::read(&mut options.read("raymond"))
    }

    fn neighbours(nodes: u32, words: &str, me: u32) -> Vec<u32> {
        let members: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let (found, _) = read(nodes, words).unwrap().place(&members, NodeId(me), None);
        found.into_iter().map(|node| node.0).collect()
    }

    #[test]
    fn shapes_are_the_papers() {
        assert_eq!(neighbours(4, "tree=line", 2), [1, 3]);
        for words in ["", "tree=star:3", "tree=figure-7"] {
            assert_eq!(neighbours(10, words, 1), [2, 3, 4], "{words}");
            assert_eq!(neighbours(10, words, 3), [1, 7, 8], "{words}");
            assert_eq!(neighbours(10, words, 10), [4], "{words}");
        }
        assert_eq!(neighbours(10, "tree=star:9", 1).len(), 9);
        assert_eq!(neighbours(5, "tree=star:2", 1), [2, 3]);
        assert_eq!(neighbours(5, "tree=star:2", 2), [1, 4]);
        assert_eq!(neighbours(6, "tree=given:0,1,1,1,4,4", 4), [1, 5, 6]);
        assert_eq!(neighbours(1, "", 1), [0u32; 0]);
    }

    #[test]
    fn what_is_not_a_tree_is_refused_with_the_reason() {
        for (nodes, words, reason) in [
            (9, "tree=figure-7", "10 nodes, not 9"),
            (3, "tree=star:1", "at least 2"),
            (3, "tree=oak", "not known"),
            (3, "tree=line tree-seed=3", "tree=random"),
            (3, "tree=given:0,1", "2 numbers for 3 nodes"),
            (3, "tree=given:0,0,1", "exactly one node is the root"),
            (3, "tree=given:0,3,2", "circle"),
            (3, "tree=given:0,1,9", "node 9, the parent of node 3, does not exist"),
            (3, "tree=given:0,1,x", "not a list"),
        ] {
            let error = read(nodes, words).expect_err(words).to_string();
            assert!(error.contains(reason), "{words}: {error}");
        }
    }

    #[test]
    fn a_given_tree_goes_on_without_the_nodes_that_are_gone() {
        let tree = read(6, "tree=given:0,1,1,1,4,4").unwrap();
        let members = [2, 3, 5, 6].map(NodeId);
        for (me, expected) in [(2, vec![3, 5, 6]), (3, vec![2]), (5, vec![2])] {
            let (found, _) = tree.place(&members, NodeId(me), None);
            assert_eq!(found, expected.into_iter().map(NodeId).collect::<Vec<_>>());
        }
    }

    proptest! {
        /// Whatever the shape: N - 1 edges, known at both ends, and every node's HOLDER leads to the one holder.
        #[test]
        fn every_path_leads_to_the_holder(nodes in 1u32..60, valency in 2u32..7, seed in any::<u64>(), first in 1u32..60) {
            let members: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
            let first = NodeId(1 + first % nodes);
            for words in ["tree=line".to_owned(), format!("tree=star:{valency}"), format!("tree=random tree-seed={seed}")] {
                let tree = read(nodes, &words).unwrap();
                let placed: Vec<_> = members.iter().map(|me| tree.place(&members, *me, Some(first))).collect();
                let ends: usize = placed.iter().map(|(neighbours, _)| neighbours.len()).sum();
                prop_assert_eq!(ends, 2 * (nodes as usize - 1));
                for me in &members {
                    let mut node = *me;
                    for _ in 0..nodes {
                        let (neighbours, holder) = &placed[node.0 as usize - 1];
                        let next = holder.unwrap();
                        prop_assert!(next == node || neighbours.contains(&next));
                        node = next;
                    }
                    prop_assert_eq!(node, first);
                }
            }
        }
    }
}
