use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::shares::Shares;

/// Counters for an agent's metrics. They are plain numbers, since clients wait meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// How long clients waited for locks that they got.
    pub(crate) waits: Histogram,
    /// How long they held them.
    pub(crate) holds: Histogram,
    /// Locks that clients lost.
    pub(crate) losses: Counter,
    /// Requests for locks that were busy, late, cancelled or refused.
    pub(crate) busy: Counter,
    pub(crate) late: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) refused: Counter,
    /// Requests of the API that wait for locks now.
    pub(crate) waiting: Arc<Shares>,
    /// Leases, by how they began and ended.
    pub(crate) leases_granted: Counter,
    pub(crate) leases_kept: Counter,
    pub(crate) leases_revoked: Counter,
    pub(crate) leases_expired: Counter,
    pub(crate) leases_lost: Counter,
}

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are at present, of something that has a bound.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicUsize);

impl Gauge {
    /// Counts one more, unless that would exceed the bound.
    pub(crate) fn enter(&self, max: usize) -> bool {
        let more = |now: usize| (now < max).then_some(now + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often something took how long.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; Self::BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// The upper bounds of the buckets, from 100 us to 5 min.
    pub(crate) const BOUNDS_NS: [u64; 14] = [
        100_000,
        250_000,
        1_000_000,
        2_500_000,
        10_000_000,
        25_000_000,
        100_000_000,
        250_000_000,
        1_000_000_000,
        2_500_000_000,
        10_000_000_000,
        30_000_000_000,
        60_000_000_000,
        300_000_000_000,
    ];

    pub(crate) fn observe(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = Self::BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Returns how many took at most as long as each bound, the last bound being infinite, and the sum of all in seconds.
    pub(crate) fn cumulative(&self) -> (Vec<u64>, f64) {
        let mut total = 0;
        let counts = self.buckets.iter().map(|bucket| {
            total += bucket.load(Ordering::Relaxed);
            total
        });
        (counts.collect(), self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::default();
        for us in [0, 100, 101, 1_000_000_000] {
            histogram.observe(Duration::from_micros(us));
        }
        let (counts, sum) = histogram.cumulative();
        assert_eq!((counts[0], counts[1], counts[13], counts[14]), (2, 3, 3, 4));
        assert!((sum - 1_000.000_201).abs() < 1e-9, "{sum}");
    }
}
