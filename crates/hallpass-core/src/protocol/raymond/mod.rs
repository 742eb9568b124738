//! Raymond, 'A Tree-Based Algorithm for Distributed Mutual Exclusion', 1989.
//!
//! The nodes form a tree, and one of them has the privilege. Every node knows in which direction it is: HOLDER. A node that
//! asks to enter sends a REQUEST that way, from neighbour to neighbour. The PRIVILEGE comes back the same way and reverses
//! each HOLDER it passes. A node asks its neighbour once, for itself and for all beyond it, so that an entry costs under
//! four messages on any tree if the lock is busy, and O(log N) on a good tree if it is not.
//!
//! | here | the paper | section |
//! |---|---|---|
//! | [`Raymond`] | the algorithm, piggybacking, the greedy strategy, initialization | 3, 6, 7 |
//! | `tree` | the trees | 2, 5 |
//! | `recovery` | a node restarts and asks its neighbours | 8 |
//!
//! Readers are not known to the paper: a shared request is served as an exclusive one.

mod message;
mod recovery;
mod rules;
#[cfg(test)]
mod tests;
mod tree;

use super::constant::Constant;
use super::{Bounds, Capabilities, Effect, Effects, Input, Needs, OptionError, Options, Protocol, Variables};
use crate::{FenceCounter, Mode, NodeId, Setup};

pub use message::{RaymondMessage, Standing};
pub use rules::RaymondRules;

use recovery::Recovery;

/// One node's part of the algorithm: 'information held by each node' (3.1).
///
/// - **Inputs**: [`handle`](Protocol::handle).
/// - **Getters**, for tests and the simulator: [`holder`](Self::holder), [`queue`](Self::queue), [`has_asked`](Self::has_asked).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Raymond {
    fixed: Constant<Fixed>,
    /// `HOLDER`: this node ('self') or the neighbour in whose direction the privilege is. None before INITIALIZE, and
    /// while a node that has restarted does not know.
    holder: Option<NodeId>,
    /// `USING`.
    using: bool,
    /// `ASKED`.
    asked: bool,
    /// `REQUEST_Q`, the head first, with this node in place of 'self'. No node is in it twice, which bounds it.
    queue: Vec<NodeId>,
    /// At the holder: counts the entries, and travels with the privilege. Elsewhere as it was when the privilege was
    /// here, since section 8 asks for that.
    fences: FenceCounter,
    /// Section 8, if nodes may come back.
    recovery: Option<Box<Recovery>>,
}

/// What never changes for one node of one view.
#[derive(Debug)]
struct Fixed {
    me: NodeId,
    rules: RaymondRules,
    bounds: Bounds,
    neighbours: Vec<NodeId>,
    incarnation: u32,
    /// `HOLDER` and the counter at the start.
    home: (Option<NodeId>, FenceCounter),
}

/// The timer of [`Raymond`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RaymondTimer {
    /// Section 8: all that this node sent in its former incarnation has arrived.
    RestartInterval,
}

type Out = Effects<RaymondMessage, RaymondTimer>;

impl Protocol for Raymond {
    type Message = RaymondMessage;
    type Timer = RaymondTimer;
    type Options = RaymondRules;

    fn parse(options: &Options) -> Result<RaymondRules, OptionError> {
        RaymondRules::parse(options)
    }

    fn needs(rules: &RaymondRules) -> Needs {
        rules.needs()
    }

    /// As after the flood of INITIALIZE (7): the privilege is at the initial holder, which is inside, or else at the root.
    fn new(setup: &Setup<'_, RaymondRules>) -> Self {
        let rules = setup.options.clone();
        let first = setup.initial.holders.first().copied();
        let (neighbours, place) = rules.tree.place(setup.view.members(), setup.me, first);
        let holder = place.filter(|place| !rules.initialize || *place == setup.me);
        let fences = setup.fences();
        Self {
            holder,
            using: first == Some(setup.me),
            asked: false,
            queue: Vec::new(),
            fences,
            recovery: rules.recovery.then(|| Box::new(Recovery::new(neighbours.len(), fences.count()))),
            fixed: Constant::new(Fixed {
                me: setup.me,
                rules,
                bounds: setup.bounds,
                neighbours,
                incarnation: setup.incarnation,
                home: (holder, fences),
            }),
        }
    }

