use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use hallpass_core::codec::DecodeError;
use hallpass_core::protocol::OptionError;
use hallpass_core::{Fence, Mode, NodeId, Ticks, View};

use crate::config::{Class, NodeConfig, Sabotage};
use crate::links::{Arrived, LinkError, Links};
use crate::locks::{Classes, HeldLock, Locks, Slot};
use crate::membership::{Action, Advance, FixedList, HelloError, Membership, Views};
use crate::output::{Answer, Grant, Output, Patience, Record, Refusal, Request, RequestError, Ticket};
use crate::status::{Contact, Counters, LockStatus, MemberStatus, Status, ViewState};
use crate::tap::{TapId, TracedMessage};
use crate::wire::{Body, Frame, Hello, Plane};

/// One member of a group. `C` is what the driver knows a waiting caller by.
///
/// - **Inputs** of callers: [`handle_acquire`](Self::handle_acquire), [`handle_fast_acquire`](Self::handle_fast_acquire),
///   [`handle_release`](Self::handle_release), [`handle_cancel`](Self::handle_cancel),
///   [`handle_request`](Self::handle_request).
/// - **Inputs** of connections: [`handle_hello`](Self::handle_hello), [`handle_other_group`](Self::handle_other_group); [`handle_bytes`](Self::handle_bytes),
///   [`handle_writable`](Self::handle_writable), [`handle_disconnect`](Self::handle_disconnect);
///   [`handle_control`](Self::handle_control), [`handle_control_disconnect`](Self::handle_control_disconnect).
/// - **Inputs** of disk and clock: [`handle_persisted`](Self::handle_persisted), [`handle_timeout`](Self::handle_timeout).
/// - **Outputs**: [`poll_output`](Self::poll_output), with [`poll_transmit`](Self::poll_transmit) and
///   [`handle_transmitted`](Self::handle_transmitted); [`poll_timeout`](Self::poll_timeout).
/// - **Getters**: [`hello`](Self::hello), [`control_hello`](Self::control_hello), [`contacts`](Self::contacts),
///   [`needs_seeds`](Self::needs_seeds), [`is_complete`](Self::is_complete), [`valid_until`](Self::valid_until),
///   [`lapse_count`](Self::lapse_count), [`status`](Self::status), [`members`](Self::members), [`locks`](Self::locks),
///   [`lock_status`](Self::lock_status), [`messages`](Self::messages).
/// - **Watching** a lock's messages: [`open_tap`](Self::open_tap), [`take_traced`](Self::take_traced),
///   [`close_tap`](Self::close_tap).
///
/// The [crate's front page](crate) gives the order in which they are called.
pub struct Node<C> {
    config: NodeConfig,
    membership: Membership,
    links: Links,
    pub(crate) locks: Locks<C>,
    /// Records to persist, in order.
    records: VecDeque<Record>,
    /// What callers and the driver must know, in order, before anything is sent.
    notices: VecDeque<Output<C>>,
    /// Control messages and connections to close, in order.
    controls: VecDeque<Output<C>>,
    /// How often everything that was granted has been lost.
    lapse_count: u64,
    /// Views that were opened here, and sessions that ran out.
    views_opened: u64,
    lapses: u64,
    /// Until when what is held here is held for certain; 0 without a session.
    valid_until: Ticks,
}

/// The time of an input before which the session was looked at. Only [`Node::check_session`] makes one, and nothing that an input changes takes
/// another time: so no input can forget it.
#[derive(Clone, Copy)]
pub(crate) struct Checked(Ticks);

impl Checked {
    pub(crate) fn ticks(self) -> Ticks {
        self.0
    }
}

impl<C> Node<C> {
    /// A node that has no connections yet.
    pub fn new(config: NodeConfig) -> Result<Self, OptionError> {
        let config = config.normalize()?;
        // Classes that do not fit are reported now, not when the group is complete.
        Classes::new(config.me, &View::new(config.members.iter().copied()), &config.classes)?;
        let peers = config.members.iter().copied().filter(|member| *member != config.me);
        let (membership, links) = match &config.views {
            None => (Membership::Fixed(FixedList::new(&config)), Links::new(peers)),
            Some(views) => (Membership::Views(Box::new(Views::new(&config, views)?)), Links::new([].into_iter())),
        };
        let mut node = Self {
            membership,
            links,
            locks: Locks::new(&config),
            records: VecDeque::new(),
            notices: VecDeque::new(),
            controls: VecDeque::new(),
            lapse_count: 0,
            views_opened: 0,
            lapses: 0,
            valid_until: Ticks::MAX,
            config,
        };
        node.progress(Checked(0));
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
        let now = self.begin(now);
        let answer = self.locks.acquire(lock, mode, patience, now.ticks(), &mut self.links, caller);
        self.look_at_fences(now);
        answer
    }

