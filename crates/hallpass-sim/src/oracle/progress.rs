use hallpass_core::{NodeId, Ticks};

use super::Violation;

/// No deadlock and no starvation: once the faults are over, every waiting caller enters.
#[derive(Clone, Debug)]
pub struct Progress {
    patience: Ticks,
    last: Ticks,
}

/// Of more nodes than this the rest is counted.
const LISTED_MAX: usize = 8;

impl Progress {
    /// With the longest time that may pass between entries while a caller waits and no fault happens.
    pub fn new(patience: Ticks) -> Self {
        Self { patience, last: 0 }
    }

    /// An entry or a fault happened: the time starts again.
    pub fn on_progress(&mut self, now: Ticks) {
        self.last = now;
    }

    /// True if it has been too long.
    pub fn is_stuck(&self, now: Ticks) -> bool {
        now.saturating_sub(self.last) > self.patience
    }

    /// The run is over or stuck. These nodes still wait.
    pub fn on_end(&self, waiting: &[NodeId]) -> Option<Violation> {
        if waiting.is_empty() {
            return None;
        }
        let listed: Vec<String> = waiting.iter().take(LISTED_MAX).map(NodeId::to_string).collect();
        let more = match waiting.len() - listed.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let word = if waiting.len() == 1 { "waits" } else { "wait" };
        Some(Violation { property: "progress", text: format!("node {}{more} {word} forever", listed.join(", ")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_waits_at_the_end_is_caught() {
        let oracle = Progress::new(100);
        assert_eq!(oracle.on_end(&[]), None);
        assert_eq!(oracle.on_end(&[NodeId(3)]).unwrap().to_string(), "progress: node 3 waits forever");
    }

    #[test]
    fn of_many_nodes_that_wait_the_first_are_named() {
        let nodes: Vec<NodeId> = (1..=5000).map(NodeId).collect();
        let text = |count: usize| Progress::new(100).on_end(&nodes[..count]).unwrap().text;
        assert_eq!(text(2), "node 1, 2 wait forever");
        assert_eq!(text(8), "node 1, 2, 3, 4, 5, 6, 7, 8 wait forever");
        assert_eq!(text(5000), "node 1, 2, 3, 4, 5, 6, 7, 8 and 4992 more wait forever");
    }

    #[test]
    fn a_run_is_stuck_after_its_patience_unless_something_happens() {
        let mut oracle = Progress::new(100);
        assert!(!oracle.is_stuck(100));
        assert!(oracle.is_stuck(101));
        oracle.on_progress(90);
        assert!(!oracle.is_stuck(190));
    }
}
