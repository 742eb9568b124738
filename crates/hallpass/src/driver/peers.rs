//! The nodes that this one connects with.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use hallpass_core::NodeId;
use hallpass_node::Contact;

use super::Driver;
use crate::peer::Peer;

impl Driver {
    /// Returns the contacts if they may have changed since the last call. They are this node's peers from now on.
    pub(crate) fn take_contacts(&self) -> Option<Vec<Contact>> {
        let contacts = {
            let mut state = self.state();
            if !std::mem::take(&mut state.view_changed) {
                return None;
            }
            state.node.contacts()
        };
        let mut peers = self.lock_peers();
        let seeds = self.seeds();
        peers.retain(|id, _| contacts.iter().any(|contact| contact.id == *id));
        for Contact { id, name, address, joins } in &contacts {
            let known = peers.get(id).is_some_and(|peer| peer.address == *address && peer.name.as_ref() == Some(name));
            if !known {
                // Trouble with its address may be known from the search for a group.
                let seed = seeds.iter().find(|seed| seed.address == *address && seed.name.as_ref() == Some(name));
                let new = || Arc::new(Peer::new(Some(name.clone()), address.clone()));
                peers.insert(*id, seed.map_or_else(new, Arc::clone));
            }
            peers.get(id).into_iter().for_each(|peer| peer.set_joins(*joins));
        }
        drop(peers);
        self.state().forget_processes(&contacts);
        Some(contacts)
    }

    pub(crate) fn peer(&self, id: NodeId) -> Option<Arc<Peer>> {
        self.lock_peers().get(&id).map(Arc::clone)
    }

    pub(crate) fn peers(&self) -> BTreeMap<NodeId, Arc<Peer>> {
        self.lock_peers().clone()
    }

    fn lock_peers(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seeds(&self) -> Vec<Arc<Peer>> {
        self.seeds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn add_seed(&self, seed: Arc<Peer>) {
        self.seeds.lock().unwrap_or_else(PoisonError::into_inner).push(seed);
        self.wake.notify_one();
    }

    pub(crate) fn needs_seeds(&self) -> bool {
        !self.is_stopped() && self.state().node.needs_seeds()
    }

    /// True if this node is in a group that has had more than one member.
    pub(crate) fn watches_others(&self) -> bool {
        !self.is_stopped() && self.state().node.is_shared()
    }

    /// True if no connection with this peer is established.
    pub(crate) fn lacks(&self, peer: &Peer) -> bool {
        let id = self.lock_peers().iter().find(|(_, known)| known.address == peer.address).map(|(id, _)| *id);
        let state = self.state();
        id.is_none_or(|id| !state.lock_connections.contains(id) && !state.controls.contains_key(&id))
    }
}
