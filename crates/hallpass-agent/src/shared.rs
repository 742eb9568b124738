//! The state that an agent shares with its front doors: the node, the clients, and whether it is about to end.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hallpass::{GroupError, Guard, Node, Status};
use hallpass_node::leases::Bounds;
use tokio::sync::{mpsc, oneshot, watch};

use crate::lines::Lines;
use crate::marks::Marks;
use crate::os;
use crate::outcome::{Ended, GroupFault};
use crate::registry::{Clients, Counts, Event, EventKind, Events};

/// The state that an agent shares with its front doors.
///
/// - **Asked by doors**: [`node`](Self::node), [`ttl`](Self::ttl), [`bounds`](Self::bounds), [`may_grant`](Self::may_grant),
///   [`settled`](Self::settled), [`ends`](Self::ends).
/// - **Asked of the agent**: [`join`](Self::join), [`leave`](Self::leave), [`stop`](Self::stop).
/// - **Done by the agent**: [`replace_node`](Self::replace_node), [`set_settled`](Self::set_settled),
///   [`begin_ending`](Self::begin_ending).
pub(crate) struct AgentShared {
    node: Mutex<Arc<CurrentNode>>,
    /// False while the agent goes from one group to another.
    settled: watch::Sender<bool>,
    marks: Marks,
    pub(crate) private: bool,
    pub(crate) clients: Arc<Clients>,
    pub(crate) events: Arc<Events>,
    pub(crate) counts: Arc<Counts>,
    joins: mpsc::Sender<Join>,
    /// Why the agent is to end, once it is.
    stop: watch::Sender<Option<Ended>>,
    /// How long the group has to let the agent go.
    leave_limit: Mutex<Duration>,
    /// True when clients are to release what they hold.
    ending: watch::Sender<bool>,
    /// When the agent stops granting, once it ends: nobody is told to hold anything for longer.
    ending_at: OnceLock<u64>,
    /// Connections of clients who asked the agent to leave. They are closed when it has.
    leaving: Mutex<Vec<Lines>>,
}

/// A client wants the agent to join a group.
pub(crate) struct Join {
    pub(crate) address: String,
    pub(crate) limit: Duration,
    pub(crate) answer: oneshot::Sender<Result<(), GroupFault>>,
}

/// The agent's node. Another node takes its place when the agent joins a group.
struct CurrentNode {
    node: Node,
    /// How long sessions last in its group, once it is in one.
    ttl: OnceLock<Duration>,
    drift_ppm: u32,
    /// The group and the node, as numbers.
    identity: OnceLock<(u64, u64)>,
}

impl CurrentNode {
    fn new(node: Node) -> Arc<Self> {
        let drift_ppm = node.status().drift_ppm;
        Arc::new(Self { node, ttl: OnceLock::new(), drift_ppm, identity: OnceLock::new() })
    }
}

impl AgentShared {
    /// Requests of clients to join a group come out of the receiver.
    pub(crate) fn new(node: Node, marks: Marks, private: bool) -> (Arc<Self>, mpsc::Receiver<Join>) {
        let (joins, receiver) = mpsc::channel(1);
        let (counts, events) = (Arc::new(Counts::default()), Arc::new(Events::default()));
        let shared = Self {
            node: Mutex::new(CurrentNode::new(node)),
            settled: watch::Sender::new(true),
            marks,
            private,
            clients: Clients::new(Arc::clone(&counts), Arc::clone(&events)),
            events,
            counts,
            joins,
            stop: watch::Sender::new(None),
            leave_limit: Mutex::default(),
            ending: watch::Sender::new(false),
            ending_at: OnceLock::new(),
            leaving: Mutex::default(),
        };
        (Arc::new(shared), receiver)
    }

    // ---- the node ----

    pub(crate) fn node(&self) -> Node {
        self.current().node.clone()
    }

    pub(crate) fn replace_node(&self, node: Node) {
        *lock(&self.node) = CurrentNode::new(node);
    }

    fn current(&self) -> Arc<CurrentNode> {
        Arc::clone(&lock(&self.node))
    }

    /// The group and the node in it, as numbers: etcd's clients are told them with every answer.
    pub(crate) fn identity(&self) -> (u64, u64) {
        let current = self.current();
        *current.identity.get_or_init(|| {
            let status = current.node.status();
            // FNV-1a: a name as a number.
            let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            (status.group.bytes().fold(0xcbf2_9ce4_8422_2325, hash), u64::from(status.id))
        })
    }

    /// By how much clocks may differ in their rates, in millionths.
    pub(crate) fn drift_ppm(&self) -> u32 {
        self.current().drift_ppm
    }

    /// How long a session lasts. It does not change once the node is in a group.
    pub(crate) fn ttl(&self) -> Duration {
        let current = self.current();
        if let Some(ttl) = current.ttl.get() {
            return *ttl;
        }
        let status = current.node.status();
        if status.epoch.is_some() {
            let _ = current.ttl.set(status.ttl);
        }
        status.ttl
    }

    /// The node's status, as people see it. Nothing is certain beyond the end of an agent that ends.
    pub(crate) fn node_status(&self) -> Status {
        let mut status = self.node().status();
        status.session = [status.session, self.ending_left()].into_iter().flatten().min();
        status
    }