    fn handle(&mut self, input: Input<RaymondMessage, RaymondTimer>, out: &mut Out) {
        match input {
            Input::Acquire { .. } => self.on_acquire(out),
            Input::Cancel => self.on_cancel(out),
            Input::Release => self.on_release(out),
            Input::Deliver { from, message } => {
                if let Ok(neighbour) = self.fixed.neighbours.binary_search(&from) {
                    self.on_message(from, neighbour, message, out);
                }
            }
            Input::Join { .. } if self.recovery.is_some() => self.on_restart_of_this_node(out),
            Input::Join { .. } => self.initialize(out),
            Input::Timeout(RaymondTimer::RestartInterval) => self.on_restart_interval_timeout(out),
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        let name = |node: NodeId| if node == self.fixed.me { "self".to_owned() } else { node.to_string() };
        out.optional("HOLDER", self.holder.map(name));
        out.flag("USING", self.using);
        out.list("REQUEST_Q", self.queue.iter().map(|node| name(*node)));
        out.flag("ASKED", self.asked);
        out.set("fence", self.fences.count());
    }

    /// As at the start. Once the privilege was used or has moved, its nodes must remember that.
    fn is_idle(&self) -> bool {
        let (holder, fences) = self.fixed.home;
        let as_at_the_start = self.holder == holder && (holder != Some(self.fixed.me) || self.fences == fences);
        let restarted = self.recovery.as_ref().is_some_and(|recovery| recovery.is_marked());
        as_at_the_start && !self.using && !self.asked && self.queue.is_empty() && !restarted
    }

    /// A message to a former incarnation. Incarnations only rise, so it stays moot.
    fn is_moot(&self, _: NodeId, message: &RaymondMessage) -> bool {
        let (RaymondMessage::Request { incarnation }
        | RaymondMessage::Privilege { incarnation, .. }
        | RaymondMessage::Advise { incarnation, .. }) = message
        else {
            return false;
        };
        *incarnation < self.incarnation() && !self.takes_former_incarnations()
    }
}

impl Capabilities for Raymond {
    fn is_cached(&self) -> bool {
        self.holder == Some(self.fixed.me)
    }
}

/// The four events of 3.4, and what they have in common.
impl Raymond {
    /// 'The node wishes to enter the critical section.'
    fn on_acquire(&mut self, out: &mut Out) {
        debug_assert!(!self.using && !self.queue.contains(&self.fixed.me), "the driver serialises local callers");
        if self.fixed.rules.greedy {
            self.queue.insert(0, self.fixed.me);
        } else {
            self.queue.push(self.fixed.me);
        }
        self.proceed(out);
    }

    /// 'The node receives a REQUEST message from neighbor X.' Overtaking (3.5) is harmless: if the PRIVILEGE before it is
    /// still in flight, this node has asked for it, so X is queued and nothing else happens.
    fn on_request(&mut self, from: NodeId, out: &mut Out) {
        self.enqueue(from);
        self.proceed(out);
    }

    /// 'The node receives a PRIVILEGE message.' It comes from where HOLDER points, or it is not valid. A piggybacked REQUEST
    /// counts as one that overtook it (3.5), so that the PRIVILEGE can carry one again when it is passed on.
    fn on_privilege(&mut self, from: NodeId, count: u64, asks: bool, out: &mut Out) {
        let expected = self.holder == Some(from) || self.is_recovering() || self.takes_former_incarnations();
        if !expected || self.holder == Some(self.fixed.me) {
            return;
        }
        self.holder = Some(self.fixed.me);
        self.set_count(count);
        self.note_base();
        if asks {
            self.enqueue(from);
        }
        self.proceed(out);
    }

    /// 'The node exits the critical section.'
    fn on_release(&mut self, out: &mut Out) {
        self.using = false;
        self.proceed(out);
    }

    /// A caller that gives up leaves the queue. The REQUEST that was sent for it cannot be taken back: the PRIVILEGE will
    /// come, and stays here or goes on to the head of the queue.
    fn on_cancel(&mut self, out: &mut Out) {
        self.queue.retain(|node| *node != self.fixed.me);
        self.proceed(out);
    }

    fn enqueue(&mut self, node: NodeId) {
        if !self.queue.contains(&node) {
            self.queue.push(node);
        }
    }

