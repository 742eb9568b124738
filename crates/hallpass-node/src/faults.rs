//! Bugs that are planted to test what finds bugs, and the type that keeps them out of every node that runs for real.
//!
//! A node is made for one way to treat its rules. [`Honest`] has no size and answers every question with a constant, so that no branch of a
//! planted bug is left in its code. `Planted` exists in tests and in the laboratory alone: it needs the feature `planted-bugs`, and even
//! where another crate has switched that on, a [`Node`](crate::Node) is honest unless its type says otherwise.

use std::fmt::Debug;
use std::hash::Hash;

/// How a node treats the rules of the safety argument. Only this module's types are.
#[allow(unreachable_pub, reason = "nobody outside can add another conduct")]
pub trait Conduct: Copy + Eq + Hash + Debug {
    /// True if the node breaks this rule.
    fn breaks(self, rule: Sabotage) -> bool;
}

/// Keeps all rules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Honest;

impl Conduct for Honest {
    #[inline]
    fn breaks(self, _: Sabotage) -> bool {
        false
    }
}

/// Breaks one rule, or none.
#[doc(hidden)]
#[cfg(any(test, feature = "planted-bugs"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Planted(pub Option<Sabotage>);

#[cfg(any(test, feature = "planted-bugs"))]
impl Conduct for Planted {
    #[inline]
    fn breaks(self, rule: Sabotage) -> bool {
        self.0 == Some(rule)
    }
}

/// A bug, each against one rule of the safety argument.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(not(feature = "planted-bugs"), allow(unreachable_pub, reason = "nobody outside can ask for one"))]
pub enum Sabotage {
    /// The steward removes a member before that one's session is over.
    EvictEarly,
    /// A view is started before all members have reported.
    NoWaitForReports,
    /// Messages of a view that is over are taken for the current one's.
    AcceptStaleEpoch,
    /// A member starts a view although it has reported for a later one.
    AcceptStaleStart,
    /// A member whose session is over keeps what it holds.
    KeepPermissionsAfterLapse,
    /// An acknowledgement that comes too late revives a session.
    LateAckUndoesLapse,
    /// What was held back while too much waited for a peer is never asked for.
    ForgetHeldUp,
    /// Founders with other settings of who votes found a group together.
    FoundWithAnyVoters,
    /// 'It is on disk' does not look at the session, and a session is replaced while a view is held.
    ForgetSessionOnDisk,
    /// Voters are replaced by some of which nothing was heard since that was decided, and silent ones come first.
    HandVotesToSilence,
    /// A view that is prepared twice in one input is ended twice.
    CloseTwice,
    /// Banned candidates are proposed, and proposals that change nothing are made.
    ProposeBanned,
    /// A proposal that the engine refused counts as made, and a steward that leaves offers its office once.
    CountRefusedProposals,
    /// A recovered group does not wait for the sessions of the lost one.
    GrantOnceRecovered,
    /// A node takes part in its first group before it has stored that it does.
    JoinUnstored,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_honest_node_breaks_no_rule_and_has_no_room_for_one() {
        assert_eq!(size_of::<Honest>(), 0);
        assert!(!Honest.breaks(Sabotage::EvictEarly));
        assert!(Planted(Some(Sabotage::EvictEarly)).breaks(Sabotage::EvictEarly));
    }
}
