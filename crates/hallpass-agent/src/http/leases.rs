use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::answer;
use super::input::{Lease, LockName, Params, Unread};
use super::locks::ttl;
use super::{Api, Caller, Fault, LeaseUse};
use crate::service::{HeldInfo, LeaseId, LeaseInfo, LeaseTtl, Service};
use crate::tokens::Right;

/// How many leases are listed at most.
const LIST_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grant {
    ttl_ms: Option<u64>,
}

pub(super) async fn grant(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    request: Unread<Grant>,
) -> Result<Response, Fault> {
    caller.needs_some(Right::Acquire)?;
    let request = request.read(&caller).await?;
    let ttl = ttl(request.ttl_ms, &api)?;
    let told = api.service.grant(None, ttl, caller.owner(), Arc::clone(&caller.origin))?;
    Ok(answer(&json!({"lease": told.id.to_string(), "ttl_ms": told.millis()})))
}

pub(super) async fn list(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Result<Response, Fault> {
    caller.needs_some(Right::Inspect)?;
    let mine = api.service.leases_of(|owner| caller.lease_use(owner).is_some());
    let infos = mine.into_iter().take(LIST_MAX).filter_map(|id| api.service.promise_lease(id).ok());
    Ok(answer(&json!({"leases": infos.map(|info| document(&info)).collect::<Vec<_>>()})))
}

pub(super) async fn show(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Lease(id): Lease,
) -> Result<Response, Fault> {
    caller.needs_lease(&api.service, id)?;
    Ok(answer(&document(&api.service.promise_lease(id)?)))
}

pub(super) async fn keepalive(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Lease(id): Lease,
) -> Result<Response, Fault> {
    caller.needs_lease(&api.service, id)?;
    let told = api.service.keepalive(id)?;
    let locks = api.service.promise_lease(id)?.locks;
    let locks: Vec<Value> = locks.iter().map(lock).collect();
    Ok(answer(&json!({"lease": id.to_string(), "ttl_ms": told.millis(), "locks": locks})))
}

pub(super) async fn revoke(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Lease(id): Lease,
) -> Result<Response, Fault> {
    let released = end_lease(&api.service, &caller, id).await?;
    let released = released.iter().map(|(lock, fence)| json!({"lock": lock, "fence": fence.to_string()}));
    Ok(answer(&json!({"lease": id.to_string(), "released": released.collect::<Vec<_>>()})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    fence: Option<u64>,
}

pub(super) async fn release(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Lease(id): Lease,
    LockName(name): LockName,
    Params(request): Params<Release>,
) -> Result<Response, Fault> {
    needs_own_lease(&api.service, &caller, id)?;
    let released = api.service.release(id, &name, request.fence).await?;
    Ok(answer(&json!({"lease": id.to_string(), "lock": name, "released": released})))
}

/// Ends a lease. That of somebody else keeps its locks until its client has stopped counting on them.
pub(crate) async fn end_lease(service: &Service, caller: &Caller, id: LeaseId) -> Result<Vec<(String, u64)>, Fault> {
    Ok(match caller.needs_lease(service, id)? {
        LeaseUse::Own => service.revoke(id)?,
        LeaseUse::Others => service.end_others_lease(id, &caller.origin).await?,
    })
}

/// To release one lock is for the lease's owner: its client may count on the lock. A break waits for that.
pub(crate) fn needs_own_lease(service: &Service, caller: &Caller, id: LeaseId) -> Result<(), Fault> {
    match caller.needs_lease(service, id)? {
        LeaseUse::Own => Ok(()),
        LeaseUse::Others => {
            let text = format!("lease {id} belongs to somebody else; break the lock, or end the whole lease");
            Err(Fault::new(StatusCode::FORBIDDEN, text))
        }
    }
}

fn document(info: &LeaseInfo) -> Value {
    json!({
        "lease": info.id.to_string(),
        "granted_ms": info.granted.as_millis() as u64,
        "left_ms": info.ttl.as_ref().map_or(0, LeaseTtl::millis),
        "token": info.owner.account().map(|account| account.token().name.clone()),
        "user": info.origin.user,
        "client": info.origin.client(),
        "pid": info.origin.pid,
        "locks": info.locks.iter().map(lock).collect::<Vec<_>>(),
    })
}

fn lock(held: &HeldInfo) -> Value {
    json!({
        "name": held.name,
        "mode": held.mode.to_string(),
        "fence": held.fence.to_string(),
        "at_risk": held.at_risk,
        "broken": held.broken,
    })
}
