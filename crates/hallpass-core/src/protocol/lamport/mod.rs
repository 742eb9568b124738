//! Lamport's mutual exclusion (1978) in the version of Bryant's 'Notes on Distributed Mutual Exclusion' (Carnegie Mellon,
//! 15-440, 2012), which does not assume that links keep order.
//!
//! Every node keeps a replica of one queue of requests, ordered by timestamp. A node that asks to enter sends REQUEST(T) to
//! all others. It enters once each has sent a REPLY and its own request is at the head of its queue. When it leaves, it
//! sends RELEASE to all. An entry costs 3(N-1) messages.
//!
//! A REPLY from y tells x that x's queue holds every request of y with an earlier timestamp. So y replies at once if
//!
//! - A: it is not waiting, or
//! - B: x has already replied to y's request, and so has it in its queue, or
//! - C: y's own request is later than x's,
//!
//! and defers its REPLY otherwise, until x has replied to it. Else x could 'jump the gun' while y's earlier REQUEST is still
//! in flight.
//!
//! Where this differs from the printed text:
//!
//! - **T23**: RELEASE(T) removes exactly the request it names. 'Pop top element' is right as long as every RELEASE follows an
//!   entry, since entries come in the order of the queue; a caller that gives up releases from the middle, and a RELEASE that
//!   comes twice pops two.
//! - **T24**: a request calls Check() itself, or a node that is alone never enters. Check() tests `waiting`, or a node that
//!   is inside enters again. REPLY and RELEASE carry timestamps as REQUEST does.
//! - REPLYs name the request they answer. A REQUEST also ends earlier requests of its sender, so that the queue holds one
//!   request of each node, whatever the order of messages.
//! - The clock ticks at requests only, since only they are compared.
//! - Readers are not known to the notes: a shared request is served as an exclusive one.
//!
//! Fences: an entry takes the largest known plus one. A node knows it in time, since it enters only after it has received
//! the RELEASE, or a later REQUEST, of every node that entered before, and both carry it.

mod message;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::protocol::constant::Constant;
use crate::protocol::{
    Caller, Capabilities, Effect, Effects, Floor, Input, Needs, NoTimer, OptionError, Options, Protocol, Trap, TrapSet,
    Variables,
};
use crate::{FenceCounter, Mode, NodeId, NodeSet, Setup};

pub use message::LamportMessage;

/// One node's part of the algorithm.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lamport {
    me: NodeId,
    rules: Constant<LamportRules>,
    /// `Ni`, in rising order.
    peers: Arc<[NodeId]>,
    /// `Ti()`: the highest time of any request known.
    clock: u64,
    caller: Caller,
    /// `Tr`: the time of the pending local request.
    time: u64,
    /// `Q`, the earliest request first, one of each node.
    queue: Vec<(u64, NodeId)>,
    /// `R`: positions in `peers` that have replied to the pending request.
    replied: NodeSet,
    /// `D`: positions in `peers` whose latest request waits for a deferred REPLY.
    deferred: NodeSet,
    /// The time of each peer's latest request, known by its REQUEST or its RELEASE. Older requests are over.
    latest: Vec<u64>,
    fences: FenceCounter,
}

/// The options of [`Lamport`].
#[derive(Clone, Debug)]
pub struct LamportRules {
    printed: TrapSet,
}

type Out = Effects<LamportMessage, NoTimer>;

/// No clock is higher, so that adding to one never overflows.
const TIME_MAX: u64 = 1 << 62;

impl Protocol for Lamport {
    type Message = LamportMessage;
    type Timer = NoTimer;
    type Options = LamportRules;

    fn parse(options: &Options) -> Result<LamportRules, OptionError> {
        let mut parsed = options.read("lamport");
        let printed = parsed.as_printed(&[Trap::PopTop, Trap::UncheckedWaiting])?;
        parsed.finish()?;
        Ok(LamportRules { printed })
    }

    fn needs(_: &LamportRules) -> Needs {
        Needs::default()
    }

    fn new(setup: &Setup<'_, LamportRules>) -> Self {
        let peers = setup.view.others(setup.me);
        // Time 0 comes before every request of this view, so all of them wait for the initial holders.
        let mut queue: Vec<_> = setup.initial.holders.iter().map(|node| (0, *node)).collect();
        queue.sort_unstable();
        Self {
            me: setup.me,
            rules: Constant::new(setup.options.clone()),
            clock: 0,
            caller: if setup.initial.held_by(setup.me).is_some() { Caller::Inside } else { Caller::Nobody },
            time: 0,
            queue,
            replied: NodeSet::new(),
            deferred: NodeSet::new(),
            latest: vec![0; peers.len()],
            peers,
            fences: setup.fences(),
        }
    }

