//! A running node: the pure one behind a lock, and its connections.
//!
//! There is no task between a socket and the node. Whoever has something for the node, a caller or a socket's reader,
//! takes the lock, tells the node, and writes what the node has to say to the sockets itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hallpass_core::{Fence, Mode, NodeId, Ticks};
use hallpass_node::wire::Hello;
use hallpass_node::{Answer, HelloError, LinkError, Node, Output, Patience, Ticket};
use tokio::sync::Notify;

use crate::AcquireError;
use crate::clock::now;
use crate::connection::Connection;
use crate::data::Data;
use crate::wait::{Verdict, Waiter};

/// A member of the group other than this node.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) id: NodeId,
    pub(crate) address: String,
    /// The name its certificate must have, if it is known.
    pub(crate) name: Option<String>,
}

pub(crate) struct Shared {
    core: Mutex<Core>,
    /// In the order of their ids.
    pub(crate) peers: Vec<Peer>,
    /// Why there is no connection to each of them, as far as that is known.
    troubles: Mutex<Vec<Option<String>>>,
    stopped: AtomicBool,
    /// Told when the node is stopped.
    stopping: Notify,
    /// Told when the group is complete.
    pub(crate) completed: Notify,
}

pub(crate) struct Core {
    pub(crate) node: Node<Arc<Waiter>>,
    /// Until the node is stopped: then another one may have the directory.
    data: Option<Data>,
    /// One for each peer, in the same order.
    connections: Vec<Option<Connection>>,
    /// Tells connections apart from those that were there before.
    generation: u64,
    /// The group was complete when last looked at.
    complete: bool,
    /// Locks granted so far.
    pub(crate) grants: u64,
    /// When the clock was last read, a [`TICK`] ago at the most: who leaves need not know it better, since it says since when
    /// a lock is unused, and that is counted in seconds.
    now: Ticks,
}

/// How often the time is looked at if nothing happens. A node's own timers are seconds; nobody waits for them.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// What comes of asking.
pub(crate) enum Asked {
    Granted(Ticket, Fence),
    Busy,
    Waiting(Ticket, Arc<Waiter>),
}

impl Shared {
    pub(crate) fn new(node: Node<Arc<Waiter>>, peers: Vec<Peer>, data: Option<Data>) -> Self {
        let complete = node.is_complete();
        let connections = peers.iter().map(|_| None).collect();
        let troubles = Mutex::new(vec![None; peers.len()]);
        Self {
            core: Mutex::new(Core { node, data, connections, generation: 0, complete, grants: 0, now: now() }),
            peers,
            troubles,
            stopped: AtomicBool::new(false),
            stopping: Notify::new(),
            completed: Notify::new(),
        }
    }

