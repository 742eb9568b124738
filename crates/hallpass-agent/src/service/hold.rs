use hallpass::{Guard, Mode};

use crate::registry::{EventKind, UseGuard};

/// A lock that a client holds, by a lease or by its connection.
#[derive(Debug)]
pub(crate) struct Hold {
    mode: Mode,
    guard: Guard,
    /// The state that the client was told last.
    told: HoldState,
    /// Dropped after the guard.
    client_use: UseGuard,
}

/// How certain a lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HoldState {
    Held,
    AtRisk,
    /// An operator takes it away.
    Broken,
    Lost,
}

/// The result of a look at a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) before: HoldState,
    pub(super) now: HoldState,
}

impl Hold {
    /// The client holds the lock from now on.
    pub(super) fn new(mode: Mode, guard: Guard, mut client_use: UseGuard) -> Self {
        client_use.granted(guard.fence());
        Self { mode, guard, told: HoldState::Held, client_use }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// The client was told that it has lost the lock.
    pub(super) fn is_told_lost(&self) -> bool {
        self.told == HoldState::Lost
    }

    /// Looks how certain the lock is, and reports a change to subscribers. `is_over`: the agent has come to its end, and holds nothing
    /// although it has not given its locks up yet.
    pub(super) fn look(&mut self, is_over: bool) -> Change {
        let now = if self.guard.is_lost() || is_over {
            HoldState::Lost
        } else if self.guard.is_broken() {
            HoldState::Broken
        } else if self.guard.is_at_risk() {
            HoldState::AtRisk
        } else {
            HoldState::Held
        };
        let before = std::mem::replace(&mut self.told, now);
        let event = match now {
            HoldState::Held => None,
            HoldState::AtRisk => Some(EventKind::AtRisk),
            HoldState::Broken => Some(EventKind::Broken),
            HoldState::Lost => Some(EventKind::Lost),
        };
        if let Some(event) = event.filter(|_| now != before) {
            self.client_use.report(event);
        }
        Change { before, now }
    }

    /// Resolves when there is something to tell that no deadline has told.
    pub(super) async fn news(&self) {
        match self.told {
            HoldState::Held => self.guard.at_risk().await,
            _ => self.guard.lost().await,
        }
    }

    /// Gives the lock back. False if it was lost.
    pub(super) async fn release(self) -> bool {
        let Self { guard, client_use, .. } = self;
        let released = guard.release().await.is_ok();
        drop(client_use);
        released
    }
}
