//! Log lines that others can cause as often as they like.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hallpass_core::Ticks;

use crate::os::now;

const MINUTE: Ticks = 60_000_000_000;
/// The most lines a minute.
const LINES: u32 = 10;

/// Rate-limits log lines that peers and clients can trigger. The same text passes once a minute, and at most ten lines a minute do. The rest
/// is counted.
#[derive(Debug, Default)]
pub struct LogLimiter(Mutex<Minute>);

#[derive(Debug, Default)]
struct Minute {
    /// When it began, if there has been a line at all.
    since: Option<Ticks>,
    lines: u32,
    texts: Vec<String>,
    left_out: u64,
}

impl LogLimiter {
    /// Returns whether to log this line now, and how many lines were left out before it.
    pub fn pass(&self, text: &str) -> Option<LeftOut> {
        self.minute().pass(Some(text), now())
    }

    /// The same for a change. Only the last change is true, so an equal one before it does not matter.
    pub(crate) fn pass_change(&self) -> Option<LeftOut> {
        self.minute().pass(None, now())
    }

    /// Returns how many lines were left out in a minute that is over. No later line may come to report them.
    pub fn left_out(&self) -> LeftOut {
        self.minute().left_out(now())
    }

    fn minute(&self) -> MutexGuard<'_, Minute> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Minute {
    fn pass(&mut self, text: Option<&str>, now: Ticks) -> Option<LeftOut> {
        self.end_if_over(now);
        if self.lines >= LINES || text.is_some_and(|text| self.texts.iter().any(|passed| passed == text)) {
            self.left_out += 1;
            return None;
        }
        self.since.get_or_insert(now);
        self.lines += 1;
        self.texts.extend(text.map(str::to_owned));
        Some(self.take_left_out())
    }

    fn left_out(&mut self, now: Ticks) -> LeftOut {
        self.end_if_over(now);
        if self.since.is_none() { self.take_left_out() } else { None }
    }

    fn end_if_over(&mut self, now: Ticks) {
        if self.since.is_some_and(|since| now.saturating_sub(since) >= MINUTE) {
            *self = Self { left_out: self.left_out, ..Self::default() };
        }
    }

    fn take_left_out(&mut self) -> LeftOut {
        Some(std::mem::take(&mut self.left_out)).filter(|count| *count > 0)
    }
}

/// The number of lines left out before a line that is logged: a field of that line, if there were any.
pub(crate) type LeftOut = Option<u64>;

/// The limiters of a node, beside those of its peers.
#[derive(Default)]
pub(crate) struct LogLimiters {
    /// About connections of strangers.
    pub(crate) strangers: LogLimiter,
    /// About messages that their senders may not send.
    pub(crate) denied: LogLimiter,
    /// About places among the strangers.
    pub(crate) places: LogLimiter,
    /// About the system, which accepts no connection.
    pub(crate) accepting: LogLimiter,
    /// About what members ask of the group.
    pub(crate) orders: LogLimiter,
    /// About what they take away from others: nobody hides that behind other changes.
    pub(crate) taken: LogLimiter,
    /// About who joins and leaves.
    pub(crate) comings: LogLimiter,
}

impl LogLimiters {
    /// The limiter of the audit lines about this action.
    pub(crate) fn of_order(&self, action: &str) -> &LogLimiter {
        match action {
            "break" | "evict" | "ban" => &self.taken,
            "join" | "leave" => &self.comings,
            _ => &self.orders,
        }
    }

    /// Logs how many lines were left out where no later line could tell it.
    pub(crate) fn log_left_out<'a>(&'a self, peers: impl Iterator<Item = &'a LogLimiter>) {
        let Self { strangers, denied, places, accepting, orders, taken, comings } = self;
        let own = [strangers, denied, places, accepting, orders, taken, comings];
        let left_out: u64 = own.into_iter().chain(peers).filter_map(LogLimiter::left_out).sum();
        if left_out > 0 {
            tracing::warn!(left_out, "lines like earlier ones were left out of the log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_passes_once_a_minute_and_says_how_many_did_not() {
        let mut minute = Minute::default();
        assert_eq!(minute.pass(Some("a"), 5), Some(None));
        assert_eq!(minute.pass(Some("b"), 5), Some(None));
        for at in 0..1000 {
            assert_eq!(minute.pass(Some(["a", "b"][at % 2]), 6), None);
        }
        assert_eq!(minute.left_out(4 + MINUTE), None, "it may still be told with a line");
        assert_eq!(minute.pass(Some("a"), 5 + MINUTE), Some(Some(1000)));
        assert_eq!(minute.pass(Some("a"), 6 + MINUTE), None);
        assert_eq!(minute.left_out(5 + 2 * MINUTE), Some(1), "nobody came to tell it");
        assert_eq!(minute.left_out(5 + 2 * MINUTE), None);
    }

    #[test]
    fn nobody_hides_a_break_behind_other_changes() {
        let limits = LogLimiters::default();
        let passed = |action: &str| (0..1000).filter(|_| limits.of_order(action).pass_change().is_some()).count();
        assert_eq!(["class set", "admit", "join", "leave"].map(passed), [LINES as usize, 0, LINES as usize, 0]);
        assert!(
            ["break", "evict", "ban"]
                .map(|action| limits.of_order(action).pass_change().is_some())
                .iter()
                .all(|is| *is)
        );
    }

    #[test]
    fn changes_and_different_texts_pass_until_there_are_too_many() {
        let passed = |texts: &dyn Fn(u32) -> Option<String>| {
            let mut minute = Minute::default();
            (0..1000).filter(|index| minute.pass(texts(*index).as_deref(), 0).is_some()).count()
        };
        assert_eq!(passed(&|_| None), LINES as usize);
        assert_eq!(passed(&|index| Some(index.to_string())), LINES as usize);
    }
}
