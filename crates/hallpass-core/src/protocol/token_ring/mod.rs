//! The token ring of Bryant's 'Notes on Distributed Mutual Exclusion' (Carnegie Mellon, 15-440, 2012).
//!
//! The nodes form a ring in the order of their ids. One token, the message OK, travels from each node to the next. A node
//! that asks to enter waits for it, enters while it is there, and sends it on when it leaves.
//!
//! **T25**. As printed the token never rests: an idle ring sends messages forever. `waiting` is never cleared, so that the
//! next OK lets a caller in that has left. And the cost is not '0 to n-1' but 1 to n messages from one entry to the next of
//! a busy ring: n when the same node asks again. Here the token parks where no node further on is known to want it, and a
//! node that asks wakes it:
//!
//! - REQUEST(i) goes around from its origin i, node by node, until it meets the token, or a node that has sent a REQUEST of
//!   its own since the token last left it: on its way to that node the token passes i first.
//! - OK then travels on until it has reached the farthest origin it knows of (`left`), serving every node that waits on
//!   its way, and parks there.
//!
//! Together these are N messages where one node asks at a time, and none if the token is parked at the node that asks. Where
//! all nodes ask, an entry costs one OK and one REQUEST.
//!
//! # How REQUESTs expire
//!
//! The token visits the nodes in turn, so its hop count tells where it is. Each node remembers the hop on which the token was
//! last there (before the start as if it had gone around once), and a REQUEST carries that of its origin i. At a node d steps
//! further on, the token's first visit after i is hop(i) + d, called `due`.
//!
//! - If the node's own last visit is later, the token has been at i since, and the REQUEST is done.
//! - If it is the same, the token is here or has gone on, and so does the REQUEST.
//! - If the node has not seen that visit yet, the token is on the link to it, overtaken by the REQUEST. The node keeps the
//!   REQUEST until the token arrives.
//!
//! # Further differences from the notes
//!
//! - A token counts only if it comes from the neighbour with exactly the next hop, so that one sent twice stays one.
//! - A caller may give up; the token then comes and goes on.
//! - The fence is a counter in the token, raised at every entry.
//! - Readers are not known to the notes: a shared request is served as an exclusive one.

mod message;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::protocol::constant::Constant;
use crate::protocol::{
    Caller, Capabilities, Effect, Effects, Input, Needs, NoTimer, OptionError, Options, Protocol, Trap, TrapSet,
    Variables,
};
use crate::{FenceCounter, Mode, NodeId, Setup};

pub use message::TokenRingMessage;

/// One node on the ring.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TokenRing {
    /// This node's position on the ring.
    position: u64,
    ring: Constant<Ring>,
    /// `havetoken`, with what it carries.
    token: Option<Token>,
    caller: Caller,
    /// The token's hop count at its last visit here.
    hop: u64,
    /// This node has sent a REQUEST since then. It cannot be taken back, so the token will come.
    requested: bool,
    /// How far the token must go on from here when it arrives, for REQUESTs that have overtaken it; 0 if there are none.
    overtaken_by: u64,
}

/// What is the same on every node.
#[derive(Debug)]
struct Ring {
    rules: TokenRingRules,
    members: Arc<[NodeId]>,
    /// The token's position at the start.
    start: u64,
    /// The hop from which nodes may enter: by then the token has been at all initial holders.
    opens: u64,
    /// The token's counter at the start.
    fences: FenceCounter,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Token {
    /// How many steps at least it has to go on from here.
    left: u64,
    /// It counts the entries.
    fences: FenceCounter,
}

/// The options of [`TokenRing`].
#[derive(Clone, Debug)]
pub struct TokenRingRules {
    /// The token never parks.
    spins: bool,
    printed: TrapSet,
}

type Out = Effects<TokenRingMessage, NoTimer>;

impl Protocol for TokenRing {
    type Message = TokenRingMessage;
    type Timer = NoTimer;
    type Options = TokenRingRules;

