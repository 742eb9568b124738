//! A running node: the pure one behind a lock, and its connections.
//!
//! No task stands between a socket and the node. A caller or a socket's reader takes the lock, gives the node its input, and carries
//! out the outputs: it writes to the sockets itself. It wakes callers after it has released the lock. The node's own thread
//! ([`tasks`](crate::tasks)) does what must not wait for callers.
//!
//! | file | what it is |
//! |---|---|
//! | `callers.rs` | what callers ask for: locks, guards, requests to the group |
//! | `outputs.rs` | the node's contract: an input, then every output in order |
//! | `peers.rs` | the nodes that this one connects with |
//! | `greetings.rs` | who may connect |
//! | `certificates.rs` | with which keys |
//! | `connections.rs` | connections that are established, and the bytes that they bring |
//! | `lifecycle.rs` | stopping and closing |
//! | `phase.rs` | how far the end has come |

mod callers;
mod certificates;
mod connections;
mod greetings;
mod lifecycle;
mod outputs;
mod peers;
mod phase;

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hallpass_core::{NodeId, Ticks};
use hallpass_node::{Node, RequestError, Ticket, ViewState};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::control::Outbox;
use crate::disk::Job;
use crate::log_limiter::LogLimiters;
use crate::os::{self, now};
use crate::peer::Peer;
use crate::readers::Readers;
use crate::tls::Tls;
use crate::turn::Turn;
use crate::waiter::Waiter;

pub(crate) use callers::{Asked, Granted, Validity};
use connections::LockConnections;
pub(crate) use connections::ReceiveError;
use greetings::Processes;
use phase::{CurrentPhase, Phase};

pub(crate) struct Driver {
    /// This node's name and address, for messages that both sides of a connection read.
    pub(crate) me: String,
    pub(crate) id: NodeId,
    boot_id: u64,
    pub(crate) tls: Option<Arc<Tls>>,
    state: Mutex<State>,
    /// Fairness budget of callers on the fast path.
    pub(crate) turn: Turn,
    /// The nodes that this one must connect with.
    peers: Mutex<BTreeMap<NodeId, Arc<Peer>>>,
    /// Where a group may be found.
    seeds: Mutex<Vec<Arc<Peer>>>,
    /// Limits all log lines that others can trigger and that concern no peer in particular.
    pub(crate) limits: LogLimiters,
    phase: CurrentPhase,
    /// Notified when guards may be lost, or at risk.
    session: Notify,
    /// Notified when locks are granted.
    completed: Notify,
    /// Wakes the node's own thread: there is something to dial, or an earlier deadline.
    pub(crate) wake: Notify,
    /// Reads the lock connections where callers run.
    pub(crate) readers: Readers,
}

/// What the log says about a view.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewSummary {
    pub(crate) state: ViewState,
    pub(crate) epoch: Option<u64>,
    pub(crate) members: usize,
    pub(crate) steward: Option<NodeId>,
}

/// Where the changes go that the node wants to be stored.
enum Storage {
    /// The node has not begun. It takes no input yet: what it asked for before there is a thread that writes would not be written.
    NotBegun,
    /// The node has no directory. A change counts as written at once.
    Nowhere,
    Thread(Sender<Job>),
    /// The node is closed, and another one may have the directory. Nothing is written any more, and nothing counts as written.
    Closed,
}

/// What the node's lock protects.
pub(crate) struct State {
    pub(crate) node: Node<Arc<Waiter>>,
    storage: Storage,
    lock_connections: LockConnections,
    /// The control connections with each peer. The newest is last, and messages are written to that one.
    controls: BTreeMap<NodeId, Vec<Arc<Outbox>>>,
    processes: Processes,
    /// Grants that are lost although the session goes on, and when.
    revoked: BTreeMap<Ticket, Ticks>,
    /// The callers who wait for the answer to a request to the group.
    requests: BTreeMap<u64, oneshot::Sender<Result<(), RequestError>>>,
    next_token: u64,
    /// The stop that was asked for, and how long it may take.
    stopping: Option<(oneshot::Receiver<Result<(), RequestError>>, Duration)>,
    /// Locks were granted after the last input.
    is_complete: bool,
    /// Locks have been granted at some time.
    was_complete: bool,
    /// Something can take away what is held here, unless the session is renewed.
    is_revocable: bool,
    /// The contacts may have changed since they were last looked at.
    view_changed: bool,
    /// When the node's own thread looks at the time next.
    wakes_at: Ticks,
    /// Number of locks granted so far.
    pub(crate) grants: u64,
    /// When the clock was last read, at most a [`TICK`] ago. A release needs no better time: it marks since when a lock is unused,
    /// which is counted in seconds.
    now: Ticks,
}

/// The shortest time that a peer may take to acknowledge data, however short sessions are.
const SILENCE_MIN: Duration = Duration::from_millis(500);
/// How often to look at the time if nothing happens: the system's timers stand still while a machine is suspended.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// What a driver is made of.
pub(crate) struct Parts {
    pub(crate) me: String,
    pub(crate) boot_id: u64,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) seeds: Vec<Arc<Peer>>,
    pub(crate) node: Node<Arc<Waiter>>,
}

impl Driver {
    /// Must be called within a runtime.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { me, boot_id, tls, seeds, node } = parts;
        let (id, is_complete) = (node.id(), node.is_complete());
        let state = State {
            node,
            storage: Storage::NotBegun,
            lock_connections: LockConnections::default(),
            controls: BTreeMap::new(),
            processes: Processes::default(),
            revoked: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_token: 1,
            stopping: None,
            is_complete,
            was_complete: false,
            is_revocable: false,
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
            phase: CurrentPhase::new(),
            session: Notify::new(),
            completed: Notify::new(),
            wake: Notify::new(),
            readers: Readers::start(&Handle::current()),
        })
    }

    /// Begins, with the thread that writes if the node has a directory. What the node has asked for already is carried out now.
    pub(crate) fn begin(&self, disk: Option<Sender<Job>>) {
        self.tell_own_key();
        let mut state = self.state();
        state.storage = disk.map_or(Storage::Nowhere, Storage::Thread);
        self.drain_and_schedule(state);
    }

    /// Locks the node, for a look or an input.
    ///
    /// A panic under the lock may have left the node in any state. The next caller closes it: it sends and grants nothing more. So
    /// [`is_stopped`](Self::is_stopped) must be read after this call.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            let state = poisoned.into_inner();
            if !self.phase.advance(Phase::Closed) {
                return state;
            }
            tracing::error!("the node has failed and stops; this is a bug: please report what was printed before");
            self.close(state);
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Makes the system give up a connection when half a session has brought no acknowledgement of its data. Only a connection that works
    /// keeps a session and hands over locks.
    pub(crate) fn limit_silence(&self, stream: &TcpStream) -> std::io::Result<()> {
        let ttl = Duration::from_nanos(self.state().node.status().ttl);
        os::give_up_after(stream, (ttl / 2).max(SILENCE_MIN))
    }

    /// The node's view: its state, its number, its size and the steward.
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
}

impl State {
    /// Reads the clock. The node's time does not go back: two readings may contradict each other by a few microseconds.
    #[inline]
    fn read_clock(&mut self) -> Ticks {
        self.now = self.now.max(now());
        self.now
    }
}

#[cfg(test)]
mod tests;
