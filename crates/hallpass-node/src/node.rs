use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use hallpass_core::codec::DecodeError;
use hallpass_core::protocol::OptionError;
use hallpass_core::{Mode, NodeId, Ticks};

use crate::config::NodeConfig;
use crate::links::{Arrived, LinkError, Links};
use crate::locks::{Classes, Locks, Slot};
use crate::membership::{Advance, FixedList, HelloError};
use crate::output::{Answer, Grant, Output, Patience, Record, Refusal, Ticket};
use crate::status::{LockStatus, MemberStatus};
use crate::wire::{Body, Frame, Hello};

/// One member of a group. `C` is what the driver knows a waiting caller by.
///
/// - **Inputs**: [`handle_acquire`](Self::handle_acquire), [`handle_fast_acquire`](Self::handle_fast_acquire),
///   [`handle_release`](Self::handle_release), [`handle_cancel`](Self::handle_cancel); [`handle_hello`](Self::handle_hello),
///   [`handle_bytes`](Self::handle_bytes), [`handle_writable`](Self::handle_writable),
///   [`handle_disconnect`](Self::handle_disconnect); [`handle_timeout`](Self::handle_timeout).
/// - **Outputs**: [`poll_output`](Self::poll_output), with [`poll_transmit`](Self::poll_transmit) and
///   [`handle_transmitted`](Self::handle_transmitted), [`handle_persisted`](Self::handle_persisted);
///   [`poll_timeout`](Self::poll_timeout).
/// - **Getters**: [`hello`](Self::hello), [`is_complete`](Self::is_complete), [`locks`](Self::locks),
///   [`lock_status`](Self::lock_status), [`members`](Self::members), [`messages`](Self::messages).
///
/// The [crate's front page](crate) gives the order in which they are called.
pub struct Node<C> {
    config: NodeConfig,
    membership: FixedList,
    links: Links,
    pub(crate) locks: Locks<C>,
    /// Records to persist, in order.
    records: VecDeque<Record>,
}

impl<C> Node<C> {
    /// A node that has no connections yet.
    pub fn new(config: NodeConfig) -> Result<Self, OptionError> {
        let config = config.normalize()?;
        // Classes that do not fit are reported now, not when the group is complete.
        Classes::new(&config, 0)?;
        let peers = config.members.iter().copied().filter(|member| *member != config.me);
        let mut node = Self {
            membership: FixedList::new(&config),
            links: Links::new(peers),
            locks: Locks::new(&config),
            records: VecDeque::new(),
            config,
        };
        let alone = node.membership.advance(&node.links);
        node.advance(alone, 0);
        Ok(node)
    }

    // ---- callers ----

    /// A caller wants a lock. `caller` is called only if it has to wait.
    pub fn handle_acquire(
        &mut self,
        lock: &str,
        mode: Mode,
        patience: Patience,
        now: Ticks,
        caller: impl FnOnce() -> C,
    ) -> Result<Answer, Refusal> {
        self.begin();
        self.locks.acquire(lock, mode, patience, now, &mut self.links, caller)
    }

    /// The fast path for a lock that is free and whose permissions are here. It was found in this
    /// [`slot`](Ticket::slot) not long ago. With `None` nothing has changed, and [`handle_acquire`](Self::handle_acquire)
    /// is the way.
    #[inline]
    pub fn handle_fast_acquire(&mut self, slot: Slot, lock: &str, mode: Mode, now: Ticks) -> Option<Grant> {
        self.assert_drained();
        let grant = self.locks.acquire_fast(slot, lock, mode, now)?;
        self.links.offer_leftovers();
        Some(grant)
    }

    /// A caller releases its lock; false if it does not hold it.
    #[inline]
    pub fn handle_release(&mut self, ticket: Ticket, now: Ticks) -> bool {
        self.begin();
        self.locks.release(ticket, now, &mut self.links)
    }

    /// A waiting caller gives up, wherever it is in the queue. If it holds the lock by now, it releases it. False if it
    /// neither waits nor holds.
    pub fn handle_cancel(&mut self, ticket: Ticket, now: Ticks) -> bool {
        self.begin();
        self.locks.cancel(ticket, now, &mut self.links)
    }

    // ---- connections ----

    /// The greeting for a new connection with this peer, if it is a member.
    pub fn hello(&self, peer: NodeId) -> Option<Hello> {
        self.membership.hello(peer, &self.links)
    }

    /// Whether a greeting is acceptable. Nothing changes.
    pub fn check_hello(&self, hello: &Hello) -> Result<(), HelloError> {
        self.membership.check(hello, &self.links).map(drop)
    }