    /// ASSIGN_PRIVILEGE, then MAKE_REQUEST, then what they send: two messages, or with piggybacking one (6.1). 'Not called
    /// during the recovery phase' (8), nor before INITIALIZE (7).
    fn proceed(&mut self, out: &mut Out) {
        if self.is_recovering() || self.holder.is_none() {
            return;
        }
        let assigned = self.assign_privilege(out);
        let requested = self.make_request();
        let piggybacked = assigned.is_some() && requested.is_some() && self.fixed.rules.piggyback;
        if let Some(to) = assigned {
            self.send(
                to,
                |incarnation| RaymondMessage::Privilege { incarnation, count: self.fences.count(), asks: piggybacked },
                out,
            );
        }
        if let Some(to) = requested.filter(|_| !piggybacked) {
            self.send(to, |incarnation| RaymondMessage::Request { incarnation }, out);
        }
    }

    /// ASSIGN_PRIVILEGE (3.2): enters, or returns the node that the privilege goes to.
    fn assign_privilege(&mut self, out: &mut Out) -> Option<NodeId> {
        let may = self.holder == Some(self.fixed.me) && !self.using;
        let head = *self.queue.first().filter(|_| may)?;
        if head != self.fixed.me {
            self.queue.remove(0);
            self.holder = Some(head);
            self.asked = false;
            return Some(head);
        }
        // At the end of all counts nobody enters any more, and the request stays where it is.
        if self.fences.count() >= self.count_max() {
            return None;
        }
        self.send_count_if_due(out);
        let fence = self.fences.next(Mode::Exclusive)?;
        self.queue.remove(0);
        self.asked = false;
        self.using = true;
        out.push(Effect::Enter { fence });
        None
    }

    /// MAKE_REQUEST (3.3): returns the node to ask, if one must be asked.
    fn make_request(&mut self) -> Option<NodeId> {
        let due = self.holder != Some(self.fixed.me) && !self.queue.is_empty() && !self.asked;
        self.asked |= due;
        self.holder.filter(|_| due)
    }

    /// Section 7: the first holder sends INITIALIZE to its neighbours, and they to theirs.
    fn initialize(&mut self, out: &mut Out) {
        if self.fixed.rules.initialize && self.fixed.home.0 == Some(self.fixed.me) {
            out.extend(self.fixed.neighbours.iter().map(|to| initialize(*to)));
        }
    }

    /// 'Once a node has received the INITIALIZE message, it may request the privilege', though others have not yet.
    fn on_initialize(&mut self, from: NodeId, out: &mut Out) {
        if self.holder.is_none() && self.fixed.rules.initialize {
            self.holder = Some(from);
            out.extend(self.fixed.neighbours.iter().filter(|to| **to != from).map(|to| initialize(*to)));
            self.proceed(out);
        }
    }

    fn on_message(&mut self, from: NodeId, neighbour: usize, message: RaymondMessage, out: &mut Out) {
        match message {
            RaymondMessage::Request { incarnation } if self.is_for_this(incarnation) => self.on_request(from, out),
            RaymondMessage::Privilege { incarnation, count, asks } if self.is_for_this(incarnation) => {
                self.note_served(neighbour);
                self.on_privilege(from, count, asks, out);
            }
            RaymondMessage::Request { .. } | RaymondMessage::Privilege { .. } => {}
            RaymondMessage::Initialize => self.on_initialize(from, out),
            RaymondMessage::Restart { incarnation } => self.on_restart(neighbour, incarnation, out),
            RaymondMessage::Advise { incarnation, sender, standing, served, count } => {
                self.on_advise(neighbour, incarnation, sender, recovery::Advice { standing, served, count }, out);
            }
        }
    }

    fn set_count(&mut self, count: u64) {
        self.fences = FenceCounter::new(self.fences.epoch(), count);
    }

    fn send(&self, to: NodeId, message: impl FnOnce(u32) -> RaymondMessage, out: &mut Out) {
        out.push(Effect::Send { to, message: message(self.incarnation_of(to)) });
    }
}

impl Raymond {
    /// `HOLDER`: the node itself or the neighbour in whose direction the privilege is, if it knows.
    pub fn holder(&self) -> Option<NodeId> {
        self.holder
    }

    /// `REQUEST_Q`, the head first, the node itself in place of 'self'.
    pub fn queue(&self) -> &[NodeId] {
        &self.queue
    }

    /// `ASKED`: a REQUEST of this node is on its way to HOLDER or in its queue.
    pub fn has_asked(&self) -> bool {
        self.asked
    }

    /// The node's neighbours in the tree, in rising order.
    pub fn neighbours(&self) -> &[NodeId] {
        &self.fixed.neighbours
    }
}

fn initialize(to: NodeId) -> Effect<RaymondMessage, RaymondTimer> {
    Effect::Send { to, message: RaymondMessage::Initialize }
}
