//! The named locks of a node: its callers and their queues, the protocol of each lock, and which locks are remembered.

mod cache;
mod callers;
mod classes;
mod floors;
mod machine;
#[allow(dead_code, reason = "for membership in views")]
mod reopen;
#[cfg(test)]
mod reopen_tests;
mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::ops::Range;

use hallpass_core::codec::DecodeError;
use hallpass_core::{Input, NodeId, Ticks};

use crate::config::NodeConfig;
use crate::links::{Arrived, Links};
use crate::output::{CallerId, Outcome, Refusal};
use crate::status::LockStatus;
use crate::tap::{Taps, TracedMessage};
use crate::wire::Attempt;

pub(crate) use classes::Classes;
use floors::Floors;
use machine::{ForCaller, Outbox, RawInput, SharedEffects};
#[allow(unused_imports, reason = "for membership in views")]
pub use reopen::{Held, HeldLock};
pub use table::Slot;
use table::{Phase, Table, TableEntry, Waiter, is_sparse};

/// All locks of a node. `C` is what the driver knows a waiting caller by.
pub(crate) struct Locks<C> {
    limits: Limits,
    /// Which protocol serves which lock: known once there is a view, and no lock is granted before.
    classes: Option<Classes>,
    /// There is a view, and its epoch runs: locks are granted.
    is_open: bool,
    table: Table<C>,
    /// Callers who came before there was a view, in order.
    early: BTreeMap<CallerId, Early<C>>,
    /// Where they wait or hold since: their tickets do not say.
    early_slots: BTreeMap<CallerId, Slot>,
    /// Locks that nobody here holds or wants and that keep permissions, the longest unused first; each once.
    idle: VecDeque<(Ticks, Slot)>,
    /// Locks whose next caller has not been asked for, since too much waits for some peer. Hints: a lock that is served or
    /// forgotten meanwhile stays on the list until its turn.
    held_up: VecDeque<Slot>,
    /// Locks whose protocol has been asked for a caller who only tries. Those of attempts that are over do no harm.
    pub(crate) attempts: BTreeSet<Slot>,
    /// Locks whose protocol has set a timer.
    timers: BTreeSet<(Ticks, Slot)>,
    effects: SharedEffects,
    /// Those who watch the messages of a lock.
    pub(crate) taps: Taps,
    pub(crate) floors: Box<Floors>,
    /// The largest count of a fence that was given here or comes from a lock that was forgotten.
    fences_used: u64,
    next_caller: CallerId,
    /// How many callers wait or hold.
    pub(crate) callers: usize,
    /// Answers to callers who had to wait, in order.
    answers: VecDeque<(C, Outcome)>,
}

/// The settings of [`NodeConfig`] that are about locks.
#[derive(Clone, Copy, Debug)]
struct Limits {
    local_streak: u32,
    cache_idle: Ticks,
    cache_max: usize,
    locks_max: usize,
    callers_max: usize,
    backlog_max: usize,
}

struct Early<C> {
    lock: Box<str>,
    waiter: Waiter<C>,
}

impl<C> Locks<C> {
    pub(crate) fn new(config: &NodeConfig) -> Self {
        let NodeConfig { local_streak, cache_idle, cache_max, locks_max, callers_max, backlog_max, .. } = *config;
        Self {
            limits: Limits { local_streak, cache_idle, cache_max, locks_max, callers_max, backlog_max },
            classes: None,
            is_open: false,
            table: Table::new(config.seed),
            early: BTreeMap::new(),
            early_slots: BTreeMap::new(),
            idle: VecDeque::new(),
            held_up: VecDeque::new(),
            attempts: BTreeSet::new(),
            timers: BTreeSet::new(),
            effects: SharedEffects::default(),
            taps: Taps::default(),
            floors: Floors::new(),
            fences_used: 0,
            next_caller: CallerId(NonZeroU64::MIN),
            callers: 0,
            answers: VecDeque::new(),
        }
    }

