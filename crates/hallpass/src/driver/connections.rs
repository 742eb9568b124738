//! Connections that are established, and the bytes that they bring.

use std::sync::Arc;

use hallpass_core::NodeId;
use hallpass_core::codec::DecodeError;
use hallpass_node::LinkError;
use hallpass_node::wire::Hello;

use super::{Driver, State};
use crate::connection::Connection;
use crate::control::Outbox;
use crate::text::printable;
use crate::tls::PeerCertificate;

/// How many control connections with one peer are kept. All but two are remains of broken ones.
const CONTROLS_MAX: usize = 4;

/// How many guests are connected at a time. Beyond that the oldest connection of a guest is closed: an honest one dials again.
pub(super) const GUESTS_MAX: usize = 256;

const STOPPED: &str = "this node has been stopped";

/// The connections that carry locks, at most one with each peer.
#[derive(Default)]
pub(super) struct LockConnections {
    /// In rising order of the peers' ids.
    by_peer: Vec<(NodeId, Connection)>,
    /// The number of the newest one, which tells it from earlier ones with the same peer.
    last_number: u64,
}

impl LockConnections {
    fn find(&self, peer: NodeId) -> Result<usize, usize> {
        self.by_peer.binary_search_by_key(&peer, |(id, _)| *id)
    }

    pub(super) fn contains(&self, peer: NodeId) -> bool {
        self.find(peer).is_ok()
    }

    pub(super) fn get_mut(&mut self, peer: NodeId) -> Option<&mut Connection> {
        self.find(peer).ok().map(|index| &mut self.by_peer[index].1)
    }

    /// The connection of this number, unless another one has replaced it.
    fn current_mut(&mut self, peer: NodeId, number: u64) -> Option<&mut Connection> {
        self.get_mut(peer).filter(|connection| connection.number == number)
    }

    /// Adds a connection and closes the one that it replaces. Returns its number.
    fn put(&mut self, peer: NodeId, mut connection: Connection) -> u64 {
        self.last_number += 1;
        connection.number = self.last_number;
        match self.find(peer) {
            Ok(index) => std::mem::replace(&mut self.by_peer[index].1, connection).close(),
            Err(index) => self.by_peer.insert(index, (peer, connection)),
        }
        self.last_number
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Connection)> {
        self.by_peer.iter().map(|(peer, connection)| (*peer, connection))
    }

    pub(super) fn remove(&mut self, peer: NodeId) -> Option<Connection> {
        self.find(peer).ok().map(|index| self.by_peer.remove(index).1)
    }

    pub(super) fn close_all(&mut self) {
        self.by_peer.drain(..).for_each(|(_, connection)| connection.close());
    }
}

impl Driver {
    /// Adds a connection that carries locks, in place of an earlier one. Returns its number.
    pub(crate) fn connect(&self, hello: &Hello, connection: Connection) -> Result<u64, String> {
        let connected = self.input(|state| {
            self.still_fits(state, connection.certificate.as_ref(), hello)?;
            state.node.handle_hello(hello, state.now).map_err(|error| self.explain(&error, hello))?;
            state.meet_process(hello);
            Ok(state.lock_connections.put(hello.from, connection))
        });
        connected.unwrap_or_else(|| Err(STOPPED.to_owned()))
    }

    /// Adds a control connection, beside others with the same peer. Of two nodes the one with the lower id dials, and closes a connection that
    /// is not needed. Returns `Ok(false)` if this one is not needed.
    pub(crate) fn connect_control(&self, hello: &Hello, outbox: &Arc<Outbox>) -> Result<bool, String> {
        outbox.set_peer(self.peer(hello.from).as_deref());
        let connected = self.input(|state| {
            let standing = state.controls.get(&hello.from);
            if outbox.is_dialed && standing.is_some_and(|standing| !standing.is_empty()) && hello.from < self.id {
                return Ok(false);
            }
            self.still_fits(state, outbox.certificate.as_ref(), hello)?;
            state.node.handle_hello(hello, state.now).map_err(|error| self.explain(&error, hello))?;
            state.meet_process(hello);
            let standing = state.controls.entry(hello.from).or_default();
            if !outbox.is_dialed && hello.from < self.id {
                standing.iter().filter(|other| other.is_dialed).for_each(|other| other.close());
            }
            if standing.len() >= CONTROLS_MAX {
                standing[0].close();
            }
            standing.push(Arc::clone(outbox));
            state.tell_keys(hello.from);
            state.close_oldest_guest();
            Ok(true)
        });
        connected.unwrap_or_else(|| Err(STOPPED.to_owned()))
    }

    /// What is unfit may have changed since the greeting.
    fn still_fits(&self, state: &State, certificate: Option<&PeerCertificate>, hello: &Hello) -> Result<(), String> {
        let unfit = certificate.and_then(|certificate| self.unfit(state, certificate));
        unfit.map_or(Ok(()), |why| Err(self.explain_unfit(why, hello)))
    }

