//! Ricart and Agrawala, 'An Optimal Algorithm for Mutual Exclusion in Computer Networks', 1981.
//!
//! A node that asks to enter sends REQUEST(number, node) to all others and enters once each has sent a REPLY. A node that
//! receives a REQUEST replies at once, unless it asks itself and comes first by (number, node): then it defers its REPLY
//! until it has left. An entry costs 2(N-1) messages and one round trip, and is first come first served.
//!
//! | here | the paper | section |
//! |---|---|---|
//! | [`RicartAgrawala`] | the algorithm, implicit reply, broadcast, modulo, increments, readers and writers | 2, 6 |
//! | [`Sequenced`] | order by the broadcast medium | 6.2.1 |
//! | [`Ring`] | requests that travel a ring | 6.3 |
//! | [`Classic`] | joining, leaving, failing, coming back | 7 |

mod classic;
mod message;
mod ring;
mod rules;
mod sequenced;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::constant::Constant;
use super::{
    Attempts, Bounds, Capabilities, Effect, Effects, Floor, Input, Mode, Needs, OptionError, Options, Protocol, Span,
    Trap, Variables,
};
use crate::{Fence, FenceCounter, NodeId, NodeSet, Setup};

pub use classic::{Body, Classic, ClassicMessage, ClassicRules, ClassicTimer};
pub use message::RaMessage;
pub use ring::{Ring, RingMessage, RingRules, Travelling};
pub use rules::Rules;
pub use sequenced::{Sequenced, SequencedMessage};

use rules::{Clock, FenceRule, Increment, Release};

/// One node's part of the algorithm: the paper's 'shared database'.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RicartAgrawala {
    /// `me`.
    me: NodeId,
    rules: Constant<(Rules, Bounds)>,
    /// `NAMES` without `me`, in rising order; N is one more than its length.
    peers: Arc<[NodeId]>,
    /// `Highest_Sequence_Number`: of all REQUESTs received **or sent** (T1: the printed code leaves out 'sent').
    highest: u64,
    /// `Requesting_Critical_Section` and `Our_Sequence_Number`.
    request: Option<Request>,
    /// Positions in `peers` whose REPLY is outstanding. A set, not `Outstanding_Reply_Count`: a count counts a repeated
    /// REPLY twice (T6).
    awaiting: NodeSet,
    /// Implicit reply: positions in `peers` that have sent DEFERRED, so that their REPLY will come.
    deferring: NodeSet,
    /// `Reply_Deferred`, in rising order, with the number of the request that waits, which the REPLY will name.
    deferred: Vec<(NodeId, u64)>,
    /// REQUESTs of lower priority whose handling is delayed (section 6.5), at most one of each peer.
    held_back: Vec<(NodeId, RaMessage)>,
    fences: FenceCounter,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Request {
    number: u64,
    mode: Mode,
    inside: bool,
}

/// The timers of [`RicartAgrawala`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RaTimer {
    /// Implicit reply: the longest round trip is over, and a node that was silent has agreed.
    RoundTrip,
    /// Handle the REQUESTs that were held back.
    HoldBack,
    /// As printed (T2): record a deferral that was decided in an earlier step.
    NoteDeferral(NodeId, u64),
    /// As printed (T3): take note of a number that was received in an earlier step.
    NoteNumber(u64),
}

type Out = Effects<RaMessage, RaTimer>;

impl Protocol for RicartAgrawala {
    type Message = RaMessage;
    type Timer = RaTimer;
    type Options = Rules;

    fn parse(options: &Options) -> Result<Rules, OptionError> {
        Rules::parse(options)
    }

    fn needs(rules: &Rules) -> Needs {
        rules.needs()
    }

    fn draws(rules: &Rules) -> u32 {
        if let Increment::Random(k) = rules.increment { k } else { 1 }
    }

    fn new(setup: &Setup<'_, Rules>) -> Self {
        // Number 0 comes before every request of this view, so all of them wait for the initial holder.
        let holds = setup.initial.held_by(setup.me).map(|mode| Request { number: 0, mode, inside: true });
        Self {
            me: setup.me,
            highest: Rules::of(&setup.options.clocks, setup.me),
            rules: Constant::new((setup.options.clone(), setup.bounds)),
            peers: setup.view.others(setup.me),
            request: holds,
            awaiting: NodeSet::new(),
            deferring: NodeSet::new(),
            deferred: Vec::new(),
            held_back: Vec::new(),
            fences: setup.fences(),
        }
    }

