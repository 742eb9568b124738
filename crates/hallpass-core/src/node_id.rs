use std::fmt;

/// A node's number, from any range and compared by value: the papers' `NAMES`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The server of a protocol that has one; it is not a member.
    pub const SERVER: Self = Self(0);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of positions in a list of nodes, as bits.
///
/// The first 64 positions need no allocation, so that small groups clone and hash fast.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NodeSet {
    low: u64,
    /// Positions 64 and up. Either empty or sized for the whole list, so that equal sets compare equal.
    high: Vec<u64>,
}

impl NodeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { low: 0, high: Vec::new() }
    }

    /// Replaces the set by all positions below `len`.
    pub fn fill(&mut self, len: usize) {
        self.low = ones(len);
        self.high.clear();
        for start in (64..len).step_by(64) {
            self.high.push(ones(len - start));
        }
    }

    /// Adds a position.
    pub fn insert(&mut self, position: usize) {
        *self.word(position) |= 1 << (position % 64);
    }

    /// Removes a position; true if it was in the set.
    pub fn remove(&mut self, position: usize) -> bool {
        if !self.contains(position) {
            return false;
        }
        *self.word(position) &= !(1 << (position % 64));
        true
    }

    /// True if the position is in the set.
    #[inline]
    pub fn contains(&self, position: usize) -> bool {
        let word = if position < 64 { self.low } else { self.high.get(position / 64 - 1).copied().unwrap_or(0) };
        word >> (position % 64) & 1 == 1
    }

    /// True if no position is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.iter().all(|word| *word == 0)
    }

    /// How many positions are in the set.
    #[inline]
    pub fn len(&self) -> usize {
        (self.low.count_ones() + self.high.iter().map(|word| word.count_ones()).sum::<u32>()) as usize
    }

    /// The positions, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..64 * (1 + self.high.len())).filter(|position| self.contains(*position))
    }

    fn word(&mut self, position: usize) -> &mut u64 {
        if position < 64 {
            return &mut self.low;
        }
        let index = position / 64 - 1;
        if self.high.len() <= index {
            self.high.resize(index + 1, 0);
        }
        &mut self.high[index]
    }
}

/// The lowest `len` bits of a word, all of them from 64 on.
fn ones(len: usize) -> u64 {
    if len >= 64 { u64::MAX } else { (1 << len) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_tree_set(len in 0usize..200, steps in prop::collection::vec((any::<bool>(), 0usize..200), 0..50)) {
            let mut bits = NodeSet::new();
            bits.fill(len);
            let mut tree: BTreeSet<usize> = (0..len).collect();
            for (add, position) in steps {
                if add {
                    bits.insert(position);
                    tree.insert(position);
                } else {
                    prop_assert_eq!(bits.remove(position), tree.remove(&position));
                }
            }
            prop_assert_eq!(bits.iter().collect::<Vec<_>>(), tree.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(bits.len(), tree.len());
            prop_assert_eq!(bits.is_empty(), tree.is_empty());
        }
    }
}
