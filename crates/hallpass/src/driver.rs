//! A running node: the pure one behind a lock, and its connections.
//!
//! There is no task between a socket and the node. A caller or a socket's reader takes the lock, gives the node its input,
//! and carries out the outputs: it writes to the sockets itself, and wakes callers when it has released the lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hallpass_core::{Mode, NodeId, Ticks};
use hallpass_node::wire::Hello;
use hallpass_node::{Answer, Grant, HelloError, LinkError, Node, Outcome, Output, Patience, Record, Slot, Ticket};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::connection::Connection;
use crate::os::now;
use crate::rate_limit::RateLimits;
use crate::turn::Turn;
use crate::waiter::{Verdict, Waiter, Wakers};
use crate::{AcquireError, DataDirectory};

/// A member of the group other than this node.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) id: NodeId,
    pub(crate) address: String,
    /// The name its certificate must have, if it is known.
    pub(crate) name: Option<String>,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}@{}", self.address),
            None => f.write_str(&self.address),
        }
    }
}

pub(crate) struct Driver {
    /// This node's name and address, for messages that both sides of a connection read.
    pub(crate) me: String,
    state: Mutex<State>,
    /// Of the callers who did not have to wait.
    pub(crate) turn: Turn,
    /// In rising order of their ids.
    pub(crate) peers: Vec<Peer>,
    /// Why there is no connection with each of them, as far as that is known.
    troubles: Mutex<Vec<Option<String>>>,
    /// For every line of the log that others can cause.
    pub(crate) limits: RateLimits,
    stopped: AtomicBool,
    /// Notified when the node is stopped.
    stopping: Notify,
    /// Notified when the group is complete.
    pub(crate) completed: Notify,
    /// Where files are written: callers may release locks from threads without a runtime.
    runtime: Handle,
    this: Weak<Self>,
}

pub(crate) struct State {
    pub(crate) node: Node<Arc<Waiter>>,
    /// Until the node is stopped: then another one may have the directory.
    data: Option<Arc<DataDirectory>>,
    /// One for each peer, in the same order.
    connections: Vec<Option<Connection>>,
    /// Tells a connection from earlier ones with the same peer.
    generation: u64,
    /// The group was complete when last looked at.
    complete: bool,
    /// Locks granted so far.
    pub(crate) grants: u64,
    /// When the clock was last read, at most a [`TICK`] ago. A release does not need a better time: it marks since when a
    /// lock is unused, which is counted in seconds.
    now: Ticks,
}

/// How often the time is looked at if nothing happens. A node's own timers are seconds; nobody waits for them.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// The answer to a request.
pub(crate) enum Asked {
    Granted(Grant),
    Busy,
    Waiting(Ticket, Arc<Waiter>),
}

impl Driver {
    /// Must be called within a runtime.
    pub(crate) fn new(
        me: String,
        node: Node<Arc<Waiter>>,
        peers: Vec<Peer>,
        data: Option<Arc<DataDirectory>>,
    ) -> Arc<Self> {
        let complete = node.is_complete();
        let connections = peers.iter().map(|_| None).collect();
        let troubles = Mutex::new(vec![None; peers.len()]);
        let state = State { node, data, connections, generation: 0, complete, grants: 0, now: now() };
        Arc::new_cyclic(|this| Self {
            me,
            state: Mutex::new(state),
            turn: Turn::default(),
            limits: RateLimits::new(peers.len()),
            peers,
            troubles,
            stopped: AtomicBool::new(false),
            stopping: Notify::new(),
            completed: Notify::new(),
            runtime: Handle::current(),
            this: this.clone(),
        })
    }

