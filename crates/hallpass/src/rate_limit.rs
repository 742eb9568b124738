//! Log lines that somebody else can cause, as often as he likes.

use std::sync::{Mutex, PoisonError};

use hallpass_core::Ticks;

use crate::os::now;

const MINUTE: Ticks = 60_000_000_000;
/// At most so many lines a minute.
const LINES: u32 = 10;

/// Lets the same text through once a minute, and different ones ten times a minute, and counts what it leaves out.
#[derive(Default)]
pub(crate) struct RateLimit(Mutex<Minute>);

#[derive(Default)]
struct Minute {
    /// When it began, if there has been a line at all.
    since: Option<Ticks>,
    lines: u32,
    last: String,
    left_out: u64,
}

impl RateLimit {
    /// Whether this line is to be logged now.
    pub(crate) fn pass(&self, text: &str) -> Option<LeftOut> {
        self.pass_at(text, now())
    }

    /// How many lines were left out in a minute that is over: nobody else may come to tell it.
    pub(crate) fn left_out(&self) -> LeftOut {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        minute.begin_if_over(now());
        if minute.since.is_none() { minute.take_left_out() } else { None }
    }

    fn pass_at(&self, text: &str, now: Ticks) -> Option<LeftOut> {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        minute.begin_if_over(now);
        if minute.lines >= LINES || (minute.lines > 0 && minute.last == text) {
            minute.left_out += 1;
            return None;
        }
        minute.since.get_or_insert(now);
        minute.lines += 1;
        text.clone_into(&mut minute.last);
        Some(minute.take_left_out())
    }
}

impl Minute {
    fn begin_if_over(&mut self, now: Ticks) {
        if self.since.is_some_and(|since| now.saturating_sub(since) >= MINUTE) {
            (self.since, self.lines) = (None, 0);
        }
    }

    fn take_left_out(&mut self) -> LeftOut {
        Some(std::mem::take(&mut self.left_out)).filter(|count| *count > 0)
    }
}

/// How many lines were left out before one that is logged, as a field of it, if there were any.
pub(crate) type LeftOut = Option<u64>;

/// The limits of a node.
pub(crate) struct RateLimits {
    /// About connections of whoever is not known.
    pub(crate) strangers: RateLimit,
    /// About places among the strangers.
    pub(crate) places: RateLimit,
    /// About the system, which accepts no connection.
    pub(crate) accepting: RateLimit,
    /// About each peer.
    pub(crate) peers: Vec<RateLimit>,
}

impl RateLimits {
    pub(crate) fn new(peers: usize) -> Self {
        Self {
            strangers: RateLimit::default(),
            places: RateLimit::default(),
            accepting: RateLimit::default(),
            peers: (0..peers).map(|_| RateLimit::default()).collect(),
        }
    }

    /// Logs how many lines were left out where no later line could tell it.
    pub(crate) fn log_left_out(&self) {
        let own = [&self.strangers, &self.places, &self.accepting];
        let left_out: u64 = own.into_iter().chain(&self.peers).filter_map(RateLimit::left_out).sum();
        if left_out > 0 {
            tracing::warn!(left_out, "lines like earlier ones were left out of the log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_line_passes_once_a_minute_and_says_how_many_did_not() {
        let lines = RateLimit::default();
        assert_eq!(lines.pass_at("a", 5), Some(None));
        for at in 6..1000 {
            assert_eq!(lines.pass_at("a", at), None);
        }
        assert_eq!(lines.pass_at("a", 5 + MINUTE), Some(Some(994)));
        assert_eq!(lines.pass_at("a", 6 + MINUTE), None);
    }

    #[test]
    fn different_lines_pass_until_there_are_too_many() {
        let lines = RateLimit::default();
        let passed = (0..1000).filter(|at| lines.pass_at(["a", "b"][at % 2], 0).is_some()).count();
        assert_eq!(passed, LINES as usize);
        assert_eq!(lines.pass_at("c", MINUTE), Some(Some(1000 - u64::from(LINES))));
        assert_eq!(lines.pass_at("d", MINUTE), Some(None));
    }
}