    fn handle(&mut self, input: Input<LamportMessage, NoTimer>, out: &mut Out) {
        match input {
            Input::Acquire { .. } => self.on_acquire(out),
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { from, message } => {
                if let Ok(from) = self.peers.binary_search(&from) {
                    self.on_message(from, message, out);
                }
            }
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        out.set("Ti()", self.clock);
        out.flag("waiting", self.caller == Caller::Waiting);
        out.optional("Tr", (self.caller != Caller::Nobody).then_some(self.time));
        out.list("Q", self.queue.iter().map(|(time, node)| format!("{time}:{node}")));
        out.list("R", self.replied.iter().map(|peer| self.peers[peer]));
        out.list("D", self.deferred.iter().map(|peer| self.peers[peer]));
        out.set("fence", self.fences.count());
    }

    /// The clock must be remembered, or peers would take the next request for an old one.
    fn is_idle(&self) -> bool {
        self.caller == Caller::Nobody && self.clock == 0 && self.queue.is_empty()
    }

    /// A message about a request that is over, with no clock or fence that is new. Both only rise, so it stays moot.
    fn is_moot(&self, from: NodeId, message: &LamportMessage) -> bool {
        let Ok(from) = self.peers.binary_search(&from) else { return true };
        if !self.rules.printed.is_empty() {
            return false;
        }
        match *message {
            LamportMessage::Request { time, fence } => time <= self.latest[from] && fence <= self.fences.count(),
            LamportMessage::Reply { answers, clock } => {
                let is_awaited = self.is_waiting() && self.time == answers && !self.replied.contains(from);
                answers <= self.clock && !is_awaited && clock <= self.clock
            }
            LamportMessage::Release { time, clock, fence } => {
                let latest = (self.latest[from], self.peers[from]);
                let over = time < latest.0 || (time == latest.0 && !self.queue.contains(&latest));
                over && clock <= self.clock && fence <= self.fences.count()
            }
        }
    }

    fn request_number(&self) -> Option<u64> {
        (self.caller != Caller::Nobody).then_some(self.time)
    }

    fn highest_number(&self) -> u64 {
        self.clock
    }
}

impl Capabilities for Lamport {
    fn raise_floor(&mut self, floor: Floor) {
        self.observe(floor.number, floor.fence);
    }

    fn number_floor(&self) -> Option<u64> {
        self.is_waiting().then(|| self.time - 1)
    }

    /// The nodes that have not replied, or that asked before and have not left.
    fn missing_permissions(&self) -> Option<Vec<NodeId>> {
        let own = (self.time, self.me);
        let blocks = |(position, node): &(usize, &NodeId)| {
            let earlier = self.queue.iter().any(|request| request.1 == **node && *request < own);
            earlier || !self.replied.contains(*position)
        };
        let peers = self.peers.iter().enumerate().filter(|_| self.is_waiting());
        Some(peers.filter(blocks).map(|(_, node)| *node).collect())
    }
}

impl Lamport {
    /// 'Request()'.
    fn on_acquire(&mut self, out: &mut Out) {
        debug_assert!(self.caller == Caller::Nobody, "the driver serialises local callers");
        self.clock += 1;
        self.time = self.clock;
        self.caller = Caller::Waiting;
        self.enqueue(self.time, self.me);
        if !self.peers.is_empty() {
            out.push(Effect::Broadcast {
                message: LamportMessage::Request { time: self.time, fence: self.fences.count() },
            });
        }
        if !self.printed(Trap::UncheckedWaiting) {
            self.enter_if_enabled(out);
        }
    }

    /// 'Release()', or the caller gives up. No request of this node is pending any more, so all deferred REPLYs go out (A).
    fn on_release(&mut self, out: &mut Out) {
        if std::mem::replace(&mut self.caller, Caller::Nobody) == Caller::Nobody {
            return;
        }
        if self.printed(Trap::PopTop) {
            self.pop_top();
        } else {
            self.queue.retain(|(_, node)| *node != self.me);
        }
        if !self.peers.is_empty() {
            let message =
                LamportMessage::Release { time: self.time, clock: self.timestamp(), fence: self.fences.count() };
            out.push(Effect::Broadcast { message });
        }
        self.replied = NodeSet::new();
        let deferred: Vec<usize> = self.deferred.iter().collect();
        deferred.into_iter().for_each(|to| self.send_reply(to, out));
    }

