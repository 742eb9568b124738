//! Local callers: they share the node's one place in each lock's protocol, first in, first out.

use hallpass_core::protocol::Attempts;
use hallpass_core::{Fence, Input, Mode, Ticks};

use super::machine::ForCaller;
use super::{Early, Locks, Phase, Slot, Waiter};
use crate::links::Links;
use crate::output::{Answer, CallerId, Grant, Outcome, Patience, Refusal, Ticket};
use crate::wire::{Attempt, NAME_MAX};

impl<C> Locks<C> {
    /// A caller wants a lock. `caller` is called only if it has to wait.
    pub(crate) fn acquire(
        &mut self,
        lock: &str,
        mode: Mode,
        patience: Patience,
        now: Ticks,
        links: &mut Links,
        caller: impl FnOnce() -> C,
    ) -> Result<Answer, Refusal> {
        if lock.is_empty() || lock.len() > NAME_MAX {
            return Err(Refusal::Name);
        }
        if self.callers >= self.limits.callers_max {
            return Err(Refusal::Callers);
        }
        let id = self.next_caller;
        if !self.is_open && patience == Patience::Try {
            return Ok(Answer::Busy);
        }
        if self.classes.is_none() {
            let waiter = Waiter { id, mode, patience, caller: caller() };
            self.early.insert(id, Early { lock: lock.into(), waiter });
            self.count_caller();
            return Ok(Answer::Waiting(Ticket { slot: None, id }));
        }
        let slot = self.find_or_add(lock)?;
        let answer = self.enter_or_wait(slot, id, mode, patience, now, links, caller);
        match &answer {
            Ok(Answer::Granted(_) | Answer::Waiting(_)) => self.count_caller(),
            Ok(Answer::Busy) | Err(_) => self.evict_idle(slot, now, links),
        }
        answer
    }

    /// The fast path: the lock was in this slot not long ago, is free, and its permissions are here. With `None` nothing
    /// has changed.
    #[inline]
    pub(crate) fn acquire_fast(&mut self, slot: Slot, lock: &str, mode: Mode, now: Ticks) -> Option<Grant> {
        let entry = self.table.get_mut(slot).filter(|entry| *entry.name == *lock)?;
        if !self.is_open || self.callers >= self.limits.callers_max {
            return None;
        }
        let id = self.next_caller;
        let fence = entry.enter_fast(id, mode, now)?;
        self.count_caller();
        Some(Grant { ticket: Ticket { slot: Some(slot), id }, fence })
    }

    /// True if a caller of this lock certainly has to wait, for another caller or for messages. False is always right.
    pub(crate) fn must_wait(&self, slot: Slot, lock: &str, mode: Mode) -> bool {
        let entry = self.table.get(slot).filter(|entry| *entry.name == *lock);
        entry.is_some_and(|entry| !entry.is_free() || entry.machine.capabilities().must_ask(mode))
    }

    /// A caller releases its lock; false if it does not hold it.
    #[inline]
    pub(crate) fn release(&mut self, ticket: Ticket, now: Ticks, links: &mut Links) -> bool {
        let Some(slot) = ticket.slot else { return false };
        let Some(entry) = self.table.get_mut(slot) else { return false };
        let Some(position) = entry.holders.iter().position(|holder| *holder == ticket.id) else { return false };
        entry.holders.swap_remove(position);
        self.callers -= 1;
        self.early_slots.remove(&ticket.id);
        if entry.holders.is_empty() {
            self.leave(slot, now, links);
        }
        true
    }

