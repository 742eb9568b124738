/// SplitMix64: random numbers from a seed, the same in every version.
///
/// The core has no seed of its own: the caller gives it, and so decides every number. The algorithm is written out here, since a
/// recorded seed must keep its meaning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitMix64(u64);

/// What the state grows by with each number: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix64 {
    /// The generator with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// The number that a seed gives as the `count`-th, without those before it.
    pub const fn nth(seed: u64, count: u64) -> u64 {
        mix(seed.wrapping_add(count.wrapping_mul(STEP)))
    }
}

const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_numbers() {
        let mut random = SplitMix64::new(1_234_567);
        let drawn = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert_eq!(drawn, [1, 2, 3].map(|count| SplitMix64::nth(1_234_567, count)));
    }
}
