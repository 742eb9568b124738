//! Whose turn it is: callers who only try are told BUSY for a reason, callers are refused for a reason, and nobody is overtaken without
//! bound. A view, a lapse and a connection that breaks are reasons of their own.

use std::collections::BTreeMap;

use hallpass_core::{Mode, NodeId};
use hallpass_node::Refusal;

use super::World;
use super::callers::Activity;
use super::plan::Plan;
use crate::oracle::{Attempts, Entered, Fairness, Violation};

/// The oracles of one lock that follow its callers.
pub(super) struct Turns {
    attempts: Attempts,
    pub(super) fairness: Fairness,
    /// For each machine whose node asks: what its peers must have received to know it.
    marks: BTreeMap<usize, Mark>,
}

/// All that a node has sent at some time after it began to ask.
struct Mark {
    /// Which asking.
    turn: u64,
    sent: Sent,
}

/// For each peer: the connection, and how many bytes on it.
type Sent = BTreeMap<NodeId, (usize, u64)>;

impl Turns {
    pub(super) fn new(plan: &Plan) -> Self {
        let fairness = Fairness::new(plan.callers, plan.local_streak);
        Self { attempts: Attempts::default(), fairness, marks: BTreeMap::new() }
    }
}

impl World {
    /// A caller is about to ask.
    pub(super) fn watch_ask(&mut self, caller: usize, tries: bool) {
        let (machine, lock, mode) = self.wants(caller);
        let (id, name) = (self.id(machine), self.name(caller));
        self.watches[lock].turns.attempts.on_ask(id, name, mode, tries);
        if tries && (!self.plan.is_answered_in_one_round_trip(lock) || self.is_cut_short(machine)) {
            self.watches[lock].turns.attempts.on_excuse(id);
        }
    }

    pub(super) fn watch_wait(&mut self, caller: usize, tries: bool) {
        let (machine, lock, mode) = self.wants(caller);
        let name = self.name(caller);
        self.watches[lock].turns.fairness.on_wait(machine, name, mode, tries);
    }

    pub(super) fn watch_turn(&mut self, caller: usize) {
        let (machine, lock, mode) = self.wants(caller);
        let (id, name) = (self.id(machine), self.name(caller));
        let heard: Vec<bool> = if self.is_calm() {
            (0..self.machines.len()).map(|asking| self.is_heard(lock, asking, machine)).collect()
        } else {
            self.watches[lock].turns.marks.clear();
            Vec::new()
        };
        let turns = &mut self.watches[lock].turns;
        turns.attempts.on_enter(name);
        let violation = turns.fairness.on_enter(&Entered { node: machine, id, caller: name, mode, heard: &heard });
        self.note(violation);
    }

    /// A caller who was inside has left, or has lost the lock.
    pub(super) fn watch_exit(&mut self, caller: usize) {
        let (machine, lock, _) = self.wants(caller);
        let name = self.name(caller);
        let turns = &mut self.watches[lock].turns;
        turns.attempts.on_gone(name);
        turns.fairness.on_exit(machine);
    }

    /// A caller waits no longer, without having been inside.
    pub(super) fn watch_gone(&mut self, caller: usize) {
        let (machine, lock, _) = self.wants(caller);
        let name = self.name(caller);
        let turns = &mut self.watches[lock].turns;
        turns.attempts.on_gone(name);
        turns.fairness.on_gone(machine, name);
    }

    /// A caller is told that the lock is not free.
    pub(super) fn watch_busy(&mut self, caller: usize) {
        let (machine, lock, _) = self.wants(caller);
        let (id, name) = (self.id(machine), self.name(caller));
        self.report.busy += 1;
        let is_cut_short = self.is_cut_short(machine);
        let attempts = &mut self.watches[lock].turns.attempts;
        if is_cut_short {
            attempts.on_excuse(id);
        }
        let violation = attempts.on_busy(name);
        self.note(violation);
        self.watch_gone(caller);
    }

