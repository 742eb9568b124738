//! How much may happen in a model.

/// How much may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests per node; `None` for no limit.
    pub entries: Option<u8>,
    /// Requests of the node with the highest id, if it makes a different number of them.
    pub last_entries: Option<u8>,
    /// Requests of the node with the lowest id, if it makes a different number of them.
    pub first_entries: Option<u8>,
    /// Cancellations in all; `None` for no limit.
    pub cancels: Option<u8>,
    /// Requests may be shared.
    pub readers: bool,
    /// Requests may be attempts, which do not wait for a holder.
    pub tries: bool,
    /// Who is inside may become shared, or ask to be alone again. Each upgrade counts as a request.
    pub upgrades: bool,
    /// A node's next caller may follow the one inside, in the same mode, before any other node. Each counts as a request.
    pub reentry: bool,
    /// A node may forget a lock that is idle at any moment, as nodes do to save memory.
    pub drop_idle: bool,
    /// Crashes in all.
    pub crashes: u8,
    /// Restarts in all.
    pub restarts: u8,
    /// Messages lost in all.
    pub losses: u8,
    /// Messages duplicated in all.
    pub duplicates: u8,
    /// Nodes that join.
    pub joins: u8,
    /// Nodes that leave.
    pub leaves: u8,
}

/// What is left of [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Remaining {
    pub(super) cancels: Quota,
    pub(super) crashes: u8,
    pub(super) restarts: u8,
    pub(super) losses: u8,
    pub(super) duplicates: u8,
    pub(super) joins: u8,
    pub(super) leaves: u8,
}

impl Remaining {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            cancels: Quota::new(limits.cancels),
            crashes: limits.crashes,
            restarts: limits.restarts,
            losses: limits.losses,
            duplicates: limits.duplicates,
            joins: limits.joins,
            leaves: limits.leaves,
        }
    }
}

/// How often something may still happen. In one byte, which an `Option<u8>` does not fit into.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Quota(u8);

impl Quota {
    const UNLIMITED: Self = Self(u8::MAX);

    pub(super) fn new(limit: Option<u8>) -> Self {
        limit.map_or(Self::UNLIMITED, |limit| Self(limit.min(u8::MAX - 1)))
    }

    pub(super) fn is_left(self) -> bool {
        self.0 > 0
    }

    pub(super) fn spend(&mut self) {
        if *self != Self::UNLIMITED {
            self.0 -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_ends_unless_it_is_unlimited() {
        let (mut twice, mut unlimited) = (Quota::new(Some(2)), Quota::new(None));
        for _ in 0..2 {
            assert!(twice.is_left());
            twice.spend();
        }
        assert!(!twice.is_left());
        (0..1000).for_each(|_| unlimited.spend());
        assert!(unlimited.is_left());
    }
}
