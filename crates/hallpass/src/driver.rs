//! A running node: the pure one behind a lock, and its connections.
//!
//! There is no task between a socket and the node. A caller or a socket's reader takes the lock, gives the node its input,
//! and carries out the outputs: it writes to the sockets itself, and wakes callers when it has released the lock. The node's
//! own thread ([`tasks`](crate::tasks)) does what must not wait for callers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hallpass_core::codec::DecodeError;
use hallpass_core::{Mode, NodeId, Ticks};
use hallpass_node::wire::{Hello, Plane};
use hallpass_node::{
    Answer, Contact, Grant, HelloError, Incarnation, LinkError, Node, Outcome, Output, Patience, Request, RequestError,
    Slot, Ticket, ViewState, Write,
};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::AcquireError;
use crate::clock::sleep_before;
use crate::connection::Connection;
use crate::control::Outbox;
use crate::disk::Job;
use crate::log_limiter::LogLimiters;
use crate::os::{self, now};
use crate::peer::Peer;
use crate::readers::Readers;
use crate::tls::Tls;
use crate::turn::Turn;
use crate::waiter::{Waiter, Wakers};

pub(crate) struct Driver {
    /// This node's name and address, for messages that both sides of a connection read.
    pub(crate) me: String,
    pub(crate) id: NodeId,
    boot_id: u64,
    pub(crate) tls: Option<Tls>,
    state: Mutex<State>,
    /// Of the callers who did not have to wait.
    pub(crate) turn: Turn,
    /// The nodes that this one is to be connected with.
    peers: Mutex<BTreeMap<NodeId, Arc<Peer>>>,
    /// Where a group may be found.
    seeds: Mutex<Vec<Arc<Peer>>>,
    /// For every line of the log that others can cause, and no peer in particular.
    pub(crate) limits: LogLimiters,
    /// Callers get nothing more. The node may still take its leave of the others.
    stopped: AtomicBool,
    /// Nothing is sent or received any more.
    closed: AtomicBool,
    /// Its threads have ended, and its directory and address are free.
    ended: AtomicBool,
    /// Notified when one of these becomes true.
    ending: Notify,
    /// Notified when guards may be lost, or at risk.
    session: Notify,
    /// Notified when locks are granted.
    completed: Notify,
    /// Wakes the node's own thread: there is something to dial, or an earlier deadline.
    pub(crate) wake: Notify,
    /// Lock sockets are read by them, where callers run.
    pub(crate) readers: Readers,
}

/// What the log says of a view.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewSummary {
    pub(crate) state: ViewState,
    pub(crate) epoch: Option<u64>,
    pub(crate) members: usize,
    pub(crate) steward: Option<NodeId>,
}

pub(crate) struct State {
    pub(crate) node: Node<Arc<Waiter>>,
    /// Until the node is closed: then another one may have the directory.
    disk: Option<Sender<Job>>,
    /// Those that carry locks, in rising order of the peers' ids.
    connections: Vec<(NodeId, Connection)>,
    /// The control connections with each peer: the newest is last, and is the one that is written to.
    controls: BTreeMap<NodeId, Vec<Arc<Outbox>>>,
    /// Tells a connection from earlier ones with the same peer.
    generation: u64,
    /// Which process every peer was that has greeted.
    processes: BTreeMap<NodeId, Process>,
    /// Grants that are lost by themselves, and when.
    revoked: BTreeMap<Ticket, Ticks>,
    /// Who waits for the answer to a request to the group.
    requests: BTreeMap<u64, oneshot::Sender<Result<(), RequestError>>>,
    next_token: u64,
    /// The stop that has been asked for, and how long it may take.
    stopping: Option<(oneshot::Receiver<Result<(), RequestError>>, Duration)>,
    /// Locks were granted when last looked at.
    complete: bool,
    /// Locks were granted at some time.
    settled: bool,
    /// What is held here is held until some time, unless the session is renewed.
    has_deadline: bool,
    /// The contacts may have changed since they were last looked at.
    view_changed: bool,
    /// When the node's own thread looks at the time next.
    wakes_at: Ticks,
    /// Locks granted so far.
    pub(crate) grants: u64,
    /// When the clock was last read, at most a [`TICK`] ago. A release does not need a better time: it marks since when a
    /// lock is unused, which is counted in seconds.
    now: Ticks,
}

