use hallpass_core::{NodeId, Ticks};

use super::Violation;

/// No deadlock and no starvation: once the faults are over, every waiting caller enters.
#[derive(Clone, Debug)]
pub struct Progress {
    patience: Ticks,
    last: Ticks,
}

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
        let nodes: Vec<String> = waiting.iter().map(NodeId::to_string).collect();
        let word = if nodes.len() == 1 { "waits" } else { "wait" };
        Some(Violation { property: "progress", text: format!("node {} {word} for ever", nodes.join(", ")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_waits_at_the_end_is_caught() {
        let oracle = Progress::new(100);
        assert_eq!(oracle.on_end(&[]), None);
        assert_eq!(oracle.on_end(&[NodeId(3)]).unwrap().to_string(), "progress: node 3 waits for ever");
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