    /// Resolves when the node has failed.
    pub(crate) async fn failed(&self) {
        loop {
            let current = self.current();
            current.node.stopped().await;
            // Or it was replaced.
            self.settled().await;
            if Arc::ptr_eq(&current, &lock(&self.node)) {
                return;
            }
        }
    }

    /// Resolves when the agent is not about to go from one group to another.
    pub(crate) async fn settled(&self) {
        let _ = self.settled.subscribe().wait_for(|settled| *settled).await;
    }

    pub(crate) fn set_settled(&self, settled: bool) {
        self.settled.send_replace(settled);
    }

    // ---- deadlines ----

    /// Bounds the deadlines of clients that hold these, by the clock that they share with the agent. Call
    /// [`prepare_to_tell`](Self::prepare_to_tell) before: what is not written down is not told.
    pub(crate) fn bounds<'a>(&self, guards: impl Iterator<Item = &'a Guard>) -> Bounds {
        let session = self.ttl();
        let covered = self.marks.persisted().min(session);
        // Read before the node's clock is: so nothing is certain for longer by this clock than by the node's.
        let (shared, own) = (os::now(), Instant::now());
        let until = guards.filter_map(Guard::valid_until).min();
        let held_until = until.map(|until| shared + until.saturating_duration_since(own).as_nanos() as u64);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (end, drift_ppm) = (self.ending_at.get().copied(), self.drift_ppm());
        Bounds { held_until, end, covered: nanos(covered), session: nanos(session), drift_ppm }
    }

    /// Writes down what [`bounds`](Self::bounds) needs, where that is possible. The disk may be slow, so the caller holds nothing that
    /// others wait for.
    pub(crate) fn prepare_to_tell(&self) {
        self.marks.persist_deadline_unless_busy(self.ttl().as_millis() as u64);
    }

    /// An error if clients might outlive this agent by more than the next one would wait: then nothing is granted.
    pub(crate) fn may_grant(&self) -> Result<(), String> {
        self.marks.persist_deadline(self.ttl().as_millis() as u64)
    }

    // ---- marks ----

    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Writes down that the agent's paths belong to a member of the node's group.
    pub(crate) fn mark_membership(&self) -> std::io::Result<()> {
        self.marks.set_group(self.node().status().group);
        self.marks.write()
    }

    /// Writes down that others are in the group, once they are.
    pub(crate) fn mark_shared(&self) {
        let node = self.node();
        if self.marks.is_shared() || node.members().iter().filter(|member| member.in_view).count() < 2 {
            return;
        }
        if let Err(error) = self.marks.write_shared(node.status().group) {
            tracing::debug!(%error, "cannot write down that others are in this agent's group");
        }
    }

    // ---- joining and ending ----

    /// Asks the agent to join a group.
    pub(crate) async fn join(&self, address: String, limit: Duration) -> Result<(), GroupFault> {
        let (answer, answered) = oneshot::channel();
        let stopped = || GroupFault::Group(GroupError::Stopped);
        self.joins.send(Join { address, limit, answer }).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    /// Ends the agent for good. The group has this long to let it go.
    pub(crate) fn leave(&self, limit: Duration) {
        *lock(&self.leave_limit) = limit;
        self.stop(Ended::Left);
    }

    pub(crate) fn leave_limit(&self) -> Duration {
        *lock(&self.leave_limit)
    }

    /// Keeps the connection of a client that asked the agent to leave.
    pub(crate) fn answer_when_left(&self, client: Lines) {
        lock(&self.leaving).push(client);
    }

    /// The connections that were [kept](Self::answer_when_left).
    pub(crate) fn take_leaving(&self) -> Vec<Lines> {
        std::mem::take(&mut lock(&self.leaving))
    }

    /// Ends the agent. The first reason counts.
    pub(crate) fn stop(&self, why: Ended) {
        self.stop.send_modify(|stop| *stop = stop.or(Some(why)));
    }

    /// Resolves when the agent is to end.
    pub(crate) async fn stopped(&self) -> Ended {
        let mut stop = self.stop.subscribe();
        let why = stop.wait_for(Option::is_some).await.ok().and_then(|why| *why);
        why.unwrap_or(Ended::Stopped)
    }

    /// Tells clients to release what they hold. Returns when the agent stops granting: a session from now.
    pub(crate) fn begin_ending(&self) -> u64 {
        let session = self.ttl().as_nanos() as u64;
        let _ = self.ending_at.set(os::now() + session);
        // Deadlines told without knowing of this end were told before this moment, and for a session at most.
        let stop_at = os::now() + session;
        self.events.send(EventKind::Ending, Event::default);
        self.ending.send_replace(true);
        stop_at
    }

    /// Resolves when clients are to release what they hold.
    pub(crate) async fn ends(&self) {
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    /// The agent ends: clients are to release what they hold.
    pub(crate) fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// How long the agent goes on holding what it has granted, once it ends.
    pub(crate) fn ending_left(&self) -> Option<Duration> {
        self.ending_at.get().map(|at| Duration::from_nanos(at.saturating_sub(os::now())))
    }

    /// The agent has come to its end: nothing that it has granted is certain any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending_left().is_some_and(|left| left.is_zero())
    }
}

impl std::fmt::Debug for AgentShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentShared").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
