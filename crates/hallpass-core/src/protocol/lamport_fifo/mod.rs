//! Lamport, 'Time, Clocks, and the Ordering of Events in a Distributed System', 1978: the algorithm as first published, for
//! links that keep order. It is the 'initial version' of the Carnegie Mellon notes.
//!
//! Its five rules, by number in the code:
//!
//! 1. To ask, a node sends REQUEST(T) to all others and puts it on its own queue.
//! 2. A node that receives it puts it on its queue and acknowledges with a timestamped REPLY, always at once.
//! 3. To leave, a node removes the request from its queue and sends RELEASE to all.
//! 4. A node that receives the RELEASE removes the request.
//! 5. A node enters once its own request is before all others in its queue, and a message with a later timestamp has come
//!    from every other node.
//!
//! An entry costs 3(N-1) messages. Rule 5 relies on order: a message with a timestamp later than T proves that no earlier
//! REQUEST of its sender is still in flight. So a REQUEST that is lost or overtaken lets two nodes in. `links=any` drops
//! the requirement, to show that.
//!
//! Where this differs from the paper:
//!
//! - A caller may give up, which is rule 3 before it has entered. A REPLY to the request that was given up does not count
//!   for a later one, whatever its timestamp.
//! - The clock ticks at requests and is set past the time of every REQUEST received, which is all that rule 5 compares.
//! - RELEASE carries the largest fence known, and an entry takes it plus one.
//! - Readers are not known to the paper: a shared request is served as an exclusive one.

mod message;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::protocol::{
    Capabilities, Effect, Effects, Floor, Input, Needs, NoTimer, OptionError, Options, Protocol, Variables,
};
use crate::{FenceCounter, Mode, NodeId, NodeSet, Setup};

pub use message::LamportFifoMessage;

/// One node's part of the algorithm.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LamportFifo {
    me: NodeId,
    peers: Arc<[NodeId]>,
    clock: u64,
    /// The time of the local request, and whether it has entered.
    request: Option<(u64, bool)>,
    /// The 'request queue', the earliest first.
    queue: Vec<(u64, NodeId)>,
    /// Positions in `peers` from which a message has come with a later timestamp than the local request. Only messages
    /// since the request count: it is later than all that came before.
    heard_later: NodeSet,
    /// The time of the latest REQUEST from each peer, so that a copy is not put on the queue again.
    latest: Vec<u64>,
    fences: FenceCounter,
}

/// The options of [`LamportFifo`].
#[derive(Clone, Debug)]
pub struct LamportFifoRules {
    any_order: bool,
}

type Out = Effects<LamportFifoMessage, NoTimer>;

/// No clock is higher, so that adding to one never overflows.
const TIME_MAX: u64 = 1 << 62;

impl Protocol for LamportFifo {
    type Message = LamportFifoMessage;
    type Timer = NoTimer;
    type Options = LamportFifoRules;

    fn parse(options: &Options) -> Result<LamportFifoRules, OptionError> {
        let mut parsed = options.read("lamport-fifo");
        let any_order = parsed.choice("links", &[("fifo", false), ("any", true)])?;
        parsed.finish()?;
        Ok(LamportFifoRules { any_order })
    }

    fn needs(rules: &LamportFifoRules) -> Needs {
        let lost =
            "lamport-fifo takes a later message for proof that all earlier ones came: a lost REQUEST lets two inside";
        let strict = !rules.any_order;
        Needs {
            fifo: strict.then_some("lamport-fifo"),
            no_loss: strict.then_some(lost),
            lab_only: rules.any_order.then_some("lets two inside with links=any"),
            ..Needs::default()
        }
    }

    fn new(setup: &Setup<'_, LamportFifoRules>) -> Self {
        let peers = setup.view.others(setup.me);
        // Time 0 comes before every request of this view, so all of them wait for the initial holders.
        let mut queue: Vec<_> = setup.initial.holders.iter().map(|node| (0, *node)).collect();
        queue.sort_unstable();
        Self {
            me: setup.me,
            clock: 0,
            request: setup.initial.held_by(setup.me).map(|_| (0, true)),
            queue,
            heard_later: NodeSet::new(),
            latest: vec![0; peers.len()],
            peers,
            fences: setup.fences(),
        }
    }

