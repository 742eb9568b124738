//! One process of a group: named locks, local callers, links to the other members. Pure, like everything here.
//!
//! **The driver's contract**: after every `handle_*`
//!
//! 1. take [`Node::poll_output`] until it is empty and tell the callers;
//! 2. give every peer's [`Node::poll_transmit`] to its connection, and say how much went by [`Node::handle_transmitted`];
//! 3. call [`Node::handle_timeout`] not later than [`Node::poll_timeout`] says.
//!
//! Membership is a fixed list. A node takes part once it has met every other member in this life, since only then it
//! knows the view: its epoch is the highest incarnation among them.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use crate::wire::{Body, Frame, Hello, LABEL_MAX, NAME_MAX, Outgoing};
use hallpass_core::codec::DecodeError;
use hallpass_core::protocol::{Floor, Kind, OptionError, Options};
use hallpass_core::{Fence, Mode, NodeId, Ticks, View};

use crate::answer::{Answer, HelloError, Output, Patience, Refusal, Ticket};
use crate::config::{Class, Digest, NodeConfig};
use crate::link::{Link, LinkError, Sender};
use crate::machine::{Drive, Machine, Make, Scratch, Wire};
use crate::status::{LockStatus, MemberStatus};
use crate::table::{Entry, Phase, Table, Waiter};

/// One process of a group. `C` is what the driver knows a waiting caller by.
///
/// - **Inputs**: [`handle_acquire`](Self::handle_acquire), [`handle_release`](Self::handle_release),
///   [`handle_cancel`](Self::handle_cancel); [`handle_hello`](Self::handle_hello), [`handle_bytes`](Self::handle_bytes),
///   [`handle_transmitted`](Self::handle_transmitted), [`handle_disconnect`](Self::handle_disconnect);
///   [`handle_timeout`](Self::handle_timeout).
/// - **Outputs**: [`poll_output`](Self::poll_output), [`poll_transmit`](Self::poll_transmit),
///   [`poll_timeout`](Self::poll_timeout).
/// - **Getters**: [`hello`](Self::hello), [`is_complete`](Self::is_complete), [`locks`](Self::locks),
///   [`members`](Self::members), [`messages`](Self::messages).
pub struct Node<C> {
    config: NodeConfig,
    digest: u64,
    /// The links, in the order of the peers' ids.
    links: Vec<Link>,
    /// What there is once everybody is known.
    group: Option<Group>,
    /// Callers who came before that, in order.
    early: VecDeque<Early<C>>,
    locks: Table<C>,
    /// Locks that nobody holds or wants and that keep permissions, the longest unused first; each once.
    unused: VecDeque<(Ticks, u32)>,
    /// Locks whose protocol has set a timer.
    timers: BTreeSet<(Ticks, u32)>,
    outputs: VecDeque<Output<C>>,
    scratch: Scratch,
    pub(crate) floor: Floor,
    next_id: u64,
    /// Callers who wait or hold.
    pub(crate) callers: usize,
    messages: u64,
}

struct Group {
    sender: Sender,
    /// A digest of everybody's life.
    lives: u64,
    /// What locks start as, the longest prefix first; the last one fits all names.
    blanks: Vec<Blank>,
}

struct Blank {
    prefix: String,
    protocol: &'static str,
    machine: Machine,
    no_shared: Option<&'static str>,
}

struct Early<C> {
    lock: Box<str>,
    waiter: Waiter<C>,
}