    /// The fast path for a lock that is free and whose permissions are here. It was found in this
    /// [`slot`](Ticket::slot) not long ago. With `None` nothing has changed, and [`handle_acquire`](Self::handle_acquire)
    /// is the way.
    #[inline]
    pub fn handle_fast_acquire(&mut self, slot: Slot, lock: &str, mode: Mode, now: Ticks) -> Option<Grant> {
        self.assert_drained();
        if now >= self.valid_until {
            return None;
        }
        let grant = self.locks.acquire_fast(slot, lock, mode, now)?;
        self.links.offer_leftovers();
        Some(grant)
    }

    /// True if a caller of this lock certainly has to wait, for another caller or for messages. False is always right.
    pub fn must_wait(&self, slot: Slot, lock: &str, mode: Mode) -> bool {
        self.locks.must_wait(slot, lock, mode)
    }

    /// A caller releases its lock; false if it does not hold it.
    #[inline]
    pub fn handle_release(&mut self, ticket: Ticket, now: Ticks) -> bool {
        let now = self.begin(now);
        self.locks.release(ticket, now.ticks(), &mut self.links)
    }

    /// A waiting caller gives up, wherever it is in the queue. If it holds the lock by now, it releases it. False if it
    /// neither waits nor holds.
    pub fn handle_cancel(&mut self, ticket: Ticket, now: Ticks) -> bool {
        let now = self.begin(now);
        self.locks.cancel(ticket, now.ticks(), &mut self.links)
    }

    // ---- connections ----

    /// The greeting for a new connection with this peer that carries locks, if it is a member or about to be one.
    pub fn hello(&self, peer: NodeId) -> Option<Hello> {
        match &self.membership {
            Membership::Fixed(list) => list.hello(peer, &self.links),
            Membership::Views(views) => views.hello(peer, &self.links),
        }
    }

    /// The greeting for a new control connection. Of a node that is dialed by its address alone the id is not known.
    pub fn control_hello(&self, peer: Option<NodeId>) -> Option<Hello> {
        self.views().map(|views| views.control_hello(peer))
    }

    /// Whether a greeting is acceptable. Nothing changes.
    pub fn check_hello(&self, hello: &Hello) -> Result<(), HelloError> {
        match &self.membership {
            Membership::Fixed(list) => list.check(hello, &self.links).map(drop),
            Membership::Views(views) => views.check(hello, &self.links),
        }
    }

    /// A greeting of a member of another group of the same name, which [`check_hello`](Self::check_hello) has refused: who it is has been
    /// proven as far as it can be. A node that is alone in a group of its own grants nothing more then.
    pub fn handle_other_group(&mut self, hello: &Hello, now: Ticks) {
        let now = self.begin(now);
        if let Membership::Views(views) = &mut self.membership {
            views.on_other_group(hello);
            self.progress(now);
        }
    }

    /// The peer's greeting on a new connection. On success the connection stands, and an earlier one of the same plane with
    /// the same peer is to be closed.
    pub fn handle_hello(&mut self, hello: &Hello, now: Ticks) -> Result<(), HelloError> {
        let now = self.begin(now);
        match &mut self.membership {
            Membership::Fixed(list) => list.accept(hello, &mut self.links)?,
            Membership::Views(views) => {
                views.check(hello, &self.links)?;
                match hello.plane {
                    Plane::Locks => views.accept(hello, &mut self.links)?,
                    Plane::Control => {
                        views.on_control_connected(hello, now);
                        self.disconnect_earlier(hello, now);
                    }
                }
            }
        }
        self.links.offer_all();
        self.progress(now);
        self.serve_held_up(now);
        Ok(())
    }

    /// The end of a connection with an earlier process of a peer may be lost with the network. Whoever is to make the next one learns of it
    /// by the greeting of the later process.
    fn disconnect_earlier(&mut self, hello: &Hello, now: Checked) {
        let Some(index) = self.links.position(hello.from) else { return };
        let link = &mut self.links[index];
        if link.connected && link.process.is_some_and(|process| process.incarnation < hello.incarnation) {
            link.disconnect(now.ticks());
            self.locks.on_disconnect(&mut self.links);
            self.controls.push_back(Output::Disconnect(hello.from));
        }
    }