    fn handle(&mut self, input: Input<LamportFifoMessage, NoTimer>, out: &mut Out) {
        match input {
            Input::Acquire { .. } => self.on_acquire(out),
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { from, message } => {
                if let Ok(from) = self.peers.binary_search(&from)
                    && message.timestamp() <= TIME_MAX
                {
                    self.on_message(from, message, out);
                    self.enter_if_first(out);
                }
            }
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        out.set("clock", self.clock);
        out.optional("own request", self.request.map(|(time, _)| time));
        out.list("request queue", self.queue.iter().map(|(time, node)| format!("{time}:{node}")));
        out.list("later message from", self.heard_later.iter().map(|peer| self.peers[peer]));
        out.set("fence", self.fences.count());
    }

    /// The clock must be remembered once it has moved.
    fn is_idle(&self) -> bool {
        self.request.is_none() && self.queue.is_empty() && self.clock == 0
    }

    /// A REPLY to a request that is over. Clocks only rise, so it stays moot.
    fn is_moot(&self, _: NodeId, message: &LamportFifoMessage) -> bool {
        let LamportFifoMessage::Reply { answers, clock } = *message else { return false };
        let waited_for = self.request == Some((answers, false));
        answers <= self.clock && clock <= self.clock && !waited_for
    }

    fn request_number(&self) -> Option<u64> {
        self.request.map(|(time, _)| time)
    }

    fn highest_number(&self) -> u64 {
        self.clock
    }
}

impl Capabilities for LamportFifo {
    fn raise_floor(&mut self, floor: Floor) {
        self.clock = self.clock.max(floor.number);
        self.fences.observe(floor.fence);
    }

    fn number_floor(&self) -> Option<u64> {
        self.request.filter(|(_, inside)| !inside).map(|(time, _)| time - 1)
    }
}

impl LamportFifo {
    /// Rule 1.
    fn on_acquire(&mut self, out: &mut Out) {
        debug_assert!(self.request.is_none(), "the driver serialises local callers");
        self.clock += 1;
        self.request = Some((self.clock, false));
        self.enqueue(self.clock, self.me);
        if !self.peers.is_empty() {
            out.push(Effect::Broadcast { message: LamportFifoMessage::Request { time: self.clock } });
        }
        self.enter_if_first(out);
    }

    /// Rule 3, or the caller gives up.
    fn on_release(&mut self, out: &mut Out) {
        let Some((time, _)) = self.request.take() else { return };
        self.heard_later = NodeSet::new();
        self.dequeue(time, self.me);
        if !self.peers.is_empty() {
            let message = LamportFifoMessage::Release { time, clock: self.clock, fence: self.fences.count() };
            out.push(Effect::Broadcast { message });
        }
    }

    fn on_message(&mut self, from: usize, message: LamportFifoMessage, out: &mut Out) {
        let (timestamp, node) = (message.timestamp(), self.peers[from]);
        self.clock = self.clock.max(timestamp);
        if let Some((time, false)) = self.request {
            let is_late = matches!(message, LamportFifoMessage::Reply { answers, .. } if answers != time);
            if (timestamp, node) > (time, self.me) && !is_late {
                self.heard_later.insert(from);
            }
        }
        match message {
            // Rule 2.
            LamportFifoMessage::Request { time } if time > self.latest[from] => {
                self.latest[from] = time;
                // A node waits with one request at a time, so one entry a peer bounds the queue.
                self.queue.retain(|(_, other)| *other != node);
                self.enqueue(time, node);
                self.clock = self.clock.max(time + 1);
                let message = LamportFifoMessage::Reply { answers: time, clock: self.clock };
                out.push(Effect::Send { to: node, message });
            }
            LamportFifoMessage::Request { .. } | LamportFifoMessage::Reply { .. } => {}
            // Rule 4.
            LamportFifoMessage::Release { time, fence, .. } => {
                self.dequeue(time, node);
                self.fences.observe(fence);
            }
        }
    }

    /// Rule 5.
    fn enter_if_first(&mut self, out: &mut Out) {
        let Some((time, false)) = self.request else { return };
        let first = self.queue.first() == Some(&(time, self.me));
        let heard_all = self.heard_later.len() == self.peers.len();
        if first
            && heard_all
            && let Some(fence) = self.fences.next(Mode::Exclusive)
        {
            self.heard_later = NodeSet::new();
            self.request = Some((time, true));
            out.push(Effect::Enter { fence });
        }
    }

    fn enqueue(&mut self, time: u64, node: NodeId) {
        let position = self.queue.partition_point(|entry| *entry < (time, node));
        self.queue.insert(position, (time, node));
    }

    fn dequeue(&mut self, time: u64, node: NodeId) {
        self.queue.retain(|entry| *entry != (time, node));
    }
}
