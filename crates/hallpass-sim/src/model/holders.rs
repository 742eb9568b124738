//! Who holds the lock when a model starts.

use std::fmt;

use hallpass_core::protocol::Needs;
use hallpass_core::{Fence, InitialHolders, Mode, NodeId};

use super::Limits;
use crate::ConfigError;

/// Who holds the lock before the first step, as after a view change. By default nobody does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// The holders: none, one, or several in shared mode.
    pub nodes: Vec<NodeId>,
    /// The mode in which they hold it.
    pub mode: Mode,
}

impl Holders {
    /// Every set of holders from which a protocol with these needs can start: nobody, each node alone, and in shared mode
    /// each set of nodes, unless the protocol takes one holder at most.
    pub fn all(nodes: &[NodeId], needs: &Needs) -> Vec<Self> {
        let alone = nodes.iter().map(|node| Self { nodes: vec![*node], mode: Mode::Exclusive });
        let sets = (1u64..1 << nodes.len().min(32)).map(|set| {
            let nodes = nodes.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, node)| *node);
            Self { nodes: nodes.collect(), mode: Mode::Shared }
        });
        let shared =
            sets.filter(|holders| needs.no_shared.is_none() && (!needs.one_holder || holders.nodes.len() == 1));
        [Self::default()].into_iter().chain(alone).chain(shared).collect()
    }

    /// As a protocol is told. The fences of the epoch that begins are above all earlier ones, so they start at 0.
    pub(super) fn as_initial(&self) -> InitialHolders<'_> {
        InitialHolders { holders: &self.nodes, mode: self.mode, fence: Fence::new(0) }
    }

    pub(super) fn check(&self, members: &[NodeId], needs: &Needs, limits: &Limits) -> Result<(), ConfigError> {
        let refuse = |why: String| Err(ConfigError(format!("--initial-holders {self}: {why}")));
        if let Some(stranger) = self.nodes.iter().find(|node| !members.contains(node)) {
            return refuse(format!("there is no node {stranger}"));
        }
        if !self.nodes.is_sorted_by(|a, b| a < b) {
            return refuse("give each node once, in rising order".to_owned());
        }
        if self.nodes.len() > 1 && self.mode == Mode::Exclusive {
            return refuse(format!("several nodes can hold a lock in shared mode only, as {self}:shared"));
        }
        if self.nodes.len() > 1 && needs.one_holder {
            return refuse("this protocol starts with one holder at most".to_owned());
        }
        if let Some(why) = needs.no_shared.filter(|_| self.mode == Mode::Shared && !self.nodes.is_empty()) {
            return refuse(why.to_owned());
        }
        if !self.nodes.is_empty() && limits.joins + limits.restarts > 0 {
            return refuse("a node that joins or restarts later would take the first holders for today's".to_owned());
        }
        Ok(())
    }
}

/// As the command line takes them: `nobody`, `2`, `1,3:shared`.
impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes.is_empty() {
            return f.write_str("nobody");
        }
        let nodes: Vec<String> = self.nodes.iter().map(NodeId::to_string).collect();
        f.write_str(&nodes.join(","))?;
        f.write_str(if self.mode == Mode::Shared { ":shared" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(nodes: u32, needs: &Needs) -> Vec<String> {
        let nodes: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let all = Holders::all(&nodes, needs);
        for holders in &all {
            assert!(holders.check(&nodes, needs, &Limits::default()).is_ok(), "{holders}");
        }
        all.iter().map(Holders::to_string).collect()
    }

    #[test]
    fn every_set_of_holders_is_listed_that_the_protocol_can_start_with() {
        let all = ["nobody", "1", "2", "1:shared", "2:shared", "1,2:shared"];
        assert_eq!(texts(2, &Needs::default()), all);
        assert_eq!(texts(2, &Needs { one_holder: true, ..Needs::default() }), all[..5]);
        assert_eq!(texts(2, &Needs { no_shared: Some("no"), ..Needs::default() }), all[..3]);
        assert_eq!(texts(3, &Needs::default()).len(), 1 + 3 + 7);
    }

    #[test]
    fn holders_that_cannot_be_are_refused_with_the_reason() {
        let members = [NodeId(1), NodeId(2), NodeId(3)];
        let refused = |nodes: &[u32], mode, needs: Needs, limits: Limits| {
            let holders = Holders { nodes: nodes.iter().copied().map(NodeId).collect(), mode };
            holders.check(&members, &needs, &limits).unwrap_err().to_string()
        };
        let plain = |nodes: &[u32], mode| refused(nodes, mode, Needs::default(), Limits::default());
        assert!(plain(&[4], Mode::Exclusive).contains("there is no node 4"));
        assert!(plain(&[2, 1], Mode::Shared).contains("rising order"));
        assert!(plain(&[1, 1], Mode::Shared).contains("once"));
        assert!(plain(&[1, 2], Mode::Exclusive).contains("as 1,2:shared"));
        let one_holder = Needs { one_holder: true, ..Needs::default() };
        assert!(refused(&[1, 2], Mode::Shared, one_holder, Limits::default()).contains("one holder"));
        let no_shared = Needs { no_shared: Some("the reason"), ..Needs::default() };
        assert!(refused(&[1], Mode::Shared, no_shared, Limits::default()).contains("the reason"));
        let restarts = Limits { restarts: 1, ..Limits::default() };
        assert!(refused(&[1], Mode::Exclusive, Needs::default(), restarts).contains("restarts later"));
    }
}