    /// The connection with this peer that carries locks is gone. What it may have lost is sent again over the next one.
    pub fn handle_disconnect(&mut self, peer: NodeId, now: Ticks) {
        let now = self.begin(now);
        let Some(link) = self.links.position(peer) else { return };
        self.links[link].disconnect(now.ticks());
        self.locks.on_disconnect(&mut self.links);
    }

    /// The control connection with this peer is gone, and what it may have lost with it.
    pub fn handle_control_disconnect(&mut self, peer: NodeId, now: Ticks) {
        let now = self.begin(now);
        if let Membership::Views(views) = &mut self.membership {
            views.on_control_disconnected(peer);
            self.progress(now);
        }
    }

    /// A whole control message has arrived from this peer. On an error the connection is to be closed.
    pub fn handle_control(&mut self, peer: NodeId, message: &[u8], now: Ticks) -> Result<(), DecodeError> {
        let now = self.begin(now);
        let Membership::Views(views) = &mut self.membership else { return Err(DecodeError::Unknown) };
        views.on_control(peer, message, now)?;
        self.progress(now);
        Ok(())
    }

    // ---- the group ----

    /// Asks something of the whole group. The answer is an [`Output::Done`] with this token.
    pub fn handle_request(&mut self, request: Request, token: u64, now: Ticks) {
        let now = self.begin(now);
        match &mut self.membership {
            Membership::Fixed(_) => {
                self.notices.push_back(Output::Done { token, result: Err(RequestError::Fixed) });
            }
            Membership::Views(views) => {
                views.on_request(request, token, now);
                self.progress(now);
            }
        }
    }

    /// Whoever made this request waits no longer. What it asked for may still happen.
    pub fn handle_request_cancel(&mut self, token: u64) {
        if let Membership::Views(views) = &mut self.membership {
            views.forget_request(token);
        }
    }

    /// Bytes have arrived from this peer, in any portions. On an error the connection is to be closed.
    pub fn handle_bytes(&mut self, peer: NodeId, bytes: &[u8], now: Ticks) -> Result<(), LinkError> {
        let now = self.begin(now);
        let Some(link) = self.links.position(peer) else { return Err(LinkError::Misaddressed) };
        if !self.links[link].connected {
            return Ok(());
        }
        let mut inbound = std::mem::take(&mut self.links[link].inbound);
        if inbound.len() + bytes.len() > self.config.inbound_max() {
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
        self.serve_held_up(now);
        self.look_at_fences(now);
        result.map(drop)
    }

    /// The connection with a peer takes bytes again, after it did not take all.
    pub fn handle_writable(&mut self, now: Ticks) {
        self.begin(now);
        self.links.offer_all();
    }

    /// The connection with this peer has taken so many of the bytes of [`poll_transmit`](Self::poll_transmit).
    pub fn handle_transmitted(&mut self, peer: NodeId, bytes: usize) {
        if let Some(link) = self.links.position(peer) {
            self.links.transmitted(link, bytes);
        }
    }

    // ---- disk and time ----

    /// A record of [`Output::Persist`] is on disk. Also between two outputs: a driver may write while it takes them.
    pub fn handle_persisted(&mut self, record: Record, now: Ticks) {
        let forgets = self.is_sabotaged(Sabotage::ForgetSessionOnDisk);
        let now = if forgets { Checked(now) } else { self.check_session(now) };
        match (&mut self.membership, record) {
            (Membership::Fixed(list), record) => {
                let next = list.persisted(&record);
                self.advance(next, now);
            }
            (Membership::Views(views), Record::Write(write)) => {
                views.on_persisted(write.number, now);
                self.progress(now);
            }
            (Membership::Views(_), Record::Epoch(_)) => {}
        }
    }

    /// It is time: at least as late as [`poll_timeout`](Self::poll_timeout) said. Too early does no harm.
    pub fn handle_timeout(&mut self, now: Ticks) {
        let now = self.begin(now);
        self.locks.handle_timeout(now.ticks(), &mut self.links);
        if let Membership::Views(views) = &mut self.membership {
            views.on_timeout(now, &self.links);
            self.progress(now);
        }
        self.links.shrink();
    }

    // ---- outputs ----

    /// The next thing to do: what must be on disk comes first, then what callers must know, then messages to peers.
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        if let Some(record) = self.records.pop_front() {
            return Some(Output::Persist(record));
        }
        if let Some(notice) = self.notices.pop_front() {
            return Some(notice);
        }
        if let Some((caller, outcome)) = self.locks.poll_answer() {
            return Some(Output::Answer { caller, outcome });
        }
        if let Some(control) = self.controls.pop_front() {
            return Some(control);
        }
        self.links.poll_offer().map(Output::Transmit)
    }