    /// A message of a lock's protocol has arrived. Nothing has changed if it is none.
    pub(crate) fn on_message(
        &mut self,
        link: usize,
        arrived: Arrived<'_>,
        now: Ticks,
        links: &mut Links,
    ) -> Result<(), DecodeError> {
        if !self.is_open || !links[link].in_view {
            return Ok(());
        }
        let Arrived { from, lock, attempt, bytes } = arrived;
        // Also beyond `locks_max`, which is for callers here: a request that is not answered would wait forever, and the
        // sender's own limit bounds what it can cause.
        let slot = self.table.find(lock).unwrap_or_else(|| self.add(lock));
        let sent = links[link].sent();
        // All that a node sends while somebody tries there has the mark. Only a request can be deferred: what is deferred when
        // another message comes is one that its sender has given up before.
        let attempt = attempt.filter(|_| self.table[slot].machine.asks(bytes.clone()));
        let handled = self.try_handle(slot, Input::Deliver { from, message: bytes }, now, links);
        // If something was sent, the request was answered. What is deferred then is one that its sender has given up before.
        let answered = links[link].sent() != sent;
        if let Some(attempt) = attempt
            && !answered
            && self.table[slot].forget_deferred(from)
        {
            links.send_busy(link, lock, attempt);
            self.note_busy(lock, from, true, now);
        }
        self.evict_idle(slot, now, links);
        handled
    }

    /// Another node would have deferred the request of a caller who only tries.
    pub(crate) fn on_busy(&mut self, from: NodeId, lock: &str, attempt: Attempt, now: Ticks, links: &mut Links) {
        self.note_busy(lock, from, false, now);
        if let Some(slot) = self.table.find(lock).filter(|_| self.is_open) {
            self.answer_busy(slot, attempt, now, links);
            self.evict_idle(slot, now, links);
        }
    }

    /// The answer to a request that cannot wait is no message of the protocol, but of the lock.
    fn note_busy(&mut self, lock: &str, peer: NodeId, is_sent: bool, at: Ticks) {
        self.taps.note(lock, || TracedMessage { at, peer, is_sent, kind: "BUSY", text: "BUSY".to_owned() });
    }

