use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::IntoResponse;
use hallpass::LogLimiter;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::access::{Peer, Transport};
use super::certificate::acceptor;
use super::io::Impatient;
use super::{Access, Api};
use crate::connections::{Connection, OpenRequest, Source};
use crate::options::ApiOptions;
use crate::os::{self, SocketFile};
use crate::outcome::ServeError;
use crate::registry::Origin;
use crate::service::Service;
use crate::tokens::TokenFile;

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head of a request may take to arrive over HTTP/1, from the end of the one before. Over HTTP/2 it is how often to ask
/// whether the client is still there.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How often to look whether a connection is idle. A client that is not known is idle for less than two of these: its first request must
/// have come by then.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);
/// For how many of these a client may stay that is not known, whatever it does.
const STRANGERS_INTERVALS_MAX: u32 = 6;
/// For how many of these a known client may be idle, without any request that is open.
const IDLE_INTERVALS_MAX: u32 = 30;
/// A client that takes nothing for this time is cut off.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The same where one connection may have many requests.
const STREAM_HEAD_BYTES_MAX: u32 = 16 * 1024;
/// How much a client may send of a request, and of all requests of a connection, before it is read.
const STREAM_WINDOW: u32 = 32 * 1024;
const CONNECTION_WINDOW: u32 = 128 * 1024;
/// How many requests one connection may have open at a time, where the protocol allows several: most of them wait for locks.
const STREAMS_MAX: u32 = 10_000;
/// How long to wait after a connection could not be accepted, usually for want of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How the server is to be reached, checked.
pub(crate) struct ServerOptions {
    access: Access,
    tcp: Option<(TcpListener, Option<TlsAcceptor>)>,
    socket: Option<PathBuf>,
}

/// The listeners of the API. They and all connections are closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    tasks: Vec<JoinHandle<()>>,
    /// Where it listens on TCP.
    pub(crate) address: Option<SocketAddr>,
    socket_file: Option<Arc<SocketFile>>,
    router: Router,
    api: Api,
}

impl ServerOptions {
    /// The tokens that clients need, if they do.
    pub(crate) fn tokens(&self) -> Option<Arc<TokenFile>> {
        self.access.tokens()
    }

    /// Listens on TCP, and reads keys and tokens. Nobody is served yet.
    pub(crate) async fn check(options: &ApiOptions) -> Result<Self, ServeError> {
        let fail = |why: String| ServeError::Api(why);
        let access = Access::new(options.tokens.as_deref()).map_err(|error| fail(error.to_string()))?;
        let tls =
            options.tls.as_ref().map(|(certificate, key)| acceptor(certificate, key)).transpose().map_err(fail)?;
        let mut tcp = None;
        if let Some(address) = &options.listen {
            let listener = TcpListener::bind(address.as_str()).await;
            let listener =
                listener.map_err(|error| fail(format!("cannot listen on {address}: {error}; choose another --api")))?;
            let bound = listener.local_addr().map_err(|error| fail(error.to_string()))?;
            if !bound.ip().is_loopback() {
                let lacks = match (&tls, &options.tokens) {
                    (None, None) => {
                        Some("TLS (api_cert and api_key, or keys of 'hallpass init') and tokens (api_tokens)")
                    }
                    (None, Some(_)) => Some("TLS (api_cert and api_key, or keys of 'hallpass init')"),
                    (Some(_), None) => Some("tokens (api_tokens; 'hallpass token new' makes one)"),
                    (Some(_), Some(_)) => None,
                };
                if let Some(lacks) = lacks {
                    return Err(fail(format!(
                        "the API at {bound} is reachable from other machines, and lacks {lacks}; or let it listen on 127.0.0.1"
                    )));
                }
            }
            // On loopback nobody listens in: only keys that were named for it are used.
            let tls = tls.filter(|_| !bound.ip().is_loopback() || options.tls_on_loopback);
            tcp = Some((listener, tls));
        }
        Ok(Self { access, tcp, socket: options.socket.clone() })
    }
}

impl Server {
    /// Serves clients from now on. `etcd` makes the routes of etcd's API.
    pub(crate) fn start(
        options: ServerOptions,
        service: Service,
        etcd: impl FnOnce(Api) -> Router<Api>,
        group: Option<u32>,
    ) -> Result<Self, ServeError> {
        let ServerOptions { access, tcp, socket } = options;
        let api = Api { service, access: Arc::new(access), traffic: Arc::default() };
        let router = super::router(api.clone(), etcd(api.clone()));
        let mut server = Self { tasks: Vec::new(), address: None, socket_file: None, router, api };
        if let Some(path) = socket {
            let fail = |source| ServeError::Socket { path: path.clone(), source };
            os::create_socket_directory(&path, group).map_err(fail)?;
            server.open_again(&path, group).map_err(fail)?;
        }
        if let Some((listener, tls)) = tcp {
            server.address = listener.local_addr().ok();
            let (router, api) = (server.router.clone(), server.api.clone());
            server.tasks.push(tokio::spawn(serve_tcp(listener, tls, router, api)));
        }
        Ok(server)
    }