    /// False if [`poll_output`](Self::poll_output) would return `None`; true if it might not.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.locks.has_answers()
            || self.links.has_offers()
            || !(self.records.is_empty() && self.notices.is_empty() && self.controls.is_empty())
    }

    /// What to send to this peer now.
    pub fn poll_transmit(&self, peer: NodeId) -> &[u8] {
        self.links.position(peer).map_or(&[], |link| self.links[link].transmit())
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest.
    pub fn poll_timeout(&self) -> Option<Ticks> {
        let views = self.views().and_then(Views::timeout);
        let session = (self.valid_until != Ticks::MAX && self.valid_until != 0).then_some(self.valid_until);
        self.locks.poll_timeout().into_iter().chain(views).chain(session).min()
    }

    // ---- getters ----

    /// There is a view: locks are granted.
    pub fn is_complete(&self) -> bool {
        match &self.membership {
            Membership::Fixed(list) => list.epoch().is_some(),
            Membership::Views(views) => views.state() == ViewState::Open,
        }
    }

    /// The view's number, once there has been one.
    pub fn epoch(&self) -> Option<u64> {
        match &self.membership {
            Membership::Fixed(list) => list.epoch(),
            Membership::Views(views) => views.epoch(),
        }
    }

    /// How often everything that was granted has been lost: an earlier grant is void.
    #[inline]
    pub fn lapse_count(&self) -> u64 {
        self.lapse_count
    }

    /// Until when everything that is held here is held for certain; [`Ticks::MAX`] if nothing can take it away. Whoever reads
    /// it must look at the clock afterwards.
    #[inline]
    pub fn valid_until(&self) -> Ticks {
        self.valid_until
    }

    /// True if something can be held here: the node is in a view, or between two, and its session has not run out.
    pub fn has_session(&self) -> bool {
        match &self.membership {
            Membership::Fixed(_) => self.is_complete(),
            Membership::Views(views) => matches!(views.state(), ViewState::Open | ViewState::Changing),
        }
    }

    /// A client outside of this process is about to be told that it holds a lock until then, and cannot be told otherwise before. A
    /// lock that is broken from now on is lost no earlier.
    pub fn promise(&mut self, until: Ticks) {
        if let Membership::Views(views) = &mut self.membership {
            views.promise(until);
        }
    }

    /// From when on what is held here is at risk: a renewal of the session should have been answered by then.
    pub fn at_risk_from(&self) -> Ticks {
        self.views().map_or(Ticks::MAX, Views::at_risk_from)
    }

    /// The consensus term that this node knows, if it votes: a steward of an earlier one does not lead any more.
    pub fn term(&self) -> Option<u64> {
        self.views().and_then(Views::term)
    }

    /// True if the group that this node is in has had more than one member.
    pub fn is_shared(&self) -> bool {
        self.views().is_some_and(Views::is_shared)
    }

    /// How far this node is.
    pub fn status(&self) -> Status {
        match &self.membership {
            Membership::Fixed(list) => Status::fixed(list.epoch()),
            Membership::Views(views) => views.status(&self.links),
        }
    }

    /// Who is in the view that is open here; nobody if none is. Consensus may be ahead of it.
    pub fn view(&self) -> Vec<NodeId> {
        match &self.membership {
            _ if !self.is_complete() => Vec::new(),
            Membership::Fixed(_) => self.config.members.clone(),
            Membership::Views(views) => views.view(),
        }
    }

    /// The nodes that this one is to be connected with, on both planes: members, voters, and those about to join.
    pub fn contacts(&self) -> Vec<Contact> {
        self.views().map(Views::contacts).unwrap_or_default()
    }

    /// True while this node knows no group, or reaches no member of its own: the addresses it was given are to be dialed.
    pub fn needs_seeds(&self) -> bool {
        self.views().is_some_and(Views::needs_seeds)
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.config.me
    }

    /// Protocol messages sent so far.
    pub fn messages(&self) -> u64 {
        self.links.messages()
    }

    /// What has happened on this node so far, in numbers.
    pub fn counters(&self) -> Counters {
        Counters {
            messages: self.links.messages_by_kind(),
            views: self.views_opened,
            lapses: self.lapses,
            elections: self.views().map_or(0, Views::elections),
        }
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
        let mut all: Vec<MemberStatus> = match &self.membership {
            Membership::Fixed(list) => {
                let me = MemberStatus {
                    incarnation: Some(list.process().incarnation),
                    connected: true,
                    ..MemberStatus::new(self.config.me)
                };
                self.links.iter().map(MemberStatus::of).chain([me]).collect()
            }
            Membership::Views(views) => views.members(&self.links),
        };
        all.sort_unstable_by_key(|member| member.id);
        all
    }

    // ---- watching ----

    /// Notes the messages of this lock from now on, for [`take_traced`](Self::take_traced); none if too many watch already.
    pub fn open_tap(&mut self, lock: &str) -> Option<TapId> {
        self.locks.taps.open(lock)
    }

    /// The messages that were noted since the last call, and how many older ones were not kept.
    pub fn take_traced(&mut self, tap: TapId) -> (Vec<TracedMessage>, u64) {
        self.locks.taps.take(tap)
    }

    /// Ends what [`open_tap`](Self::open_tap) has begun.
    pub fn close_tap(&mut self, tap: TapId) {
        self.locks.taps.close(tap);
    }

    // ---- inside ----

    /// A bug is planted: for tests of what finds bugs.
    fn is_sabotaged(&self, bug: Sabotage) -> bool {
        self.config.views.as_ref().is_some_and(|views| views.sabotage == Some(bug))
    }

    fn views(&self) -> Option<&Views> {
        if let Membership::Views(views) = &self.membership { Some(views) } else { None }
    }

    /// Every input begins here: the driver's contract is kept, what connections did not take is offered again, and a session
    /// that has run out is over before anything else happens.
    #[inline]
    fn begin(&mut self, now: Ticks) -> Checked {
        self.assert_drained();
        self.links.offer_leftovers();
        self.check_session(now)
    }

    #[inline]
    fn check_session(&mut self, now: Ticks) -> Checked {
        if now >= self.valid_until {
            self.lapse(now);
        }
        Checked(now)
    }

    #[inline]
    fn assert_drained(&self) {
        debug_assert!(!self.has_output(), "the outputs of the last input were not taken: see the driver's contract");
    }

    #[cold]
    fn lapse(&mut self, now: Ticks) {
        if let Membership::Views(views) = &mut self.membership {
            views.lapse_if_due(now);
            self.progress(Checked(now));
        }
    }

    /// Membership goes on as far as it can.
    fn progress(&mut self, now: Checked) {
        match &mut self.membership {
            Membership::Fixed(list) => {
                let next = list.advance(&self.links);
                self.advance(next, now);
            }
            Membership::Views(_) => self.act(now),
        }
    }

    fn advance(&mut self, next: Option<Advance>, now: Checked) {
        match next {
            Some(Advance::Persist(record)) => self.records.push_back(record),
            Some(Advance::Install { epoch }) => {
                let Membership::Fixed(list) = &self.membership else { return };
                self.links.open(list.sender(epoch));
                let view = View::new(self.config.members.iter().copied()).with_epoch(epoch);
                self.open(&view, self.config.classes.clone(), &[], now);
            }
            None => {}
        }
    }

    /// Carries out what the view layer asks for.
    fn act(&mut self, now: Checked) {
        while let Membership::Views(views) = &mut self.membership
            && let Some(action) = views.poll_action()
        {
            match action {
                Action::Persist(write) => self.records.push_back(Record::Write(write)),
                Action::Send { to, bytes } => self.controls.push_back(Output::Control { to, bytes }),
                Action::Peers => {
                    for gone in views.update_links(&mut self.links, now.ticks()) {
                        self.controls.push_back(Output::Disconnect(gone));
                    }
                    self.notices.push_back(Output::View);
                }
                Action::Close => {
                    self.locks.close();
                    self.links.close();
                    views.on_closed(self.locks.held(), now);
                }
                Action::Open(opening) => {
                    self.views_opened += 1;
                    self.links.open(opening.sender);
                    self.open(&opening.view, opening.classes, &opening.holders, now);
                    self.notices.push_back(Output::View);
                }
                Action::Lapse { comes_back } => {
                    self.locks.lapse();
                    self.links.close();
                    self.lapse_count += 1;
                    self.lapses += 1;
                    self.notices.push_back(Output::Lapsed);
                    self.notices.push_back(Output::View);
                    for link in (0..self.links.len()).filter(|_| comes_back) {
                        self.controls.push_back(Output::Disconnect(self.links[link].peer));
                        self.links[link].reset();
                    }
                }
                Action::Break { from, token, lock, at } => {
                    for ticket in views.on_break(from, token, &self.locks.holders_of(&lock), at) {
                        self.notices.push_back(Output::Revoked { ticket, at });
                    }
                }
                Action::Revoke(ticket) => {
                    if self.locks.revoke(ticket, now.ticks(), &mut self.links) {
                        self.notices.push_back(Output::Lost(ticket));
                    }
                }
                Action::Done { token, result } => self.notices.push_back(Output::Done { token, result }),
                Action::View => self.notices.push_back(Output::View),
            }
        }
        if let Some(views) = self.views() {
            self.valid_until = views.valid_until();
        }
        self.assert_invariants();
    }

    /// What must hold after every input, in release builds, too: it costs a look at a few fields, and only when membership had something to do.
    fn assert_invariants(&self) {
        let Some(views) = self.views() else { return };
        let state = views.state();
        assert_eq!(
            state == ViewState::Open,
            self.locks.is_open(),
            "locks are open exactly when the view is: {state:?}"
        );
        let can_hold = matches!(state, ViewState::Open | ViewState::Changing);
        assert!(!can_hold || self.valid_until > 0, "a node in a view that is not alone has a deadline: {state:?}");
    }

    /// A new view begins: what has waited for it happens, in order.
    fn open(&mut self, view: &View, classes: Vec<Class>, holders: &[HeldLock], now: Checked) {
        let classes = Classes::fitting(self.config.me, view, &classes);
        for lost in self.locks.reopen(classes, holders, now.ticks(), &mut self.links) {
            self.notices.push_back(Output::Lost(lost));
        }
        for link in 0..self.links.len() {
            let mut bytes = std::mem::take(&mut self.links[link].inbound);
            // An error here will come again with the next bytes, and close the connection then.
            if let Ok(taken) = self.handle_frames(link, &bytes, now) {
                bytes.drain(..taken);
            }
            self.links[link].inbound = bytes;
        }
        // Among that may have been what acknowledges messages of the view before, and nothing else may ever come.
        self.serve_held_up(now);
    }

    /// Peers may have taken messages: what was held up by those is asked for.
    fn serve_held_up(&mut self, now: Checked) {
        if !self.is_sabotaged(Sabotage::ForgetHeldUp) {
            self.locks.serve_held_up(now.ticks(), &mut self.links);
        }
    }

    /// Long before the fences of a view are used up the group begins another one.
    fn look_at_fences(&mut self, now: Checked) {
        if self.locks.fences_used() > Fence::COUNT_MAX / 2
            && let Membership::Views(views) = &mut self.membership
        {
            views.ask_for_new_epoch(now);
            self.act(now);
        }
    }

    /// Handles all whole frames and returns how many bytes those were.
    fn handle_frames(&mut self, link: usize, bytes: &[u8], now: Checked) -> Result<usize, LinkError> {
        let Some(sender) = self.links.sender() else { return Ok(0) };
        let mut taken = 0;
        loop {
            let (frame, length) = match Frame::decode(&bytes[taken..]) {
                Ok(decoded) => decoded,
                Err(DecodeError::Truncated) => break,
                Err(error) => return Err(error.into()),
            };
            if frame.header.epoch > sender.epoch {
                // It waits until this node has started that view, too.
                break;
            }
            taken += length;
            let is_new = self.links[link].receive(sender, &frame, self.config.unread_max())?;
            // What belongs to a view that is over counts as received, and is dropped.
            let is_current = frame.header.epoch == sender.epoch || self.is_sabotaged(Sabotage::AcceptStaleEpoch);
            if is_new && is_current {
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

    fn handle_body(&mut self, link: usize, body: Body<'_>, now: Checked) -> Result<(), LinkError> {
        match body {
            Body::Acknowledgement => {}
            Body::Message { lock, attempt, bytes } => {
                let arrived = Arrived { from: self.links[link].peer, lock, attempt, bytes };
                self.locks.on_message(link, arrived, now.ticks(), &mut self.links)?;
            }
            Body::Busy { lock, attempt } => {
                let from = self.links[link].peer;
                self.locks.on_busy(from, lock, attempt, now.ticks(), &mut self.links);
            }
        }
        Ok(())
    }
}

impl<C> fmt::Debug for Node<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.config.me).field("locks", &self.len()).finish_non_exhaustive()
    }
}
