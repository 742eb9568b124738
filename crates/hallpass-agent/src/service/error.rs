//! Why a lease is not there, or a lock was not acquired.

use hallpass::{Mode, Refusal};

use super::{LEASE_LOCKS_MAX, LEASES_MAX, LeaseId, WAITS_MAX};
use crate::account::QuotaError;

/// Why a lease is not there. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LeaseError {
    /// It has never been, has ended, or was lost.
    #[error(
        "there is no lease {0}: it was not kept alive, has lost a lock or was released, or the agent was restarted"
    )]
    NotFound(LeaseId),
    /// Another one has this id.
    #[error("lease {0} exists already; choose another id, or none")]
    Exists(LeaseId),
    /// There are too many.
    #[error(
        "there are too many leases: {LEASES_MAX} in all, or as many of yours as are left for others; try again when some have ended"
    )]
    TooMany,
    /// The node has no session at present, so that nothing can be promised.
    #[error("the agent is not in touch with its group: {0}; try again")]
    NoSession(String),
    /// The agent cannot write down for how long the next one would have to wait.
    #[error(
        "the agent cannot write to its data directory, so it grants nothing: {0}; make room there, or see to the disk"
    )]
    NotPersisted(String),
    /// Its token may have no more.
    #[error("{0}")]
    Quota(#[from] QuotaError),
    /// Its token was taken back just now, or its rights were.
    #[error("the token was taken back")]
    TakenBack,
    /// The agent ends.
    #[error("the agent was ended")]
    Ending,
}

/// Why a lock was not acquired. Nobody waits for it any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum AcquireFault {
    /// The lock is not free, and the client only tried.
    #[error("the lock is not free{}", because(.0))]
    Busy(Option<String>),
    /// The lock was not free in time.
    #[error("the lock was not free in time{}", because(.0))]
    Late(Option<String>),
    /// The lease is not there, or there cannot be one.
    #[error("{0}")]
    Lease(#[from] LeaseError),
    /// The lease has ended while the client waited.
    #[error("lease {0} has ended while the lock was waited for")]
    LeaseEnded(LeaseId),
    /// The lease holds the lock in the other mode.
    #[error("lease {0} holds the lock in {1} mode already; release it first, or take another lease")]
    OtherMode(LeaseId, Mode),
    /// The lease holds too much.
    #[error("lease {0} holds or waits for {LEASE_LOCKS_MAX} locks already; take another lease")]
    TooManyLocks(LeaseId),
    /// Too many wait.
    #[error(
        "too many requests wait for locks: {WAITS_MAX} in all, or as many of yours as are left for others; try again later"
    )]
    TooManyWaits,
    /// The token may have no more.
    #[error("{0}")]
    Quota(#[from] QuotaError),
    /// The node does not take the request.
    #[error("{0}")]
    Refused(Refusal),
}

fn because(why: &Option<String>) -> String {
    why.as_ref().map_or_else(String::new, |why| format!(": {why}"))
}
