//! A running node: the pure one behind a lock, and its connections.
//!
//! There is no task between a socket and the node. Whoever has something for the node, a caller or a socket's reader,
//! takes the lock, tells the node, and writes what the node has to say to the sockets itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hallpass_core::node::{Answer, HelloError, LinkError, Node, Output, Patience, Refusal, Ticket};
use hallpass_core::wire::Hello;
use hallpass_core::{Fence, Mode, NodeId, Ticks};
use tokio::sync::Notify;

use crate::AcquireError;
use crate::clock::now;
use crate::connection::Connection;
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
    stopped: AtomicBool,
    /// Told when the node is stopped.
    stopping: Notify,
    /// Told when the group is complete.
    pub(crate) completed: Notify,
}

pub(crate) struct Core {
    pub(crate) node: Node<Arc<Waiter>>,
    /// One for each peer, in the same order.
    connections: Vec<Option<Connection>>,
    /// Tells connections apart from those that were there before.
    generation: u64,
    /// The group was complete when last looked at.
    complete: bool,
    /// Locks granted so far.
    pub(crate) grants: u64,
    /// When the clock was last read. Who leaves need not know the time to the nanosecond: it says since when a lock is
    /// unused, and that is counted in seconds.
    now: Ticks,
}

/// What comes of asking.
pub(crate) enum Asked {
    Granted(Ticket, Fence),
    Busy,
    Waiting(Ticket, Arc<Waiter>),
}

impl Shared {
    pub(crate) fn new(node: Node<Arc<Waiter>>, peers: Vec<Peer>) -> Self {
        let complete = node.is_complete();
        let connections = peers.iter().map(|_| None).collect();
        Self {
            core: Mutex::new(Core { node, connections, generation: 0, complete, grants: 0, now: now() }),
            peers,
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
        core.connections.iter_mut().filter_map(Option::take).for_each(|connection| connection.close());
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

    /// The short way in: see [`Node::handle_reacquire`].
    #[inline]
    pub(crate) fn reacquire(&self, place: u32, lock: &str, mode: Mode, now: Ticks) -> Option<(Ticket, Fence)> {
        let mut core = self.core();
        if self.is_stopped() {
            return None;
        }
        let entered = core.node.handle_reacquire(place, lock, mode, now)?;
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
        let mut core = self.core();
        core.node.handle_cancel(ticket, now());
        self.carry_out(core);
    }

    // ---- connections ----

    pub(crate) fn hello(&self, at: usize) -> Option<Hello> {
        self.core().node.hello(self.peers[at].id)
    }

    pub(crate) fn check(&self, hello: &Hello) -> Result<(), HelloError> {
        self.core().node.check_hello(hello)
    }

    /// A connection stands, and takes the place of an earlier one. Gives its generation.
    pub(crate) fn connect(&self, at: usize, hello: &Hello, connection: Connection) -> Result<u64, String> {
        let mut core = self.core();
        if self.is_stopped() {
            return Err("this node has been stopped".to_owned());
        }
        core.node.handle_hello(hello, now()).map_err(|error| error.to_string())?;
        if let Some(old) = core.connections[at].replace(connection) {
            old.close();
        }
        core.generation += 1;
        let generation = core.generation;
        if let Some(connection) = &mut core.connections[at] {
            connection.generation = generation;
        }
        if !core.complete && core.node.is_complete() {
            core.complete = true;
            self.completed.notify_waiters();
        }
        self.carry_out(core);
        Ok(generation)
    }

    /// Bytes have arrived, encrypted ones if the connection is. An error closes the connection.
    pub(crate) fn receive(&self, at: usize, generation: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        let mut core = self.core();
        let Core { node, connections, .. } = &mut *core;
        let Some(connection) = connections[at].as_mut().filter(|connection| connection.generation == generation) else {
            return Err(ReceiveError::Replaced);
        };
        let peer = self.peers[at].id;
        let mut handled = Ok(());
        let opened =
            connection.open(bytes, |plain| handled = handled.and_then(|()| node.handle_bytes(peer, plain, now())));
        // What came before an error counts.
        self.carry_out(core);
        opened?;
        Ok(handled?)
    }

    /// What came right behind the greeting.
    pub(crate) fn receive_plain(&self, at: usize, generation: u64, bytes: &[u8]) -> Result<(), ReceiveError> {
        let mut core = self.core();
        if core.connections[at].as_ref().is_none_or(|connection| connection.generation != generation) {
            return Err(ReceiveError::Replaced);
        }
        let handled = core.node.handle_bytes(self.peers[at].id, bytes, now());
        self.carry_out(core);
        Ok(handled?)
    }

    /// The connection is gone.
    pub(crate) fn disconnect(&self, at: usize, generation: u64) {
        let mut core = self.core();
        if core.connections[at].as_ref().is_some_and(|connection| connection.generation == generation) {
            core.connections[at] = None;
            core.node.handle_disconnect(self.peers[at].id);
        }
    }

    /// The socket takes bytes again.
    pub(crate) fn flush(&self, at: usize) {
        let mut core = self.core();
        core.flush(at, self.peers[at].id);
    }

    pub(crate) fn timeout(&self) {
        let mut core = self.core();
        core.node.handle_timeout(now());
        self.carry_out(core);
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

impl From<AcquireError> for std::io::Error {
    fn from(error: AcquireError) -> Self {
        let kind = match &error {
            AcquireError::Timeout => std::io::ErrorKind::TimedOut,
            AcquireError::Stopped => std::io::ErrorKind::NotConnected,
            AcquireError::Refused(Refusal::Name) => std::io::ErrorKind::InvalidInput,
            AcquireError::Refused(_) => std::io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use hallpass_core::node::NodeConfig;

    use super::*;

    fn alone() -> Shared {
        Shared::new(Node::new(NodeConfig::new(NodeId(1), [NodeId(1)])).unwrap(), Vec::new())
    }

    fn ask(shared: &Shared, lock: &str) -> Result<Asked, AcquireError> {
        shared.acquire(lock, Mode::Exclusive, Patience::Wait, 0)
    }

    #[test]
    fn a_node_that_has_failed_grants_nothing_more() {
        let shared = alone();
        let Ok(Asked::Granted(ticket, _)) = ask(&shared, "x") else { panic!("it is free") };
        let Ok(Asked::Waiting(_, waiter)) = ask(&shared, "x") else { panic!("it is held") };
        let failed = std::thread::scope(|scope| {
            let fails = || {
                let _core = shared.core();
                panic!("as a bug would");
            };
            scope.spawn(fails).join()
        });
        assert!(failed.is_err() && !shared.is_stopped());
        assert!(!shared.release(ticket), "nobody is let in");
        assert!(shared.is_stopped());
        let mut told = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(matches!(waiter.poll(&mut told), std::task::Poll::Ready(Verdict::Stopped)));
        assert!(matches!(ask(&shared, "y"), Err(AcquireError::Stopped)));
        assert_eq!(shared.reacquire(ticket.place(), "x", Mode::Exclusive, 0), None);
    }

    #[test]
    fn who_waits_when_the_node_is_stopped_is_told() {
        let shared = alone();
        assert!(matches!(ask(&shared, "x"), Ok(Asked::Granted(..))));
        let Ok(Asked::Waiting(_, waiter)) = ask(&shared, "x") else { panic!("it is held") };
        shared.stop();
        let mut told = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(matches!(waiter.poll(&mut told), std::task::Poll::Ready(Verdict::Stopped)));
        assert!(matches!(ask(&shared, "y"), Err(AcquireError::Stopped)));
    }
}
