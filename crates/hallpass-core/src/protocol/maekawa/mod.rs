//! Maekawa, 'A √N Algorithm for Mutual Exclusion in Decentralized Systems', 1985, on grid quorums.
//!
//! Every node is also an arbiter with one vote. Whoever wants in asks its quorum, the nodes of its row and its column, and
//! enters once all of them have sent LOCKED. Any two quorums share a node, and that node votes for one at a time.
//!
//! An arbiter that has voted queues further REQUESTs by (number, node). So that nobody waits in a circle, the earlier
//! request wins: an arbiter that is asked by an earlier one than it voted for sends INQUIRE to the one it voted for, which
//! gives the vote back (RELINQUISH) once it knows that it cannot enter now, that is, once any arbiter has told it FAILED.
//!
//! | rule | why |
//! |---|---|
//! | FAILED goes to every waiter that is not the first, or comes after the one that is voted for, **also to one that is overtaken later** | else it keeps votes it was inquired about, and all wait for ever (`failed=arrival` shows it) |
//! | every vote has a number, and INQUIRE, RELINQUISH and FAILED name it | they cross each other and LOCKED in any order: an answer to an old vote must not touch the next one |
//! | a RELEASE that overtakes its REQUEST is remembered; a REQUEST stands for the RELEASE of the one before it | links need not keep order |
//!
//! Every message can come twice. The algorithm knows no readers: shared requests are served as exclusive.
//!
//! Fences: REQUEST, LOCKED and RELEASE carry the largest fence their sender knows, and an entry takes the maximum plus one.
//! The arbiter that two quorums share has heard of the first entry before it votes for the second.

mod message;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::protocol::constant::Constant;
use crate::protocol::{Caller, Capabilities, Effect, Effects, Input, Needs, NoTimer, OptionError, Options, Protocol};
use crate::{FenceCounter, Mode, NodeId, Setup};

pub use message::MaekawaMessage;

/// One node: a requester and an arbiter. Nodes are positions in its quorum, which are in the order of their ids.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Maekawa {
    at: usize,
    rules: Constant<MaekawaRules>,
    /// The row and the column of this node, itself included: its arbiters, and those whose arbiter it is.
    quorum: Arc<[NodeId]>,
    /// The highest number heard of.
    highest: u64,
    fences: FenceCounter,

    caller: Caller,
    /// The number of the last request.
    number: u64,
    /// What each arbiter has said about it, while it waits; empty otherwise.
    votes: Vec<Vote>,

    /// Whom this arbiter has voted for.
    locked: Option<Locked>,
    /// How many votes it has given: the number of the last one.
    grants: u64,
    /// Who waits for its vote, in order; each node at most once.
    queue: Vec<Waiter>,
    /// The highest number each node has asked or released with: what is not above is over.
    known: Vec<u64>,
}

/// The options of [`Maekawa`].
#[derive(Clone, Debug, Default)]
pub struct MaekawaRules {
    /// FAILED only to a REQUEST that comes too late, not to one that is overtaken afterwards.
    arrival_only: bool,
}

/// What one arbiter has said about this node's request.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Vote {
    held: bool,
    /// The number of its last LOCKED.
    heard: u64,
    /// The number of the vote it wants back.
    inquired: u64,
    /// It has said FAILED, or has got its vote back.
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
    /// It knows that it must wait.
    failed: bool,
}

/// Where messages go: to others, or to this very node, which handles them before anything else and counts none.
struct Post<'a> {
    out: &'a mut Effects<MaekawaMessage, NoTimer>,
    own: VecDeque<MaekawaMessage>,
}

/// No group counts that far: whoever says so is broken, and believing it would break everybody.
const NUMBER_MAX: u64 = u64::MAX >> 1;