    /// The peer's greeting on a new connection. On success the connection stands, and an earlier one with the same peer is
    /// to be closed.
    pub fn handle_hello(&mut self, hello: &Hello, now: Ticks) -> Result<(), HelloError> {
        self.begin();
        self.membership.accept(hello, &mut self.links)?;
        self.links.offer_all();
        let next = self.membership.advance(&self.links);
        self.advance(next, now);
        self.locks.serve_held_up(now, &mut self.links);
        Ok(())
    }

    /// The connection with this peer is gone. What it may have lost is sent again over the next one.
    pub fn handle_disconnect(&mut self, peer: NodeId) {
        self.begin();
        let Some(link) = self.links.position(peer) else { return };
        self.links[link].disconnect();
        self.locks.on_disconnect(&mut self.links);
    }

    /// Bytes have arrived from this peer, in any portions. On an error the connection is to be closed.
    pub fn handle_bytes(&mut self, peer: NodeId, bytes: &[u8], now: Ticks) -> Result<(), LinkError> {
        self.begin();
        let Some(link) = self.links.position(peer) else { return Err(LinkError::Misaddressed) };
        if !self.links[link].connected {
            return Ok(());
        }
        let mut inbound = std::mem::take(&mut self.links[link].inbound);
        if !self.is_complete() && inbound.len() + bytes.len() > self.config.inbound_max() {
            return Err(LinkError::Flooded);
        }
        // Almost always a read brings whole frames: they are handled where they are.
        let result = if inbound.is_empty() {
            self.handle_frames(link, bytes, now).inspect(|taken| inbound.extend_from_slice(&bytes[*taken..]))
        } else {
            inbound.extend_from_slice(bytes);
            self.handle_frames(link, &inbound, now).inspect(|taken| drop(inbound.drain(..*taken)))
        };
        self.links[link].inbound = inbound;
        self.locks.serve_held_up(now, &mut self.links);
        result.map(drop)
    }

    /// The connection with a peer takes bytes again, after it did not take all.
    pub fn handle_writable(&mut self) {
        self.begin();
        self.links.offer_all();
    }

    /// The connection with this peer has taken so many of the bytes of [`poll_transmit`](Self::poll_transmit).
    pub fn handle_transmitted(&mut self, peer: NodeId, bytes: usize) {
        if let Some(link) = self.links.position(peer) {
            self.links.transmitted(link, bytes);
        }
    }

    // ---- disk and time ----

    /// A record of [`Output::Persist`] is on disk.
    pub fn handle_persisted(&mut self, record: Record, now: Ticks) {
        let next = self.membership.persisted(record);
        self.advance(next, now);
    }

    /// It is time: at least as late as [`poll_timeout`](Self::poll_timeout) said. Too early does no harm.
    pub fn handle_timeout(&mut self, now: Ticks) {
        self.begin();
        self.locks.handle_timeout(now, &mut self.links);
        self.links.shrink();
    }

    // ---- outputs ----

