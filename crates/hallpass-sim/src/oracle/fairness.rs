use std::collections::{BTreeMap, VecDeque};

use hallpass_core::{Mode, NodeId};

use super::Violation;

/// Bounded overtaking among the callers of whole nodes. One oracle a lock.
///
/// - Callers of one node enter in the order in which they asked.
/// - Once the others have heard that a node asks, each of them takes at most two turns before it. A turn is `local_streak`
///   entries in a row, or that many groups of readers. Entries that do not conflict do not count.
///
/// The second rule is for protocols in which a node asks all others itself: what they have heard, they put before their own
/// later requests. So one turn is for a request that was made before. The other one is for a node whose permission the one
/// that asks had already: it is asked only when it has taken that permission back, and may have made a request by then.
#[derive(Clone, Debug)]
pub struct Fairness {
    local_streak: u64,
    /// How many callers each node has: the most readers in one group.
    callers: u64,
    nodes: Vec<NodeQueue>,
    worst: u64,
}

/// The most turns of one node before another one of which it knows.
const TURNS: u64 = 2;

/// What the oracle knows of one node.
#[derive(Clone, Debug, Default)]
struct NodeQueue {
    inside: usize,
    /// In the order in which they asked.
    waiting: VecDeque<Waiter>,
    /// How often the node has begun to ask.
    turn: u64,
    /// Conflicting entries of each node that had heard that this one asks. A writer counts as much as a group of readers.
    overtakes: BTreeMap<usize, u64>,
}

/// A caller enters.
#[derive(Clone, Copy, Debug)]
pub struct Entered<'a> {
    /// Its node, by position.
    pub node: usize,
    /// The node's id.
    pub id: NodeId,
    /// The caller.
    pub caller: u64,
    /// Exclusive or shared.
    pub mode: Mode,
    /// For each node, whether all others have heard that it asks.
    pub heard: &'a [bool],
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    caller: u64,
    mode: Mode,
    tries: bool,
}

impl NodeQueue {
    /// The first waiter or what is inside has changed: the node asks anew, or no longer.
    fn restart(&mut self) {
        self.turn += 1;
        self.overtakes.clear();
    }

    /// The caller for whom the node asks the others.
    fn asks_for(&self) -> Option<&Waiter> {
        self.waiting.front().filter(|first| self.inside == 0 && !first.tries)
    }

    fn remove(&mut self, caller: u64) -> Option<usize> {
        let position = self.waiting.iter().position(|waiter| waiter.caller == caller)?;
        self.waiting.remove(position);
        Some(position)
    }
}

impl Fairness {
    /// For nodes that have at most `callers` callers each, with this setting.
    pub fn new(callers: usize, local_streak: u32) -> Self {
        Self { local_streak: local_streak.into(), callers: callers as u64, nodes: Vec::new(), worst: 0 }
    }

    fn node(&mut self, node: usize) -> &mut NodeQueue {
        if self.nodes.len() <= node {
            self.nodes.resize_with(node + 1, NodeQueue::default);
        }
        &mut self.nodes[node]
    }

    /// A view begins: requests are made again, and what was overtaken before does not count.
    pub fn on_view(&mut self) {
        self.nodes.iter_mut().for_each(NodeQueue::restart);
    }

    /// A caller on the node at this position has to wait.
    pub fn on_wait(&mut self, node: usize, caller: u64, mode: Mode, tries: bool) {
        let queue = self.node(node);
        queue.waiting.push_back(Waiter { caller, mode, tries });
        if queue.waiting.len() == 1 {
            queue.restart();
        }
    }

    /// A number that names the present asking of a node, or `None` if it asks for nobody who waits.
    pub fn turn(&self, node: usize) -> Option<u64> {
        let queue = self.nodes.get(node)?;
        queue.asks_for().map(|_| queue.turn)
    }

    /// A caller enters, whether it had to wait or not.
    pub fn on_enter(&mut self, entry: &Entered<'_>) -> Option<Violation> {
        let Entered { node, id, caller, mode, .. } = *entry;
        let queue = self.node(node);
        let ahead = queue.waiting.front().map(|first| first.caller).filter(|first| *first != caller);
        queue.remove(caller);
        queue.inside += 1;
        queue.restart();
        if let Some(first) = ahead {
            let text = format!("caller {caller:x} on node {id} entered before {first:x}, who waits there for longer");
            return Some(Violation { property: "overtaking", text });
        }
        let (weight, mut overtaken) = (if mode == Mode::Shared { 1 } else { self.callers }, None);
        for other in (0..self.nodes.len()).filter(|other| *other != node && entry.heard.get(*other) == Some(&true)) {
            let queue = &mut self.nodes[other];
            let Some(first) = queue.asks_for().filter(|first| first.mode.conflicts(mode)).copied() else { continue };
            let overtakes = queue.overtakes.entry(node).or_default();
            *overtakes += weight;
            overtaken = overtaken.max(Some((*overtakes, first.caller)));
        }
        let (weight, first) = overtaken?;
        self.worst = self.worst.max(weight.div_ceil(self.callers));
        let text = format!("node {id} took more than {TURNS} turns before caller {first:x}, of whom it knew");
        let allowed = TURNS * self.local_streak * self.callers;
        (weight > allowed).then_some(Violation { property: "overtaking", text })
    }

    /// A caller on this node leaves.
    pub fn on_exit(&mut self, node: usize) {
        let queue = self.node(node);
        queue.inside = queue.inside.saturating_sub(1);
        queue.restart();
    }