    /// Listens at this path, beside all that is served already.
    pub(crate) fn open_again(&mut self, path: &Path, group: Option<u32>) -> std::io::Result<()> {
        let socket_file = Arc::new(SocketFile::open(path, group)?);
        self.socket_file = Some(Arc::clone(&socket_file));
        let (router, api) = (self.router.clone(), self.api.clone());
        self.tasks.push(tokio::spawn(serve_unix(socket_file, router, api)));
        Ok(())
    }

    /// The file of the socket is still the one that was made.
    pub(crate) fn is_reachable(&self) -> bool {
        self.socket_file.as_ref().is_none_or(|socket_file| socket_file.is_reachable())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.socket_file.iter().for_each(|socket_file| socket_file.remove());
    }
}

async fn serve_unix(socket_file: Arc<SocketFile>, router: Router, api: Api) {
    let (mut connections, log) = (JoinSet::new(), LogLimiter::default());
    loop {
        while connections.try_join_next().is_some() {}
        match socket_file.listener.accept().await {
            Ok((stream, _)) => {
                let who = os::credentials(&stream);
                let trusted = os::is_trusted(who.uid);
                let source = if trusted { Source::Own } else { Source::User(who.uid) };
                let origin = Arc::new(Origin::of_process(who));
                let (api, router) = (api.clone(), router.clone());
                let sheds = Arc::clone(&api.traffic.unix).admit(source, |connection| {
                    let bodies = Arc::clone(&api.traffic.unix_bodies);
                    let transport = Transport::Unix { user: who.uid, trusted };
                    let peer = Peer { origin, transport, connection, source, bodies };
                    connections.spawn(serve(stream, peer, router, api))
                });
                report(sheds, &log, "the API's socket");
            }
            Err(error) => retry(&error).await,
        }
    }
}

async fn serve_tcp(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, api: Api) {
    let (mut connections, log) = (JoinSet::new(), LogLimiter::default());
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                let origin = Arc::new(Origin { address: Some(address.to_string()), ..Origin::default() });
                let (api, router, tls) = (api.clone(), router.clone(), tls.clone());
                let source = Source::from(address.ip());
                let sheds = Arc::clone(&api.traffic.tcp).admit(source, |connection| {
                    let bodies = Arc::clone(&api.traffic.tcp_bodies);
                    let transport = Transport::Tcp { tls: tls.is_some() };
                    let peer = Peer { origin, transport, connection, source, bodies };
                    connections.spawn(async move {
                        let Some(tls) = tls else { return serve(stream, peer, router, api).await };
                        let greeted = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await;
                        if let Ok(Ok(stream)) = greeted {
                            serve(stream, peer, router, api).await;
                        }
                    })
                });
                report(sheds, &log, "the API on TCP");
            }
            Err(error) => retry(&error).await,
        }
    }
}

fn report(sheds: bool, log: &LogLimiter, door: &str) {
    if sheds && let Some(left_out) = log.pass(door) {
        tracing::warn!(
            left_out,
            "too many connections of unknown clients to {door}: closed one to make room for another"
        );
    }
}

async fn retry(error: &std::io::Error) {
    if error.kind() != ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "cannot accept a client of the API; if the process is out of file descriptors, raise 'ulimit -n'");
        tokio::time::sleep(ACCEPT_RETRY).await;
    }
}

/// Serves one connection until it ends, or is idle for too long. A request whose client is gone is dropped, wherever it is.
async fn serve<S>(stream: S, peer: Peer, router: Router, api: Api)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(STREAM_HEAD_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(Some(HEAD_TIMEOUT))
        .max_send_buf_size(64 * 1024);
    let connection = Arc::clone(&peer.connection);
    let answer = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        let open = peer.connection.begin();
        let answer = api.access.greet(&peer, &request).map(|()| {
            request.extensions_mut().insert(peer.clone());
            router.clone().call(request)
        });
        async move {
            let response = match answer {
                Ok(answer) => answer.await?,
                Err(fault) => fault.into_response(),
            };
            Ok::<_, Infallible>(response.map(|body| Answer { body, _open: open }))
        }
    });
    let stream = TokioIo::new(Impatient::new(stream, WRITE_PATIENCE));
    let mut serving = pin!(server.serve_connection(stream, answer));
    let mut idle = Idle::default();
    let mut look = pin!(sleep(IDLE_INTERVAL));
    loop {
        tokio::select! {
            biased;
            ended = serving.as_mut() => {
                return ended.err().into_iter().for_each(|error| tracing::debug!(error, "API connection ended"));
            }
            () = connection.is_cut() => return,
            () = look.as_mut() => {}
        }
        match idle.look(&connection) {
            Verdict::Stays => {}
            Verdict::Ends => serving.as_mut().graceful_shutdown(),
            Verdict::IsOver => return,
        }
        look.as_mut().reset(Instant::now() + IDLE_INTERVAL);
    }
}

/// For how long a connection has been idle.
#[derive(Default)]
struct Idle {
    begun: usize,
    /// How many intervals there were, and how many of the last ones without a request.
    all: u32,
    intervals: u32,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Stays,
    /// The client is asked to go: a request that is on its way is still answered.
    Ends,
    IsOver,
}

