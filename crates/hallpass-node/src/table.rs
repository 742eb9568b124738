//! The locks of a node: a slab of entries, found by name.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::ops::{Index, IndexMut};

use crate::machine::Machine;
use hallpass_core::{Fence, Mode, NodeId, Ticks};

/// One lock on this node.
pub(crate) struct Entry<C> {
    pub(crate) name: Box<str>,
    /// Another lock whose name has the same hash.
    pub(crate) same_hash: Option<u32>,
    pub(crate) class: u16,
    pub(crate) phase: Phase,
    /// This lock is in `unused`.
    pub(crate) listed: bool,
    /// Local entries in a row while another node waited.
    pub(crate) streak: u32,
    /// When it was last used.
    pub(crate) used: Ticks,
    pub(crate) machine: Option<Machine>,
    /// The last entry's fence.
    pub(crate) fence: Fence,
    /// Who is inside.
    pub(crate) holders: Vec<u64>,
    pub(crate) queue: VecDeque<Waiter<C>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nobody is inside and nobody has asked the other nodes.
    Idle,
    /// The head of the queue has.
    Asking(Mode),
    Inside(Mode),
}

pub(crate) struct Waiter<C> {
    pub(crate) id: u64,
    pub(crate) mode: Mode,
    pub(crate) tries: bool,
    pub(crate) caller: C,
}

impl<C> Entry<C> {
    /// Most locks have one holder and one who waits at most: room for four of them in each of a million locks is wasted.
    pub(crate) fn hold(&mut self, id: u64) {
        if self.holders.capacity() == 0 {
            self.holders.reserve_exact(1);
        }
        self.holders.push(id);
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.phase == Phase::Idle && self.queue.is_empty()
    }

    #[inline]
    pub(crate) fn enter_fast(&mut self, id: u64, mode: Mode, now: Ticks) -> Option<Fence> {
        if !self.is_free() {
            return None;
        }
        let fence = self.machine.as_mut()?.enter_fast(mode)?;
        (self.phase, self.fence, self.used) = (Phase::Inside(mode), fence, now);
        self.hold(id);
        Some(fence)
    }

    pub(crate) fn enqueue(&mut self, waiter: Waiter<C>) {
        if self.queue.capacity() == 0 {
            self.queue.reserve_exact(1);
        }
        self.queue.push_back(waiter);
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.machine.as_ref().is_some_and(Machine::has_waiters)
    }

    /// The last fence has been given out.
    pub(crate) fn is_spent(&self) -> bool {
        self.machine.as_ref().and_then(Machine::floor).is_some_and(|floor| floor.fence >= Fence::COUNT_MAX)
    }

    pub(crate) fn drop_permissions(&mut self) {
        if let Some(machine) = &mut self.machine {
            machine.drop_permissions();
        }
    }

    pub(crate) fn forget_deferred(&mut self, from: NodeId) -> bool {
        self.machine.as_mut().is_some_and(|machine| machine.forget_deferred(from))
    }
}

/// Entries by their place, which stays as long as they do; the places of those that are gone are used again.
pub(crate) struct Table<C> {
    entries: Vec<Entry<C>>,
    /// Places that are free.
    free: Vec<u32>,
    names: Names,
}

impl<C> Table<C> {
    /// With a seed that nobody outside knows, names that collide cannot be chosen.
    pub(crate) fn new(seed: u64) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), names: Names { seed, slots: Default::default() } }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry<C>> {
        self.entries.get_mut(slot as usize)
    }

    /// Every place, also free ones: nobody holds, waits or asks there.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + use<C> {
        0..self.entries.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<C>> {
        self.entries.iter().filter(|entry| entry.machine.is_some())
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let mut found = self.names.first(self.names.hash(name));
        while let Some(slot) = found {
            let entry = &self.entries[slot as usize];
            if *entry.name == *name {
                return Some(slot);
            }
            found = entry.same_hash;
        }
        None
    }

    /// A lock of this name, which is not there yet.
    pub(crate) fn add(&mut self, name: &str, class: u16, machine: Machine) -> u32 {
        let slot = self.free.pop().unwrap_or(self.entries.len() as u32);
        let same_hash = self.names.insert(self.names.hash(name), slot);
        let entry = Entry {
            name: name.into(),
            same_hash,
            class,
            phase: Phase::Idle,
            listed: false,
            streak: 0,
            used: 0,
            machine: Some(machine),
            fence: Fence::new(0),
            holders: Vec::new(),
            queue: VecDeque::new(),
        };
        match self.entries.get_mut(slot as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        slot
    }

    pub(crate) fn forget(&mut self, slot: u32) {
        let entry = &mut self[slot];
        let (name, next) = (std::mem::take(&mut entry.name), entry.same_hash.take());
        entry.machine = None;
        entry.holders = Vec::new();
        entry.queue = VecDeque::new();
        let hash = self.names.hash(&name);
        let first = self.names.first(hash);
        if first == Some(slot) {
            self.names.set(hash, next);
        } else {
            let mut at = first;
            while let Some(before) = at {
                let before = &mut self[before];
                if before.same_hash == Some(slot) {
                    before.same_hash = next;
                    break;
                }
                at = before.same_hash;
            }
        }
        self.free.push(slot);
    }
}

impl<C> Index<u32> for Table<C> {
    type Output = Entry<C>;

    #[inline]
    fn index(&self, slot: u32) -> &Entry<C> {
        &self.entries[slot as usize]
    }
}

impl<C> IndexMut<u32> for Table<C> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Entry<C> {
        &mut self.entries[slot as usize]
    }
}

/// Where a lock is, by the hash of its name. Locks whose names have the same hash are chained by their owner.
///
/// A table in which nobody ever walks: its order, which differs from run to run, is never seen.
struct Names {
    seed: u64,
    #[expect(clippy::disallowed_types, reason = "never iterated, so its order is never seen")]
    slots: std::collections::HashMap<u64, u32, BuildHasherDefault<Hashed>>,
}

impl Names {
    #[inline]
    fn hash(&self, name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        name.hash(&mut hasher);
        // Names that collide are so rare that tests must see to it.
        hasher.finish() & if cfg!(test) { 3 } else { u64::MAX }
    }

    #[inline]
    fn first(&self, hash: u64) -> Option<u32> {
        self.slots.get(&hash).copied()
    }

    /// Puts a lock in front and gives the one that was there.
    fn insert(&mut self, hash: u64, slot: u32) -> Option<u32> {
        self.slots.insert(hash, slot)
    }

    /// Says which one is in front from now on.
    fn set(&mut self, hash: u64, slot: Option<u32>) {
        match slot {
            Some(slot) => drop(self.slots.insert(hash, slot)),
            None => drop(self.slots.remove(&hash)),
        }
    }
}

/// The key is a hash already.
#[derive(Default)]
struct Hashed(u64);

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