impl<C> Node<C> {
    /// A node that has met nobody yet.
    pub fn new(config: NodeConfig) -> Result<Self, OptionError> {
        let mut members = config.members.clone();
        members.sort_unstable();
        members.dedup();
        if !members.contains(&config.me) {
            return Err(OptionError(format!("node {} is not in its own list of members", config.me)));
        }
        if config.incarnation == 0 || u64::from(config.incarnation) > Fence::EPOCH_MAX {
            return Err(OptionError(format!("an incarnation is from 1 to {}", Fence::EPOCH_MAX)));
        }
        if [&config.group, &config.name].iter().any(|text| text.is_empty() || text.len() > LABEL_MAX) {
            return Err(OptionError(format!("names of groups and nodes have 1 to {LABEL_MAX} bytes")));
        }
        let digest = config.digest(&members);
        let mut node = Self {
            digest,
            links: members.iter().filter(|member| **member != config.me).map(|member| Link::new(*member)).collect(),
            group: None,
            early: VecDeque::new(),
            locks: Table::new(config.seed),
            unused: VecDeque::new(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            scratch: Scratch::new(),
            floor: Floor::default(),
            next_id: 1,
            callers: 0,
            messages: 0,
            config,
        };
        // Classes that do not fit are told now, not when the group is complete.
        node.blanks(0)?;
        node.complete_if_known(0);
        Ok(node)
    }

    // ---- callers ----

    /// A caller wants in. `caller` is only asked for if it has to wait.
    pub fn handle_acquire(
        &mut self,
        lock: &str,
        mode: Mode,
        patience: Patience,
        now: Ticks,
        caller: impl FnOnce() -> C,
    ) -> Result<Answer, Refusal> {
        if lock.is_empty() || lock.len() > NAME_MAX {
            return Err(Refusal::Name);
        }
        if self.callers >= self.config.callers_max {
            return Err(Refusal::Callers);
        }
        let id = self.next_id;
        let tries = patience == Patience::Try;
        if self.group.is_none() {
            if tries {
                return Ok(Answer::Busy);
            }
            let waiter = Waiter { id, mode, tries, caller: caller() };
            self.early.push_back(Early { lock: lock.into(), waiter });
            (self.next_id, self.callers) = (id + 1, self.callers + 1);
            return Ok(Answer::Waiting(Ticket { slot: EARLY, id }));
        }
        let slot = self.find_or_add(lock)?;
        let answer = self.ask(slot, id, mode, tries, now, caller);
        match &answer {
            Ok(Answer::Granted(..) | Answer::Waiting(_)) => (self.next_id, self.callers) = (id + 1, self.callers + 1),
            Ok(Answer::Busy) | Err(_) => self.settle(slot, now),
        }
        answer
    }

    /// The short way in for a lock that is free and whose permission is here, where it was found at this
    /// [`place`](Ticket::place) not long ago. With `None` nothing has happened, and [`handle_acquire`](Self::handle_acquire)
    /// says why. No output comes of it.
    #[inline]
    pub fn handle_fast_acquire(&mut self, place: u32, lock: &str, mode: Mode, now: Ticks) -> Option<(Ticket, Fence)> {
        let entry = self.locks.get_mut(place).filter(|entry| *entry.name == *lock)?;
        if self.callers >= self.config.callers_max {
            return None;
        }
        let id = self.next_id;
        let fence = entry.enter_fast(id, mode, now)?;
        (self.next_id, self.callers) = (id + 1, self.callers + 1);
        Some((Ticket { slot: place, id }, fence))
    }

    /// A caller leaves; false if it was not inside.
    #[inline]
    pub fn handle_release(&mut self, ticket: Ticket, now: Ticks) -> bool {
        let Some(entry) = self.locks.get_mut(ticket.slot) else { return false };
        let Some(at) = entry.holders.iter().position(|holder| *holder == ticket.id) else { return false };
        entry.holders.swap_remove(at);
        self.callers -= 1;
        if entry.holders.is_empty() {
            self.leave(ticket.slot, now);
        }
        true
    }

    /// A waiting caller gives up, wherever it was in the queue; who is inside by now leaves. False if it was neither.
    pub fn handle_cancel(&mut self, ticket: Ticket, now: Ticks) -> bool {
        if let Some(at) = self.early.iter().position(|early| early.waiter.id == ticket.id) {
            self.early.remove(at);
            self.callers -= 1;
            return true;
        }
        // A caller who came early has a ticket without a place: it is looked for.
        let slot = if ticket.slot == EARLY { self.slot_of(ticket.id) } else { Some(ticket.slot) };
        let Some(slot) = slot else { return false };
        let Some(entry) = self.locks.get_mut(slot) else { return false };
        let Some(at) = entry.queue.iter().position(|waiter| waiter.id == ticket.id) else {
            return self.handle_release(Ticket { slot, ..ticket }, now);
        };
        let gone = entry.queue.remove(at);
        self.callers -= 1;
        if at == 0 {
            self.head_has_gone(slot, gone.is_some_and(|waiter| waiter.tries), now);
        }
        self.settle(slot, now);
        true
    }

    // ---- connections ----

    /// What to say first on a new connection to this peer, if it is a member.
    pub fn hello(&self, peer: NodeId) -> Option<Hello> {
        let link = &self.links[self.position(peer)?];
        Some(Hello {
            group: self.config.group.clone(),
            name: self.config.name.clone(),
            from: self.config.me,
            to: peer,
            incarnation: self.config.incarnation,
            life: self.config.life,
            to_incarnation: link.incarnation,
            received: link.received(),
            digest: self.digest,
            lives: self.lives(),
        })
    }

    /// A connection begins with this. On success it stands; an earlier one with the same peer is to be closed.
    pub fn handle_hello(&mut self, hello: &Hello, now: Ticks) -> Result<(), HelloError> {
        self.check_hello(hello)?;
        let at = self.position(hello.from).ok_or(HelloError::Member(hello.from))?;
        let link = &mut self.links[at];
        link.connect(hello.received).map_err(HelloError::Link)?;
        (link.incarnation, link.life) = (hello.incarnation, hello.life);
        self.complete_if_known(now);
        Ok(())
    }

    /// Whether a greeting is acceptable; nothing changes.
    pub fn check_hello(&self, hello: &Hello) -> Result<(), HelloError> {
        if hello.group != self.config.group {
            return Err(HelloError::Group(hello.group.clone()));
        }
        if hello.to != self.config.me {
            return Err(HelloError::Member(hello.to));
        }
        let at = self.position(hello.from).ok_or(HelloError::Member(hello.from))?;
        if hello.digest != self.digest {
            return Err(HelloError::Digest);
        }
        if hello.incarnation == 0 || u64::from(hello.incarnation) > Fence::EPOCH_MAX {
            return Err(HelloError::Restarted);
        }
        let known = self.links[at].incarnation;
        if known != 0 && (known, self.links[at].life) != (hello.incarnation, hello.life) {
            return Err(HelloError::Restarted);
        }
        if hello.to_incarnation != 0 && hello.to_incarnation != self.config.incarnation {
            return Err(HelloError::Outlived);
        }
        // Two who have met a third in different lives of it would wait for each other's word for ever.
        if hello.lives != 0 && self.is_complete() && hello.lives != self.lives() {
            return Err(HelloError::Lives);
        }
        Ok(())
    }

    /// The connection to this peer is gone; what was on its way goes again with the next one.
    pub fn handle_disconnect(&mut self, peer: NodeId) {
        let Some(at) = self.position(peer) else { return };
        self.links[at].disconnect();
        // Whoever only tries is not kept waiting for a member that is gone.
        for slot in self.locks.slots() {
            let head = self.locks[slot].queue.front().filter(|head| head.tries).map(|head| head.id);
            if let Some(attempt) = head {
                let now = self.locks[slot].used;
                self.on_busy(slot, attempt, now);
                self.settle(slot, now);
            }
        }
    }

    /// Bytes have arrived from this peer, in any portions. On an error the connection is to be closed.
    pub fn handle_bytes(&mut self, peer: NodeId, bytes: &[u8], now: Ticks) -> Result<(), LinkError> {
        let Some(at) = self.position(peer) else { return Err(LinkError::Stranger) };
        if !self.links[at].connected {
            return Ok(());
        }
        let mut inbound = std::mem::take(&mut self.links[at].inbound);
        if self.group.is_none() && inbound.len() + bytes.len() > self.config.backlog_max {
            return Err(LinkError::Flooded);
        }
        // Almost always a read brings whole frames: they are handled where they lie.
        let result = if inbound.is_empty() {
            self.handle_frames(at, bytes, now).inspect(|taken| inbound.extend_from_slice(&bytes[*taken..]))
        } else {
            inbound.extend_from_slice(bytes);
            self.handle_frames(at, &inbound, now).inspect(|taken| drop(inbound.drain(..*taken)))
        };
        self.links[at].inbound = inbound;
        result.map(|_| ())
    }

    /// The connection to this peer has taken so many of the bytes of [`poll_transmit`](Self::poll_transmit).
    pub fn handle_transmitted(&mut self, peer: NodeId, bytes: usize) {
        if let Some(at) = self.position(peer) {
            self.links[at].transmitted(bytes);
        }
    }

    /// Time has come to [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Ticks) {
        while let Some((at, slot)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, slot));
            // A timer that fires sets the next one later, so this ends.
            self.drive(slot, Drive::Timeout, now);
            // Another one of the same lock may be due at the same moment.
            let next = self.locks[slot].machine.as_ref().and_then(Machine::timeout);
            self.timers.extend(next.map(|at| (at, slot)));
        }
        // Each once: what is listed again has its next turn later.
        for _ in 0..self.unused.len() {
            let Some((listed, slot)) = self.unused.front().copied() else { break };
            if listed.saturating_add(self.config.cache_idle) > now {
                break;
            }
            self.unused.pop_front();
            let entry = &mut self.locks[slot];
            entry.listed = false;
            if entry.used.saturating_add(self.config.cache_idle) <= now {
                entry.drop_permissions();
            }
            self.settle(slot, now);
        }
    }

    // ---- outputs ----

    /// The next thing to tell a caller.
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        self.outputs.pop_front()
    }

    /// True if [`poll_output`](Self::poll_output) has something.
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// What to send to this peer now.
    pub fn poll_transmit(&self, peer: NodeId) -> &[u8] {
        self.position(peer).map_or(&[], |at| self.links[at].transmit())
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest.
    pub fn poll_timeout(&self) -> Option<Ticks> {
        let unused = self.unused.front().map(|(listed, _)| listed.saturating_add(self.config.cache_idle));
        let timer = self.timers.first().map(|(at, _)| *at);
        unused.into_iter().chain(timer).min()
    }

    // ---- getters ----

    /// Every member has been met: locks are granted.
    pub fn is_complete(&self) -> bool {
        self.group.is_some()
    }

    /// The view's number, once the group is complete.
    pub fn epoch(&self) -> Option<u64> {
        self.group.as_ref().map(|group| group.sender.epoch)
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.config.me
    }

    /// Protocol messages sent so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// How many locks take memory here.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// True if no lock takes memory here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everybody who waits.
    pub fn waiting(&self) -> impl Iterator<Item = &C> {
        let early = self.early.iter().map(|early| &early.waiter.caller);
        early.chain(self.locks.iter().flat_map(|entry| entry.queue.iter().map(|waiter| &waiter.caller)))
    }

    /// The locks that are held, waited for or cached here, in no order.
    pub fn locks(&self) -> impl Iterator<Item = LockStatus<'_>> {
        let blanks = self.group.as_ref().map(|group| &group.blanks);
        self.locks.iter().map(move |entry| LockStatus {
            name: &entry.name,
            protocol: blanks.map_or("", |blanks| blanks[usize::from(entry.class)].protocol),
            held: if let Phase::Inside(mode) = entry.phase { Some(mode) } else { None },
            holders: entry.holders.len(),
            waiters: entry.queue.len(),
            fence: entry.fence,
        })
    }

    /// All members, this one among them, in rising order.
    pub fn members(&self) -> Vec<MemberStatus> {
        let (id, incarnation) = (self.config.me, self.config.incarnation);
        let me = MemberStatus { id, incarnation, connected: true, backlog: 0 };
        let others = self.links.iter().map(|link| MemberStatus {
            id: link.peer,
            incarnation: link.incarnation,
            connected: link.connected,
            backlog: link.backlog(),
        });
        let mut all: Vec<MemberStatus> = others.chain([me]).collect();
        all.sort_unstable_by_key(|member| member.id);
        all
    }
}