    fn handle(&mut self, input: Input<RaMessage, RaTimer>, out: &mut Out) {
        match input {
            Input::Acquire { mode, draw } => self.on_acquire(mode, draw, out),
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { from, message } => self.on_message(from, message, out),
            Input::Timeout(RaTimer::RoundTrip) => self.on_round_trip_timeout(out),
            Input::Timeout(RaTimer::HoldBack) => self.on_hold_back_timeout(out),
            Input::Timeout(RaTimer::NoteDeferral(node, number)) => self.record_deferral(node, number),
            Input::Timeout(RaTimer::NoteNumber(number)) => self.highest = self.later(self.highest, number),
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        let request = self.request.as_ref();
        let deferred = self.deferred.iter().map(|(node, _)| node);
        if self.rules.0.clock == Clock::Lamport {
            out.flag("waiting", request.is_some_and(|request| !request.inside));
            out.optional("Tr", request.map(|request| request.number));
            out.set("Ti()", self.highest);
            let replied = (0..self.peers.len()).filter(|peer| request.is_some() && !self.awaiting.contains(*peer));
            out.list("R", replied.map(|peer| self.peers[peer]));
            out.list("D", deferred);
        } else {
            out.flag("Requesting_Critical_Section", request.is_some());
            out.optional("Our_Sequence_Number", request.map(|request| request.number));
            out.set("Highest_Sequence_Number", self.highest);
            out.set("Outstanding_Reply_Count", self.awaiting.len());
            out.list("Awaiting_Reply", self.awaiting.iter().map(|peer| self.peers[peer]));
            out.list("Reply_Deferred", deferred);
        }
        if !self.deferring.is_empty() {
            out.list("DEFERRED from", self.deferring.iter().map(|peer| self.peers[peer]));
        }
        if !self.held_back.is_empty() {
            out.list("held back", self.held_back.iter().map(|(node, _)| node));
        }
        out.set("fence", self.fences.count());
    }

    fn is_idle(&self) -> bool {
        self.request.is_none() && self.deferred.is_empty() && self.held_back.is_empty()
    }

    /// A REPLY to a request that is over, with no number or fence that is new. Both only rise, so it stays moot.
    fn is_moot(&self, _: NodeId, message: &RaMessage) -> bool {
        let rules = self.rules();
        let only_rises = rules.clock == Clock::Sequence && rules.modulus.is_none() && rules.printed.is_empty();
        let RaMessage::Reply { answers, highest, fence } = message else { return false };
        let over = !self.is_waiting_for(*answers) && *answers <= self.highest;
        only_rises && over && *highest <= self.highest && *fence <= self.fences.count()
    }

    fn request_number(&self) -> Option<u64> {
        self.request.as_ref().map(|request| request.number)
    }

    fn highest_number(&self) -> u64 {
        self.highest
    }
}

impl Capabilities for RicartAgrawala {
    fn floor(&self) -> Option<Floor> {
        // Numbers that wrap have no highest one.
        self.rules().modulus.is_none().then_some(Floor { number: self.highest, fence: self.fences.count() })
    }

    fn raise_floor(&mut self, floor: Floor) {
        self.highest = self.highest.max(floor.number);
        self.fences.observe(floor.fence);
    }

    /// A random step is drawn again, so with `increment=random` the number may differ by one.
    fn number_floor(&self) -> Option<u64> {
        let (number, _) = self.waiting()?;
        let rules = self.rules();
        Some(match (rules.clock, rules.increment) {
            (Clock::Lamport, _) => (number / self.radix()).saturating_sub(1),
            (Clock::Sequence, Increment::Priority) => number.saturating_sub(rules.priority(self.me)),
            (Clock::Sequence, Increment::Unit | Increment::Random(_)) => number.saturating_sub(1),
        })
    }

    fn has_waiters(&self) -> bool {
        !self.deferred.is_empty()
    }

    fn forget_deferred(&mut self, from: NodeId) -> bool {
        let before = self.deferred.len();
        self.deferred.retain(|(node, _)| *node != from);
        self.deferred.len() < before
    }

    fn attempts(&self) -> Attempts {
        Attempts::Marked
    }

