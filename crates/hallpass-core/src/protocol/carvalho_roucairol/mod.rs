//! Carvalho and Roucairol, 'On Mutual Exclusion in Computer Networks', 1983: permissions that stay valid. The default.
//!
//! Ricart and Agrawala's algorithm asks all nodes for every entry. Here a REPLY is a permission that 'remains valid until
//! *i* has decided to send a REPLY message to *j*'. A node that has all permissions enters without a message, as often as it
//! likes, until another one asks for a permission back. An entry costs 0 to 2(N-1) messages, and none for a node that uses
//! the lock alone.
//!
//! # Where this differs from the printed text
//!
//! - T15: the listing interleaves two columns. `Reply_Deferred [i]` in RELEASE-RESOURCE means `[j]`, and process 2 calls
//!   TREAT-REPLY-MESSAGE, not 'TREAT-RELEASE-MESSAGE'. The test on `Using` in TREAT-REQUEST-MESSAGE is what keeps a second node
//!   out while the first is inside.
//! - T16: 'the procedures are indivisible, except for the waitfor': the end of the waitfor and `Waiting := false; Using := true`
//!   are one step here, the delivery of the last REPLY.
//! - T17: a node that keeps its permissions when it is removed or restarted enters, and no other node can object. So an
//!   instance belongs to one view and one incarnation, and the next ones start afresh, without permissions.
//! - T1: `Hgst_Sequence_Number` includes the node's own numbers, so that no number is used twice.
//! - T6: a REPLY names the request that it answers. One that answers no request that waits is discarded: then neither node has
//!   the permission, which is safe.
//!
//! The laboratory can put T6, T15 and T16 back; [`AsPrinted`] does it, so that nothing of it is in the code that ships.
//!
//! # Why a number is enough to name a request
//!
//! The third branch asks again under the same number, so two REPLYs to it may be in flight where messages come twice. Either
//! may count: once j has replied to number n, all that j asks for later has a higher number and is deferred until n is over,
//! so j cannot have got back what it gave away. For the same reason no node is asked twice for one request, unless a REQUEST
//! that was given up or repeated takes a permission away.
//!
//! # Readers
//!
//! The paper has writers only. Here a permission is for a [`Mode`], and between two nodes it is like a cache line: one of them
//! has it exclusively, or both have it shared, or one has it shared, or neither has it. **Invariant: giving only weakens the
//! giver, and only an accepted REPLY strengthens the receiver.** A node that gives an exclusive permission keeps nothing; one
//! that gives a shared permission keeps a shared one at most. A node that has all shared permissions reads without a message.
//!
//! At the start **neither node** of a pair has the permission, unless one is an initial holder. To give it to the lower id
//! would save the first messages. But then a node that has dropped an idle lock would look like one that has never used it,
//! and both sides would have the permission. So an instance that does not exist has none, in either mode.

mod message;
mod printed;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::constant::Constant;
use super::{
    Attempts, Capabilities, Effect, Effects, Floor, Input, Mode, Needs, OptionError, Options, Protocol, Span, Ticks,
    Trap, TrapSet, Variables,
};
use crate::{Fence, FenceCounter, NodeId, NodeSet, Setup};

pub use message::{Asked, CrMessage};
pub use printed::AsPrinted;

/// One node's part of the algorithm: the paper's 'shared database'.
///
/// - **Inputs**: [`raise_floor`](Capabilities::raise_floor) before all others, [`handle`](Protocol::handle),
///   [`Input::GiveBack`] for a driver that bounds what is cached.
/// - **The fast path**, for entries without a message: [`enter_fast`](Capabilities::enter_fast),
///   [`leave_fast`](Capabilities::leave_fast), [`reenter`](Capabilities::reenter).
/// - **Getters**: [`is_idle`](Protocol::is_idle), [`has_permissions`](Self::has_permissions),
///   [`has_waiters`](Capabilities::has_waiters), [`floor`](Capabilities::floor).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CarvalhoRoucairol {
    /// `ME`.
    me: NodeId,
    rules: Constant<CrRules>,
    /// All other nodes, in rising order; `N` is one more than their number. The sets below hold positions in it.
    peers: Arc<[NodeId]>,
    /// `Hgst_Sequence_Number`, this node's own numbers included (T1).
    highest: u64,
    /// `Waiting`, `Using` and `Our_Sequence_Number`.
    request: Option<Request>,
    /// `A[j]`: the peers whose exclusive permission is here. It lets readers in, too.
    exclusive: NodeSet,
    /// The peers whose shared permission is here. Disjoint from `exclusive`.
    shared: NodeSet,
    /// The peers that were asked for the request that waits, and have not answered.
    awaiting: NodeSet,
    /// `Reply_Deferred`, in rising order, with the newest request of each peer.
    deferred: Vec<(NodeId, Asked)>,
    fences: FenceCounter,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Request {
    number: u64,
    mode: Mode,
    /// `Using`; `Waiting` before that.
    inside: bool,
}