    fn parse(options: &Options) -> Result<TokenRingRules, OptionError> {
        let mut parsed = options.read("token-ring");
        let spins = parsed.choice("idle", &[("park", false), ("spin", true)])?;
        let printed = parsed.as_printed(&[Trap::KeptWaiting])?;
        parsed.finish()?;
        Ok(TokenRingRules { spins, printed })
    }

    fn needs(rules: &TokenRingRules) -> Needs {
        Needs { lab_only: rules.spins.then_some("never rests with idle=spin"), ..Needs::default() }
    }

    fn new(setup: &Setup<'_, TokenRingRules>) -> Self {
        let members = setup.view.shared_members();
        let count = members.len() as u64;
        let position_of = |node| members.binary_search(&node).map_or(0, |position| position as u64);
        let start = setup.initial.holders.first().map_or(0, |node| position_of(*node));
        let steps = |from: u64, to: u64| (to + count - from) % count;
        // Readers of a protocol that knows them may hold the lock together: the token goes round to all of them first.
        let farthest = setup.initial.holders.iter().map(|node| steps(start, position_of(*node))).max().unwrap_or(0);
        let position = position_of(setup.me);
        let fences = setup.fences();
        let holds = setup.initial.held_by(setup.me).is_some();
        Self {
            position,
            token: (position == start).then_some(Token { left: farthest, fences }),
            caller: if holds { Caller::Inside } else { Caller::Nobody },
            hop: count - steps(position, start),
            requested: false,
            overtaken_by: 0,
            ring: Constant::new(Ring { rules: setup.options.clone(), members, start, opens: count + farthest, fences }),
        }
    }

    fn handle(&mut self, input: Input<TokenRingMessage, NoTimer>, out: &mut Out) {
        match input {
            Input::Acquire { .. } => self.on_acquire(out),
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { from, message } if from == self.ring.previous(self.position) => match message {
                TokenRingMessage::Ok { hop, left, fence } => self.on_ok(hop, left, fence, out),
                TokenRingMessage::Request { origin, hop } => self.on_request(origin, hop, out),
            },
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        out.flag("havetoken", self.token.is_some());
        out.flag("waiting", self.caller == Caller::Waiting);
        out.flag("requested", self.requested);
        out.set("hop", self.hop);
        out.optional("fence", self.token.as_ref().map(|token| token.fences.count()));
    }

    /// Once the token has been here or has left, that must be remembered, or there are two of them.
    fn is_idle(&self) -> bool {
        let ring = &self.ring;
        let first = self.hop <= ring.members.len() as u64 && self.token.is_some() == (self.position == ring.start);
        let unused = self.token.as_ref().is_none_or(|token| token.fences == ring.fences);
        self.caller == Caller::Nobody && !self.requested && self.overtaken_by == 0 && first && unused
    }

    /// A message about a visit of the token that is over. Hops only rise, so it stays moot.
    fn is_moot(&self, from: NodeId, message: &TokenRingMessage) -> bool {
        if from != self.ring.previous(self.position) {
            return true;
        }
        match *message {
            TokenRingMessage::Ok { hop, .. } => hop <= self.hop,
            TokenRingMessage::Request { origin, hop } => {
                let steps = self.ring.steps_from(origin, self.position).filter(|steps| *steps > 0);
                let due = steps.map_or(0, |steps| hop.saturating_add(steps));
                due < self.hop || (due == self.hop && self.requested)
            }
        }
    }
}

impl Capabilities for TokenRing {
    fn is_cached(&self) -> bool {
        self.token.is_some()
    }
}

impl TokenRing {
    /// 'Request()'.
    fn on_acquire(&mut self, out: &mut Out) {
        debug_assert!(self.caller == Caller::Nobody || self.keeps_waiting(), "the driver serialises local callers");
        self.caller = Caller::Waiting;
        if self.token.is_some() {
            return self.use_token(out);
        }
        // As printed no node has to ask for a token that never rests. But the first REQUEST is needed, since an instance
        // sends nothing before its first input.
        let spinning = self.ring.rules.spins && self.hop > self.ring.members.len() as u64;
        if !self.requested && !spinning {
            self.requested = true;
            self.send(
                TokenRingMessage::Request { origin: self.ring.members[self.position as usize], hop: self.hop },
                out,
            );
        }
    }