/// The ticket of a caller who came before the group was complete has no place yet.
const EARLY: u32 = u32::MAX;

impl<C> Node<C> {
    fn position(&self, peer: NodeId) -> Option<usize> {
        self.links.binary_search_by_key(&peer, |link| link.peer).ok()
    }

    /// 0 until everybody is known.
    fn lives(&self) -> u64 {
        self.group.as_ref().map_or(0, |group| group.lives)
    }

    fn slot_of(&self, id: u64) -> Option<u32> {
        let has = |entry: &Entry<C>| entry.holders.contains(&id) || entry.queue.iter().any(|waiter| waiter.id == id);
        self.locks.slots().find(|slot| has(&self.locks[*slot]))
    }

    /// The view is known when everybody's incarnation is. Then what has waited for that happens, in order.
    fn complete_if_known(&mut self, now: Ticks) {
        if self.group.is_some() || self.links.iter().any(|link| link.incarnation == 0) {
            return;
        }
        let lives = self.links.iter().map(|link| link.incarnation);
        let epoch = u64::from(lives.fold(self.config.incarnation, u32::max));
        let sender = Sender { me: self.config.me, incarnation: self.config.incarnation, epoch };
        let blanks = self.blanks(epoch).expect("classes were checked when the node was made");
        let mut lives: Vec<(NodeId, u32, u64)> =
            self.links.iter().map(|link| (link.peer, link.incarnation, link.life)).collect();
        lives.push((self.config.me, self.config.incarnation, self.config.life));
        lives.sort_unstable();
        let mut digest = Digest::default();
        for (node, incarnation, life) in lives {
            digest.add(&[&node.0.to_be_bytes()[..], &incarnation.to_be_bytes(), &life.to_be_bytes()].concat());
        }
        self.group = Some(Group { sender, lives: digest.0.max(1), blanks });
        for Early { lock, waiter } in std::mem::take(&mut self.early) {
            match self.find_or_add(&lock) {
                Ok(slot) => {
                    self.locks[slot].enqueue(waiter);
                    self.serve(slot, now);
                }
                Err(why) => {
                    self.callers -= 1;
                    self.outputs.push_back(Output::Refused { caller: waiter.caller, why });
                }
            }
        }
        for at in 0..self.links.len() {
            let bytes = std::mem::take(&mut self.links[at].inbound);
            // An error here will come again with the next bytes, and close the connection then.
            if let Ok(taken) = self.handle_frames(at, &bytes, now) {
                self.links[at].inbound = bytes[taken..].to_vec();
            } else {
                self.links[at].inbound = bytes;
            }
        }
    }

