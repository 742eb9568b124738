use hallpass_core::{Mode, NodeId};

use super::Violation;

/// Mutual exclusion on the one true time line, among holders that can lose a lock without doing anything: when their
/// session runs out by their own clock. One oracle a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    inside: Vec<Holder>,
}

/// Who holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The node.
    pub node: NodeId,
    /// Tells entries apart.
    pub entry: u64,
    /// How it holds.
    pub mode: Mode,
}

impl Holders {
    /// Somebody enters. `is_over` says whether an earlier holder has lost the lock by now, on the true time line; those that
    /// have are removed and returned.
    pub fn on_enter(&mut self, holder: Holder, is_over: impl Fn(&Holder) -> bool) -> (Vec<Holder>, Option<Violation>) {
        let over: Vec<Holder> = self.inside.extract_if(.., |other| is_over(other)).collect();
        let conflicts = |other: &&Holder| holder.mode == Mode::Exclusive || other.mode == Mode::Exclusive;
        let violation = self.inside.iter().find(conflicts).map(|other| {
            let how = if other.mode == Mode::Shared { " as a reader" } else { "" };
            let text = format!("node {} entered while node {} was inside{how}", holder.node, other.node);
            Violation { property: "exclusion", text }
        });
        self.inside.push(holder);
        (over, violation)
    }

    /// Somebody leaves, or is told that the lock is lost.
    pub fn on_exit(&mut self, entry: u64) {
        self.inside.retain(|holder| holder.entry != entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(node: u32, mode: Mode) -> Holder {
        Holder { node: NodeId(node), entry: node.into(), mode }
    }

    #[test]
    fn a_holder_whose_session_has_not_run_out_keeps_others_out() {
        let mut oracle = Holders::default();
        assert_eq!(oracle.on_enter(holder(1, Mode::Exclusive), |_| false), (vec![], None));
        let (over, violation) = oracle.on_enter(holder(2, Mode::Exclusive), |_| false);
        assert_eq!(violation.unwrap().to_string(), "exclusion: node 2 entered while node 1 was inside");
        assert!(over.is_empty());
    }

    #[test]
    fn one_whose_session_has_run_out_or_who_has_left_does_not() {
        let mut oracle = Holders::default();
        oracle.on_enter(holder(1, Mode::Exclusive), |_| false);
        let (over, violation) = oracle.on_enter(holder(2, Mode::Exclusive), |other| other.node == NodeId(1));
        assert_eq!((over, violation), (vec![holder(1, Mode::Exclusive)], None));
        oracle.on_exit(2);
        assert_eq!(oracle.on_enter(holder(3, Mode::Shared), |_| false), (vec![], None));
        assert_eq!(oracle.on_enter(holder(4, Mode::Shared), |_| false).1, None, "readers share");
        let (_, violation) = oracle.on_enter(holder(5, Mode::Exclusive), |_| false);
        assert_eq!(violation.unwrap().text, "node 5 entered while node 3 was inside as a reader");
    }
}