    /// 'Release()', or the caller gives up.
    fn on_release(&mut self, out: &mut Out) {
        let was = std::mem::replace(&mut self.caller, Caller::Nobody);
        if was != Caller::Nobody && self.keeps_waiting() {
            self.caller = Caller::Waiting;
            return self.pass_on(true, out);
        }
        self.pass_on(self.ring.rules.spins, out);
    }

    /// 'When receive (OK)'.
    fn on_ok(&mut self, hop: u64, left: u64, fence: u64, out: &mut Out) {
        if hop != self.hop + self.ring.len() || self.token.is_some() {
            return; // A copy.
        }
        self.hop = hop;
        self.requested = false;
        let left = left.min(self.ring.len()).max(std::mem::take(&mut self.overtaken_by));
        self.token = Some(Token { left, fences: FenceCounter::new(self.ring.fences.epoch(), fence) });
        self.use_token(out);
    }

    fn on_request(&mut self, origin: NodeId, hop: u64, out: &mut Out) {
        let Some(steps) = self.ring.steps_from(origin, self.position).filter(|steps| *steps > 0) else {
            return; // Back at its origin: the token is right behind it.
        };
        let back = self.ring.len() - steps;
        let due = hop.saturating_add(steps);
        match &mut self.token {
            Some(token) if due == self.hop => {
                token.left = token.left.max(back);
                self.pass_on(false, out);
            }
            None if due == self.hop && !self.requested => self.send(TokenRingMessage::Request { origin, hop }, out),
            None if due == self.hop + self.ring.len() => self.overtaken_by = self.overtaken_by.max(back),
            _ => {}
        }
    }

    /// The token is here: the caller enters if it waits, and otherwise the token goes on if it is wanted.
    fn use_token(&mut self, out: &mut Out) {
        let Some(token) = &mut self.token else { return };
        if self.caller == Caller::Waiting && self.hop >= self.ring.opens {
            if let Some(fence) = token.fences.next(Mode::Exclusive) {
                self.caller = Caller::Inside;
                return out.push(Effect::Enter { fence });
            }
        } else if self.caller == Caller::Waiting {
            token.left = self.ring.len(); // All the way round to here, once more.
        }
        self.pass_on(self.ring.rules.spins, out);
    }

    /// Sends the token to the next node if it is here, not in use, and has to go on.
    fn pass_on(&mut self, always: bool, out: &mut Out) {
        let goes_on = |token: &mut Token| always || token.left > 0;
        if self.caller == Caller::Inside || self.ring.len() == 1 {
            return;
        }
        if let Some(Token { left, fences }) = self.token.take_if(goes_on) {
            let (hop, left, fence) = (self.hop + 1, left.saturating_sub(1), fences.count());
            self.send(TokenRingMessage::Ok { hop, left, fence }, out);
        }
    }

    /// As printed (T25): a caller that has left still counts as waiting.
    fn keeps_waiting(&self) -> bool {
        self.ring.rules.printed.contains(Trap::KeptWaiting)
    }

    fn send(&self, message: TokenRingMessage, out: &mut Out) {
        out.push(Effect::Send { to: self.ring.next(self.position), message });
    }
}

impl Ring {
    fn len(&self) -> u64 {
        self.members.len() as u64
    }

    fn next(&self, position: u64) -> NodeId {
        self.members[((position + 1) % self.len()) as usize]
    }

    fn previous(&self, position: u64) -> NodeId {
        self.members[((position + self.len() - 1) % self.len()) as usize]
    }

    /// How many steps it is from a member to a position.
    fn steps_from(&self, origin: NodeId, position: u64) -> Option<u64> {
        let from = self.members.binary_search(&origin).ok()? as u64;
        Some((position + self.len() - from) % self.len())
    }
}
