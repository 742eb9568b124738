//! The tree on which messages travel (sections 2 and 5). It is computed from the view, the same on every node; an
//! instance keeps its neighbours only.

use std::sync::Arc;

use crate::NodeId;
use crate::protocol::{OptionError, Parsed};

/// The shape of the tree. Where nothing else is said, the root is the lowest id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// Figure 6: every node that is no leaf has this many neighbours, filled level by level. Figure 7 is 3 with 10 nodes.
    Star(usize),
    /// Figure 5: one after the other.
    Line,
    /// Each node hangs under an earlier one, drawn by this seed.
    Random(u64),
    /// The parent of each node; none for the root. Shared: every node keeps its rules, and this is as long as the group.
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
        let shape = |at: usize| match self {
            Self::Star(valency) if at <= *valency => 0,
            Self::Star(valency) => 1 + (at - valency - 1) / (valency - 1),
            Self::Line => at - 1,
            Self::Random(seed) => (scramble(*seed, at as u64) % at as u64) as usize,
            Self::Given(_) => 0,
        };
        let Self::Given(given) = self else {
            return (0..members.len()).map(|at| (at > 0).then(|| shape(at))).collect();
        };
        // In a later view some may be gone: whoever lost its parent hangs under the root.
        let at = |node: NodeId| members.binary_search(&node).ok();
        let root = given.iter().find(|(_, parent)| parent.is_none()).and_then(|(root, _)| at(*root)).unwrap_or(0);
        let parent = |node: NodeId| {
            given.iter().find(|(known, _)| *known == node).and_then(|(_, parent)| *parent).and_then(at).unwrap_or(root)
        };
        members.iter().enumerate().map(|(at, node)| (at != root).then(|| parent(*node))).collect()
    }

    /// A node's neighbours in rising order, and where the first holder is as it sees it: itself or a neighbour. Without a
    /// holder that is the root.
    pub(super) fn place(&self, members: &[NodeId], me: NodeId, first: Option<NodeId>) -> (Vec<NodeId>, Option<NodeId>) {
        let Ok(at) = members.binary_search(&me) else { return (Vec::new(), None) };
        let parents = self.parents(members);
        let root = parents.iter().position(Option::is_none).unwrap_or(0);
        let target = first.and_then(|first| members.binary_search(&first).ok()).unwrap_or(root);
        let is_neighbour = |other: &usize| parents[at] == Some(*other) || parents[*other] == Some(at);
        let neighbours = (0..members.len()).filter(is_neighbour).map(|other| members[other]).collect();
        // Up from the holder: if the way comes by here, the step before was the one below; else it is above.
        let mut way = target;
        while parents[way].is_some_and(|up| up != at) && way != at {
            way = parents[way].unwrap_or(root);
        }
        let holder = if way == at || parents[way] == Some(at) { Some(way) } else { parents[at] };
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
    if let Some((node, _)) = tree.iter().find(|(_, parent)| parent.is_some_and(|parent| !nodes.contains(&parent))) {
        return refuse(&format!("the parent of node {node} is no node"));
    }
    let parent = |node: NodeId| tree.iter().find(|(known, _)| *known == node).and_then(|(_, parent)| *parent);
    for (node, _) in &tree {
        let way = std::iter::successors(Some(*node), |node| parent(*node));
        if way.take(nodes.len() + 1).count() > nodes.len() {
            return refuse("the parents go round in a circle; a tree has none");
        }
    }
    Ok(tree)
}

/// SplitMix64's output function: the same tree for a seed, for ever.
fn scramble(seed: u64, at: u64) -> u64 {
    let mut word = seed.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
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
    fn what_is_no_tree_is_refused_with_the_reason() {
        for (nodes, words, reason) in [
            (9, "tree=figure-7", "10 nodes, not 9"),
            (3, "tree=star:1", "at least 2"),
            (3, "tree=oak", "not known"),
            (3, "tree=line tree-seed=3", "tree=random"),
            (3, "tree=given:0,1", "2 numbers for 3 nodes"),
            (3, "tree=given:0,0,1", "exactly one node is the root"),
            (3, "tree=given:0,3,2", "circle"),
            (3, "tree=given:0,1,9", "no node"),
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
        fn every_way_leads_to_the_holder(nodes in 1u32..60, valency in 2u32..7, seed in any::<u64>(), first in 1u32..60) {
            let members: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
            let first = NodeId(1 + first % nodes);
            for words in ["tree=line".to_owned(), format!("tree=star:{valency}"), format!("tree=random tree-seed={seed}")] {
                let tree = read(nodes, &words).unwrap();
                let placed: Vec<_> = members.iter().map(|me| tree.place(&members, *me, Some(first))).collect();
                let ends: usize = placed.iter().map(|(neighbours, _)| neighbours.len()).sum();
                prop_assert_eq!(ends, 2 * (nodes as usize - 1));
                for me in &members {
                    let mut at = *me;
                    for _ in 0..nodes {
                        let (neighbours, holder) = &placed[at.0 as usize - 1];
                        let next = holder.unwrap();
                        prop_assert!(next == at || neighbours.contains(&next));
                        at = next;
                    }
                    prop_assert_eq!(at, first);
                }
            }
        }
    }
}