/// The options of [`CarvalhoRoucairol`].
#[derive(Clone, Debug, Default)]
pub struct CrRules {
    /// How long permissions may stay unused before they are dropped; by default forever, as in the paper.
    cache_idle: Option<Ticks>,
}

impl CrRules {
    fn parse(options: &Options, offered: &[Trap]) -> Result<(Self, TrapSet), OptionError> {
        let mut parsed = options.read("carvalho-roucairol");
        let cache_idle = parsed.duration("cache-idle")?;
        let printed = parsed.as_printed(offered)?;
        parsed.finish()?;
        Ok((Self { cache_idle }, printed))
    }
}

/// The timers of [`CarvalhoRoucairol`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CrTimer {
    /// The permissions have not been used for a while.
    CacheIdle,
    /// T16: all permissions were here a moment ago. Only [`AsPrinted`] sets it.
    Using,
}

type Out = Effects<CrMessage, CrTimer>;

impl Protocol for CarvalhoRoucairol {
    type Message = CrMessage;
    type Timer = CrTimer;
    type Options = CrRules;

    fn parse(options: &Options) -> Result<CrRules, OptionError> {
        CrRules::parse(options, &[]).map(|(rules, _)| rules)
    }

    fn needs(_: &CrRules) -> Needs {
        Needs::default()
    }

    fn new(setup: &Setup<'_, CrRules>) -> Self {
        let peers = setup.view.others(setup.me);
        let (mut exclusive, mut shared) = (NodeSet::new(), NodeSet::new());
        let request = setup.initial.held_by(setup.me).map(|mode| {
            let permissions = if mode == Mode::Exclusive { &mut exclusive } else { &mut shared };
            permissions.fill(peers.len());
            Request { number: 0, mode, inside: true }
        });
        Self {
            me: setup.me,
            rules: Constant::new(setup.options.clone()),
            peers,
            highest: 0,
            request,
            exclusive,
            shared,
            awaiting: NodeSet::new(),
            deferred: Vec::new(),
            fences: setup.fences(),
        }
    }

    fn handle(&mut self, input: Input<CrMessage, CrTimer>, out: &mut Out) {
        self.react(input, out);
        self.enter_if_granted(out);
    }

    fn variables(&self, out: &mut Variables) {
        let request = self.request.as_ref();
        out.flag("Waiting", request.is_some_and(|request| !request.inside));
        out.flag("Using", request.is_some_and(|request| request.inside));
        out.optional("Our_Sequence_Number", request.map(|request| request.number));
        out.set("Hgst_Sequence_Number", self.highest);
        out.list("A", self.exclusive.iter().map(|peer| self.peers[peer]));
        if !self.shared.is_empty() {
            out.list("A (shared)", self.shared.iter().map(|peer| self.peers[peer]));
        }
        out.list("asked", self.awaiting.iter().map(|peer| self.peers[peer]));
        out.list("Reply_Deferred", self.deferred.iter().map(|(node, _)| node));
        out.set("fence", self.fences.count());
    }

    /// A permission that is here must be remembered: [`Input::GiveBack`] first.
    fn is_idle(&self) -> bool {
        self.request.is_none() && self.deferred.is_empty() && !self.has_permissions()
    }

    /// A REPLY that is not accepted has no effect. It may be accepted later if its number is still to come, or if its request
    /// still waits: the permission may be given away and asked for again.
    fn is_moot(&self, _: NodeId, message: &CrMessage) -> bool {
        let CrMessage::Reply { answers, .. } = message else { return false };
        answers.number <= self.highest && !self.is_waiting_for(answers.number)
    }

    fn request_number(&self) -> Option<u64> {
        self.request.as_ref().map(|request| request.number)
    }

    fn highest_number(&self) -> u64 {
        self.highest
    }
}

/// The fast path crosses three crates, and must be inlined where there is no link-time optimisation.
impl Capabilities for CarvalhoRoucairol {
    fn floor(&self) -> Option<Floor> {
        Some(Floor { number: self.highest, fence: self.fences.count() })
    }

    /// Without it a late REPLY to a request of an earlier instance could answer a new one of the same number.
    fn raise_floor(&mut self, floor: Floor) {
        self.highest = self.highest.max(floor.number);
        self.fences.observe(floor.fence);
    }

    fn number_floor(&self) -> Option<u64> {
        self.request.as_ref().filter(|request| !request.inside).map(|request| request.number - 1)
    }