/// The row and the column of a position in a grid of `ceil(sqrt(count))` columns, in rising order.
///
/// Any two intersect for every count, though the last row may be short: of two nodes in different rows one is in a full
/// row, and the other's column meets that row.
fn grid_quorum(count: usize, at: usize) -> impl Iterator<Item = usize> {
    let columns = count.saturating_sub(1).isqrt() + 1;
    (0..count).filter(move |other| other / columns == at / columns || other % columns == at % columns)
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
        Needs { lab_only: rules.arrival_only.then_some("deadlocks with failed=arrival"), ..Needs::default() }
    }

    fn new(setup: &Setup<'_, MaekawaRules>) -> Self {
        let members = setup.view.members();
        let at = members.partition_point(|node| *node < setup.me);
        let quorum: Arc<[NodeId]> = grid_quorum(members.len(), at).map(|position| members[position]).collect();
        // Number 0 comes before every request of this view. This algorithm never lets two hold, shared or not.
        let holder = setup.initial.holders.first().copied();
        let seated = holder.and_then(|holder| quorum.binary_search(&holder).ok());
        Self {
            at: quorum.partition_point(|node| *node < setup.me),
            rules: Constant::new(setup.options.clone()),
            highest: 0,
            fences: FenceCounter::new(setup.view.epoch(), setup.initial.fence.count()),
            caller: if holder == Some(setup.me) { Caller::Inside } else { Caller::Nobody },
            number: 0,
            votes: Vec::new(),
            locked: seated.map(|client| Locked { number: 0, client, inquired: false }),
            grants: 0,
            queue: Vec::new(),
            known: vec![0; quorum.len()],
            quorum,
        }
    }

    fn handle(&mut self, input: Input<MaekawaMessage, NoTimer>, out: &mut Effects<MaekawaMessage, NoTimer>) {
        let mut post = Post { out, own: VecDeque::new() };
        match input {
            Input::Acquire { .. } => self.on_acquire(&mut post),
            Input::Cancel | Input::Release => self.on_leave(&mut post),
            Input::Deliver { from, message } => {
                if let Ok(from) = self.quorum.binary_search(&from) {
                    self.on_message(from, message, &mut post);
                }
            }
            Input::Timeout(_) | Input::Join { .. } | Input::Leave => {}
        }
        while let Some(message) = post.own.pop_front() {
            self.on_message(self.at, message, &mut post);
        }
    }

    /// Arbiters remember numbers, so a node that forgot its own would not be heard: only one that never took part may go.
    fn is_idle(&self) -> bool {
        self.highest == 0 && self.caller == Caller::Nobody && self.locked.is_none()
    }

    /// What is about a request or a vote that is over. Numbers and fences only rise.
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

impl Capabilities for Maekawa {}

/// The requester.
impl Maekawa {
    fn on_acquire(&mut self, post: &mut Post<'_>) {
        debug_assert!(self.caller == Caller::Nobody, "the driver serialises local callers");
        self.highest += 1;
        self.number = self.highest;
        self.caller = Caller::Waiting;
        self.votes = vec![Vote::default(); self.quorum.len()];
        self.tell_quorum(&MaekawaMessage::Request { number: self.number, fence: self.fences.count() }, post);
    }

    /// A caller leaves, or gives up: either way every arbiter forgets the request.
    fn on_leave(&mut self, post: &mut Post<'_>) {
        if self.caller != Caller::Nobody {
            self.caller = Caller::Nobody;
            self.votes.clear();
            self.tell_quorum(&MaekawaMessage::Release { number: self.number, fence: self.fences.count() }, post);
        }
    }

    fn on_locked(&mut self, from: usize, grant: u64, post: &mut Post<'_>) {
        let vote = &mut self.votes[from];
        if grant <= vote.heard {
            return;
        }
        *vote = Vote { held: true, heard: grant, failed: false, ..*vote };
        if self.votes.iter().all(|vote| vote.held) {
            return self.enter(post);
        }
        self.yield_if_failed(post);
    }

    /// INQUIRE may overtake the LOCKED it is about; then it waits for it.
    fn on_inquire(&mut self, from: usize, grant: u64, post: &mut Post<'_>) {
        let vote = &mut self.votes[from];
        vote.inquired = vote.inquired.max(grant);
        self.yield_if_failed(post);
    }

    fn on_failed(&mut self, from: usize, grant: u64, post: &mut Post<'_>) {
        let vote = &mut self.votes[from];
        // A LOCKED that was sent after it has overtaken it.
        if vote.heard <= grant && !vote.held {
            vote.failed = true;
            self.yield_if_failed(post);
        }
    }

    /// Whoever cannot enter now gives back every vote it was asked for.
    fn yield_if_failed(&mut self, post: &mut Post<'_>) {
        if !self.votes.iter().any(|vote| vote.failed) {
            return;
        }
        for to in 0..self.votes.len() {
            let vote = &mut self.votes[to];
            if vote.held && vote.inquired == vote.heard {
                (vote.held, vote.failed) = (false, true);
                let message = MaekawaMessage::Relinquish { number: self.number, grant: vote.heard };
                self.send(to, message, post);
            }
        }
    }

    fn enter(&mut self, post: &mut Post<'_>) {
        if let Some(fence) = self.fences.next(Mode::Exclusive) {
            self.caller = Caller::Inside;
            self.votes.clear();
            post.out.push(Effect::Enter { fence });
        }
    }

    fn is_waiting_with(&self, number: u64) -> bool {
        self.caller == Caller::Waiting && self.number == number
    }
}

