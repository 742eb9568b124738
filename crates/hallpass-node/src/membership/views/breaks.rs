//! Locks that an operator takes from their holders here.

use std::collections::BTreeMap;

use hallpass_core::{NodeId, Ticks};

use super::{Action, Views};
use crate::membership::control::Control;
use crate::output::Ticket;

#[derive(Default)]
pub(super) struct Breaks {
    /// Orders that were carried out here: the lock's holders then.
    orders: BTreeMap<u64, Vec<Ticket>>,
    /// When the holders lose their locks.
    losses: Vec<(Ticks, Ticket)>,
    /// Until when clients outside this process may believe that they hold something here: see [`Node::promise`](crate::Node::promise).
    promised_until: Ticks,
}

impl Breaks {
    /// The view is over, and with it everything that was to be lost. What clients were told remains.
    pub(super) fn end(&mut self) {
        (self.orders, self.losses) = (BTreeMap::new(), Vec::new());
    }

    /// When the next holder loses its lock.
    pub(super) fn deadline(&self) -> Option<Ticks> {
        self.losses.iter().map(|(at, _)| *at).min()
    }

    /// Those who lose their locks now.
    fn take_due(&mut self, now: Ticks) -> Vec<Ticket> {
        let (due, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.losses).into_iter().partition(|(at, _)| *at <= now);
        self.losses = rest;
        due.into_iter().map(|(_, ticket)| ticket).collect()
    }
}

impl Views {
    pub(crate) fn promise(&mut self, until: Ticks) {
        let promised = &mut self.member.breaks.promised_until;
        *promised = (*promised).max(until);
    }

    /// The steward orders a lock to be broken.
    pub(super) fn order_break(&mut self, from: NodeId, token: u64, lock: String) {
        // Its holders believe the deadlines that they were told, and cannot be reached before.
        let at = (self.base.now + self.member.session().ttl() / 3).max(self.member.breaks.promised_until);
        self.base.actions.push_back(Action::Break { from, token, lock, at });
    }

    /// A lock is to be broken, and these hold it. Returns those who are told it for the first time.
    pub(crate) fn on_break(&mut self, from: NodeId, token: u64, holders: &[Ticket], at: Ticks) -> Vec<Ticket> {
        let breaks = &mut self.member.breaks;
        let is_new = !breaks.orders.contains_key(&token);
        let before = breaks.orders.entry(token).or_insert_with(|| holders.to_vec());
        let left = holders.iter().filter(|ticket| before.contains(ticket)).count() as u64;
        let message = Control::Broken { token, before: before.len() as u64, left };
        self.base.send(from, message);
        if !is_new {
            return Vec::new();
        }
        breaks.losses.extend(holders.iter().map(|ticket| (at, *ticket)));
        holders.to_vec()
    }

    /// Holders whose time is over lose their locks.
    pub(super) fn revoke_due(&mut self) {
        let due = self.member.breaks.take_due(self.base.now);
        self.base.actions.extend(due.into_iter().map(Action::Revoke));
    }
}
