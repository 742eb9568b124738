//! How much of what all clients share one of them may have: the owner of leases, the holder of connections, or a source of connections whose
//! client is not known.
//!
//! One may have as much as is left for others: half of all if it is alone, less if others have some. The last part is for root and the
//! agent's own user, so that an operator can act while others have all the rest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connections::Source;
use crate::os;
use crate::owner::Owner;

/// The part of all that others than root and the agent's own user do not get: one of so many.
const RESERVE: usize = 50;

/// Whether there is room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Some,
    /// There are too many of all.
    None,
    /// It has its share.
    NoneOfOne,
}

/// Whether one that has `of_one` of `all` may have one more.
pub(crate) fn room(max: usize, all: usize, of_one: usize, is_trusted: bool) -> Room {
    let left = max.saturating_sub(all);
    let reserve = if is_trusted { 0 } else { (max / RESERVE).max(1) };
    match left {
        left if left <= reserve => Room::None,
        left if of_one >= left && !is_trusted => Room::NoneOfOne,
        _ => Room::Some,
    }
}

/// Whose share it is.
#[derive(Clone, Debug)]
pub(crate) enum Party {
    Owner(Owner),
    Source(Source),
}

impl From<&Owner> for Party {
    fn from(owner: &Owner) -> Self {
        Self::Owner(owner.clone())
    }
}

impl From<Source> for Party {
    fn from(source: Source) -> Self {
        Self::Source(source)
    }
}

impl Party {
    /// Root or the agent's own user.
    fn is_trusted(&self) -> bool {
        match self {
            Self::Owner(owner) => matches!(owner, Owner::User(user) if os::is_trusted(Some(*user))),
            Self::Source(source) => *source == Source::Own,
        }
    }
}

/// What is in use of something, and by whom.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    all: usize,
    of: BTreeMap<Name, usize>,
}

/// Tells parties apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Nobody,
    User(u32),
    /// Where its account is. A share keeps that there.
    Token(usize),
    Source(Source),
}

/// One of a party's, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    of: Party,
}

impl Shares {
    /// Counts one more of a party's. None if there are too many of all, or of its own.
    pub(crate) fn enter(self: &Arc<Self>, of: impl Into<Party>, max: usize) -> Option<Share> {
        let of = of.into();
        let name = Name::of(&of);
        let mut table = self.table();
        let of_one = table.of.get(&name).copied().unwrap_or_default();
        if room(max, table.all, of_one, of.is_trusted()) != Room::Some {
            return None;
        }
        table.all += 1;
        *table.of.entry(name).or_default() += 1;
        drop(table);
        Some(Share { shares: Arc::clone(self), of })
    }

    /// How many there are.
    pub(crate) fn get(&self) -> usize {
        self.table().all
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Name {
    fn of(party: &Party) -> Self {
        match party {
            Party::Owner(Owner::Nobody) => Self::Nobody,
            Party::Owner(Owner::User(user)) => Self::User(*user),
            Party::Owner(Owner::Token(account)) => Self::Token(Arc::as_ptr(account).addr()),
            Party::Source(source) => Self::Source(*source),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut table = self.shares.table();
        table.all -= 1;
        let name = Name::of(&self.of);
        if let Some(of_one) = table.of.get_mut(&name) {
            *of_one -= 1;
            if *of_one == 0 {
                table.of.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_at_most_as_much_as_it_leaves() {
        let shares = Arc::new(Shares::default());
        let take = |owner: &Owner| std::iter::from_fn(|| shares.enter(owner, 100)).collect::<Vec<_>>();
        let (one, other, root) = (Owner::User(1_900_777_001), Owner::User(1_900_777_002), Owner::User(0));
        let ones = take(&one);
        let others = take(&other);
        assert_eq!((ones.len(), others.len()), (50, 25));
        let many: Vec<_> = (3..200).flat_map(|user| take(&Owner::User(1_900_777_000 + user))).collect();
        assert_eq!(shares.get(), 98, "the last are not for them");
        assert_eq!((take(&Owner::Nobody).len(), take(&root).len()), (0, 2));
        drop((ones, others, many));
        assert_eq!((shares.get(), shares.table().of.len()), (0, 0));
        assert_eq!(take(&root).len(), 100);
    }

    #[test]
    fn a_source_has_a_share_and_the_agents_own_needs_none() {
        let shares = Arc::new(Shares::default());
        let take = |source: Source| std::iter::from_fn(|| shares.enter(source, 64)).collect::<Vec<_>>();
        let from = |last: u8| Source::from(std::net::IpAddr::from([10, 0, 0, last]));
        let (ones, others) = (take(from(1)), take(from(2)));
        assert_eq!((ones.len(), others.len()), (32, 16));
        assert_eq!(take(Source::Own).len(), 16);
        drop((ones, others));
        assert_eq!((shares.get(), shares.table().of.len()), (0, 0));
    }
}
