use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hallpass::{Builder, DataDirectory, Node, StartError};
use tokio::sync::Notify;

use crate::os::{self, Connection, Found, Listener};
use crate::session::Session;

/// Bounds the memory and the descriptors that clients take: each has one connection.
const CLIENTS_MAX: usize = 10_000;
/// How long to wait after a connection could not be accepted, usually for want of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

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
    /// The node has stopped by itself. Its clients have been disconnected.
    #[error("the agent's node has failed; the log says why")]
    Failed,
}

/// How an agent serves its clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentOptions {
    /// The socket for clients. Its directory is created for this user alone.
    pub socket: PathBuf,
    /// What must outlive the agent is kept here. The default is a directory beside the socket.
    pub data: Option<PathBuf>,
    /// How long a client's session lasts: after an agent was killed the next one waits so long before it grants anything. The
    /// default is [`TTL_DEFAULT`](Self::TTL_DEFAULT). Longer sessions give clients more time to end, and delay the next agent.
    pub ttl: Duration,
    /// The agent ends after so long without clients. The default is never.
    pub idle_limit: Option<Duration>,
}

impl AgentOptions {
    /// The default of [`ttl`](Self::ttl).
    pub const TTL_DEFAULT: Duration = Duration::from_secs(5);

    /// The defaults, with this socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), data: None, ttl: Self::TTL_DEFAULT, idle_limit: None }
    }
}

/// An agent: a node, and a socket for the processes of its machine.
///
/// - **Start**: [`Agent::start`], then [`serve`](Self::serve) until it ends.
/// - **End**: by [`stopper`](Self::stopper), by a client's [`Leave`](crate::api::Request::Leave), or by itself after
///   [`idle_limit`](AgentOptions::idle_limit).
#[derive(Debug)]
pub struct Agent {
    socket: PathBuf,
    listener: Listener,
    /// A file that exists while an agent runs, and after one whose clients may still hold locks.
    running_file: PathBuf,
    state: Arc<State>,
    idle_limit: Option<Duration>,
}

/// What an agent shares with the sessions of its clients.
pub(crate) struct State {
    pub(crate) node: Node,
    pub(crate) ttl: Duration,
    pub(crate) clients: AtomicUsize,
    client_left: Notify,
    pub(crate) stop: Notify,
}

impl Agent {
    /// Starts a node, and listens at the socket.
    ///
    /// If the last agent was killed, its clients may outlive it by up to half a session. Then nothing of this one, not even its
    /// node, takes part in anything before a whole session is over. It holds the data directory meanwhile, so that no other agent
    /// is started beside it.
    pub async fn start(builder: Builder, options: AgentOptions) -> Result<Self, ServeError> {
        let AgentOptions { socket, data, ttl, idle_limit } = options;
        let fail = |source| ServeError::Socket { path: socket.clone(), source };
        os::create_socket_directory(&socket).map_err(fail)?;
        is_stale(&socket)?;
        let data = data.unwrap_or_else(|| socket.with_extension("data"));
        let running_file = data.join("running");
        let directory = DataDirectory::open(&data)?;
        wait_for_old_sessions(&socket, &running_file, ttl).await;
        let node = builder.data_directory(directory).start().await?;
        if is_stale(&socket)? {
            std::fs::remove_file(&socket).map_err(fail)?;
        }
        let listener = os::listen(&socket).map_err(fail)?;
        let written = std::fs::write(&running_file, ttl.as_millis().to_string());
        let written = written.and_then(|()| std::fs::File::open(&data)?.sync_all());
        written.map_err(|source| ServeError::Data { path: data, source })?;
        let (clients, client_left, stop) = (AtomicUsize::new(0), Notify::new(), Notify::new());
        let state = Arc::new(State { node, ttl, clients, client_left, stop });
        Ok(Self { socket, listener, running_file, state, idle_limit })
    }

    /// The agent's node.
    pub fn node(&self) -> &Node {
        &self.state.node
    }

    /// Serves clients until the agent ends.
    pub async fn serve(self) -> Result<(), ServeError> {
        let result = loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = self.state.stop.notified() => break Ok(()),
                () = self.state.node.stopped() => break Err(ServeError::Failed),
                () = self.state.idle_for(self.idle_limit) => break Ok(()),
            };
            match accepted {
                Ok((connection, _)) => self.serve_client(connection),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client");
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
        move || state.stop.notify_one()
    }

    fn serve_client(&self, connection: Connection) {
        let state = Arc::clone(&self.state);
        if state.clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
            state.clients.fetch_sub(1, Ordering::AcqRel);
            return tracing::warn!("refused a client: there are too many");
        }
        tokio::spawn(async move {
            let mut session = Session::new(Arc::clone(&state), connection);
            if let Err(error) = session.run().await {
                tracing::debug!(%error, "a client has disconnected");
            }
            // Its locks are released before it stops counting as a client.
            drop(session);
            state.clients.fetch_sub(1, Ordering::AcqRel);
            state.client_left.notify_waiters();
        });
    }

    /// Stops granting, and closes the connections: that is how holders learn of it. The next agent need not wait if nobody
    /// held a lock. A lock that was granted counts as held, though its client may not have read the grant yet.
    async fn end(self, result: &Result<(), ServeError>) {
        self.state.node.stop().await;
        let nothing_held = self.state.node.locks().iter().all(|lock| lock.holders == 0);
        if nothing_held && result.is_ok() {
            let _ = std::fs::remove_file(&self.running_file);
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl State {
    /// Resolves when there has been no client for so long; without a limit, never.
    async fn idle_for(&self, limit: Option<Duration>) {
        let Some(limit) = limit else { return std::future::pending().await };
        loop {
            let client_left = self.client_left.notified();
            if self.clients.load(Ordering::Acquire) > 0 {
                client_left.await;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(limit) => return,
                () = client_left => {}
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("clients", &self.clients).field("ttl", &self.ttl).finish_non_exhaustive()
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

/// True for a socket without an agent, false if there is none. Anything else at this path is an error.
fn is_stale(socket: &Path) -> Result<bool, ServeError> {
    match os::find_socket(socket) {
        Found::Nothing => Ok(false),
        Found::StaleSocket => Ok(true),
        Found::LiveSocket => Err(ServeError::Taken(socket.to_owned())),
        Found::OtherFile => {
            let source = std::io::Error::new(ErrorKind::AlreadyExists, "there is a file that is no socket");
            Err(ServeError::Socket { path: socket.to_owned(), source })
        }
    }
}
