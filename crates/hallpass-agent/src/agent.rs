use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hallpass::{Builder, DataDirectory, Node, StartError};
use tokio::sync::{Notify, watch};

use crate::clients::Clients;
use crate::lines::Lines;
use crate::os::{self, Claim, Connection, Door, Found};
use crate::session::Session;

/// Bounds the memory and the descriptors that clients take: each has one connection.
const CLIENTS_MAX: usize = 10_000;
/// How long to wait after a connection could not be accepted, usually for want of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
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
    /// Another agent of this user has this path, though its files were removed.
    #[error("another agent uses {0}, though its files were removed; end that agent first")]
    Claimed(PathBuf),
    /// The files of the data directory are gone, so that another agent could be started with it. This one has ended.
    #[error(
        "the agent's data directory {0} was removed or replaced, so it has ended; leave it alone while an agent runs"
    )]
    DataGone(PathBuf),
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
    /// A file that says that this place belongs to a member of a group. It is written at the start and removed only when the
    /// agent is asked to [leave](crate::api::Request::Leave), so that after any other end nobody takes the place for a free one.
    /// The default is none.
    pub member_file: Option<PathBuf>,
    /// The agent was started by a client for its user alone. Its clients are told.
    pub private: bool,
    /// How long a client's session lasts: after an agent was killed the next one waits so long before it grants anything. The
    /// default is [`TTL_DEFAULT`](Self::TTL_DEFAULT). Longer sessions give clients more time to end, and delay the next agent.
    pub ttl: Duration,
    /// The agent ends after so long without clients. The default is never.
    pub idle_limit: Option<Duration>,
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
            private: false,
            ttl: Self::TTL_DEFAULT,
            idle_limit: None,
        }
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
    data: Arc<DataDirectory>,
    _claims: [Claim; 2],
    /// A file that exists while an agent runs, and after one whose clients may still hold locks.
    running_file: PathBuf,
    member_file: Option<PathBuf>,
    state: Arc<State>,
    idle_limit: Option<Duration>,
    log: RareLines,
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

/// What an agent shares with the sessions of its clients.
pub(crate) struct State {
    pub(crate) node: Node,
    pub(crate) ttl: Duration,
    pub(crate) private: bool,
    pub(crate) clients: Clients,
    client_left: Notify,
    /// Why the agent is to end, once it is.
    stop: watch::Sender<Option<Ended>>,
    /// True when clients are to release what they hold.
    pub(crate) ending: watch::Sender<bool>,
    /// Connections of clients who asked the agent to leave. They are closed when it has.
    pub(crate) leaving: Mutex<Vec<Lines>>,
}

impl Agent {
    /// Starts a node, and listens at the socket.
    ///
    /// If the last agent was killed, its clients may outlive it by up to half a session. Then nothing of this one, not even its
    /// node, takes part in anything before a whole session is over. It holds the data directory meanwhile, so that no other agent
    /// is started beside it.
    pub async fn start(builder: Builder, options: AgentOptions) -> Result<Self, ServeError> {
        let AgentOptions { socket, data, socket_group, member_file, private, ttl, idle_limit } = options;
        let fail = |source| ServeError::Socket { path: socket.clone(), source };
        let number = |group: String| os::group_number(&group).ok_or(ServeError::Group(group));
        let socket_group = socket_group.map(number).transpose()?;
        let created_directory = os::create_socket_directory(&socket, socket_group).map_err(fail)?;
        check_free(&socket)?;
        let directory = Arc::new(DataDirectory::open(&data)?);
        let claim = |path: &Path| Claim::of(path).ok_or_else(|| ServeError::Claimed(path.to_owned()));
        let claims = [claim(&data)?, claim(&socket)?];
        let running_file = data.join("running");
        wait_for_old_sessions(&socket, &running_file, ttl).await;
        let node = builder.data_directory(Arc::clone(&directory)).start().await?;
        check_free(&socket)?;
        let door = Door::open(&socket, socket_group).map_err(fail)?;
        let written = write_durably(&running_file, &ttl.as_millis().to_string());
        written.map_err(|source| ServeError::Data { path: data, source })?;
        if let Some(file) = &member_file {
            let group = node.status().group;
            write_durably(file, &group).map_err(|source| ServeError::Data { path: file.clone(), source })?;
        }
        let state = State {
            node,
            ttl,
            private,
            clients: Clients::default(),
            client_left: Notify::new(),
            stop: watch::Sender::new(None),
            ending: watch::Sender::new(false),
            leaving: Mutex::default(),
        };
        let state = Arc::new(state);
        Ok(Self {
            door,
            created_directory,
            socket_group,
            data: directory,
            _claims: claims,
            running_file,
            member_file,
            state,
            idle_limit,
            log: RareLines::default(),
        })
    }

    /// The agent's node.
    pub fn node(&self) -> &Node {
        &self.state.node
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
                () = self.state.node.stopped() => break Err(ServeError::Failed),
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
        if !self.data.is_intact() {
            return Err(ServeError::DataGone(self.data.path().to_owned()));
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
        Ok(())
    }

    fn serve_client(&mut self, connection: Connection) {
        let state = Arc::clone(&self.state);
        if state.clients.len() >= CLIENTS_MAX {
            if let Some(left_out) = self.log.due() {
                tracing::warn!(left_out, "refused a client: there are {CLIENTS_MAX} already");
            }
            return;
        }
        let session = Session::new(Arc::clone(&state), connection);
        tokio::spawn(async move {
            session.run().await;
            // Its locks are released, and it does not count as a client any more.
            state.client_left.notify_waiters();
        });
    }

    /// Lets clients end that hold locks, then stops granting. The socket stays until then, so that nobody takes the place for a
    /// free one, and new clients are sent away. The next agent need not wait if nobody holds a lock. A lock that was granted
    /// counts as held, though its client may not have read the grant yet.
    async fn end(self, result: &Result<Ended, ServeError>) {
        self.state.ending.send_replace(true);
        let deadline = tokio::time::sleep(self.state.ttl);
        tokio::pin!(deadline);
        while self.state.clients.len() > 0 {
            tokio::select! {
                () = self.state.client_left() => {}
                // New clients: their connections are closed at once.
                _ = self.door.listener.accept() => {}
                () = &mut deadline => break,
            }
        }
        let nothing_held = self.state.clients.len() == 0;
        self.state.node.stop().await;
        // The data directory is still this agent's, so none of these files can be another one's.
        if nothing_held && result.is_ok() {
            let _ = std::fs::remove_file(&self.running_file);
        }
        if let (Some(file), Ok(Ended::Left)) = (&self.member_file, result) {
            let _ = std::fs::remove_file(file);
        }
        self.door.remove();
        if self.created_directory {
            let _ = self.door.path().parent().map(std::fs::remove_dir);
        }
        drop(self.data);
        self.state.leaving.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl State {
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
        f.debug_struct("State").field("clients", &self.clients.len()).field("ttl", &self.ttl).finish_non_exhaustive()
    }
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

/// Writes a file so that it is still there after a power failure.
fn write_durably(file: &Path, text: &str) -> std::io::Result<()> {
    std::fs::write(file, text)?;
    std::fs::File::open(file)?.sync_all()?;
    file.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all())
}