    fn missing_permissions(&self) -> Option<Vec<NodeId>> {
        Some(self.awaited())
    }
}

impl RicartAgrawala {
    /// 'Process which invokes mutual exclusion for this node', first half.
    fn on_acquire(&mut self, mode: Mode, draw: u32, out: &mut Out) {
        debug_assert!(self.request.is_none(), "the driver serialises local callers");
        let number = self.choose_number(draw);
        self.request = Some(Request { number, mode, inside: false });
        self.awaiting.fill(self.peers.len());
        self.deferring = NodeSet::new();
        if self.peers.is_empty() {
            return self.enter_if_granted(out);
        }
        out.push(Effect::Broadcast { message: RaMessage::Request { number, mode } });
        if self.rules().implicit {
            let transit_max = self.rules().transit_max.unwrap_or(self.rules.1.transit_max);
            let wait = Bounds { transit_max, ..self.rules.1 }.round_trip();
            out.push(Effect::SetTimer { timer: RaTimer::RoundTrip, after: Span::exactly(wait) });
        }
    }

    /// The same process, second half; also for a caller that gives up. Late REPLYs to its request name the number, so they
    /// never count for the next one.
    fn on_release(&mut self, out: &mut Out) {
        let Some(request) = self.request.take() else { return };
        // No REPLY is awaited any more. Clearing these makes states equal that differ only in what is over.
        self.awaiting.fill(0);
        self.deferring.fill(0);
        if self.rules().implicit && !request.inside {
            out.push(Effect::CancelTimer(RaTimer::RoundTrip));
        }
        if self.rules().printed.contains(Trap::NoReplyAfterDeferred) {
            self.deferred.clear(); // 'No REPLY message' in the slides: a deferred node waits forever.
        }
        if self.rules().release != Release::Unicast && !self.deferred.is_empty() {
            let listed = self.rules().release == Release::Broadcast;
            let list = if listed { self.deferred.as_slice().into() } else { Box::default() };
            self.deferred.clear();
            let message = RaMessage::ReplyAll { list, highest: self.stamp(), fence: self.fences.count() };
            return out.push(Effect::Broadcast { message });
        }
        // By index, so that the list keeps its memory, and `send_reply` still finds who was deferred.
        for index in 0..self.deferred.len() {
            let (node, number) = self.deferred[index];
            self.send_reply(node, number, out);
        }
        self.deferred.clear();
    }

    fn on_message(&mut self, from: NodeId, message: RaMessage, out: &mut Out) {
        match message {
            // No group counts that far. A peer that claims it is broken, and believing it would break this node as well.
            RaMessage::Request { number: mark, .. }
            | RaMessage::Reply { highest: mark, .. }
            | RaMessage::Deferred { highest: mark, .. }
            | RaMessage::ReplyAll { highest: mark, .. }
                if mark > NUMBER_MAX => {}
            RaMessage::Request { number, mode } => {
                if self.holds_back(from) {
                    return self.hold_back(from, message, out);
                }
                self.on_request(from, number, mode, out);
            }
            RaMessage::Reply { answers, highest, fence } => {
                self.observe(highest);
                self.on_reply(from, answers, fence, out);
            }
            RaMessage::Deferred { answers, highest } => {
                self.observe(highest);
                if let Some(position) = self.position(from).filter(|_| self.is_waiting_for(answers)) {
                    self.deferring.insert(position);
                }
            }
            RaMessage::ReplyAll { list, highest, fence } => {
                self.observe(highest);
                let unlisted = self.rules().release == Release::Unlisted;
                let mine = list.iter().find(|(node, _)| *node == self.me).map(|(_, number)| *number);
                // Footnote 2: without the list, every node that waits takes the REPLY to be its own.
                let answers = if unlisted { self.request.as_ref().map(|request| request.number) } else { mine };
                if let Some(answers) = answers {
                    self.on_reply(from, answers, fence, out);
                }
            }
        }
    }

    /// 'Process which receives REQUEST(k, j) messages', in one atomic step (T2, T3).
    fn on_request(&mut self, from: NodeId, number: u64, mode: Mode, out: &mut Out) {
        if self.rules().printed.contains(Trap::AtomicNumber) {
            out.push(Effect::SetTimer { timer: RaTimer::NoteNumber(number), after: Span { min: 0, max: u64::MAX } });
        } else {
            self.observe_request(number);
        }
        if !self.defers(from, number, mode) {
            return self.send_reply(from, number, out);
        }
        if self.rules().printed.contains(Trap::AtomicDeferral) {
            out.push(Effect::SetTimer {
                timer: RaTimer::NoteDeferral(from, number),
                after: Span { min: 0, max: u64::MAX },
            });
        } else {
            self.record_deferral(from, number);
        }
        if self.rules().implicit {
            let message = RaMessage::Deferred { answers: number, highest: self.stamp() };
            out.push(Effect::Send { to: from, message });
        }
    }

