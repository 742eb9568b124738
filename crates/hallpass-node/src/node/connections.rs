//! What connections of both planes tell a node: greetings, bytes, messages, and their end.

use hallpass_core::codec::DecodeError;
use hallpass_core::{NodeId, Ticks};

use super::{Checked, Node};
use crate::faults::{Conduct, Sabotage};
use crate::links::{Arrived, LinkError};
use crate::membership::HelloError;
use crate::output::Output;
use crate::wire::{Body, FRAME_MAX, Frame, Hello, Plane};

impl<C, F: Conduct> Node<C, F> {
    /// The greeting for a new connection with this peer that carries locks, if it is a member or about to be one.
    pub fn hello(&self, peer: NodeId) -> Option<Hello> {
        self.views.hello(peer, &self.links)
    }

    /// The greeting for a new control connection. Of a node that is dialed by its address alone the id is not known.
    pub fn control_hello(&self, peer: Option<NodeId>) -> Hello {
        self.views.control_hello(peer)
    }

    /// Whether a greeting is acceptable. Nothing changes.
    pub fn check_hello(&self, hello: &Hello) -> Result<(), HelloError> {
        self.views.check_hello(hello, &self.links)
    }

    /// A greeting of a member of another group of the same name, which [`check_hello`](Self::check_hello) has refused: who it is has been
    /// proven as far as it can be. A node that is alone in a group of its own grants nothing more then.
    pub fn handle_other_group(&mut self, hello: &Hello, now: Ticks) {
        let now = self.begin(now);
        self.views.on_other_group(hello);
        self.apply_actions(now);
    }

    /// The peer's greeting on a new connection. On success the connection stands, and an earlier one of the same plane with
    /// the same peer is to be closed.
    pub fn handle_hello(&mut self, hello: &Hello, now: Ticks) -> Result<(), HelloError> {
        let now = self.begin(now);
        self.views.check_hello(hello, &self.links)?;
        match hello.plane {
            Plane::Locks => self.views.accept(hello, &mut self.links)?,
            Plane::Control => {
                self.views.on_control_connected(hello, now);
                self.disconnect_earlier(hello, now);
            }
        }
        self.links.offer_all();
        self.apply_actions(now);
        self.retry_backpressured(now);
        Ok(())
    }

    /// The end of a connection with an earlier process of a peer may be lost with the network. The node that makes the next one
    /// learns of it by the greeting of the later process.
    fn disconnect_earlier(&mut self, hello: &Hello, now: Checked) {
        let Some(index) = self.links.position(hello.from) else { return };
        let link = &self.links[index];
        if link.connected && link.process.is_some_and(|process| process.incarnation < hello.incarnation) {
            self.disconnect(index, now);
            self.controls.push_back(Output::Disconnect(hello.from));
        }
    }

    /// A node was found at an address that this node was given. While this node is in no view it believes what that one says of the group.
    /// To be called before or after [`handle_hello`](Self::handle_hello), each time an address that was given is dialed.
    pub fn handle_seed(&mut self, hello: &Hello) {
        self.views.on_seed(hello.from, &hello.name);
    }

    /// The keys with which a peer is connected on the control plane, or this node's own, each by the name under which
    /// [`Request::Ban`](crate::Request::Ban) would ban it. A key that the group cannot do without is not banned.
    pub fn set_keys(&mut self, node: NodeId, keys: Vec<String>) {
        self.views.set_keys(node, keys);
    }

    /// Nothing of this peer counts any more.
    pub(super) fn refuse(&mut self, peer: NodeId, now: Checked) {
        if let Some(index) = self.links.position(peer) {
            self.disconnect(index, now);
        }
        self.controls.push_back(Output::Refuse(peer));
    }

    fn disconnect(&mut self, index: usize, now: Checked) {
        self.links[index].disconnect(now.ticks());
        if self.links[index].in_view {
            self.locks.on_disconnect(&mut self.links);
        }
    }

    /// The connection with this peer that carries locks is gone. What it may have lost is sent again over the next one.
    pub fn handle_disconnect(&mut self, peer: NodeId, now: Ticks) {
        let now = self.begin(now);
        let Some(link) = self.links.position(peer) else { return };
        self.disconnect(link, now);
    }

