use hallpass_core::NodeId;
use hallpass_node::LockStatus;

use super::Violation;

/// Idle locks cost nothing: long after the last caller has gone, no node remembers a lock that it may forget.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leftovers;

/// The protocols that forget a lock once it is given back, or its permissions are dropped. A token stays where it is until the view changes.
const FORGETTING: [&str; 3] = ["directory", "carvalho-roucairol", "ricart-agrawala"];

impl Leftovers {
    /// Checks one lock that a node still remembers at the end of a run, long after the last caller has gone.
    pub fn on_end(self, node: NodeId, lock: &LockStatus<'_>) -> Option<Violation> {
        let LockStatus { name, protocol, holders, waiters, .. } = lock;
        let text = if lock.held.is_some() || *holders > 0 || *waiters > 0 {
            format!("node {node} still counts {holders} inside and {waiters} waiting for '{name}'")
        } else if FORGETTING.contains(protocol) {
            format!("node {node} still remembers '{name}', which nobody uses")
        } else {
            return None;
        };
        Some(Violation { property: "leftovers", text })
    }
}

#[cfg(test)]
mod tests {
    use hallpass_core::{Fence, Mode};
    use hallpass_node::LockState;

    use super::*;

    #[test]
    fn a_lock_that_is_held_waited_for_or_remembered_is_caught() {
        let idle = || LockStatus {
            name: "x",
            protocol: "token",
            state: LockState::Cached,
            missing: Vec::new(),
            home: None,
            order: None,
            held: None,
            holders: 0,
            waiters: 0,
            fence: Fence::new(1),
        };
        let caught = |lock: LockStatus<'_>| Leftovers.on_end(NodeId(2), &lock).map(|violation| violation.to_string());
        assert_eq!(caught(idle()), None);
        assert_eq!(
            caught(LockStatus { protocol: "carvalho-roucairol", ..idle() }).unwrap(),
            "leftovers: node 2 still remembers 'x', which nobody uses"
        );
        assert!(caught(LockStatus { held: Some(Mode::Shared), ..idle() }).is_some());
        assert!(caught(LockStatus { holders: 1, ..idle() }).is_some());
        assert!(caught(LockStatus { waiters: 1, ..idle() }).is_some());
    }
}
