//! Incarnations by the clock, for nodes that keep nothing: they rise from start to start.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hallpass_node::Incarnation;

/// 2026-01-01: where incarnations begin if no earlier one is known.
const START: Duration = Duration::from_secs(1_767_225_600);
/// The least time between two incarnations by the clock.
const STEP_SECONDS: u64 = 4;
/// The highest incarnation by the clock, reached in the year 2038. The numbers above it are counted start by start, so that no
/// clock can use them up.
const CLOCK_MAX: u32 = Incarnation::MAX / 4 * 3;

/// The incarnation of a start, by the last number that is known and the clock.
///
/// It is always above the last one. The clock helps where the last number is not known: the directory was lost, or members went on
/// without this one. That works while the clock is right, until 2038. After that fences rise over starts only while the directory is
/// kept.
pub(crate) fn next_incarnation(last: Option<u32>, clock: SystemTime) -> Result<Incarnation, Exhausted> {
    let counted = last.map_or(1, |last| last.saturating_add(1));
    let since = clock.duration_since(UNIX_EPOCH + START).map(|since| since.as_secs() / STEP_SECONDS + 1);
    let (number, is_plausible) = match since {
        Ok(steps) if steps <= CLOCK_MAX.into() => (counted.max(steps as u32), true),
        // Earlier incarnations by the clock are not above CLOCK_MAX. One that is was counted from there, and is known.
        Ok(_) => (last.map_or(CLOCK_MAX, |_| counted), false),
        Err(_) => (counted, false),
    };
    let incarnation = Incarnation::new(number).ok_or(Exhausted(number))?;
    if !is_plausible {
        tracing::warn!(
            year = year(clock), %incarnation,
            "this machine's clock is wrong, and was not used to number this start; set the clock"
        );
    }
    Ok(incarnation)
}

/// The year that a clock shows, roughly, for a log line.
fn year(clock: SystemTime) -> u64 {
    const YEAR_SECONDS: u64 = 31_556_952;
    1970 + clock.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / YEAR_SECONDS)
}

/// This number is above the last incarnation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("start {0} is above the last possible number, {max}", max = Incarnation::MAX)]
pub(crate) struct Exhausted(u32);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    fn next(last: Option<u32>, since_2026: Duration) -> u32 {
        next_incarnation(last, UNIX_EPOCH + START + since_2026).unwrap().get()
    }

    fn next_in_1970(last: Option<u32>) -> u32 {
        next_incarnation(last, UNIX_EPOCH + DAY).unwrap().get()
    }

    #[test]
    fn a_start_is_above_the_last_one_and_not_below_the_clock() {
        assert_eq!(next(None, DAY), 86_400 / 4 + 1);
        assert_eq!(next(Some(7), DAY), 86_400 / 4 + 1, "an old directory");
        assert_eq!(next(Some(1_000_000), DAY), 1_000_001, "a clock that is behind");
        assert!(next(None, DAY + Duration::from_secs(4)) > next(None, DAY));
        assert_eq!(next(None, 12 * YEAR), 12 * 365 * 86_400 / 4 + 1, "a clock counts into 2038");
    }

    #[test]
    fn a_wrong_clock_uses_up_nothing() {
        for wrong in [13 * YEAR, 17 * YEAR, 22 * YEAR, 1000 * YEAR] {
            assert_eq!(next(Some(1_000_000), wrong), 1_000_001, "after {wrong:?}");
            let first = next(None, wrong);
            assert!(Incarnation::MAX - first > 30_000_000, "a fresh directory, {wrong:?}: {first}");
            assert_eq!(next(Some(first), wrong), first + 1, "later starts are accepted");
            assert_eq!(next(Some(first), DAY), first + 1, "also when the clock is right again");
        }
        assert_eq!(next_in_1970(Some(1_000_000)), 1_000_001);
        assert_eq!(next_in_1970(None), 1);
    }

    /// What was counted by a clock that was right is not above what a clock gives that has come to its end.
    #[test]
    fn a_directory_that_is_lost_when_the_clock_has_come_to_its_end_starts_at_that_end() {
        assert!((0..=13).all(|years| next(None, years * YEAR) <= next(None, 14 * YEAR)));
    }
}