    /// A caller on this node waits no longer: it gave up, or was refused.
    pub fn on_gone(&mut self, node: usize, caller: u64) {
        let queue = self.node(node);
        if queue.remove(caller) == Some(0) {
            queue.restart();
        }
    }

    /// The most entries, of writers or groups of readers, that one node made before another one of which it knew.
    pub fn worst(&self) -> u64 {
        self.worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Mode = Mode::Exclusive;
    const READ: Mode = Mode::Shared;

    /// Two nodes with two callers each; caller 1 waits on the first one.
    fn waiting(local_streak: u32, mode: Mode) -> Fairness {
        let mut oracle = Fairness::new(2, local_streak);
        oracle.on_wait(0, 1, mode, false);
        assert!(oracle.turn(0).is_some());
        oracle
    }

    fn enters(oracle: &mut Fairness, node: usize, caller: u64, mode: Mode, heard: bool) -> Option<Violation> {
        let id = NodeId(node as u32 + 1);
        oracle.on_enter(&Entered { node, id, caller, mode, heard: &[heard; 2] })
    }

    /// A caller on the second node, which knows that the first one asks, enters and leaves.
    fn passes(oracle: &mut Fairness, mode: Mode) -> Option<Violation> {
        let violation = enters(oracle, 1, 9, mode, true);
        oracle.on_exit(1);
        violation
    }

    #[test]
    fn a_third_turn_of_another_node_is_caught() {
        let mut oracle = waiting(1, WRITE);
        assert!((0..2).all(|_| passes(&mut oracle, WRITE).is_none()));
        assert_eq!(
            passes(&mut oracle, WRITE).unwrap().to_string(),
            "overtaking: node 2 took more than 2 turns before caller 1, of whom it knew"
        );
        assert_eq!(oracle.worst(), 3);
    }

    #[test]
    fn a_turn_is_a_streak_of_writers_or_of_groups_of_readers() {
        let mut oracle = waiting(2, WRITE);
        assert!((0..4).all(|_| passes(&mut oracle, WRITE).is_none()));
        assert!(passes(&mut oracle, WRITE).is_some());
        let mut oracle = waiting(2, WRITE);
        assert!((0..8).all(|_| passes(&mut oracle, READ).is_none()));
        assert!(passes(&mut oracle, READ).is_some());
        let mut oracle = waiting(1, WRITE);
        assert!([READ, READ, WRITE].into_iter().all(|mode| passes(&mut oracle, mode).is_none()));
        assert!(passes(&mut oracle, READ).is_some());
    }

    #[test]
    fn what_is_not_known_or_does_not_conflict_is_not_overtaken() {
        let mut oracle = waiting(1, WRITE);
        for _ in 0..9 {
            assert_eq!(enters(&mut oracle, 1, 9, WRITE, false), None);
            oracle.on_exit(1);
        }
        let mut oracle = waiting(1, READ);
        assert!((0..9).all(|_| passes(&mut oracle, READ).is_none()), "readers share");
        let mut oracle = Fairness::new(2, 1);
        oracle.on_wait(0, 1, WRITE, true);
        assert_eq!(oracle.turn(0), None, "who only tries does not wait");
        assert!((0..9).all(|_| passes(&mut oracle, WRITE).is_none()));
        oracle.on_gone(0, 1);
        oracle.on_wait(0, 2, WRITE, false);
        assert!(oracle.turn(0).is_some());
    }

    #[test]
    fn an_own_entry_starts_the_count_again() {
        let mut oracle = waiting(1, WRITE);
        assert!((0..2).all(|_| passes(&mut oracle, WRITE).is_none()));
        oracle.on_wait(0, 2, WRITE, false);
        let turn = oracle.turn(0);
        assert_eq!(enters(&mut oracle, 0, 1, WRITE, true), None);
        assert_eq!(oracle.turn(0), None, "inside, it asks for nobody");
        oracle.on_exit(0);
        assert!(oracle.turn(0) > turn);
        assert!((0..2).all(|_| passes(&mut oracle, WRITE).is_none()));
        assert!(passes(&mut oracle, WRITE).is_some());
    }

    #[test]
    fn a_view_starts_the_count_again_and_keeps_the_order() {
        let mut oracle = waiting(1, WRITE);
        assert!((0..2).all(|_| passes(&mut oracle, WRITE).is_none()));
        let turn = oracle.turn(0);
        oracle.on_view();
        assert!(oracle.turn(0) > turn);
        assert!((0..2).all(|_| passes(&mut oracle, WRITE).is_none()));
        assert!(passes(&mut oracle, WRITE).is_some());
        oracle.on_wait(0, 2, WRITE, false);
        oracle.on_view();
        assert!(enters(&mut oracle, 0, 2, WRITE, true).is_some(), "caller 1 waits for longer");
    }

    #[test]
    fn a_caller_who_passes_another_on_its_own_node_is_caught() {
        let mut oracle = Fairness::new(2, 1);
        oracle.on_wait(0, 1, READ, false);
        oracle.on_wait(0, 2, READ, false);
        let violation = enters(&mut oracle, 0, 2, READ, false).unwrap();
        assert_eq!(violation.text, "caller 2 on node 1 entered before 1, who waits there for longer");
        assert!(enters(&mut oracle, 0, 3, READ, false).is_some(), "also without waiting");
        assert_eq!(enters(&mut oracle, 0, 1, READ, false), None);
    }
}
