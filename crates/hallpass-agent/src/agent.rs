use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hallpass::{Builder, DataDirectory, GroupError, Guard, Node, StartError, Status};
use hallpass_node::leases::Bounds;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::api::Response;
use crate::http::{Server, ServerOptions};
use crate::lines::Lines;
use crate::os::{self, Claim, Connection, Door, Found};
use crate::service::counts::Counts;
use crate::service::{Clients, Event, Events, Kind, Leases, Watcher};
use crate::session::Session;

/// Bounds the memory and the descriptors that clients take: each has one connection.
const CLIENTS_MAX: usize = 10_000;
/// How often an agent tries to make its data directory again before it gives up.
const REPAIRS_MAX: u32 = 3;
/// How long to wait after a connection could not be accepted, usually for want of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long an agent that may be alone waits until it is.
const FOUNDING_TIME: Duration = Duration::from_secs(1);
/// The pause before a node is started again that could not be.
const START_RETRY: Duration = Duration::from_millis(500);
/// How often at most to try to write a mark again that could not be written.
const MARK_RETRY: Duration = Duration::from_secs(1);
/// How often to look whether the agent's files are still there.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Why an agent could not be started, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another agent has the socket. Nothing has changed.
    #[error("another agent already listens at {0}; stop it or give this one another --socket")]
    Taken(PathBuf),
    /// The node could not be started.
    #[error("{0}")]
    Start(#[from] StartError),
    /// The socket cannot be created.
    #[error("cannot listen at {path}: {source}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The data directory cannot be written.
    #[error("cannot write to {path}: {source}")]
    Data {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another agent of this user has this path, though it may have lost the files there.
    #[error("another agent uses {0}; end that one first, or let this one use another")]
    Claimed(PathBuf),
    /// The files of the data directory are gone, so that another agent could be started with it. This one has ended.
    #[error(
        "the agent's data directory {0} was removed or replaced, so it has ended; leave it alone while an agent runs"
    )]
    DataGone(PathBuf),
    /// The agent here was in a group with others, and would found another one of the same name.
    #[error(
        "the agent here was in group '{group}' with others, and its data directory {data} is new: alone it would found a second group \
         of that name. Start it with --join and the address of a member; if the group is no more, remove {mark}"
    )]
    WasShared {
        /// The group.
        group: String,
        /// The directory.
        data: PathBuf,
        /// What says so.
        mark: PathBuf,
    },
    /// The API cannot be served as it is set up.
    #[error("{0}")]
    Api(String),
    /// There is no such group of users.
    #[error("there is no group of users '{0}' on this machine; socket_group wants a group's name or number")]
    Group(String),
    /// The node has stopped by itself. Its clients have been disconnected.
    #[error("the agent's node has failed; the log says why")]
    Failed,
}

/// How an agent serves its clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentOptions {
    /// The socket for clients. Its directory is created if it is missing.
    pub socket: PathBuf,
    /// What must outlive the agent, and a reboot, is kept in this directory.
    pub data: PathBuf,
    /// The members of this group of users may use the socket, beside the agent's own user: a group's name or number. The
    /// default is nobody else.
    pub socket_group: Option<String>,
    /// A file that says that this place belongs to a member of a group. It is written when that is so, and removed only when the
    /// agent is asked to [leave](crate::api::Request::Leave), so that after any other end nobody takes the place for a free one.
    /// The default is none.
    pub member_file: Option<PathBuf>,
    /// The place belongs to a member of a group from the start. It does, too, from when the agent is asked to
    /// [join](crate::api::Request::Join) one. The default is false.
    pub is_member: bool,
    /// The agent was started by a client for its user alone. Its clients are told.
    pub private: bool,
    /// How long a session lasts in a group that the agent's node founds. After an agent was killed the next one waits so long before it
    /// grants anything; so do the other members. The default is [`TTL_DEFAULT`](Self::TTL_DEFAULT). Longer sessions outlast longer
    /// disturbances and give clients more time to end, and delay whoever is next.
    pub ttl: Duration,
    /// The agent ends after so long without clients. The default is never.
    pub idle_limit: Option<Duration>,
    /// How the API is reached. The default is not at all.
    pub api: ApiOptions,
}

impl AgentOptions {
    /// The default of [`ttl`](Self::ttl).
    pub const TTL_DEFAULT: Duration = Duration::from_secs(5);

    /// The defaults, with this socket and this data directory.
    pub fn new(socket: impl Into<PathBuf>, data: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            data: data.into(),
            socket_group: None,
            member_file: None,
            is_member: false,
            private: false,
            ttl: Self::TTL_DEFAULT,
            idle_limit: None,
            api: ApiOptions::default(),
        }
    }
}