    /// The decision table: rules 3 and 5 defer, rules 1, 2 and 4 do not. Section 6.6: readers never defer readers.
    fn defers(&self, from: NodeId, number: u64, mode: Mode) -> bool {
        let Some(request) = &self.request else { return false };
        let we_come_first = if request.number == number { self.me < from } else { self.before(request.number, number) };
        we_come_first && mode.conflicts(request.mode)
    }

    /// 'Process which receives REPLY messages'.
    fn on_reply(&mut self, from: NodeId, answers: u64, fence: u64, out: &mut Out) {
        self.fences.observe(fence);
        if self.rules().printed.contains(Trap::CountedReplies) {
            // As printed (T6): counts every REPLY, from any sender and to any request.
            let any = self.awaiting.iter().next();
            if let Some(any) = any {
                self.awaiting.remove(any);
            }
            return self.enter_if_granted(out);
        }
        let Some(position) = self.position(from) else { return };
        if self.is_waiting_for(answers) && self.awaiting.remove(position) {
            self.enter_if_granted(out);
        }
    }

    fn on_round_trip_timeout(&mut self, out: &mut Out) {
        for position in 0..self.peers.len() {
            if !self.deferring.contains(position) {
                self.awaiting.remove(position);
            }
        }
        self.enter_if_granted(out);
    }

    fn on_hold_back_timeout(&mut self, out: &mut Out) {
        for (from, message) in std::mem::take(&mut self.held_back) {
            let RaMessage::Request { number, mode } = message else { continue };
            self.on_request(from, number, mode, out);
        }
    }

    fn enter_if_granted(&mut self, out: &mut Out) {
        if !self.awaiting.is_empty() {
            return;
        }
        let Some(request) = self.request.as_mut().filter(|request| !request.inside) else { return };
        let fence = match self.rules.0.fence {
            FenceRule::Replies => self.fences.next(request.mode),
            FenceRule::Ticket => {
                let rank = self.peers.partition_point(|peer| *peer < self.me) as u64;
                Fence::compose(self.fences.epoch(), request.number * (self.peers.len() as u64 + 1) + rank + 1)
            }
            FenceRule::Name => ticket(request.number, self.me),
            FenceRule::Off => Some(Fence::new(1)),
        };
        let Some(fence) = fence else { return };
        request.inside = true;
        if self.rules().clock == Clock::Lamport {
            self.highest += 1;
        }
        if self.rules().implicit {
            out.push(Effect::CancelTimer(RaTimer::RoundTrip));
        }
        out.push(Effect::Enter { fence });
    }

    fn send_reply(&mut self, to: NodeId, answers: u64, out: &mut Out) {
        if self.rules().implicit && !self.deferred.iter().any(|(node, number)| (*node, *number) == (to, answers)) {
            return; // Section 6.1: silence is permission. Only a node that got DEFERRED needs the REPLY.
        }
        let message = RaMessage::Reply { answers, highest: self.stamp(), fence: self.fences.count() };
        out.push(Effect::Send { to, message });
    }

    fn record_deferral(&mut self, from: NodeId, number: u64) {
        match self.deferred.binary_search_by_key(&from, |(node, _)| *node) {
            // A REQUEST that was repeated, or overtaken by its successor: the newest is the one that waits.
            Ok(position) => self.deferred[position].1 = self.later(self.deferred[position].1, number),
            Err(position) => self.deferred.insert(position, (from, number)),
        }
    }

    /// Section 6.5: a node of higher priority may delay the handling of a REQUEST while it asks itself, for a bounded time
    /// (T14).
    fn holds_back(&self, from: NodeId) -> bool {
        let rules = self.rules();
        rules.hold_back.is_some() && self.request.is_some() && rules.priority(self.me) < rules.priority(from)
    }

    fn hold_back(&mut self, from: NodeId, message: RaMessage, out: &mut Out) {
        if self.held_back.is_empty() {
            let after = Span::exactly(self.rules().hold_back.unwrap_or(0));
            out.push(Effect::SetTimer { timer: RaTimer::HoldBack, after });
        }
        match self.held_back.iter_mut().find(|(node, _)| *node == from) {
            // After a cancellation an older REQUEST may come later: the newest is the one that waits.
            Some((_, held)) => *held = held.clone().max(message),
            None => self.held_back.push((from, message)),
        }
    }

    fn rules(&self) -> &Rules {
        &self.rules.0
    }

    fn position(&self, node: NodeId) -> Option<usize> {
        self.peers.binary_search(&node).ok()
    }

