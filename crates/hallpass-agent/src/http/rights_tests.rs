//! Which rights each route asks for, and that it asks before it reads a body.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use hallpass::Node;
use hallpass_testkit::{LIMIT, Scratch};
use hyper::body::Frame;
use tokio::sync::Notify;
use tower_service::Service as _;

use super::access::{Peer, Transport};
use super::*;
use crate::connections::{Connection, Source};
use crate::registry::Origin;
use crate::tokens::{Right, Token};
use crate::{Agent, AgentOptions, grpc};

/// The rights of which one is enough, in the order acquire, inspect, break, administer; all of them false: anybody may.
type Enough = [bool; 4];

const OPEN: Enough = [false; 4];
const ACQUIRE: Enough = [true, false, false, false];
const INSPECT: Enough = [false, true, false, false];
const LOOK: Enough = [true, true, false, false];
const BREAK: Enough = [false, false, true, false];
const ADMINISTER: Enough = [false, false, false, true];

const KEY: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// Every route, with who may use it. A new route is not served before somebody has thought about this.
const EXPECTED: &[(&str, Enough)] = &[
    ("GET /", OPEN),
    ("GET /dashboard/{file}", OPEN),
    ("GET /openapi.json", OPEN),
    ("GET /healthz", OPEN),
    ("GET /readyz", OPEN),
    ("GET /metrics", INSPECT),
    ("GET /v1/status", INSPECT),
    ("GET /v1/members", INSPECT),
    ("POST /v1/members/{id}/evict", ADMINISTER),
    ("POST /v1/keys/{key}/ban", ADMINISTER),
    ("POST /v1/keys/{key}/admit", ADMINISTER),
    ("GET /v1/events", INSPECT),
    ("GET /v1/locks", INSPECT),
    ("GET /v1/locks/{name}", INSPECT),
    ("GET /v1/locks/{name}/trace", INSPECT),
    ("POST /v1/locks/{name}/acquire", ACQUIRE),
    ("POST /v1/locks/{name}/break", BREAK),
    ("GET /v1/leases", INSPECT),
    ("POST /v1/leases", ACQUIRE),
    ("GET /v1/leases/{id}", LOOK),
    ("DELETE /v1/leases/{id}", LOOK),
    ("POST /v1/leases/{id}/keepalive", LOOK),
    ("DELETE /v1/leases/{id}/locks/{name}", LOOK),
    ("POST /v3lockpb.Lock/Lock", ACQUIRE),
    ("POST /v3lockpb.Lock/Unlock", ACQUIRE),
    ("POST /etcdserverpb.Lease/LeaseGrant", ACQUIRE),
    ("POST /etcdserverpb.Lease/LeaseRevoke", LOOK),
    ("POST /etcdserverpb.Lease/LeaseKeepAlive", LOOK),
    ("POST /etcdserverpb.Lease/LeaseTimeToLive", LOOK),
    ("POST /etcdserverpb.Lease/LeaseLeases", LOOK),
    ("POST /etcdserverpb.KV/Range", LOOK),
    ("POST /etcdserverpb.KV/DeleteRange", ACQUIRE),
    ("POST /etcdserverpb.KV/Txn", LOOK),
    ("POST /etcdserverpb.Watch/Watch", LOOK),
    ("POST /etcdserverpb.Maintenance/Status", LOOK),
    ("POST /etcdserverpb.Auth/Authenticate", OPEN),
    ("POST /etcdserverpb.Cluster/MemberList", LOOK),
    ("POST /v3/lock/lock", ACQUIRE),
    ("POST /v3/lock/unlock", ACQUIRE),
    ("POST /v3/lease/grant", ACQUIRE),
    ("POST /v3/lease/keepalive", LOOK),
    ("POST /v3/lease/revoke", LOOK),
    ("POST /v3/lease/timetolive", LOOK),
    ("POST /v3/lease/leases", LOOK),
    ("POST /v3/kv/lease/revoke", LOOK),
    ("POST /v3/kv/lease/timetolive", LOOK),
    ("POST /v3/kv/lease/leases", LOOK),
    ("POST /v3/auth/authenticate", OPEN),
    ("POST /v3/maintenance/status", LOOK),
    // What is not served, which everybody may be told.
    ("POST /v3/{*rest}", OPEN),
    ("POST /etcdserverpb.{service}/{{method}}", OPEN),
    ("POST /v3electionpb.Election/{method}", OPEN),
];