/// A peer's acknowledgement of data may take so long, however short sessions are.
const SILENCE_MIN: Duration = Duration::from_millis(500);
/// How often the time is looked at if nothing happens: the system's timers stand still while a machine is suspended.
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// So many control connections with one peer are kept. More than two are left-overs of broken ones.
const CONTROLS_MAX: usize = 4;

/// The answer to a request.
pub(crate) enum Asked {
    Granted(Granted),
    Waiting(Ticket, Arc<Waiter>),
}

/// A lock that was granted, and the session that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    pub(crate) generation: u64,
}

/// Until when a grant is held, as of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Validity {
    Lost,
    Held { until: Ticks, at_risk_from: Ticks },
}

/// One process of a peer, as it has greeted.
struct Process {
    incarnation: Incarnation,
    boot_id: u64,
    /// When it was last known to be connected, unless it is.
    seen: Ticks,
}

/// What a driver is made from.
pub(crate) struct Parts {
    pub(crate) me: String,
    pub(crate) boot_id: u64,
    pub(crate) tls: Option<Tls>,
    pub(crate) seeds: Vec<Arc<Peer>>,
    pub(crate) node: Node<Arc<Waiter>>,
}

impl Driver {
    /// Must be called within a runtime.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { me, boot_id, tls, seeds, node } = parts;
        let (id, complete) = (node.id(), node.is_complete());
        let state = State {
            node,
            disk: None,
            connections: Vec::new(),
            controls: BTreeMap::new(),
            processes: BTreeMap::new(),
            generation: 0,
            revoked: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_token: 1,
            stopping: None,
            complete,
            settled: false,
            has_deadline: false,
            view_changed: true,
            wakes_at: 0,
            grants: 0,
            now: now(),
        };
        Arc::new(Self {
            me,
            id,
            boot_id,
            tls,
            state: Mutex::new(state),
            turn: Turn::default(),
            peers: Mutex::default(),
            seeds: Mutex::new(seeds),
            limits: LogLimiters::default(),
            stopped: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            ending: Notify::new(),
            session: Notify::new(),
            completed: Notify::new(),
            wake: Notify::new(),
            readers: Readers::start(&Handle::current()),
        })
    }

    /// From here on what the node stores is written by this thread; what it has asked for already is carried out now.
    pub(crate) fn begin(&self, disk: Option<Sender<Job>>) {
        let mut state = self.state();
        state.disk = disk;
        self.drain_and_schedule(state);
    }

    /// The node, for a look or an input. A panic while it was locked may have left it in any state: the next one to lock it
    /// closes the node, and it sends and grants nothing more. So [`is_stopped`](Self::is_stopped) is to be read only after
    /// this.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            let state = poisoned.into_inner();
            if self.closed.swap(true, Ordering::AcqRel) {
                return state;
            }
            tracing::error!("the node has failed and stops; this is a bug: please report what was printed before");
            self.close(state);
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    // ---- the end ----

    /// Stops the node: callers get nothing more from here on, guards are lost, and the group is told. The node's own thread closes
    /// it when the group knows, or when this time is over.
    pub(crate) fn stop(&self, limit: Duration) {
        let mut state = self.state();
        if self.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut wakers = Wakers::default();
        state.node.waiting().for_each(|waiter| wakers.add(waiter.answer(Err(AcquireError::Stopped))));
        let (sender, done) = oneshot::channel();
        state.read_clock();
        // Guards are lost before anybody else is told.
        state.request(Request::Stop, sender);
        state.stopping = Some((done, limit));
        self.drain_and_schedule(state);
        wakers.wake();
        self.ending.notify_waiters();
        self.session.notify_waiters();
        self.completed.notify_waiters();
    }

    /// Stops the node without a word to the others, as a crash would.
    pub(crate) fn close_now(&self) {
        let state = self.state();
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.close(state);
        }
    }

    /// The stop that was asked for, once, by the node's own thread.
    pub(crate) fn take_stop(&self) -> Option<(oneshot::Receiver<Result<(), RequestError>>, Duration)> {
        self.state().stopping.take()
    }

    /// Like [`drain`](Self::drain), for the last time: everybody is answered under the lock and woken without it.
    fn close(&self, mut state: MutexGuard<'_, State>) {
        self.stopped.store(true, Ordering::Release);
        let mut wakers = Wakers::default();
        state.node.waiting().for_each(|waiter| wakers.add(waiter.answer(Err(AcquireError::Stopped))));
        // Also those whose answer was not given yet.
        while let Some(output) = state.node.poll_output() {
            if let Output::Answer { caller, .. } = output {
                wakers.add(caller.answer(Err(AcquireError::Stopped)));
            }
        }
        state.connections.drain(..).for_each(|(_, connection)| connection.close());
        std::mem::take(&mut state.controls).into_values().flatten().for_each(|outbox| outbox.close());
        state.disk = None;
        state.requests.clear();
        drop(state);
        wakers.wake();
        self.ending.notify_waiters();
        self.session.notify_waiters();
        self.completed.notify_waiters();
        self.wake.notify_one();
    }

    /// Its threads have ended.
    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
        self.ending.notify_waiters();
    }

    /// Resolves when callers get nothing more.
    pub(crate) async fn when_stopped(&self) {
        self.when(|| self.is_stopped()).await;
    }

    /// Resolves when nothing is sent or received any more.
    pub(crate) async fn when_closed(&self) {
        self.when(|| self.is_closed()).await;
    }

    /// Resolves when the directory and the address are free.
    pub(crate) async fn when_ended(&self) {
        self.when(|| self.ended.load(Ordering::Acquire)).await;
    }

    async fn when(&self, is_over: impl Fn() -> bool) {
        loop {
            let ending = self.ending.notified();
            tokio::pin!(ending);
            ending.as_mut().enable();
            if is_over() {
                return;
            }
            ending.await;
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    // ---- callers ----

    /// The fast path: see [`Node::handle_fast_acquire`]. Without a grant: whether the caller yields to other tasks before it asks.
    ///
    /// A caller who always finds the lock here never waits. Now and then it must yield, or the tasks that read the sockets
    /// do not run and the other members' requests stay unread. And where the lock has just come from another member, the
    /// next request for it is on its way or lies unread: it is read before the lock is taken again. Unless it has been given
    /// away already: then the sooner the caller asks, the better.
    #[inline]
    pub(crate) fn acquire_fast(
        &self,
        slot: Option<Slot>,
        lock: &str,
        mode: Mode,
        waited: Ticks,
    ) -> Result<Granted, bool> {
        let mut state = self.state();
        // Read under the lock: the session must not end between the look at the clock and the grant.
        let now = state.read_clock();
        if self.turn.is_over(now) {
            return Err(true);
        }
        if now.saturating_sub(waited) < CONTENDED {
            let must_wait = slot.is_some_and(|slot| state.node.must_wait(slot, lock, mode));
            return Err(!must_wait);
        }
        if self.is_stopped() {
            return Err(false);
        }
        let slot = slot.ok_or(false)?;
        let grant = state.node.handle_fast_acquire(slot, lock, mode, now).ok_or(false)?;
        state.grants += 1;
        let generation = state.node.generation();
        self.drain_if_needed(state);
        Ok(Granted { grant, generation })
    }

    pub(crate) fn acquire(&self, lock: &str, mode: Mode, patience: Patience) -> Result<Asked, AcquireError> {
        let mut waiter = None;
        let mut state = self.state();
        if self.is_stopped() {
            return Err(AcquireError::Stopped);
        }
        let now = state.read_clock();
        let answer = state.node.handle_acquire(lock, mode, patience, now, || {
            Arc::clone(waiter.get_or_insert_with(|| Arc::new(Waiter::default())))
        });
        state.grants += u64::from(matches!(answer, Ok(Answer::Granted(_))));
        let generation = state.node.generation();
        self.drain_if_needed(state);
        Ok(match (answer?, waiter) {
            (Answer::Granted(grant), _) => Asked::Granted(Granted { grant, generation }),
            (Answer::Waiting(ticket), Some(waiter)) => Asked::Waiting(ticket, waiter),
            _ => return Err(AcquireError::Busy),
        })
    }

    /// Releases a lock. Whoever gets it next looks at the clock itself.
    #[inline]
    pub(crate) fn release(&self, ticket: Ticket) -> bool {
        let mut state = self.state();
        if self.is_stopped() {
            return false;
        }
        let now = state.now;
        state.forget_revoked(ticket);
        let held = state.node.handle_release(ticket, now);
        self.drain_if_needed(state);
        held
    }

    /// The same, for a caller that wants to know: false if it had lost the lock before.
    #[inline]
    pub(crate) fn release_held(&self, granted: &Granted) -> bool {
        let mut state = self.state();
        let now = state.read_clock();
        if self.is_stopped() {
            return false;
        }
        let is_held = now < state.held_until(granted);
        state.forget_revoked(granted.grant.ticket);
        let released = state.node.handle_release(granted.grant.ticket, now);
        self.drain_if_needed(state);
        released && is_held
    }

    pub(crate) fn cancel(&self, ticket: Ticket) {
        self.input(|state| {
            state.forget_revoked(ticket);
            state.node.handle_cancel(ticket, state.now)
        });
    }

    /// Whether a grant is still held, by the clock: the session may have ended unnoticed.
    pub(crate) fn validity(&self, granted: Granted) -> Validity {
        let state = self.state();
        let until = state.held_until(&granted);
        if self.is_stopped() || now() >= until {
            return Validity::Lost;
        }
        let is_revoked = state.revoked.contains_key(&granted.grant.ticket);
        Validity::Held { until, at_risk_from: if is_revoked { 0 } else { state.node.at_risk_from() } }
    }

    /// Has a connection given up when half a session has brought no acknowledgement of its data: a session is kept, and a lock handed over,
    /// only by one that works.
    pub(crate) fn limit_silence(&self, stream: &TcpStream) -> std::io::Result<()> {
        let ttl = Duration::from_nanos(self.state().node.status().ttl);
        os::give_up_after(stream, (ttl / 2).max(SILENCE_MIN))
    }

    /// The node's view: its state and number, how many are in it, and the steward.
    pub(crate) fn view(&self) -> ViewSummary {
        let state = self.state();
        let status = state.node.status();
        ViewSummary {
            state: status.view,
            epoch: status.epoch,
            members: state.node.view().len(),
            steward: status.steward,
        }
    }

    /// How long what is held here stays held without a word from the group: zero while nothing can be, `None` for ever.
    pub(crate) fn session_left(&self) -> Option<Duration> {
        let state = self.state();
        if self.is_stopped() || !state.node.has_session() {
            return Some(Duration::ZERO);
        }
        let until = state.node.valid_until();
        (until != Ticks::MAX).then(|| Duration::from_nanos(until.saturating_sub(now())))
    }

    /// See [`Node::promise`].
    pub(crate) fn promise(&self, left: Duration) {
        let mut state = self.state();
        let until = now().saturating_add(left.as_nanos() as Ticks);
        state.node.promise(until);
    }

    /// True if a grant was taken away, or is to be, though the session goes on.
    pub(crate) fn is_revoked(&self, granted: Granted) -> bool {
        self.state().revoked.contains_key(&granted.grant.ticket)
    }

    /// Resolves when a grant is lost, or at risk: whatever `due` says when it is.
    pub(crate) async fn when_due(&self, granted: Granted, due: impl Fn(Ticks, Ticks) -> Ticks) {
        loop {
            let changed = self.session.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let Validity::Held { until, at_risk_from } = self.validity(granted) else { return };
            let (at, now) = (due(until, at_risk_from), now());
            if now >= at {
                return;
            }
            let left = sleep_before(at - now).max(Duration::from_millis(1));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(left.min(TICK)), if at != Ticks::MAX => {}
            }
        }
    }

    /// Asks something of the whole group. Without an answer the node is closed.
    pub(crate) fn request(&self, request: Request) -> (u64, oneshot::Receiver<Result<(), RequestError>>) {
        let (sender, done) = oneshot::channel();
        let token = self.input(|state| state.request(request, sender));
        (token.unwrap_or(0), done)
    }

    /// Nobody waits for this request any more.
    pub(crate) fn forget_request(&self, token: u64) {
        self.input(|state| {
            state.requests.remove(&token);
            state.node.handle_request_cancel(token);
        });
    }

    /// Resolves when locks are granted, or the node is stopped.
    pub(crate) async fn when_complete(&self) {
        loop {
            let completed = self.completed.notified();
            tokio::pin!(completed);
            completed.as_mut().enable();
            if self.state().node.is_complete() || self.is_stopped() {
                return;
            }
            completed.await;
        }
    }

    // ---- the node's contract ----

    /// Gives the node an input, unless it is closed, and carries out what comes of it. The next deadline may have changed.
    fn input<T>(&self, input: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut state = self.state();
        if self.is_closed() {
            return None;
        }
        state.read_clock();
        let result = input(&mut state);
        self.drain_and_schedule(state);
        Some(result)
    }

    #[inline]
    fn drain_if_needed(&self, state: MutexGuard<'_, State>) {
        if state.node.has_output() {
            self.drain(state);
        }
    }

    /// Messages of locks bring no deadline that cannot wait for the next [`TICK`].
    fn drain(&self, state: MutexGuard<'_, State>) {
        self.carry_out(state, false);
    }

    fn drain_and_schedule(&self, state: MutexGuard<'_, State>) {
        self.carry_out(state, true);
    }

    /// Carries out everything the node asks for, in order. Answers are given under the lock, so that none comes later than
    /// a message that was sent after it; tasks are woken without it, since they may want the lock at once.
    fn carry_out(&self, mut state: MutexGuard<'_, State>, schedule: bool) {
        let mut wakers = Wakers::default();
        let mut guards = false;
        while let Some(output) = state.node.poll_output() {
            match output {
                Output::Persist(write) => state.persist(write),
                Output::Answer { caller, outcome } => {
                    let generation = state.node.generation();
                    state.grants += u64::from(matches!(outcome, Outcome::Granted(_)));
                    let verdict = match outcome {
                        _ if self.is_stopped() => Err(AcquireError::Stopped),
                        Outcome::Granted(grant) => Ok(Granted { grant, generation }),
                        Outcome::Busy => Err(AcquireError::Busy),
                        Outcome::Refused(refusal) => Err(refusal.into()),
                    };
                    wakers.add(caller.answer(verdict));
                }
                Output::Transmit(peer) => state.transmit(peer),
                Output::Control { to, bytes } => {
                    if let Some(outbox) = state.controls.get(&to).and_then(|outboxes| outboxes.last()) {
                        outbox.push(bytes);
                    }
                }
                Output::Disconnect(peer) => {
                    state.take_connection(peer).into_iter().for_each(|connection| connection.close());
                }
                Output::Lapsed => {
                    state.revoked.clear();
                    guards = true;
                }
                Output::Lost(ticket) => {
                    state.revoked.insert(ticket, 0);
                    guards = true;
                }
                Output::Revoked { ticket, at } => {
                    state.revoked.insert(ticket, at);
                    guards = true;
                }
                Output::Done { token, result } => {
                    if let Some(asked) = state.requests.remove(&token) {
                        let _ = asked.send(result);
                    }
                }
                Output::View => state.view_changed = true,
                other => tracing::error!(?other, "the node asks for something that is not known here"),
            }
        }
        let mut wake = state.view_changed;
        if schedule || wake {
            let has_deadline = state.node.valid_until() != Ticks::MAX;
            guards |= has_deadline && !state.has_deadline;
            state.has_deadline = has_deadline;
            let next = state.node.poll_timeout().unwrap_or(Ticks::MAX);
            wake |= next < state.wakes_at;
            state.wakes_at = state.wakes_at.min(next);
        }
        let is_complete = state.node.is_complete();
        let completed = !state.complete && is_complete;
        state.complete = is_complete;
        if completed && !state.settled {
            state.settled = true;
            state.disk.iter().for_each(|disk| drop(disk.send(Job::Settle)));
        }
        drop(state);
        wakers.wake();
        if guards {
            self.session.notify_waiters();
        }
        if completed {
            self.completed.notify_waiters();
        }
        if wake {
            self.wake.notify_one();
        }
    }

    /// These changes are on disk.
    pub(crate) fn persisted(&self, writes: Vec<Write>) {
        for write in writes {
            self.input(|state| state.node.handle_persisted(write, state.now));
        }
    }

    /// Time passes.
    pub(crate) fn tick(&self) {
        self.input(|state| state.node.handle_timeout(state.now));
    }

    /// How long the node's own thread may sleep.
    pub(crate) fn sleep_for(&self) -> Duration {
        let mut state = self.state();
        let now = now();
        let tick = now + TICK.as_nanos() as Ticks;
        state.wakes_at = state.node.poll_timeout().unwrap_or(Ticks::MAX).min(tick);
        let left = state.wakes_at.saturating_sub(now);
        // The end of the session alone does not wait for a timer that is late.
        if state.wakes_at < state.node.valid_until() { Duration::from_nanos(left) } else { sleep_before(left) }
    }

    // ---- peers ----

    /// The contacts, if they may have changed since the last call; they are this node's peers from now on.
    pub(crate) fn take_contacts(&self) -> Option<Vec<Contact>> {
        let contacts = {
            let mut state = self.state();
            if !std::mem::take(&mut state.view_changed) {
                return None;
            }
            state.node.contacts()
        };
        let mut peers = self.lock_peers();
        let seeds = self.seeds();
        peers.retain(|id, _| contacts.iter().any(|contact| contact.id == *id));
        for Contact { id, name, address } in &contacts {
            let known = peers.get(id).is_some_and(|peer| peer.address == *address && peer.name.as_ref() == Some(name));
            if !known {
                // What is known about its address may be known from looking for a group.
                let seed = seeds.iter().find(|seed| seed.address == *address && seed.name.as_ref() == Some(name));
                let new = || Arc::new(Peer::new(Some(name.clone()), address.clone()));
                peers.insert(*id, seed.map_or_else(new, Arc::clone));
            }
        }
        drop(peers);
        self.state().forget_processes(&contacts);
        Some(contacts)
    }

    pub(crate) fn peer(&self, id: NodeId) -> Option<Arc<Peer>> {
        self.lock_peers().get(&id).map(Arc::clone)
    }

    pub(crate) fn peers(&self) -> BTreeMap<NodeId, Arc<Peer>> {
        self.lock_peers().clone()
    }

    fn lock_peers(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seeds(&self) -> Vec<Arc<Peer>> {
        self.seeds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn add_seed(&self, seed: Arc<Peer>) {
        self.seeds.lock().unwrap_or_else(PoisonError::into_inner).push(seed);
        self.wake.notify_one();
    }

    pub(crate) fn needs_seeds(&self) -> bool {
        !self.is_stopped() && self.state().node.needs_seeds()
    }

    /// True if there is no connection with this peer.
    pub(crate) fn lacks(&self, peer: &Peer) -> bool {
        let id = self.lock_peers().iter().find(|(_, known)| known.address == peer.address).map(|(id, _)| *id);
        let state = self.state();
        id.is_none_or(|id| state.connection(id).is_none() && !state.controls.contains_key(&id))
    }

    // ---- connections ----

    /// The greeting for a peer. Of one that is dialed by its address alone the id is not known.
    pub(crate) fn hello(&self, plane: Plane, peer: Option<NodeId>) -> Option<Hello> {
        let state = self.state();
        match plane {
            Plane::Locks => state.node.hello(peer?),
            Plane::Control => Some(state.node.control_hello(peer)),
        }
    }

    pub(crate) fn check(&self, hello: &Hello) -> Result<(), String> {
        let state = self.state();
        let checked = state.node.check_hello(hello);
        let is_mine = hello.from == self.id && hello.boot_id != self.boot_id;
        let is_twice = is_mine || state.is_twice(hello);
        drop(state);
        if is_twice {
            return Err(self.explain_twice(hello));
        }
        checked.map_err(|error| self.explain(&error, hello))
    }

    /// Ids are drawn at random, and a directory can be copied.
    fn explain_twice(&self, hello: &Hello) -> String {
        format!(
            "{} has the id {} of another node that runs: start it again if it has no data directory; if it has, the directory was copied: \
             give it an empty one",
            self.describe(hello),
            hello.from
        )
    }

    /// A greeting was refused whose sender is who it says, as far as that can be proven here. If it is from another group of the same name
    /// this node may have founded its own by mistake.
    pub(crate) fn look_at_other_group(&self, hello: &Hello) {
        let before = self.state().node.status().waits_for;
        self.input(|state| state.node.handle_other_group(hello, state.now));
        let why = self.state().node.status().waits_for;
        if let Some(why) = why.filter(|why| before.as_ref() != Some(why)) {
            tracing::error!(
                why = printable(&why),
                "this node is in another group than others of its name, and grants nothing more"
            );
        }
    }

    /// This node is in a group that has had more than one member.
    pub(crate) fn watches_others(&self) -> bool {
        !self.is_stopped() && self.state().node.is_shared()
    }

    fn explain(&self, error: &HelloError, hello: &Hello) -> String {
        // The peer's words are in it.
        printable(&error.explain(&self.me, &self.describe(hello)))
    }

    /// A peer's name, as it calls itself, and its address, as it is known here.
    pub(crate) fn describe(&self, hello: &Hello) -> String {
        let name = printable(&hello.name);
        let address = self.peer(hello.from).map(|peer| peer.address.clone());
        match address.or_else(|| Some(printable(&hello.address)).filter(|address| !address.is_empty())) {
            Some(address) => format!("'{name}' ({address})"),
            None => format!("'{name}'"),
        }
    }

    /// True if this node has dialed itself.
    pub(crate) fn is_self(&self, hello: &Hello) -> bool {
        hello.from == self.id && hello.boot_id == self.boot_id
    }

    /// A connection stands that carries locks, and replaces an earlier one. Returns its generation.
    pub(crate) fn connect(&self, hello: &Hello, mut connection: Connection) -> Result<u64, String> {
        let connected = self.input(|state| {
            state.node.handle_hello(hello, state.now).map_err(|error| self.explain(&error, hello))?;
            state.meet_process(hello);
            state.generation += 1;
            connection.generation = state.generation;
            state.put_connection(hello.from, connection).into_iter().for_each(|old| old.close());
            Ok(state.generation)
        });
        connected.unwrap_or_else(|| Err(STOPPED.to_owned()))
    }

    /// A control connection stands, beside others with the same peer. Whoever has dialed one that is not needed closes it: the
    /// lower one of two nodes dials. `Ok(false)` if this is such a one.
    pub(crate) fn connect_control(&self, hello: &Hello, outbox: &Arc<Outbox>) -> Result<bool, String> {
        let connected = self.input(|state| {
            let standing = state.controls.get(&hello.from);
            if outbox.is_dialed && standing.is_some_and(|standing| !standing.is_empty()) && hello.from < self.id {
                return Ok(false);
            }
            state.node.handle_hello(hello, state.now).map_err(|error| self.explain(&error, hello))?;
            state.meet_process(hello);
            let standing = state.controls.entry(hello.from).or_default();
            if !outbox.is_dialed && hello.from < self.id {
                standing.iter().filter(|other| other.is_dialed).for_each(|other| other.close());
            }
            if standing.len() >= CONTROLS_MAX {
                standing[0].close();
            }
            standing.push(Arc::clone(outbox));
            Ok(true)
        });
        connected.unwrap_or_else(|| Err(STOPPED.to_owned()))
    }

    /// A control connection is gone.
    pub(crate) fn disconnect_control(&self, peer: NodeId, outbox: &Arc<Outbox>) {
        self.input(|state| {
            let Some(standing) = state.controls.get_mut(&peer) else { return };
            standing.retain(|other| !Arc::ptr_eq(other, outbox));
            let is_last = standing.is_empty();
            state.see_process(peer);
            if is_last {
                state.controls.remove(&peer);
                state.node.handle_control_disconnect(peer, state.now);
            }
        });
    }

    pub(crate) fn has_control(&self, peer: NodeId) -> bool {
        self.state().controls.contains_key(&peer)
    }

    /// A control message has arrived. An error closes the connection.
    pub(crate) fn receive_control(&self, peer: NodeId, message: &[u8]) -> Result<(), DecodeError> {
        self.input(|state| state.node.handle_control(peer, message, state.now)).unwrap_or(Ok(()))
    }

    /// Bytes have arrived, encrypted ones if the connection is. An error closes the connection.
    pub(crate) fn receive(&self, peer: NodeId, generation: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.receive_by(peer, generation, |connection, handle| {
            let (plain, decrypted) = connection.decrypt(bytes);
            // What came before an error counts.
            handle(plain)?;
            connection.write(&[]);
            decrypted
        })
    }

    /// What came right behind the greeting, decrypted with it.
    pub(crate) fn receive_plain(&self, peer: NodeId, generation: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.receive_by(peer, generation, |_, handle| Ok(handle(bytes)?))
    }

    fn receive_by(
        &self,
        peer: NodeId,
        generation: u64,
        receive: impl FnOnce(&mut Connection, &mut dyn FnMut(&[u8]) -> Result<(), LinkError>) -> Result<(), ReceiveError>,
    ) -> Result<(), ReceiveError> {
        let mut state = self.state();
        if self.is_closed() {
            return Err(ReceiveError::Replaced);
        }
        state.read_clock();
        let State { node, connections, now, .. } = &mut *state;
        let current = find(connections, peer).ok().map(|index| &mut connections[index].1);
        let received = match current.filter(|connection| connection.generation == generation) {
            None => Err(ReceiveError::Replaced),
            Some(connection) => receive(connection, &mut |plain| node.handle_bytes(peer, plain, *now)),
        };
        self.drain(state);
        received
    }

    /// The connection is gone.
    pub(crate) fn disconnect(&self, peer: NodeId, generation: u64) {
        self.input(|state| {
            if state.connection(peer).is_some_and(|connection| connection.generation == generation) {
                state.take_connection(peer);
                state.see_process(peer);
                state.node.handle_disconnect(peer, state.now);
            }
        });
    }

    /// A socket takes bytes again.
    pub(crate) fn writable(&self, peer: NodeId) {
        self.input(|state| {
            // What was encrypted before goes first, also if nothing follows it.
            if let Ok(index) = find(&state.connections, peer) {
                state.connections[index].1.write(&[]);
            }
            state.node.handle_writable(state.now);
        });
    }
}

/// A lock that a caller waited for so short a time ago is wanted by other members, too.
const CONTENDED: Ticks = 1_000_000;

const STOPPED: &str = "this node has been stopped";

fn find(connections: &[(NodeId, Connection)], peer: NodeId) -> Result<usize, usize> {
    connections.binary_search_by_key(&peer, |(id, _)| *id)
}

impl State {
    /// Looks at the clock. The node's time does not go back: two looks may contradict each other by a few microseconds.
    #[inline]
    fn read_clock(&mut self) -> Ticks {
        self.now = self.now.max(now());
        self.now
    }

    /// Those that are neither peers nor connected need not be told from others any more.
    fn forget_processes(&mut self, contacts: &[Contact]) {
        let Self { processes, controls, .. } = self;
        processes.retain(|id, _| controls.contains_key(id) || contacts.iter().any(|contact| contact.id == *id));
    }

    fn meet_process(&mut self, hello: &Hello) {
        let process = Process { incarnation: hello.incarnation, boot_id: hello.boot_id, seen: self.now };
        self.processes.insert(hello.from, process);
    }

    /// A connection with a peer has ended.
    fn see_process(&mut self, peer: NodeId) {
        let now = self.now;
        self.processes.entry(peer).and_modify(|process| process.seen = now);
    }

    /// Two processes under one id. A start is a higher incarnation, or a new id where no directory counts starts. One that was not seen for two
    /// sessions holds nothing any more: it may have crashed before what it greeted with was on its disk.
    fn is_twice(&self, hello: &Hello) -> bool {
        let id = hello.from;
        let Some(process) = self.processes.get(&id) else { return false };
        let is_there = self.controls.contains_key(&id)
            || self.connection(id).is_some()
            || self.now.saturating_sub(process.seen) < 2 * self.node.status().ttl;
        process.incarnation == hello.incarnation && process.boot_id != hello.boot_id && is_there
    }

    fn connection(&self, peer: NodeId) -> Option<&Connection> {
        find(&self.connections, peer).ok().map(|index| &self.connections[index].1)
    }

    fn take_connection(&mut self, peer: NodeId) -> Option<Connection> {
        find(&self.connections, peer).ok().map(|index| self.connections.remove(index).1)
    }

    fn put_connection(&mut self, peer: NodeId, connection: Connection) -> Option<Connection> {
        match find(&self.connections, peer) {
            Ok(index) => Some(std::mem::replace(&mut self.connections[index].1, connection)),
            Err(index) => {
                self.connections.insert(index, (peer, connection));
                None
            }
        }
    }

    fn transmit(&mut self, peer: NodeId) {
        let Ok(index) = find(&self.connections, peer) else { return };
        let taken = self.connections[index].1.write(self.node.poll_transmit(peer));
        self.node.handle_transmitted(peer, taken);
    }

    /// Has a change written where it takes nobody's time. Without a directory there is nothing to wait for.
    fn persist(&mut self, write: Write) {
        match &self.disk {
            Some(disk) => drop(disk.send(Job::Write(write))),
            None => self.node.handle_persisted(write, self.now),
        }
    }

    fn request(&mut self, request: Request, asked: oneshot::Sender<Result<(), RequestError>>) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.requests.insert(token, asked);
        self.node.handle_request(request, token, self.now);
        token
    }

    /// Until when a grant is held for certain, if it is not lost already.
    #[inline]
    fn held_until(&self, granted: &Granted) -> Ticks {
        if self.node.generation() != granted.generation {
            return 0;
        }
        let revoked = if self.revoked.is_empty() { None } else { self.revoked.get(&granted.grant.ticket) };
        self.node.valid_until().min(revoked.copied().unwrap_or(Ticks::MAX))
    }

    #[inline]
    fn forget_revoked(&mut self, ticket: Ticket) {
        if !self.revoked.is_empty() {
            self.revoked.remove(&ticket);
        }
    }
}

/// A peer's text, on one line: what a terminal would not show as it is, is escaped. Doing it twice changes nothing.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' | '\\' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("another connection has replaced it")]
    Replaced,
    #[error("it rejects this node: {0}")]
    Rejected(String),
    #[error("{0}")]
    Link(#[from] LinkError),
    #[error("{0}")]
    Control(#[from] DecodeError),
    #[error("the encryption is broken: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

#[cfg(test)]
mod tests;