    fn blanks(&self, epoch: u64) -> Result<Vec<Blank>, OptionError> {
        let view = View::new(self.config.members.iter().copied()).with_epoch(epoch);
        let fallback = Class { prefix: String::new(), protocol: "carvalho-roucairol".to_owned(), options: Vec::new() };
        let mut blanks = Vec::new();
        for Class { prefix, protocol, options } in self.config.classes.iter().chain([&fallback]) {
            let named = |error: OptionError| OptionError(format!("lock class '{prefix}': {}", error.0));
            let mut options = Options::from_words(options.iter().map(String::as_str)).map_err(named)?;
            options.nodes = view.members().to_vec();
            options.tick = 1_000_000;
            let kind = Kind::select(protocol, &mut options).map_err(named)?;
            let make = Make { options: &options, me: self.config.me, view: &view };
            let made = make.of(kind).map_err(named)?;
            blanks.push(Blank {
                prefix: prefix.clone(),
                protocol: kind.name(),
                machine: made.machine,
                no_shared: made.no_shared,
            });
        }
        // A stable sort: of two classes with one prefix the first counts, and the fallback comes last.
        blanks.sort_by_key(|blank| std::cmp::Reverse(blank.prefix.len()));
        Ok(blanks)
    }

    /// For callers here: within the limit.
    fn find_or_add(&mut self, name: &str) -> Result<u32, Refusal> {
        match self.locks.find(name) {
            Some(slot) => Ok(slot),
            None if self.len() >= self.config.locks_max => Err(Refusal::Locks),
            None => Ok(self.add(name)),
        }
    }

