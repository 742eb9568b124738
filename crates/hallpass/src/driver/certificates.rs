//! With which keys a peer may connect, and stay connected.

use std::sync::Arc;

use hallpass_core::NodeId;
use hallpass_node::wire::Hello;

use super::{Driver, State};
use crate::certificate::KeyDigest;
use crate::control::Outbox;
use crate::text::printable;
use crate::tls::{PeerCertificate, Refreshed};

impl Driver {
    /// Checks that a peer may connect with this certificate. The error is read by both sides.
    pub(crate) fn check_certificate(&self, certificate: &PeerCertificate, hello: &Hello) -> Result<(), String> {
        let why = self.unfit(&self.state(), certificate);
        why.map_or(Ok(()), |why| Err(self.explain_unfit(why, hello)))
    }

    pub(super) fn explain_unfit(&self, why: Unfit, hello: &Hello) -> String {
        let (peer, here) = (self.describe(hello), &self.me);
        match why {
            Unfit::Banned(key) => format!(
                "the key of {peer} is banned from the group ({key}): give it new keys of 'hallpass init --renew'. A member of \
                 the group can lift the ban: 'hallpass evict --admit-key {key}'"
            ),
            Unfit::Untrusted => {
                format!("{here} does not trust the authority of {peer} any more: give both the same authority.pem")
            }
        }
    }

    /// Why no connection with this certificate may stand.
    pub(super) fn unfit(&self, state: &State, certificate: &PeerCertificate) -> Option<Unfit> {
        let key = certificate.identity.key;
        if state.node.is_banned(&key.label()) {
            return Some(Unfit::Banned(key));
        }
        let is_trusted = self.tls.as_ref().is_none_or(|tls| tls.vouches_for(certificate));
        (!is_trusted).then_some(Unfit::Untrusted)
    }

    /// Ends the connections with keys that the group has banned meanwhile, or that an authority has signed which this node does not trust
    /// any more.
    pub(crate) fn end_unfit(&self) {
        let state = self.state();
        let ends = |peer: NodeId, certificate: &Option<PeerCertificate>| {
            let Some(certificate) = certificate else { return false };
            let Some(why) = self.unfit(&state, certificate) else { return false };
            let name = printable(&certificate.identity.name);
            tracing::warn!(%name, node = %peer, %why, "connection ended");
            true
        };
        for (peer, connection) in state.lock_connections.iter() {
            if ends(peer, &connection.certificate) {
                connection.close();
            }
        }
        for (peer, outbox) in state.controls.iter().flat_map(|(peer, all)| all.iter().map(|one| (*peer, one))) {
            if ends(peer, &outbox.certificate) {
                outbox.close();
            }
        }
    }

    /// Reads the keys again if their files have changed.
    pub(crate) async fn refresh_keys(&self) {
        let Some(tls) = self.tls.clone() else { return };
        // The files may be on a disk that hangs.
        let refreshed = tokio::task::spawn_blocking(move || tls.refresh()).await;
        match refreshed {
            Ok(Refreshed::New(key)) => {
                self.tell_own_key();
                tracing::info!(%key, "the node's keys have changed: new connections use the new ones");
                self.end_unfit();
            }
            Ok(Refreshed::Unusable(error)) => {
                tracing::warn!(
                    error,
                    "the node's keys have changed, and cannot be used: it goes on with those from before"
                );
            }
            Ok(Refreshed::Same) | Err(_) => {}
        }
        self.end_former();
    }

    /// Ends control connections that were made with an earlier key of this node's. They are made again with the new one. So others know
    /// that the earlier one can be banned.
    fn end_former(&self) {
        let Some(tls) = &self.tls else { return };
        let state = self.state();
        let is_former = |outbox: &&Arc<Outbox>| {
            outbox.certificate.as_ref().is_some_and(|certificate| tls.has_shown_former_key(certificate))
        };
        state.controls.values().flatten().filter(is_former).for_each(|outbox| outbox.close());
    }

    pub(super) fn tell_own_key(&self) {
        let Some(key) = self.own_key() else { return };
        self.state().node.set_keys(self.id, vec![key.label()]);
    }

    /// The key that this node uses now, if it has any.
    pub(crate) fn own_key(&self) -> Option<KeyDigest> {
        self.tls.as_ref().map(|tls| tls.own_key())
    }
}

impl State {
    /// Tells the node with which keys a peer is connected.
    pub(super) fn tell_keys(&mut self, peer: NodeId) {
        let keys = self.keys_of(peer).iter().map(KeyDigest::label).collect();
        self.node.set_keys(peer, keys);
    }

    /// The keys with which a peer is connected.
    pub(crate) fn keys_of(&self, peer: NodeId) -> Vec<KeyDigest> {
        let standing = self.controls.get(&peer).into_iter().flatten();
        let certificates = standing.filter_map(|outbox| outbox.certificate.as_ref());
        let mut keys: Vec<_> = certificates.map(|certificate| certificate.identity.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Why no connection with a certificate may stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error("the group has banned its key, {0}")]
    Banned(KeyDigest),
    #[error("its authority is not trusted any more")]
    Untrusted,
}
