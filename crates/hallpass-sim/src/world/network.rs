//! The network of a [`World`]: latency, order, loss, duplication and partitions.

use hallpass_core::protocol::Medium;
use hallpass_core::{Input, Message, NodeId, Protocol, Ticks};

use super::{Event, World};
use crate::Order;
use crate::oracle::Arrivals;
use crate::trace::EventKind;

pub(super) struct Network {
    /// FIFO links: when the last message on each link arrives, by sender and receiver.
    link_arrivals: Vec<Ticks>,
    /// Sequenced medium: when the last broadcast arrives at each node.
    medium_arrivals: Vec<Ticks>,
    /// One side of a partition, while there is one.
    pub(super) partition: Option<Vec<NodeId>>,
    pub(super) in_flight: u64,
    /// The id of the last message sent.
    last_id: u64,
}

impl Network {
    pub(super) fn new(nodes: usize, order: Order) -> Self {
        Self {
            link_arrivals: if order == Order::Fifo { vec![0; nodes * nodes] } else { Vec::new() },
            medium_arrivals: vec![0; nodes],
            partition: None,
            in_flight: 0,
            last_id: 0,
        }
    }

    fn separates(&self, a: NodeId, b: NodeId) -> bool {
        self.partition.as_ref().is_some_and(|side| side.contains(&a) != side.contains(&b))
    }
}

impl<P: Protocol> World<'_, P> {
    pub(super) fn send(&mut self, from: usize, to: NodeId, message: P::Message) {
        self.messages.on_send(message.kind(), 1);
        if let Some(to) = self.index_of(to) {
            self.transmit(from, to, message);
        }
    }

    pub(super) fn broadcast(&mut self, from: usize, message: P::Message) {
        let receivers = self.nodes.len() as u64 - 1;
        let counted = if self.needs.medium == Medium::Unicast && !self.needs.membership { receivers } else { 1 };
        self.messages.on_send(message.kind(), counted);
        for to in 0..self.nodes.len() {
            if self.needs.medium == Medium::Sequenced {
                self.transmit_in_sequence(from, to, message.clone());
            } else if to != from {
                self.transmit(from, to, message.clone());
            }
        }
    }

    /// Sends a message over a link that may lose or repeat it.
    fn transmit(&mut self, from: usize, to: usize, message: P::Message) {
        let id = self.record_send(from, to, &message);
        let faults = &self.config.faults;
        let sender = self.nodes[from].id;
        if self.rng.chance(faults.loss) || self.network.separates(sender, self.nodes[to].id) {
            return self.record_arrival(sender, to, &message, id, true);
        }
        if self.rng.chance(faults.duplication) {
            self.put_on_link(from, to, message.clone(), id);
        }
        self.put_on_link(from, to, message, id);
    }

    fn put_on_link(&mut self, from: usize, to: usize, message: P::Message, id: u64) {
        let mut at = self.draw_arrival(from, to);
        if self.config.order == Order::Fifo {
            let last = &mut self.network.link_arrivals[from * self.nodes.len() + to];
            at = at.max(*last);
            *last = at;
        }
        self.schedule_delivery(at, from, to, message, id);
    }

    /// Sends a message over the sequenced medium: every node receives all broadcasts in the order in which they were sent.
    fn transmit_in_sequence(&mut self, from: usize, to: usize, message: P::Message) {
        let id = self.record_send(from, to, &message);
        let at = self.draw_arrival(from, to).max(self.network.medium_arrivals[to]);
        self.network.medium_arrivals[to] = at;
        self.schedule_delivery(at, from, to, message, id);
    }

    fn draw_arrival(&mut self, from: usize, to: usize) -> Ticks {
        self.now + self.config.latency.draw(self.nodes[from].id, self.nodes[to].id, &mut self.rng)
    }

    fn schedule_delivery(&mut self, at: Ticks, from: usize, to: usize, message: P::Message, id: u64) {
        self.network.in_flight += 1;
        self.queue.push(at, Event::Deliver { from: self.nodes[from].id, to: to as u32, message, id });
    }

    pub(super) fn on_deliver(&mut self, from: NodeId, to: usize, message: P::Message, id: u64) {
        let node = &mut self.nodes[to];
        if node.paused {
            return node.parked.push(Event::Deliver { from, to: to as u32, message, id });
        }
        self.network.in_flight -= 1;
        let lost = node.protocol.is_none() || self.network.separates(from, node.id);
        self.record_arrival(from, to, &message, id, lost);
        if !lost {
            if message.kind() == Arrivals::REQUEST {
                self.note_arrival(from, to);
            }
            self.handle_input(to, Input::Deliver { from, message });
        }
    }

    /// Gives a message its id, and records that it was sent.
    fn record_send(&mut self, from: usize, to: usize, message: &P::Message) -> u64 {
        self.network.last_id += 1;
        let id = self.network.last_id;
        if self.trace.is_some() && from != to {
            let (to, kind, text) = (self.nodes[to].id, message.kind(), message.to_string());
            self.record(from, EventKind::Send { to, id, kind, text });
        }
        id
    }

    fn record_arrival(&mut self, from: NodeId, to: usize, message: &P::Message, id: u64, lost: bool) {
        if self.trace.is_some() {
            self.record(to, EventKind::arrival(from, message, id, lost));
        }
    }
}
