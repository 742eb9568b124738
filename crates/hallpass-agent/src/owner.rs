//! Whose a lease is.

use std::fmt;
use std::sync::Arc;

use crate::account::Account;
use crate::tokens::Right;

/// The owner of a lease: it decides who sees the lease, keeps it alive and ends it.
#[derive(Clone, Debug, Default)]
pub(crate) enum Owner {
    /// None: its client came over TCP, where no tokens are needed. All clients that come that way use it as their own.
    #[default]
    Nobody,
    /// A user of this machine, by its number, who came through the Unix socket.
    User(u32),
    /// A token.
    Token(Arc<Account>),
}

impl Owner {
    /// The number for users whom the system does not name. It is no user's.
    pub(crate) const UNKNOWN_USER: u32 = u32::MAX;

    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        if let Self::Token(account) = self { Some(account) } else { None }
    }

    /// False if its token was taken back, or may not acquire these locks any more.
    pub(crate) fn may_hold<'a>(&self, locks: impl IntoIterator<Item = &'a Arc<str>>) -> bool {
        let Self::Token(account) = self else { return true };
        let token = account.token();
        !account.is_closed() && locks.into_iter().all(|lock| token.may(Right::Acquire, lock))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody"),
            Self::User(user) => write!(f, "user {user}"),
            Self::Token(account) => write!(f, "token {}", account.token().name),
        }
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nobody, Self::Nobody) => true,
            (Self::User(one), Self::User(other)) => one == other,
            // A token that was taken back and comes again is another one.
            (Self::Token(one), Self::Token(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Owner {}
