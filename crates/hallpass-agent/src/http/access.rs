//! Decides who may do what.
//!
//! | the client comes | and may |
//! |---|---|
//! | over the Unix socket, as the agent's user or root | everything |
//! | over the Unix socket, as another user whom its group lets in | acquire and inspect |
//! | over TCP on loopback, where there is no file of tokens | everything, unless a page of another site sent it |
//! | over TCP with a token | what that allows |
//! | over TCP without one | see the page, whose script asks for a token, and whether the agent is healthy |
//!
//! Other users' browsers are clients on loopback too, and run what any web site sends them. Two checks keep those out. The name that
//! the browser believes to talk to must be one of this machine: another site's name can be made to point here. A request that changes
//! something must not come from a page of another origin.

use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use hyper::body::{Frame, SizeHint};
use tracing::Instrument;

use super::{Api, Bodies, DoorBodies, Fault, quota};
use crate::account::Account;
use crate::connections::{Connection, Holder, Source};
use crate::owner::Owner;
use crate::registry::Origin;
use crate::registry::counts::{Counter, Gauge};
use crate::service::{LeaseError, LeaseId, Service};
use crate::tokens::{CHECK_INTERVAL, Right, Token, TokenError, TokenFile};
use crate::{audit, telemetry};

/// How much of a path is noted when a request is refused: room for the longest name of a lock.
const PATH_CHARS: usize = 300;

/// How many requests a client may have at a time on one connection before it is known. They are answered at once, but for their
/// sender's slowness.
const STRANGERS_REQUESTS_MAX: usize = 100;

/// Decides who may do what, and counts refused tokens.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: Option<Arc<TokenFile>>,
    refused: Counter,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) origin: Arc<Origin>,
    pub(crate) transport: Transport,
    pub(crate) connection: Arc<Connection>,
    pub(crate) source: Source,
    /// Those of its door.
    pub(crate) bodies: Arc<DoorBodies>,
}

/// How a connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Through the Unix socket, by this user if the system tells; trusted: the agent's own user or root.
    Unix { user: Option<u32>, trusted: bool },
    /// Over TCP, encrypted or not.
    Tcp { tls: bool },
}

/// The client behind a request, and its rights.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) origin: Arc<Origin>,
    rights: Rights,
    /// The owner of the leases that it makes.
    owner: Owner,
    bodies: Bodies,
    /// Those of its connection.
    watches: Arc<Gauge>,
}

/// How a caller may use a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseUse {
    /// It is the caller's own.
    Own,
    /// It is somebody else's, and the caller administers.
    Others,
}

/// The result of a name and a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authenticated {
    Yes,
    No,
    /// There are no tokens here.
    NotNeeded,
}

#[derive(Clone, Debug)]
enum Rights {
    All,
    /// The rights that need no trust: to acquire and to inspect.
    Locks,
    Token(Arc<Token>),
    Nothing,
}

impl Access {
    /// With a file, clients over TCP need a token of it.
    pub(crate) fn new(tokens: Option<&Path>) -> Result<Self, TokenError> {
        let tokens = tokens.map(TokenFile::open).transpose()?.map(Arc::new);
        Ok(Self { tokens, refused: Counter::default() })
    }

    /// The tokens that clients need, if they do.
    pub(crate) fn tokens(&self) -> Option<Arc<TokenFile>> {
        self.tokens.clone()
    }

    /// How many tokens were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Finds out whether the client of a connection is known, by its first requests. One that is not, and has many requests at a time, loses
    /// its connection: it may take the answers as slowly as it likes otherwise.
    pub(super) fn greet<B>(&self, peer: &Peer, request: &axum::http::Request<B>) -> Result<(), Fault> {
        let connection = &peer.connection;
        if connection.is_known() {
            return Ok(());
        }
        let is_strange = |caller: &Caller| match (&caller.rights, peer.transport) {
            (Rights::Nothing, _) => true,
            (Rights::All, Transport::Tcp { tls }) => check_browser(request, tls).is_err(),
            _ => false,
        };
        match self.caller(peer, request.headers()).ok().filter(|caller| !is_strange(caller)) {
            Some(caller) => connection.introduce(|| caller.holder(peer)).map_err(too_many),
            None if connection.open() > STRANGERS_REQUESTS_MAX => {
                connection.cut();
                Err(too_many(format!(
                    "a client without a token has at most {STRANGERS_REQUESTS_MAX} requests at a time"
                )))
            }
            None => Ok(()),
        }
    }

    fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Fault> {
        let watches = Arc::clone(&peer.connection.watches);
        if let (Some(file), Some(secret)) = (&self.tokens, secret(headers)) {
            let (token, account) = file.find(secret).ok_or_else(not_valid)?;
            let origin = Arc::new(Origin { token: Some(token.name.clone()), ..Origin::clone(&peer.origin) });
            let (rights, owner) = (Rights::Token(token), Owner::Token(account));
            let bodies = peer.bodies.known(&owner);
            return Ok(Caller { origin, rights, owner, bodies, watches });
        }
        let rights = match peer.transport {
            Transport::Unix { trusted: true, .. } => Rights::All,
            Transport::Unix { trusted: false, .. } => Rights::Locks,
            Transport::Tcp { .. } if self.tokens.is_none() => Rights::All,
            Transport::Tcp { .. } => Rights::Nothing,
        };
        let owner = match peer.transport {
            Transport::Unix { user, .. } => Owner::User(user.unwrap_or(Owner::UNKNOWN_USER)),
            Transport::Tcp { .. } => Owner::Nobody,
        };
        let bodies = match rights {
            Rights::All => peer.bodies.trusted(),
            Rights::Locks | Rights::Token(_) => peer.bodies.known(&owner),
            Rights::Nothing => peer.bodies.strangers(peer.source),
        };
        Ok(Caller { origin: Arc::clone(&peer.origin), rights, owner, bodies, watches })
    }

    /// The token with this name and secret, for clients that ask for one by name and password.
    pub(crate) fn authenticate(&self, name: &str, secret: &str, origin: &Origin) -> Authenticated {
        let Some(file) = &self.tokens else { return Authenticated::NotNeeded };
        if file.tokens().find(secret).is_some_and(|token| token.name == name) {
            return Authenticated::Yes;
        }
        self.note_refusal(origin);
        Authenticated::No
    }

    /// Waits until the caller's token has changed or left the file; forever if the caller has none.
    async fn taken_back(self: Arc<Self>, rights: Rights) {
        let (Some(file), Rights::Token(token)) = (&self.tokens, rights) else { return std::future::pending().await };
        let mut seen = file.tokens();
        while seen.contains(&token) {
            let mut now = Arc::clone(&seen);
            while Arc::ptr_eq(&now, &seen) {
                tokio::time::sleep(CHECK_INTERVAL).await;
                now = file.tokens();
            }
            seen = now;
        }
    }

    fn note_refusal(&self, origin: &Origin) {
        self.refused.add();
        audit::refused_token(origin);
    }
}

/// The token of a request: `Authorization: Bearer`, or alone in `Authorization` or `token`, as etcd's clients send it.
fn secret(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION).or_else(|| headers.get("token"))?;
    // A value that is not text is a wrong token, and must not pass for none.
    let text = value.to_str().unwrap_or("?");
    let bearer = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Some(bearer.map_or(text, |(_, secret)| secret).trim())
}

impl Caller {
    /// True if it may do this with this lock.
    pub(crate) fn may(&self, right: Right, lock: &str) -> bool {
        match &self.rights {
            Rights::Token(token) => token.may(right, lock),
            _ => self.may_some(right),
        }
    }

    /// True if it may do this with some locks.
    pub(crate) fn may_some(&self, right: Right) -> bool {
        match &self.rights {
            Rights::All => true,
            Rights::Locks => matches!(right, Right::Acquire | Right::Inspect),
            Rights::Token(token) => token.may_some(right),
            Rights::Nothing => false,
        }
    }

    /// Whose connection it is, where each has a share of them: a token's, or a user's of this machine.
    fn holder(&self, peer: &Peer) -> Holder {
        match (&self.rights, peer.transport) {
            (Rights::Token(token), _) => Some(format!("token '{}'", token.name).into()),
            (Rights::Locks, _) => Some(format!("user {}", peer.origin.user.as_deref().unwrap_or("?")).into()),
            _ => None,
        }
    }

