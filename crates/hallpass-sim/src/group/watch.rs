//! What the oracles are told of callers.

use hallpass_core::{Fence, Mode};
use hallpass_node::Refusal;

use super::{Activity, Group, Plan};
use crate::oracle::{Attempts, Entry, Exclusion, Fairness, FenceOrder, Violation};

/// The oracles of one lock.
pub(super) struct Watch {
    exclusion: Exclusion,
    fences: FenceOrder,
    attempts: Attempts,
    fairness: Fairness,
    /// For each node that asks: what its peers must have received to know it.
    marks: Vec<Option<Mark>>,
}

/// All that a node has sent at some time after it began to ask.
struct Mark {
    /// Which asking.
    turn: u64,
    /// For each peer: the connection, and how many bytes on it.
    sent: Vec<(usize, u64)>,
}

impl Watch {
    pub(super) fn new(plan: &Plan) -> Self {
        let nodes = plan.nodes;
        Self {
            exclusion: Exclusion::default(),
            fences: FenceOrder::default(),
            attempts: Attempts::default(),
            fairness: Fairness::new(nodes, plan.callers, plan.local_streak),
            marks: (0..nodes).map(|_| None).collect(),
        }
    }

    pub(super) fn overtaken(&self) -> u64 {
        self.fairness.worst()
    }
}

impl Group {
    /// A caller is about to ask.
    pub(super) fn watch_ask(&mut self, caller: usize, tries: bool) {
        let (node, lock, mode) = self.wants(caller);
        let (id, name) = (self.members[node].id, self.name(caller));
        self.watches[lock].attempts.on_ask(id, name, mode, tries);
        let member = &self.members[node];
        let reachable = member.node.is_complete() && self.peers(node).all(|peer| member.current[peer].is_some());
        if !reachable || !self.plan.is_answered_in_one_round_trip(lock) {
            self.watches[lock].attempts.on_excuse(id);
        }
    }

    pub(super) fn watch_wait(&mut self, caller: usize, tries: bool) {
        let (node, lock, mode) = self.wants(caller);
        let name = self.name(caller);
        self.watches[lock].fairness.on_wait(node, name, mode, tries);
    }

    pub(super) fn watch_enter(&mut self, caller: usize, fence: Fence) {
        let (node, lock, mode) = self.wants(caller);
        let (id, name) = (self.members[node].id, self.name(caller));
        let heard: Vec<bool> = (0..self.members.len()).map(|asking| self.is_heard(lock, asking, node)).collect();
        let entry = Entry { node, id, caller: name, mode, heard: &heard };
        let watch = &mut self.watches[lock];
        watch.attempts.on_enter(name);
        let violations = [
            watch.exclusion.on_enter(id, mode),
            watch.fences.on_enter(id, mode, fence),
            watch.fairness.on_enter(&entry),
        ];
        violations.into_iter().for_each(|violation| self.note(violation));
    }

    pub(super) fn watch_exit(&mut self, caller: usize) {
        let (node, lock, mode) = self.wants(caller);
        let (id, name) = (self.members[node].id, self.name(caller));
        let watch = &mut self.watches[lock];
        watch.exclusion.on_exit(id, mode);
        watch.attempts.on_gone(name);
        watch.fairness.on_exit(node);
    }

    /// A caller waits no longer, without having been inside.
    pub(super) fn watch_gone(&mut self, caller: usize) {
        let (node, lock, _) = self.wants(caller);
        let name = self.name(caller);
        self.watches[lock].attempts.on_gone(name);
        self.watches[lock].fairness.on_gone(node, name);
    }

    /// A caller is told that the lock is not free.
    pub(super) fn watch_busy(&mut self, caller: usize) {
        let (_, lock, _) = self.wants(caller);
        let name = self.name(caller);
        self.report.busy += 1;
        let violation = self.watches[lock].attempts.on_busy(name);
        self.note(violation);
        self.watch_gone(caller);
    }

