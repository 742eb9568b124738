//! Maekawa, 'A √N Algorithm for Mutual Exclusion in Decentralized Systems', 1985, on grid quorums.
//!
//! Every node is also an arbiter with one vote. A node that asks to enter sends REQUEST to its quorum, the nodes of its row
//! and its column, and enters once all of them have sent LOCKED. Any two quorums share a node, and that node votes for one
//! request at a time.
//!
//! An arbiter that has voted queues further REQUESTs by (number, node). To prevent deadlock, the earlier request wins: an
//! arbiter that receives an earlier request than the one it voted for sends INQUIRE to the latter's node. That node gives
//! the vote back (RELINQUISH) once it knows that it cannot enter now, that is, once any arbiter has sent it FAILED.
//!
//! | rule | why |
//! |---|---|
//! | FAILED goes to every waiter that is not the first, or comes after the one that has the vote, **also to one that is overtaken later** | else it keeps votes it was inquired about, and all wait forever (`failed=arrival` shows it) |
//! | every vote has a number, and INQUIRE, RELINQUISH and FAILED name it | they cross each other and LOCKED in any order: an answer to an old vote must not affect the next one |
//! | a RELEASE that overtakes its REQUEST is remembered; a REQUEST also ends the request before it | links need not keep order |
//!
//! Every message may come twice. Readers are not known to the algorithm: a shared request is served as an exclusive one.
//!
//! Fences: REQUEST, LOCKED and RELEASE carry the largest fence their sender knows, and an entry takes the maximum plus one.
//! The arbiter that two quorums share knows of the first entry before it votes for the second.

mod message;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::protocol::constant::Constant;
use crate::protocol::{
    Caller, Capabilities, Effect, Effects, Floor, Input, Needs, NoTimer, OptionError, Options, Protocol, Variables,
};
use crate::{FenceCounter, Mode, NodeId, Setup};

pub use message::MaekawaMessage;

/// One node: a requester and an arbiter. It refers to other nodes by their positions in its quorum.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Maekawa {
    /// This node's position in `quorum`.
    me: usize,
    rules: Constant<MaekawaRules>,
    /// The row and the column of this node, itself included, in rising order: its arbiters, and the nodes whose arbiter it
    /// is.
    quorum: Arc<[NodeId]>,
    /// The highest number known.
    highest: u64,
    fences: FenceCounter,

    caller: Caller,
    /// The number of the last request.
    number: u64,
    /// What each arbiter has answered to it, while it waits; empty otherwise.
    votes: Vec<Vote>,

    /// The request that this arbiter has voted for.
    locked: Option<Locked>,
    /// How many votes it has given: the number of the last one.
    grants: u64,
    /// The requests that wait for its vote, in order, each node's at most once.
    queue: Vec<Waiter>,
    /// The highest number of each node's REQUESTs and RELEASEs. Messages about others are out of date.
    known: Vec<u64>,
}

/// The options of [`Maekawa`].
#[derive(Clone, Debug, Default)]
pub struct MaekawaRules {
    /// FAILED only to a REQUEST that comes too late, not to one that is overtaken afterwards.
    arrival_only: bool,
}

/// What one arbiter has answered to this node's request.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Vote {
    held: bool,
    /// The number of its last LOCKED.
    grant: u64,
    /// The number of the vote it wants back.
    inquired: u64,
    /// It has sent FAILED, or has got its vote back.
    failed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Locked {
    number: u64,
    client: usize,
    inquired: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Waiter {
    number: u64,
    client: usize,
    /// FAILED was sent to it, or it gave the vote back: it knows that it must wait.
    failed: bool,
}

/// Where messages go: to other nodes, or to this node's own other role, which handles them in the same step.
struct Out<'a> {
    effects: &'a mut Effects<MaekawaMessage, NoTimer>,
    to_self: VecDeque<MaekawaMessage>,
}

/// No group counts that far. A peer that claims it is broken, and believing it would break this node as well.
const NUMBER_MAX: u64 = u64::MAX >> 1;

/// The row and the column of a position in a grid of `ceil(sqrt(count))` columns, in rising order.
///
/// Any two intersect for every count, though the last row may be short: of two nodes in different rows one is in a full
/// row, and the other's column meets that row.
fn grid_quorum(count: usize, position: usize) -> impl Iterator<Item = usize> {
    let columns = count.saturating_sub(1).isqrt() + 1;
    (0..count).filter(move |other| other / columns == position / columns || other % columns == position % columns)
}