    fn add(&mut self, name: &str) -> u32 {
        let group = self.group.as_ref().expect("locks exist once the group is complete");
        let class = group.blanks.iter().position(|blank| name.starts_with(&blank.prefix)).unwrap_or(0);
        let mut machine = group.blanks[class].machine.copy();
        machine.raise_floor(self.floor);
        self.locks.add(name, class as u16, machine)
    }

    /// What a caller gets at once; it queues if that is nothing.
    fn ask(
        &mut self,
        slot: u32,
        id: u64,
        mode: Mode,
        tries: bool,
        now: Ticks,
        caller: impl FnOnce() -> C,
    ) -> Result<Answer, Refusal> {
        let entry = &mut self.locks[slot];
        entry.used = now;
        let ticket = Ticket { slot, id };
        if mode == Mode::Shared
            && let Some(why) = self.group.as_ref().and_then(|group| group.blanks[usize::from(entry.class)].no_shared)
        {
            return Err(Refusal::NoShared(why));
        }
        let joins = entry.phase == Phase::Inside(Mode::Shared) && mode == Mode::Shared;
        if joins && entry.queue.is_empty() && !entry.has_waiters() {
            entry.hold(id);
            return Ok(Answer::Granted(ticket, entry.fence));
        }
        let free = entry.is_free();
        if !free && tries {
            return Ok(Answer::Busy);
        }
        if !free {
            entry.enqueue(Waiter { id, mode, tries, caller: caller() });
            return Ok(Answer::Waiting(ticket));
        }
        if let Some(fence) = entry.enter_fast(id, mode, now) {
            return Ok(Answer::Granted(ticket, fence));
        }
        if tries && self.links.iter().any(|link| !link.connected) {
            return Ok(Answer::Busy);
        }
        if let Some(link) = self.links.iter().find(|link| link.backlog() > self.config.backlog_max) {
            return Err(Refusal::Backlog(link.peer));
        }
        // At the very end a fence refuses, and says so; it never wraps.
        if entry.is_spent() {
            return Err(Refusal::Fences);
        }
        let attempt = if tries { id } else { 0 };
        entry.phase = Phase::Asking(mode);
        if let Some(fence) = self.request(slot, mode, attempt, now) {
            self.enter(slot, mode, fence);
            self.locks[slot].hold(id);
            return Ok(Answer::Granted(ticket, fence));
        }
        let entry = &mut self.locks[slot];
        if tries && !entry.machine.as_ref().is_some_and(Machine::supports_try) {
            entry.phase = Phase::Idle;
            self.drive(slot, Drive::Cancel, now);
            return Ok(Answer::Busy);
        }
        entry.enqueue(Waiter { id, mode, tries, caller: caller() });
        Ok(Answer::Waiting(ticket))
    }

