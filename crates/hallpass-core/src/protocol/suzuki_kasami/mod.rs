//! Suzuki and Kasami, 'A Distributed Mutual Exclusion Algorithm', 1985: a token that carries the queue.
//!
//! A node without the token sends REQUEST(n) to all others; `RN` is the highest number each has asked with. The TOKEN
//! carries `LN`, the number each was last served with, and the queue `Q`. Whoever leaves adds to the queue every node that
//! has asked since (`RN > LN`) and is not in it, and sends the TOKEN to the first. 0 messages for the holder, N for
//! everybody else, and unlike a cyclic scan whoever is in the queue is served before all who come later.
//!
//! Departures from the published text: `RN = LN + 1` there is `RN > LN` here, since a caller may give up and ask again; the
//! TOKEN counts its hops, so that a copy of it is none, and the entries (its fence). Shared requests are served as exclusive.

mod message;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::protocol::{Caller, Capabilities, Effect, Effects, Input, Needs, NoTimer, OptionError, Options, Protocol};
use crate::{Fence, FenceCounter, Mode, NodeId, Setup};

pub use message::SuzukiKasamiMessage;

/// One node's part of the algorithm.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SuzukiKasami {
    /// This node, as a position in `members`.
    at: usize,
    members: Arc<[NodeId]>,
    /// `RN`: the highest number each node has asked with, this one included.
    asked: Vec<u64>,
    caller: Caller,
    token: Option<Token>,
    /// The hop on which the token was here last: a TOKEN that is not beyond it is a copy.
    hop: u64,
    epoch: u64,
    /// Something has happened here that a fresh instance would not know.
    touched: bool,
}

/// The token while it is here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Token {
    /// `LN`: the number each node was last served with.
    served: Box<[u64]>,
    /// `Q`: who gets it next, each node at most once.
    queue: Vec<NodeId>,
    /// It counts the entries.
    fences: FenceCounter,
}

type Out = Effects<SuzukiKasamiMessage, NoTimer>;

/// No group counts that far: whoever says so is broken, and believing it would break everybody.
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
        Needs::default()
    }

    fn new(setup: &Setup<'_, ()>) -> Self {
        let members = setup.view.shared_members();
        // The token is with whoever holds the lock; this algorithm never lets two hold one, shared or not.
        let holder = setup.initial.holders.first().copied();
        let fences = FenceCounter::new(setup.view.epoch(), setup.initial.fence.count());
        let token = Token { served: vec![0; members.len()].into(), queue: Vec::new(), fences };
        let at = members.partition_point(|node| *node < setup.me);
        let mut asked = vec![0; members.len()];
        // A node that starts again asks with numbers that no peer remembers of its earlier lives (T21).
        asked[at] = u64::from(setup.incarnation) << 31;
        Self {
            at,
            asked,
            caller: if holder == Some(setup.me) { Caller::Inside } else { Caller::Nobody },
            token: (holder.or(members.first().copied()) == Some(setup.me)).then_some(token),
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
            Input::Cancel | Input::Release => {
                self.caller = Caller::Nobody;
                self.pass_on(out);
            }
            Input::Deliver { from, message } => {
                if let Ok(from) = self.members.binary_search(&from) {
                    self.on_message(from, message, out);
                }
            }
            Input::Timeout(_) | Input::Join { .. } | Input::Leave => {}
        }
    }

    /// The token, or where it is, must not be forgotten: a fresh instance would make a second one.
    fn is_idle(&self) -> bool {
        !self.touched && self.caller == Caller::Nobody
    }

    /// A REQUEST that is known, a TOKEN that has been here. Numbers and hops only rise.
    fn is_moot(&self, from: NodeId, message: &SuzukiKasamiMessage) -> bool {
        match message {
            SuzukiKasamiMessage::Request { number } => {
                self.members.binary_search(&from).is_ok_and(|from| *number <= self.asked[from])
            }
            SuzukiKasamiMessage::Token { hop, .. } => *hop <= self.hop,
        }
    }

    fn request_number(&self) -> Option<u64> {
        (self.caller != Caller::Nobody).then(|| self.asked[self.at])
    }
}

impl Capabilities for SuzukiKasami {}

impl SuzukiKasami {
    fn on_acquire(&mut self, out: &mut Out) {
        debug_assert!(self.caller == Caller::Nobody, "the driver serialises local callers");
        self.caller = Caller::Waiting;
        if self.token.is_some() {
            return self.enter(out);
        }
        self.asked[self.at] += 1;
        out.push(Effect::Broadcast { message: SuzukiKasamiMessage::Request { number: self.asked[self.at] } });
    }

    fn on_message(&mut self, from: usize, message: SuzukiKasamiMessage, out: &mut Out) {
        match message {
            SuzukiKasamiMessage::Request { number } => {
                if number <= NUMBER_MAX && from != self.at {
                    self.asked[from] = self.asked[from].max(number);
                    self.pass_on(out);
                }
            }
            SuzukiKasamiMessage::Token { epoch, hop, served, queue, fence } => {
                let fresh = epoch == self.epoch && hop > self.hop;
                let sound = hop <= NUMBER_MAX && fence <= Fence::COUNT_MAX && self.fits(&served, &queue);
                if fresh && sound {
                    self.on_token(hop, Token { served, queue, fences: FenceCounter::new(epoch, fence) }, out);
                }
            }
        }
    }

    /// A token from a broken peer is refused whole: half of it would be worse.
    fn fits(&self, served: &[u64], queue: &[NodeId]) -> bool {
        let is_member = |node: &NodeId| self.members.binary_search(node).is_ok();
        served.len() == self.members.len() && queue.len() <= self.members.len() && queue.iter().all(is_member)
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

    /// A token that nobody needs here: this node is served, everybody who has asked is in the queue, the first gets it.
    fn pass_on(&mut self, out: &mut Out) {
        if self.caller != Caller::Nobody {
            return;
        }
        let Some(token) = &mut self.token else { return };
        token.served[self.at] = self.asked[self.at];
        for (j, node) in self.members.iter().enumerate() {
            if self.asked[j] > token.served[j] && !token.queue.contains(node) {
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
}
