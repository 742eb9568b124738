use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::call::Answers;
use super::key::LockKey;
use super::proto::*;
use super::{Etcd, error};
use crate::http::{Caller, end_lease, take_request};
use crate::service::{LeaseError, LeaseId, LeaseTtl, TTL_MAX};
use crate::tokens::Right;

/// The shortest lease, in seconds: etcd makes shorter ones this long, with its usual ticks.
const TTL_MIN: i64 = 2;
/// How many answers to keepalives may wait to be sent. A client that does not read them is not read either.
const ANSWERS_MAX: usize = 64;
/// The sweep of one stream's leases for ended ones begins at this number.
const KEPT_MIN: usize = 64;

impl Etcd {
    pub(super) async fn lease_grant(
        self: Arc<Self>,
        caller: Caller,
        request: LeaseGrantRequest,
    ) -> Result<LeaseGrantResponse, Status> {
        caller.needs_some(Right::Acquire)?;
        if request.ttl > TTL_MAX.as_secs() as i64 {
            return Err(error::ttl_too_large());
        }
        let id = match request.id {
            0 => None,
            id => Some(lease_id(id).ok_or_else(|| error::invalid("the id of a lease is a positive number"))?),
        };
        let ttl = Duration::from_secs(request.ttl.max(TTL_MIN) as u64);
        let told = self.api.service.grant(id, ttl, caller.owner(), Arc::clone(&caller.origin))?;
        let ttl = self.whole_seconds(&told).inspect_err(|_| drop(self.api.service.revoke(told.id)))?;
        Ok(LeaseGrantResponse { header: self.header(), id: told.id.get() as i64, ttl, error: String::new() })
    }

    pub(super) async fn lease_revoke(
        self: Arc<Self>,
        caller: Caller,
        request: LeaseRevokeRequest,
    ) -> Result<LeaseRevokeResponse, Status> {
        let id = lease_id(request.id).ok_or_else(error::lease_not_found)?;
        end_lease(&self.api.service, &caller, id).await?;
        Ok(LeaseRevokeResponse { header: self.header() })
    }

