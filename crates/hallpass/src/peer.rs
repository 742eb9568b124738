use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::log_limiter::LogLimiter;

/// Another node, by its address: a member, or one that was named to find a group by.
pub(crate) struct Peer {
    pub(crate) address: String,
    /// The name that its certificate must have, if it is known.
    pub(crate) name: Option<String>,
    /// It wants to join, and is no member yet.
    joins: AtomicBool,
    /// For the lines of the log that it can cause.
    pub(crate) limit: LogLimiter,
    /// Why there is no connection with it, as far as that is known.
    trouble: Mutex<Option<String>>,
}

impl Peer {
    pub(crate) fn new(name: Option<String>, address: String) -> Self {
        Self { address, name, joins: AtomicBool::new(false), limit: LogLimiter::default(), trouble: Mutex::new(None) }
    }

    pub(crate) fn joins(&self) -> bool {
        self.joins.load(Ordering::Relaxed)
    }

    pub(crate) fn set_joins(&self, joins: bool) {
        self.joins.store(joins, Ordering::Relaxed);
    }

    /// Reports why no connection with this peer is established: in the status, and in the log once a minute while it lasts.
    pub(crate) fn report_trouble(&self, trouble: String) {
        if let Some(left_out) = self.limit.pass(&trouble) {
            tracing::warn!(peer = %self, error = %trouble, left_out, "no connection with this member");
        }
        self.set_trouble(Some(trouble));
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}@{}", self.address),
            None => f.write_str(&self.address),
        }
    }
}
