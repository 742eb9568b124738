//! How much of what all clients share one owner may have.
//!
//! An owner may have as much as is left for others: half of all if it is alone, less if others have some. The last part is for root and the
//! agent's own user, so that an operator can act while others have all the rest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::os;
use crate::owner::Owner;

/// The part of all that others than root and the agent's own user do not get: one of so many.
const RESERVE: usize = 50;

/// What is in use of something, by its owners.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    all: usize,
    of: BTreeMap<Name, usize>,
}

/// Tells owners apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Nobody,
    User(u32),
    /// Where its account is. A share keeps that there.
    Token(usize),
}

/// One of an owner's, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    owner: Owner,
}

impl Shares {
    /// Counts one more of an owner's. None if there are too many of all, or of its own.
    pub(crate) fn enter(self: &Arc<Self>, owner: &Owner, max: usize) -> Option<Share> {
        let is_trusted = matches!(owner, Owner::User(user) if os::is_trusted(Some(*user)));
        let mut table = self.table();
        let left = max.saturating_sub(table.all);
        let of_one = table.of.get(&Name::of(owner)).copied().unwrap_or_default();
        if left == 0 || !is_trusted && (of_one >= left || left <= max / RESERVE) {
            return None;
        }
        table.all += 1;
        *table.of.entry(Name::of(owner)).or_default() += 1;
        Some(Share { shares: Arc::clone(self), owner: owner.clone() })
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
    fn of(owner: &Owner) -> Self {
        match owner {
            Owner::Nobody => Self::Nobody,
            Owner::User(user) => Self::User(*user),
            Owner::Token(account) => Self::Token(Arc::as_ptr(account).addr()),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut table = self.shares.table();
        table.all -= 1;
        let name = Name::of(&self.owner);
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
}
