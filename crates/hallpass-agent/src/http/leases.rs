use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::answer;
use super::input::{Lease, LockName, Params, Unread};
use super::locks::ttl;
use super::{Api, Caller, Fault};
use crate::service::{HeldInfo, LeaseInfo, LeaseTtl};
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
    let request = request.read(&api).await?;
    let ttl = ttl(request.ttl_ms, &api)?;
    let told = api.service.grant(None, ttl, caller.owner(), Arc::clone(&caller.origin))?;
    Ok(answer(&json!({"lease": told.id.to_string(), "ttl_ms": told.millis()})))
}

pub(super) async fn list(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Result<Response, Fault> {
    caller.needs_some(Right::Inspect)?;
    let all = api.service.leases();
    let mine = all.into_iter().filter(|id| caller.needs_lease(&api.service, *id).is_ok());
    let infos = mine.take(LIST_MAX).filter_map(|id| api.service.promise_lease(id).ok());
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
    caller.needs_lease(&api.service, id)?;
    let released = api.service.revoke(id)?;
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
    caller.needs_lease(&api.service, id)?;
    let released = api.service.release(id, &name, request.fence).await?;
    Ok(answer(&json!({"lease": id.to_string(), "lock": name, "released": released})))
}

fn document(info: &LeaseInfo) -> Value {
    json!({
        "lease": info.id.to_string(),
        "granted_ms": info.granted.as_millis() as u64,
        "left_ms": info.ttl.as_ref().map_or(0, LeaseTtl::millis),
        "token": info.owner.as_deref(),
        "client": info.origin.client,
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
