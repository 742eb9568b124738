//! Lines of the log about who has taken something away from others, whichever door they came through.

use std::fmt::Display;

use hallpass::KeyDigest;

use crate::registry::Origin;

/// A lock was to be broken.
pub(crate) fn breaks<E: Display>(lock: &str, by: &Origin, done: &Result<(), E>) {
    tracing::warn!(target: "audit", lock = printable(lock), by = %by, result = result(done), "audit: break");
}

/// A member was to be evicted.
pub(crate) fn evicts<E: Display>(member: &str, ban: bool, by: &Origin, done: &Result<(), E>) {
    tracing::warn!(target: "audit", member = printable(member), ban, by = %by, result = result(done), "audit: evict");
}

/// A key was to be banned, or to be accepted again.
pub(crate) fn bans_key<E: Display>(key: KeyDigest, ban: bool, by: &Origin, done: &Result<(), E>) {
    tracing::warn!(target: "audit", %key, ban, by = %by, result = result(done), "audit: ban key");
}

/// Somebody was not allowed to do this.
pub(crate) fn refuses(what: &'static str, whom: &str, by: &Origin, why: &str) {
    tracing::warn!(target: "audit", what, whom = printable(whom), by = %by, why, "audit: refused");
}

fn printable(name: &str) -> String {
    name.escape_debug().to_string()
}

fn result<E: Display>(done: &Result<(), E>) -> String {
    done.as_ref().map_or_else(ToString::to_string, |()| "done".to_owned())
}
