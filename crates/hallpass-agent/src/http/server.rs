use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::access::{Peer, Transport};
use super::certificate::acceptor;
use super::io::Impatient;
use super::{Access, Api, Traffic};
use crate::options::ApiOptions;
use crate::os::{self, SocketFile};
use crate::outcome::ServeError;
use crate::registry::Origin;
use crate::service::Service;
use crate::tokens::TokenFile;

/// Bounds the descriptors and the memory that connections take.
const CONNECTIONS_MAX: usize = 10_000;
/// How long a handshake, or the head of a request, may take to arrive, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
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
    traffic: Arc<Traffic>,
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
        let traffic = Arc::new(Traffic::default());
        let api = Api { service, access: Arc::new(access), traffic };
        let traffic = Arc::clone(&api.traffic);
        let router = super::router(api.clone(), etcd(api));
        let mut server = Self { tasks: Vec::new(), address: None, socket_file: None, router, traffic };
        if let Some(path) = socket {
            let fail = |source| ServeError::Socket { path: path.clone(), source };
            os::create_socket_directory(&path, group).map_err(fail)?;
            server.open_again(&path, group).map_err(fail)?;
        }
        if let Some((listener, tls)) = tcp {
            server.address = listener.local_addr().ok();
            let (router, traffic) = (server.router.clone(), Arc::clone(&server.traffic));
            server.tasks.push(tokio::spawn(serve_tcp(listener, tls, router, traffic)));
        }
        Ok(server)
    }

    /// Listens at this path, beside all that is served already.
    pub(crate) fn open_again(&mut self, path: &Path, group: Option<u32>) -> std::io::Result<()> {
        let socket_file = Arc::new(SocketFile::open(path, group)?);
        self.socket_file = Some(Arc::clone(&socket_file));
        let (router, traffic) = (self.router.clone(), Arc::clone(&self.traffic));
        self.tasks.push(tokio::spawn(serve_unix(socket_file, router, traffic)));
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

async fn serve_unix(socket_file: Arc<SocketFile>, router: Router, traffic: Arc<Traffic>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match socket_file.listener.accept().await {
            Ok((stream, _)) => {
                let who = os::credentials(&stream);
                let transport = Transport::Unix { user: who.uid, trusted: os::is_trusted(who.uid) };
                let peer = Peer { origin: Arc::new(Origin::of_process(who)), transport };
                begin(&mut connections, &traffic, |permit| serve(stream, peer, router.clone(), permit));
            }
            Err(error) => retry(&error).await,
        }
    }
}

async fn serve_tcp(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, traffic: Arc<Traffic>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                let origin = Origin { address: Some(address.to_string()), ..Origin::default() };
                let peer = Peer { origin: Arc::new(origin), transport: Transport::Tcp { tls: tls.is_some() } };
                let (router, tls) = (router.clone(), tls.clone());
                begin(&mut connections, &traffic, |permit| async move {
                    match tls {
                        None => serve(stream, peer, router, permit).await,
                        Some(tls) => {
                            let greeted = tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await;
                            if let Ok(Ok(stream)) = greeted {
                                serve(stream, peer, router, permit).await;
                            }
                        }
                    }
                });
            }
            Err(error) => retry(&error).await,
        }
    }
}

/// Counts a connection, until it is dropped.
struct ConnectionPermit(Arc<Traffic>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.leave();
    }
}

/// Serves a connection. If there are too many it is closed.
fn begin<F: Future<Output = ()> + Send + 'static>(
    connections: &mut JoinSet<()>,
    traffic: &Arc<Traffic>,
    serve: impl FnOnce(ConnectionPermit) -> F,
) {
    if traffic.connections.enter(CONNECTIONS_MAX) {
        connections.spawn(serve(ConnectionPermit(Arc::clone(traffic))));
    }
}

async fn retry(error: &std::io::Error) {
    if error.kind() != ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "cannot accept a client of the API; if the process is out of file descriptors, raise 'ulimit -n'");
        tokio::time::sleep(ACCEPT_RETRY).await;
    }
}

/// Serves one connection until it ends. A request whose client is gone is dropped, wherever it is.
async fn serve<S>(stream: S, peer: Peer, router: Router, _permit: ConnectionPermit)
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
    let answer = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.clone().call(request)
    });
    let stream = TokioIo::new(Impatient::new(stream, WRITE_PATIENCE));
    if let Err(error) = server.serve_connection(stream, answer).await {
        tracing::debug!(error, "API connection ended");
    }
}
