//! Errors in etcd's words, where clients test for them. Everything else begins with `hallpass:` and says what to do.

use axum::http::StatusCode;
use hallpass::Refusal;
use tonic::{Code, Status};

use crate::http::{BodyFault, Fault};
use crate::service::{AcquireFault, LeaseError};

pub(super) const LEASE_NOT_FOUND: &str = "etcdserver: requested lease not found";
const LEASE_EXISTS: &str = "etcdserver: lease already exists";
const TTL_TOO_LARGE: &str = "etcdserver: too large lease TTL";
const NO_KEY: &str = "etcdserver: key is not provided";
const NO_LEADER: &str = "etcdserver: no leader";
const STOPPED: &str = "etcdserver: server stopped";
const TOO_MANY: &str = "etcdserver: too many requests";
/// The words of Go's client, which etcd's lock service passes on.
const SESSION_EXPIRED: &str = "mutex: session is expired";

pub(super) fn lease_not_found() -> Status {
    Status::not_found(LEASE_NOT_FOUND)
}

pub(super) fn ttl_too_large() -> Status {
    Status::out_of_range(TTL_TOO_LARGE)
}

pub(super) fn no_key() -> Status {
    Status::invalid_argument(NO_KEY)
}

pub(super) fn no_leader() -> Status {
    Status::unavailable(NO_LEADER)
}

pub(super) fn too_many() -> Status {
    Status::resource_exhausted(TOO_MANY)
}

pub(super) fn not_authenticated() -> Status {
    Status::invalid_argument("etcdserver: authentication failed, invalid user ID or password")
}

pub(super) fn no_authentication() -> Status {
    Status::failed_precondition("etcdserver: authentication is not enabled")
}

pub(super) fn invalid(text: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("hallpass: {text}"))
}

pub(super) fn unserved(what: impl std::fmt::Display) -> Status {
    Status::unimplemented(format!("hallpass: {what} is not served: only locks and leases are, see docs/etcd.md"))
}

/// Its code in etcd's lock service, which passes on what its own client says as 'unknown'.
pub(super) fn of_lock_service(status: Status) -> Status {
    let words = [LEASE_NOT_FOUND, SESSION_EXPIRED, NO_KEY];
    if words.contains(&status.message()) { Status::new(Code::Unknown, status.message()) } else { status }
}

impl From<LeaseError> for Status {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::NotFound(_) => lease_not_found(),
            LeaseError::Exists(_) => Self::failed_precondition(LEASE_EXISTS),
            LeaseError::TooMany => too_many(),
            LeaseError::Quota(_) => Self::resource_exhausted(format!("hallpass: {error}")),
            LeaseError::TakenBack => Self::unauthenticated("etcdserver: invalid auth token"),
            LeaseError::NoSession(why) => {
                tracing::debug!(why, "no leader reported to a client of etcd's API");
                no_leader()
            }
            LeaseError::NotPersisted(_) => Self::unavailable(format!("hallpass: {error}")),
            LeaseError::Ending => Self::unavailable(STOPPED),
        }
    }
}

impl From<AcquireFault> for Status {
    fn from(fault: AcquireFault) -> Self {
        match fault {
            AcquireFault::Lease(error) => error.into(),
            AcquireFault::LeaseEnded(_) => Self::unknown(SESSION_EXPIRED),
            AcquireFault::TooManyWaits | AcquireFault::TooManyLocks(_) => too_many(),
            AcquireFault::Quota(_) => Self::resource_exhausted(format!("hallpass: {fault}")),
            AcquireFault::Refused(Refusal::Locks | Refusal::Callers) => too_many(),
            AcquireFault::Refused(Refusal::Name | Refusal::NoShared(_)) | AcquireFault::OtherMode(..) => invalid(fault),
            AcquireFault::Busy(_) | AcquireFault::Late(_) => Self::deadline_exceeded(format!("hallpass: {fault}")),
            AcquireFault::Refused(_) => Self::unavailable(format!("hallpass: {fault}")),
        }
    }
}

impl From<BodyFault> for Status {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::Late => Self::deadline_exceeded(format!("hallpass: {fault}")),
            BodyFault::TooMany => too_many(),
            BodyFault::TooLong | BodyFault::Broken(_) => invalid(fault),
        }
    }
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        match fault.status {
            StatusCode::UNAUTHORIZED => Self::unauthenticated("etcdserver: invalid auth token"),
            StatusCode::FORBIDDEN => Self::permission_denied("etcdserver: permission denied"),
            StatusCode::NOT_FOUND => lease_not_found(),
            StatusCode::TOO_MANY_REQUESTS => Self::resource_exhausted(format!("hallpass: {}", fault.text)),
            _ => Self::unavailable(format!("hallpass: {}", fault.text)),
        }
    }
}

/// The status that etcd's gateway answers with. One differs: a client's mistake that etcd calls unknown is not a server error.
pub(super) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange | Code::Unknown => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded | Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::FailedPrecondition => StatusCode::PRECONDITION_FAILED,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