    /// A member cannot be reached: callers who only try do not wait for it.
    pub(crate) fn on_disconnect(&mut self, links: &mut Links) {
        for slot in std::mem::take(&mut self.attempts) {
            let entry = self.table.get_mut(slot).map(|entry| (entry.attempt(), entry.used));
            let Some((Some(attempt), used)) = entry else { continue };
            self.answer_busy(slot, attempt, used, links);
            self.evict_idle(slot, used, links);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Ticks, links: &mut Links) {
        while let Some((at, slot)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, slot));
            // A timer that fires sets the next one later, so this ends.
            self.handle(slot, Input::Timeout(()), now, links);
            // Another one of the same lock may be due at the same moment.
            self.timers.extend(self.table[slot].machine.timeout().map(|at| (at, slot)));
        }
        if self.is_open {
            self.expire_idle(now, links);
        }
        self.shrink();
    }

    /// Gives back memory of what has become few again.
    fn shrink(&mut self) {
        self.table.shrink();
        let Self { idle, answers, held_up, .. } = self;
        if is_sparse(idle.len(), idle.capacity()) {
            idle.shrink_to(2 * idle.len());
        }
        if is_sparse(answers.len(), answers.capacity()) {
            answers.shrink_to(2 * answers.len());
        }
        if is_sparse(held_up.len(), held_up.capacity()) {
            held_up.shrink_to(2 * held_up.len());
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Ticks> {
        let timer = self.timers.first().map(|(at, _)| *at);
        self.next_expiry().filter(|_| self.is_open).into_iter().chain(timer).min()
    }

    pub(crate) fn poll_answer(&mut self) -> Option<(C, Outcome)> {
        self.answers.pop_front()
    }

    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    // ---- getters ----

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &C> {
        let early = self.early.values().map(|early| &early.waiter.caller);
        early.chain(self.table.iter().flat_map(|(_, entry)| entry.queue.iter().map(|waiter| &waiter.caller)))
    }

    pub(crate) fn slots(&self) -> u32 {
        self.table.slots()
    }

    pub(crate) fn status_in(&self, slots: Range<u32>) -> impl Iterator<Item = LockStatus<'_>> {
        self.table.range(slots).map(|entry| self.status(entry))
    }

    pub(crate) fn status_of(&self, name: &str) -> Option<LockStatus<'_>> {
        self.table.find(name).map(|slot| self.status(&self.table[slot]))
    }

    fn status<'a>(&self, entry: &'a TableEntry<C>) -> LockStatus<'a> {
        let asked = matches!(entry.phase, Phase::Asking(_)).then(|| entry.machine.capabilities().missing_permissions());
        LockStatus {
            name: &entry.name,
            protocol: self.classes.as_ref().map_or("", |classes| classes.get(entry.class).protocol),
            state: entry.state(),
            missing: asked.flatten().unwrap_or_default(),
            home: entry.machine.capabilities().home(),
            order: entry.machine.capabilities().order(),
            held: if let Phase::Inside(mode) = entry.phase { Some(mode) } else { None },
            holders: entry.holders.len(),
            waiters: entry.queue.len(),
            fence: entry.fence,
        }
    }

    pub(crate) fn fences_used(&self) -> u64 {
        self.fences_used
    }

    // ---- one lock ----

    /// For callers here: within the limit of the lock's class.
    fn find_or_add(&mut self, name: &str) -> Result<Slot, Refusal> {
        match self.table.find(name) {
            Some(slot) => Ok(slot),
            None if self.table.len_of(self.classes().find(name)) >= self.limits.locks_max => Err(Refusal::Locks),
            None => Ok(self.add(name)),
        }
    }

    fn add(&mut self, name: &str) -> Slot {
        let class = self.classes().find(name);
        let mut machine = self.classes().unheld(class, name);
        let lock = machine.capabilities_mut();
        lock.raise_floor(self.floors.get(name));
        if let Some(comer) = self.floors.comer(name) {
            lock.remember_comer(comer);
        }
        self.table.add(name, class, machine)
    }

    fn classes(&self) -> &Classes {
        self.classes.as_ref().expect("locks exist once there is a view")
    }

    /// One input for a lock's protocol that comes from this node.
    fn handle(&mut self, slot: Slot, input: RawInput<'_>, now: Ticks, links: &mut Links) {
        let handled = self.try_handle(slot, input, now, links);
        debug_assert!(handled.is_ok(), "only messages are decoded");
    }

    /// One input for a lock's protocol. If it enters, so does the head of the queue.
    fn try_handle(
        &mut self,
        slot: Slot,
        input: RawInput<'_>,
        now: Ticks,
        links: &mut Links,
    ) -> Result<(), DecodeError> {
        // Whatever is sent while somebody tries belongs to the attempt: also a permission that is asked for again.
        let mark = self.table[slot].mark();
        let for_caller = self.try_handle_as(slot, input, mark, now, links)?;
        match (for_caller, self.table[slot].phase) {
            (ForCaller::Enters(fence), Phase::Asking(mode)) => {
                self.enter(slot, mode, fence);
                self.admit(slot);
            }
            (ForCaller::Busy, Phase::Asking(_)) => self.refuse_attempt(slot, now, links),
            (ForCaller::Refused, Phase::Asking(_)) => self.refuse_all(slot, now, links),
            _ => self.refuse_if_spent(slot, now, links),
        }
        Ok(())
    }

    /// The same for a given mark; returns what it means for the caller.
    fn try_handle_as(
        &mut self,
        slot: Slot,
        input: RawInput<'_>,
        attempt: Option<Attempt>,
        now: Ticks,
        links: &mut Links,
    ) -> Result<ForCaller, DecodeError> {
        let Self { table, effects, timers, taps, .. } = self;
        let TableEntry { machine, name, touched, .. } = &mut table[slot];
        let mut outbox = Outbox { links, lock: name, attempt, now, taps };
        let before = machine.timeout();
        let entered = machine.handle(input, effects, &mut outbox)?;
        *touched = true;
        let after = machine.timeout();
        if before != after {
            before.map(|at| timers.remove(&(at, slot)));
            timers.extend(after.map(|at| (at, slot)));
        }
        Ok(entered)
    }
}
