//! With which keys nodes are connected, and whose key the group cannot do without.

use hallpass_core::NodeId;

use super::Views;
use crate::faults::Conduct;
use crate::membership::steward::Order;
use crate::output::Request;

impl<F: Conduct> Views<F> {
    /// The keys of all connections with a node, or this node's own, each by the name under which it would be banned.
    pub(crate) fn set_keys(&mut self, node: NodeId, keys: Vec<String>) {
        match keys.is_empty() {
            true => drop(self.base.keys.remove(&node)),
            false => drop(self.base.keys.insert(node, keys)),
        }
    }

    /// Why a key must not be banned: the voters that are here with other keys would be no majority. The voter that is shut out would keep
    /// the group then, or nobody would have it.
    pub(super) fn why_needed(&self, key: &str) -> Option<String> {
        let is_banned = |name: &str| {
            self.base.bans.names.contains(name) || self.group().is_some_and(|group| group.banned.contains(name))
        };
        if is_banned(key) {
            return None;
        }
        let orders: &[Order] = self.steward().map_or(&[], |steward| &steward.orders);
        let is_ordered =
            |name: &str| orders.iter().any(|order| matches!(&order.request, Request::Ban { name: key } if key == name));
        let keys = |id: &NodeId| self.base.keys.get(id).map_or(&[][..], Vec::as_slice);
        let is_here = |id: &NodeId| *id == self.base.me.id || self.base.connected.contains_key(id);
        let goes_on = |id: &NodeId| {
            let mut known = keys(id).iter();
            let may_connect = |known: &String| known != key && !is_banned(known) && !is_ordered(known);
            is_here(id) && (keys(id).is_empty() || known.any(may_connect))
        };
        let voters = match self.engine().filter(|engine| self.has_vote(engine)) {
            Some(engine) => [engine.incoming(), engine.outgoing()],
            None => [self.voters(), Vec::new()],
        };
        let needed = voters.iter().find_map(|voters| {
            let is_majority = voters.iter().filter(|id| goes_on(id)).count() > voters.len() / 2;
            let mut owners = voters.iter().filter(|id| keys(id).iter().any(|known| known == key) && !goes_on(id));
            owners.next().filter(|_| !is_majority).copied()
        })?;
        let name = self.base.connected.get(&needed).unwrap_or(&self.base.me.name);
        Some(format!(
            "it is the key of '{name}', without whose vote the group cannot go on: give '{name}' a new key first (hallpass init --renew), \
             then ban the old one"
        ))
    }
}