    #[inline]
    fn has_waiters(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// All permissions are here and stay here, so only the fence changes.
    #[inline]
    fn reenter(&mut self) -> Option<Fence> {
        let request = self.request.as_ref().filter(|request| request.inside)?;
        self.fences.next(request.mode)
    }

    #[inline]
    fn enter_fast(&mut self, mode: Mode) -> Option<Fence> {
        if self.rules.cache_idle.is_some() || self.request.is_some() || !self.is_granted(mode) {
            return None;
        }
        let fence = self.fences.next(mode)?;
        self.highest += 1;
        self.request = Some(Request { number: self.highest, mode, inside: true });
        Some(fence)
    }

    #[inline]
    fn must_ask(&self, mode: Mode) -> bool {
        !self.is_granted(mode)
    }

    #[inline]
    fn leave_fast(&mut self) -> bool {
        let plain = self.rules.cache_idle.is_none() && self.deferred.is_empty();
        let leaves = plain && self.request.as_ref().is_some_and(|request| request.inside);
        if leaves {
            self.request = None;
        }
        leaves
    }

    /// As if the REQUEST had been lost and its sender had then given up.
    fn forget_deferred(&mut self, from: NodeId) -> bool {
        let before = self.deferred.len();
        self.deferred.retain(|(node, _)| *node != from);
        self.deferred.len() < before
    }

    fn attempts(&self) -> Attempts {
        Attempts::Marked
    }

    fn is_cached(&self) -> bool {
        self.has_permissions()
    }

    fn missing_permissions(&self) -> Option<Vec<NodeId>> {
        Some(self.awaiting.iter().map(|position| self.peers[position]).collect())
    }
}

impl CarvalhoRoucairol {
    /// True if a permission is here, for either mode.
    pub fn has_permissions(&self) -> bool {
        !self.exclusive.is_empty() || !self.shared.is_empty()
    }

    /// Drops all permissions. No message is needed, since it is always safe if neither node of a pair has the permission.
    /// While a request waits or is inside, it needs them, and nothing happens.
    fn drop_permissions(&mut self) {
        if self.request.is_none() {
            self.exclusive = NodeSet::new();
            self.shared = NodeSet::new();
        }
    }

    /// Takes one input, up to the waitfor of REQUEST-RESOURCE.
    fn react(&mut self, input: Input<CrMessage, CrTimer>, out: &mut Out) {
        match input {
            Input::Acquire { mode, .. } => self.on_acquire(mode, out),
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { from, message: CrMessage::Request(asked) } => self.on_request(from, asked, out),
            Input::Deliver { from, message: CrMessage::Reply { answers, fence } } => {
                self.on_reply(from, answers, fence);
            }
            Input::GiveBack | Input::Timeout(CrTimer::CacheIdle) => self.drop_permissions(),
            _ => {}
        }
    }

    /// REQUEST-RESOURCE, up to the waitfor.
    fn on_acquire(&mut self, mode: Mode, out: &mut Out) {
        debug_assert!(self.request.is_none(), "the driver serialises local callers");
        let number = self.highest + 1;
        self.highest = number;
        self.request = Some(Request { number, mode, inside: false });
        if self.rules.cache_idle.is_some() && self.has_permissions() {
            out.push(Effect::CancelTimer(CrTimer::CacheIdle));
        }
        if self.is_granted(mode) {
            return;
        }
        let message = CrMessage::Request(Asked { number, mode });
        if !self.has_permissions() {
            self.awaiting.fill(self.peers.len());
            return out.push(Effect::Broadcast { message });
        }
        for position in 0..self.peers.len() {
            if !self.has(position, mode) {
                self.awaiting.insert(position);
                out.push(Effect::Send { to: self.peers[position], message: message.clone() });
            }
        }
    }

    /// RELEASE-RESOURCE, also for a caller that gives up. The permissions that have arrived for it stay, since their givers
    /// know that they are here. A REPLY that comes later answers no request and is discarded.
    fn on_release(&mut self, out: &mut Out) {
        if self.request.take().is_none() {
            return;
        }
        self.awaiting = NodeSet::new();
        // The next in line is answered first, and can enter while the others are.
        self.deferred.sort_unstable_by_key(|(node, asked)| (asked.number, *node));
        // By index, so that the list keeps its memory.
        for index in 0..self.deferred.len() {
            let (to, asked) = self.deferred[index];
            self.give(to, asked, out);
        }
        self.deferred.clear();
        if let Some(ticks) = self.rules.cache_idle.filter(|_| self.has_permissions()) {
            out.push(Effect::SetTimer { timer: CrTimer::CacheIdle, after: Span::exactly(ticks) });
        }
    }

