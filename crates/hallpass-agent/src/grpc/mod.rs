//! etcd's API, as much of it as locks need, so that programs which use etcd's locks use hallpass unchanged: its gRPC services, and its
//! JSON gateway.
//!
//! - `v3lockpb.Lock` and `etcdserverpb.Lease` are the [service](crate::service) in other words ([`lock`], [`lease`]).
//! - Go's `concurrency.Mutex` and `etcdctl lock` use KV and Watch instead. Those are served for lock keys only ([`key`], [`kv`],
//!   [`watch`]); what a key stands for is explained in [`waiters`].
//! - `Maintenance/Status` and `Cluster/MemberList` answer clients that ask first ([`cluster`]).
//!
//! Codes and texts of errors are etcd's where clients test for them ([`error`]). Where etcd is unsafe this is not: see docs/etcd.md.
//!
//! Invariants:
//! 1. An answer that a client holds a lock is made from what the service says at that moment, with the lease alive
//!    ([`Service::confirm_held`](crate::service::Service::confirm_held)). It is never made from memory.
//! 2. A deletion releases only the grant that its key stood for when it came in.
//! 3. A waiter leaves no trace behind when its call is dropped, its key deleted or its lease over.

mod call;
mod cluster;
mod error;
mod gateway;
mod json;
mod key;
mod kv;
mod lease;
mod lock;
#[allow(missing_docs, reason = "the fields are etcd's, and documented there")]
#[allow(unreachable_pub, reason = "derives want the parts of a message as public as itself")]
mod proto;
mod waiters;
mod watch;

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::extract::{Path, Request, State};
use axum::http::header;
use axum::response::Response;
use axum::routing::{self, MethodRouter, post};
use axum::{Extension, Router};
use hallpass_core::Fence;
use prost::Message;
use tonic::{Status, Streaming};

use self::call::Answers;
use self::proto::ResponseHeader;
use self::waiters::EtcdWaiters;
use crate::http::{Api, BODY_BYTES_MAX, Caller, Fault, STRANGERS_BYTES_MAX};
use crate::shares::Shares;
use crate::tokens::Right;

/// The state that calls of etcd's API share.
#[derive(Debug)]
pub(crate) struct Etcd {
    api: Api,
    waiters: EtcdWaiters,
    /// The newest fence this agent has issued: responses that concern no lock carry it.
    newest: AtomicI64,
    /// Watches that wait.
    watches: Arc<Shares>,
}

impl Etcd {
    fn new(api: Api) -> Self {
        let waiters = EtcdWaiters::new(api.service.clone());
        Self { api, waiters, newest: AtomicI64::new(1), watches: Arc::default() }
    }

    fn header(&self) -> Option<ResponseHeader> {
        self.header_with(self.newest.load(Ordering::Relaxed))
    }

    /// The header of an answer about a lock. Its revision is the fence, or the number that a waiter has until it is granted.
    fn header_at(&self, revision: i64) -> Option<ResponseHeader> {
        self.newest.fetch_max(revision, Ordering::Relaxed);
        self.header_with(revision)
    }

    fn header_with(&self, revision: i64) -> Option<ResponseHeader> {
        let (cluster_id, member_id) = self.api.service.shared().identity();
        // The epoch, which fences have in front.
        let raft_term = (self.newest.load(Ordering::Relaxed) >> Fence::COUNT_BITS) as u64;
        Some(ResponseHeader { cluster_id, member_id, revision, raft_term })
    }
}

/// For what anybody may ask, without a token.
const OPEN: &[Right] = &[];
/// For what asks for a lock or a lease.
const ACQUIRE: &[Right] = &[Right::Acquire];
/// For what only reads: a caller who may acquire may also read what acquiring needs.
const LOOK: &[Right] = &[Right::Acquire, Right::Inspect];

/// The routes of etcd's API, each with the rights of which a caller needs one. They are checked before anything of a body is read; those to
/// a certain lock or lease are checked when its name is known.
pub(crate) fn router(api: Api) -> Router<Api> {
    let mut router = Router::new()
        .route("/v3lockpb.Lock/Lock", unary(ACQUIRE, Etcd::lock))
        .route("/v3lockpb.Lock/Unlock", unary(ACQUIRE, Etcd::unlock))
        .route("/etcdserverpb.Lease/LeaseGrant", unary(ACQUIRE, Etcd::lease_grant))
        .route("/etcdserverpb.Lease/LeaseRevoke", unary(LOOK, Etcd::lease_revoke))
        .route("/etcdserverpb.Lease/LeaseKeepAlive", streaming(LOOK, Etcd::lease_keep_alives))
        .route("/etcdserverpb.Lease/LeaseTimeToLive", unary(LOOK, Etcd::lease_time_to_live))
        .route("/etcdserverpb.Lease/LeaseLeases", unary(LOOK, Etcd::lease_leases))
        .route("/etcdserverpb.KV/Range", unary(LOOK, Etcd::range))
        .route("/etcdserverpb.KV/DeleteRange", unary(ACQUIRE, Etcd::delete_range))
        .route("/etcdserverpb.KV/Txn", unary(LOOK, Etcd::txn))
        .route("/etcdserverpb.Watch/Watch", streaming(LOOK, Etcd::watch))
        .route("/etcdserverpb.Maintenance/Status", unary(LOOK, Etcd::status))
        .route("/etcdserverpb.Auth/Authenticate", unary(OPEN, Etcd::authenticate))
        .route("/etcdserverpb.Cluster/MemberList", post(member_list))
        .route("/v3/lock/lock", gateway::unary(ACQUIRE, Etcd::lock))
        .route("/v3/lock/unlock", gateway::unary(ACQUIRE, Etcd::unlock))
        .route("/v3/lease/grant", gateway::unary(ACQUIRE, Etcd::lease_grant))
        .route("/v3/lease/keepalive", gateway::keep_alives(LOOK))
        .route("/v3/auth/authenticate", gateway::unary(OPEN, Etcd::authenticate))
        .route("/v3/maintenance/status", gateway::unary(LOOK, Etcd::status))
        // etcd has these under two paths.
        .route("/v3/lease/revoke", gateway::unary(LOOK, Etcd::lease_revoke))
        .route("/v3/lease/timetolive", gateway::unary(LOOK, Etcd::lease_time_to_live))
        .route("/v3/lease/leases", gateway::unary(LOOK, Etcd::lease_leases))
        .route("/v3/kv/lease/revoke", gateway::unary(LOOK, Etcd::lease_revoke))
        .route("/v3/kv/lease/timetolive", gateway::unary(LOOK, Etcd::lease_time_to_live))
        .route("/v3/kv/lease/leases", gateway::unary(LOOK, Etcd::lease_leases))
        // All other calls are refused in etcd's words.
        .route("/v3/{*rest}", routing::any(gateway::unserved));
    for service in ["KV", "Watch", "Lease", "Cluster", "Maintenance", "Auth"] {
        router = router.route(&format!("/etcdserverpb.{service}/{{method}}"), post(unserved));
    }
    router.route("/v3electionpb.Election/{method}", post(unserved)).with_state(Arc::new(Etcd::new(api)))
}

