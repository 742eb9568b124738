use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use hallpass::KeyDigest;
use serde::Deserialize;
use serde_json::json;

use super::answer::answer;
use super::input::{Key, Limit, MemberName, Unread};
use super::{Api, Caller, Fault};
use crate::line_protocol::MemberLine;
use crate::status;
use crate::tokens::Right;

pub(super) async fn status(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Result<Response, Fault> {
    caller.needs_some(Right::Inspect)?;
    let shared = api.service.shared();
    let mut document = serde_json::to_value(status::of(shared)).unwrap_or_default();
    let (held, waiting) = shared.clients.counts();
    document["leases"] = json!(api.service.lease_count());
    document["held"] = json!(held);
    document["waiting"] = json!(waiting);
    Ok(answer(&document))
}

pub(super) async fn members(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Result<Response, Fault> {
    caller.needs_some(Right::Inspect)?;
    let members: Vec<MemberLine> = api.service.shared().node().members().into_iter().map(MemberLine::from).collect();
    Ok(answer(&json!({"members": members})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Evict {
    #[serde(default)]
    ban: bool,
    timeout_ms: Option<u64>,
}

pub(super) async fn evict(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    MemberName(name): MemberName,
    request: Unread<Evict>,
) -> Result<Response, Fault> {
    caller.needs_some(Right::Administer)?;
    let request = request.read(&caller).await?;
    let id = api.service.find_member(&name).map_err(|text| Fault::new(StatusCode::NOT_FOUND, text))?;
    let limit = request.timeout_ms.map(Duration::from_millis);
    api.service.evict((id, &name), request.ban, limit, &caller.origin).await?;
    Ok(answer(&json!({"member": name, "evicted": true})))
}

pub(super) async fn ban_key(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Key(key): Key,
    limit: Unread<Limit>,
) -> Result<Response, Fault> {
    set_ban(&api, &caller, key, true, limit).await
}

pub(super) async fn admit_key(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Key(key): Key,
    limit: Unread<Limit>,
) -> Result<Response, Fault> {
    set_ban(&api, &caller, key, false, limit).await
}

/// Bans a key, or accepts it again.
async fn set_ban(
    api: &Api,
    caller: &Caller,
    key: KeyDigest,
    is_banned: bool,
    limit: Unread<Limit>,
) -> Result<Response, Fault> {
    caller.needs_some(Right::Administer)?;
    let limit = limit.read(caller).await?;
    api.service.ban_key(key, is_banned, limit.get(), &caller.origin).await?;
    Ok(answer(&json!({"key": key.to_string(), "banned": is_banned})))
}