    fn request(&mut self, slot: u32, mode: Mode, attempt: u64, now: Ticks) -> Option<Fence> {
        let draw = (self.next_id as u32).wrapping_mul(0x9e37_79b9);
        self.drive_as(slot, Drive::Acquire { mode, draw }, attempt, now)
    }

    /// The last local holder has left: another local caller follows if the streak allows it, else whoever comes first.
    #[inline]
    fn leave(&mut self, slot: u32, now: Ticks) {
        let local_streak = self.config.local_streak;
        let entry = &mut self.locks[slot];
        entry.used = now;
        let next = entry.queue.front().map(|waiter| waiter.mode);
        if next.is_none() && entry.machine.as_mut().is_some_and(Machine::leave_fast) {
            (entry.phase, entry.streak) = (Phase::Idle, 0);
            if !entry.listed {
                self.settle(slot, now);
            }
            return;
        }
        let within_streak = entry.streak + 1 < local_streak;
        if within_streak
            && next.is_some_and(|mode| entry.phase == Phase::Inside(mode))
            && entry.has_waiters()
            && let Some(fence) = entry.machine.as_mut().and_then(Machine::reenter)
        {
            entry.streak += 1;
            entry.fence = fence;
            return self.admit(slot);
        }
        entry.phase = Phase::Idle;
        entry.streak = 0;
        self.drive(slot, Drive::Release, now);
        self.serve(slot, now);
        self.settle(slot, now);
    }

    /// Asks for the head of the queue, and for the next one as long as they are granted and leave at once.
    fn serve(&mut self, slot: u32, now: Ticks) {
        let entry = &self.locks[slot];
        let Some(head) = entry.queue.front() else { return };
        if entry.phase != Phase::Idle {
            return;
        }
        let (mode, attempt) = (head.mode, if head.tries { head.id } else { 0 });
        self.locks[slot].phase = Phase::Asking(mode);
        if let Some(fence) = self.request(slot, mode, attempt, now) {
            self.enter(slot, mode, fence);
            self.admit(slot);
        } else {
            self.refuse_if_spent(slot, now);
        }
    }

