//! The agent's API over HTTP: JSON for programs, events and metrics, and the dashboard.
//!
//! [`ROUTES`] lists all of it; `openapi.json` says the same to clients, and a test compares the two. In builds with debug assertions an
//! answer whose status is not in the list is a panic, so that tests find it.
//!
//! A client's mistake is answered with a status between 400 and 499 and one line in JSON ([`Fault`]). Everything that a
//! client can make grow has a bound: connections, streams, waits, leases, bodies, headers. A client that does not read is cut off
//! ([`Impatient`](io::Impatient)).

mod access;
mod answer;
mod body;
mod certificate;
mod dashboard;
mod events;
mod group;
mod input;
mod io;
mod leases;
mod locks;
mod metrics;
mod pages;
mod quota;
mod server;
mod trace;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Router, middleware};

pub(crate) use self::access::{Access, Authenticated, Caller, LeaseUse};
pub(crate) use self::answer::Fault;
pub(crate) use self::body::{BODY_BYTES_MAX, Bodies, BodyFault, DoorBodies, STRANGERS_BYTES_MAX, Timed, read};
pub(crate) use self::leases::{end_lease, needs_own_lease};
pub(crate) use self::quota::take_request;
pub(crate) use self::server::{Server, ServerOptions};
use crate::connections::{Connections, Limits};
use crate::os;
use crate::service::Service;
use crate::shares::Shares;

/// The state that handlers of requests share. A clone shares it too.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) service: Service,
    pub(crate) access: Arc<Access>,
    pub(crate) traffic: Arc<Traffic>,
}

/// Counts and budgets of the front doors.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// Requests that were answered, by route and status. There are as many as there are of both.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// Each door has a budget of its own: nobody who reaches one can shut the other.
    pub(crate) tcp: Arc<Connections>,
    pub(crate) unix: Arc<Connections>,
    tcp_bodies: Arc<DoorBodies>,
    unix_bodies: Arc<DoorBodies>,
    /// Clients that listen to events or messages.
    pub(crate) streams: Arc<Shares>,
}

impl Default for Traffic {
    fn default() -> Self {
        let descriptors = os::descriptors();
        Self {
            requests: Mutex::default(),
            tcp: Connections::new(Limits::of_tcp(descriptors)),
            unix: Connections::new(Limits::of_unix(descriptors)),
            tcp_bodies: Arc::default(),
            unix_bodies: Arc::default(),
            streams: Arc::default(),
        }
    }
}

impl Traffic {
    fn count(&self, route: &'static str, status: u16) {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry((route, status)).or_default() += 1;
    }

    pub(crate) fn requests(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One way into the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// With which it may be answered, beside those of [`ANY_STATUS`].
    pub(crate) statuses: &'static [u16],
}

/// With which every request may be answered: not understood, no token, not allowed, too slow or too large, and too many.
pub(crate) const ANY_STATUS: &[u16] = &[400, 401, 403, 408, 413, 429, 503];

const fn route(method: &'static str, path: &'static str, statuses: &'static [u16]) -> Route {
    Route { method, path, statuses }
}

/// All routes.
pub(crate) const ROUTES: &[Route] = &[
    route("GET", "/", &[200]),
    route("GET", "/dashboard/{file}", &[200, 404]),
    route("GET", "/openapi.json", &[200]),
    route("GET", "/healthz", &[200]),
    route("GET", "/readyz", &[200]),
    route("GET", "/metrics", &[200]),
    route("GET", "/v1/status", &[200]),
    route("GET", "/v1/members", &[200]),
    route("POST", "/v1/members/{id}/evict", &[200, 404, 409, 504]),
    route("POST", "/v1/keys/{key}/ban", &[200, 409, 504]),
    route("POST", "/v1/keys/{key}/admit", &[200, 409, 504]),
    route("GET", "/v1/events", &[200]),
    route("GET", "/v1/locks", &[200]),
    route("GET", "/v1/locks/{name}", &[200]),
    route("GET", "/v1/locks/{name}/trace", &[200]),
    route("POST", "/v1/locks/{name}/acquire", &[200, 404, 409]),
    route("POST", "/v1/locks/{name}/break", &[200, 409, 504]),
    route("GET", "/v1/leases", &[200]),
    route("POST", "/v1/leases", &[200]),
    route("GET", "/v1/leases/{id}", &[200, 404]),
    route("DELETE", "/v1/leases/{id}", &[200, 404]),
    route("POST", "/v1/leases/{id}/keepalive", &[200, 404]),
    route("DELETE", "/v1/leases/{id}/locks/{name}", &[200, 404]),
];

/// The routes, and those of etcd's API, behind the check of who asks.
fn router(api: Api, etcd: Router<Api>) -> Router {
    Router::new()
        .route("/", get(dashboard::page))
        .route("/dashboard/{file}", get(dashboard::file))
        .route("/openapi.json", get(pages::openapi))
        .route("/healthz", get(pages::health))
        .route("/readyz", get(pages::readiness))
        .route("/metrics", get(pages::metrics))
        .route("/v1/status", get(group::status))
        .route("/v1/members", get(group::members))
        .route("/v1/members/{id}/evict", post(group::evict))
        .route("/v1/keys/{key}/ban", post(group::ban_key))
        .route("/v1/keys/{key}/admit", post(group::admit_key))
        .route("/v1/events", get(events::events))
        .route("/v1/locks", get(locks::list))
        .route("/v1/locks/{name}", get(locks::show))
        .route("/v1/locks/{name}/trace", get(trace::trace))
        .route("/v1/locks/{name}/acquire", post(locks::acquire))
        .route("/v1/locks/{name}/break", post(locks::break_lock))
        .route("/v1/leases", get(leases::list).post(leases::grant))
        .route("/v1/leases/{id}", get(leases::show).delete(leases::revoke))
        .route("/v1/leases/{id}/keepalive", post(leases::keepalive))
        .route("/v1/leases/{id}/locks/{name}", delete(leases::release))
        .method_not_allowed_fallback(answer::wrong_method)
        .route_layer(middleware::from_fn_with_state(api.clone(), check_status))
        .merge(etcd)
        .fallback(answer::no_such_path)
        .layer(from_fn_with_state(api.clone(), access::check))
        .with_state(api)
}

/// Counts answers, and makes sure that clients are told of every status.
async fn check_status(State(api): State<Api>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    // A request for the head alone is answered as one for all.
    let method = if request.method() == "HEAD" { "GET".to_owned() } else { request.method().to_string() };
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let of_path = |route: &&Route| path.as_ref().is_some_and(|path| path.as_str() == route.path);
    if let Some(route) = ROUTES.iter().filter(of_path).find(|route| route.method == method) {
        debug_assert!(
            route.statuses.contains(&status) || ANY_STATUS.contains(&status),
            "{} {} is not to be answered with {status}",
            route.method,
            route.path
        );
        api.traffic.count(route.path, status);
    }
    response.into_response()
}

#[cfg(test)]
mod rights_tests;
#[cfg(test)]
mod tests;
