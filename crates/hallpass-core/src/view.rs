use std::sync::Arc;

use crate::protocol::{Bounds, Mode};
use crate::{Fence, FenceCounter, NodeId, SplitMix64};

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

    /// The home of the lock with this name: a member that all members find alike, without asking each other.
    ///
    /// Every member has a number for the name, and the largest wins (rendezvous hashing). So the locks are spread evenly,
    /// and a newcomer takes over only those that become its own: one in N.
    ///
    /// # Panics
    ///
    /// Panics if the view has no members.
    pub fn home_of(&self, name: &str) -> NodeId {
        let digest = digest(name);
        let home =
            self.members.iter().max_by_key(|member| (SplitMix64::nth(digest, u64::from(member.0) + 1), member.0));
        *home.expect("a view has members")
    }

    /// All members but one, in rising order.
    pub fn others(&self, me: NodeId) -> Arc<[NodeId]> {
        self.members.iter().copied().filter(|member| *member != me).collect()
    }
}

/// A number for a name, the same on every machine and in every version (FNV-1a, mixed).
fn digest(name: &str) -> u64 {
    let fold = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    SplitMix64::nth(name.bytes().fold(0xcbf2_9ce4_8422_2325, fold), 0)
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
    /// The member that keeps the order of this lock's requests, for protocols that have one.
    pub home: NodeId,
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
        let Self { me, view, initial, home, incarnation, bounds, .. } = *self;
        Setup { me, view, initial, home, incarnation, bounds, options }
    }

    /// A counter for the fences of this view, which goes on from the largest count so far.
    pub fn fences(&self) -> FenceCounter {
        FenceCounter::new(self.view.epoch(), self.initial.fence.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(view: &View, locks: u32) -> Vec<NodeId> {
        (0..locks).map(|lock| view.home_of(&format!("jobs/{lock}"))).collect()
    }

    #[test]
    fn homes_are_spread_evenly_and_do_not_depend_on_the_order_of_the_members() {
        for count in [3u32, 10, 50] {
            let ids: Vec<NodeId> = (0..count).map(|n| NodeId(n.wrapping_mul(0x9e37_79b9))).collect();
            let view = View::new(ids.iter().copied());
            let found = homes(&view, 100 * count);
            assert_eq!(found, homes(&View::new(ids.iter().rev().copied()), 100 * count));
            for id in ids {
                let own = found.iter().filter(|home| **home == id).count();
                assert!((60..=140).contains(&own), "{id} of {count} is home of {own} locks, about 100 are right");
            }
        }
    }

    #[test]
    fn a_newcomer_takes_its_own_share_of_the_homes_and_nothing_else_moves() {
        let nine = View::new((1..=9).map(NodeId));
        let ten = View::new((1..=10).map(NodeId));
        let (before, after) = (homes(&nine, 10_000), homes(&ten, 10_000));
        let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
        assert!(moved.iter().all(|(_, home)| **home == NodeId(10)), "a lock moved between members that stay");
        assert!((900..=1100).contains(&moved.len()), "{} of 10,000 moved to one newcomer of ten", moved.len());
    }

    #[test]
    fn a_home_is_the_same_in_every_version() {
        let view = View::new([7, 11, 13].map(NodeId));
        let found = ["a", "b", "jobs/1", "\u{e9}t\u{e9}", "x".repeat(255).as_str()].map(|name| view.home_of(name).0);
        assert_eq!(found, [7, 11, 11, 13, 13]);
    }
}