    fn is_waiting_for(&self, number: u64) -> bool {
        self.request.as_ref().is_some_and(|request| request.number == number && !request.inside)
    }
}

/// What section 7 needs of the algorithm: a list of participants that changes while it runs.
impl RicartAgrawala {
    /// Adds a node to the list. A request that is outstanding does not wait for it.
    fn add_peer(&mut self, node: NodeId) {
        if let Err(position) = self.peers.binary_search(&node) {
            let mut peers = self.peers.to_vec();
            peers.insert(position, node);
            self.replace_peers(peers);
        }
    }

    /// Removes a node from the list. 'Any node which is awaiting a REPLY message from the failed node should pretend that a
    /// REPLY was received.'
    fn remove_peer(&mut self, node: NodeId, out: &mut Out) {
        self.replace_peers(self.peers.iter().copied().filter(|peer| *peer != node).collect());
        self.deferred.retain(|(peer, _)| *peer != node);
        self.held_back.retain(|(peer, _)| *peer != node);
        self.enter_if_granted(out);
    }

    fn replace_peers(&mut self, peers: Vec<NodeId>) {
        let awaited = self.awaited();
        self.peers = peers.into();
        self.awaiting = NodeSet::new();
        for node in awaited {
            if let Some(position) = self.position(node) {
                self.awaiting.insert(position);
            }
        }
    }

    /// The nodes whose REPLY is outstanding: the paper's `Awaiting_Reply`.
    fn awaited(&self) -> Vec<NodeId> {
        self.awaiting.iter().map(|position| self.peers[position]).collect()
    }

    /// The request that waits, if one does.
    fn waiting(&self) -> Option<(u64, Mode)> {
        self.request.as_ref().filter(|request| !request.inside).map(|request| (request.number, request.mode))
    }
}

/// Numbers: sections 6.4 and 6.5, and the Lamport clocks of the Carnegie Mellon notes.
impl RicartAgrawala {
    fn choose_number(&mut self, draw: u32) -> u64 {
        if self.rules().clock == Clock::Lamport {
            return self.stamp();
        }
        let step = match self.rules().increment {
            Increment::Unit => 1,
            Increment::Random(k) => 1 + u64::from(draw % k),
            Increment::Priority => self.rules().priority(self.me),
        };
        let number = self.highest + step;
        let number = self.rules().modulus.map_or(number, |modulus| number % modulus);
        if !self.rules().printed.contains(Trap::OwnNumber) {
            self.highest = number;
        }
        number
    }

    /// True if number `a` comes before `b`. Modulo: 'the smaller number should be increased by M if the difference is N or more'.
    fn before(&self, a: u64, b: u64) -> bool {
        match self.rules().modulus {
            Some(_) if a.abs_diff(b) > self.peers.len() as u64 => a > b,
            _ => a < b,
        }
    }

    fn later(&self, a: u64, b: u64) -> u64 {
        if self.before(a, b) { b } else { a }
    }

    /// Takes note of the number of a received REQUEST.
    fn observe_request(&mut self, number: u64) {
        match self.rules().clock {
            Clock::Sequence => self.highest = self.later(self.highest, number),
            Clock::Lamport => self.observe(number),
        }
    }

    /// Takes note of the number that any other message carries, if it carries one.
    fn observe(&mut self, stamp: u64) {
        match self.rules().clock {
            Clock::Sequence if self.rules().reply_number => self.highest = self.highest.max(stamp),
            Clock::Sequence => {}
            Clock::Lamport => self.highest = self.highest.max(stamp / self.radix()) + 1,
        }
    }

    /// The number that every message carries: the highest one known (T13), or the Lamport time at which it is sent.
    fn stamp(&mut self) -> u64 {
        match self.rules().clock {
            Clock::Sequence if self.rules().reply_number => self.highest,
            Clock::Sequence => 0,
            Clock::Lamport => {
                self.highest += 1;
                self.highest * self.radix() + u64::from(self.me.0)
            }
        }
    }

    /// 10 in the notes, where process numbers have one digit; in general a power of ten above the largest id.
    fn radix(&self) -> u64 {
        let largest = self.peers.last().map_or(self.me, |peer| self.me.max(*peer));
        10u64.pow(largest.0.checked_ilog10().map_or(1, |digits| digits + 1))
    }
}

/// No sequence number is higher, so that adding to one never overflows.
const NUMBER_MAX: u64 = 1 << 62;

/// A fence from a request's own number and node; `None` at its end.
fn ticket(number: u64, node: NodeId) -> Option<Fence> {
    (number < 1 << 31).then(|| Fence::new(number << 32 | u64::from(node.0)))
}
