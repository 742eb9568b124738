use hallpass_core::{Fence, Mode, NodeId};

use super::Violation;

/// Exclusive fences rise strictly. A shared one is larger than every exclusive one before it and not larger than the next;
/// readers' may differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FenceOrder {
    /// The largest of each mode so far.
    exclusive: u64,
    shared: u64,
}

impl FenceOrder {
    /// A node enters with a fence.
    pub fn on_enter(&mut self, node: NodeId, mode: Mode, fence: Fence) -> Option<Violation> {
        let (fence, exclusive, shared) = (fence.get(), self.exclusive, self.shared);
        let largest = if mode == Mode::Shared { &mut self.shared } else { &mut self.exclusive };
        *largest = fence.max(*largest);
        let text = match mode {
            Mode::Shared if fence <= exclusive => {
                format!("node {node} entered shared with fence {fence} after an exclusive {exclusive}")
            }
            Mode::Exclusive if fence <= exclusive => {
                format!("node {node} entered with fence {fence} after {exclusive}")
            }
            Mode::Exclusive if fence < shared => {
                format!("node {node} entered with fence {fence} after a shared {shared}")
            }
            _ => return None,
        };
        Some(Violation { property: "fence", text })
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
    fn readers_lie_between_the_writers_around_them_and_may_differ() {
        let mut oracle = FenceOrder::default();
        assert!(enter(&mut oracle, Mode::Exclusive, 1));
        for reader in [2, 7, 3, 7] {
            assert!(enter(&mut oracle, Mode::Shared, reader), "a reader may have any fence above the last writer's");
        }
        assert!(enter(&mut oracle, Mode::Exclusive, 7), "the next writer may have the fence of its last reader");
        assert!(!enter(&mut oracle, Mode::Shared, 7), "a reader after it must be above");
        assert!(enter(&mut oracle, Mode::Shared, 9));
        assert!(!enter(&mut oracle, Mode::Exclusive, 8), "a writer may not fall below a reader that came before");
    }

    #[test]
    fn a_violation_names_both_fences() {
        let violation = |entries: &[(Mode, u64)]| {
            let mut oracle = FenceOrder::default();
            let found =
                entries.iter().filter_map(|(mode, fence)| oracle.on_enter(NodeId(1), *mode, Fence::new(*fence)));
            found.last().unwrap().to_string()
        };
        let (exclusive, shared) = (Mode::Exclusive, Mode::Shared);
        assert_eq!(violation(&[(exclusive, 5), (exclusive, 5)]), "fence: node 1 entered with fence 5 after 5");
        assert_eq!(
            violation(&[(exclusive, 5), (shared, 5)]),
            "fence: node 1 entered shared with fence 5 after an exclusive 5"
        );
        assert_eq!(violation(&[(shared, 5), (exclusive, 4)]), "fence: node 1 entered with fence 4 after a shared 5");
    }
}