    /// Removes a control connection that has ended.
    pub(crate) fn disconnect_control(&self, peer: NodeId, outbox: &Arc<Outbox>) {
        self.input(|state| {
            let Some(standing) = state.controls.get_mut(&peer) else { return };
            standing.retain(|other| !Arc::ptr_eq(other, outbox));
            let is_last = standing.is_empty();
            state.see_process(peer);
            state.tell_keys(peer);
            if is_last {
                state.controls.remove(&peer);
                state.node.handle_control_disconnect(peer, state.now);
            }
        });
    }

    /// Notes who was found at an address that this node was given.
    pub(crate) fn find_seed(&self, hello: &Hello) {
        self.input(|state| state.node.handle_seed(hello));
    }

    /// Logs that a peer has sent what it may not send.
    pub(super) fn report_denied(&self, from: NodeId, name: &str, message: &str) {
        let name = printable(name);
        if let Some(left_out) = self.limits.denied.pass(&format!("{name} {message}")) {
            tracing::warn!(name, node = %from, message, left_out, "dropped a message that its sender may not send");
        }
    }

    pub(crate) fn has_control(&self, peer: NodeId) -> bool {
        self.state().controls.contains_key(&peer)
    }

    /// Handles a control message. An error closes the connection.
    pub(crate) fn receive_control(
        &self,
        peer: NodeId,
        outbox: &Arc<Outbox>,
        message: &[u8],
    ) -> Result<(), ReceiveError> {
        let received = self.input(|state| {
            // It may have been refused since the message was read. Another node may use the id by now.
            let standing = state.controls.get(&peer).is_some_and(|all| all.iter().any(|one| Arc::ptr_eq(one, outbox)));
            if !standing {
                return Err(ReceiveError::Replaced);
            }
            Ok(state.node.handle_control(peer, message, state.now)?)
        });
        received.unwrap_or(Ok(()))
    }

    /// Handles bytes that have arrived, encrypted ones if the connection is. An error closes the connection.
    pub(crate) fn receive(&self, peer: NodeId, number: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.receive_by(peer, number, |connection, handle| {
            let (plain, decrypted) = connection.decrypt(bytes);
            // What came before an error counts.
            handle(plain)?;
            connection.write(&[]);
            decrypted
        })
    }

    /// Handles what came right behind the greeting and was decrypted with it.
    pub(crate) fn receive_plain(&self, peer: NodeId, number: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.receive_by(peer, number, |_, handle| Ok(handle(bytes)?))
    }

    fn receive_by(
        &self,
        peer: NodeId,
        number: u64,
        receive: impl FnOnce(&mut Connection, &mut dyn FnMut(&[u8]) -> Result<(), LinkError>) -> Result<(), ReceiveError>,
    ) -> Result<(), ReceiveError> {
        let mut state = self.state();
        if self.is_closed() {
            return Err(ReceiveError::Replaced);
        }
        state.read_clock();
        let State { node, lock_connections, now, .. } = &mut *state;
        let received = match lock_connections.current_mut(peer, number) {
            None => Err(ReceiveError::Replaced),
            Some(connection) => receive(connection, &mut |plain| node.handle_bytes(peer, plain, *now)),
        };
        self.drain(state);
        received
    }

    /// Removes a connection that has ended, unless another one has replaced it.
    pub(crate) fn disconnect(&self, peer: NodeId, number: u64) {
        self.input(|state| {
            if state.lock_connections.current_mut(peer, number).is_some() {
                state.lock_connections.remove(peer);
                state.see_process(peer);
                state.node.handle_disconnect(peer, state.now);
            }
        });
    }

    /// Tells the node that a socket takes bytes again.
    pub(crate) fn writable(&self, peer: NodeId) {
        self.input(|state| {
            // What was encrypted before goes first, even if nothing follows it.
            if let Some(connection) = state.lock_connections.get_mut(peer) {
                connection.write(&[]);
            }
            state.node.handle_writable(state.now);
        });
    }
}

impl State {
    fn close_oldest_guest(&self) {
        let guests = || self.controls.values().flatten().filter(|outbox| outbox.is_guest());
        if guests().count() > GUESTS_MAX
            && let Some(oldest) = guests().min_by_key(|outbox| outbox.number)
        {
            oldest.close();
        }
    }

    /// Closes all connections with a peer: it may not be connected.
    pub(super) fn refuse(&mut self, peer: NodeId) {
        self.lock_connections.remove(peer).into_iter().for_each(|connection| connection.close());
        self.controls.remove(&peer).into_iter().flatten().for_each(|outbox| outbox.close());
        self.tell_keys(peer);
    }
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("another connection has replaced it")]
    Replaced,
    #[error("it rejects this node: {0}")]
    Rejected(String),
    #[error("{0}")]
    Link(#[from] LinkError),
    #[error("{0}")]
    Control(#[from] DecodeError),
    #[error("the encryption is broken: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