    fn on_message(&mut self, from: usize, message: LamportMessage, out: &mut Out) {
        match message {
            // No group counts that far. A peer that claims it is broken, and believing it would break this node as well.
            LamportMessage::Request { time: mark, .. }
            | LamportMessage::Reply { clock: mark, .. }
            | LamportMessage::Release { clock: mark, .. }
            | LamportMessage::Release { time: mark, .. }
                if mark > TIME_MAX => {}
            LamportMessage::Request { time, fence } => {
                self.observe(time, fence);
                self.on_request(from, time, out);
            }
            LamportMessage::Reply { answers, clock } => {
                self.observe(clock, 0);
                self.on_reply(from, answers, out);
            }
            LamportMessage::Release { time, clock, fence } => {
                self.observe(clock, fence);
                self.on_peer_release(from, time, out);
            }
        }
    }

    /// 'if m == (Request, j, T)'.
    fn on_request(&mut self, from: usize, time: u64, out: &mut Out) {
        if time <= self.latest[from] {
            return; // A copy, or it is over already.
        }
        self.latest[from] = time;
        let node = self.peers[from];
        let printed = !self.rules.printed.is_empty();
        if !printed {
            self.queue.retain(|(_, other)| *other != node);
        }
        self.enqueue(time, node);
        if self.is_waiting() && !self.replied.contains(from) && (self.time, self.me) < (time, node) {
            self.deferred.insert(from);
        } else {
            self.send_reply(from, out);
        }
        // An earlier request of this peer, which is over now, may have been in front of ours. As printed it stays there.
        if !printed {
            self.enter_if_enabled(out);
        }
    }

    /// 'else if m == (Reply, j)'.
    fn on_reply(&mut self, from: usize, answers: u64, out: &mut Out) {
        if self.caller == Caller::Nobody || answers != self.time {
            return; // It answers a request that was given up.
        }
        self.replied.insert(from);
        if self.deferred.contains(from) {
            self.send_reply(from, out);
        }
        self.enter_if_enabled(out);
    }

    /// 'else if m == (Release)'.
    fn on_peer_release(&mut self, from: usize, time: u64, out: &mut Out) {
        let node = self.peers[from];
        if self.printed(Trap::PopTop) {
            self.pop_top();
        } else {
            // An earlier request is over as well. As printed it waits for its own RELEASE.
            let printed = self.printed(Trap::UncheckedWaiting);
            let stays = |known: u64| known > time || (printed && known != time);
            self.queue.retain(|(known, other)| *other != node || stays(*known));
        }
        if time >= self.latest[from] {
            self.latest[from] = time;
            self.deferred.remove(from);
        }
        self.enter_if_enabled(out);
    }

    /// 'Check to see if i is now enabled.'
    fn enter_if_enabled(&mut self, out: &mut Out) {
        let first = self.queue.first() == Some(&(self.time, self.me));
        let wants = self.is_waiting() || (self.printed(Trap::UncheckedWaiting) && self.caller == Caller::Inside);
        if !wants || !first || self.replied.len() < self.peers.len() {
            return;
        }
        let Some(fence) = self.fences.next(Mode::Exclusive) else { return };
        self.caller = Caller::Inside;
        out.push(Effect::Enter { fence });
    }

    fn send_reply(&mut self, to: usize, out: &mut Out) {
        self.deferred.remove(to);
        let message = LamportMessage::Reply { answers: self.latest[to], clock: self.timestamp() };
        out.push(Effect::Send { to: self.peers[to], message });
    }

    fn observe(&mut self, clock: u64, fence: u64) {
        self.clock = self.clock.max(clock);
        self.fences.observe(fence);
    }

    /// The timestamp of a REPLY or RELEASE; as printed (T24), none.
    fn timestamp(&self) -> u64 {
        if self.printed(Trap::UncheckedWaiting) { 0 } else { self.clock }
    }

    fn enqueue(&mut self, time: u64, node: NodeId) {
        let position = self.queue.partition_point(|entry| *entry < (time, node));
        self.queue.insert(position, (time, node));
    }

    /// As printed (T23): removes the earliest request, whichever it is.
    fn pop_top(&mut self) {
        if !self.queue.is_empty() {
            self.queue.remove(0);
        }
    }

    fn printed(&self, trap: Trap) -> bool {
        self.rules.printed.contains(trap)
    }

    fn is_waiting(&self) -> bool {
        self.caller == Caller::Waiting
    }
}
