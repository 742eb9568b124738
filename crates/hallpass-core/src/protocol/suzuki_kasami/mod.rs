//! Suzuki and Kasami, 'A Distributed Mutual Exclusion Algorithm', 1985: a token that carries the queue.
//!
//! The node that has the TOKEN may enter. A node without it sends REQUEST(n) to all others, where n counts its own
//! requests. Every node keeps `RN`, the highest number of each node's REQUESTs. The TOKEN carries `LN`, the number of
//! each node's last request that was served, and the queue `Q`. A node that leaves appends every node with an
//! outstanding request (`RN > LN`) that is not in the queue yet, and sends the TOKEN to the first in the queue.
//!
//! An entry costs 0 messages where the token is, and N elsewhere. A node in the queue is served before all that ask later.
//!
//! Where this differs from the published text:
//!
//! - `RN = LN + 1` is `RN > LN` here, since a caller may give up and ask again.
//! - The TOKEN counts its hops: one that has been here before is a copy, and is dropped (T20).
//! - The TOKEN counts the entries: that is the fence.
//! - A node that restarts numbers its requests above those of its former incarnations (T21).
//! - Readers are not known to the algorithm: a shared request is served as an exclusive one.

mod message;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::protocol::{
    Caller, Capabilities, Effect, Effects, Input, Needs, NoTimer, OptionError, Options, Protocol, Variables,
};
use crate::{Fence, FenceCounter, Mode, NodeId, Setup};

pub use message::SuzukiKasamiMessage;

/// One node's part of the algorithm.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SuzukiKasami {
    /// This node's position in `members`. Other nodes are positions, too.
    me: usize,
    members: Arc<[NodeId]>,
    /// `RN`: the highest number of each node's REQUESTs, this node's included.
    requested: Vec<u64>,
    caller: Caller,
    token: Option<Token>,
    /// The hop on which the token was last here.
    hop: u64,
    epoch: u64,
    /// An input has come, so a fresh instance cannot replace this one.
    touched: bool,
}

/// The token while it is here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Token {
    /// `LN`: the number of each node's last request that was served.
    served: Box<[u64]>,
    /// `Q`: the nodes that get the token next, each at most once.
    queue: Vec<NodeId>,
    fences: FenceCounter,
}

type Out = Effects<SuzukiKasamiMessage, NoTimer>;

/// No group counts that far. A peer that claims it is broken, and believing it would make additions overflow.
const NUMBER_MAX: u64 = u64::MAX >> 1;

impl Protocol for SuzukiKasami {
    type Message = SuzukiKasamiMessage;
    type Timer = NoTimer;
    type Options = ();

    fn parse(options: &Options) -> Result<(), OptionError> {
        let mut parsed = options.read("suzuki-kasami");
        parsed.as_printed(&[])?;
        parsed.finish()
    }

    fn needs(_: &()) -> Needs {
        Needs { one_holder: true, ..Needs::default() }
    }

    fn new(setup: &Setup<'_, ()>) -> Self {
        let members = setup.view.shared_members();
        // The token is with the holder. There is only one, since this algorithm lets no two nodes in, shared or not.
        let holder = setup.initial.holders.first().copied();
        let has_token = holder.or(members.first().copied()) == Some(setup.me);
        let fences = setup.fences();
        let token = Token { served: vec![0; members.len()].into(), queue: Vec::new(), fences };
        let me = members.partition_point(|node| *node < setup.me);
        let mut requested = vec![0; members.len()];
        // T21: every incarnation has two thousand million numbers of its own.
        requested[me] = u64::from(setup.incarnation) << 31;
        Self {
            me,
            requested,
            caller: if holder == Some(setup.me) { Caller::Inside } else { Caller::Nobody },
            token: has_token.then_some(token),
            hop: 0,
            epoch: setup.view.epoch(),
            touched: false,
            members,
        }
    }