    /// TREAT-REQUEST-MESSAGE: the three branches.
    fn on_request(&mut self, from: NodeId, asked: Asked, out: &mut Out) {
        // No group counts that far. A peer that claims it is broken, and believing it would break this node as well.
        if asked.number > NUMBER_MAX || self.position(from).is_none() {
            return;
        }
        self.highest = self.highest.max(asked.number);
        if self.defers(from, asked) {
            return self.defer(from, asked);
        }
        self.give(from, asked, out);
        self.ask_again_if_needed(from, out);
    }

    /// `Using or (Waiting and Our_Priority)`, where the two conflict: readers never defer readers.
    fn defers(&self, from: NodeId, asked: Asked) -> bool {
        let Some(request) = self.request.as_ref().filter(|request| request.mode.conflicts(asked.mode)) else {
            return false;
        };
        request.inside || (request.number, self.me) < (asked.number, from)
    }

    fn defer(&mut self, from: NodeId, asked: Asked) {
        match self.deferred.binary_search_by_key(&from, |(node, _)| *node) {
            // A REQUEST that was repeated, or overtaken by its successor: the newest is the one that waits.
            Ok(position) => self.deferred[position].1 = self.deferred[position].1.max(asked),
            Err(position) => self.deferred.insert(position, (from, asked)),
        }
    }

    /// `A[j] := false; send (REPLY(ME), j)`. A reader's REQUEST leaves a shared permission here if one was.
    fn give(&mut self, to: NodeId, asked: Asked, out: &mut Out) {
        let Some(position) = self.position(to) else { return };
        let had_exclusive = self.exclusive.remove(position);
        if asked.mode == Mode::Exclusive {
            self.shared.remove(position);
        } else if had_exclusive {
            self.shared.insert(position);
        }
        out.push(Effect::Send { to, message: CrMessage::Reply { answers: asked, fence: self.fences.count() } });
    }

    /// `if Waiting and A[j] and (not Our_Priority)`: the permission that was just given away is still needed.
    fn ask_again_if_needed(&mut self, from: NodeId, out: &mut Out) {
        let Some(position) = self.position(from) else { return };
        let Some(Request { number, mode, inside: false }) = self.request else { return };
        if self.has(position, mode) || self.awaiting.contains(position) {
            return;
        }
        self.awaiting.insert(position);
        out.push(Effect::Send { to: from, message: CrMessage::Request(Asked { number, mode }) });
    }

    /// TREAT-REPLY-MESSAGE.
    fn on_reply(&mut self, from: NodeId, answers: Asked, fence: u64) {
        let Some(position) = self.position(from) else { return };
        let Some(Request { number, mode, inside: false }) = self.request else { return };
        if answers != (Asked { number, mode }) || !self.awaiting.remove(position) {
            return;
        }
        self.fences.observe(fence);
        match mode {
            Mode::Exclusive => {
                self.shared.remove(position);
                self.exclusive.insert(position);
            }
            Mode::Shared => self.shared.insert(position),
        }
    }

    /// The end of the waitfor and the entry, in the same step as the last REPLY (T16).
    fn enter_if_granted(&mut self, out: &mut Out) {
        if self.is_waiting_granted() {
            self.enter(out);
        }
    }

    /// `Waiting := false; Using := true`.
    fn enter(&mut self, out: &mut Out) {
        let Some(request) = self.request.as_mut().filter(|request| !request.inside) else { return };
        let Some(fence) = self.fences.next(request.mode) else { return };
        request.inside = true;
        out.push(Effect::Enter { fence });
    }

    /// `A[j] = true for all j ≠ ME`.
    #[inline]
    fn is_granted(&self, mode: Mode) -> bool {
        let shared = if mode == Mode::Shared { self.shared.len() } else { 0 };
        self.exclusive.len() + shared == self.peers.len()
    }

    /// `A[j]`, for a mode.
    fn has(&self, position: usize, mode: Mode) -> bool {
        self.exclusive.contains(position) || (mode == Mode::Shared && self.shared.contains(position))
    }

    fn position(&self, node: NodeId) -> Option<usize> {
        self.peers.binary_search(&node).ok()
    }

    fn is_waiting(&self) -> bool {
        self.request.as_ref().is_some_and(|request| !request.inside)
    }

    fn is_waiting_granted(&self) -> bool {
        self.request.as_ref().is_some_and(|request| !request.inside && self.is_granted(request.mode))
    }

    fn is_waiting_for(&self, number: u64) -> bool {
        self.request.as_ref().is_some_and(|request| request.number == number && !request.inside)
    }
}

/// No sequence number is higher, so that adding to one never overflows.
const NUMBER_MAX: u64 = 1 << 62;
