//! Lines of the log about who has changed the group or taken something away from others, and about rights that were refused, whichever door they
//! came through.
//!
//! There is one format, for which docs/operations.md has a section:
//!
//! ```text
//! audit: ACTION what=".." who=".." from=".." result=".."
//! ```

use std::fmt::Display;
use std::path::Path;
use std::sync::LazyLock;

use hallpass::LogLimiter;

use crate::registry::Origin;

/// Refusals that clients can cause as often as they like: the log belongs to the process. Those without any right must not hide the others.
static REFUSALS: LazyLock<[LogLimiter; 2]> = LazyLock::new(Default::default);

/// Something was to be done for a client.
pub(crate) fn record<E: Display>(action: &str, what: &str, by: &Origin, done: &Result<(), E>) {
    line(action, what, by, &done.as_ref().map_or_else(ToString::to_string, |()| "done".to_owned()));
}

/// Something was begun for a client. The log tells later what became of it.
pub(crate) fn record_begun(action: &str, what: &str, by: &Origin) {
    line(action, what, by, "begun");
}

/// A client whom the agent knows was not allowed to do this.
pub(crate) fn refused(what: &str, by: &Origin) {
    refusal(&REFUSALS[0], what, by);
}

/// Somebody showed a token that is not valid.
pub(crate) fn refused_token(by: &Origin) {
    refusal(&REFUSALS[1], "a token that is not valid", by);
}

/// The agent has read its tokens again, or could not.
pub(crate) fn token_file<E: Display>(path: &Path, read: &Result<usize, E>) {
    let result = read.as_ref().map_or_else(ToString::to_string, |tokens| format!("it has {tokens} tokens"));
    own_line("read tokens", &path.display().to_string(), &result);
}

/// A token is no longer in its file.
pub(crate) fn token_taken_back(name: &str) {
    own_line("take token back", name, "its leases end");
}

/// Tells how many lines were left out where no later line could.
pub(crate) fn tell_left_out() {
    let left_out: u64 = REFUSALS.iter().filter_map(LogLimiter::left_out).sum();
    if left_out > 0 {
        let (what, by) = ("more like these", Origin::default());
        tracing::warn!(target: "audit", what, who = by.who(), from = by.from(), result = "refused", left_out, "audit: refused");
    }
}

fn refusal(limiter: &LogLimiter, what: &str, by: &Origin) {
    let (who, from) = (by.who(), by.from());
    if let Some(left_out) = limiter.pass(&format!("{what} {who}")) {
        tracing::warn!(target: "audit", what, who, from, result = "refused", left_out, "audit: refused");
    }
}

fn line(action: &str, what: &str, by: &Origin, result: &str) {
    tracing::warn!(target: "audit", what, who = by.who(), from = by.from(), result, "audit: {action}");
}

fn own_line(action: &str, what: &str, result: &str) {
    tracing::warn!(target: "audit", what, who = "this agent", from = "this agent", result, "audit: {action}");
}