    fn handle(&mut self, input: Input<SuzukiKasamiMessage, NoTimer>, out: &mut Out) {
        self.touched = true;
        match input {
            Input::Acquire { .. } => self.on_acquire(out),
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { from, message } => {
                if let Some(from) = self.position(from) {
                    self.on_message(from, message, out);
                }
            }
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        out.flag("Requesting", self.caller != Caller::Nobody);
        out.flag("HavePrivilege", self.token.is_some());
        out.array("RN", &self.members, &self.requested);
        if let Some(token) = &self.token {
            out.array("LN", &self.members, &token.served);
            out.list("Q", &token.queue);
            out.set("fence", token.fences.count());
        }
    }

    /// Where the token is must not be forgotten: a fresh instance would make a second one.
    fn is_idle(&self) -> bool {
        !self.touched && self.caller == Caller::Nobody
    }

    /// A REQUEST that is known, or a TOKEN that has been here. Numbers and hops only rise, so it stays moot.
    fn is_moot(&self, from: NodeId, message: &SuzukiKasamiMessage) -> bool {
        match message {
            SuzukiKasamiMessage::Request { number } => {
                self.position(from).is_some_and(|from| *number <= self.requested[from])
            }
            SuzukiKasamiMessage::Token { hop, .. } => *hop <= self.hop,
        }
    }

    fn request_number(&self) -> Option<u64> {
        (self.caller != Caller::Nobody).then(|| self.requested[self.me])
    }
}

impl Capabilities for SuzukiKasami {
    fn is_cached(&self) -> bool {
        self.token.is_some()
    }
}

impl SuzukiKasami {
    fn on_acquire(&mut self, out: &mut Out) {
        debug_assert!(self.caller == Caller::Nobody, "the driver serialises local callers");
        self.caller = Caller::Waiting;
        if self.token.is_some() {
            return self.enter(out);
        }
        self.requested[self.me] += 1;
        out.push(Effect::Broadcast { message: SuzukiKasamiMessage::Request { number: self.requested[self.me] } });
    }

    /// The caller leaves or gives up. In the second case the token still comes, and goes on.
    fn on_release(&mut self, out: &mut Out) {
        self.caller = Caller::Nobody;
        self.pass_on(out);
    }

    fn on_message(&mut self, from: usize, message: SuzukiKasamiMessage, out: &mut Out) {
        match message {
            SuzukiKasamiMessage::Request { number } => {
                if number <= NUMBER_MAX && from != self.me {
                    self.on_request(from, number, out);
                }
            }
            SuzukiKasamiMessage::Token { epoch, hop, served, queue, fence } => {
                let is_fresh = epoch == self.epoch && hop > self.hop;
                let is_sound = hop <= NUMBER_MAX && fence <= Fence::COUNT_MAX && self.fits(&served, &queue);
                if is_fresh && is_sound {
                    self.on_token(hop, Token { served, queue, fences: FenceCounter::new(epoch, fence) }, out);
                }
            }
        }
    }

    fn on_request(&mut self, from: usize, number: u64, out: &mut Out) {
        self.requested[from] = self.requested[from].max(number);
        self.pass_on(out);
    }

    fn on_token(&mut self, hop: u64, token: Token, out: &mut Out) {
        self.hop = hop;
        self.token = Some(token);
        match self.caller {
            Caller::Waiting => self.enter(out),
            Caller::Nobody => self.pass_on(out),
            Caller::Inside => {}
        }
    }

    fn enter(&mut self, out: &mut Out) {
        let Some(token) = &mut self.token else { return };
        if let Some(fence) = token.fences.next(Mode::Exclusive) {
            self.caller = Caller::Inside;
            out.push(Effect::Enter { fence });
        }
    }

    /// Sends the token to the first in the queue, if it is here and not in use.
    fn pass_on(&mut self, out: &mut Out) {
        if self.caller != Caller::Nobody {
            return;
        }
        let Some(token) = &mut self.token else { return };
        token.served[self.me] = self.requested[self.me];
        for (position, node) in self.members.iter().enumerate() {
            if self.requested[position] > token.served[position] && !token.queue.contains(node) {
                token.queue.push(*node);
            }
        }
        let Some(Token { served, mut queue, fences }) = self.token.take_if(|token| !token.queue.is_empty()) else {
            return;
        };
        let to = queue.remove(0);
        self.hop += 1;
        let (epoch, hop, fence) = (self.epoch, self.hop, fences.count());
        out.push(Effect::Send { to, message: SuzukiKasamiMessage::Token { epoch, hop, served, queue, fence } });
    }

    /// True if a token has a number for each member and queues members only. One from a broken peer is refused whole.
    fn fits(&self, served: &[u64], queue: &[NodeId]) -> bool {
        let is_member = |node: &NodeId| self.position(*node).is_some();
        served.len() == self.members.len() && queue.len() <= self.members.len() && queue.iter().all(is_member)
    }

    fn position(&self, node: NodeId) -> Option<usize> {
        self.members.binary_search(&node).ok()
    }
}