    /// The node, for a look or an input. A panic inside has left nobody knows what: whoever comes next stops the node, and
    /// it says and grants nothing more. Look at [`is_stopped`](Self::is_stopped) only when this is there.
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|poisoned| {
            let mut core = poisoned.into_inner();
            if !self.stopped.swap(true, Ordering::AcqRel) {
                tracing::error!("the node has failed and stops; this is a bug: please report what was printed before");
                self.close(&mut core);
            }
            core
        })
    }

    /// Stops: everybody who waits is told, connections are closed.
    pub(crate) fn stop(&self) {
        let mut core = self.core();
        if self.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        for (at, peer) in self.peers.iter().enumerate() {
            core.flush(at, peer.id);
        }
        self.close(&mut core);
    }

    fn close(&self, core: &mut Core) {
        core.node.waiting().for_each(|waiter| waiter.tell(Verdict::Stopped));
        // Who was about to be told something else.
        while let Some(output) = core.node.poll_output() {
            output.caller().tell(Verdict::Stopped);
        }
        core.connections.iter_mut().filter_map(Option::take).for_each(|connection| connection.close());
        core.data = None;
        self.stopping.notify_waiters();
        self.completed.notify_waiters();
    }

    /// Waits until the node is stopped.
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

    /// The short way in: see [`Node::handle_fast_acquire`].
    #[inline]
    pub(crate) fn reacquire(&self, place: u32, lock: &str, mode: Mode, now: Ticks) -> Option<(Ticket, Fence)> {
        let mut core = self.core();
        if self.is_stopped() {
            return None;
        }
        let entered = core.node.handle_fast_acquire(place, lock, mode, now)?;
        (core.now, core.grants) = (now, core.grants + 1);
        Some(entered)
    }

    pub(crate) fn acquire(
        &self,
        lock: &str,
        mode: Mode,
        patience: Patience,
        now: Ticks,
    ) -> Result<Asked, AcquireError> {
        let mut waiter = None;
        let mut core = self.core();
        if self.is_stopped() {
            return Err(AcquireError::Stopped);
        }
        core.now = now;
        let answer = core.node.handle_acquire(lock, mode, patience, now, || {
            Arc::clone(waiter.get_or_insert_with(|| Arc::new(Waiter::default())))
        })?;
        match (answer, waiter) {
            (Answer::Granted(ticket, fence), _) => {
                core.grants += 1;
                Ok(Asked::Granted(ticket, fence))
            }
            (Answer::Waiting(ticket), Some(waiter)) => {
                self.carry_out(core);
                Ok(Asked::Waiting(ticket, waiter))
            }
            _ => {
                self.carry_out(core);
                Ok(Asked::Busy)
            }
        }
    }

    #[inline]
    pub(crate) fn release(&self, ticket: Ticket) -> bool {
        let mut core = self.core();
        if self.is_stopped() {
            return false;
        }
        let (now, sent) = (core.now, core.node.messages());
        let held = core.node.handle_release(ticket, now);
        if core.node.messages() != sent || core.node.has_output() {
            self.carry_out(core);
        }
        held
    }

    pub(crate) fn cancel(&self, ticket: Ticket) {
        self.tell(|core| core.node.handle_cancel(ticket, core.now));
    }

    /// Tells the node something, unless it is stopped, and carries out what comes of it.
    fn tell<T>(&self, input: impl FnOnce(&mut Core) -> T) -> Option<T> {
        let mut core = self.core();
        if self.is_stopped() {
            return None;
        }
        core.now = now();
        let told = input(&mut core);
        self.carry_out(core);
        Some(told)
    }

    // ---- connections ----

    pub(crate) fn hello(&self, at: usize) -> Option<Hello> {
        self.core().node.hello(self.peers[at].id)
    }

    pub(crate) fn check(&self, hello: &Hello) -> Result<(), HelloError> {
        self.core().node.check_hello(hello)
    }

    /// A connection stands, and takes the place of an earlier one. Gives its generation.
    pub(crate) fn connect(&self, at: usize, hello: &Hello, mut connection: Connection) -> Result<u64, String> {
        let connected = self.tell(|core| {
            core.node.handle_hello(hello, core.now).map_err(|error| error.to_string())?;
            if !core.complete && core.node.is_complete() {
                self.complete(core)?;
            }
            core.generation += 1;
            connection.generation = core.generation;
            if let Some(old) = core.connections[at].replace(connection) {
                old.close();
            }
            self.note_trouble(at, None);
            Ok(core.generation)
        });
        connected.unwrap_or_else(|| Err("this node has been stopped".to_owned()))
    }

    /// The group is complete. Its epoch is on the disk before anybody gets in, so that no later life starts below it.
    fn complete(&self, core: &mut Core) -> Result<(), String> {
        core.complete = true;
        self.completed.notify_waiters();
        let (Some(data), Some(epoch)) = (&core.data, core.node.epoch()) else { return Ok(()) };
        let Err(error) = data.remember(epoch) else { return Ok(()) };
        tracing::error!(%error, "cannot remember the group's epoch; the node stops");
        self.stopped.store(true, Ordering::Release);
        self.close(core);
        Err("this node cannot write to its directory".to_owned())
    }

    pub(crate) fn note_trouble(&self, at: usize, trouble: Option<String>) {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)[at] = trouble;
    }

    pub(crate) fn troubles(&self) -> Vec<Option<String>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes have arrived, encrypted ones if the connection is. An error closes the connection.
    pub(crate) fn receive(&self, at: usize, generation: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.receive_by(at, generation, |connection, then| connection.open(bytes, then))
    }

    /// What came right behind the greeting.
    pub(crate) fn receive_plain(&self, at: usize, generation: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.receive_by(at, generation, |_, then| {
            then(bytes);
            Ok(())
        })
    }

    fn receive_by(
        &self,
        at: usize,
        generation: u64,
        open: impl FnOnce(&mut Connection, &mut dyn FnMut(&[u8])) -> Result<(), ReceiveError>,
    ) -> Result<(), ReceiveError> {
        // What came before an error counts.
        let received = self.tell(|core| {
            let Core { node, connections, now, .. } = core;
            let current = connections[at].as_mut().filter(|connection| connection.generation == generation);
            let connection = current.ok_or(ReceiveError::Replaced)?;
            let mut handled = Ok(());
            let mut handle = |plain: &[u8]| {
                if handled.is_ok() {
                    handled = node.handle_bytes(self.peers[at].id, plain, *now);
                }
            };
            open(connection, &mut handle)?;
            Ok(handled?)
        });
        received.unwrap_or(Err(ReceiveError::Replaced))
    }

    /// The connection is gone.
    pub(crate) fn disconnect(&self, at: usize, generation: u64) {
        self.tell(|core| {
            if core.connections[at].as_ref().is_some_and(|connection| connection.generation == generation) {
                core.connections[at] = None;
                core.node.handle_disconnect(self.peers[at].id);
            }
        });
    }

    /// The socket takes bytes again.
    pub(crate) fn flush(&self, at: usize) {
        self.core().flush(at, self.peers[at].id);
    }

    /// Time passes: some of it, or up to what the node asked for.
    pub(crate) fn tick(&self) {
        self.tell(|core| {
            if core.node.poll_timeout().is_some_and(|at| at <= core.now) {
                core.node.handle_timeout(core.now);
            }
        });
    }

    /// Everything the node has to say, first to the sockets, since that takes longest to arrive, then to the callers. They
    /// are told without the lock: whoever is woken may come right back.
    fn carry_out<'a>(&'a self, mut core: MutexGuard<'a, Core>) {
        for (at, peer) in self.peers.iter().enumerate() {
            core.flush(at, peer.id);
        }
        while let Some(output) = core.node.poll_output() {
            core.grants += u64::from(matches!(output, Output::Granted { .. }));
            drop(core);
            match output {
                Output::Granted { caller, ticket, fence } => caller.tell(Verdict::Granted(ticket, fence)),
                Output::Busy { caller } => caller.tell(Verdict::Busy),
                Output::Refused { caller, why } => caller.tell(Verdict::Refused(why)),
            }
            core = self.core();
        }
    }
}

