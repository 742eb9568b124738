//! What a node shows of itself, its group and its locks. Nothing changes.

use std::ops::Range;

use hallpass_core::{NodeId, Ticks};

use super::Node;
use crate::faults::Conduct;
use crate::status::{Contact, Counters, LockStatus, MemberStatus, Status, ViewState};
use crate::tap::{TapId, TracedMessage};

impl<C, F: Conduct> Node<C, F> {
    /// There is a view: locks are granted.
    pub fn is_complete(&self) -> bool {
        self.views.state() == ViewState::Open
    }

    /// The view's number, once there has been one.
    pub fn epoch(&self) -> Option<u64> {
        self.views.epoch()
    }

    /// True if the group has banned this name, as far as this node knows.
    pub fn is_banned(&self, name: &str) -> bool {
        self.views.banned().contains(name)
    }

    /// The names that the group has banned, as far as this node knows.
    pub fn banned(&self) -> impl Iterator<Item = &str> {
        self.views.banned().iter().map(String::as_str)
    }

    /// How often everything that was granted has been lost: an earlier grant is void.
    #[inline]
    pub fn lapse_count(&self) -> u64 {
        self.lapse_count
    }

    /// Until when everything that is held here is held for certain; [`Ticks::MAX`] if nothing can take it away. Look at
    /// the clock after reading it.
    #[inline]
    pub fn valid_until(&self) -> Ticks {
        self.valid_until
    }

    /// True if something can be held here: the node is in a view, or between two, and its session has not run out.
    pub fn has_session(&self) -> bool {
        matches!(self.views.state(), ViewState::Open | ViewState::Changing)
    }

    /// A client outside of this process is about to be told that it holds a lock until then, and cannot be told otherwise before. A
    /// lock that is broken from now on is lost no earlier.
    pub fn promise(&mut self, until: Ticks) {
        self.views.promise(until);
    }

    /// From when on what is held here is at risk: a renewal of the session should have been answered by then.
    pub fn at_risk_from(&self) -> Ticks {
        self.views.at_risk_from()
    }

    /// The consensus term that this node knows, if it votes: a steward of an earlier one does not lead any more.
    pub fn term(&self) -> Option<u64> {
        self.views.term()
    }

    /// True at a steward if most of the voters would know after a restart, without asking anybody else, that they are the voters. Until
    /// then each of the former ones may be needed.
    pub fn voters_are_stored(&self) -> bool {
        self.views.voters_are_stored()
    }

    /// True at a voter whose log has a change of the voters that is not finished: a majority of those before and of those after is needed,
    /// and the latter may be one.
    pub fn is_replacing_voters(&self) -> bool {
        self.views.is_replacing_voters()
    }

    /// How many leave, as far as the steward knows.
    #[cfg(test)]
    pub(crate) fn leaving(&self) -> usize {
        self.views.leaving()
    }

    /// True if the group that this node is in has had more than one member.
    pub fn is_shared(&self) -> bool {
        self.views.is_shared()
    }

    /// How far this node is.
    pub fn status(&self) -> Status {
        self.views.status(&self.links)
    }

    /// Who is in the view that is open here; nobody if none is. Consensus may be ahead of it.
    pub fn view(&self) -> Vec<NodeId> {
        if self.is_complete() { self.views.view() } else { Vec::new() }
    }

    /// Every other member of its view is connected, as this node knows it.
    pub fn reaches_view(&self) -> bool {
        self.links.reach_all()
    }

    /// The nodes that this one is to be connected with, on both planes: members, voters, and those about to join.
    pub fn contacts(&self) -> Vec<Contact> {
        self.views.contacts()
    }

    /// True while this node knows no group, or reaches no member of its own: the addresses it was given are to be dialed.
    pub fn needs_seeds(&self) -> bool {
        self.views.needs_seeds()
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.config.me
    }

    /// Protocol messages sent so far.
    pub fn messages(&self) -> u64 {
        self.links.messages()
    }

    /// What has happened on this node so far, in numbers.
    pub fn counters(&self) -> Counters {
        Counters {
            messages: self.links.messages_by_kind(),
            views: self.views_opened,
            lapses: self.lapses,
            elections: self.views.elections(),
            denied: self.views.denied(),
        }
    }

    /// How many locks take memory here.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// True if no lock takes memory here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every caller who waits.
    pub fn waiting(&self) -> impl Iterator<Item = &C> {
        self.locks.waiting()
    }

    /// The locks that are held, waited for or cached here, in no order.
    pub fn locks(&self) -> impl Iterator<Item = LockStatus<'_>> {
        self.locks_in(0..self.slots())
    }

    /// The locks in these slots, for callers who do not want to look at all of them at once. A lock that is forgotten and
    /// used again between two looks may have moved to another slot.
    pub fn locks_in(&self, slots: Range<u32>) -> impl Iterator<Item = LockStatus<'_>> {
        self.locks.status_in(slots)
    }

    /// How many slots there are: those in use, and those of locks that were forgotten.
    pub fn slots(&self) -> u32 {
        self.locks.slots()
    }

    /// One lock, if it is held, waited for or cached here.
    pub fn lock_status(&self, name: &str) -> Option<LockStatus<'_>> {
        self.locks.status_of(name)
    }

    /// How many of the [`Fence::COUNT_MAX`](hallpass_core::Fence::COUNT_MAX) fences of this view are used up, as far as
    /// this node knows, on the lock that has used most.
    pub fn fences_used(&self) -> u64 {
        self.locks.fences_used()
    }

    /// All members, this one among them, in rising order.
    pub fn members(&self) -> Vec<MemberStatus> {
        let mut all = self.views.members(&self.links);
        all.sort_unstable_by_key(|member| member.id);
        all
    }

    // ---- watching ----

    /// Notes the messages of this lock from now on, for [`take_traced`](Self::take_traced); none if too many watch already.
    pub fn open_tap(&mut self, lock: &str) -> Option<TapId> {
        self.locks.taps.open(lock)
    }

    /// The messages that were noted since the last call, and how many older ones were not kept.
    pub fn take_traced(&mut self, tap: TapId) -> (Vec<TracedMessage>, u64) {
        self.locks.taps.take(tap)
    }

    /// Ends what [`open_tap`](Self::open_tap) has begun.
    pub fn close_tap(&mut self, tap: TapId) {
        self.locks.taps.close(tap);
    }
}
