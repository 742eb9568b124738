//! Founding a group of three while any of their disks are lost at any moment, each at most once: never two groups side by side,
//! and no group twice.
//!
//! With one disk lost the group goes on, and the new node joins it. With two lost it cannot: those that come new find the
//! third one, which is in a group, and wait to join that, until somebody calls `hallpass recover`. Only when nobody is left who
//! was in the first group, a second one is founded.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_check::Space;
use hallpass_core::NodeId;
use hallpass_node::model::{Founder, Founders, found};
use hallpass_sim::oracle::Violation;

use super::{Described, incarnation};

const NODES: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// A node founds a group as soon as it knows enough others, whatever those know.
    NoAgreement,
    /// A node that has lost its disk comes back under its old id.
    KeepId,
}

pub(super) const BUGS: &[(&str, Bug)] = &[("no-agreement", Bug::NoAgreement), ("keep-id", Bug::KeepId)];

#[derive(Clone, Copy, Debug)]
pub(super) struct FoundingModel {
    pub(super) bug: Option<Bug>,
    losses: u8,
}

impl FoundingModel {
    pub(super) fn new(bug: Option<Bug>, losses: u8) -> Self {
        Self { bug, losses }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct FoundingState {
    nodes: [Node; NODES],
    /// What each node said last, those that are gone included: it may arrive at any time.
    network: BTreeMap<NodeId, Vec<Founder>>,
    /// How many disks may still be lost.
    losses: u8,
    /// Which node has founded which group.
    founded: BTreeSet<(u64, NodeId)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node {
    me: Founder,
    founders: Founders,
    /// The id of the group that it is in.
    group: Option<u64>,
}

impl Node {
    /// A node's connections follow each other: once its successor was heard, it is not heard again.
    fn hears(&self, from: NodeId) -> bool {
        let is_dead = || self.founders.known().iter().any(|one| is_successor(one.id, from));
        self.group.is_none() && from != self.me.id && !is_dead()
    }

    /// From now on it does not matter who else there is.
    fn enter(&mut self, group: Option<u64>) {
        (self.group, self.founders) = (group, Founders::new(self.me.clone(), NODES));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Hear {
        node: usize,
        message: u8,
    },
    /// A node hears of the group that another one is in.
    Contact {
        node: usize,
        from: usize,
    },
    LoseDisk {
        node: usize,
    },
}

fn node(place: usize, id: u32) -> Node {
    let me = Founder {
        address: place.to_string(),
        id: NodeId(id),
        incarnation: incarnation(1),
        name: String::new(),
        durable: true,
        floor: 0,
        settings: 0,
    };
    Node { founders: Founders::new(me.clone(), NODES), me, group: None }
}

/// A place's next node has an id that is higher by the number of places.
fn is_successor(id: NodeId, of: NodeId) -> bool {
    id.0 > of.0 && (id.0 - of.0).is_multiple_of(NODES as u32)
}

impl Space for FoundingModel {
    type State = FoundingState;
    type Step = Step;

    fn first(&self) -> FoundingState {
        // All have met; that they meet in every order adds nothing but states.
        let mut nodes = [node(0, 1), node(1, 2), node(2, 3)];
        let alone = nodes.clone().map(|node| node.me);
        for node in &mut nodes {
            for other in alone.iter().filter(|other| other.id != node.me.id) {
                node.founders.on_said(other.id, vec![other.clone()]);
            }
        }
        let network = nodes.iter().map(|node| (node.me.id, node.founders.known())).collect();
        FoundingState { nodes, network, losses: self.losses, founded: BTreeSet::new() }
    }

    fn steps(&self, state: &FoundingState, steps: &mut Vec<Step>) {
        for (index, node) in state.nodes.iter().enumerate() {
            if node.group.is_none() {
                let heard = (0..).zip(&state.network).filter(|(_, (from, _))| node.hears(**from));
                steps.extend(heard.map(|(message, _)| Step::Hear { node: index, message }));
                let others = (0..NODES).filter(|from| state.nodes[*from].group.is_some());
                steps.extend(others.map(|from| Step::Contact { node: index, from }));
            }
            // Places are alike: the first disk that is lost is that of the first place, and so on.
            if state.losses > 0 && index == usize::from(self.losses - state.losses) {
                steps.push(Step::LoseDisk { node: index });
            }
        }
    }

    fn apply(&mut self, state: &mut FoundingState, step: Step) -> Option<Violation> {
        match step {
            Step::Hear { node, message } => {
                let (from, list) = state.network.iter().nth(message.into())?;
                let (from, list) = (*from, list.clone());
                let node = &mut state.nodes[node];
                node.founders.on_said(from, list);
                let known = node.founders.known();
                // It says so at once.
                state.network.insert(node.me.id, known.clone());
                let enough = self.bug == Some(Bug::NoAgreement) && known.len() == NODES;
                if let Some(founders) = node.founders.agreed().or_else(|| enough.then_some(known)) {
                    let group = found(&founders, &[], 1, 0).id;
                    node.enter(Some(group));
                    if !state.founded.insert((group, node.me.id)) {
                        let text = format!("{} founds a group again in which it has voted before", node.me.id);
                        return Some(Violation { property: "one-history", text });
                    }
                }
            }
            Step::Contact { node, from } => {
                let group = state.nodes[from].group;
                state.nodes[node].enter(group);
            }
            Step::LoseDisk { node: index } => {
                state.losses -= 1;
                let old = state.nodes[index].me.id.0;
                let new = if self.bug == Some(Bug::KeepId) { old } else { old + NODES as u32 };
                state.nodes[index] = node(index, new);
                let Node { me, founders, .. } = &state.nodes[index];
                state.network.insert(me.id, founders.known());
            }
        }
        // What nobody can hear any more is forgotten.
        let FoundingState { nodes, network, .. } = state;
        network.retain(|from, _| nodes.iter().any(|node| node.me.id == *from || node.hears(*from)));
        let groups: BTreeSet<u64> = state.nodes.iter().filter_map(|node| node.group).collect();
        (groups.len() > 1).then(|| Violation { property: "one-group", text: "nodes are in two groups".to_owned() })
    }

    fn must_happen(&self, _: Step) -> bool {
        true
    }

    fn check_end(&self, state: &FoundingState) -> Option<Violation> {
        let alone = state.nodes.iter().position(|node| node.group.is_none())?;
        Some(Violation { property: "progress", text: format!("the node in place {alone} never gets into a group") })
    }
}

impl Described for FoundingModel {
    const NODES: u32 = NODES as u32;

    fn describe(&self, state: &FoundingState, step: Step) -> String {
        let list = |list: &[Founder]| -> Vec<u32> { list.iter().map(|founder| founder.id.0).collect() };
        let id = |node: usize| state.nodes[node].me.id;
        match step {
            Step::Hear { node, message } => {
                let (from, known) = state.network.iter().nth(message.into()).expect("it is there");
                format!("{} hears that {from} knows {:?}", id(node), list(known))
            }
            Step::Contact { node, from } => format!("{} hears of the group of {}", id(node), id(from)),
            Step::LoseDisk { node } => format!("{} loses its disk", id(node)),
        }
    }
}