/// The routes that the source of etcd's router names.
fn routes_of_etcd() -> Vec<String> {
    let mut paths = Vec::new();
    for part in include_str!("../grpc/mod.rs").split(".route(").skip(1) {
        paths.extend(part.split('"').nth(1).map(|path| format!("POST {path}")));
    }
    paths
}

/// A body that never comes, and tells when somebody waits for it.
struct Silent(Arc<Notify>);

impl HttpBody for Silent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.notify_one();
        Poll::Pending
    }
}

/// True if a request is answered that the caller may not send this. What is answered later, or otherwise, is allowed.
async fn is_refused(mut router: Router, route: &str, token: Option<&str>) -> bool {
    let (method, path) = route.split_once(' ').expect("a method and a path");
    let path = path.replace("{id}", "1f").replace("{name}", "a").replace("{file}", "page.js").replace("{key}", KEY);
    let path = path.replace("{*rest}", "kv/put").replace("{service}", "KV").replace("{{method}}", "Compact");
    let asked = Arc::new(Notify::new());
    let mut request = Request::builder().method(method).uri(path.replace("{method}", "Leader"));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if path.contains("pb.") {
        request = request.header("content-type", "application/grpc");
    }
    let peer = Peer {
        origin: Arc::new(Origin::default()),
        transport: Transport::Tcp { tls: false },
        connection: Connection::alone(),
        source: Source::Own,
        bodies: Arc::default(),
    };
    let request = request.extension(peer).body(Body::new(Silent(Arc::clone(&asked)))).expect("a request");
    let answered = async {
        tokio::select! {
            biased;
            answer = router.call(request) => Some(answer.expect("it is answered")),
            () = asked.notified() => None,
        }
    };
    let answer: Option<Response> = tokio::time::timeout(LIMIT, answered).await.expect("it is answered at once");
    answer.is_some_and(|answer| {
        let code = answer.headers().get("grpc-status").and_then(|code| code.to_str().ok().map(str::to_owned));
        matches!(answer.status().as_u16(), 401 | 403) || matches!(code.as_deref(), Some("7" | "16"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_asks_for_rights_before_it_reads_a_body() {
    let served = ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).chain(routes_of_etcd());
    let mut served: Vec<String> = served.collect();
    let mut expected: BTreeMap<String, Enough> = BTreeMap::new();
    for (route, enough) in EXPECTED {
        assert!(expected.insert((*route).to_owned(), *enough).is_none(), "{route} is listed twice");
    }
    served.sort();
    assert_eq!(served, expected.keys().cloned().collect::<Vec<_>>(), "a route has no entry here, or is gone");

    let directory = Scratch::new("rights");
    let made = Right::ALL.map(|(right, name)| Token::new(name, [right], []).expect("a token"));
    let file = directory.join("tokens.toml");
    std::fs::write(&file, made.iter().map(|(_, token)| token.to_toml()).collect::<String>()).expect("it is written");
    let options = AgentOptions::new(directory.join("agent.sock"), directory.join("data"));
    let agent = Agent::start(Node::builder().group("g").name("n"), options).await.expect("the agent starts");
    let access = Arc::new(Access::new(Some(&file)).expect("the tokens are right"));
    let api = Api { service: agent.service(), access, traffic: Arc::default() };
    let router = router(api.clone(), grpc::router(api));
    let mut wrong = Vec::new();
    for (route, enough) in EXPECTED {
        let is_open = *enough == OPEN;
        if is_refused(router.clone(), route, None).await == is_open {
            wrong.push(format!("{route} without a token"));
        }
        for ((secret, token), is_enough) in made.iter().zip(enough) {
            if is_refused(router.clone(), route, Some(secret)).await == (is_open || *is_enough) {
                wrong.push(format!("{route} with the right to {}", token.name));
            }
        }
        assert!(is_refused(router.clone(), route, Some("guess")).await, "{route} with a token that is none");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let stop = agent.stopper();
    let serving = tokio::spawn(agent.serve());
    stop();
    tokio::time::timeout(LIMIT, serving).await.expect("it ends").expect("without a panic").expect("in order");
}

/// A body that has come in part: the rest comes when it was asked for.
struct Slow(bool);

impl HttpBody for Slow {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(None);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_strangers_leave_room_for_those_of_others() {
    let directory = Scratch::new("bodies");
    let (secret, token) = Token::new("t", [Right::Acquire], []).expect("a token");
    let file = directory.join("tokens.toml");
    std::fs::write(&file, token.to_toml()).expect("it is written");
    let options = AgentOptions::new(directory.join("agent.sock"), directory.join("data"));
    let agent = Agent::start(Node::builder().group("g").name("n"), options).await.expect("the agent starts");
    let access = Arc::new(Access::new(Some(&file)).expect("the token is right"));
    let api = Api { service: agent.service(), access, traffic: Arc::default() };
    let router = router(api.clone(), grpc::router(api.clone()));
    let request = |path: &str, transport, body| {
        let bodies = match transport {
            Transport::Tcp { .. } => &api.traffic.tcp_bodies,
            Transport::Unix { .. } => &api.traffic.unix_bodies,
        };
        let (connection, bodies) = (Connection::alone(), Arc::clone(bodies));
        let peer = Peer { origin: Arc::default(), transport, connection, source: Source::Own, bodies };
        Request::builder().method("POST").uri(path).extension(peer).body(body).expect("a request")
    };
    let (tcp, unix) = (Transport::Tcp { tls: true }, Transport::Unix { user: Some(0), trusted: true });
    let mut calls = tokio::task::JoinSet::new();
    let mut refused = 0;
    for _ in 0..1_000 {
        let asked = Arc::new(Notify::new());
        let body = Body::new(Silent(Arc::clone(&asked)));
        let answer = router.clone().call(request("/v3/auth/authenticate", tcp, body));
        let (sender, begun) = tokio::sync::oneshot::channel();
        calls.spawn(async move {
            let mut answer = std::pin::pin!(answer);
            tokio::select! {
                biased;
                answer = &mut answer => {
                    let _ = sender.send(answer.expect("it is answered").status());
                    return;
                }
                () = asked.notified() => drop(sender),
            }
            let _ = answer.await;
        });
        refused += usize::from(begun.await.is_ok_and(|status| status == 429));
    }
    assert!(refused > 0, "so many are too many");
    for (transport, secret) in [(tcp, Some(&secret)), (unix, None)] {
        let mut asks = request("/v1/locks/a/acquire", transport, Body::new(Slow(false)));
        if let Some(secret) = secret {
            asks.headers_mut().insert("authorization", format!("Bearer {secret}").parse().expect("a header"));
        }
        let answer = tokio::time::timeout(LIMIT, router.clone().call(asks)).await.expect("it is answered");
        let answer = answer.expect("it is answered");
        assert_eq!(answer.status(), 200, "{transport:?}");
        let shared = agent.service().leases().into_iter().map(|id| agent.service().revoke(id).map(drop));
        shared.collect::<Result<(), _>>().expect("it is released");
    }
    drop(calls);
    let stop = agent.stopper();
    let serving = tokio::spawn(agent.serve());
    stop();
    tokio::time::timeout(LIMIT, serving).await.expect("it ends").expect("without a panic").expect("in order");
}
