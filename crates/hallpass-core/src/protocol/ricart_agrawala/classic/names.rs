//! `NAMES` (7.1): the list of participants.
//!
//! Adding and removing commute: the newest incarnation of a node counts, and an incarnation that is gone stays gone. So
//! nodes that learn of changes in different orders end up with the same list.

use super::message::{ANY_INCARNATION, Body, ClassicMessage};
use super::{Classic, Out};
use crate::NodeId;
use crate::protocol::{Effect, Effects};

/// A participant, by its newest known incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    pub(super) node: NodeId,
    pub(super) incarnation: u32,
    pub(super) gone: bool,
}

impl Classic {
    pub(super) fn add(&mut self, node: NodeId, incarnation: u32, out: &mut Out) {
        if node == self.me {
            return;
        }
        let name = Name { node, incarnation, gone: false };
        match self.names.binary_search_by_key(&node, |name| name.node) {
            Ok(position) if self.names[position].incarnation >= incarnation => return,
            Ok(position) => {
                self.names[position] = name;
                self.stop_waiting_for(node, out); // Its former incarnation is over, and will not reply.
            }
            Err(position) => self.names.insert(position, name),
        }
        self.base.add_peer(node);
    }

    pub(super) fn remove(&mut self, node: NodeId, incarnation: u32, out: &mut Out) {
        let name = Name { node, incarnation, gone: true };
        match self.names.binary_search_by_key(&node, |name| name.node) {
            Ok(position) if self.names[position].incarnation > incarnation => return,
            Ok(position) => self.names[position] = name,
            Err(position) => self.names.insert(position, name),
        }
        self.stop_waiting_for(node, out);
    }

    fn stop_waiting_for(&mut self, node: NodeId, out: &mut Out) {
        let mut effects = Effects::new();
        self.base.remove_peer(node, &mut effects);
        self.carry_out(effects, out);
        if let Some(task) = &mut self.task {
            task.missing.retain(|missing| *missing != node);
            self.finish_if_answered(out);
        }
    }

    pub(super) fn name(&self, node: NodeId) -> Option<Name> {
        self.names.binary_search_by_key(&node, |name| name.node).ok().map(|position| self.names[position])
    }

    /// The participants other than this node.
    pub(super) fn listed(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.names.iter().filter(|name| !name.gone).map(|name| name.node)
    }

    /// The same with their incarnations, for a newcomer.
    pub(super) fn list(&self) -> Box<[(NodeId, u32)]> {
        self.names.iter().filter(|name| !name.gone).map(|name| (name.node, name.incarnation)).collect()
    }

    pub(super) fn send(&self, to: NodeId, body: Body, out: &mut Out) {
        let known = self.name(to).filter(|name| !name.gone);
        self.send_to(to, known.map_or(ANY_INCARNATION, |name| name.incarnation), body, out);
    }

    pub(super) fn send_all(&self, body: &Body, out: &mut Out) {
        self.listed().for_each(|node| self.send(node, body.clone(), out));
    }

    /// Sends to one incarnation of a node, which need not be on the list.
    pub(super) fn send_to(&self, to: NodeId, incarnation: u32, body: Body, out: &mut Out) {
        out.push(Effect::Send { to, message: self.message(incarnation, body) });
    }

    pub(super) fn message(&self, to: u32, body: Body) -> ClassicMessage {
        ClassicMessage { from: self.incarnation, to, body }
    }
}