    pub(super) fn lease_keep_alive(
        &self,
        caller: &Caller,
        request: &LeaseKeepAliveRequest,
    ) -> Result<LeaseKeepAliveResponse, Status> {
        take_request(caller)?;
        let answer = |ttl| LeaseKeepAliveResponse { header: self.header(), id: request.id, ttl };
        let Some(id) = lease_id(request.id) else { return Ok(answer(0)) };
        match caller.needs_lease(&self.api.service, id).map_err(Status::from) {
            Err(status) if status.message() == error::LEASE_NOT_FOUND => return Ok(answer(0)),
            checked => drop(checked?),
        }
        // Go's client takes 0 for the end, at once; by a deadline it would notice that later. What it was told before is kept.
        if self.api.service.is_ending() {
            return Ok(answer(0));
        }
        match self.api.service.keepalive(id) {
            Ok(told) => Ok(answer(self.whole_seconds(&told)?)),
            Err(LeaseError::NotFound(_)) => Ok(answer(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers one by one. When the agent ends, it says so of every lease that was kept alive here, without being asked.
    pub(super) fn lease_keep_alives(
        self: Arc<Self>,
        caller: Caller,
        requests: impl Stream<Item = Result<LeaseKeepAliveRequest, Status>> + Send + 'static,
    ) -> Answers<LeaseKeepAliveResponse> {
        let (answers, stream) = mpsc::channel(ANSWERS_MAX);
        tokio::spawn(async move {
            let (requests, mut kept) = (std::pin::pin!(requests), Kept::default());
            tokio::select! {
                () = answers.closed() => {}
                () = self.answer_all(&caller, requests, &answers, &mut kept) => {}
            }
        });
        Answers::new(ReceiverStream::new(stream))
    }

    async fn answer_all(
        &self,
        caller: &Caller,
        mut requests: Pin<&mut impl Stream<Item = Result<LeaseKeepAliveRequest, Status>>>,
        answers: &mpsc::Sender<Result<LeaseKeepAliveResponse, Status>>,
        kept: &mut Kept,
    ) {
        let shared = self.api.service.shared();
        let mut told_end = false;
        loop {
            let request = tokio::select! {
                biased;
                () = shared.ends(), if !told_end => {
                    told_end = true;
                    for id in std::mem::take(&mut kept.ids) {
                        let answer = LeaseKeepAliveResponse { header: self.header(), id, ttl: 0 };
                        if answers.send(Ok(answer)).await.is_err() {
                            return;
                        }
                    }
                    continue;
                }
                request = requests.next() => request,
            };
            let Some(request) = request else { return };
            let answer = request.and_then(|request| self.lease_keep_alive(caller, &request));
            if let Ok(LeaseKeepAliveResponse { id, ttl: 1.., .. }) = answer {
                kept.add(id, || self.api.service.leases());
            }
            let is_over = answer.is_err();
            if answers.send(answer).await.is_err() || is_over {
                return;
            }
        }
    }

    pub(super) async fn lease_time_to_live(
        self: Arc<Self>,
        caller: Caller,
        request: LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, Status> {
        let (header, id) = (self.header(), request.id);
        let unknown = LeaseTimeToLiveResponse { header, id, ttl: -1, ..LeaseTimeToLiveResponse::default() };
        let Some(lease) = lease_id(id) else { return Ok(unknown) };
        let service = &self.api.service;
        let allowed = caller.needs_lease(service, lease).map_err(Status::from);
        let info = match allowed.and_then(|_| service.promise_lease(lease).map_err(Status::from)) {
            Ok(info) => info,
            Err(status) if status.message() == error::LEASE_NOT_FOUND => return Ok(unknown),
            Err(status) => return Err(status),
        };
        let ttl = info.ttl.as_ref().map_or(0, LeaseTtl::seconds) as i64;
        let mut keys = Vec::new();
        if request.keys {
            let held = info.locks.iter().map(|held| LockKey { lock: held.name.as_str().into(), lease });
            keys.extend(held.chain(self.waiters.waiting(lease)).map(|key| key.bytes()));
        }
        let granted_ttl = info.granted.as_secs() as i64;
        Ok(LeaseTimeToLiveResponse { ttl, granted_ttl, keys, ..unknown })
    }

    pub(super) async fn lease_leases(
        self: Arc<Self>,
        caller: Caller,
        _: LeaseLeasesRequest,
    ) -> Result<LeaseLeasesResponse, Status> {
        caller.needs_some(Right::Acquire).or_else(|_| caller.needs_some(Right::Inspect))?;
        let service = &self.api.service;
        let theirs = service.leases_of(|owner| caller.lease_use(owner).is_some());
        let leases = theirs.into_iter().map(|id| LeaseStatus { id: id.get() as i64 }).collect();
        Ok(LeaseLeasesResponse { header: self.header(), leases })
    }

    /// Returns how many whole seconds a client may count on, since etcd's leases count those.
    fn whole_seconds(&self, told: &LeaseTtl) -> Result<i64, Status> {
        let seconds = told.seconds() as i64;
        if seconds > 0 {
            return Ok(seconds);
        }
        let session = self.api.service.shared().ttl();
        if session < Duration::from_secs(2) {
            return Err(Status::failed_precondition(format!(
                "hallpass: etcd's leases count whole seconds, but sessions of this group last {session:?}; found it with --ttl 2s or more"
            )));
        }
        // A session that is about to run out, unless it is renewed in time.
        Err(error::no_leader())
    }
}

/// The leases that one stream keeps alive.
#[derive(Default)]
struct Kept {
    ids: BTreeSet<i64>,
    /// The number of leases at which the next sweep for ended ones begins.
    sweep_at: usize,
}

impl Kept {
    fn add(&mut self, id: i64, all: impl FnOnce() -> Vec<LeaseId>) {
        self.ids.insert(id);
        if self.ids.len() > self.sweep_at.max(KEPT_MIN) {
            let all: BTreeSet<i64> = all().into_iter().map(|id| id.get() as i64).collect();
            self.ids.retain(|id| all.contains(id));
            self.sweep_at = 2 * self.ids.len();
        }
    }
}

pub(super) fn lease_id(number: i64) -> Option<LeaseId> {
    u64::try_from(number).ok().and_then(LeaseId::new)
}
