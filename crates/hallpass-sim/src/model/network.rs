//! The messages in flight in a model.

use hallpass_core::protocol::Medium;
use hallpass_core::{Effects, Input, Message, Protocol};

use super::{Context, Model, ModelConfig};
use crate::Order;
use crate::oracle::Violation;
use crate::trace::EventKind;

/// A message in flight, for observers.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'a, M> {
    /// Its position, which stands for it in steps.
    pub index: u16,
    /// The sender's position.
    pub from: u8,
    /// The receiver's position.
    pub to: u8,
    /// The message itself.
    pub message: &'a M,
}

/// A message in flight. The order of the fields is the order in which packets are sorted.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Packet<M> {
    to: u8,
    lane: Lane,
    message: M,
    from: u8,
    /// The slots until it must arrive, where time exists.
    pub(super) due: u8,
}

/// Where packets to one receiver may have an order among each other: the link from one sender, or the sequenced medium.
///
/// In one byte: there are far fewer nodes than that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Lane(u8);

impl Lane {
    const MEDIUM: Self = Self(u8::MAX);

    fn link(sender: u8) -> Self {
        Self(sender)
    }
}

impl<P: Protocol> ModelConfig<P> {
    /// True if the packets of a lane arrive in the order in which they were sent.
    fn keeps_order(&self, lane: Lane) -> bool {
        self.order == Order::Fifo || lane == Lane::MEDIUM
    }
}

impl<P: Protocol> Model<P> {
    /// The messages in flight.
    pub fn packets(&self) -> impl Iterator<Item = InFlight<'_, P::Message>> {
        (0..).zip(&self.packets).map(|(index, packet)| InFlight {
            index,
            from: packet.from,
            to: packet.to,
            message: &packet.message,
        })
    }

    /// False for a packet that an earlier one on its lane precedes, and for all but the first of equal packets.
    pub(super) fn is_deliverable(&self, config: &ModelConfig<P>, index: usize) -> bool {
        let packet = &self.packets[index];
        let Some(before) = index.checked_sub(1).map(|before| &self.packets[before]) else { return true };
        let same_lane = (before.to, before.lane) == (packet.to, packet.lane);
        !(same_lane && config.keeps_order(packet.lane)) && before != packet
    }

    pub(super) fn send(&mut self, context: &mut Context<'_, P>, from: u8, to: u8, message: P::Message) {
        self.put_in_flight(context, from, to, Lane::link(from), message);
    }

    pub(super) fn broadcast(&mut self, context: &mut Context<'_, P>, from: u8, message: &P::Message) {
        let sequenced = context.config.needs.medium == Medium::Sequenced;
        let lane = if sequenced { Lane::MEDIUM } else { Lane::link(from) };
        // On a sequenced medium the sender receives its own broadcast too.
        for to in (0..self.actors.len() as u8).filter(|to| sequenced || *to != from) {
            self.put_in_flight(context, from, to, lane, message.clone());
        }
    }

    fn put_in_flight(&mut self, context: &mut Context<'_, P>, from: u8, to: u8, lane: Lane, message: P::Message) {
        let config = context.config;
        if from != to {
            let receiver = context.id(to);
            context.record_with(from, || {
                let (kind, text) = (message.kind(), message.to_string());
                EventKind::Send { to: receiver, id: 0, kind, text }
            });
        }
        let receiver = self.actor(to).protocol.as_ref();
        if config.drops_moot && receiver.is_some_and(|receiver| is_moot(config, receiver, from, &message)) {
            return;
        }
        let packet = Packet { to, lane, message, from, due: config.delay.unwrap_or(0) };
        let position = if config.keeps_order(lane) {
            self.packets.partition_point(|other| (other.to, other.lane) <= (to, lane))
        } else {
            self.packets.partition_point(|other| *other < packet)
        };
        self.packets.insert(position, packet);
    }

    pub(super) fn deliver(&mut self, context: &mut Context<'_, P>, index: u16) -> Option<Violation> {
        let packet = self.packets.remove(index.into());
        let is_down = self.actor(packet.to).protocol.is_none();
        let from = context.id(packet.from);
        context.record_with(packet.to, || EventKind::arrival(from, &packet.message, 0, is_down));
        if is_down {
            return None;
        }
        self.handle_input(context, packet.to, Input::Deliver { from, message: packet.message })
    }

    pub(super) fn lose(&mut self, context: &mut Context<'_, P>, index: u16) {
        let packet = self.packets.remove(index.into());
        let from = context.id(packet.from);
        context.record_with(packet.to, || EventKind::arrival(from, &packet.message, 0, true));
    }

    pub(super) fn duplicate(&mut self, index: u16) {
        let packet = self.packets[usize::from(index)].clone();
        self.packets.insert(index.into(), packet);
    }

    /// One slot passes for every packet.
    pub(super) fn tick_packets(&mut self, config: &ModelConfig<P>) {
        self.packets.iter_mut().for_each(|packet| packet.due -= 1);
        // Packets without an order are sorted by all their fields.
        if config.order == Order::Any && config.needs.medium != Medium::Sequenced {
            self.packets.sort_unstable();
        }
    }

    /// Drops the packets to a node that would change nothing whenever they arrived: fewer states, the same behaviours.
    pub(super) fn drop_moot(&mut self, config: &ModelConfig<P>, node: u8) {
        let Some(protocol) = &self.actors[usize::from(node)].protocol else { return };
        self.packets.retain(|packet| packet.to != node || !is_moot(config, protocol, packet.from, &packet.message));
    }
}

/// Asks the protocol. Debug builds verify the answer for a delivery now.
fn is_moot<P: Protocol>(config: &ModelConfig<P>, protocol: &P, from: u8, message: &P::Message) -> bool {
    let from = config.ids[usize::from(from)];
    let moot = protocol.is_moot(from, message);
    if cfg!(debug_assertions) && moot {
        let (mut after, mut effects) = (protocol.clone(), Effects::new());
        after.handle(Input::Deliver { from, message: message.clone() }, &mut effects);
        assert!(effects.is_empty() && after == *protocol, "{message} is not moot for {protocol:?}");
    }
    moot
}
