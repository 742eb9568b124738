//! Durations as text, such as `250ms`, `10s` and `2m`.

use crate::Ticks;

/// The units and how many nanoseconds they are, the largest first.
const UNITS: [(&str, Ticks); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A century: more than anybody needs, and it leaves room for sums.
const MAX: f64 = 3.2e18;

/// Reads a duration as nanoseconds; `None` if it has no unit, is malformed, or is longer than a century.
///
/// ```
/// use hallpass_core::duration;
///
/// assert_eq!(duration::parse("250ms"), Some(250_000_000));
/// assert_eq!(duration::parse("1.5s"), Some(1_500_000_000));
/// assert_eq!(duration::parse("10"), None);
/// ```
pub fn parse(text: &str) -> Option<Ticks> {
    let (number, unit) = split_unit(text)?;
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    scale(number, *nanos, MAX)
}

/// Writes nanoseconds as [`parse`] reads them, in the largest unit up to minutes that keeps them whole.
pub fn format(ticks: Ticks) -> String {
    let fits = |(unit, nanos): &&(&str, Ticks)| *unit != "h" && ticks >= *nanos && ticks.is_multiple_of(*nanos);
    let (unit, nanos) = UNITS.iter().find(fits).unwrap_or(&("ns", 1));
    format!("{}{unit}", ticks / nanos)
}

/// The number at the beginning of a text, and the rest.
pub(crate) fn split_unit(text: &str) -> Option<(f64, &str)> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
    Some((number.parse().ok()?, unit))
}

/// A number of units as ticks, if it is not more than `max`.
pub(crate) fn scale(number: f64, unit: Ticks, max: f64) -> Option<Ticks> {
    let ticks = number * unit as f64;
    (ticks.is_finite() && ticks <= max).then_some(ticks as Ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in ["250ms", "10s", "2m", "1500us", "7ns", "0ns", "61s"] {
            assert_eq!(parse(text).map(format).as_deref(), Some(text));
        }
        assert_eq!(format(7_200_000_000_000), "120m");
        assert_eq!(parse("2h"), parse("120m"));
        assert_eq!(parse("0.5us"), Some(500));
    }

    #[test]
    fn refuses_what_is_not_a_duration() {
        for bad in ["", "5", "ms", "1 s", "-1s", "1.2.3s", "1e9s", "5T", "5parsec", "9999999999h"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
