//! Naimi and Trehel's path reversal, 1987 and 1996: a token, a tree of guesses and a queue of waiters.
//!
//! `last` is where a node believes the last asker to be: a REQUEST is sent along these guesses, and every node it passes
//! from then on believes its origin to be the last. So the path turns around behind it, and trees stay shallow: under light
//! load N/(N-1) H(N-1) messages an entry on average, the token included, which grows with the logarithm of N. The REQUEST
//! ends at the node that asked last; its `next` becomes the origin, and whoever leaves sends the TOKEN to its `next`.
//!
//! A node keeps four values, whatever N is. The algorithm knows no readers: shared requests are served as exclusive.
//!
//! Beyond the published text: the TOKEN counts its hops and the entries (its fence), and a caller may give up. Its node has
//! a place in the queue then, and keeps it: the token comes and goes on, or serves whoever asks there meanwhile.

mod message;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::protocol::{Caller, Capabilities, Effect, Effects, Input, Needs, NoTimer, OptionError, Options, Protocol};
use crate::{Fence, FenceCounter, Mode, NodeId, Setup};

pub use message::NaimiTrehelMessage;

/// One node's part of the algorithm.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NaimiTrehel {
    me: NodeId,
    members: Arc<[NodeId]>,
    /// Who this node believes asked last; none if it was this node itself: then it is a root.
    last: Option<NodeId>,
    /// Whom the token goes to from here.
    next: Option<NodeId>,
    /// This node's REQUEST is out and the token has not come yet. Survives a caller that gives up.
    asked: bool,
    caller: Caller,
    /// The token while it is here: it counts the entries.
    token: Option<FenceCounter>,
    /// The hop on which the token was here last: a TOKEN that is not beyond it is a copy.
    hop: u64,
    epoch: u64,
    /// Something has happened here that a fresh instance would not know.
    touched: bool,
}

type Out = Effects<NaimiTrehelMessage, NoTimer>;

/// No token travels that often: believing it would refuse every token that is real.
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
            no_loss: Some(
                "naimi-trehel needs links that deliver every message once: a lost one is a lost place in the queue, a \
                 repeated REQUEST takes somebody else's",
            ),
            ..Needs::default()
        }
    }

    fn new(setup: &Setup<'_, ()>) -> Self {
        let members = setup.view.shared_members();
        // The token is with whoever holds the lock; this algorithm never lets two hold one, shared or not.
        let holder = setup.initial.holders.first().copied();
        let root = holder.or(members.first().copied()).filter(|root| *root != setup.me);
        Self {
            me: setup.me,
            members,
            last: root,
            next: None,
            asked: false,
            caller: if holder == Some(setup.me) { Caller::Inside } else { Caller::Nobody },
            token: root.is_none().then(|| FenceCounter::new(setup.view.epoch(), setup.initial.fence.count())),
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
            Input::Deliver { from, message } if self.members.binary_search(&from).is_ok() => {
                self.on_message(message, out);
            }
            Input::Deliver { .. } | Input::Timeout(_) | Input::Join { .. } | Input::Leave => {}
        }
    }

    /// Where the token is must not be forgotten: a fresh instance would make a second one, or look in the wrong place.
    fn is_idle(&self) -> bool {
        !self.touched && self.caller == Caller::Nobody
    }

    fn is_moot(&self, _: NodeId, message: &NaimiTrehelMessage) -> bool {
        matches!(message, NaimiTrehelMessage::Token { hop, .. } if *hop <= self.hop)
    }
}

impl Capabilities for NaimiTrehel {}

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
                if origin != self.me && self.members.binary_search(&origin).is_ok() {
                    self.on_request(origin, out);
                }
            }
            NaimiTrehelMessage::Token { epoch, hop, fence } => {
                let fresh = epoch == self.epoch && hop > self.hop;
                if fresh && hop <= HOP_MAX && fence <= Fence::COUNT_MAX {
                    self.on_token(hop, fence, out);
                }
            }
        }
    }

    /// Path reversal: whoever handles a REQUEST believes its origin to be the last from now on.
    fn on_request(&mut self, origin: NodeId, out: &mut Out) {
        match self.last.replace(origin) {
            Some(to) => out.push(Effect::Send { to, message: NaimiTrehelMessage::Request { origin } }),
            None => {
                self.next = Some(origin);
                self.pass_on(out);
            }
        }
    }

    fn on_token(&mut self, hop: u64, fence: u64, out: &mut Out) {
        self.hop = hop;
        self.asked = false;
        self.token = Some(FenceCounter::new(self.epoch, fence));
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

    /// A token that nobody needs here goes to the next in the queue, or stays.
    fn pass_on(&mut self, out: &mut Out) {
        if self.caller != Caller::Nobody {
            return;
        }
        let Some(fences) = self.token else { return };
        let Some(to) = self.next.take() else { return };
        self.token = None;
        self.hop += 1;
        let message = NaimiTrehelMessage::Token { epoch: self.epoch, hop: self.hop, fence: fences.count() };
        out.push(Effect::Send { to, message });
    }
}