/// The arbiter.
impl Maekawa {
    fn on_request(&mut self, from: usize, number: u64, post: &mut Post<'_>) {
        if number <= self.known[from] {
            return; // A copy, or its RELEASE was faster.
        }
        self.known[from] = number;
        // A node asks anew only when its last request is over, whether or not the RELEASE has come yet.
        self.forget(from, number - 1);
        let place = self.queue.partition_point(|waiter| (waiter.number, waiter.client) < (number, from));
        self.queue.insert(place, Waiter { number, client: from, failed: false });
        self.arbitrate(Some(from), post);
    }

    fn on_release(&mut self, from: usize, number: u64, post: &mut Post<'_>) {
        self.known[from] = self.known[from].max(number);
        self.forget(from, number);
        self.arbitrate(None, post);
    }

    fn on_relinquish(&mut self, from: usize, number: u64, grant: u64, post: &mut Post<'_>) {
        if grant == self.grants && self.has_voted_for(from, number) {
            self.locked = None;
            let place = self.queue.partition_point(|waiter| (waiter.number, waiter.client) < (number, from));
            self.queue.insert(place, Waiter { number, client: from, failed: true });
            self.arbitrate(None, post);
        }
    }

    fn has_voted_for(&self, client: usize, number: u64) -> bool {
        self.locked.as_ref().is_some_and(|locked| (locked.client, locked.number) == (client, number))
    }

    /// A node's requests up to this number are over.
    fn forget(&mut self, client: usize, number: u64) {
        self.queue.retain(|waiter| waiter.client != client || waiter.number > number);
        self.locked.take_if(|locked| locked.client == client && locked.number <= number);
    }

    /// Votes for the first if it can, asks for the vote back if the first comes before who has it, and tells everybody else
    /// that they must wait.
    fn arbitrate(&mut self, arrival: Option<usize>, post: &mut Post<'_>) {
        if self.locked.is_none() && !self.queue.is_empty() {
            let Waiter { number, client, .. } = self.queue.remove(0);
            self.grants += 1;
            self.locked = Some(Locked { number, client, inquired: false });
            let (grant, highest, fence) = (self.grants, self.highest, self.fences.count());
            self.send(client, MaekawaMessage::Locked { number, grant, highest, fence }, post);
        }
        let Some(locked) = &mut self.locked else { return };
        let (voted, grant) = ((locked.number, locked.client), self.grants);
        let first_is_earlier = self.queue.first().is_some_and(|first| (first.number, first.client) < voted);
        if first_is_earlier && !std::mem::replace(&mut locked.inquired, true) {
            self.send(voted.1, MaekawaMessage::Inquire { number: voted.0, grant }, post);
        }
        for place in usize::from(first_is_earlier)..self.queue.len() {
            let Waiter { number, client, failed } = self.queue[place];
            let told = failed || (self.rules.arrival_only && arrival != Some(client));
            if !told {
                self.queue[place].failed = true;
                self.send(client, MaekawaMessage::Failed { number, grant }, post);
            }
        }
    }
}

/// The mail.
impl Maekawa {
    fn on_message(&mut self, from: usize, message: MaekawaMessage, post: &mut Post<'_>) {
        match message {
            MaekawaMessage::Request { number, fence } if number <= NUMBER_MAX => {
                self.hear(number, fence);
                self.on_request(from, number, post);
            }
            MaekawaMessage::Release { number, fence } if number <= NUMBER_MAX => {
                self.hear(number, fence);
                self.on_release(from, number, post);
            }
            MaekawaMessage::Relinquish { number, grant } => self.on_relinquish(from, number, grant, post),
            MaekawaMessage::Locked { number, grant, highest, fence } if self.is_waiting_with(number) => {
                self.hear(highest, fence);
                self.on_locked(from, grant, post);
            }
            MaekawaMessage::Failed { number, grant } if self.is_waiting_with(number) => {
                self.on_failed(from, grant, post);
            }
            MaekawaMessage::Inquire { number, grant } if self.is_waiting_with(number) => {
                self.on_inquire(from, grant, post);
            }
            _ => {}
        }
    }

    fn hear(&mut self, number: u64, fence: u64) {
        self.highest = self.highest.max(number.min(NUMBER_MAX - 1));
        self.fences.observe(fence);
    }

    fn tell_quorum(&self, message: &MaekawaMessage, post: &mut Post<'_>) {
        (0..self.quorum.len()).for_each(|to| self.send(to, message.clone(), post));
    }

    fn send(&self, to: usize, message: MaekawaMessage, post: &mut Post<'_>) {
        if to == self.at {
            post.own.push_back(message);
        } else {
            post.out.push(Effect::Send { to: self.quorum[to], message });
        }
    }
}
