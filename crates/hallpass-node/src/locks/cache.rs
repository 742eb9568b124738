//! Which locks a node remembers: those in use, and for a while those whose permissions may be used again.

use hallpass_core::protocol::Capabilities;
use hallpass_core::{Input, Ticks};

use super::{Locks, Slot};
use crate::links::Links;

impl<C> Locks<C> {
    /// Forgets a lock that nobody here holds or wants, or lists it as idle. If too many are listed, the longest unused go.
    pub(super) fn evict_idle(&mut self, slot: Slot, now: Ticks, links: &mut Links) {
        self.give_back_unused(slot, now, links);
        self.forget_or_list(slot, now);
        // A lock that was used since it was listed is listed again. Only a few are looked at here: every use looks at some.
        for _ in 0..self.idle.len().min(8) {
            if self.idle.len() <= self.limits.cache_max {
                return;
            }
            let Some((listed, oldest)) = self.idle.pop_front() else { return };
            let entry = &mut self.table[oldest];
            if entry.used > listed {
                self.idle.push_back((now, oldest));
                continue;
            }
            entry.listed = false;
            if entry.is_free() {
                self.handle(oldest, Input::GiveBack, now, links);
            }
            self.forget_or_list(oldest, now);
        }
    }

    /// Drops the permissions of locks that were not used for `cache_idle`.
    pub(super) fn expire_idle(&mut self, now: Ticks, links: &mut Links) {
        // Each once: what is listed again expires later.
        for _ in 0..self.idle.len() {
            let Some((listed, slot)) = self.idle.front().copied() else { break };
            if listed.saturating_add(self.limits.cache_idle) > now {
                break;
            }
            self.idle.pop_front();
            let entry = &mut self.table[slot];
            entry.listed = false;
            if entry.is_free() && entry.used.saturating_add(self.limits.cache_idle) <= now {
                self.handle(slot, Input::GiveBack, now, links);
            }
            self.evict_idle(slot, now, links);
        }
    }

    /// When [`expire_idle`](Self::expire_idle) has something to do next.
    pub(super) fn next_expiry(&self) -> Option<Ticks> {
        self.idle.front().map(|(listed, _)| listed.saturating_add(self.limits.cache_idle))
    }

    /// What nobody here uses and should not be kept goes back to the lock's home at once.
    fn give_back_unused(&mut self, slot: Slot, now: Ticks, links: &mut Links) {
        let Some(entry) = self.table.get_mut(slot).filter(|entry| self.is_open && entry.is_free()) else { return };
        if entry.machine.capabilities().gives_back() {
            self.handle(slot, Input::GiveBack, now, links);
        }
    }

    fn forget_or_list(&mut self, slot: Slot, now: Ticks) {
        // Already forgotten locks and listed ones stay as they are: a listed one is looked at when its turn comes.
        let Some(entry) = self.table.get_mut(slot).filter(|entry| !entry.listed && entry.is_free()) else { return };
        let Some(floor) = entry.machine.capabilities().floor() else {
            // Of other protocols only what is as it was made can be made again.
            if !entry.touched {
                self.table.forget(slot);
            }
            return;
        };
        if entry.machine.is_idle() {
            self.floors.raise(&entry.name, floor);
            if let Some(comer) = entry.machine.capabilities().last_comer() {
                self.floors.keep_comer(&entry.name, comer);
            }
            self.fences_used = self.fences_used.max(floor.fence);
            self.table.forget(slot);
        } else if self.is_open && may_expire(entry.machine.capabilities()) {
            entry.listed = true;
            self.idle.push_back((now, slot));
        }
    }
}

/// What others hold or wait for does not expire: a lock at its home is looked at again when they are heard of.
fn may_expire(lock: &dyn Capabilities) -> bool {
    lock.home().is_none() || lock.is_cached()
}
