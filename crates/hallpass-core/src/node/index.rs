use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

/// Where a lock is, by the hash of its name. Locks whose names have the same hash are chained by their owner.
///
/// A table in which nobody ever walks: its order, which differs from run to run, is never seen.
pub(super) struct Index {
    seed: u64,
    #[expect(clippy::disallowed_types, reason = "never iterated, so its order is never seen")]
    slots: std::collections::HashMap<u64, u32, BuildHasherDefault<Hashed>>,
}

impl Index {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, slots: Default::default() }
    }

    /// With a seed that nobody outside knows, names that collide cannot be chosen.
    #[inline]
    pub(super) fn hash(&self, name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        name.hash(&mut hasher);
        hasher.finish()
    }

    #[inline]
    pub(super) fn first(&self, hash: u64) -> Option<u32> {
        self.slots.get(&hash).copied()
    }

    /// Puts a lock in front and gives the one that was there.
    pub(super) fn insert(&mut self, hash: u64, slot: u32) -> Option<u32> {
        self.slots.insert(hash, slot)
    }

    /// Says which one is in front from now on.
    pub(super) fn set(&mut self, hash: u64, slot: Option<u32>) {
        match slot {
            Some(slot) => drop(self.slots.insert(hash, slot)),
            None => drop(self.slots.remove(&hash)),
        }
    }
}

/// The key is a hash already.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.is_empty(), "keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