    /// A caller that may do everything, for tests of handlers.
    #[cfg(test)]
    pub(crate) fn trusted() -> Self {
        Self {
            origin: Arc::default(),
            rights: Rights::All,
            owner: Owner::Nobody,
            bodies: DoorBodies::default().trusted(),
            watches: Arc::default(),
        }
    }

    /// The same with leases of its own.
    #[cfg(test)]
    pub(crate) fn trusted_as(owner: Owner) -> Self {
        Self { owner, ..Self::trusted() }
    }

    pub(crate) fn needs(&self, right: Right, lock: &str) -> Result<(), Fault> {
        if self.may(right, lock) { Ok(()) } else { Err(self.refusal(right)) }
    }

    /// One of these rights is enough, with some locks. Nothing is needed where there are none.
    pub(crate) fn needs_any(&self, rights: &[Right]) -> Result<(), Fault> {
        match rights.first() {
            Some(first) if !rights.iter().any(|right| self.may_some(*right)) => Err(self.refusal(*first)),
            _ => Ok(()),
        }
    }

    pub(crate) fn needs_some(&self, right: Right) -> Result<(), Fault> {
        if self.may_some(right) { Ok(()) } else { Err(self.refusal(right)) }
    }

    /// A lease is its owner's. To others there is no such lease, unless they administer.
    pub(crate) fn needs_lease(&self, service: &Service, id: LeaseId) -> Result<LeaseUse, Fault> {
        self.needs_some(Right::Acquire).or_else(|_| self.needs_some(Right::Inspect))?;
        let owner = service.owner(id)?;
        let found = self.lease_use(&owner).ok_or(LeaseError::NotFound(id));
        Ok(found.inspect_err(|_| audit::refused(&format!("lease {id} of {owner}"), &self.origin))?)
    }

    /// How it may use the leases of an owner, if it may.
    pub(crate) fn lease_use(&self, owner: &Owner) -> Option<LeaseUse> {
        // A lease that nobody owns has a client too, which counts on it: to all who have a name it is somebody else's.
        if *owner == self.owner {
            return Some(LeaseUse::Own);
        }
        self.may_some(Right::Administer).then_some(LeaseUse::Others)
    }

    /// The owner of the leases that it makes.
    pub(crate) fn owner(&self) -> Owner {
        self.owner.clone()
    }

    /// What its bodies count against.
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// How many watches its connection has.
    pub(crate) fn watches(&self) -> &Arc<Gauge> {
        &self.watches
    }

    /// What its token has used, if it has one.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.owner.account()
    }

    fn refusal(&self, right: Right) -> Fault {
        match &self.rights {
            Rights::Nothing => {
                let text =
                    "a token is needed: send it as 'Authorization: Bearer TOKEN'; 'hallpass token new' makes one";
                Fault::new(StatusCode::UNAUTHORIZED, text)
            }
            Rights::Token(token) => {
                let text = format!("token '{}' has no right to {right} here", token.name);
                Fault::new(StatusCode::FORBIDDEN, text)
            }
            _ => Fault::new(StatusCode::FORBIDDEN, "only the agent's own user and root may ask for this"),
        }
    }
}