impl Protocol for Maekawa {
    type Message = MaekawaMessage;
    type Timer = NoTimer;
    type Options = MaekawaRules;

    fn parse(options: &Options) -> Result<MaekawaRules, OptionError> {
        let mut parsed = options.read("maekawa");
        let arrival_only = parsed.choice("failed", &[("overtaken", false), ("arrival", true)])?;
        parsed.as_printed(&[])?;
        parsed.finish()?;
        Ok(MaekawaRules { arrival_only })
    }

    fn needs(rules: &MaekawaRules) -> Needs {
        let lab_only = rules.arrival_only.then_some("deadlocks with failed=arrival");
        Needs { one_holder: true, lab_only, ..Needs::default() }
    }

    fn new(setup: &Setup<'_, MaekawaRules>) -> Self {
        let members = setup.view.members();
        let position = members.partition_point(|node| *node < setup.me);
        let quorum: Arc<[NodeId]> = grid_quorum(members.len(), position).map(|position| members[position]).collect();
        // The holder's request has number 0, which comes before all of this view. There is only one holder, since this
        // algorithm lets no two nodes in, shared or not.
        let holder = setup.initial.holders.first().copied();
        let voted_for = holder.and_then(|holder| quorum.binary_search(&holder).ok());
        Self {
            me: quorum.partition_point(|node| *node < setup.me),
            rules: Constant::new(setup.options.clone()),
            highest: 0,
            fences: setup.fences(),
            caller: if holder == Some(setup.me) { Caller::Inside } else { Caller::Nobody },
            number: 0,
            votes: Vec::new(),
            locked: voted_for.map(|client| Locked { number: 0, client, inquired: false }),
            grants: 0,
            queue: Vec::new(),
            known: vec![0; quorum.len()],
            quorum,
        }
    }

    fn handle(&mut self, input: Input<MaekawaMessage, NoTimer>, out: &mut Effects<MaekawaMessage, NoTimer>) {
        let mut out = Out { effects: out, to_self: VecDeque::new() };
        match input {
            Input::Acquire { .. } => self.on_acquire(&mut out),
            Input::Cancel | Input::Release => self.on_leave(&mut out),
            Input::Deliver { from, message } => {
                if let Ok(from) = self.quorum.binary_search(&from) {
                    self.on_message(from, message, &mut out);
                }
            }
            _ => {}
        }
        while let Some(message) = out.to_self.pop_front() {
            self.on_message(self.me, message, &mut out);
        }
    }

    fn variables(&self, out: &mut Variables) {
        let asked = |wanted: fn(&Vote) -> bool| {
            let votes = self.votes.iter().enumerate();
            votes.filter(move |(_, vote)| wanted(vote)).map(|(arbiter, _)| self.quorum[arbiter])
        };
        out.optional("own number", (self.caller != Caller::Nobody).then_some(self.number));
        out.list("quorum", self.quorum.iter());
        out.list("LOCKED by", asked(|vote| vote.held));
        out.list("FAILED at", asked(|vote| vote.failed));
        out.list("INQUIRE from", asked(|vote| vote.inquired > 0));
        out.optional("locked for", self.locked.as_ref().map(|locked| self.quorum[locked.client]));
        out.list("waiting queue", self.queue.iter().map(|waiter| self.quorum[waiter.client]));
        out.set("fence", self.fences.count());
    }

    /// Arbiters remember numbers and would ignore a node that forgot its own: only one that never took part may be dropped.
    fn is_idle(&self) -> bool {
        self.highest == 0 && self.caller == Caller::Nobody && self.locked.is_none()
    }

    /// A message about a request or a vote that is over. Numbers and fences only rise, so it stays moot.
    fn is_moot(&self, from: NodeId, message: &MaekawaMessage) -> bool {
        let Ok(from) = self.quorum.binary_search(&from) else { return true };
        match *message {
            MaekawaMessage::Request { number, .. } => number <= self.known[from],
            MaekawaMessage::Locked { number, .. }
            | MaekawaMessage::Failed { number, .. }
            | MaekawaMessage::Inquire { number, .. } => number <= self.number && !self.is_waiting_with(number),
            MaekawaMessage::Relinquish { number, grant } => {
                grant <= self.grants && !(grant == self.grants && self.has_voted_for(from, number))
            }
            MaekawaMessage::Release { number, fence } => {
                let queued = self.queue.iter().any(|waiter| waiter.client == from && waiter.number <= number);
                let locked =
                    self.locked.as_ref().is_some_and(|locked| locked.client == from && locked.number <= number);
                number <= self.known[from] && !queued && !locked && fence <= self.fences.count()
            }
        }
    }

