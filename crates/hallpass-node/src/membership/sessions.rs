//! The steward's book of sessions.

use std::collections::BTreeMap;

use hallpass_core::{NodeId, Ticks};

use super::group::Group;
use crate::Incarnation;

/// When each member last renewed its session, and who is never acknowledged again.
///
/// Renewals are acknowledged in batches, and only once a quorum has confirmed, after they came in, that this node still
/// leads: then no other steward can have decided anything since.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sessions {
    book: BTreeMap<NodeId, MemberSession>,
    /// Came in since the last batch was closed.
    waiting: BTreeMap<NodeId, Renewal>,
    /// Waits for its confirmation.
    batch: Option<Batch>,
    batches: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct MemberSession {
    incarnation: Incarnation,
    /// When the last renewal came in that was accepted, or when the counting began.
    last: Ticks,
    /// False once it is decided that the member is to be removed.
    is_acknowledged: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Batch {
    number: u64,
    renewals: BTreeMap<NodeId, Renewal>,
}

/// A renewal that has come in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Renewal {
    pub incarnation: Incarnation,
    /// By the member's clock.
    pub sent: Ticks,
    /// By the steward's.
    pub received: Ticks,
}

impl Sessions {
    /// A new steward knows of nothing, and counts from its election.
    pub fn new(group: &Group, now: Ticks) -> Self {
        let mut sessions = Self::default();
        sessions.follow(group, now);
        sessions
    }

    /// The members have changed: new ones count from now.
    pub fn follow(&mut self, group: &Group, now: Ticks) {
        self.book.retain(|id, _| group.members.contains_key(id));
        for (id, member) in &group.members {
            let entry = MemberSession { incarnation: member.incarnation, last: now, is_acknowledged: true };
            let known = self.book.entry(*id).or_insert_with(|| entry.clone());
            if known.incarnation != member.incarnation {
                *known = entry;
            }
        }
    }

    pub fn on_renewal(&mut self, from: NodeId, renewal: Renewal) {
        self.waiting.insert(from, renewal);
    }

    /// Closes a batch, if there is something to confirm and nothing is being confirmed: its number.
    pub fn close_batch(&mut self) -> Option<u64> {
        if self.batch.is_some() || self.waiting.is_empty() {
            return None;
        }
        self.batches += 1;
        self.batch = Some(Batch { number: self.batches, renewals: std::mem::take(&mut self.waiting) });
        Some(self.batches)
    }

    /// A quorum has confirmed a batch: these members are to be acknowledged.
    pub fn on_confirmed(&mut self, number: u64) -> Vec<(NodeId, Renewal)> {
        let Some(batch) = self.batch.take_if(|batch| batch.number == number) else { return Vec::new() };
        let mut acknowledged = Vec::new();
        for (from, renewal) in batch.renewals {
            let Some(entry) = self.book.get_mut(&from) else { continue };
            if entry.incarnation == renewal.incarnation && entry.is_acknowledged {
                entry.last = entry.last.max(renewal.received);
                acknowledged.push((from, renewal));
            }
        }
        acknowledged
    }

    /// A planted bug: those that are to be removed are acknowledged, too.
    pub fn confirm_all(&mut self, number: u64) -> Vec<(NodeId, Renewal)> {
        let batch = self.batch.clone().filter(|batch| batch.number == number);
        self.on_confirmed(number);
        batch.map(|batch| batch.renewals.into_iter().collect()).unwrap_or_default()
    }

    /// The steward itself is here.
    pub fn touch(&mut self, id: NodeId, now: Ticks) {
        if let Some(entry) = self.book.get_mut(&id).filter(|entry| entry.is_acknowledged) {
            entry.last = entry.last.max(now);
        }
    }

    /// From now on this member is not acknowledged.
    pub fn stop_acknowledging(&mut self, id: NodeId) {
        if let Some(entry) = self.book.get_mut(&id) {
            entry.is_acknowledged = false;
        }
    }

    pub fn is_unacknowledged(&self, id: NodeId) -> bool {
        self.book.get(&id).is_some_and(|entry| !entry.is_acknowledged)
    }

    /// The members whose sessions have run out by any clock. They are not acknowledged from now on.
    pub fn expire(&mut self, expiry: Ticks, now: Ticks) -> Vec<(NodeId, Incarnation)> {
        let mut expired = Vec::new();
        for (id, entry) in &mut self.book {
            if now >= entry.last.saturating_add(expiry) {
                entry.is_acknowledged = false;
                expired.push((*id, entry.incarnation));
            }
        }
        expired
    }

    /// When the next session runs out.
    pub fn next_expiry(&self, expiry: Ticks) -> Option<Ticks> {
        self.book.values().filter(|entry| entry.is_acknowledged).map(|entry| entry.last.saturating_add(expiry)).min()
    }

    /// When the steward last heard of a member.
    pub fn last(&self, id: NodeId) -> Option<Ticks> {
        self.book.get(&id).map(|entry| entry.last)
    }
}