/// Stands before all routes: finds out who asks, and keeps pages of other sites out.
pub(super) async fn check(
    State(api): State<Api>,
    peer: Option<Extension<Peer>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(Extension(peer)) = peer else {
        return Fault::new(StatusCode::SERVICE_UNAVAILABLE, "the connection is unknown").into_response();
    };
    let caller = match api.access.caller(&peer, request.headers()) {
        Ok(caller) => caller,
        Err(fault) => {
            api.access.note_refusal(&peer.origin);
            return fault.into_response();
        }
    };
    let asked = (request.method().clone(), request.uri().clone());
    if let (Transport::Tcp { tls }, Rights::All) = (peer.transport, &caller.rights)
        && let Err(fault) = check_browser(&request, tls)
    {
        refused(&asked, &caller.origin);
        return fault.into_response();
    }
    if let Some(refusal) = quota::check(&caller, &request) {
        return refusal;
    }
    // Of those who show no token at all nothing is known that a line could tell.
    let origin = (!matches!(caller.rights, Rights::Nothing)).then(|| Arc::clone(&caller.origin));
    let taken_back = match &caller.rights {
        rights @ Rights::Token(_) => Some(Box::pin(Arc::clone(&api.access).taken_back(rights.clone()))),
        _ => None,
    };
    request.extensions_mut().insert(caller);
    let span = telemetry::request(&request);
    let served = next.run(request).instrument(span.clone());
    let response = match taken_back {
        None => served.await,
        Some(mut taken_back) => tokio::select! {
            biased;
            response = served => response.map(|body| Body::new(Granted { body, taken_back })),
            () = &mut taken_back => not_valid().into_response(),
        },
    };
    span.record("http.response.status_code", response.status().as_u16());
    if let Some(origin) = origin.filter(|_| is_forbidden(&response)) {
        refused(&asked, &origin);
    }
    response
}

fn too_many(why: impl ToString) -> Fault {
    Fault::new(StatusCode::TOO_MANY_REQUESTS, why)
}

/// Notes that a request was not allowed, with the beginning of its path.
fn refused((method, uri): &(Method, Uri), by: &Origin) {
    let path: String = uri.path().chars().take(PATH_CHARS).collect();
    audit::refused(&format!("{method} {path}"), by);
}

/// True if it says so, in the words of HTTP or of gRPC.
fn is_forbidden(response: &Response) -> bool {
    let of_grpc = response.headers().get("grpc-status");
    response.status() == StatusCode::FORBIDDEN || of_grpc.is_some_and(|status| *status == *"7")
}

fn not_valid() -> Fault {
    Fault::new(StatusCode::UNAUTHORIZED, "the token is not valid")
}

/// A body for a client with a token. It ends when the token is taken back.
struct Granted<T> {
    body: Body,
    taken_back: Pin<Box<T>>,
}

impl<T: Future<Output = ()>> HttpBody for Granted<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending if self.taken_back.as_mut().poll(cx).is_ready() => Poll::Ready(None),
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn check_browser<B>(request: &axum::http::Request<B>, tls: bool) -> Result<(), Fault> {
    let refuse = |text: String| Err(Fault::new(StatusCode::FORBIDDEN, text));
    let headers = request.headers();
    let host = request.uri().authority().map(|authority| authority.as_str());
    let host = host.or_else(|| headers.get(header::HOST).and_then(|host| host.to_str().ok())).unwrap_or_default();
    if !is_local(host) {
        let shown: String = host.chars().take(80).collect();
        return refuse(format!(
            "'{shown}' is not a name of this machine's loopback; use 127.0.0.1 or localhost, or set up tokens"
        ));
    }
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let scheme = if tls { "https" } else { "http" };
    if text("origin").is_some_and(|origin| origin != format!("{scheme}://{host}"))
        || text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"))
    {
        return refuse("a page of another site may not change anything here".to_owned());
    }
    Ok(())
}

/// True for addresses of the loopback and its usual name, with or without a port.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_loopback_are_local() {
        for name in ["127.0.0.1", "127.0.0.1:80", "localhost", "LOCALHOST:1", "[::1]:80", "[::1]", "127.8.8.8"] {
            assert!(is_local(name), "{name}");
        }
        for name in [
            "",
            ":80",
            "evil.example",
            "127.0.0.1.evil.example:80",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]:1",
            "[",
            "::1.x",
        ] {
            assert!(!is_local(name), "{name}");
        }
    }

    #[test]
    fn a_token_is_read_however_clients_send_it() {
        let of = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            secret(&headers).map(str::to_owned)
        };
        assert_eq!(of("authorization", "Bearer abc").as_deref(), Some("abc"));
        assert_eq!(of("authorization", "bearer  abc").as_deref(), Some("abc"));
        assert_eq!(of("authorization", "abc").as_deref(), Some("abc"));
        assert_eq!(of("token", "abc").as_deref(), Some("abc"));
        assert_eq!(of("authorization", "Basic YTpi").as_deref(), Some("Basic YTpi"));
        assert_eq!(of("x", "abc"), None);
    }
}