/// The longest message of those who need these rights.
fn bytes_max(needs: &[Right]) -> usize {
    if needs.is_empty() { STRANGERS_BYTES_MAX } else { BODY_BYTES_MAX }
}

/// A call of gRPC with one message for one.
fn unary<Q, A, R>(
    needs: &'static [Right],
    call: impl Fn(Arc<Etcd>, Caller, Q) -> R + Clone + Send + Sync + 'static,
) -> MethodRouter<Arc<Etcd>>
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    R: Future<Output = Result<A, Status>> + Send + 'static,
{
    post(async move |State(etcd): State<Arc<Etcd>>, Extension(caller): Extension<Caller>, request: Request| {
        if let Err(fault) = caller.needs_any(needs) {
            return call::refuse(&fault.into());
        }
        let call = |message| call(Arc::clone(&etcd), caller.clone(), message);
        call::unary(request, bytes_max(needs), caller.bodies(), call).await
    })
}

/// A call of gRPC with a stream for a stream.
fn streaming<Q, A>(
    needs: &'static [Right],
    call: impl Fn(Arc<Etcd>, Caller, Streaming<Q>) -> Answers<A> + Clone + Send + Sync + 'static,
) -> MethodRouter<Arc<Etcd>>
where
    Q: Message + Default + 'static,
    A: Message + 'static,
{
    post(async move |State(etcd): State<Arc<Etcd>>, Extension(caller): Extension<Caller>, request: Request| {
        if let Err(fault) = caller.needs_any(needs) {
            return call::refuse(&fault.into());
        }
        let call = |requests| ready(Ok(call(Arc::clone(&etcd), caller.clone(), requests)));
        call::streaming(request, caller.bodies(), call).await
    })
}

/// Where the client has reached this agent, it can again.
async fn member_list(
    State(etcd): State<Arc<Etcd>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    if let Err(fault) = caller.needs_any(LOOK) {
        return call::refuse(&fault.into());
    }
    let uri = request.uri();
    let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(|authority| authority.as_str()).or(named);
    let here = host.map(|host| format!("{}://{host}", uri.scheme_str().unwrap_or("http")));
    let call = |message| Arc::clone(&etcd).member_list(caller.clone(), here.clone(), message);
    call::unary(request, BODY_BYTES_MAX, caller.bodies(), call).await
}

/// A call that is refused before it is read.
pub(crate) fn refuse(fault: Fault) -> Response {
    call::refuse(&fault.into())
}

async fn unserved(Path(method): Path<String>) -> Response {
    let shown: String = method.chars().take(40).filter(char::is_ascii_alphanumeric).collect();
    call::refuse(&error::unserved(shown))
}

/// For the fuzz targets: reads everything that a client can send, in all ways.
#[doc(hidden)]
pub mod fuzzing {
    use prost::Message;

    use super::gateway::{read, read_all};
    use super::key::Key;
    use super::proto::*;
    use super::{kv, lease};

    /// Reads a message of gRPC. What is read twice must be the same.
    pub fn message(kind: u8, bytes: &[u8]) {
        fn check<M: Message + Default + PartialEq>(bytes: &[u8]) -> Option<M> {
            let message = M::decode(bytes).ok()?;
            // Numbers that etcd does not know are kept, so that this holds for all.
            assert!(M::decode(message.encode_to_vec().as_slice()).is_ok_and(|again| again == message));
            Some(message)
        }
        match kind % 6 {
            0 => drop(check::<LockRequest>(bytes)),
            1 => drop(check::<UnlockRequest>(bytes).map(|request| Key::parse(&request.key).is_ok())),
            2 => drop(check::<LeaseGrantRequest>(bytes).map(|request| lease::lease_id(request.id))),
            3 => drop(check::<RangeRequest>(bytes).map(|request| kv::is_served(&request))),
            4 => drop(check::<TxnRequest>(bytes).map(kv::is_served_txn)),
            _ => drop(check::<WatchRequest>(bytes)),
        }
    }

    /// Reads a message of the gateway.
    pub fn gateway(body: &[u8]) {
        let _ = read::<LockRequest>(body);
        let _ = read::<UnlockRequest>(body);
        let _ = read::<LeaseGrantRequest>(body);
        let _ = read::<LeaseTimeToLiveRequest>(body);
        let _ = read_all(body);
    }
}

#[cfg(test)]
mod tests;
