use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hallpass::{AcquireError, Builder, Guard, Lock, Node, StartError};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Notify;

use crate::os::{self, Connection, Found, Listener, ReadHalf, WriteHalf};
use crate::talk::{LockLine, MemberLine, Request, Response, StatusLine, VERSION};

/// At most so many clients at once.
const CLIENTS_MAX: usize = 10_000;
/// No question is longer.
const LINE_BYTES_MAX: usize = 4096;

/// Why an agent could not be started, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another agent has the socket.
    #[error("another agent already listens at {0}; stop it or give this one another --socket")]
    Taken(PathBuf),
    /// The node could not be started.
    #[error("{0}")]
    Start(#[from] StartError),
    /// The socket cannot be made.
    #[error("cannot listen at {path}: {source}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A directory cannot be written.
    #[error("cannot write to {path}: {source}")]
    Data {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The node has stopped by itself.
    #[error("the agent's node has failed; the log says why")]
    Failed,
}

/// An agent: a node, and a socket for the processes of its machine.
///
/// - **Start**: [`Agent::start`], then [`serve`](Self::serve) until it ends.
/// - **End**: by [`stopper`](Self::stopper), by a client's word, or by itself after a time without clients.
pub struct Agent {
    socket: PathBuf,
    listener: Listener,
    /// In the data directory while an agent runs, and after one that could not say goodbye.
    mark: PathBuf,
    state: Arc<State>,
    /// End after so long without clients.
    idle: Option<Duration>,
}

struct State {
    node: Node,
    ttl: Duration,
    clients: AtomicUsize,
    left: Notify,
    ending: Notify,
}

impl Agent {
    /// Starts a node, and listens at the socket, in a directory that only this user may enter. What must outlive the agent is
    /// kept in `data`, or beside the socket.
    ///
    /// If the last agent did not end in order, its clients may outlive it by up to half a session: then nothing of this one,
    /// its node neither, takes part in anything before a whole session is over. Who waits has the data directory already.
    pub async fn start(
        builder: Builder,
        socket: &Path,
        data: Option<&Path>,
        ttl: Duration,
        idle: Option<Duration>,
    ) -> Result<Self, ServeError> {
        let fail = |source| ServeError::Socket { path: socket.to_owned(), source };
        os::create_socket_directory(socket).map_err(fail)?;
        look_for_another(socket)?;
        let data = data.map_or_else(|| socket.with_extension("data"), Path::to_owned);
        let mark = data.join("running");
        let node = builder.data(&data).start_after(wait_for_old_sessions(socket, &mark, ttl)).await?;
        if look_for_another(socket)? {
            std::fs::remove_file(socket).map_err(fail)?;
        }
        let listener = os::listen(socket).map_err(fail)?;
        let marked = std::fs::write(&mark, ttl.as_millis().to_string());
        let marked = marked.and_then(|()| std::fs::File::open(&data)?.sync_all());
        marked.map_err(|source| ServeError::Data { path: data, source })?;
        let state = State { node, ttl, clients: AtomicUsize::new(0), left: Notify::new(), ending: Notify::new() };
        Ok(Self { socket: socket.to_owned(), listener, mark, state: Arc::new(state), idle })
    }

    /// The agent's node.
    pub fn node(&self) -> &Node {
        &self.state.node
    }

    /// Serves clients until the agent ends.
    pub async fn serve(self) -> Result<(), ServeError> {
        let failed = loop {
            let idle = async {
                match self.idle {
                    Some(idle) => {
                        self.state.without_clients(idle).await;
                    }
                    None => std::future::pending().await,
                }
            };
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = self.state.ending.notified() => break false,
                () = self.state.node.stopped() => break true,
                () = idle => break false,
            };
            match accepted {
                Ok((stream, _)) => self.receive(stream),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        };
        self.end(failed).await;
        if failed { Err(ServeError::Failed) } else { Ok(()) }
    }

    /// A handle that ends the agent.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + use<> {
        let state = Arc::clone(&self.state);
        move || state.ending.notify_one()
    }

    fn receive(&self, stream: Connection) {
        let state = Arc::clone(&self.state);
        if state.clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
            state.clients.fetch_sub(1, Ordering::AcqRel);
            return tracing::warn!("refused a client: there are too many");
        }
        tokio::spawn(async move {
            let (reading, writing) = stream.into_split();
            let mut client =
                Session { state: Arc::clone(&state), lines: Lines::new(reading), writing, held: BTreeMap::new() };
            if let Err(error) = client.run().await {
                tracing::debug!(%error, "a client is gone");
            }
            // Whatever it held is free before it counts as gone.
            drop(client);
            state.clients.fetch_sub(1, Ordering::AcqRel);
            state.left.notify_waiters();
        });
    }

    /// Nobody is let in any more, whoever holds is told by the closed connection, and the next agent need not wait if
    /// nobody was left inside. Who has been let in counts, though its client may not have heard of it yet.
    async fn end(self, failed: bool) {
        self.state.node.stop().await;
        let empty = self.state.node.locks().iter().all(|lock| lock.holders == 0);
        if empty && !failed {
            let _ = std::fs::remove_file(&self.mark);
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl State {
    async fn without_clients(&self, idle: Duration) {
        loop {
            let left = self.left.notified();
            if self.clients.load(Ordering::Acquire) > 0 {
                left.await;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(idle) => return,
                () = left => {}
            }
        }
    }
}

/// A mark that was left over tells it, or a socket.
async fn wait_for_old_sessions(socket: &Path, mark: &Path, ttl: Duration) {
    let marked = std::fs::read_to_string(mark);
    if marked.is_err() && os::find_socket(socket) == Found::Nothing {
        return;
    }
    // The last one's sessions may have been longer than this one's.
    let last = marked.ok().and_then(|text| text.trim().parse().ok()).map_or(Duration::ZERO, Duration::from_millis);
    let wait = ttl.max(last);
    tracing::warn!(?wait, "the last agent did not end in order; waiting for its clients' sessions to run out");
    tokio::time::sleep(wait).await;
}

/// True if there is a socket that nobody listens at: it is left over from an agent that was killed.
fn look_for_another(socket: &Path) -> Result<bool, ServeError> {
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

/// Lines from a client. What was read of one that is not finished stays here, whoever stops waiting for it.
struct Lines {
    reading: BufReader<ReadHalf>,
    line: Vec<u8>,
}

impl Lines {
    fn new(reading: ReadHalf) -> Self {
        Self { reading: BufReader::new(reading), line: Vec::new() }
    }

    /// The next question, or nothing when the client is gone.
    async fn next(&mut self) -> std::io::Result<Option<Result<Request, String>>> {
        if self.line.last() == Some(&b'\n') {
            self.line.clear();
        }
        let room = (LINE_BYTES_MAX + 1 - self.line.len()) as u64;
        (&mut self.reading).take(room).read_until(b'\n', &mut self.line).await?;
        if self.line.last() != Some(&b'\n') {
            let too_long = self.line.len() > LINE_BYTES_MAX;
            return if too_long { Err(ErrorKind::InvalidData.into()) } else { Ok(None) };
        }
        Ok(Some(serde_json::from_slice(&self.line).map_err(|error| format!("the question is not understood: {error}"))))
    }
}

/// One client.
struct Session {
    state: Arc<State>,
    lines: Lines,
    writing: WriteHalf,
    /// By name and fence; a client that shares a lock with itself has several of one fence.
    held: BTreeMap<(String, u64), Vec<Guard>>,
}

impl Session {
    async fn run(&mut self) -> std::io::Result<()> {
        let status = self.state.node.status();
        let ttl_ms = self.state.ttl.as_millis() as u64;
        self.say(&Response::Welcome { version: VERSION, node: status.name, group: status.group, ttl_ms }).await?;
        loop {
            let Some(request) = self.lines.next().await? else { return Ok(()) };
            let response = match request {
                Err(text) => Response::Error { text },
                Ok(Request::Acquire { lock, shared, tries, timeout_ms }) => {
                    match self.acquire(lock, shared, tries, timeout_ms).await? {
                        Some(response) => response,
                        None => return Ok(()),
                    }
                }
                Ok(Request::Cancel) => Response::Cancelled,
                Ok(Request::Release { lock, fence }) => self.release(lock, fence).await,
                Ok(Request::Locks) => Response::Locks { locks: self.locks() },
                Ok(Request::Members) => Response::Members { members: self.members() },
                Ok(Request::Status) => Response::Status(self.status()),
                Ok(Request::Leave) => {
                    self.say(&Response::Leaving).await?;
                    self.state.ending.notify_one();
                    return Ok(());
                }
            };
            self.say(&response).await?;
        }
    }

    async fn say(&mut self, response: &Response) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(response)?;
        line.push(b'\n');
        self.writing.write_all(&line).await
    }

    /// Waits for the lock and listens to the client meanwhile; nothing if it is gone.
    async fn acquire(
        &mut self,
        name: String,
        shared: bool,
        tries: bool,
        timeout_ms: Option<u64>,
    ) -> std::io::Result<Option<Response>> {
        let lock = self.state.node.lock(name.as_str());
        let limit = timeout_ms.map(Duration::from_millis);
        let entering = async {
            match limit {
                Some(limit) => match tokio::time::timeout(limit, enter(&lock, shared, tries)).await {
                    Ok(entered) => entered,
                    Err(_) => Err(AcquireError::Timeout),
                },
                None => enter(&lock, shared, tries).await,
            }
        };
        let entered = tokio::select! {
            biased;
            entered = entering => entered,
            next = self.lines.next() => return Ok(match next? {
                None => None,
                Some(Ok(Request::Cancel)) => Some(Response::Cancelled),
                Some(_) => Some(Response::Error { text: "one question at a time: this one has ended the wait".to_owned() }),
            }),
        };
        Ok(Some(match entered {
            Ok(Some(guard)) => {
                let fence = guard.fence();
                self.held.entry((name.clone(), fence)).or_default().push(guard);
                Response::Granted { lock: name, fence }
            }
            Ok(None) => Response::Busy { why: self.obstacle() },
            Err(AcquireError::Timeout) => Response::Late { why: self.obstacle() },
            // The agent ends: so does the connection, and the client may look for another.
            Err(AcquireError::Stopped) => return Ok(None),
            Err(error) => Response::Error { text: error.to_string() },
        }))
    }

    async fn release(&mut self, lock: String, fence: u64) -> Response {
        let key = (lock, fence);
        let guard = self.held.get_mut(&key).and_then(Vec::pop);
        if self.held.get(&key).is_some_and(Vec::is_empty) {
            self.held.remove(&key);
        }
        let Some(guard) = guard else { return Response::Released { held: false } };
        let held = guard.release().await.is_ok();
        Response::Released { held }
    }

    /// Why a lock may not be free though nobody holds it.
    fn obstacle(&self) -> Option<String> {
        let status = self.state.node.status();
        let gone = status.members.iter().find(|member| !member.connected)?;
        let name = gone.name.as_ref().unwrap_or(&gone.address).escape_debug();
        let state = if gone.incarnation == 0 { "has not been met yet" } else { "is not connected" };
        Some(format!("member '{name}' {state}; 'hallpass members' says more"))
    }

    fn locks(&self) -> Vec<LockLine> {
        let line = |lock: hallpass::LockInfo| LockLine {
            name: lock.name,
            protocol: lock.protocol,
            held: lock.held.map(str::to_owned),
            holders: lock.holders,
            waiters: lock.waiters,
            fence: lock.fence.to_string(),
        };
        self.state.node.locks().into_iter().map(line).collect()
    }

    fn members(&self) -> Vec<MemberLine> {
        let line = |member: hallpass::Member| MemberLine {
            id: member.id,
            name: member.name,
            address: member.address,
            incarnation: member.incarnation,
            connected: member.connected,
            this: member.is_this,
            trouble: member.trouble,
        };
        self.state.node.status().members.into_iter().map(line).collect()
    }

    fn status(&self) -> StatusLine {
        let status = self.state.node.status();
        StatusLine {
            connected: status.members.iter().filter(|member| member.connected && !member.is_this).count(),
            members: status.members.len(),
            group: status.group,
            node: status.name,
            complete: status.complete,
            epoch: status.epoch,
            encrypted: status.encrypted,
            clients: self.state.clients.load(Ordering::Acquire),
            locks: status.locks,
            messages: status.messages,
            grants: status.grants,
        }
    }
}

async fn enter(lock: &Lock, shared: bool, tries: bool) -> Result<Option<Guard>, AcquireError> {
    match (shared, tries) {
        (false, false) => lock.acquire().await.map(Some),
        (true, false) => lock.acquire_shared().await.map(Some),
        (false, true) => lock.try_acquire().await,
        (true, true) => lock.try_acquire_shared().await,
    }
}
