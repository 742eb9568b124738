//! Durations, counted.

use serde::{Deserialize, Serialize};

/// How often each duration was seen, in nanoseconds, each kept to within a hundredth. Between processes it travels as
/// pairs of a value and its count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub(crate) struct Histogram(hdrhistogram::Histogram<u64>);

const SIGNIFICANT_DIGITS: u8 = 2;

impl Histogram {
    pub(crate) fn add(&mut self, nanos: u64) {
        self.add_many(nanos, 1);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("it grows as needed");
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The duration in nanoseconds that this share of all does not exceed; none if there are none.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share) as f64)
    }

    fn add_many(&mut self, nanos: u64, count: u64) {
        self.0.record_n(nanos, count).expect("it grows as needed");
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self(hdrhistogram::Histogram::new(SIGNIFICANT_DIGITS).expect("two digits are within the limits"))
    }
}

impl From<Vec<(u64, u64)>> for Histogram {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        let mut all = Self::default();
        pairs.into_iter().for_each(|(nanos, count)| all.add_many(nanos, count));
        all
    }
}

impl From<Histogram> for Vec<(u64, u64)> {
    fn from(all: Histogram) -> Self {
        all.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_to_within_a_hundredth() {
        for value in [0, 1, 127, 128, 129, 255, 256, 1000, 99_999, 123_456_789, u64::MAX / 3] {
            let mut one = Histogram::default();
            one.add(value);
            let kept = one.quantile(0.5).unwrap();
            assert!((kept - value as f64).abs() <= value as f64 * 0.01, "{value} became {kept}");
        }
    }

    #[test]
    fn quantiles_are_of_everything_that_was_added() {
        let mut low = Histogram::default();
        let mut high = Histogram::default();
        (1..=50).for_each(|value| low.add(value));
        (51..=100).for_each(|value| high.add(value));
        low.merge(&high);
        assert_eq!((low.len(), low.quantile(0.5), low.quantile(0.99)), (100, Some(50.0), Some(99.0)));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn nothing_is_lost_between_processes() {
        let mut all = Histogram::default();
        [3, 3, 70_000, 0].into_iter().for_each(|value| all.add(value));
        let text = serde_json::to_string(&all).unwrap();
        let read: Histogram = serde_json::from_str(&text).unwrap();
        assert_eq!(read, all);
        assert_eq!((read.len(), read.quantile(0.5)), (4, Some(3.0)));
    }
}
