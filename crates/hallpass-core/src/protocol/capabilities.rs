use crate::{Fence, Mode, NodeId};

/// What must outlive an instance that is dropped because it is idle.
///
/// A node keeps it for the next lock of the same name, so that request numbers and fences never repeat.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Floor {
    /// The highest request number.
    pub number: u64,
    /// The largest count of a fence.
    pub fence: u64,
}

impl Floor {
    /// Raises both values to at least the other floor's.
    pub fn raise(&mut self, other: Self) {
        self.number = self.number.max(other.number);
        self.fence = self.fence.max(other.fence);
    }
}

/// How a protocol serves a caller who only tries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Attempts {
    /// It does not: who does not enter at once gives up.
    None,
    /// The messages of the request carry a mark. A node that would defer a marked request
    /// [forgets](Capabilities::forget_deferred) it and says so.
    Marked,
    /// The protocol has messages for it: [`Input::Try`](super::Input::Try) asks, and
    /// [`Effect::Busy`](super::Effect::Busy) refuses.
    Asked,
}

/// Who used a lock last, and how much of it: a home gives more at once to one that comes back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Comer {
    /// The member.
    pub member: NodeId,
    /// How many fences it has used in a row.
    pub used: u64,
}

/// What a node asks of a protocol beyond its paper, to serve many locks and many callers well.
///
/// Every method has a default that is right for a protocol that implements its paper and nothing more. The trait is
/// object-safe, so that a node can hold protocols of different types.
pub trait Capabilities {
    /// What must outlive this instance when it is dropped because it is idle; `None` if it may not be dropped.
    fn floor(&self) -> Option<Floor> {
        None
    }

    /// Later requests and entries stay above what earlier instances on this node have used. A request that waits keeps its
    /// number.
    fn raise_floor(&mut self, _floor: Floor) {}

    /// Who used the lock last, where this node is its home. A node may keep it for the next instance, or lose it at any time.
    fn last_comer(&self) -> Option<Comer> {
        None
    }

    /// Tells a fresh instance who used the lock last.
    fn remember_comer(&mut self, _comer: Comer) {}

    /// The floor from which a fresh instance gives its first request the number of the request that waits here, so that
    /// the request keeps its place in the next view. `None` if none waits, or if numbers mean nothing outside the view.
    fn number_floor(&self) -> Option<u64> {
        None
    }

    /// True if another node is known to wait in a mode that conflicts with the local request. A protocol that cannot
    /// know returns true.
    fn has_waiters(&self) -> bool {
        true
    }

    /// Replaces the local caller that is inside by another one in the same mode, before any other node enters. Returns the
    /// new entry's fence, or `None` if the protocol cannot do that.
    fn reenter(&mut self) -> Option<Fence> {
        None
    }

    /// The fast path in: does what [`Input::Acquire`](super::Input::Acquire) would do if that enters at once and has no
    /// other effect, and returns the entry's fence. Otherwise nothing changes.
    fn enter_fast(&mut self, _mode: Mode) -> Option<Fence> {
        None
    }

    /// True if the next entry in this mode certainly needs messages. False is always right.
    fn must_ask(&self, _mode: Mode) -> bool {
        false
    }

    /// The fast path out: does what [`Input::Release`](super::Input::Release) would do if that has no effect, and returns
    /// true. Otherwise nothing changes.
    fn leave_fast(&mut self) -> bool {
        false
    }

    /// Forgets a deferred request of another node, which will be notified and cancel it; true if there was one.
    fn forget_deferred(&mut self, _from: NodeId) -> bool {
        false
    }

    /// How `try` is served.
    fn attempts(&self) -> Attempts {
        Attempts::None
    }

    /// The member that keeps the order of this lock's requests, if one does.
    fn home(&self) -> Option<NodeId> {
        None
    }

    /// The members whose requests are granted or wait, in the order of their arrival, where this node knows it: those who
    /// hold the lock come first.
    fn order(&self) -> Option<Vec<NodeId>> {
        None
    }

    /// True if what is here, and nobody uses, should go back at once: [`Input::GiveBack`](super::Input::GiveBack).
    fn gives_back(&self) -> bool {
        false
    }

    /// True if permissions or the token are here, so that the next entry needs fewer messages or none.
    fn is_cached(&self) -> bool {
        false
    }

    /// The nodes without whose permission the request that waits cannot enter, in rising order: they hold the lock, asked
    /// for it before, or have not been heard of. Empty if no request waits; `None` if the protocol cannot tell.
    fn missing_permissions(&self) -> Option<Vec<NodeId>> {
        None
    }
}
