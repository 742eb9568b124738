use hallpass_core::{Mode, NodeId};

use super::Violation;

/// Mutual exclusion: an exclusive entry overlaps no other entry, shared entries overlap only each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exclusion {
    /// The nodes inside exclusively. There is room for one too many, so that a violation can name it.
    writer: [Option<NodeId>; 2],
    writers: u32,
    readers: u32,
}

impl Exclusion {
    /// A node enters. It must not conflict with those inside.
    pub fn on_enter(&mut self, node: NodeId, mode: Mode) -> Option<Violation> {
        let conflict = self.writers > 0 || (mode == Mode::Exclusive && self.readers > 0);
        let violation = conflict.then(|| Violation { property: "exclusion", text: self.describe(node) });
        match mode {
            Mode::Exclusive => {
                self.writers += 1;
                if let Some(free) = self.writer.iter_mut().find(|writer| writer.is_none()) {
                    *free = Some(node);
                }
            }
            Mode::Shared => self.readers += 1,
        }
        violation
    }

    /// A node leaves, or crashes inside.
    pub fn on_exit(&mut self, node: NodeId, mode: Mode) {
        match mode {
            Mode::Exclusive => self.writers -= 1,
            Mode::Shared => self.readers -= 1,
        }
        for writer in &mut self.writer {
            if *writer == Some(node) {
                *writer = None;
            }
        }
        // Sorted, so that equal states compare equal.
        self.writer.sort_unstable_by_key(|writer| writer.is_none());
    }

    /// True if nobody is inside.
    pub fn is_free(&self) -> bool {
        self.writers == 0 && self.readers == 0
    }

    fn describe(&self, node: NodeId) -> String {
        match self.writer[0] {
            Some(writer) => format!("node {node} entered while node {writer} was inside"),
            None if self.readers == 1 => format!("node {node} entered exclusively while 1 reader was inside"),
            None => format!("node {node} entered exclusively while {} readers were inside", self.readers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_writers_are_caught() {
        let mut oracle = Exclusion::default();
        assert_eq!(oracle.on_enter(NodeId(1), Mode::Exclusive), None);
        let violation = oracle.on_enter(NodeId(2), Mode::Exclusive).unwrap();
        assert_eq!(violation.to_string(), "exclusion: node 2 entered while node 1 was inside");
    }

    #[test]
    fn a_writer_among_readers_is_caught_and_readers_are_not() {
        let mut oracle = Exclusion::default();
        assert_eq!(oracle.on_enter(NodeId(1), Mode::Shared), None);
        assert_eq!(oracle.on_enter(NodeId(2), Mode::Shared), None);
        let text = |oracle: &Exclusion| oracle.clone().on_enter(NodeId(3), Mode::Exclusive).unwrap().text;
        assert_eq!(text(&oracle), "node 3 entered exclusively while 2 readers were inside");
        let mut one = oracle.clone();
        one.on_exit(NodeId(1), Mode::Shared);
        assert_eq!(text(&one), "node 3 entered exclusively while 1 reader was inside");
        assert!(oracle.on_enter(NodeId(3), Mode::Exclusive).is_some());
        assert!(oracle.on_enter(NodeId(4), Mode::Shared).is_some(), "a reader may not join a writer");
    }

    #[test]
    fn the_node_that_is_still_inside_is_named() {
        let mut oracle = Exclusion::default();
        oracle.on_enter(NodeId(1), Mode::Exclusive);
        oracle.on_enter(NodeId(2), Mode::Exclusive);
        oracle.on_exit(NodeId(1), Mode::Exclusive);
        let violation = oracle.on_enter(NodeId(3), Mode::Exclusive).unwrap();
        assert_eq!(violation.text, "node 3 entered while node 2 was inside");
        oracle.on_exit(NodeId(2), Mode::Exclusive);
        let violation = oracle.on_enter(NodeId(4), Mode::Exclusive).unwrap();
        assert_eq!(violation.text, "node 4 entered while node 3 was inside");
    }

    #[test]
    fn one_after_the_other_is_fine() {
        let mut oracle = Exclusion::default();
        for node in 1..4 {
            assert_eq!(oracle.on_enter(NodeId(node), Mode::Exclusive), None);
            oracle.on_exit(NodeId(node), Mode::Exclusive);
        }
        assert!(oracle.is_free());
    }
}