    /// At the very end there is no fence for whoever waits, however many permissions come.
    fn refuse_if_spent(&mut self, slot: u32, now: Ticks) {
        let entry = &mut self.locks[slot];
        let asks = matches!(entry.phase, Phase::Asking(_));
        if !asks || !entry.is_spent() {
            return;
        }
        entry.phase = Phase::Idle;
        let waiting = std::mem::take(&mut entry.queue);
        self.callers -= waiting.len();
        let refused = waiting.into_iter().map(|Waiter { caller, .. }| Output::Refused { caller, why: Refusal::Fences });
        self.outputs.extend(refused);
        self.drive_as(slot, Drive::Cancel, 0, now);
    }

    /// The one for whom others were asked has given up. A next one in the same mode takes the request over, unless it was
    /// an attempt: those who refuse it forget it.
    fn head_has_gone(&mut self, slot: u32, tried: bool, now: Ticks) {
        let entry = &mut self.locks[slot];
        let Phase::Asking(mode) = entry.phase else {
            // Readers who queued behind a writer that has gone may join the readers inside.
            return self.admit_readers(slot);
        };
        if !tried && entry.queue.front().is_some_and(|next| next.mode == mode && !next.tries) {
            return;
        }
        entry.phase = Phase::Idle;
        self.drive(slot, Drive::Cancel, now);
        self.serve(slot, now);
    }

    fn enter(&mut self, slot: u32, mode: Mode, fence: Fence) {
        let entry = &mut self.locks[slot];
        entry.phase = Phase::Inside(mode);
        entry.fence = fence;
    }

    /// The head of the queue is inside, and with a reader all readers right behind it.
    fn admit(&mut self, slot: u32) {
        let entry = &mut self.locks[slot];
        let Phase::Inside(mode) = entry.phase else { return };
        while let Some(waiter) = entry.queue.pop_front() {
            let Waiter { id, caller, .. } = waiter;
            entry.hold(id);
            let (ticket, fence) = (Ticket { slot, id }, entry.fence);
            self.outputs.push_back(Output::Granted { caller, ticket, fence });
            if mode == Mode::Exclusive || entry.queue.front().is_none_or(|next| next.mode == Mode::Exclusive) {
                break;
            }
        }
    }

    fn admit_readers(&mut self, slot: u32) {
        let entry = &self.locks[slot];
        let next_reads = entry.queue.front().is_some_and(|next| next.mode == Mode::Shared);
        if entry.phase == Phase::Inside(Mode::Shared) && next_reads && !entry.has_waiters() {
            self.admit(slot);
        }
    }

    fn drive(&mut self, slot: u32, drive: Drive<'_>, now: Ticks) {
        let entry = &self.locks[slot];
        // Whatever is sent while somebody tries belongs to the attempt: a permission that is asked for again, too.
        let tries = matches!(entry.phase, Phase::Asking(_)) && entry.queue.front().is_some_and(|head| head.tries);
        let attempt = if tries { entry.queue.front().map_or(0, |head| head.id) } else { 0 };
        if let Some(fence) = self.drive_as(slot, drive, attempt, now)
            && let Phase::Asking(mode) = self.locks[slot].phase
        {
            self.enter(slot, mode, fence);
            self.admit(slot);
        } else {
            self.refuse_if_spent(slot, now);
        }
    }

    fn drive_as(&mut self, slot: u32, drive: Drive<'_>, attempt: u64, now: Ticks) -> Option<Fence> {
        let Self { locks, links, scratch, messages, group, timers, .. } = self;
        let Entry { machine, name, .. } = &mut locks[slot];
        let (machine, sender) = (machine.as_mut()?, group.as_ref()?.sender);
        let mut wire = Wire { links, sender, lock: name, attempt, now, sent: messages };
        let before = machine.timeout();
        // What a peer says wrong is dropped; frames were checked as far as they could be.
        let entered = machine.drive(drive, scratch, &mut wire).unwrap_or(None);
        let after = machine.timeout();
        if before != after {
            before.map(|at| timers.remove(&(at, slot)));
            timers.extend(after.map(|at| (at, slot)));
        }
        entered
    }