/// How an agent's API is reached: HTTP over TCP, over a Unix socket, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiOptions {
    /// The address to listen on, `host:port`. One that other machines can reach needs [`tls`](Self::tls) and
    /// [`tokens`](Self::tokens). The default is none.
    pub listen: Option<String>,
    /// The Unix socket, beside the one for lines. The same users may use it. The default is none.
    pub socket: Option<PathBuf>,
    /// A certificate and its key, in PEM. The default is none.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Connections on loopback are encrypted, too. The default is false.
    pub tls_on_loopback: bool,
    /// A [file of tokens](crate::tokens). With one, clients over TCP need a token, on loopback too. The default is none.
    pub tokens: Option<PathBuf>,
}

impl ApiOptions {
    fn is_empty(&self) -> bool {
        self.listen.is_none() && self.socket.is_none()
    }
}

/// How an agent has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// It was [stopped](Agent::stopper). It may be started again.
    Stopped,
    /// A client asked it to [leave](crate::api::Request::Leave).
    Left,
    /// It had no clients for as long as [`idle_limit`](AgentOptions::idle_limit) says.
    Idle,
}

/// An agent: a node, and a socket for the processes of its machine.
///
/// - **Start**: [`Agent::start`], then [`serve`](Self::serve) until it ends.
/// - **End**: by [`stopper`](Self::stopper), by a client's [`Leave`](crate::api::Request::Leave), or by itself after
///   [`idle_limit`](AgentOptions::idle_limit). Clients that hold locks are told, and have one session to end. Until they have,
///   or the session is over, the agent keeps its socket and its data directory, so that nobody else is let in.
#[derive(Debug)]
pub struct Agent {
    door: Door,
    /// The directory of the socket was created for this agent.
    created_directory: bool,
    socket_group: Option<u32>,
    /// What its node was made from, to make another one that joins a group.
    builder: Builder,
    /// None for a moment, when the agent goes from one group to another.
    data: Option<Arc<DataDirectory>>,
    claims: [Claim; 2],
    /// The rights on the directory above the data: others may have to look there for what it says about the agent.
    parent_mode: Option<u32>,
    /// How often in a row its data directory could not be made again.
    failed_repairs: u32,
    state: Arc<State>,
    joins: mpsc::Receiver<Join>,
    idle_limit: Option<Duration>,
    log: RareLines,
    /// Ends leases that are over.
    _watcher: Watcher,
    api: ApiOptions,
    server: Option<Server>,
}

/// A client wants the agent to join a group.
struct Join {
    address: String,
    limit: Duration,
    answer: oneshot::Sender<Result<(), GroupFault>>,
}

/// Why something that was asked of the group was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupFault {
    #[error("{0}")]
    Group(#[from] GroupError),
    #[error("{0}")]
    Refused(String),
}

/// How a node has left for good, so that nobody counts on it.
enum Leaving {
    /// There was nobody to leave.
    Alone,
    /// The others in its group have let it go.
    LetGo,
}

/// Log lines that clients can cause as often as they like: at most one in a while is written.
#[derive(Debug, Default)]
struct RareLines {
    last: Option<Instant>,
    left_out: u64,
}

impl RareLines {
    const INTERVAL: Duration = Duration::from_secs(60);

