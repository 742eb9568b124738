use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use super::answer::{answer, typed};
use super::{Api, Caller, Fault, metrics};
use crate::tokens::Right;

/// The description of the API, for programs.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

pub(super) async fn openapi() -> Response {
    typed("application/json", OPENAPI)
}

/// The process answers.
pub(super) async fn health() -> Response {
    answer(&json!({"alive": true}))
}

/// Locks are granted.
pub(super) async fn readiness(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Result<Response, Fault> {
    let shared = api.service.shared();
    let status = shared.node().status();
    if shared.is_ending() {
        return Err(Fault::new(StatusCode::SERVICE_UNAVAILABLE, "the agent ends"));
    }
    if !status.complete {
        let why = status
            .waits_for
            .filter(|_| caller.may_some(Right::Inspect))
            .unwrap_or_else(|| "no locks are granted".to_owned());
        return Err(Fault::new(StatusCode::SERVICE_UNAVAILABLE, why));
    }
    Ok(answer(&json!({"ready": true})))
}

pub(super) async fn metrics(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Result<Response, Fault> {
    caller.needs_some(Right::Inspect)?;
    Ok(typed("text/plain; version=0.0.4; charset=utf-8", metrics::text(&api)))
}
