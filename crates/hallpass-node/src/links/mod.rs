//! The links to all other members, and which of them have something to transmit.

mod link;
#[cfg(test)]
mod tests;

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Index, IndexMut};

use hallpass_core::codec::Reader;
use hallpass_core::protocol::{ProtocolKind, Visitor};
use hallpass_core::{Message, NodeId, Protocol, Ticks};

use crate::wire::{Attempt, Outgoing};

pub use link::LinkError;
pub(crate) use link::{Link, Process, Sender};

/// The links of a node, in rising order of the peers' ids.
#[derive(Debug)]
pub(crate) struct Links {
    links: Vec<Link>,
    /// What every frame says of its sender: known once there is a view, and nothing is sent before.
    sender: Option<Sender>,
    /// The links that may have something to transmit, each once, in the order in which they got it: what a node sends
    /// first leaves first.
    offers: VecDeque<usize>,
    /// A connection took only a part of what it was offered: it is offered again after the next input.
    leftover: bool,
    /// Protocol messages sent so far.
    messages: u64,
    /// The same, by the message's type and kind: a handful, since a group uses few protocols.
    kinds: Vec<(TypeId, &'static str, u64)>,
}

impl Links {
    pub(crate) fn new(peers: impl Iterator<Item = NodeId>) -> Self {
        let links: Vec<Link> = peers.map(Link::new).collect();
        debug_assert!(links.is_sorted_by_key(|link| link.peer));
        Self { offers: VecDeque::new(), links, sender: None, leftover: false, messages: 0, kinds: Vec::new() }
    }

    /// There is a view: frames can be sent and received.
    pub(crate) fn open(&mut self, sender: Sender) {
        self.sender = Some(sender);
    }

    /// The view is over: nothing is sent or received until the next one.
    pub(crate) fn close(&mut self) {
        self.sender = None;
    }

    /// Keeps links with exactly these peers. Returns those whose links are gone.
    pub(crate) fn keep(&mut self, peers: &BTreeSet<NodeId>, now: Ticks) -> Vec<NodeId> {
        let gone = self.links.iter().map(|link| link.peer).filter(|peer| !peers.contains(peer)).collect();
        self.links.retain(|link| peers.contains(&link.peer));
        for peer in peers {
            if let Err(position) = self.links.binary_search_by_key(peer, |link| link.peer) {
                let mut link = Link::new(*peer);
                (link.disconnected_at, link.in_view) = (now, false);
                self.links.insert(position, link);
            }
        }
        self.offers.clear();
        self.links.iter_mut().for_each(|link| link.is_offered = false);
        self.offer_all();
        gone
    }

    pub(crate) fn sender(&self) -> Option<Sender> {
        self.sender
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Link> {
        self.links.iter()
    }

    pub(crate) fn position(&self, peer: NodeId) -> Option<usize> {
        self.links.binary_search_by_key(&peer, |link| link.peer).ok()
    }

    /// A member of the view for which more than this many bytes wait, if there is one.
    pub(crate) fn congested(&self, backlog_max: usize) -> Option<NodeId> {
        self.in_view().find(|link| link.is_congested(backlog_max)).map(|link| link.peer)
    }

    /// Every other member of the view is connected.
    pub(crate) fn reach_all(&self) -> bool {
        self.in_view().all(|link| link.connected)
    }

    /// True if this member is connected, or is this node itself.
    pub(crate) fn reaches(&self, member: NodeId) -> bool {
        self.position(member).is_none_or(|index| self.links[index].connected)
    }

    fn in_view(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| link.in_view)
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Sends a protocol's message to one peer.
    pub(crate) fn send<M: Message>(&mut self, index: usize, lock: &str, attempt: Option<Attempt>, message: &M) {
        self.push(index, &Outgoing::Message { lock, attempt }, |out| message.encode(out));
        self.messages += 1;
        let (of, kind) = (TypeId::of::<M>(), message.kind());
        match self.kinds.iter_mut().find(|known| known.0 == of && std::ptr::eq(known.1, kind)) {
            Some(known) => known.2 += 1,
            None => self.kinds.push((of, kind, 1)),
        }
    }

    /// Protocol messages sent so far, by protocol and kind.
    pub(crate) fn messages_by_kind(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        let mut all = BTreeMap::new();
        for (of, kind, count) in &self.kinds {
            let protocol = ProtocolKind::ALL.iter().find(|protocol| protocol.visit(MessageType) == *of);
            *all.entry((protocol.map_or("", |protocol| protocol.name()), *kind)).or_default() += count;
        }
        all
    }

    pub(crate) fn send_busy(&mut self, index: usize, lock: &str, attempt: Attempt) {
        self.push(index, &Outgoing::Busy { lock, attempt }, |_| {});
    }

    pub(crate) fn acknowledge_if_due(&mut self, index: usize) {
        if self.links[index].owes_acknowledgement() {
            self.push(index, &Outgoing::Acknowledgement, |_| {});
        }
    }

    fn push(&mut self, index: usize, body: &Outgoing<'_>, message: impl FnOnce(&mut Vec<u8>)) {
        let Some(sender) = self.sender else { return debug_assert!(false, "a frame before there is a view") };
        self.links[index].push(sender, body, message);
        self.offer(index);
    }

    /// Gives back memory of links that have fallen silent.
    pub(crate) fn shrink(&mut self) {
        self.links.iter_mut().for_each(Link::shrink);
    }

    // ---- transmitting ----

    /// An input begins: what connections did not take is offered again.
    #[inline]
    pub(crate) fn offer_leftovers(&mut self) {
        if self.leftover {
            self.leftover = false;
            self.offer_all();
        }
    }

    /// Everything is to be offered again: a connection is new, or takes bytes again.
    pub(crate) fn offer_all(&mut self) {
        (0..self.links.len()).for_each(|index| self.offer(index));
    }

    fn offer(&mut self, index: usize) {
        if !std::mem::replace(&mut self.links[index].is_offered, true) {
            self.offers.push_back(index);
        }
    }

    /// Links may be left that have something to transmit.
    #[inline]
    pub(crate) fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    /// The next peer for whose connection there is something.
    pub(crate) fn poll_offer(&mut self) -> Option<NodeId> {
        while let Some(index) = self.offers.pop_front() {
            let link = &mut self.links[index];
            link.is_offered = false;
            if !link.transmit().is_empty() {
                return Some(link.peer);
            }
        }
        None
    }

    pub(crate) fn transmitted(&mut self, index: usize, bytes: usize) {
        self.links[index].transmitted(bytes);
        self.leftover |= !self.links[index].transmit().is_empty();
    }
}

impl Index<usize> for Links {
    type Output = Link;

    fn index(&self, index: usize) -> &Link {
        &self.links[index]
    }
}

impl IndexMut<usize> for Links {
    fn index_mut(&mut self, index: usize) -> &mut Link {
        &mut self.links[index]
    }
}

/// One message of a lock's protocol, not yet decoded.
pub(crate) struct Arrived<'a> {
    pub(crate) from: NodeId,
    pub(crate) lock: &'a str,
    pub(crate) attempt: Option<Attempt>,
    pub(crate) bytes: Reader<'a>,
}

/// The type of a protocol's messages.
struct MessageType;

impl Visitor for MessageType {
    type Output = TypeId;

    fn visit<P: Protocol + 'static>(self) -> TypeId {
        TypeId::of::<P::Message>()
    }
}
