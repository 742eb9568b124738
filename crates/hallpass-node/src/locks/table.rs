//! The locks of a node: a slab of entries, found by name.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut, Range};

use hallpass_core::codec::COUNT_MAX;
use hallpass_core::protocol::Attempts;
use hallpass_core::{Fence, Mode, NodeId, Slab, Ticks};

use super::classes::ClassIndex;
use super::machine::Machine;
use crate::links::Links;
use crate::output::{CallerId, Patience};
use crate::status::LockState;
use crate::wire::Attempt;

/// Where a node keeps a lock: stays the same until the lock is forgotten, and may then be another lock's.
// One more than its number: an optional slot is a plain number, too, and a grant is moved without taking it apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(NonZeroU32);

impl Slot {
    /// From a number that [`get`](Self::get) returned. Any number is safe: slots are only hints.
    pub const fn new(number: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(number))
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0.get() - 1
    }
}

/// One lock on this node.
pub(crate) struct TableEntry<C> {
    pub(crate) name: Box<str>,
    /// Another lock whose name has the same hash.
    next_with_hash: Option<Slot>,
    pub(crate) class: ClassIndex,
    pub(crate) phase: Phase,
    /// This lock is on the list of idle ones.
    pub(crate) listed: bool,
    /// Its protocol has had an input.
    pub(crate) touched: bool,
    /// Local entries in a row while another node waited.
    pub(crate) streak: u32,
    /// When it was last used.
    pub(crate) used: Ticks,
    pub(crate) machine: Machine,
    /// The last entry's fence.
    pub(crate) fence: Fence,
    pub(crate) holders: Vec<CallerId>,
    pub(crate) queue: VecDeque<Waiter<C>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// No local caller holds the lock, and the protocol has not been asked for it.
    Idle,
    /// The protocol has been asked for the head of the queue.
    Asking(Mode),
    /// Local callers hold the lock.
    Inside(Mode),
}

pub(crate) struct Waiter<C> {
    pub(crate) id: CallerId,
    pub(crate) mode: Mode,
    pub(crate) patience: Patience,
    pub(crate) caller: C,
}

impl<C> Waiter<C> {
    pub(crate) fn tries(&self) -> bool {
        self.patience == Patience::Try
    }

    /// The mark of this caller's messages, if it only tries.
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        self.tries().then(|| self.id.attempt())
    }
}

impl<C> TableEntry<C> {
    /// Most locks have at most one holder and one waiter: the usual room for four in each of a million locks is wasted.
    pub(crate) fn add_holder(&mut self, id: CallerId) {
        if self.holders.capacity() == 0 {
            self.holders.reserve_exact(1);
        }
        self.holders.push(id);
    }

    pub(crate) fn enqueue(&mut self, waiter: Waiter<C>) {
        if self.queue.capacity() == 0 {
            self.queue.reserve_exact(1);
        }
        self.queue.push_back(waiter);
    }

    /// Nobody here holds the lock or wants it.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.phase == Phase::Idle && self.queue.is_empty()
    }

    pub(crate) fn state(&self) -> LockState {
        match self.phase {
            Phase::Inside(_) => LockState::Here,
            Phase::Asking(_) => LockState::Elsewhere,
            Phase::Idle if !self.queue.is_empty() => LockState::Elsewhere,
            Phase::Idle if self.machine.capabilities().is_cached() => LockState::Cached,
            Phase::Idle => LockState::Unknown,
        }
    }

    /// The fast path in; nothing changes if it is closed.
    #[inline]
    pub(crate) fn enter_fast(&mut self, id: CallerId, mode: Mode, now: Ticks) -> Option<Fence> {
        if !self.is_free() {
            return None;
        }
        let fence = self.machine.enter_fast(mode)?;
        (self.phase, self.fence, self.used) = (Phase::Inside(mode), fence, now);
        self.add_holder(id);
        Some(fence)
    }

    /// How this lock serves callers who only try.
    pub(crate) fn attempts(&self) -> Attempts {
        self.machine.capabilities().attempts()
    }

    /// Those who must answer an attempt are connected: a caller who only tries does not wait for others.
    pub(crate) fn can_be_tried(&self, links: &Links) -> bool {
        match self.machine.capabilities().home().filter(|_| self.attempts() == Attempts::Asked) {
            Some(home) => links.reaches(home),
            None => links.reach_all(),
        }
    }

    /// The mark of what is sent for the head of the queue, if it only tries and the protocol has no messages for that.
    pub(crate) fn mark(&self) -> Option<Attempt> {
        self.attempt().filter(|_| self.attempts() == Attempts::Marked)
    }

    /// The head of the queue, if the protocol has been asked for it and it only tries.
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        let asking = matches!(self.phase, Phase::Asking(_));
        self.queue.front().filter(|_| asking).and_then(Waiter::attempt)
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.machine.capabilities().has_waiters()
    }

    /// The last fence of this view has been used. Or the request numbers have come so far, by a peer's mistake, that others
    /// would soon refuse them.
    pub(crate) fn is_spent(&self) -> bool {
        let floor = self.machine.capabilities().floor();
        floor.is_some_and(|floor| floor.fence >= Fence::COUNT_MAX || floor.number > COUNT_MAX / 2)
    }

    pub(crate) fn forget_deferred(&mut self, from: NodeId) -> bool {
        self.machine.capabilities_mut().forget_deferred(from)
    }
}

/// All locks that take memory here.
pub(crate) struct Table<C> {
    entries: Slab<TableEntry<C>>,
    names: Names,
    /// How many there are of each class.
    by_class: Vec<usize>,
    /// Some were forgotten since memory was last given back.
    forgotten: bool,
}