    /// The next thing to do: what must be on disk comes first, then answers to callers, then bytes for peers.
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        if let Some(record) = self.records.pop_front() {
            return Some(Output::Persist(record));
        }
        if let Some((caller, outcome)) = self.locks.poll_answer() {
            return Some(Output::Answer { caller, outcome });
        }
        self.links.poll_offer().map(Output::Transmit)
    }

    /// False if [`poll_output`](Self::poll_output) would return `None`; true if it might not.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.locks.has_answers() || self.links.has_offers() || !self.records.is_empty()
    }

    /// What to send to this peer now.
    pub fn poll_transmit(&self, peer: NodeId) -> &[u8] {
        self.links.position(peer).map_or(&[], |link| self.links[link].transmit())
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest.
    pub fn poll_timeout(&self) -> Option<Ticks> {
        self.locks.poll_timeout()
    }

    // ---- getters ----

    /// Every member is known and there is a view: locks are granted.
    pub fn is_complete(&self) -> bool {
        self.epoch().is_some()
    }

    /// The view's number, once the group is complete.
    pub fn epoch(&self) -> Option<u64> {
        self.membership.epoch()
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.config.me
    }

    /// Protocol messages sent so far.
    pub fn messages(&self) -> u64 {
        self.links.messages()
    }

    /// How many locks take memory here.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// True if no lock takes memory here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every caller who waits.
    pub fn waiting(&self) -> impl Iterator<Item = &C> {
        self.locks.waiting()
    }

    /// The locks that are held, waited for or cached here, in no order.
    pub fn locks(&self) -> impl Iterator<Item = LockStatus<'_>> {
        self.locks_in(0..self.slots())
    }

    /// The locks in these slots, for whoever does not want to look at all of them at once. A lock that is forgotten and
    /// used again between two looks may have moved to another slot.
    pub fn locks_in(&self, slots: Range<u32>) -> impl Iterator<Item = LockStatus<'_>> {
        self.locks.status_in(slots)
    }

    /// How many slots there are: those in use, and those of locks that were forgotten.
    pub fn slots(&self) -> u32 {
        self.locks.slots()
    }

    /// One lock, if it is held, waited for or cached here.
    pub fn lock_status(&self, name: &str) -> Option<LockStatus<'_>> {
        self.locks.status_of(name)
    }

    /// How many of the [`Fence::COUNT_MAX`](hallpass_core::Fence::COUNT_MAX) fences of this view are used up, as far as
    /// this node knows, on the lock that has used most.
    pub fn fences_used(&self) -> u64 {
        self.locks.fences_used()
    }

    /// All members, this one among them, in rising order.
    pub fn members(&self) -> Vec<MemberStatus> {
        let incarnation = Some(self.membership.process().incarnation);
        let me = MemberStatus { id: self.config.me, incarnation, connected: true, backlog: 0 };
        let others = self.links.iter().map(|link| MemberStatus {
            id: link.peer,
            incarnation: link.process.map(|process| process.incarnation),
            connected: link.connected,
            backlog: link.backlog(),
        });
        let mut all: Vec<MemberStatus> = others.chain([me]).collect();
        all.sort_unstable_by_key(|member| member.id);
        all
    }

    // ---- inside ----

    /// Every input begins here: the driver's contract is kept, and what connections did not take is offered again.
    #[inline]
    fn begin(&mut self) {
        self.assert_drained();
        self.links.offer_leftovers();
    }

    #[inline]
    fn assert_drained(&self) {
        debug_assert!(!self.has_output(), "the outputs of the last input were not taken: see the driver's contract");
    }

    fn advance(&mut self, next: Option<Advance>, now: Ticks) {
        match next {
            Some(Advance::Persist(record)) => self.records.push_back(record),
            Some(Advance::Install { epoch }) => self.install(epoch, now),
            None => {}
        }
    }

    /// There is a view: what has waited for it happens, in order.
    fn install(&mut self, epoch: u64, now: Ticks) {
        self.links.open(self.membership.sender(epoch));
        let classes = Classes::new(&self.config, epoch).expect("classes were checked when the node was made");
        self.locks.open(classes, now, &mut self.links);
        for link in 0..self.links.len() {
            let mut bytes = std::mem::take(&mut self.links[link].inbound);
            // An error here will come again with the next bytes, and close the connection then.
            if let Ok(taken) = self.handle_frames(link, &bytes, now) {
                bytes.drain(..taken);
            }
            self.links[link].inbound = bytes;
        }
    }

    /// Handles all whole frames and returns how many bytes those were.
    fn handle_frames(&mut self, link: usize, bytes: &[u8], now: Ticks) -> Result<usize, LinkError> {
        let Some(sender) = self.links.sender() else { return Ok(0) };
        let mut taken = 0;
        loop {
            let (frame, length) = match Frame::decode(&bytes[taken..]) {
                Ok(decoded) => decoded,
                Err(DecodeError::Truncated) => break,
                Err(error) => return Err(error.into()),
            };
            taken += length;
            if self.links[link].receive(sender, &frame, self.config.unread_max())? {
                let sent = self.links[link].sent();
                let handled = self.handle_body(link, frame.body, now);
                self.links[link].count_answers(sent);
                handled.inspect_err(|_| self.links[link].take_back())?;
            }
        }
        let sent = self.links[link].sent();
        self.links.acknowledge_if_due(link);
        self.links[link].count_answers(sent);
        Ok(taken)
    }

    fn handle_body(&mut self, link: usize, body: Body<'_>, now: Ticks) -> Result<(), LinkError> {
        match body {
            Body::Acknowledgement => {}
            Body::Message { lock, attempt, bytes } => {
                let arrived = Arrived { from: self.links[link].peer, lock, attempt, bytes };
                self.locks.on_message(link, arrived, now, &mut self.links)?;
            }
            Body::Busy { lock, attempt } => self.locks.on_busy(lock, attempt, now, &mut self.links),
        }
        Ok(())
    }
}

impl<C> fmt::Debug for Node<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.config.me).field("locks", &self.len()).finish_non_exhaustive()
    }
}
