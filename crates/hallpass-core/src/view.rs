use std::sync::Arc;

use crate::protocol::{Bounds, Mode};
use crate::{Fence, FenceCounter, NodeId};

/// An agreed list of members with a number, the epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    epoch: u64,
    members: Arc<[NodeId]>,
}

impl View {
    /// The view of these members with epoch 0; order and repetition do not matter.
    pub fn new(members: impl IntoIterator<Item = NodeId>) -> Self {
        let mut members: Vec<NodeId> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        Self { epoch: 0, members: members.into() }
    }

    /// The view's epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The same members under another epoch.
    pub fn with_epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// The members, in rising order of their ids.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// The members as a shared list, so that a simulated group keeps it only once.
    pub fn shared_members(&self) -> Arc<[NodeId]> {
        Arc::clone(&self.members)
    }

    /// All members but one, in rising order.
    pub fn others(&self, me: NodeId) -> Arc<[NodeId]> {
        self.members.iter().copied().filter(|member| *member != me).collect()
    }
}

/// Who holds a lock when its protocol starts, as a view change reported it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InitialHolders<'a> {
    /// The holders: none, one, or several in shared mode.
    pub holders: &'a [NodeId],
    /// The mode in which they hold it.
    pub mode: Mode,
    /// The largest fence given so far. Its count goes on in this view; a view with a higher epoch may start at 0.
    pub fence: Fence,
}

impl InitialHolders<'_> {
    /// A lock that nobody holds or has ever held.
    pub const NOBODY: Self = Self { holders: &[], mode: Mode::Exclusive, fence: Fence::new(0) };

    /// The mode in which this node holds the lock, if it does.
    pub fn held_by(&self, node: NodeId) -> Option<Mode> {
        self.holders.contains(&node).then_some(self.mode)
    }
}

/// What a protocol instance is made from.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a, O> {
    /// The node it runs on.
    pub me: NodeId,
    /// The members, which include this node unless it has yet to join.
    pub view: &'a View,
    /// The holders of the lock at the start.
    pub initial: InitialHolders<'a>,
    /// How often this node has been started before: 0 the first time.
    pub incarnation: u32,
    /// What the driver guarantees about time.
    pub bounds: Bounds,
    /// The protocol's own options.
    pub options: &'a O,
}

impl<'a, O> Setup<'a, O> {
    /// The same setup with other options, for a protocol that wraps another one.
    pub fn with_options<P>(&self, options: &'a P) -> Setup<'a, P> {
        let Self { me, view, initial, incarnation, bounds, .. } = *self;
        Setup { me, view, initial, incarnation, bounds, options }
    }

    /// A counter for the fences of this view, which goes on from the largest count so far.
    pub fn fences(&self) -> FenceCounter {
        FenceCounter::new(self.view.epoch(), self.initial.fence.count())
    }
}
