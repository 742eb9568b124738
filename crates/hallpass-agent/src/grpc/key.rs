use std::fmt;
use std::sync::Arc;

use tonic::Status;

use super::error;
use crate::service::LeaseId;

/// The longest name of a lock, in bytes.
const NAME_MAX: usize = 255;
/// Ends the key that a waiter is shown as its predecessor. No lease is written like this.
const PREDECESSOR: &str = ".before";

/// A key of etcd's that stands for a waiter or holder of a lock: the lock's name, a slash, and a lease in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LockKey {
    pub(super) lock: Arc<str>,
    pub(super) lease: LeaseId,
}

/// The meaning of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A waiter or holder of a lock.
    Lock(LockKey),
    /// The predecessor that the waiter with this key waits for.
    Predecessor(LockKey),
}

impl LockKey {
    /// Reads a key. An error says what a key has to look like.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Status> {
        match Key::parse(bytes)? {
            Key::Lock(key) => Ok(key),
            Key::Predecessor(_) => Err(not_a_lock_key(bytes)),
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    /// The key that its waiter is shown as its predecessor.
    pub(super) fn predecessor(&self) -> Vec<u8> {
        format!("{self}{PREDECESSOR}").into_bytes()
    }
}

impl Key {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Status> {
        if bytes.is_empty() {
            return Err(error::no_key());
        }
        let read = || {
            let text = std::str::from_utf8(bytes).ok()?;
            let (key, waits) = text.strip_suffix(PREDECESSOR).map_or((text, false), |key| (key, true));
            let (name, lease) = key.rsplit_once('/')?;
            let key = LockKey { lock: lock_name(name.as_bytes()).ok()?, lease: LeaseId::parse(lease)? };
            Some(if waits { Self::Predecessor(key) } else { Self::Lock(key) })
        };
        read().ok_or_else(|| not_a_lock_key(bytes))
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lock, self.lease)
    }
}

/// Reads the name of a lock.
pub(super) fn lock_name(bytes: &[u8]) -> Result<Arc<str>, Status> {
    let name = std::str::from_utf8(bytes).ok().filter(|name| (1..=NAME_MAX).contains(&name.len()));
    name.map(Arc::from).ok_or_else(|| error::invalid(format!("a lock's name has 1 to {NAME_MAX} bytes of UTF-8")))
}

/// The lock whose keys are all those from `key` to `end`: they are asked for by their common beginning.
pub(super) fn lock_of_prefix(key: &[u8], end: &[u8]) -> Result<Arc<str>, Status> {
    // A slash, and the character after it.
    match (key, end) {
        ([name @ .., b'/'], [same @ .., b'0']) if name == same => lock_name(name),
        _ => Err(error::invalid(
            "a range of keys must be that of one lock: from 'NAME/' on, with 'NAME/' as their prefix",
        )),
    }
}

fn not_a_lock_key(bytes: &[u8]) -> Status {
    let shown: String = String::from_utf8_lossy(bytes).chars().take(60).collect();
    error::invalid(format!(
        "'{}' is not the key of a lock, and only those are kept here; write a lock's name, a slash and a lease in lower-case hexadecimal",
        shown.escape_debug()
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = LockKey::parse(b"jobs/daily/1f").unwrap();
        assert_eq!((&*key.lock, key.lease.get()), ("jobs/daily", 0x1f));
        assert_eq!(Key::parse(b"jobs/daily/1f.before").unwrap(), Key::Predecessor(key.clone()));
        assert_eq!(key.predecessor(), b"jobs/daily/1f.before");
        assert_eq!(LockKey::parse(b"").unwrap_err().message(), "etcdserver: key is not provided");
        for wrong in ["jobs", "/1f", "jobs/", "jobs/0", "jobs/01f", "jobs/1F", "jobs/1f.before.before", "jobs/-1"] {
            assert_eq!(Key::parse(wrong.as_bytes()).unwrap_err().code(), tonic::Code::InvalidArgument, "{wrong}");
        }
        assert!(LockKey::parse(b"jobs/1f.before").is_err());
    }

    #[test]
    fn a_range_is_that_of_one_lock() {
        assert_eq!(&*lock_of_prefix(b"a/b/", b"a/b0").unwrap(), "a/b");
        for (key, end) in [("a/", "\0"), ("a", "b"), ("a/", "b0"), ("a/", "a/0"), ("/", "0"), ("", ""), ("\0", "\0")] {
            assert!(lock_of_prefix(key.as_bytes(), end.as_bytes()).is_err(), "{key}");
        }
    }

    proptest! {
        #[test]
        fn no_key_is_read_in_two_ways(bytes in prop_oneof![proptest::collection::vec(any::<u8>(), 0..40), "[a/.]{0,3}/[0-9a-f]{0,17}(\\.before)?".prop_map(String::into_bytes)]) {
            match Key::parse(&bytes) {
                Ok(Key::Lock(key)) => prop_assert_eq!(key.bytes(), bytes),
                Ok(Key::Predecessor(key)) => prop_assert_eq!(key.predecessor(), bytes),
                Err(status) => prop_assert!(status.code() == tonic::Code::InvalidArgument && !status.message().contains('\n')),
            }
        }
    }
}
