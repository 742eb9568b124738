//! The named locks of a node: its callers and their queues, the protocol of each lock, and which locks are remembered.

mod cache;
mod callers;
mod classes;
mod machine;
mod table;

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU64;

use hallpass_core::protocol::Floor;
use hallpass_core::{Fence, Input, Ticks};

use crate::config::NodeConfig;
use crate::links::{Arrived, Links};
use crate::output::{CallerId, Outcome, Refusal};
use crate::status::LockStatus;
use crate::wire::Attempt;

pub(crate) use classes::Classes;
use machine::{Outbox, RawInput, SharedEffects};
pub use table::Slot;
use table::{Entry, Phase, Table, Waiter};

/// All locks of a node. `C` is what the driver knows a waiting caller by.
pub(crate) struct Locks<C> {
    limits: Limits,
    /// Which protocol serves which lock: known once there is a view, and no lock is granted before.
    classes: Option<Classes>,
    table: Table<C>,
    /// Callers who came before there was a view, in order.
    early: VecDeque<Early<C>>,
    /// Locks that nobody here holds or wants and that keep permissions, the longest unused first; each once.
    idle: VecDeque<(Ticks, Slot)>,
    /// Locks whose protocol has set a timer.
    timers: BTreeSet<(Ticks, Slot)>,
    effects: SharedEffects,
    /// What locks that were forgotten have left behind.
    pub(crate) floor: Floor,
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
            table: Table::new(config.seed),
            early: VecDeque::new(),
            idle: VecDeque::new(),
            timers: BTreeSet::new(),
            effects: SharedEffects::new(),
            floor: Floor::default(),
            next_caller: CallerId(NonZeroU64::MIN),
            callers: 0,
            answers: VecDeque::new(),
        }
    }

    /// There is a view: callers who came before it are served, in order.
    pub(crate) fn open(&mut self, classes: Classes, now: Ticks, links: &mut Links) {
        self.classes = Some(classes);
        for Early { lock, waiter } in std::mem::take(&mut self.early) {
            match self.find_or_add(&lock) {
                Ok(slot) => {
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

    /// A message of a lock's protocol has arrived.
    pub(crate) fn on_message(&mut self, link: usize, arrived: Arrived<'_>, now: Ticks, links: &mut Links) {
        let Arrived { from, lock, attempt, bytes } = arrived;
        // Also beyond `locks_max`, which is for callers here: a request that is not answered would wait for ever, and the
        // sender's own limit bounds what it can cause.
        let slot = self.table.find(lock).unwrap_or_else(|| self.add(lock));
        let sent = links[link].sent();
        // All that a node sends while somebody tries there has the mark. Only a request can be deferred: what is deferred when
        // another message comes is one that its sender has given up before.
        let attempt = attempt.filter(|_| self.table[slot].machine.asks(bytes.clone()));
        self.handle(slot, Input::Deliver { from, message: bytes }, now, links);
        // If something was sent, the request was answered. What is deferred then is one that its sender has given up before.
        let answered = links[link].sent() != sent;
        if let Some(attempt) = attempt
            && !answered
            && self.table[slot].forget_deferred(from)
        {
            links.send_busy(link, lock, attempt);
        }
        self.evict_idle(slot, now);
    }

    /// Another node would have deferred the request of a caller who only tries.
    pub(crate) fn on_busy(&mut self, lock: &str, attempt: Attempt, now: Ticks, links: &mut Links) {
        if let Some(slot) = self.table.find(lock) {
            self.answer_busy(slot, attempt, now, links);
            self.evict_idle(slot, now);
        }
    }

    /// A member cannot be reached: callers who only try do not wait for it.
    pub(crate) fn on_disconnect(&mut self, links: &mut Links) {
        let attempts = self.table.iter().filter_map(|(slot, entry)| Some((slot, entry.attempt()?, entry.used)));
        for (slot, attempt, used) in attempts.collect::<Vec<_>>() {
            self.answer_busy(slot, attempt, used, links);
            self.evict_idle(slot, used);
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
        self.expire_idle(now);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Ticks> {
        let timer = self.timers.first().map(|(at, _)| *at);
        self.next_expiry().into_iter().chain(timer).min()
    }

    pub(crate) fn poll_answer(&mut self) -> Option<(C, Outcome)> {
        self.answers.pop_front()
    }

    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    // ---- getters ----

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &C> {
        let early = self.early.iter().map(|early| &early.waiter.caller);
        early.chain(self.table.iter().flat_map(|(_, entry)| entry.queue.iter().map(|waiter| &waiter.caller)))
    }

    pub(crate) fn status(&self) -> impl Iterator<Item = LockStatus<'_>> {
        self.table.iter().map(|(_, entry)| LockStatus {
            name: &entry.name,
            protocol: self.classes.as_ref().map_or("", |classes| classes.get(entry.class).protocol),
            held: if let Phase::Inside(mode) = entry.phase { Some(mode) } else { None },
            holders: entry.holders.len(),
            waiters: entry.queue.len(),
            fence: entry.fence,
        })
    }

    // ---- one lock ----

    /// For callers here: within the limit.
    fn find_or_add(&mut self, name: &str) -> Result<Slot, Refusal> {
        match self.table.find(name) {
            Some(slot) => Ok(slot),
            None if self.len() >= self.limits.locks_max => Err(Refusal::Locks),
            None => Ok(self.add(name)),
        }
    }

    fn add(&mut self, name: &str) -> Slot {
        let classes = self.classes.as_ref().expect("locks exist once there is a view");
        let (class, mut machine) = classes.instantiate(name);
        machine.capabilities_mut().raise_floor(self.floor);
        self.table.add(name, class, machine)
    }

    /// One input for a lock's protocol. If it enters, so does the head of the queue.
    fn handle(&mut self, slot: Slot, input: RawInput<'_>, now: Ticks, links: &mut Links) {
        // Whatever is sent while somebody tries belongs to the attempt: also a permission that is asked for again.
        let attempt = self.table[slot].attempt();
        if let Some(fence) = self.handle_as(slot, input, attempt, now, links)
            && let Phase::Asking(mode) = self.table[slot].phase
        {
            self.enter(slot, mode, fence);
            self.admit(slot);
        } else {
            self.refuse_if_spent(slot, now, links);
        }
    }

    /// The same for a given attempt; returns the fence if the protocol enters.
    fn handle_as(
        &mut self,
        slot: Slot,
        input: RawInput<'_>,
        attempt: Option<Attempt>,
        now: Ticks,
        links: &mut Links,
    ) -> Option<Fence> {
        let Self { table, effects, timers, .. } = self;
        let Entry { machine, name, .. } = &mut table[slot];
        let mut outbox = Outbox { links, lock: name, attempt, now };
        let before = machine.timeout();
        // What a peer sends wrong is dropped; frames were checked as far as they could be.
        let entered = machine.handle(input, effects, &mut outbox).unwrap_or(None);
        let after = machine.timeout();
        if before != after {
            before.map(|at| timers.remove(&(at, slot)));
            timers.extend(after.map(|at| (at, slot)));
        }
        entered
    }
}
