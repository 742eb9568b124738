use std::sync::Arc;

use crate::protocol::{Bounds, Mode};
use crate::{Fence, NodeId};

/// An agreed list of members with a number, the epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    epoch: u64,
    members: Arc<[NodeId]>,
}

impl View {
    /// A first view of these members; order and repetition do not matter.
    pub fn new(members: impl IntoIterator<Item = NodeId>) -> Self {
        let mut members: Vec<NodeId> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        Self { epoch: 0, members: members.into() }
    }

    /// The view's number.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The same members under another number.
    pub fn with_epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// The members, in rising order of their ids.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// The same list, shared: whoever keeps it in every node of a simulated group keeps it once.
    pub fn shared_members(&self) -> Arc<[NodeId]> {
        Arc::clone(&self.members)
    }

    /// The members but one, in rising order.
    pub fn others(&self, me: NodeId) -> Arc<[NodeId]> {
        self.members.iter().copied().filter(|member| *member != me).collect()
    }
}

/// Who holds a lock when an instance of its protocol starts, as a view change reported it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InitialHolders<'a> {
    /// Nobody, one node, or several in shared mode.
    pub holders: &'a [NodeId],
    /// How they hold it.
    pub mode: Mode,
    /// The largest fence given so far.
    pub fence: Fence,
}

impl InitialHolders<'_> {
    /// A lock that nobody holds or has held.
    pub const NOBODY: Self = Self { holders: &[], mode: Mode::Exclusive, fence: Fence::new(0) };

    /// How this node holds it, if it does.
    pub fn held_by(&self, node: NodeId) -> Option<Mode> {
        self.holders.contains(&node).then_some(self.mode)
    }
}

/// What a protocol instance is made from.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a, O> {
    /// The node it runs on.
    pub me: NodeId,
    /// The members, this node among them unless it has yet to join.
    pub view: &'a View,
    /// Who holds the lock at the start.
    pub initial: InitialHolders<'a>,
    /// How often this node has been started before.
    pub incarnation: u32,
    /// What the driver promises about time.
    pub bounds: Bounds,
    /// The protocol's own options.
    pub options: &'a O,
}
