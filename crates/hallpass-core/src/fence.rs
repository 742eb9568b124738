use std::fmt;

use crate::Mode;

/// A fencing token: a positive number that rises with every exclusive entry of a lock.
///
/// A shared entry's is larger than those of all exclusive entries before it, and not larger than that of the next one.
/// Shared entries between the same two exclusive ones may have different fences.
///
/// So what the lock protects keeps the fence of its last write. It accepts a write whose fence is not below that one, a
/// read whose fence is above it, and only writes raise it. Then a holder that was paused and has lost the lock meanwhile
/// can do no harm.
///
/// The number fits a signed 64-bit column: the top bit is 0, then follow 27 bits of epoch and 36 bits of count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Fence(u64);

impl Fence {
    /// The number of low bits that count the entries of one epoch.
    pub const COUNT_BITS: u32 = 36;
    /// The largest count in an epoch. Past it entries are refused: a fence never wraps.
    pub const COUNT_MAX: u64 = (1 << Self::COUNT_BITS) - 1;
    /// The largest epoch.
    pub const EPOCH_MAX: u64 = (1 << 27) - 1;

    /// The fence with this number, whose top bit must be 0.
    pub const fn new(number: u64) -> Self {
        assert!(number >> 63 == 0, "a fence fits a signed 64-bit integer");
        Self(number)
    }

    /// The fence of the `count`-th entry in `epoch`, or `None` if either is too large.
    pub const fn compose(epoch: u64, count: u64) -> Option<Self> {
        if epoch > Self::EPOCH_MAX || count > Self::COUNT_MAX {
            return None;
        }
        Some(Self(epoch << Self::COUNT_BITS | count))
    }

    /// The fence as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch, in the high bits.
    pub const fn epoch(self) -> u64 {
        self.0 >> Self::COUNT_BITS
    }

    /// The count, in the low bits.
    pub const fn count(self) -> u64 {
        self.0 & Self::COUNT_MAX
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the entries of one lock in one epoch, and makes their fences.
///
/// The count never exceeds [`Fence::COUNT_MAX`]: one that does is cut to it. Then entries are refused, which is safe,
/// whereas a fence that wraps would not be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FenceCounter {
    epoch: u64,
    count: u64,
}

impl FenceCounter {
    /// A counter whose largest fence so far has this count.
    pub const fn new(epoch: u64, count: u64) -> Self {
        Self { epoch, count: if count > Fence::COUNT_MAX { Fence::COUNT_MAX } else { count } }
    }

    /// The epoch of all its fences.
    pub const fn epoch(self) -> u64 {
        self.epoch
    }

    /// The count of the largest fence known.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// The fence of an entry, or `None` past the last one.
    ///
    /// An exclusive entry takes the next count. A shared one carries it too, and leaves it to the next exclusive one, here
    /// or on a node that knows more.
    #[inline]
    pub fn next(&mut self, mode: Mode) -> Option<Fence> {
        let fence = Fence::compose(self.epoch, self.count + 1)?;
        self.count += u64::from(mode == Mode::Exclusive);
        Some(fence)
    }

    /// Raises the count to at least one that a peer knows.
    pub fn observe(&mut self, count: u64) {
        *self = Self::new(self.epoch, self.count.max(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_raises_its_count_for_exclusive_entries_only() {
        let mut fences = FenceCounter::new(3, 41);
        let mut next = |mode| fences.next(mode).map(|fence| (fence.epoch(), fence.count()));
        assert_eq!(next(Mode::Shared), Some((3, 42)));
        assert_eq!(next(Mode::Shared), Some((3, 42)));
        assert_eq!(next(Mode::Exclusive), Some((3, 42)));
        assert_eq!(next(Mode::Shared), Some((3, 43)));
    }

    #[test]
    fn a_counter_at_its_end_refuses_and_stays_there() {
        let mut fences = FenceCounter::new(0, Fence::COUNT_MAX - 1);
        assert!(fences.next(Mode::Exclusive).is_some());
        for mode in [Mode::Exclusive, Mode::Shared] {
            assert_eq!(fences.next(mode), None);
            assert_eq!(fences.count(), Fence::COUNT_MAX);
        }
        assert_eq!(FenceCounter::new(Fence::EPOCH_MAX + 1, 0).next(Mode::Exclusive), None);
    }

    #[test]
    fn a_counter_observes_larger_counts_and_cuts_absurd_ones() {
        let mut fences = FenceCounter::new(0, 7);
        fences.observe(5);
        assert_eq!(fences.count(), 7);
        fences.observe(9);
        assert_eq!(fences.count(), 9);
        fences.observe(u64::MAX);
        assert_eq!(fences.count(), Fence::COUNT_MAX);
        assert_eq!(FenceCounter::new(0, u64::MAX).count(), Fence::COUNT_MAX);
    }

    #[test]
    fn epochs_come_before_counts() {
        let old = Fence::compose(1, Fence::COUNT_MAX).unwrap();
        let new = Fence::compose(2, 0).unwrap();
        assert!(old < new);
        assert_eq!((new.epoch(), new.count()), (2, 0));
    }

    #[test]
    fn refuses_at_the_end_instead_of_wrapping() {
        assert_eq!(Fence::compose(1, Fence::COUNT_MAX + 1), None);
        assert_eq!(Fence::compose(Fence::EPOCH_MAX + 1, 0), None);
        let last = Fence::compose(Fence::EPOCH_MAX, Fence::COUNT_MAX).unwrap();
        assert!(i64::try_from(last.get()).is_ok());
    }
}
