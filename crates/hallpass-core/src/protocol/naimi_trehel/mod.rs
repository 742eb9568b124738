//! Naimi and Trehel's path reversal, 1987 and 1996: a token, a tree of guesses and a queue of waiting nodes.
//!
//! `last` is a node's guess as to which node asked last. A REQUEST is forwarded along these guesses, and every node it
//! passes takes its origin as the new guess. So the path is reversed behind it, and the tree stays shallow: under light
//! load an entry takes N/(N-1) H(N-1) messages on average, the token included, which grows with the logarithm of N. The
//! REQUEST ends at the node that asked last, whose `next` becomes the origin. A node that leaves sends the TOKEN to its
//! `next`.
//!
//! A node keeps four values, whatever N is.
//!
//! Where this differs from the published text:
//!
//! - The TOKEN counts its hops and the entries, which are its fence.
//! - A caller may give up. Its node keeps its place in the queue: the token comes and goes on, or serves another caller
//!   that has asked there meanwhile.
//! - Readers are not known to the algorithm: a shared request is served as an exclusive one.

mod message;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::protocol::{
    Caller, Capabilities, Effect, Effects, Input, Needs, NoTimer, OptionError, Options, Protocol, Variables,
};
use crate::{Fence, FenceCounter, Mode, NodeId, Setup};

pub use message::NaimiTrehelMessage;

/// One node's part of the algorithm.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NaimiTrehel {
    me: NodeId,
    members: Arc<[NodeId]>,
    /// The node that asked last, as far as this one knows; none if it is this node itself, which is then a root.
    last: Option<NodeId>,
    /// Where the token goes from here.
    next: Option<NodeId>,
    /// This node's REQUEST is out and the token has not come yet. Stays true when the caller gives up.
    asked: bool,
    caller: Caller,
    /// The token while it is here: it counts the entries.
    token: Option<FenceCounter>,
    /// The hop on which the token was last here. A TOKEN that is not beyond it is a copy.
    hop: u64,
    epoch: u64,
    /// An input has come, so a fresh instance cannot replace this one.
    touched: bool,
}

type Out = Effects<NaimiTrehelMessage, NoTimer>;

/// No token travels that often. Believing a peer that claims it would mean to refuse every real token.
const HOP_MAX: u64 = u64::MAX >> 1;

impl Protocol for NaimiTrehel {
    type Message = NaimiTrehelMessage;
    type Timer = NoTimer;
    type Options = ();

    fn parse(options: &Options) -> Result<(), OptionError> {
        let mut parsed = options.read("naimi-trehel");
        parsed.as_printed(&[])?;
        parsed.finish()
    }

    fn needs(_: &()) -> Needs {
        Needs {
            one_holder: true,
            no_loss: Some(
                "naimi-trehel needs links that deliver every message once: a lost one is a lost place in the queue, a \
                 repeated REQUEST takes somebody else's",
            ),
            ..Needs::default()
        }
    }

    fn new(setup: &Setup<'_, ()>) -> Self {
        let members = setup.view.shared_members();
        // The token is with the holder. There is only one, since this algorithm lets no two nodes in, shared or not.
        let holder = setup.initial.holders.first().copied();
        let root = holder.or(members.first().copied()).filter(|root| *root != setup.me);
        let fences = setup.fences();
        Self {
            me: setup.me,
            members,
            last: root,
            next: None,
            asked: false,
            caller: if holder == Some(setup.me) { Caller::Inside } else { Caller::Nobody },
            token: root.is_none().then_some(fences),
            hop: 0,
            epoch: setup.view.epoch(),
            touched: false,
        }
    }

    fn handle(&mut self, input: Input<NaimiTrehelMessage, NoTimer>, out: &mut Out) {
        self.touched = true;
        match input {
            Input::Acquire { .. } => self.on_acquire(out),
            Input::Cancel | Input::Release => {
                self.caller = Caller::Nobody;
                self.pass_on(out);
            }
            Input::Deliver { from, message } if self.is_member(from) => self.on_message(message, out),
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        out.optional("last", self.last);
        out.optional("next", self.next);
        out.flag("requesting", self.asked || self.caller != Caller::Nobody);
        out.flag("token_present", self.token.is_some());
        out.optional("fence", self.token.map(|token| token.count()));
    }

    /// Where the token is must not be forgotten: a fresh instance would make a second one, or look in the wrong place.
    fn is_idle(&self) -> bool {
        !self.touched && self.caller == Caller::Nobody
    }

    /// A TOKEN that has been here. Hops only rise, so it stays moot.
    fn is_moot(&self, _: NodeId, message: &NaimiTrehelMessage) -> bool {
        matches!(message, NaimiTrehelMessage::Token { hop, .. } if *hop <= self.hop)
    }
}

impl Capabilities for NaimiTrehel {
    fn is_cached(&self) -> bool {
        self.token.is_some()
    }
}

impl NaimiTrehel {
    fn on_acquire(&mut self, out: &mut Out) {
        debug_assert!(self.caller == Caller::Nobody, "the driver serialises local callers");
        self.caller = Caller::Waiting;
        if self.token.is_some() {
            return self.enter(out);
        }
        // A node whose earlier caller gave up is in the queue already.
        if !self.asked
            && let Some(to) = self.last.take()
        {
            self.asked = true;
            out.push(Effect::Send { to, message: NaimiTrehelMessage::Request { origin: self.me } });
        }
    }

    fn on_message(&mut self, message: NaimiTrehelMessage, out: &mut Out) {
        match message {
            NaimiTrehelMessage::Request { origin } => {
                if origin != self.me && self.is_member(origin) {
                    self.on_request(origin, out);
                }
            }
            NaimiTrehelMessage::Token { epoch, hop, fence } => {
                let is_fresh = epoch == self.epoch && hop > self.hop;
                if is_fresh && hop <= HOP_MAX && fence <= Fence::COUNT_MAX {
                    self.on_token(hop, FenceCounter::new(epoch, fence), out);
                }
            }
        }
    }

    /// Path reversal: a node that handles a REQUEST takes its origin as its new guess.
    fn on_request(&mut self, origin: NodeId, out: &mut Out) {
        match self.last.replace(origin) {
            Some(to) => out.push(Effect::Send { to, message: NaimiTrehelMessage::Request { origin } }),
            None => {
                self.next = Some(origin);
                self.pass_on(out);
            }
        }
    }

    fn on_token(&mut self, hop: u64, token: FenceCounter, out: &mut Out) {
        self.hop = hop;
        self.asked = false;
        self.token = Some(token);
        match self.caller {
            Caller::Waiting => self.enter(out),
            Caller::Nobody => self.pass_on(out),
            Caller::Inside => {}
        }
    }

    fn enter(&mut self, out: &mut Out) {
        let Some(fences) = &mut self.token else { return };
        if let Some(fence) = fences.next(Mode::Exclusive) {
            self.caller = Caller::Inside;
            out.push(Effect::Enter { fence });
        }
    }

    /// Sends the token to the next in the queue, if it is here and not in use.
    fn pass_on(&mut self, out: &mut Out) {
        if self.caller != Caller::Nobody {
            return;
        }
        let Some(fences) = self.token else { return };
        let Some(to) = self.next.take() else { return };
        self.token = None;
        self.hop += 1;
        let (epoch, hop, fence) = (self.epoch, self.hop, fences.count());
        out.push(Effect::Send { to, message: NaimiTrehelMessage::Token { epoch, hop, fence } });
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.members.binary_search(&node).is_ok()
    }
}
