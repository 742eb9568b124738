//! etcd's JSON gateway for the calls of locks and leases: `POST` with a message in JSON, see [`json`](super::json).

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tonic::{Code, Status};

use super::proto::LeaseKeepAliveRequest;
use super::{Etcd, bytes_max, error};
use crate::http::{self, Caller};
use crate::tokens::Right;

/// How many keepalives one request may carry: as many as fit into a body, and not more than that.
const KEEPALIVES_MAX: usize = 1000;

/// One message for one.
pub(super) fn unary<Q, A, R>(
    needs: &'static [Right],
    call: impl Fn(Arc<Etcd>, Caller, Q) -> R + Clone + Send + Sync + 'static,
) -> MethodRouter<Arc<Etcd>>
where
    Q: DeserializeOwned + Default + Send + 'static,
    A: Serialize,
    R: Future<Output = Result<A, Status>> + Send + 'static,
{
    post(async move |State(etcd): State<Arc<Etcd>>, Extension(caller): Extension<Caller>, request: Request| {
        let answer = match body(&caller, needs, request).await.and_then(|body| read(&body)) {
            Ok(message) => call(etcd, caller, message).await,
            Err(status) => Err(status),
        };
        answer.map_or_else(|status| fault(&status), |answer| typed(&answer))
    })
    .fallback(wrong_method)
}

/// Keeps leases alive: a message or several, and a line for each.
pub(super) fn keep_alives(needs: &'static [Right]) -> MethodRouter<Arc<Etcd>> {
    post(async move |State(etcd): State<Arc<Etcd>>, Extension(caller): Extension<Caller>, request: Request| {
        let requests = match body(&caller, needs, request).await.and_then(|body| read_all(&body)) {
            Ok(requests) => requests,
            Err(status) => return fault(&status),
        };
        let mut lines = Vec::new();
        for request in &requests {
            let line = match etcd.lease_keep_alive(&caller, request) {
                Ok(answer) => json!({"result": answer}),
                Err(status) if lines.is_empty() => return fault(&status),
                Err(status) => json!({"error": words(&status)}),
            };
            lines.extend(line.to_string().into_bytes());
            lines.push(b'\n');
        }
        with_type(lines.into_response())
    })
    .fallback(wrong_method)
}

/// Refuses all other paths.
pub(super) async fn unserved(uri: Uri) -> Response {
    fault(&error::unserved(uri.path()))
}

/// `GET` of what takes `POST`.
async fn wrong_method(uri: Uri) -> Response {
    let mut response = fault(&error::invalid(format!("{} is for POST", uri.path())));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

/// The body of a request whose caller has one of these rights.
async fn body(caller: &Caller, needs: &[Right], request: Request) -> Result<Vec<u8>, Status> {
    caller.needs_any(needs)?;
    Ok(http::read(request.into_body(), bytes_max(needs), caller.bodies()).await?)
}

/// Reads one message; nothing at all is one with its defaults.
pub(super) fn read<Q: DeserializeOwned + Default>(body: &[u8]) -> Result<Q, Status> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return Ok(Q::default()),
        Some(b'{') => {}
        Some(_) => return Err(error::invalid("the message is not a JSON object")),
    }
    serde_json::from_slice(body).map_err(|error| error::invalid(format!("the message is not understood: {error}")))
}

/// Reads one message after the other.
pub(super) fn read_all(body: &[u8]) -> Result<Vec<LeaseKeepAliveRequest>, Status> {
    let messages = serde_json::Deserializer::from_slice(body).into_iter::<LeaseKeepAliveRequest>();
    let messages: Result<Vec<_>, _> = messages.take(KEEPALIVES_MAX + 1).collect();
    let messages = messages.map_err(|error| error::invalid(format!("the message is not understood: {error}")))?;
    if messages.len() > KEEPALIVES_MAX {
        return Err(error::invalid(format!("more than {KEEPALIVES_MAX} leases in one request")));
    }
    Ok(messages)
}

fn words(status: &Status) -> serde_json::Value {
    // Twice, as etcd does.
    json!({"error": status.message(), "message": status.message(), "code": status.code() as i32})
}

fn fault(status: &Status) -> Response {
    let mut response = typed(&words(status));
    *response.status_mut() = error::http_status(status.code());
    if status.code() == Code::Unauthenticated {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn typed(answer: &impl Serialize) -> Response {
    // Our own messages have no parts that fail.
    with_type(serde_json::to_vec(answer).unwrap_or_default().into_response())
}

fn with_type(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