    /// A waiting caller gives up, wherever it is in the queue. If it holds the lock by now, it releases it. False if it
    /// neither waits nor holds.
    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Ticks, links: &mut Links) -> bool {
        if self.early.remove(&ticket.id).is_some() {
            self.callers -= 1;
            return true;
        }
        let Some(slot) = ticket.slot.or(self.early_slots.get(&ticket.id).copied()) else { return false };
        let Some(entry) = self.table.get_mut(slot) else { return false };
        // Callers are numbered as they come, and wait in that order.
        let Ok(position) = entry.queue.binary_search_by_key(&ticket.id, |waiter| waiter.id) else {
            return self.release(Ticket { slot: Some(slot), ..ticket }, now, links);
        };
        let tried = entry.queue.remove(position).is_some_and(|waiter| waiter.tries());
        self.callers -= 1;
        self.early_slots.remove(&ticket.id);
        if position == 0 {
            self.replace_head(slot, tried, now, links);
        }
        self.evict_idle(slot, now, links);
        true
    }

    /// People want to know whom the callers of a lock wait for. What is found out is shown by its status a little later.
    pub(crate) fn inquire(&mut self, lock: &str, now: Ticks, links: &mut Links) {
        let Some(slot) = self.table.find(lock).filter(|_| self.is_open) else { return };
        if matches!(self.table[slot].phase, Phase::Asking(_)) {
            self.handle(slot, Input::Inquire, now, links);
        }
    }

    /// Answers the caller of this attempt, if it still waits, that others come first.
    pub(super) fn answer_busy(&mut self, slot: Slot, attempt: Attempt, now: Ticks, links: &mut Links) {
        let entry = &mut self.table[slot];
        if entry.attempt() == Some(attempt)
            && let Some(waiter) = entry.queue.pop_front()
        {
            self.answers.push_back((waiter.caller, Outcome::Busy));
            self.callers -= 1;
            self.replace_head(slot, true, now, links);
        }
    }

    #[inline]
    fn count_caller(&mut self) {
        let CallerId(number) = self.next_caller;
        self.next_caller = CallerId(number.checked_add(1).expect("a node gets fewer than 2^64 requests"));
        self.callers += 1;
    }

    /// Grants the lock if that is possible at once, otherwise queues the caller.
    #[expect(clippy::too_many_arguments, reason = "one request, and where it goes")]
    fn enter_or_wait(
        &mut self,
        slot: Slot,
        id: CallerId,
        mode: Mode,
        patience: Patience,
        now: Ticks,
        links: &mut Links,
        caller: impl FnOnce() -> C,
    ) -> Result<Answer, Refusal> {
        let tries = patience == Patience::Try;
        let ticket = Ticket { slot: Some(slot), id };
        let granted = |fence| Ok(Answer::Granted(Grant { ticket, fence }));
        let entry = &mut self.table[slot];
        entry.used = now;
        if mode == Mode::Shared
            && let Some(why) = self.classes.as_ref().and_then(|classes| classes.get(entry.class).no_shared)
        {
            return Err(Refusal::NoShared(why));
        }
        if !self.is_open {
            entry.enqueue(Waiter { id, mode, patience, caller: caller() });
            return Ok(Answer::Waiting(ticket));
        }
        let joins = entry.phase == Phase::Inside(Mode::Shared) && mode == Mode::Shared;
        if joins && entry.queue.is_empty() && !entry.has_waiters() {
            entry.add_holder(id);
            return granted(entry.fence);
        }
        if !entry.is_free() {
            if tries {
                return Ok(Answer::Busy);
            }
            entry.enqueue(Waiter { id, mode, patience, caller: caller() });
            return Ok(Answer::Waiting(ticket));
        }
        if let Some(fence) = entry.enter_fast(id, mode, now) {
            return granted(fence);
        }
        if tries && !entry.can_be_tried(links) {
            return Ok(Answer::Busy);
        }
        if let Some(peer) = links.congested(self.limits.backlog_max) {
            return Err(Refusal::Backlog(peer));
        }
        // At its very end a fence is refused; it never wraps.
        if entry.is_spent() {
            return Err(Refusal::Fences);
        }
        entry.phase = Phase::Asking(mode);
        match self.request(slot, mode, tries.then(|| id.attempt()), now, links) {
            ForCaller::Nothing => {}
            ForCaller::Enters(fence) => {
                self.enter(slot, mode, fence);
                self.table[slot].add_holder(id);
                return granted(fence);
            }
            ForCaller::Busy => {
                self.table[slot].phase = Phase::Idle;
                return Ok(Answer::Busy);
            }
            ForCaller::Refused => {
                self.table[slot].phase = Phase::Idle;
                return Err(Refusal::Fences);
            }
        }
        let entry = &mut self.table[slot];
        if tries && entry.attempts() == Attempts::None {
            entry.phase = Phase::Idle;
            self.handle(slot, Input::Cancel, now, links);
            return Ok(Answer::Busy);
        }
        if tries {
            self.attempts.insert(slot);
        }
        entry.enqueue(Waiter { id, mode, patience, caller: caller() });
        Ok(Answer::Waiting(ticket))
    }

    fn request(
        &mut self,
        slot: Slot,
        mode: Mode,
        attempt: Option<Attempt>,
        now: Ticks,
        links: &mut Links,
    ) -> ForCaller {
        let draw = (self.next_caller.0.get() as u32).wrapping_mul(0x9e37_79b9);
        let (input, mark) = match attempt {
            Some(_) if self.table[slot].attempts() == Attempts::Asked => (Input::Try { mode }, None),
            _ => (Input::Acquire { mode, draw }, attempt),
        };
        // Only messages can be malformed.
        self.try_handle_as(slot, input, mark, now, links).unwrap_or(ForCaller::Nothing)
    }

    /// The last local holder has left: another local caller follows if the streak allows it, otherwise the protocol decides.
    #[inline]
    fn leave(&mut self, slot: Slot, now: Ticks, links: &mut Links) {
        let entry = &mut self.table[slot];
        if !self.is_open {
            entry.phase = Phase::Idle;
            return;
        }
        entry.used = now;
        self.fences_used = self.fences_used.max(entry.fence.count());
        let next = entry.queue.front().map(|waiter| waiter.mode);
        if next.is_none() && entry.machine.leave_fast() {
            (entry.phase, entry.streak) = (Phase::Idle, 0);
            if !entry.listed {
                self.evict_idle(slot, now, links);
            }
            return;
        }
        let within_streak = entry.streak + 1 < self.limits.local_streak;
        if within_streak
            && next.is_some_and(|mode| entry.phase == Phase::Inside(mode))
            && entry.has_waiters()
            && let Some(fence) = entry.machine.capabilities_mut().reenter()
        {
            entry.streak += 1;
            entry.fence = fence;
            return self.admit(slot);
        }
        entry.phase = Phase::Idle;
        entry.streak = 0;
        self.handle(slot, Input::Release, now, links);
        self.serve(slot, now, links);
        self.evict_idle(slot, now, links);
    }

    /// Asks the protocol for the head of the queue, if there is one. While too much waits for some peer, only what needs no
    /// messages is asked for. The others wait, as they would for the permission of that peer.
    pub(super) fn serve(&mut self, slot: Slot, now: Ticks, links: &mut Links) {
        let entry = &mut self.table[slot];
        let Some(head) = entry.queue.front() else { return };
        if entry.phase != Phase::Idle {
            return;
        }
        let (mode, attempt) = (head.mode, head.attempt());
        let for_caller = match entry.machine.enter_fast(mode) {
            Some(fence) => ForCaller::Enters(fence),
            None if links.congested(self.limits.backlog_max).is_some() => return self.held_up.push_back(slot),
            None => {
                entry.phase = Phase::Asking(mode);
                self.request(slot, mode, attempt, now, links)
            }
        };
        match for_caller {
            ForCaller::Enters(fence) => {
                self.enter(slot, mode, fence);
                self.admit(slot);
            }
            ForCaller::Busy => self.refuse_attempt(slot, now, links),
            ForCaller::Refused => self.refuse_all(slot, now, links),
            ForCaller::Nothing => self.refuse_if_spent(slot, now, links),
        }
    }

    /// The protocol has refused the attempt of the head of the queue. The next caller is asked for.
    pub(super) fn refuse_attempt(&mut self, slot: Slot, now: Ticks, links: &mut Links) {
        self.attempts.remove(&slot);
        let entry = &mut self.table[slot];
        entry.phase = Phase::Idle;
        if entry.queue.front().is_some_and(Waiter::tries)
            && let Some(waiter) = entry.queue.pop_front()
        {
            self.early_slots.remove(&waiter.id);
            self.callers -= 1;
            self.answers.push_back((waiter.caller, Outcome::Busy));
        }
        self.serve(slot, now, links);
    }

    /// Peers have taken messages: the locks that were held up by those are asked for.
    pub(crate) fn retry_backpressured(&mut self, now: Ticks, links: &mut Links) {
        while !self.held_up.is_empty() && links.congested(self.limits.backlog_max).is_none() {
            let Some(slot) = self.held_up.pop_front() else { return };
            // If its callers have given up, the lock may be forgotten.
            if self.table.get_mut(slot).is_some() {
                self.serve(slot, now, links);
            }
        }
    }

    /// When the last fence has been used there is none for those who wait, however many permissions arrive.
    pub(super) fn refuse_if_spent(&mut self, slot: Slot, now: Ticks, links: &mut Links) {
        let entry = &self.table[slot];
        if matches!(entry.phase, Phase::Asking(_)) && entry.is_spent() {
            self.refuse_all(slot, now, links);
        }
    }

    /// All who wait are told that no fence is left in this view.
    pub(super) fn refuse_all(&mut self, slot: Slot, now: Ticks, links: &mut Links) {
        let entry = &mut self.table[slot];
        entry.phase = Phase::Idle;
        let waiting = std::mem::take(&mut entry.queue);
        self.callers -= waiting.len();
        for waiter in &waiting {
            self.early_slots.remove(&waiter.id);
        }
        let refused = waiting.into_iter().map(|waiter| (waiter.caller, Outcome::Refused(Refusal::Fences)));
        self.answers.extend(refused);
        self.handle(slot, Input::Cancel, now, links);
    }

    /// The head of the queue has gone. The next caller takes its request over if it has the same mode, unless the request
    /// was an attempt: nodes that answered BUSY have forgotten it.
    fn replace_head(&mut self, slot: Slot, tried: bool, now: Ticks, links: &mut Links) {
        self.attempts.remove(&slot);
        let entry = &mut self.table[slot];
        let Phase::Asking(mode) = entry.phase else {
            // Readers who queued behind a writer that has gone may join the readers inside.
            return self.admit_readers(slot);
        };
        if !tried && entry.queue.front().is_some_and(|next| next.mode == mode && !next.tries()) {
            return;
        }
        entry.phase = Phase::Idle;
        if self.is_open {
            self.handle(slot, Input::Cancel, now, links);
            self.serve(slot, now, links);
        }
    }

    pub(super) fn enter(&mut self, slot: Slot, mode: Mode, fence: Fence) {
        self.attempts.remove(&slot);
        let entry = &mut self.table[slot];
        entry.phase = Phase::Inside(mode);
        entry.fence = fence;
    }

    /// The head of the queue gets the lock, and with a reader all readers right behind it.
    pub(super) fn admit(&mut self, slot: Slot) {
        let entry = &mut self.table[slot];
        let Phase::Inside(mode) = entry.phase else { return };
        while let Some(Waiter { id, caller, .. }) = entry.queue.pop_front() {
            entry.add_holder(id);
            let grant = Grant { ticket: Ticket { slot: Some(slot), id }, fence: entry.fence };
            self.answers.push_back((caller, Outcome::Granted(grant)));
            if mode == Mode::Exclusive || entry.queue.front().is_none_or(|next| next.mode == Mode::Exclusive) {
                break;
            }
        }
    }

    pub(super) fn admit_readers(&mut self, slot: Slot) {
        let entry = &self.table[slot];
        let next_reads = entry.queue.front().is_some_and(|next| next.mode == Mode::Shared);
        if self.is_open && entry.phase == Phase::Inside(Mode::Shared) && next_reads && !entry.has_waiters() {
            self.admit(slot);
        }
    }
}
