//! From one epoch to the next: what is held is reported and kept, everything else starts afresh.

use hallpass_core::protocol::Floor;
use hallpass_core::{Fence, InitialHolders, Input, Mode, NodeId, Ticks};

use super::{Classes, Early, Locks, Phase, Slot};
use crate::links::Links;
use crate::output::{Outcome, Ticket};

/// A lock that callers of this node hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Held {
    /// Its name.
    pub name: Box<str>,
    /// How it is held.
    pub mode: Mode,
    /// The fence of the last grant.
    pub fence: Fence,
}

/// A lock that is held when an epoch begins. All members are told the same.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HeldLock {
    /// Its name.
    pub name: Box<str>,
    /// How it is held.
    pub mode: Mode,
    /// The fence of the last grant.
    pub fence: Fence,
    /// The nodes whose callers hold it, in rising order: one, or several in shared mode.
    pub holders: Vec<NodeId>,
}

/// A lock that callers here held or wanted in the epoch that is over.
struct Kept {
    slot: Slot,
    held: Option<Mode>,
    /// What its request was numbered above, if it had been made.
    number_floor: Option<u64>,
}

impl<C> Locks<C> {
    /// The epoch is over: until the next one nothing is sent or entered. Callers are queued, those who only try are busy,
    /// and releases are taken without a message.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
        self.timers.clear();
        self.held_up.clear();
        for slot in std::mem::take(&mut self.attempts) {
            let Some(entry) = self.table.get_mut(slot).filter(|entry| entry.attempt().is_some()) else { continue };
            entry.phase = Phase::Idle;
            let waiter = entry.queue.pop_front();
            self.callers -= usize::from(waiter.is_some());
            self.answers.extend(waiter.map(|waiter| (waiter.caller, Outcome::Busy)));
        }
    }

    /// Every lock that callers here hold, by name.
    pub(crate) fn held(&self) -> Vec<Held> {
        let mut held = Vec::new();
        for (_, entry) in self.table.iter() {
            if let Phase::Inside(mode) = entry.phase {
                held.push(Held { name: entry.name.clone(), mode, fence: entry.fence });
            }
        }
        held.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        held
    }

    /// Closes the locks, and nobody here holds anything any more. Those who wait stay in the queue until the next epoch.
    /// Returns how many callers have lost their locks.
    pub(crate) fn lapse(&mut self) -> usize {
        self.close();
        let mut lost = 0;
        for slot in self.table.used() {
            lost += self.drop_holders(slot).len();
        }
        lost
    }

    /// Takes a lock from a caller: as if the caller had released it; false if it does not hold it.
    pub(crate) fn revoke(&mut self, ticket: Ticket, now: Ticks, links: &mut Links) -> bool {
        self.release(ticket, now, links)
    }

    /// The callers of this node that hold a lock.
    pub(crate) fn holders_of(&self, name: &str) -> Vec<Ticket> {
        let Some(slot) = self.table.find(name) else { return Vec::new() };
        self.table[slot].holders.iter().map(|id| Ticket { slot: Some(slot), id: *id }).collect()
    }

    /// A new epoch begins, or the first one. Every lock starts afresh from its holders, who keep it; those who waited keep
    /// their places, and have been asked for again when this returns. What is listed for this node and no longer held
    /// here is released right away. Returns the callers who have lost their locks, since those are not listed.
    pub(crate) fn reopen(
        &mut self,
        classes: Classes,
        holders: &[HeldLock],
        now: Ticks,
        links: &mut Links,
    ) -> Vec<Ticket> {
        self.close();
        self.idle.clear();
        self.floors.start_epoch();
        self.fences_used = 0;
        let kept = self.forget_unused();
        self.classes = Some(classes);
        self.is_open = true;
        self.start_afresh(&kept);
        let released = self.start_held(holders, &kept);
        let mut lost = Vec::new();
        for Kept { slot, .. } in kept.iter().filter(|kept| kept.held.is_some()) {
            if self.table[*slot].phase == Phase::Idle {
                lost.extend(self.drop_holders(*slot));
            }
        }
        for slot in released {
            self.raise_floor(slot);
            self.handle(slot, Input::Release, now, links);
            self.evict_idle(slot, now, links);
        }
        for Kept { slot, number_floor, .. } in kept {
            self.resume(slot, number_floor, now, links);
        }
        self.serve_early(now, links);
        lost
    }

    /// Forgets the locks that nobody here holds or wants, and remembers the numbers of all.
    fn forget_unused(&mut self) -> Vec<Kept> {
        let mut kept = Vec::new();
        for slot in self.table.used() {
            let entry = &mut self.table[slot];
            let number = entry.machine.highest_number();
            self.floors.raise(&entry.name, Floor { number, fence: 0 });
            if entry.holders.is_empty() && entry.queue.is_empty() {
                self.table.forget(slot);
                continue;
            }
            let held = if let Phase::Inside(mode) = entry.phase { Some(mode) } else { None };
            let asks = matches!(entry.phase, Phase::Asking(_));
            let number_floor = entry.machine.capabilities().number_floor().filter(|_| asks);
            kept.push(Kept { slot, held, number_floor });
        }
        kept
    }

    /// Every lock that is kept becomes one that nobody holds.
    fn start_afresh(&mut self, kept: &[Kept]) {
        for Kept { slot, .. } in kept {
            let class = self.classes().find(&self.table[*slot].name);
            let machine = self.classes().unheld(class, &self.table[*slot].name);
            self.table.restart(*slot, class, machine);
        }
    }

    /// The locks that are held start so. Returns those that are listed for this node and that nobody here holds.
    fn start_held(&mut self, holders: &[HeldLock], kept: &[Kept]) -> Vec<Slot> {
        let mut released = Vec::new();
        let Some(classes) = &mut self.classes else { return released };
        for lock in holders {
            let (class, mine) = (classes.find_held(lock), lock.holders.contains(&classes.me));
            // The fences of this epoch are above the reported one, whatever their counts.
            let initial = InitialHolders { holders: &lock.holders, mode: lock.mode, fence: Fence::new(0) };
            let machine = classes.held(class, &lock.name, initial);
            // Of a lock that others hold nothing needs to be known here, unless this is its home, or an absent entry means that
            // nobody holds it.
            let capabilities = machine.capabilities();
            let keeps_entry = capabilities.floor().is_none() || capabilities.home() == Some(classes.me);
            let slot = match self.table.find(&lock.name) {
                Some(slot) => self.table.restart(slot, class, machine),
                None if mine || keeps_entry => self.table.add(&lock.name, class, machine),
                None => continue,
            };
            let entry = &mut self.table[slot];
            entry.touched = true;
            if !mine {
                continue;
            }
            let known = kept.binary_search_by_key(&slot, |kept| kept.slot);
            if known.is_ok_and(|index| kept[index].held == Some(lock.mode)) {
                entry.phase = Phase::Inside(lock.mode);
            } else {
                released.push(slot);
            }
        }
        released
    }

    /// Asks again for those who wait, under the old number.
    fn resume(&mut self, slot: Slot, number_floor: Option<u64>, now: Ticks, links: &mut Links) {
        if let Some(number) = number_floor {
            let capabilities = self.table[slot].machine.capabilities_mut();
            capabilities.raise_floor(Floor { number, fence: 0 });
            self.serve(slot, now, links);
        }
        self.raise_floor(slot);
        self.serve(slot, now, links);
        self.admit_readers(slot);
        self.evict_idle(slot, now, links);
    }

    /// Callers who came before there was a view, in order.
    fn serve_early(&mut self, now: Ticks, links: &mut Links) {
        for Early { lock, waiter } in std::mem::take(&mut self.early).into_values() {
            match self.find_or_add(&lock) {
                Ok(slot) => {
                    self.early_slots.insert(waiter.id, slot);
                    self.table[slot].enqueue(waiter);
                    self.serve(slot, now, links);
                }
                Err(refusal) => {
                    self.callers -= 1;
                    self.answers.push_back((waiter.caller, Outcome::Refused(refusal)));
                }
            }
        }
    }

    /// Later requests of this lock are numbered above all that this node knows.
    fn raise_floor(&mut self, slot: Slot) {
        let entry = &mut self.table[slot];
        entry.machine.capabilities_mut().raise_floor(self.floors.get(&entry.name));
    }

    /// Nobody here holds this lock any more; its protocol is not told.
    fn drop_holders(&mut self, slot: Slot) -> Vec<Ticket> {
        let entry = &mut self.table[slot];
        let holders = std::mem::take(&mut entry.holders);
        if matches!(entry.phase, Phase::Inside(_)) {
            entry.phase = Phase::Idle;
        }
        self.callers -= holders.len();
        for id in &holders {
            self.early_slots.remove(id);
        }
        holders.into_iter().map(|id| Ticket { slot: Some(slot), id }).collect()
    }
}