    /// The node, for a look or an input. A panic while it was locked may have left it in any state: the next one to lock it
    /// stops the node, and it sends and grants nothing more. So [`is_stopped`](Self::is_stopped) is to be read only after
    /// this.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            let state = poisoned.into_inner();
            if self.stopped.swap(true, Ordering::AcqRel) {
                return state;
            }
            tracing::error!("the node has failed and stops; this is a bug: please report what was printed before");
            self.close(state);
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Stops the node: waiting callers are answered, connections are closed.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        if !self.stopped.swap(true, Ordering::AcqRel) {
            for index in 0..self.peers.len() {
                state.transmit(index, self.peers[index].id);
            }
            self.close(state);
        }
    }

    /// Like [`drain`](Self::drain), for the last time: everybody is answered under the lock and woken without it.
    fn close(&self, mut state: MutexGuard<'_, State>) {
        let mut wakers = Wakers::default();
        state.node.waiting().for_each(|waiter| wakers.add(waiter.answer(Verdict::Stopped)));
        // Also those whose answer was not given yet.
        while let Some(output) = state.node.poll_output() {
            if let Output::Answer { caller, .. } = output {
                wakers.add(caller.answer(Verdict::Stopped));
            }
        }
        state.connections.iter_mut().filter_map(Option::take).for_each(|connection| connection.close());
        state.data = None;
        drop(state);
        wakers.wake();
        self.stopping.notify_waiters();
        self.completed.notify_waiters();
    }

    /// Resolves when the node is stopped.
    pub(crate) async fn when_stopped(&self) {
        loop {
            let stopping = self.stopping.notified();
            tokio::pin!(stopping);
            stopping.as_mut().enable();
            if self.is_stopped() {
                return;
            }
            stopping.await;
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    // ---- callers ----

    /// The fast path: see [`Node::handle_fast_acquire`].
    #[inline]
    pub(crate) fn acquire_fast(&self, slot: Slot, lock: &str, mode: Mode, now: Ticks) -> Option<Grant> {
        let mut state = self.state();
        if self.is_stopped() {
            return None;
        }
        let grant = state.node.handle_fast_acquire(slot, lock, mode, now)?;
        (state.now, state.grants) = (now, state.grants + 1);
        self.drain_if_needed(state);
        Some(grant)
    }

    pub(crate) fn acquire(
        &self,
        lock: &str,
        mode: Mode,
        patience: Patience,
        now: Ticks,
    ) -> Result<Asked, AcquireError> {
        let mut waiter = None;
        let mut state = self.state();
        if self.is_stopped() {
            return Err(AcquireError::Stopped);
        }
        state.now = now;
        let answer = state.node.handle_acquire(lock, mode, patience, now, || {
            Arc::clone(waiter.get_or_insert_with(|| Arc::new(Waiter::default())))
        });
        state.grants += u64::from(matches!(answer, Ok(Answer::Granted(_))));
        self.drain_if_needed(state);
        Ok(match (answer?, waiter) {
            (Answer::Granted(grant), _) => Asked::Granted(grant),
            (Answer::Waiting(ticket), Some(waiter)) => Asked::Waiting(ticket, waiter),
            _ => Asked::Busy,
        })
    }

    #[inline]
    pub(crate) fn release(&self, ticket: Ticket) -> bool {
        let mut state = self.state();
        if self.is_stopped() {
            return false;
        }
        let now = state.now;
        let held = state.node.handle_release(ticket, now);
        self.drain_if_needed(state);
        held
    }

    pub(crate) fn cancel(&self, ticket: Ticket) {
        self.input(|state| state.node.handle_cancel(ticket, state.now));
    }

    // ---- the node's contract ----

    /// Gives the node an input, unless it is stopped, and carries out what comes of it.
    fn input<T>(&self, input: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut state = self.state();
        if self.is_stopped() {
            return None;
        }
        state.now = now();
        let result = input(&mut state);
        self.drain(state);
        Some(result)
    }

    #[inline]
    fn drain_if_needed(&self, state: MutexGuard<'_, State>) {
        if state.node.has_output() {
            self.drain(state);
        }
    }

    /// Carries out everything the node asks for, in order. Answers are given under the lock, so that none comes later than
    /// a message that was sent after it; tasks are woken without it, since they may want the lock at once.
    fn drain(&self, mut state: MutexGuard<'_, State>) {
        let mut wakers = Wakers::default();
        while let Some(output) = state.node.poll_output() {
            match output {
                Output::Persist(record) => self.persist(&mut state, record),
                Output::Answer { caller, outcome } => {
                    state.grants += u64::from(matches!(outcome, Outcome::Granted(_)));
                    wakers.add(caller.answer(Verdict::Outcome(outcome)));
                }
                Output::Transmit(peer) => {
                    if let Some(index) = self.position(peer) {
                        state.transmit(index, peer);
                    }
                }
            }
        }
        let completed = !state.complete && state.node.is_complete();
        state.complete |= completed;
        drop(state);
        wakers.wake();
        if completed {
            self.completed.notify_waiters();
        }
    }

    /// Writes a record where it takes nobody's time.
    fn persist(&self, state: &mut State, record: Record) {
        let Some(data) = state.data.clone() else { return state.node.handle_persisted(record, state.now) };
        let driver = Weak::clone(&self.this);
        self.runtime.spawn_blocking(move || {
            let written = match record {
                Record::Epoch(epoch) => data.remember(epoch),
                other => Err(std::io::Error::other(format!("unknown record {other:?}"))),
            };
            // Whoever is woken may stop the node and start one with the same directory.
            drop(data);
            if let Some(driver) = driver.upgrade() {
                driver.persisted(record, written);
            }
        });
    }

    fn persisted(&self, record: Record, written: std::io::Result<()>) {
        match written {
            Ok(()) => drop(self.input(|state| state.node.handle_persisted(record, state.now))),
            Err(error) => {
                tracing::error!(%error, "cannot write to the data directory; the node stops");
                self.stop();
            }
        }
    }

    fn position(&self, peer: NodeId) -> Option<usize> {
        self.peers.binary_search_by_key(&peer, |peer| peer.id).ok()
    }

    // ---- connections ----

    pub(crate) fn hello(&self, index: usize) -> Option<Hello> {
        self.state().node.hello(self.peers[index].id)
    }

    pub(crate) fn check(&self, hello: &Hello) -> Result<(), String> {
        let checked = self.state().node.check_hello(hello);
        checked.map_err(|error| self.explain(&error, hello))
    }

    fn explain(&self, error: &HelloError, hello: &Hello) -> String {
        // The peer's words are in it.
        printable(&error.explain(&self.me, &self.describe(hello)))
    }

    /// A peer's name, as it calls itself, and its address, as it is known here.
    pub(crate) fn describe(&self, hello: &Hello) -> String {
        let name = printable(&hello.name);
        match self.peers.iter().find(|peer| peer.id == hello.from) {
            Some(peer) => format!("'{name}' ({})", peer.address),
            None => format!("'{name}'"),
        }
    }

    /// A connection stands, and replaces an earlier one. Returns its generation.
    pub(crate) fn connect(&self, index: usize, hello: &Hello, mut connection: Connection) -> Result<u64, String> {
        let connected = self.input(|state| {
            state.node.handle_hello(hello, state.now).map_err(|error| self.explain(&error, hello))?;
            state.generation += 1;
            connection.generation = state.generation;
            if let Some(old) = state.connections[index].replace(connection) {
                old.close();
            }
            self.set_trouble(index, None);
            Ok(state.generation)
        });
        connected.unwrap_or_else(|| Err("this node has been stopped".to_owned()))
    }

    /// True if this peer is the one of the two that makes the connection, and there is none.
    pub(crate) fn waits_for(&self, index: usize) -> bool {
        let state = self.state();
        self.peers[index].id < state.node.id() && state.connections[index].is_none()
    }

    /// There is no connection with a peer: the status says why, and so does the log, once a minute while it lasts.
    pub(crate) fn report_trouble(&self, index: usize, trouble: String) {
        if let Some(left_out) = self.limits.peers[index].pass(&trouble) {
            tracing::warn!(peer = %self.peers[index], error = %trouble, left_out, "no connection with this member");
        }
        self.set_trouble(index, Some(trouble));
    }

    fn set_trouble(&self, index: usize, trouble: Option<String>) {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)[index] = trouble;
    }

    pub(crate) fn troubles(&self) -> Vec<Option<String>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes have arrived, encrypted ones if the connection is. An error closes the connection.
    pub(crate) fn receive(&self, index: usize, generation: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.receive_by(index, generation, |connection, handle| {
            let (plain, decrypted) = connection.decrypt(bytes);
            // What came before an error counts.
            handle(plain)?;
            connection.write(&[]);
            decrypted
        })
    }

    /// What came right behind the greeting, decrypted with it.
    pub(crate) fn receive_plain(&self, index: usize, generation: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.receive_by(index, generation, |_, handle| Ok(handle(bytes)?))
    }

    fn receive_by(
        &self,
        index: usize,
        generation: u64,
        receive: impl FnOnce(&mut Connection, &mut dyn FnMut(&[u8]) -> Result<(), LinkError>) -> Result<(), ReceiveError>,
    ) -> Result<(), ReceiveError> {
        let received = self.input(|state| {
            let State { node, connections, now, .. } = state;
            let current = connections[index].as_mut().filter(|connection| connection.generation == generation);
            let connection = current.ok_or(ReceiveError::Replaced)?;
            receive(connection, &mut |plain| node.handle_bytes(self.peers[index].id, plain, *now))
        });
        received.unwrap_or(Err(ReceiveError::Replaced))
    }

    /// The connection is gone.
    pub(crate) fn disconnect(&self, index: usize, generation: u64) {
        self.input(|state| {
            if state.connections[index].as_ref().is_some_and(|connection| connection.generation == generation) {
                state.connections[index] = None;
                state.node.handle_disconnect(self.peers[index].id);
            }
        });
    }

    /// A socket takes bytes again.
    pub(crate) fn writable(&self, index: usize) {
        self.input(|state| {
            // What was encrypted before goes first, also if nothing follows it.
            if let Some(connection) = &mut state.connections[index] {
                connection.write(&[]);
            }
            state.node.handle_writable();
        });
    }

    /// Time passes.
    pub(crate) fn tick(&self) {
        self.input(|state| state.node.handle_timeout(state.now));
    }
}

impl State {
    fn transmit(&mut self, index: usize, peer: NodeId) {
        let Some(connection) = &mut self.connections[index] else { return };
        let taken = connection.write(self.node.poll_transmit(peer));
        self.node.handle_transmitted(peer, taken);
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
    #[error("the encryption is broken: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

#[cfg(test)]
mod tests;