    fn request_number(&self) -> Option<u64> {
        (self.caller != Caller::Nobody).then_some(self.number)
    }

    fn highest_number(&self) -> u64 {
        self.highest
    }
}

impl Capabilities for Maekawa {
    fn raise_floor(&mut self, floor: Floor) {
        self.observe(floor.number, floor.fence);
    }

    fn number_floor(&self) -> Option<u64> {
        (self.caller == Caller::Waiting).then(|| self.number - 1)
    }
}

/// The requester.
impl Maekawa {
    fn on_acquire(&mut self, out: &mut Out<'_>) {
        debug_assert!(self.caller == Caller::Nobody, "the driver serialises local callers");
        self.highest += 1;
        self.number = self.highest;
        self.caller = Caller::Waiting;
        self.votes = vec![Vote::default(); self.quorum.len()];
        self.send_to_quorum(&MaekawaMessage::Request { number: self.number, fence: self.fences.count() }, out);
    }

    /// The caller leaves or gives up: either way every arbiter forgets the request.
    fn on_leave(&mut self, out: &mut Out<'_>) {
        if self.caller != Caller::Nobody {
            self.caller = Caller::Nobody;
            self.votes.clear();
            self.send_to_quorum(&MaekawaMessage::Release { number: self.number, fence: self.fences.count() }, out);
        }
    }

    fn on_locked(&mut self, from: usize, grant: u64, out: &mut Out<'_>) {
        let vote = &mut self.votes[from];
        if grant <= vote.grant {
            return;
        }
        *vote = Vote { held: true, grant, failed: false, ..*vote };
        if self.votes.iter().all(|vote| vote.held) {
            return self.enter(out);
        }
        self.yield_if_failed(out);
    }

    /// INQUIRE may overtake the LOCKED it is about; then it waits for it.
    fn on_inquire(&mut self, from: usize, grant: u64, out: &mut Out<'_>) {
        let vote = &mut self.votes[from];
        vote.inquired = vote.inquired.max(grant);
        self.yield_if_failed(out);
    }

    fn on_failed(&mut self, from: usize, grant: u64, out: &mut Out<'_>) {
        let vote = &mut self.votes[from];
        // Otherwise a LOCKED that was sent later has overtaken it.
        if vote.grant <= grant && !vote.held {
            vote.failed = true;
            self.yield_if_failed(out);
        }
    }

    /// A node that cannot enter now gives back every vote it was asked for.
    fn yield_if_failed(&mut self, out: &mut Out<'_>) {
        if !self.votes.iter().any(|vote| vote.failed) {
            return;
        }
        for to in 0..self.votes.len() {
            let vote = &mut self.votes[to];
            if vote.held && vote.inquired == vote.grant {
                (vote.held, vote.failed) = (false, true);
                let message = MaekawaMessage::Relinquish { number: self.number, grant: vote.grant };
                self.send(to, message, out);
            }
        }
    }

    fn enter(&mut self, out: &mut Out<'_>) {
        if let Some(fence) = self.fences.next(Mode::Exclusive) {
            self.caller = Caller::Inside;
            self.votes.clear();
            out.effects.push(Effect::Enter { fence });
        }
    }

    fn is_waiting_with(&self, number: u64) -> bool {
        self.caller == Caller::Waiting && self.number == number
    }
}

/// The arbiter.
impl Maekawa {
    fn on_request(&mut self, from: usize, number: u64, out: &mut Out<'_>) {
        if number <= self.known[from] {
            return; // A copy, or its RELEASE has overtaken it.
        }
        self.known[from] = number;
        // A node makes a new request only when its last one is over, whether or not the RELEASE has come yet.
        self.forget(from, number - 1);
        self.enqueue(Waiter { number, client: from, failed: false });
        self.arbitrate(Some(from), out);
    }

