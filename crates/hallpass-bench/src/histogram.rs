use serde::{Deserialize, Serialize};

/// The sub-buckets of a power of two: a value is kept to within 1/128 of itself.
const BITS: u32 = 7;
const SUB: u64 = 1 << BITS;

/// How often which duration was seen, in nanoseconds. Histograms of several processes can be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(usize, u64)>", into = "Vec<(usize, u64)>")]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Counts one value.
    pub fn add(&mut self, nanos: u64) {
        self.add_many(bucket(nanos), 1);
    }

    /// Adds all of another one's.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add_many(bucket, *count);
        }
    }

    /// How many values were counted.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// True if none was.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The value that this share of all is not above, in nanoseconds; none if there are none.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map(middle)
    }

    fn add_many(&mut self, bucket: usize, count: u64) {
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += count;
        self.total += count;
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = value.ilog2() - BITS;
    (u64::from(shift + 1) * SUB + ((value >> shift) & (SUB - 1))) as usize
}

fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket as f64;
    }
    let width = 2f64.powi((bucket / SUB) as i32 - 1);
    (SUB + bucket % SUB) as f64 * width + (width - 1.0) / 2.0
}

impl From<Vec<(usize, u64)>> for Histogram {
    fn from(pairs: Vec<(usize, u64)>) -> Self {
        let mut all = Self::default();
        // No duration of this machine is beyond the largest of 64 bits.
        for (at, count) in pairs.into_iter().filter(|(at, _)| *at <= bucket(u64::MAX)) {
            all.add_many(at, count);
        }
        all
    }
}

impl From<Histogram> for Vec<(usize, u64)> {
    fn from(all: Histogram) -> Self {
        all.counts.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_to_within_a_percent() {
        for value in [0, 1, 127, 128, 129, 255, 256, 1000, 99_999, 123_456_789, u64::MAX / 3] {
            let kept = middle(bucket(value));
            assert!((kept - value as f64).abs() <= value as f64 * 0.01, "{value} became {kept}");
        }
    }

    #[test]
    fn quantiles_come_from_all_that_were_added() {
        let mut low = Histogram::default();
        let mut high = Histogram::default();
        (1..=50).for_each(|value| low.add(value));
        (51..=100).for_each(|value| high.add(value));
        low.merge(&high);
        assert_eq!((low.len(), low.quantile(0.5), low.quantile(0.99)), (100, Some(50.0), Some(99.0)));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn it_survives_the_way_between_processes() {
        let mut all = Histogram::default();
        [3, 3, 70_000].into_iter().for_each(|value| all.add(value));
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), all);
    }
}
