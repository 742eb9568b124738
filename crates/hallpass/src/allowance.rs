//! How many messages a peer may send that could be anybody.

use std::time::Duration;

use hallpass_core::Ticks;

/// How many messages are taken at once, after a silence.
pub(crate) const BURST: u32 = 400;
/// How many are taken in a second. A node that founds or joins repeats itself at most 100 times a second, with the shortest sessions, and 10 times
/// with those of five seconds.
pub(crate) const PER_SECOND: u32 = 200;
/// How long nothing is read of a peer that has used up what it had.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

const SECOND: Ticks = 1_000_000_000;

/// The messages of one connection that are taken: as many as there are tokens in a bucket, which fills up in time.
#[derive(Debug)]
pub(crate) struct Allowance {
    tokens: u32,
    /// Up to when the bucket was filled.
    filled: Ticks,
}

impl Allowance {
    pub(crate) fn new(now: Ticks) -> Self {
        Self { tokens: BURST, filled: now }
    }

    /// Takes one message; false if there is none left.
    pub(crate) fn take(&mut self, now: Ticks) -> bool {
        self.fill(now);
        let has_some = self.tokens > 0;
        self.tokens -= u32::from(has_some);
        has_some
    }

    fn fill(&mut self, now: Ticks) {
        let interval = SECOND / Ticks::from(PER_SECOND);
        let new = now.saturating_sub(self.filled) / interval;
        self.filled += new * interval;
        self.tokens = BURST.min(self.tokens.saturating_add(u32::try_from(new).unwrap_or(BURST)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_taken_at_a_steady_rate() {
        let mut allowance = Allowance::new(7);
        let taken = |allowance: &mut Allowance, now| std::iter::from_fn(|| allowance.take(now).then_some(())).count();
        assert_eq!(taken(&mut allowance, 7), BURST as usize);
        // However often it is tried, nothing is lost or won.
        let all: usize = (1..=2000).map(|at| taken(&mut allowance, 7 + at * SECOND / 1000)).sum();
        assert_eq!(all, 2 * PER_SECOND as usize);
        assert_eq!(taken(&mut allowance, 7 + 1000 * SECOND), BURST as usize, "what is not used is not kept");
        assert_eq!(taken(&mut allowance, 0), 0);
        assert_eq!(taken(&mut allowance, Ticks::MAX), BURST as usize);
    }
}