impl Idle {
    /// Looks at the end of an interval. Long waits and streams are requests that are open.
    fn look(&mut self, connection: &Connection) -> Verdict {
        let begun = connection.begun();
        self.all += 1;
        if !connection.is_known() && self.all >= STRANGERS_INTERVALS_MAX {
            return Verdict::IsOver;
        }
        if connection.open() > 0 || std::mem::replace(&mut self.begun, begun) != begun {
            self.intervals = 0;
            return Verdict::Stays;
        }
        self.intervals += 1;
        match self.intervals {
            _ if !connection.is_known() => Verdict::IsOver,
            ..IDLE_INTERVALS_MAX => Verdict::Stays,
            IDLE_INTERVALS_MAX => Verdict::Ends,
            _ => Verdict::IsOver,
        }
    }
}

/// The body of an answer. Its request is over when it is dropped.
struct Answer {
    body: Body,
    _open: OpenRequest,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use hallpass::Node;
    use hallpass_testkit::Scratch;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::connections::{Connections, Limits};
    use crate::{Agent, AgentOptions, grpc};

    #[test]
    fn a_connection_with_an_open_request_is_not_idle() {
        let (connection, mut idle) = (Connection::alone(), Idle::default());
        let waits = connection.begin();
        assert_eq!((0..3).map(|_| idle.look(&connection)).collect::<Vec<_>>(), [Verdict::Stays; 3]);
        drop(waits);
        drop(connection.begin());
        assert_eq!(idle.look(&connection), Verdict::Stays, "it has just asked");
        assert_eq!(idle.look(&connection), Verdict::IsOver, "it is a stranger's");
        let (connection, mut idle) = (Connection::alone(), Idle::default());
        let _slow = connection.begin();
        let stays = std::iter::repeat_with(|| idle.look(&connection)).take_while(|verdict| *verdict == Verdict::Stays);
        assert_eq!(
            stays.count() as u32,
            STRANGERS_INTERVALS_MAX - 1,
            "nor does a stranger stay for long that does not read"
        );
    }

    #[tokio::test]
    async fn a_known_client_may_be_idle_for_a_while() {
        let (sender, known) = std::sync::mpsc::channel();
        Connections::new(Limits::of_socket(usize::MAX)).admit(Source::Own, |connection| {
            sender.send(connection).unwrap();
            tokio::spawn(async {}).abort_handle()
        });
        let (connection, mut idle) = (known.recv().unwrap(), Idle::default());
        connection.introduce(|| None).unwrap();
        let stays = std::iter::repeat_with(|| idle.look(&connection)).take_while(|verdict| *verdict == Verdict::Stays);
        assert_eq!(stays.count() as u32, IDLE_INTERVALS_MAX - 1);
        assert_eq!(idle.look(&connection), Verdict::IsOver, "it was asked to go one interval ago");
    }

    /// Nothing is waited for that does not come: the first bytes, by which the protocols are told apart, the head of a request, or that of the
    /// next one.
    #[tokio::test]
    async fn a_client_that_stops_in_the_middle_loses_its_connection() {
        let directory = Scratch::new("stops");
        let options = AgentOptions::new(directory.join("agent.sock"), directory.join("data"));
        let agent = Agent::start(Node::builder().group("g").name("n"), options).await.expect("the agent starts");
        let access = Arc::new(Access::new(None).expect("it needs no tokens"));
        let api = Api { service: agent.service(), access, traffic: Arc::default() };
        let router = super::super::router(api.clone(), grpc::router(api.clone()));
        tokio::time::pause();
        let head = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n";
        for (says, within) in [
            (String::new(), 2 * IDLE_INTERVAL),
            ("PRI * HTTP/2".to_owned(), 2 * IDLE_INTERVAL),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 2 * IDLE_INTERVAL),
            (head.to_owned(), 2 * IDLE_INTERVAL),
            (format!("{head}\r\n{head}"), HEAD_TIMEOUT + IDLE_INTERVAL),
        ] {
            let (mut client, stream) = tokio::io::duplex(64 * 1024);
            let door = Connections::new(Limits::of_tcp(usize::MAX));
            let (sender, served) = std::sync::mpsc::channel();
            let source = Source::from(IpAddr::from([10, 0, 0, 1]));
            door.admit(source, |connection| {
                let (origin, bodies, transport) = (Arc::default(), Arc::default(), Transport::Tcp { tls: false });
                let peer = Peer { origin, transport, connection, source, bodies };
                let task = tokio::spawn(serve(stream, peer, router.clone(), api.clone()));
                let abort = task.abort_handle();
                sender.send(task).expect("it is waited for");
                abort
            });
            client.write_all(says.as_bytes()).await.expect("there is room");
            let served = tokio::time::timeout(within, served.recv().expect("it has begun")).await;
            served.unwrap_or_else(|_| panic!("it waits for more than {says:?}")).expect("in order");
            assert_eq!(door.len(), 0);
        }
        tokio::time::resume();
        let stop = agent.stopper();
        let serving = tokio::spawn(agent.serve());
        stop();
        serving.await.expect("without a panic").expect("in order");
    }
}