    /// The control connection with this peer is gone, and what it may have lost with it.
    pub fn handle_control_disconnect(&mut self, peer: NodeId, now: Ticks) {
        let now = self.begin(now);
        self.views.on_control_disconnected(peer);
        self.apply_actions(now);
    }

    /// A whole control message has arrived from this peer. On an error the connection is to be closed.
    pub fn handle_control(&mut self, peer: NodeId, message: &[u8], now: Ticks) -> Result<(), DecodeError> {
        let now = self.begin(now);
        self.views.on_control(peer, message, now)?;
        self.apply_actions(now);
        Ok(())
    }

    /// Bytes have arrived from this peer, in any portions. On an error the connection is to be closed.
    pub fn handle_bytes(&mut self, peer: NodeId, bytes: &[u8], now: Ticks) -> Result<(), LinkError> {
        let now = self.begin(now);
        let Some(link) = self.links.position(peer) else { return Err(LinkError::Misaddressed) };
        if !self.links[link].connected {
            return Err(LinkError::GivenUp);
        }
        let mut inbound = std::mem::take(&mut self.links[link].inbound);
        let inbound_max = if self.links[link].joins { FRAME_MAX } else { self.config.inbound_max() };
        if inbound.len() + bytes.len() > inbound_max {
            return Err(LinkError::Flooded);
        }
        // Almost always a read brings whole frames: they are handled where they are.
        let result = if inbound.is_empty() {
            self.handle_frames(link, bytes, now).inspect(|taken| inbound.extend_from_slice(&bytes[*taken..]))
        } else {
            inbound.extend_from_slice(bytes);
            self.handle_frames(link, &inbound, now).inspect(|taken| drop(inbound.drain(..*taken)))
        };
        self.links[link].inbound = inbound;
        self.retry_backpressured(now);
        self.look_at_fences(now);
        result.map(drop)
    }

    /// The connection with a peer takes bytes again, after it did not take all.
    pub fn handle_writable(&mut self, now: Ticks) {
        self.begin(now);
        self.links.offer_all();
    }

    /// The connection with this peer has taken this number of the bytes of [`poll_transmit`](Self::poll_transmit).
    pub fn handle_transmitted(&mut self, peer: NodeId, bytes: usize) {
        if let Some(link) = self.links.position(peer) {
            self.links.transmitted(link, bytes);
        }
    }

    /// Handles all whole frames and returns how many bytes those were.
    pub(super) fn handle_frames(&mut self, link: usize, bytes: &[u8], now: Checked) -> Result<usize, LinkError> {
        let Some(sender) = self.links.sender() else { return Ok(0) };
        let mut taken = 0;
        loop {
            let (frame, length) = match Frame::decode(&bytes[taken..]) {
                Ok(decoded) => decoded,
                Err(DecodeError::Truncated) => break,
                Err(error) => return Err(error.into()),
            };
            if frame.header.epoch > sender.epoch {
                // It waits until this node has started that view, too.
                break;
            }
            taken += length;
            let unread_max = if self.links[link].joins { 0 } else { self.config.unread_max() };
            let is_new = self.links[link].receive(sender, &frame, unread_max)?;
            // What belongs to a view that is over counts as received, and is dropped.
            let is_current = frame.header.epoch == sender.epoch || self.conduct.breaks(Sabotage::AcceptStaleEpoch);
            if is_new && is_current {
                let sent = self.links[link].sent();
                let handled = self.handle_body(link, frame.body, now);
                self.links[link].count_answers(sent);
                handled.inspect_err(|_| self.links[link].take_back())?;
            }
        }
        let sent = self.links[link].sent();
        self.links.acknowledge_if_due(link);
        self.links[link].count_answers(sent);
        Ok(taken)
    }

    fn handle_body(&mut self, link: usize, body: Body<'_>, now: Checked) -> Result<(), LinkError> {
        match body {
            Body::Acknowledgement => {}
            Body::Message { lock, attempt, bytes } => {
                let arrived = Arrived { from: self.links[link].peer, lock, attempt, bytes };
                self.locks.on_message(link, arrived, now.ticks(), &mut self.links)?;
            }
            // Of a node that is about to join there is no answer to anything.
            Body::Busy { .. } if !self.links[link].in_view => {}
            Body::Busy { lock, attempt } => {
                let from = self.links[link].peer;
                self.locks.on_busy(from, lock, attempt, now.ticks(), &mut self.links);
            }
        }
        Ok(())
    }
}
