use std::time::Duration;

use hallpass_core::Mode;
use hallpass_node::Patience;

use crate::AcquireError;

/// How to acquire a lock: exclusive or shared, and how long to wait for it.
///
/// For [`Lock::acquire_with`](crate::Lock::acquire_with), async and [blocking](crate::blocking::Lock::acquire_with).
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
/// use hallpass::{AcquireError, AcquireOptions};
///
/// # let node = hallpass::Node::builder().start().await?;
/// let lock = node.lock("report");
/// let reader = lock.acquire_with(AcquireOptions::shared().timeout(Duration::from_secs(5))).await?;
/// let another = lock.acquire_with(AcquireOptions::shared().try_now()).await?;
/// let writer = lock.acquire_with(AcquireOptions::exclusive().try_now()).await;
/// assert_eq!(writer.unwrap_err(), AcquireError::Busy);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options do nothing until they are given to acquire_with"]
pub struct AcquireOptions {
    mode: Mode,
    patience: Patience,
    timeout: Option<Duration>,
}

impl AcquireOptions {
    /// How long a request that does not wait takes at most, unless [`timeout`](Self::timeout) says otherwise.
    pub const TRY_TIMEOUT: Duration = Duration::from_secs(2);

    /// Waits for the lock in this mode for as long as it takes.
    pub const fn new(mode: Mode) -> Self {
        Self { mode, patience: Patience::Wait, timeout: None }
    }

    /// Holds the lock alone. Waits for as long as it takes.
    pub const fn exclusive() -> Self {
        Self::new(Mode::Exclusive)
    }

    /// Holds the lock together with others who share it. Waits for as long as it takes.
    pub const fn shared() -> Self {
        Self::new(Mode::Shared)
    }

    /// Gives up after this time, with [`AcquireError::Timeout`], or with [`AcquireError::Busy`] after
    /// [`try_now`](Self::try_now).
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Does not wait for other holders: asks the other members once, and fails with [`AcquireError::Busy`] if one of them
    /// holds the lock or has asked for it before.
    ///
    /// That takes one round trip, or nothing if the permissions are already here. If a member is connected and does not
    /// answer, the request fails with `Busy` after [`TRY_TIMEOUT`](Self::TRY_TIMEOUT), or after the
    /// [`timeout`](Self::timeout) that was set. It fails at once while a member that must be asked is not connected, while
    /// another caller on this node waits for the lock, and, with a token protocol, while the token is elsewhere. Of two who
    /// try at the same moment, both may fail. A reader may also fail beside readers on its own node if a writer has asked
    /// since they entered and has given up: its request is known there until they leave.
    pub const fn try_now(mut self) -> Self {
        self.patience = Patience::Try;
        self
    }

    pub(crate) const fn mode(self) -> Mode {
        self.mode
    }

    pub(crate) const fn patience(self) -> Patience {
        self.patience
    }

    /// How long all of it may take.
    pub(crate) fn limit(self) -> Option<Duration> {
        match self.patience {
            Patience::Wait => self.timeout,
            Patience::Try => Some(self.timeout.unwrap_or(Self::TRY_TIMEOUT)),
        }
    }

    /// What it means that the time is over.
    pub(crate) fn expired(self) -> AcquireError {
        match self.patience {
            Patience::Wait => AcquireError::Timeout,
            Patience::Try => AcquireError::Busy,
        }
    }
}

impl Default for AcquireOptions {
    /// [`AcquireOptions::exclusive`].
    fn default() -> Self {
        Self::exclusive()
    }
}