    /// A node does not take a request: for the reason that it gives, and no other.
    pub(super) fn watch_refusal(&mut self, caller: usize, refusal: Refusal) {
        let (machine, ..) = self.wants(caller);
        let uses = |activity| matches!(activity, Activity::Waiting(_) | Activity::Inside { .. });
        let others =
            self.callers.iter().enumerate().filter(|(other, here)| *other != caller && here.machine == machine);
        let (limits, process) = (self.plan.limits, self.machines[machine].process.as_ref());
        let explained = process.is_some_and(|process| match refusal {
            Refusal::Locks => process.node.len() >= limits.locks,
            Refusal::Callers => others.filter(|(_, other)| uses(other.activity)).count() >= limits.callers,
            Refusal::Backlog(peer) => {
                process.node.members().iter().any(|member| member.id == peer && member.backlog > limits.backlog)
            }
            // Names are short, all protocols take readers, and no run uses up its fences.
            _ => false,
        });
        if !explained {
            let (name, id) = (self.name(caller), self.id(machine));
            let text = format!("caller {name:x} on node {id} was refused for nothing: {refusal}");
            self.note(Some(Violation { property: "refusal", text }));
        }
        self.watch_gone(caller);
    }

    /// A node's view or one of its connections is not what it was: callers who only try may be told BUSY for that.
    pub(super) fn excuse_attempts(&mut self, machine: usize) {
        let id = self.id(machine);
        self.watches.iter_mut().for_each(|watch| watch.turns.attempts.on_excuse(id));
    }

    /// A node cannot reach every member of its view now, or its view has just changed.
    fn is_cut_short(&self, machine: usize) -> bool {
        let Some(process) = &self.machines[machine].process else { return true };
        !process.node.is_complete() || process.seen != (process.node.epoch(), true) || !process.node.reaches_view()
    }

    /// The faults are over, and all nodes are in one open view. Before that bytes are lost with connections, and a view makes all
    /// requests again.
    fn is_calm(&self) -> bool {
        let epoch = Some(self.epochs.highest());
        self.now >= self.plan.faults_until
            && self.machines.iter().filter(|machine| !machine.is_gone).all(|machine| {
                let process = machine.process.as_ref().filter(|_| !machine.paused);
                process.is_some_and(|process| process.node.is_complete() && process.node.epoch() == epoch)
            })
    }

    /// True if all others have heard that a node asks, while one of them enters.
    fn is_heard(&mut self, lock: usize, asking: usize, entering: usize) -> bool {
        let mark = self.watches[lock].turns.marks.remove(&asking);
        let turn = self.watches[lock].turns.fairness.turn(asking);
        let (Some(turn), true) = (turn, asking != entering && self.plan.asks_all_itself(lock)) else { return false };
        let Some(sent) = self.sent_by(asking) else { return false };
        let same = |mark: &Mark| mark.turn == turn && mark.sent.iter().map(connection).eq(sent.iter().map(connection));
        let Some(mut mark) = mark.filter(same) else {
            self.watches[lock].turns.marks.insert(asking, Mark { turn, sent });
            return false;
        };
        let heard = mark.sent.values().all(|(connection, bytes)| self.received(*connection, asking) >= *bytes);
        if heard {
            // A node that is let go first, for it has asked before, is asked again for what it was given. It must have heard
            // that as well before its next entry counts.
            let entering = self.id(entering);
            if let (Some(then), Some(now)) = (mark.sent.get_mut(&entering), sent.get(&entering)) {
                *then = *now;
            }
        }
        self.watches[lock].turns.marks.insert(asking, mark);
        heard
    }

    /// How many bytes from this machine have arrived at the other end of a connection.
    fn received(&self, connection: usize, from: usize) -> u64 {
        self.connections[connection].ends[1 - self.end_of(connection, from)].received
    }

    /// For each member of its view how many bytes a node has for it in all; `None` if one is not connected: what the node has for
    /// it is kept then, and given to no connection.
    fn sent_by(&self, machine: usize) -> Option<Sent> {
        let process = self.machines[machine].process.as_ref().filter(|process| process.node.reaches_view())?;
        let me = process.node.id();
        let sent = process.node.view().into_iter().filter(|peer| *peer != me).map(|peer| {
            let connection = *process.locks.get(&peer)?;
            let end = &self.connections[connection].ends[self.end_of(connection, machine)];
            Some((peer, (connection, end.sent + process.node.poll_transmit(peer).len() as u64)))
        });
        sent.collect()
    }

    fn wants(&self, caller: usize) -> (usize, usize, Mode) {
        let caller = &self.callers[caller];
        (caller.machine, caller.lock, caller.mode)
    }
}

/// The connection with a peer.
fn connection((peer, (connection, _)): (&NodeId, &(usize, u64))) -> (NodeId, usize) {
    (*peer, *connection)
}
