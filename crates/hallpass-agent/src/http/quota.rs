//! How many requests a second a token may send. A request that comes too fast is refused before anything of it is read or done.

use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Caller, Fault};
use crate::account::QuotaError;
use crate::grpc;

/// Counts a request. The answer to one that comes too fast.
pub(super) fn check(caller: &Caller, request: &Request) -> Option<Response> {
    take(caller).err().map(|error| refuse(request, error))
}

/// Counts a message of a stream as a request.
pub(crate) fn take_request(caller: &Caller) -> Result<(), Fault> {
    take(caller).map_err(Fault::from)
}

fn take(caller: &Caller) -> Result<(), QuotaError> {
    caller.account().map_or(Ok(()), |account| account.take_request(Instant::now()))
}

fn refuse(request: &Request, error: QuotaError) -> Response {
    let seconds = if let QuotaError::Rate { wait, .. } = &error { wait.as_secs() + 1 } else { 1 };
    let kind = request.headers().get(header::CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    if kind.starts_with(b"application/grpc") {
        return grpc::refuse(Fault::from(error));
    }
    let mut response = Fault::from(error).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

impl From<QuotaError> for Fault {
    fn from(error: QuotaError) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, error)
    }
}