impl<C> Table<C> {
    /// With a seed that nobody outside knows, names that collide cannot be chosen.
    pub(crate) fn new(seed: u64) -> Self {
        let names = Names { seed, slots: Default::default() };
        Self { entries: Slab::default(), names, by_class: Vec::new(), forgotten: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many locks of this class there are.
    pub(crate) fn len_of(&self, class: ClassIndex) -> usize {
        self.by_class.get(class.get()).copied().unwrap_or(0)
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&TableEntry<C>> {
        self.entries.get(slot.get())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut TableEntry<C>> {
        self.entries.get_mut(slot.get())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &TableEntry<C>)> {
        self.entries.iter().map(|(key, entry)| (Slot::new(key), entry))
    }

    /// The locks in these slots.
    pub(crate) fn range(&self, slots: Range<u32>) -> impl Iterator<Item = &TableEntry<C>> {
        let end = slots.end.min(self.slots());
        (slots.start..end).filter_map(|key| self.entries.get(key))
    }

    /// The number of slots, used or not.
    pub(crate) fn slots(&self) -> u32 {
        self.entries.keys()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Slot> {
        let mut found = self.names.first(self.names.hash(name));
        while let Some(slot) = found {
            let entry = &self[slot];
            if *entry.name == *name {
                return Some(slot);
            }
            found = entry.next_with_hash;
        }
        None
    }

    /// All slots in use, in rising order.
    pub(crate) fn used(&self) -> Vec<Slot> {
        self.iter().map(|(slot, _)| slot).collect()
    }

    /// Begins a lock's part in a new view; its callers stay. Nobody here counts as inside.
    pub(crate) fn restart(&mut self, slot: Slot, class: ClassIndex, machine: Machine) -> Slot {
        let entry = &mut self[slot];
        let before = std::mem::replace(&mut entry.class, class);
        (entry.machine, entry.phase, entry.streak) = (machine, Phase::Idle, 0);
        (entry.touched, entry.listed) = (false, false);
        self.by_class[before.get()] -= 1;
        self.count(class);
        slot
    }

    fn count(&mut self, class: ClassIndex) {
        if self.by_class.len() <= class.get() {
            self.by_class.resize(class.get() + 1, 0);
        }
        self.by_class[class.get()] += 1;
    }

    /// Adds a lock of this name, which must not be there yet.
    pub(crate) fn add(&mut self, name: &str, class: ClassIndex, machine: Machine) -> Slot {
        self.count(class);
        let slot = Slot::new(self.entries.vacant_key());
        let next_with_hash = self.names.set(self.names.hash(name), Some(slot));
        let key = self.entries.insert(TableEntry {
            name: name.into(),
            next_with_hash,
            class,
            phase: Phase::Idle,
            listed: false,
            touched: false,
            streak: 0,
            used: 0,
            machine,
            fence: Fence::new(0),
            holders: Vec::new(),
            queue: VecDeque::new(),
        });
        debug_assert_eq!(key, slot.get());
        slot
    }

    /// Gives back memory of locks that were forgotten.
    pub(crate) fn shrink(&mut self) {
        if std::mem::take(&mut self.forgotten) && is_sparse(self.len(), self.entries.capacity()) {
            self.entries.shrink();
        }
        let names = &mut self.names.slots;
        if is_sparse(names.len(), names.capacity()) {
            names.shrink_to(2 * names.len());
        }
    }

    pub(crate) fn forget(&mut self, slot: Slot) {
        let Some(entry) = self.entries.remove(slot.get()) else { return };
        self.by_class[entry.class.get()] -= 1;
        self.forgotten = true;
        let (hash, next) = (self.names.hash(&entry.name), entry.next_with_hash);
        let mut before = self.names.first(hash);
        if before == Some(slot) {
            self.names.set(hash, next);
            return;
        }
        while let Some(slot_before) = before {
            let entry_before = &mut self[slot_before];
            if entry_before.next_with_hash == Some(slot) {
                entry_before.next_with_hash = next;
                return;
            }
            before = entry_before.next_with_hash;
        }
    }
}

/// A table that was four times as full, or more, and has become large enough to mind.
pub(crate) fn is_sparse(len: usize, capacity: usize) -> bool {
    capacity > 1024 && len < capacity / 4
}

impl<C> Index<Slot> for Table<C> {
    type Output = TableEntry<C>;

    #[inline]
    fn index(&self, slot: Slot) -> &TableEntry<C> {
        self.entries.get(slot.get()).expect("a slot in use")
    }
}

impl<C> IndexMut<Slot> for Table<C> {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut TableEntry<C> {
        self.entries.get_mut(slot.get()).expect("a slot in use")
    }
}

/// The first lock of every hash of a name. Locks whose names have the same hash are chained by their entries.
struct Names {
    seed: u64,
    #[expect(clippy::disallowed_types, reason = "never iterated, so its order is never seen")]
    slots: std::collections::HashMap<u64, Slot, BuildHasherDefault<Hashed>>,
}

impl Names {
    #[inline]
    fn hash(&self, name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        name.hash(&mut hasher);
        // Collisions are so rare that tests must make them.
        hasher.finish() & if cfg!(test) { 3 } else { u64::MAX }
    }

    #[inline]
    fn first(&self, hash: u64) -> Option<Slot> {
        self.slots.get(&hash).copied()
    }

    /// Sets the first lock of a hash and returns the one it was.
    fn set(&mut self, hash: u64, slot: Option<Slot>) -> Option<Slot> {
        match slot {
            Some(slot) => self.slots.insert(hash, slot),
            None => self.slots.remove(&hash),
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
