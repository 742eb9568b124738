//! Section 7.4: finding out which nodes have failed.
//!
//! A REPLY that is overdue makes a node send ARE_YOU_THERE, which repeats the REQUEST and is decided like it (T5). Who
//! stays silent through all probes is declared failed, and everybody takes it off the list.

use super::message::Body;
use super::{Classic, ClassicTimer, Membership, Name, Out, User};
use crate::NodeId;
use crate::protocol::ricart_agrawala::RaMessage;
use crate::protocol::{Effect, Input, Mode, Protocol, Trap};

/// A round of probes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Probing {
    /// How often silence may still be answered by another probe.
    retries: u8,
    /// Who has answered.
    alive: Vec<NodeId>,
}

impl Classic {
    pub(super) fn on_overdue_timeout(&mut self, out: &mut Out) {
        self.probing = Some(Probing { retries: self.rules.0.probes - 1, alive: Vec::new() });
        self.probe(self.base.awaited(), out);
    }

    fn probe(&mut self, suspects: Vec<NodeId>, out: &mut Out) {
        let Some((number, mode)) = self.base.waiting() else { return };
        for node in suspects {
            self.send(node, Body::AreYouThere { number, mode }, out);
        }
        self.set(ClassicTimer::Unanswered, self.round_trip(), out);
    }

    /// The probe is the same REQUEST again, and is decided like it (T5).
    pub(super) fn on_are_you_there(&mut self, from: NodeId, number: u64, mode: Mode, out: &mut Out) {
        if self.printed(Trap::AreYouThere) {
            return self.on_are_you_there_as_printed(from, number, out);
        }
        if self.base.defers(from, number, mode) {
            return self.confirm_deferral(from, number, out);
        }
        self.run_base(Input::Deliver { from, message: RaMessage::Request { number, mode } }, out);
    }

    /// As printed (T5): a REQUEST that was lost is answered by a REPLY, even by a node that is inside.
    fn on_are_you_there_as_printed(&mut self, from: NodeId, number: u64, out: &mut Out) {
        if self.base.deferred.iter().any(|(node, _)| *node == from) {
            return self.confirm_deferral(from, number, out);
        }
        let reply = RaMessage::Reply { answers: number, highest: self.base.highest, fence: 0 };
        self.send(from, Body::Base(reply), out);
    }

    fn confirm_deferral(&mut self, from: NodeId, number: u64, out: &mut Out) {
        self.base.observe_request(number);
        self.base.record_deferral(from, number);
        self.send(from, Body::YesIAmHere { answers: number }, out);
    }

    /// 'If no answer is received during a second timeout period, the suspect node has failed.' One lost probe is not yet
    /// a failure: it is sent `probes` times.
    pub(super) fn on_unanswered_timeout(&mut self, out: &mut Out) {
        let Some(probing) = &mut self.probing else { return };
        let mut silent = self.base.awaited();
        silent.retain(|node| !probing.alive.contains(node));
        if probing.retries > 0 && !silent.is_empty() {
            probing.retries -= 1;
            return self.probe(silent, out);
        }
        self.probing = None;
        for node in silent {
            self.declare_failed(node, out);
        }
        if self.base.waiting().is_some() {
            // 'All nodes will respond with YES_I_AM_HERE messages and a new timeout period may begin.'
            self.set(ClassicTimer::Overdue, self.overdue(), out);
        }
    }

    pub(super) fn declare_failed(&mut self, node: NodeId, out: &mut Out) {
        let Some(Name { incarnation, .. }) = self.name(node) else { return };
        self.send_all(&Body::Failed { node, incarnation }, out);
        self.remove(node, incarnation, out);
    }

    pub(super) fn mark_alive(&mut self, node: NodeId) {
        if let Some(Probing { alive, .. }) = &mut self.probing
            && let Err(position) = alive.binary_search(&node)
        {
            alive.insert(position, node);
        }
    }

    /// The group has removed this node. Its caller, if it is inside, leaves first.
    pub(super) fn on_restart_yourself(&mut self, out: &mut Out) {
        if matches!(self.membership, Membership::Learning { .. }) {
            return out.push(Effect::Restart);
        }
        if self.membership != Membership::Member {
            return;
        }
        self.must_restart = true;
        let inside = self.base.waiting().is_none() && self.base.request_number().is_some();
        if !(inside && self.user == Some(User::Caller)) {
            self.task = None;
            self.on_release(out);
        }
    }
}