    /// Forgets a lock that nobody holds or wants, or remembers when it was last used. Of too many, the longest unused goes.
    fn settle(&mut self, slot: u32, now: Ticks) {
        self.forget_or_list(slot, now);
        // What was used since it was listed has another turn; a few of them a time, since each settles again.
        for _ in 0..self.unused.len().min(8) {
            if self.unused.len() <= self.config.cache_max {
                return;
            }
            let Some((listed, oldest)) = self.unused.pop_front() else { return };
            let entry = &mut self.locks[oldest];
            if entry.used > listed {
                self.unused.push_back((now, oldest));
                continue;
            }
            entry.listed = false;
            if entry.is_free() {
                entry.drop_permissions();
            }
            self.forget_or_list(oldest, now);
        }
    }

    fn forget_or_list(&mut self, slot: u32, now: Ticks) {
        let entry = &mut self.locks[slot];
        let Some(machine) = &entry.machine else { return };
        if entry.listed || !entry.is_free() {
            // What is listed is taken off the list when its time comes; until then its place stays.
            return;
        }
        let Some(floor) = machine.floor() else { return };
        if machine.is_idle() {
            self.floor.raise(floor);
            self.locks.forget(slot);
        } else {
            entry.listed = true;
            self.unused.push_back((now, slot));
        }
    }

    /// Handles all whole frames and tells how many bytes that were.
    fn handle_frames(&mut self, at: usize, bytes: &[u8], now: Ticks) -> Result<usize, LinkError> {
        let Some(sender) = self.group.as_ref().map(|group| group.sender) else { return Ok(0) };
        let mut taken = 0;
        loop {
            let (frame, length) = match Frame::decode(&bytes[taken..]) {
                Ok(decoded) => decoded,
                Err(DecodeError::Truncated) => break,
                Err(error) => return Err(error.into()),
            };
            taken += length;
            if self.links[at].receive(sender, &frame)? {
                self.handle_body(at, frame.body, now);
            }
        }
        self.links[at].acknowledge_if_due(sender);
        Ok(taken)
    }

    fn handle_body(&mut self, at: usize, body: Body<'_>, now: Ticks) {
        let from = self.links[at].peer;
        match body {
            Body::Acknowledgement => {}
            Body::Message { lock, attempt, bytes } => {
                // Also beyond the limit, which is for callers here: a request that is not answered would wait for ever, and
                // the sender's own limit bounds what comes of it.
                let slot = self.locks.find(lock).unwrap_or_else(|| self.add(lock));
                let sent = self.links[at].sent();
                self.drive(slot, Drive::Deliver { from, bytes }, now);
                // What was answered is not deferred: what is, is a request that its sender has given up before.
                let answered = self.links[at].sent() != sent;
                if attempt != 0 && !answered && self.locks[slot].forget_deferred(from) {
                    let Some(sender) = self.group.as_ref().map(|group| group.sender) else { return };
                    self.links[at].push(sender, &Outgoing::Busy { lock, attempt }, |_| {});
                }
                self.settle(slot, now);
            }
            Body::Busy { lock, attempt } => {
                let Some(slot) = self.locks.find(lock) else { return };
                self.on_busy(slot, attempt, now);
                self.settle(slot, now);
            }
        }
    }

    /// Somebody comes before the caller who only tries.
    fn on_busy(&mut self, slot: u32, attempt: u64, now: Ticks) {
        let entry = &mut self.locks[slot];
        let asks = matches!(entry.phase, Phase::Asking(_));
        if !asks || entry.queue.front().is_none_or(|head| head.id != attempt || !head.tries) {
            return;
        }
        if let Some(Waiter { caller, .. }) = entry.queue.pop_front() {
            self.outputs.push_back(Output::Busy { caller });
            self.callers -= 1;
            self.head_has_gone(slot, true, now);
        }
    }
}

impl<C> fmt::Debug for Node<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.config.me).field("locks", &self.len()).finish_non_exhaustive()
    }
}