    fn on_release(&mut self, from: usize, number: u64, out: &mut Out<'_>) {
        self.known[from] = self.known[from].max(number);
        self.forget(from, number);
        self.arbitrate(None, out);
    }

    fn on_relinquish(&mut self, from: usize, number: u64, grant: u64, out: &mut Out<'_>) {
        if grant == self.grants && self.has_voted_for(from, number) {
            self.locked = None;
            self.enqueue(Waiter { number, client: from, failed: true });
            self.arbitrate(None, out);
        }
    }

    fn has_voted_for(&self, client: usize, number: u64) -> bool {
        self.locked.as_ref().is_some_and(|locked| (locked.client, locked.number) == (client, number))
    }

    fn enqueue(&mut self, waiter: Waiter) {
        let order = |waiter: &Waiter| (waiter.number, waiter.client);
        let position = self.queue.partition_point(|other| order(other) < order(&waiter));
        self.queue.insert(position, waiter);
    }

    /// Ends a node's requests up to this number.
    fn forget(&mut self, client: usize, number: u64) {
        self.queue.retain(|waiter| waiter.client != client || waiter.number > number);
        self.locked.take_if(|locked| locked.client == client && locked.number <= number);
    }

    /// Votes for the first request if the vote is here, asks for it back if the first comes before the request that has it,
    /// and sends FAILED to all others.
    fn arbitrate(&mut self, arrival: Option<usize>, out: &mut Out<'_>) {
        if self.locked.is_none() && !self.queue.is_empty() {
            let Waiter { number, client, .. } = self.queue.remove(0);
            self.grants += 1;
            self.locked = Some(Locked { number, client, inquired: false });
            let (grant, highest, fence) = (self.grants, self.highest, self.fences.count());
            self.send(client, MaekawaMessage::Locked { number, grant, highest, fence }, out);
        }
        let Some(locked) = &mut self.locked else { return };
        let (voted, grant) = ((locked.number, locked.client), self.grants);
        let first_is_earlier = self.queue.first().is_some_and(|first| (first.number, first.client) < voted);
        if first_is_earlier && !std::mem::replace(&mut locked.inquired, true) {
            self.send(voted.1, MaekawaMessage::Inquire { number: voted.0, grant }, out);
        }
        for position in usize::from(first_is_earlier)..self.queue.len() {
            let Waiter { number, client, failed } = self.queue[position];
            let is_excluded = self.rules.arrival_only && arrival != Some(client);
            if !failed && !is_excluded {
                self.queue[position].failed = true;
                self.send(client, MaekawaMessage::Failed { number, grant }, out);
            }
        }
    }
}

/// Messages in and out.
impl Maekawa {
    fn on_message(&mut self, from: usize, message: MaekawaMessage, out: &mut Out<'_>) {
        match message {
            MaekawaMessage::Request { number, fence } if number <= NUMBER_MAX => {
                self.observe(number, fence);
                self.on_request(from, number, out);
            }
            MaekawaMessage::Release { number, fence } if number <= NUMBER_MAX => {
                self.observe(number, fence);
                self.on_release(from, number, out);
            }
            MaekawaMessage::Relinquish { number, grant } => self.on_relinquish(from, number, grant, out),
            MaekawaMessage::Locked { number, grant, highest, fence } if self.is_waiting_with(number) => {
                self.observe(highest, fence);
                self.on_locked(from, grant, out);
            }
            MaekawaMessage::Failed { number, grant } if self.is_waiting_with(number) => {
                self.on_failed(from, grant, out);
            }
            MaekawaMessage::Inquire { number, grant } if self.is_waiting_with(number) => {
                self.on_inquire(from, grant, out);
            }
            _ => {}
        }
    }

    fn observe(&mut self, number: u64, fence: u64) {
        self.highest = self.highest.max(number.min(NUMBER_MAX - 1));
        self.fences.observe(fence);
    }

    fn send_to_quorum(&self, message: &MaekawaMessage, out: &mut Out<'_>) {
        (0..self.quorum.len()).for_each(|to| self.send(to, message.clone(), out));
    }

    fn send(&self, to: usize, message: MaekawaMessage, out: &mut Out<'_>) {
        if to == self.me {
            out.to_self.push_back(message);
        } else {
            out.effects.push(Effect::Send { to: self.quorum[to], message });
        }
    }
}
