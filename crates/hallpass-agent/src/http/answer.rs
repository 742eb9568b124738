use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hallpass::{GroupError, Refusal, RequestError};
use serde::Serialize;
use serde_json::json;

use super::BodyFault;
use crate::service::{AcquireFault, LeaseError};

/// Why a request was not served: a status, and one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(status: StatusCode, text: impl ToString) -> Self {
        // What a client has sent may be quoted in it, line breaks and all.
        Self { status, text: text.to_string().replace(char::is_control, " ") }
    }

    pub(crate) fn invalid(text: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = answer(&json!({"error": self.text}));
        *response.status_mut() = self.status;
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<BodyFault> for Fault {
    fn from(fault: BodyFault) -> Self {
        let status = match &fault {
            BodyFault::Late => StatusCode::REQUEST_TIMEOUT,
            BodyFault::TooMany => StatusCode::TOO_MANY_REQUESTS,
            BodyFault::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            BodyFault::Broken(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, fault)
    }
}

impl From<LeaseError> for Fault {
    fn from(error: LeaseError) -> Self {
        let status = match error {
            LeaseError::NotFound(_) => StatusCode::NOT_FOUND,
            LeaseError::Exists(_) => StatusCode::CONFLICT,
            LeaseError::TooMany | LeaseError::Quota(_) => StatusCode::TOO_MANY_REQUESTS,
            LeaseError::TakenBack => StatusCode::UNAUTHORIZED,
            LeaseError::NoSession(_) | LeaseError::NotPersisted(_) | LeaseError::Ending => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self::new(status, error)
    }
}

impl From<AcquireFault> for Fault {
    fn from(fault: AcquireFault) -> Self {
        let status = match &fault {
            AcquireFault::Busy(_) | AcquireFault::OtherMode(..) => StatusCode::CONFLICT,
            AcquireFault::Late(_) => StatusCode::REQUEST_TIMEOUT,
            AcquireFault::Lease(error) => return error.clone().into(),
            AcquireFault::LeaseEnded(_) => StatusCode::NOT_FOUND,
            AcquireFault::TooManyLocks(_) | AcquireFault::TooManyWaits | AcquireFault::Quota(_) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            AcquireFault::Refused(Refusal::Name | Refusal::NoShared(_)) => StatusCode::BAD_REQUEST,
            AcquireFault::Refused(Refusal::Locks | Refusal::Callers) => StatusCode::TOO_MANY_REQUESTS,
            AcquireFault::Refused(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, fault)
    }
}

impl From<GroupError> for Fault {
    fn from(error: GroupError) -> Self {
        let status = match &error {
            GroupError::Timeout => StatusCode::GATEWAY_TIMEOUT,
            GroupError::Refused(RequestError::NoMember(_)) => StatusCode::NOT_FOUND,
            GroupError::Refused(_) => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error)
    }
}

/// A document of JSON.
pub(super) fn answer(document: &impl Serialize) -> Response {
    // Our own documents have string keys and no failing parts.
    let text = serde_json::to_vec(document).unwrap_or_default();
    typed("application/json", text)
}

/// A page or another file.
pub(super) fn typed(kind: &'static str, content: impl Into<Body>) -> Response {
    let mut response = Response::new(content.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) async fn no_such_path(uri: Uri) -> Fault {
    let text =
        format!("there is no {}; a slash in a lock's name is written %2F; GET /openapi.json lists all", uri.path());
    Fault::new(StatusCode::NOT_FOUND, text)
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Fault {
    let text = format!("{} is not for {method}; GET /openapi.json lists what is", uri.path());
    Fault::new(StatusCode::METHOD_NOT_ALLOWED, text)
}
