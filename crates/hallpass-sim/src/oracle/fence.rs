use hallpass_core::{Fence, Mode, NodeId};

use super::Violation;

/// Fences rise with every exclusive entry; a shared entry's lies between those of the exclusive entries around it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FenceOrder {
    last_exclusive: u64,
    last_shared: u64,
}

impl FenceOrder {
    /// A node enters with a fence, which must be above the fences before it.
    pub fn on_enter(&mut self, node: NodeId, mode: Mode, fence: Fence) -> Option<Violation> {
        let fence = fence.get();
        let wrong = match mode {
            Mode::Exclusive => fence <= self.last_exclusive || fence < self.last_shared,
            Mode::Shared => fence <= self.last_exclusive,
        };
        let highest = self.last_exclusive.max(self.last_shared);
        match mode {
            Mode::Exclusive => self.last_exclusive = self.last_exclusive.max(fence),
            Mode::Shared => self.last_shared = self.last_shared.max(fence),
        }
        wrong.then(|| Violation {
            property: "fence",
            text: format!("node {node} entered with fence {fence} after {highest}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(oracle: &mut FenceOrder, mode: Mode, fence: u64) -> bool {
        oracle.on_enter(NodeId(1), mode, Fence::new(fence)).is_none()
    }

    #[test]
    fn a_fence_that_repeats_or_falls_is_caught() {
        let mut oracle = FenceOrder::default();
        assert!(enter(&mut oracle, Mode::Exclusive, 3));
        assert!(!enter(&mut oracle, Mode::Exclusive, 3));
        assert!(!enter(&mut oracle, Mode::Exclusive, 2));
        assert!(enter(&mut oracle, Mode::Exclusive, 4));
    }

    #[test]
    fn readers_share_an_era_and_come_after_the_last_writer() {
        let mut oracle = FenceOrder::default();
        assert!(enter(&mut oracle, Mode::Exclusive, 1));
        assert!(enter(&mut oracle, Mode::Shared, 2));
        assert!(enter(&mut oracle, Mode::Shared, 2));
        assert!(enter(&mut oracle, Mode::Exclusive, 2), "the next writer takes the number its readers showed");
        assert!(!enter(&mut oracle, Mode::Shared, 2), "a reader after it must be above");
        assert!(enter(&mut oracle, Mode::Shared, 5));
        assert!(!enter(&mut oracle, Mode::Exclusive, 4), "a writer may not fall below a reader that came before");
    }
}
