use hallpass_core::Ticks;

/// A machine's clock: it has a start and a rate of its own, and never stands still or goes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// At this true time it showed that.
    since: Ticks,
    shown: Ticks,
    /// By how many millionths it is faster than true time.
    ppm: u32,
}

const MILLION: u128 = 1_000_000;

impl Clock {
    pub(super) fn new(shown: Ticks, ppm: u32) -> Self {
        Self { since: 0, shown, ppm }
    }

    /// What it shows at a true time.
    pub(super) fn at(&self, time: Ticks) -> Ticks {
        let passed = u128::from(time.saturating_sub(self.since));
        self.shown + (passed * (MILLION + u128::from(self.ppm)) / MILLION) as Ticks
    }

    /// The true time at which it shows this, or has just passed it.
    pub(super) fn when(&self, shown: Ticks) -> Ticks {
        let passes = u128::from(shown.saturating_sub(self.shown)) * MILLION;
        self.since
            .saturating_add(Ticks::try_from(passes.div_ceil(MILLION + u128::from(self.ppm))).unwrap_or(Ticks::MAX))
    }

    /// It runs at another rate from now on.
    pub(super) fn slew(&mut self, now: Ticks, ppm: u32) {
        *self = Self { since: now, shown: self.at(now), ppm };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_shows_more_and_goes_on_from_there_at_another_rate() {
        let mut clock = Clock::new(1000, 10_000);
        assert_eq!((clock.at(0), clock.at(100_000)), (1000, 102_000));
        clock.slew(100_000, 0);
        assert_eq!(clock.at(100_050), 102_050);
        for shown in [102_000, 102_001, 200_000] {
            assert_eq!(clock.at(clock.when(shown)), shown);
        }
        assert_eq!(clock.when(Ticks::MAX), Ticks::MAX - 2000);
    }
}