    /// A node does not take a request: for the reason that it gives, and no other.
    pub(super) fn watch_refusal(&mut self, caller: usize, refusal: Refusal) {
        let (node, ..) = self.wants(caller);
        let member = &self.members[node];
        let uses = |activity| matches!(activity, Activity::Waiting(_) | Activity::Inside { .. });
        let here = || self.callers.iter().enumerate().filter(|(other, here)| *other != caller && here.node == node);
        let limits = &self.plan.limits;
        let explained = match refusal {
            Refusal::Locks => member.node.len() >= limits.locks,
            Refusal::Callers => here().filter(|(_, caller)| uses(caller.activity)).count() >= limits.callers,
            Refusal::Backlog(peer) => {
                member.node.members().iter().any(|member| member.id == peer && member.backlog > limits.backlog)
            }
            // Names are short, all protocols take readers, and no run uses up its fences.
            _ => false,
        };
        self.report.refused += 1;
        if !explained {
            let text =
                format!("caller {:x} on node {} was refused for nothing: {refusal}", self.name(caller), member.id);
            self.note(Some(Violation { property: "refusal", text }));
        }
        self.watch_gone(caller);
    }

    /// A node has lost the connection with a peer.
    pub(super) fn watch_disconnect(&mut self, node: usize) {
        let id = self.members[node].id;
        self.watches.iter_mut().for_each(|watch| watch.attempts.on_excuse(id));
    }

    /// True if all others have heard that a node asks, while one of them enters. Only without faults: lost and repeated
    /// frames cannot be told apart by counting bytes.
    fn is_heard(&mut self, lock: usize, asking: usize, entering: usize) -> bool {
        let mark = self.watches[lock].marks[asking].take();
        let calm = self.now >= self.plan.faults_until && self.members.iter().all(|member| member.node.is_complete());
        let turn = self.watches[lock].fairness.turn(asking);
        let (Some(turn), true) = (turn, calm && asking != entering && self.plan.asks_all_itself(lock)) else {
            return false;
        };
        let Some(sent) = self.sent_by(asking) else { return false };
        let same = |mark: &Mark| mark.turn == turn && mark.sent.iter().zip(&sent).all(|(then, now)| then.0 == now.0);
        let Some(mut mark) = mark.filter(same) else {
            self.watches[lock].marks[asking] = Some(Mark { turn, sent });
            return false;
        };
        let heard = mark.sent.iter().all(|(connection, bytes)| self.received(*connection, asking) >= *bytes);
        if heard {
            // A node that is let go first, for it has asked before, is asked again for what it was given. It must have heard
            // that as well before its next entry counts.
            let peer = entering - usize::from(entering > asking);
            mark.sent[peer] = sent[peer];
        }
        self.watches[lock].marks[asking] = Some(mark);
        heard
    }

    /// How many bytes from this node have arrived at the other end of a connection.
    fn received(&self, connection: usize, from: usize) -> u64 {
        self.connections[connection].ends[1 - self.end_of(connection, from)].received
    }

    /// For each peer: the connection, and how many bytes a node has for it in all; `None` if one is not connected, or
    /// a frame for it has to be sent again.
    fn sent_by(&self, node: usize) -> Option<Vec<(usize, u64)>> {
        let sent = self.peers(node).map(|peer| {
            let connection = self.members[node].current[peer]?;
            let end = &self.connections[connection].ends[self.end_of(connection, node)];
            let waiting = self.members[node].node.poll_transmit(self.members[peer].id).len() + end.unfinished.len();
            (!end.has_lost).then_some((connection, end.sent + waiting as u64))
        });
        sent.collect()
    }

    fn peers(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.members.len()).filter(move |peer| *peer != node)
    }

    fn wants(&self, caller: usize) -> (usize, usize, Mode) {
        let caller = &self.callers[caller];
        (caller.node, caller.lock, caller.mode)
    }
}
