use hallpass_core::{Mode, NodeId};

use super::Violation;

/// First come, first served, where a lock has a home: of two requests that conflict, the one that arrived at the home first
/// enters first.
///
/// An entry for which no request was sent, since its node still had what it needed, overtakes nobody: the home has not yet
/// told that node who comes next.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// The requests that wait, in the order of their arrival. A node has at most one.
    waiting: Vec<(NodeId, Mode)>,
}

impl Arrivals {
    /// The kind of message with which a node asks the home.
    pub const REQUEST: &str = "REQ";

    /// A request arrives at the home.
    pub fn on_arrival(&mut self, node: NodeId, mode: Mode) {
        self.on_gone(node);
        self.waiting.push((node, mode));
    }

    /// A node's caller enters.
    pub fn on_enter(&mut self, node: NodeId, mode: Mode) -> Option<Violation> {
        let position = self.waiting.iter().position(|(other, _)| *other == node)?;
        self.waiting.remove(position);
        let (first, _) = self.waiting[..position].iter().find(|(_, other)| other.conflicts(mode))?;
        let text = format!("node {node} entered before node {first}, whose request arrived at the home earlier");
        Some(Violation { property: "arrivals", text })
    }

    /// A node's request waits no longer.
    pub fn on_gone(&mut self, node: NodeId) {
        self.waiting.retain(|(other, _)| *other != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCLUSIVE: Mode = Mode::Exclusive;
    const SHARED: Mode = Mode::Shared;

    fn arrived(requests: &[(u32, Mode)]) -> Arrivals {
        let mut oracle = Arrivals::default();
        requests.iter().for_each(|(node, mode)| oracle.on_arrival(NodeId(*node), *mode));
        oracle
    }

    #[test]
    fn a_request_that_enters_before_an_earlier_one_is_caught() {
        let mut oracle = arrived(&[(2, EXCLUSIVE), (3, EXCLUSIVE)]);
        let violation = oracle.on_enter(NodeId(3), EXCLUSIVE).unwrap();
        let text = "arrivals: node 3 entered before node 2, whose request arrived at the home earlier";
        assert_eq!(violation.to_string(), text);
        for (first, second) in [(SHARED, EXCLUSIVE), (EXCLUSIVE, SHARED)] {
            assert!(arrived(&[(2, first), (3, second)]).on_enter(NodeId(3), second).is_some());
        }
    }

    #[test]
    fn who_does_not_conflict_has_entered_or_did_not_ask_overtakes_nobody() {
        assert_eq!(arrived(&[(2, SHARED), (3, SHARED)]).on_enter(NodeId(3), SHARED), None);
        assert_eq!(arrived(&[(2, EXCLUSIVE)]).on_enter(NodeId(3), EXCLUSIVE), None, "it did not ask");
        let mut oracle = arrived(&[(2, EXCLUSIVE), (3, EXCLUSIVE)]);
        assert_eq!(oracle.on_enter(NodeId(2), EXCLUSIVE), None);
        assert_eq!(oracle.on_enter(NodeId(3), EXCLUSIVE), None);
        let mut oracle = arrived(&[(2, EXCLUSIVE), (3, EXCLUSIVE)]);
        oracle.on_gone(NodeId(2));
        assert_eq!(oracle.on_enter(NodeId(3), EXCLUSIVE), None);
    }
}
