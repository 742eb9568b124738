use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use hallpass::Mode;
use serde::Deserialize;
use serde_json::json;

use super::answer::answer;
use super::input::{Limit, LockName, Params, Unread, lease_id};
use super::{Api, Caller, Fault};
use crate::service::{Acquired, Wanted};
use crate::status::{self, Filter};
use crate::tokens::Right;

/// How many locks are listed at a time, unless the client says otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;
/// The shortest lease: what is shorter ends on the way.
const TTL_MIN: Duration = Duration::from_millis(100);

/// Which locks to list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    search: String,
    #[serde(default)]
    held: bool,
    after: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<Query>,
) -> Result<Response, Fault> {
    caller.needs_some(Right::Inspect)?;
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Fault::invalid(format!("limit is a number from 1 to {PAGE_MAX}")));
    }
    let filter = Filter {
        prefix: &query.prefix,
        search: &query.search,
        used: query.held,
        after: query.after.as_deref(),
        allowed: &|name| caller.may(Right::Inspect, name),
    };
    let (locks, more) = status::page(api.service.shared(), &filter, limit);
    let next = locks.last().filter(|_| more > 0).map(|lock| lock.name.clone());
    Ok(answer(&json!({"locks": locks, "more": more, "next": next})))
}

pub(super) async fn show(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    LockName(name): LockName,
) -> Result<Response, Fault> {
    caller.needs(Right::Inspect, &name)?;
    Ok(answer(&status::lock(api.service.shared(), &name)))
}

/// How a lock is wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    #[serde(default)]
    mode: RequestMode,
    #[serde(default, rename = "try")]
    tries: bool,
    timeout_ms: Option<u64>,
    ttl_ms: Option<u64>,
    lease: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RequestMode {
    #[default]
    Exclusive,
    Shared,
}

pub(super) async fn acquire(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    LockName(name): LockName,
    request: Unread<Request>,
) -> Result<Response, Fault> {
    caller.needs(Right::Acquire, &name)?;
    let request = request.read(&caller).await?;
    let mode = match request.mode {
        RequestMode::Exclusive => Mode::Exclusive,
        RequestMode::Shared => Mode::Shared,
    };
    // To wait for no time is to try.
    let tries = request.tries || request.timeout_ms == Some(0);
    let timeout = request.timeout_ms.filter(|limit| *limit > 0).map(Duration::from_millis);
    let wanted = Wanted { mode, tries, timeout };
    let acquired = match request.lease {
        Some(_) if request.ttl_ms.is_some() => {
            return Err(Fault::invalid("ttl_ms is that of a new lease; give lease or ttl_ms, not both"));
        }
        Some(id) => {
            let id = lease_id(&id)?;
            caller.needs_lease(&api.service, id)?;
            api.service.acquire(id, &name, wanted).await?
        }
        None => {
            let ttl = ttl(request.ttl_ms, &api)?;
            let (owner, origin) = (caller.owner(), Arc::clone(&caller.origin));
            api.service.acquire_new(ttl, owner, origin, &name, wanted).await?
        }
    };
    let Acquired { fence, lease, .. } = acquired;
    Ok(answer(&json!({
        "lock": name,
        "mode": mode.to_string(),
        "fence": fence.to_string(),
        "fence_number": fence,
        "lease": lease.id.to_string(),
        "ttl_ms": lease.millis(),
    })))
}

/// How long a new lease lasts: a session, unless the client says otherwise.
pub(super) fn ttl(ttl_ms: Option<u64>, api: &Api) -> Result<Duration, Fault> {
    const DAY_MS: u64 = 86_400_000;
    let Some(ttl_ms) = ttl_ms else { return Ok(api.service.shared().ttl()) };
    let ttl = Duration::from_millis(ttl_ms);
    if ttl < TTL_MIN || ttl_ms > DAY_MS {
        return Err(Fault::invalid(format!("ttl_ms is a number from {} to {DAY_MS}", TTL_MIN.as_millis())));
    }
    Ok(ttl)
}

pub(super) async fn break_lock(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    LockName(name): LockName,
    limit: Unread<Limit>,
) -> Result<Response, Fault> {
    caller.needs(Right::Break, &name)?;
    let limit = limit.read(&caller).await?;
    api.service.break_lock(&name, limit.get(), &caller.origin).await?;
    Ok(answer(&json!({"lock": name, "broken": true})))
}