impl Core {
    fn flush(&mut self, at: usize, peer: NodeId) {
        let Some(connection) = &mut self.connections[at] else { return };
        let taken = connection.write(self.node.poll_transmit(peer));
        self.node.handle_transmitted(peer, taken);
    }
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("another connection has taken its place")]
    Replaced,
    #[error("{0}")]
    Link(#[from] LinkError),
    #[error("the encryption is broken: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

#[cfg(test)]
mod tests {
    use hallpass_node::NodeConfig;

    use super::*;

    fn alone() -> Shared {
        Shared::new(Node::new(NodeConfig::new(NodeId(1), [NodeId(1)])).unwrap(), Vec::new(), None)
    }

    fn ask(shared: &Shared, lock: &str) -> Result<Asked, AcquireError> {
        shared.acquire(lock, Mode::Exclusive, Patience::Wait, 0)
    }

    #[test]
    fn a_node_that_has_failed_grants_nothing_more() {
        let shared = alone();
        let Ok(Asked::Granted(ticket, _)) = ask(&shared, "x") else { panic!("it is free") };
        let Ok(Asked::Waiting(_, waiter)) = ask(&shared, "x") else { panic!("it is held") };
        fail(&shared, |_| ());
        assert!(!shared.is_stopped());
        assert!(!shared.release(ticket), "nobody is let in");
        assert!(shared.is_stopped());
        assert!(heard(&waiter, Verdict::Stopped));
        assert!(matches!(ask(&shared, "y"), Err(AcquireError::Stopped)));
        assert_eq!(shared.reacquire(ticket.place(), "x", Mode::Exclusive, 0), None);
    }

    /// A writer waits, and a reader behind it. When the writer has heard of the end and gives up, the reader's turn would
    /// have come.
    #[test]
    fn nobody_gets_in_behind_somebody_who_heard_of_the_end() {
        let shared = alone();
        let ask_for = |mode| shared.acquire("x", mode, Patience::Wait, 0);
        assert!(matches!(ask_for(Mode::Shared), Ok(Asked::Granted(..))));
        let Ok(Asked::Waiting(writer, first)) = ask_for(Mode::Exclusive) else { panic!("it is read") };
        let Ok(Asked::Waiting(_, second)) = ask_for(Mode::Shared) else { panic!("a writer waits") };
        shared.stop();
        assert!(heard(&first, Verdict::Stopped));
        shared.cancel(writer);
        assert!(heard(&second, Verdict::Stopped));
        assert!(matches!(ask(&shared, "y"), Err(AcquireError::Stopped)));
    }

    /// The panic comes between a grant and the word of it.
    #[test]
    fn who_was_about_to_be_told_hears_of_the_end() {
        let shared = alone();
        let Ok(Asked::Granted(ticket, _)) = ask(&shared, "x") else { panic!("it is free") };
        let Ok(Asked::Waiting(_, waiter)) = ask(&shared, "x") else { panic!("it is held") };
        fail(&shared, |core| core.node.handle_release(ticket, 0));
        shared.tick();
        assert!(heard(&waiter, Verdict::Stopped));
    }

    fn heard(waiter: &Waiter, verdict: Verdict) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        waiter.poll(&mut cx) == std::task::Poll::Ready(verdict)
    }

    /// As a bug would, after doing this.
    fn fail<T>(shared: &Shared, first: impl FnOnce(&mut Core) -> T + Send) {
        let fails = || {
            let mut core = shared.core();
            first(&mut core);
            panic!("on purpose");
        };
        assert!(std::thread::scope(|scope| scope.spawn(fails).join()).is_err());
    }
}
