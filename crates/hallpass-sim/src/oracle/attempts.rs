use hallpass_core::{Mode, NodeId};

use super::Violation;

/// A caller who only tries is answered BUSY for a reason: between its asking and the answer somebody conflicting was inside or
/// asked, or a caller of its own node was already waiting, or there is an [excuse](Self::on_excuse). One oracle a lock.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    /// Everybody inside or asking, those who only try among them.
    present: Vec<Caller>,
    /// Those who only try and have no answer, each with whether BUSY has a reason by now.
    pending: Vec<(Caller, bool)>,
    /// Nodes that have deferred a writer's request do not hear that it gave up, and let no further reader in until they leave.
    writer_gave_up: bool,
}

#[derive(Clone, Copy, Debug)]
struct Caller {
    name: u64,
    node: NodeId,
    mode: Mode,
    inside: bool,
}

impl Attempts {
    /// A caller asks; with `tries` it does not wait.
    pub fn on_ask(&mut self, node: NodeId, name: u64, mode: Mode, tries: bool) {
        for (attempt, explained) in &mut self.pending {
            *explained |= attempt.mode.conflicts(mode);
        }
        let caller = Caller { name, node, mode, inside: false };
        if tries {
            let explained = self.present.iter().any(|other| self.explains(other, &caller));
            self.pending.push((caller, explained));
        }
        self.present.push(caller);
    }

    fn explains(&self, other: &Caller, attempt: &Caller) -> bool {
        let here = other.node == attempt.node;
        other.mode.conflicts(attempt.mode) || (here && (!other.inside || self.writer_gave_up))
    }

    /// A node has a reason of its own to refuse callers who only try: its view has changed, a member is not connected, or
    /// the lock's protocol cannot be asked in one round trip.
    pub fn on_excuse(&mut self, node: NodeId) {
        for (attempt, explained) in &mut self.pending {
            *explained |= attempt.node == node;
        }
    }

    /// A caller who asked is inside.
    pub fn on_enter(&mut self, name: u64) {
        self.pending.retain(|(attempt, _)| attempt.name != name);
        self.present.iter_mut().filter(|caller| caller.name == name).for_each(|caller| caller.inside = true);
    }

    /// A caller has left, has given up, or was refused.
    pub fn on_gone(&mut self, name: u64) {
        self.pending.retain(|(attempt, _)| attempt.name != name);
        if let Some(position) = self.present.iter().position(|caller| caller.name == name) {
            let gone = self.present.swap_remove(position);
            self.writer_gave_up |= gone.mode == Mode::Exclusive && !gone.inside;
        }
    }

    /// A caller is answered BUSY.
    pub fn on_busy(&mut self, name: u64) -> Option<Violation> {
        let attempt = self.pending.iter().find(|(attempt, _)| attempt.name == name).copied();
        self.on_gone(name);
        let text = match attempt {
            Some((_, true)) => return None,
            Some((Caller { node, mode, .. }, false)) => {
                format!("caller {name:x} on node {node}, {mode}, was told BUSY and nobody was in its way")
            }
            None => format!("caller {name:x} was told BUSY and had not tried"),
        };
        Some(Violation { property: "busy", text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCLUSIVE: Mode = Mode::Exclusive;
    const SHARED: Mode = Mode::Shared;

    /// Node 1 tries as caller 1 after others have done something, and again something happens before it is told BUSY.
    fn busy(mode: Mode, before: impl FnOnce(&mut Attempts), after: impl FnOnce(&mut Attempts)) -> Option<Violation> {
        let mut oracle = Attempts::default();
        before(&mut oracle);
        oracle.on_ask(NodeId(1), 1, mode, true);
        after(&mut oracle);
        oracle.on_busy(1)
    }

    fn nothing(_: &mut Attempts) {}

    fn reader_inside(oracle: &mut Attempts, node: u32) {
        oracle.on_ask(NodeId(node), 7, SHARED, false);
        oracle.on_enter(7);
    }

    #[test]
    fn busy_with_nobody_in_the_way_is_caught() {
        let violation = busy(EXCLUSIVE, nothing, nothing).unwrap();
        assert_eq!(
            violation.to_string(),
            "busy: caller 1 on node 1, exclusive, was told BUSY and nobody was in its way"
        );
        assert!(busy(SHARED, |oracle| reader_inside(oracle, 2), nothing).is_some(), "readers share");
        let left = |oracle: &mut Attempts| {
            reader_inside(oracle, 2);
            oracle.on_gone(7);
        };
        assert!(busy(EXCLUSIVE, left, nothing).is_some(), "it had left before");
        assert!(Attempts::default().on_busy(3).is_some(), "nobody tried");
    }

    #[test]
    fn a_caller_who_conflicts_before_or_meanwhile_is_a_reason() {
        assert_eq!(busy(EXCLUSIVE, |oracle| reader_inside(oracle, 2), nothing), None);
        assert_eq!(busy(EXCLUSIVE, nothing, |oracle| oracle.on_ask(NodeId(2), 7, SHARED, true)), None);
        assert_eq!(busy(SHARED, nothing, |oracle| oracle.on_ask(NodeId(2), 7, EXCLUSIVE, false)), None);
        assert!(busy(SHARED, nothing, |oracle| oracle.on_ask(NodeId(2), 7, SHARED, false)).is_some());
    }

    #[test]
    fn a_caller_who_waits_on_the_same_node_is_a_reason_and_one_who_reads_there_is_none() {
        assert_eq!(busy(SHARED, |oracle| oracle.on_ask(NodeId(1), 7, SHARED, false), nothing), None);
        assert!(busy(SHARED, |oracle| reader_inside(oracle, 1), nothing).is_some());
        let deferred = |oracle: &mut Attempts| {
            reader_inside(oracle, 1);
            oracle.on_ask(NodeId(2), 8, EXCLUSIVE, false);
            oracle.on_gone(8);
        };
        assert_eq!(busy(SHARED, deferred, nothing), None, "node 1 may still know the writer who gave up");
    }

    #[test]
    fn an_excuse_counts_for_its_node() {
        assert_eq!(busy(EXCLUSIVE, nothing, |oracle| oracle.on_excuse(NodeId(1))), None);
        assert!(busy(EXCLUSIVE, nothing, |oracle| oracle.on_excuse(NodeId(2))).is_some());
    }
}