    /// How many were left out since the last one, if it is time for another.
    fn due(&mut self) -> Option<u64> {
        if self.last.is_some_and(|last| last.elapsed() < Self::INTERVAL) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Files that tell others of an agent that does not run.
#[derive(Debug)]
pub(crate) struct Marks {
    /// Exists while an agent runs, and after one whose clients may still hold locks. It says for how many milliseconds they may.
    running: PathBuf,
    /// What it says.
    covered_ms: AtomicU64,
    /// Held while it is written: when that failed, if it did, and why.
    failed: Mutex<Failed>,
    /// Exists while the place belongs to a member of a group.
    member: Option<PathBuf>,
    /// The group that it belongs to, once it does.
    group: OnceLock<String>,
    /// Exists from when the group has had more than one member.
    shared: PathBuf,
}

/// A mark that could not be written.
#[derive(Debug, Default)]
struct Failed {
    last: Option<(Instant, String)>,
    log: RareLines,
}

impl Marks {
    /// Writes them again, as they are.
    fn write(&self) -> std::io::Result<()> {
        let _writing = lock(&self.failed);
        self.write_all(self.covered_ms.load(Ordering::Relaxed))
    }

    /// How long the next agent waits, at least.
    fn covered(&self) -> Duration {
        Duration::from_millis(self.covered_ms.load(Ordering::Acquire))
    }

    fn is_covered(&self, needed_ms: u64) -> bool {
        self.covered_ms.load(Ordering::Acquire) >= needed_ms
    }

    /// Has the mark say at least so much. An error if it does not, and could not be written.
    fn cover(&self, needed_ms: u64) -> Result<(), String> {
        if self.is_covered(needed_ms) { Ok(()) } else { self.try_to_cover(lock(&self.failed), needed_ms) }
    }

    /// The same, unless somebody is at it: on a disk that hangs only one waits.
    fn cover_unless_busy(&self, needed_ms: u64) {
        if !self.is_covered(needed_ms)
            && let Ok(failed) = self.failed.try_lock()
        {
            let _ = self.try_to_cover(failed, needed_ms);
        }
    }

    fn try_to_cover(&self, mut failed: MutexGuard<'_, Failed>, needed_ms: u64) -> Result<(), String> {
        if self.is_covered(needed_ms) {
            return Ok(());
        }
        if let Some((_, why)) = failed.last.as_ref().filter(|(at, _)| at.elapsed() < MARK_RETRY) {
            return Err(why.clone());
        }
        match self.write_all(needed_ms) {
            Ok(()) => {
                self.covered_ms.store(needed_ms, Ordering::Release);
                failed.last = None;
                Ok(())
            }
            Err(error) => {
                if failed.log.due().is_some() {
                    tracing::error!(%error, "cannot write down how long clients may outlive this agent: it grants nothing");
                }
                failed.last = Some((Instant::now(), error.to_string()));
                Err(error.to_string())
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn set_covered(&self, covered: Duration) {
        self.covered_ms.store(covered.as_millis() as u64, Ordering::Release);
    }

    #[cfg(test)]
    pub(crate) fn is_writing(&self) -> bool {
        self.failed.try_lock().is_err()
    }

    fn write_all(&self, covered_ms: u64) -> std::io::Result<()> {
        write_durably(&self.running, &covered_ms.to_string())?;
        match (&self.member, self.group.get()) {
            (Some(file), Some(group)) => write_durably(file, group),
            _ => Ok(()),
        }
    }
}

/// What an agent shares with the sessions of its clients.
pub(crate) struct State {
    member: Mutex<Arc<Member>>,
    /// False while the agent goes from one group to another.
    settled: watch::Sender<bool>,
    marks: Marks,
    pub(crate) private: bool,
    pub(crate) clients: Clients,
    pub(crate) client_left: Notify,
    pub(crate) leases: Leases,
    pub(crate) events: Events,
    pub(crate) counts: Counts,
    join: mpsc::Sender<Join>,
    /// Why the agent is to end, once it is.
    stop: watch::Sender<Option<Ended>>,
    /// How long the group has to let the agent go.
    leave_limit: Mutex<Duration>,
    /// True when clients are to release what they hold.
    pub(crate) ending: watch::Sender<bool>,
    /// When the agent stops granting, once it ends: nobody is told to hold anything for longer.
    ending_at: OnceLock<u64>,
    /// Connections of clients who asked the agent to leave. They are closed when it has.
    pub(crate) leaving: Mutex<Vec<Lines>>,
}

/// The agent's node: another one after it has joined a group.
struct Member {
    node: Node,
    /// How long sessions last in its group, once it is in one.
    ttl: OnceLock<Duration>,
    drift_ppm: u32,
    /// The group and the node, as numbers.
    identity: OnceLock<(u64, u64)>,
}

impl Member {
    fn new(node: Node) -> Arc<Self> {
        let drift_ppm = node.status().drift_ppm;
        Arc::new(Self { node, ttl: OnceLock::new(), drift_ppm, identity: OnceLock::new() })
    }
}

impl Agent {
    /// Starts a node, and listens at the socket.
    ///
    /// If the last agent was killed, its clients may outlive it by up to half a session. Then nothing of this one, not even its
    /// node, takes part in anything before a whole session is over. It holds the data directory meanwhile, so that no other agent
    /// is started beside it.
    pub async fn start(builder: Builder, options: AgentOptions) -> Result<Self, ServeError> {
        let AgentOptions { socket, data, socket_group, member_file, is_member, private, ttl, idle_limit, api } =
            options;
        let fail = |source| ServeError::Socket { path: socket.clone(), source };
        let number = |group: String| os::group_number(&group).ok_or(ServeError::Group(group));
        let socket_group = socket_group.map(number).transpose()?;
        let created_directory = os::create_socket_directory(&socket, socket_group).map_err(fail)?;
        check_free(&socket)?;
        // What is wrong with it is said at once, not after old sessions have been waited for.
        let server = if api.is_empty() { None } else { Some(ServerOptions::check(&api).await?) };
        api.socket.as_deref().map_or(Ok(()), check_free)?;
        // Claimed before it is opened, which counts a start. An error here will come again there.
        let _ = os::create_private_directory(&data);
        let parent_mode = os::mode(data.parent());
        let claim = |path: &Path| Claim::of(path).ok_or_else(|| ServeError::Claimed(path.to_owned()));
        let claims = [claim(&data)?, claim(&socket)?];
        let directory = Arc::new(DataDirectory::open(&data)?);
        let shared = shared_mark(&data);
        if let Ok(group) = std::fs::read_to_string(&shared)
            && !directory.is_in_group()
            && builder.founds_alone()
        {
            return Err(ServeError::WasShared { group: group.escape_debug().to_string(), data, mark: shared });
        }
        mark_private(&data, private).map_err(|source| ServeError::Data { path: data.clone(), source })?;
        wait_for_old_sessions(&socket, &data.join("running"), ttl).await;
        let builder = builder.ttl(ttl);
        let node = builder.clone().data_directory(Arc::clone(&directory)).start().await?;
        if !is_member {
            // A group of one is there in a moment: whoever only tries must not come too early.
            let _ = tokio::time::timeout(FOUNDING_TIME, node.ready()).await;
        }
        check_free(&socket)?;
        let door = Door::open(&socket, socket_group).map_err(fail)?;
        let marks = Marks {
            running: data.join("running"),
            covered_ms: AtomicU64::new(ttl.as_millis() as u64),
            failed: Mutex::default(),
            member: member_file,
            group: OnceLock::new(),
            shared,
        };
        if is_member {
            let _ = marks.group.set(node.status().group);
        }
        marks.write().map_err(|source| ServeError::Data { path: data, source })?;
        let (join, joins) = mpsc::channel(1);
        let state = State {
            member: Mutex::new(Member::new(node)),
            settled: watch::Sender::new(true),
            marks,
            private,
            clients: Clients::default(),
            client_left: Notify::new(),
            leases: Leases::default(),
            events: Events::default(),
            counts: Counts::default(),
            join,
            stop: watch::Sender::new(None),
            leave_limit: Mutex::default(),
            ending: watch::Sender::new(false),
            ending_at: OnceLock::new(),
            leaving: Mutex::default(),
        };
        let (state, log) = (Arc::new(state), RareLines::default());
        let watcher = Watcher::start(Arc::clone(&state));
        let server = server.map(|server| Server::start(server, &state, socket_group)).transpose()?;
        Ok(Self {
            door,
            created_directory,
            socket_group,
            builder,
            data: Some(directory),
            claims,
            parent_mode,
            failed_repairs: 0,
            state,
            joins,
            idle_limit,
            log,
            _watcher: watcher,
            api,
            server,
        })
    }

    /// What all front doors stand on.
    #[cfg(test)]
    pub(crate) fn service(&self) -> crate::service::Service {
        crate::service::Service::new(Arc::clone(&self.state))
    }

    /// Where the API listens on TCP, if it does.
    pub fn api_address(&self) -> Option<SocketAddr> {
        self.server.as_ref().and_then(|server| server.address)
    }

    /// The agent's node. It is another one after the agent was asked to [join](crate::api::Request::Join) a group.
    pub fn node(&self) -> Node {
        self.state.node()
    }

    /// Serves clients until the agent ends.
    pub async fn serve(mut self) -> Result<Ended, ServeError> {
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        let state = Arc::clone(&self.state);
        let idle = state.idle_for(self.idle_limit);
        tokio::pin!(idle);
        let result = loop {
            let accepted = tokio::select! {
                accepted = self.door.listener.accept() => accepted,
                why = self.state.stopped() => break Ok(why),
                () = self.state.failed() => break Err(ServeError::Failed),
                Some(join) = self.joins.recv() => {
                    self.join(join).await;
                    continue;
                }
                () = &mut idle => break Ok(Ended::Idle),
                _ = checks.tick() => match self.check_files() {
                    Ok(()) => continue,
                    Err(error) => break Err(error),
                },
            };
            match accepted {
                Ok((connection, _)) => self.serve_client(connection),
                Err(error) => {
                    if let Some(left_out) = self.log.due() {
                        tracing::warn!(%error, left_out, "cannot accept a client; if files are short, raise 'ulimit -n'");
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        };
        self.end(&result).await;
        result
    }

    /// A function that ends the agent.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + use<> {
        let state = Arc::clone(&self.state);
        move || state.stop(Ended::Stopped)
    }

    /// Somebody may have removed what the agent is reached by, or what keeps other agents from being started beside it.
    fn check_files(&mut self) -> Result<(), ServeError> {
        self.claims.iter().for_each(Claim::drain);
        if let Some(data) = self.data.as_ref().filter(|data| !data.is_intact()) {
            // No other agent can have been started meanwhile if the claims were kept.
            let is_ours = self.claims.iter().all(Claim::is_exclusive);
            os::create_again(data.path().parent(), self.parent_mode);
            let repaired = is_ours && data.repair().and_then(|()| self.state.marks.write()).is_ok();
            let path = data.path();
            self.failed_repairs = if repaired { 0 } else { self.failed_repairs + 1 };
            if !is_ours || self.failed_repairs >= REPAIRS_MAX {
                return Err(ServeError::DataGone(path.to_owned()));
            }
            if !repaired {
                // Whoever removes it may not be done yet.
                return Ok(());
            }
            tracing::warn!(data = %path.display(), "somebody removed the data directory; it has been made again");
        }
        if !self.door.is_reachable() {
            let path = self.door.path().to_owned();
            let _ = os::create_socket_directory(&path, self.socket_group);
            match check_free(&path).map(|()| Door::open(&path, self.socket_group)) {
                Ok(Ok(door)) => {
                    self.door = door;
                    tracing::warn!(socket = %path.display(), "somebody removed the socket; it has been made again");
                }
                Ok(Err(error)) if self.log.due().is_some() => {
                    tracing::warn!(socket = %path.display(), %error, "somebody removed the socket");
                }
                Err(error) if self.log.due().is_some() => tracing::warn!(%error, "somebody replaced the socket"),
                _ => {}
            }
        }
        self.check_api();
        self.state.mark_shared();
        Ok(())
    }

    /// The API's socket is made again, too. Connections stay: only the file was gone.
    fn check_api(&mut self) {
        let reachable = self.server.as_ref().is_none_or(Server::is_reachable);
        let Some(path) = self.api.socket.as_deref().filter(|_| !reachable) else { return };
        let _ = os::create_socket_directory(path, self.socket_group);
        if check_free(path).is_ok()
            && let Some(Ok(())) = self.server.as_mut().map(|server| server.open_again(path, self.socket_group))
        {
            tracing::warn!(socket = %path.display(), "somebody removed the API's socket; it has been made again");
        }
    }

    fn serve_client(&mut self, connection: Connection) {
        let state = Arc::clone(&self.state);
        if state.clients.len() >= CLIENTS_MAX {
            if let Some(left_out) = self.log.due() {
                tracing::warn!(left_out, "refused a client: there are {CLIENTS_MAX} already");
            }
            return;
        }
        let session = Session::new(state, connection);
        tokio::spawn(session.run());
    }

    /// Leaves the group that the node is alone in, or waits to found, and joins another one as a new node.
    async fn join(&mut self, join: Join) {
        let Join { address, limit, answer } = join;
        self.state.settled.send_replace(false);
        let node = self.state.node();
        let prepared = self.check_join(&node, &address, limit).await;
        let builder = match prepared {
            Ok(builder) => builder,
            Err(why) => {
                self.state.settled.send_replace(true);
                let _ = answer.send(Err(why));
                return;
            }
        };
        let deadline = Instant::now() + limit;
        let is_new = builder.is_some();
        let become_new = match builder {
            Some(builder) => self.become_new(&node, builder).await,
            None => Ok(()),
        };
        self.state.settled.send_replace(true);
        if become_new.is_err() {
            let _ = answer.send(become_new);
            return;
        }
        if let Some(error) = self.state.belongs_to_group().err() {
            tracing::warn!(%error, "cannot write down that this place belongs to a member of a group");
        }
        tracing::info!(address, "the agent joins a group");
        let node = self.state.node();
        tokio::spawn(async move {
            let left = deadline.saturating_duration_since(Instant::now());
            let joined = if is_new {
                tokio::time::timeout(left, node.ready()).await.map_err(|_| GroupError::Timeout)
            } else {
                node.join(&address, left).await
            };
            let _ = answer.send(joined.map_err(GroupFault::Group));
        });
    }

    /// What the new node is made from if this one has a group of its own to give up, or one that it waits to found; none if it only waits to
    /// join one. Otherwise nothing has changed.
    async fn check_join(&self, node: &Node, address: &str, limit: Duration) -> Result<Option<Builder>, GroupFault> {
        let refuse = |why: String| Err(GroupFault::Refused(why));
        if self.state.private {
            return refuse("a private agent joins no group; start another one with 'hallpass agent'".to_owned());
        }
        self.check_unused(node)?;
        let builder = match self.builder.clone().only_join(address) {
            Ok(builder) => builder,
            Err(error) => return refuse(format!("{error}; nothing has changed")),
        };
        let host = address.split_once('@').map_or(address, |(_, host)| host);
        match tokio::time::timeout(limit, TcpStream::connect(host)).await {
            Ok(Ok(stream)) if is_own(&stream, node.address()) => {
                refuse(format!("{host} is the address of this agent itself; nothing has changed"))
            }
            Ok(Ok(_)) => {
                // That took a while.
                self.check_unused(node)?;
                let gives_up = node.status().group_id.is_some() || !self.builder.only_joins();
                Ok(gives_up.then_some(builder))
            }
            Ok(Err(error)) => refuse(format!("nobody answers at {host}: {error}; nothing has changed")),
            Err(_) => Err(GroupFault::Group(GroupError::Timeout)),
        }
    }

    /// An error if others are in the node's group, or clients use it.
    fn check_unused(&self, node: &Node) -> Result<(), GroupFault> {
        check_alone(node)?;
        if self.state.clients.uses_any() {
            return Err(GroupFault::Refused(
                "clients of this agent hold locks or wait for them; try again when they have ended".to_owned(),
            ));
        }
        Ok(())
    }

    /// Replaces the node by a new one that has no group yet. What keeps that from starting, such as a full disk, passes or is seen to: it is
    /// tried again until the agent is stopped, which is all that its clients could do with an agent that has ended. An error if it was, or
    /// if others have come into the node's group: then it goes on with them.
    async fn become_new(&mut self, node: &Node, builder: Builder) -> Result<(), GroupFault> {
        node.stop().await;
        // From here on nobody comes any more.
        let alone = check_alone(node);
        let Some(data) = self.data.take() else { return Err(GroupFault::Group(GroupError::Stopped)) };
        let path = data.path().to_owned();
        // The claims keep other agents out while the directory is not locked.
        drop(data);
        let builder = if alone.is_ok() { builder } else { self.builder.clone() };
        while let Err(error) = self.start_anew(&path, &builder, alone.is_ok()).await {
            tracing::error!(%error, "the agent has no node: it cannot be started again; trying again");
            self.serve_without_node(START_RETRY).await?;
        }
        self.builder = builder;
        alone
    }

    /// Clients can ask what is the matter, and end the agent: then an error.
    async fn serve_without_node(&mut self, time: Duration) -> Result<(), GroupFault> {
        let state = Arc::clone(&self.state);
        let end = tokio::time::sleep(time);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return Ok(()),
                _ = state.stopped() => return Err(GroupFault::Group(GroupError::Stopped)),
                Ok((connection, _)) = self.door.listener.accept() => self.serve_client(connection),
            }
        }
    }

    async fn start_anew(&mut self, path: &Path, builder: &Builder, forgets: bool) -> Result<(), StartError> {
        let directory = match &self.data {
            Some(directory) => Arc::clone(directory),
            None => {
                if forgets {
                    DataDirectory::forget(path)?;
                }
                let directory = Arc::new(DataDirectory::open(path)?);
                Arc::clone(self.data.insert(directory))
            }
        };
        *lock(&self.state.member) = Member::new(builder.clone().data_directory(directory).start().await?);
        Ok(())
    }

    /// Lets clients end that hold locks, then stops granting. The socket stays until then, so that nobody takes the place for a
    /// free one, and new clients are sent away. The next agent need not wait if nobody holds a lock. A lock that was granted
    /// counts as held, though its client may not have read the grant yet.
    async fn end(self, result: &Result<Ended, ServeError>) {
        let session = self.state.ttl().as_nanos() as u64;
        let _ = self.state.ending_at.set(os::now() + session);
        // Whatever is told without knowing of this end was told before this moment, and for a session at most.
        let stop_at = os::now() + session;
        self.state.events.send(Kind::Ending, Event::default);
        self.state.ending.send_replace(true);
        // Leases that hold nothing end at once.
        self.state.leases.look();
        while self.state.clients.len() > 0 && os::now() < stop_at {
            // By the clock that clients go by: a timer may be early by it.
            let left = Duration::from_nanos(stop_at.saturating_sub(os::now()));
            tokio::select! {
                () = self.state.client_left() => {}
                // New clients: their connections are closed at once.
                _ = self.door.listener.accept() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
        let nothing_held = self.state.clients.len() == 0;
        let left = if let Ok(Ended::Left) = result { self.leave().await } else { Ok(Leaving::Alone) };
        self.state.node().stop().await;
        // The data directory is still this agent's, so none of these files can be another one's.
        let marks = &self.state.marks;
        if nothing_held && result.is_ok() {
            let _ = std::fs::remove_file(&marks.running);
        }
        if let (Ok(Ended::Left), Ok(_)) = (result, &left) {
            for file in [&marks.shared].into_iter().chain(&marks.member) {
                let _ = std::fs::remove_file(file);
            }
        }
        drop(self.server);
        self.door.remove();
        if self.created_directory {
            let _ = self.door.path().parent().map(std::fs::remove_dir);
        }
        let path = self.data.as_ref().map(|data| data.path().to_owned());
        drop(self.data);
        if let (Ok(Leaving::LetGo), Some(path)) = (&left, path)
            && let Err(error) = DataDirectory::forget(path)
        {
            tracing::warn!(%error, "the node has left its group, but its data directory still says that it is a member");
        }
        let answer = match left {
            Ok(_) => Response::Done,
            Err(GroupFault::Group(GroupError::Timeout)) => Response::Late { why: None },
            Err(error) => Response::Error { text: error.to_string() },
        };
        // The guard is gone before anything is awaited.
        let leaving = std::mem::take(&mut *lock(&self.state.leaving));
        for mut client in leaving {
            let _ = client.send(&answer).await;
        }
    }

    /// Leaves the group for good. An error if there may be others that go on counting on this node.
    async fn leave(&self) -> Result<Leaving, GroupFault> {
        let (node, shared) = (self.state.node(), &self.state.marks.shared);
        let status = node.status();
        if status.group_id.is_none() && shared.exists() {
            return Err(GroupFault::Refused(format!(
                "the node that was here before was in a group with others, and this one is in none: evict that one from a member, then \
                 remove {}",
                shared.display()
            )));
        }
        // Those that are not in the view count as well, and it need not be in one itself: it can leave as soon as it reaches them.
        if status.group_id.is_none() || status.members.len() <= 1 {
            return Ok(Leaving::Alone);
        }
        let limit = *lock(&self.state.leave_limit);
        node.leave(limit).await?;
        Ok(Leaving::LetGo)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub(crate) fn node(&self) -> Node {
        lock(&self.member).node.clone()
    }

    /// The group and the node in it, as numbers: etcd's clients are told them with every answer.
    pub(crate) fn identity(&self) -> (u64, u64) {
        let member = Arc::clone(&lock(&self.member));
        *member.identity.get_or_init(|| {
            let status = member.node.status();
            // FNV-1a: a name as a number.
            let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            (status.group.bytes().fold(0xcbf2_9ce4_8422_2325, hash), u64::from(status.id))
        })
    }

    /// By how much clocks may differ in their rates, in millionths.
    pub(crate) fn drift_ppm(&self) -> u32 {
        lock(&self.member).drift_ppm
    }

    /// How long the agent goes on holding what it has granted, once it ends.
    pub(crate) fn ending_left(&self) -> Option<Duration> {
        self.ending_at.get().map(|at| Duration::from_nanos(at.saturating_sub(os::now())))
    }

    /// The node's status, as people see it: an agent that ends is certain of nothing for longer.
    pub(crate) fn node_status(&self) -> Status {
        let mut status = self.node().status();
        status.session = [status.session, self.ending_left()].into_iter().flatten().min();
        status
    }

    /// What bounds all that clients are told who hold these, by the clock that they share with the agent. It is written down:
    /// [`prepare_to_tell`](Self::prepare_to_tell) before, or less is told.
    pub(crate) fn bounds<'a>(&self, guards: impl Iterator<Item = &'a Guard>) -> Bounds {
        let session = self.ttl();
        let covered = self.marks.covered().min(session);
        // Read before the node's clock is: so nothing is certain for longer by this clock than by the node's.
        let (shared, own) = (os::now(), Instant::now());
        let until = guards.filter_map(Guard::valid_until).min();
        let held_until = until.map(|until| shared + until.saturating_duration_since(own).as_nanos() as u64);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (end, drift_ppm) = (self.ending_at.get().copied(), self.drift_ppm());
        Bounds { held_until, end, covered: nanos(covered), session: nanos(session), drift_ppm }
    }

    #[cfg(test)]
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Writes down what [`bounds`](Self::bounds) needs, if it is not there already and can be. The disk may be slow, so nobody else is to wait
    /// for the caller meanwhile.
    pub(crate) fn prepare_to_tell(&self) {
        self.marks.cover_unless_busy(self.ttl().as_millis() as u64);
    }

    /// An error if clients might outlive this agent by more than the next one would wait: then nothing is granted.
    pub(crate) fn may_grant(&self) -> Result<(), String> {
        self.marks.cover(self.ttl().as_millis() as u64)
    }

    /// How long a session lasts. It does not change once the node is in a group.
    pub(crate) fn ttl(&self) -> Duration {
        let member = Arc::clone(&lock(&self.member));
        if let Some(ttl) = member.ttl.get() {
            return *ttl;
        }
        let status = member.node.status();
        if status.epoch.is_some() {
            let _ = member.ttl.set(status.ttl);
        }
        status.ttl
    }

    /// Resolves when the agent is not about to go from one group to another.
    pub(crate) async fn is_settled(&self) {
        let _ = self.settled.subscribe().wait_for(|settled| *settled).await;
    }

    /// Resolves when the node has stopped by itself.
    async fn failed(&self) {
        loop {
            let member = Arc::clone(&lock(&self.member));
            member.node.stopped().await;
            // Or it was replaced.
            self.is_settled().await;
            if Arc::ptr_eq(&member, &lock(&self.member)) {
                return;
            }
        }
    }

    /// Asks the agent to join a group.
    pub(crate) async fn join(&self, address: String, limit: Duration) -> Result<(), GroupFault> {
        let (answer, answered) = oneshot::channel();
        let stopped = || GroupFault::Group(GroupError::Stopped);
        self.join.send(Join { address, limit, answer }).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    /// Writes down that others are in the group, once they are.
    fn mark_shared(&self) {
        let node = self.node();
        if self.marks.shared.exists() || node.members().iter().filter(|member| member.in_view).count() < 2 {
            return;
        }
        // The directory above may not be this user's to write to. Then members that look for the lost one tell it.
        let marked = write_durably(&self.marks.shared, &node.status().group);
        if let Err(error) = self.belongs_to_group().and(marked) {
            tracing::debug!(%error, "cannot write down that others are in this agent's group");
        }
    }

    /// From now on the place belongs to a member of a group.
    fn belongs_to_group(&self) -> std::io::Result<()> {
        let _ = self.marks.group.set(self.node().status().group);
        self.marks.write()
    }

    /// Ends the agent for good.
    pub(crate) fn leave(&self, limit: Duration) {
        *lock(&self.leave_limit) = limit;
        self.stop(Ended::Left);
    }

    /// Ends the agent. The first reason counts.
    pub(crate) fn stop(&self, why: Ended) {
        self.stop.send_modify(|stop| *stop = stop.or(Some(why)));
    }

    async fn stopped(&self) -> Ended {
        let mut stop = self.stop.subscribe();
        let why = stop.wait_for(Option::is_some).await.ok().and_then(|why| *why);
        why.unwrap_or(Ended::Stopped)
    }

    /// Resolves when clients are to release what they hold.
    pub(crate) async fn ends(&self) {
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    /// Resolves when a client leaves, and at once if there is none.
    async fn client_left(&self) {
        let left = self.client_left.notified();
        tokio::pin!(left);
        left.as_mut().enable();
        if self.clients.len() > 0 {
            left.await;
        }
    }

    /// Resolves when there has been no client for so long; without a limit, never.
    async fn idle_for(&self, limit: Option<Duration>) {
        let Some(limit) = limit else { return std::future::pending().await };
        loop {
            self.client_left().await;
            tokio::select! {
                () = tokio::time::sleep(limit) => if self.clients.len() == 0 { return },
                () = self.client_left.notified() => {}
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

/// An error if others are in the node's group.
fn check_alone(node: &Node) -> Result<(), GroupFault> {
    let status = node.status();
    if status.group_id.is_none() || status.members.len() <= 1 {
        return Ok(());
    }
    let members = status.members.len();
    Err(GroupFault::Refused(format!("this agent is a member of a group of {members}; let it leave that first")))
}

/// True if a connection leads to the node that listens at this address.
fn is_own(stream: &TcpStream, node: SocketAddr) -> bool {
    let (Ok(here), Ok(there)) = (stream.local_addr(), stream.peer_addr()) else { return false };
    there.port() == node.port() && (there.ip() == node.ip() || node.ip().is_unspecified() && there.ip() == here.ip())
}

/// Waits one session if the last agent did not end in order: then it left its file or its socket.
async fn wait_for_old_sessions(socket: &Path, running_file: &Path, ttl: Duration) {
    let last_ttl_ms = std::fs::read_to_string(running_file);
    if last_ttl_ms.is_err() && os::find_socket(socket) == Found::Nothing {
        return;
    }
    // The last agent's sessions may have been longer than this one's.
    let last_ttl_ms = last_ttl_ms.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let wait = ttl.max(Duration::from_millis(last_ttl_ms));
    tracing::warn!(?wait, "the last agent did not end in order; waiting for its clients' sessions to run out");
    tokio::time::sleep(wait).await;
}

/// An error if an agent listens at this path, or if there is something that is not ours to replace.
fn check_free(socket: &Path) -> Result<(), ServeError> {
    match os::find_socket(socket) {
        Found::Nothing | Found::StaleSocket => Ok(()),
        Found::LiveSocket => Err(ServeError::Taken(socket.to_owned())),
        Found::OtherFile => {
            let source = std::io::Error::new(ErrorKind::AlreadyExists, "there is a file that is no socket");
            Err(ServeError::Socket { path: socket.to_owned(), source })
        }
    }
}

/// In a data directory: what is there belongs to a private agent, whose group never has another member.
const PRIVATE_FILE: &str = "private";

/// Beside a data directory: its agent was in a group with others. It outlives the directory, so that an agent that has lost that founds no
/// second group alone.
pub fn shared_mark(data: &Path) -> PathBuf {
    let name = data.file_name().unwrap_or_default().to_string_lossy();
    data.with_file_name(format!("{name}.shared"))
}

/// True if a private agent was the last to use this data directory.
pub fn is_private_data(data: &Path) -> bool {
    data.join(PRIVATE_FILE).exists()
}

fn mark_private(data: &Path, private: bool) -> std::io::Result<()> {
    let file = data.join(PRIVATE_FILE);
    match private {
        true => std::fs::write(file, ""),
        false => match std::fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}

/// Writes a file so that it is still there after a power failure. On a full disk it stays as it was.
fn write_durably(file: &Path, text: &str) -> std::io::Result<()> {
    let draft = file.with_extension("new");
    std::fs::write(&draft, text)?;
    std::fs::File::open(&draft)?.sync_all()?;
    std::fs::rename(&draft, file)?;
    file.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all())
}
