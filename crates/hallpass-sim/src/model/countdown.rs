//! When a timer of a model may fire.

use hallpass_core::Ticks;
use hallpass_core::protocol::Span;

/// A bound for protocols to compute with: a timer that waits this long or longer is never set.
///
/// Short enough that no sum of a few of them overflows.
pub(super) const NEVER: Ticks = u64::MAX / 1024;

/// The slots until a timer fires. In two bytes, which an enum does not fit into.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Countdown(u16);

impl Countdown {
    /// Where a model has no time, every timer may fire at once.
    pub(super) const DUE: Self = Self(0);

    const ANY_TIME: Self = Self(u16::MAX);

    /// For a timer that a protocol sets; `None` if it never fires. One without an upper bound may fire at any time.
    pub(super) fn new(after: Span) -> Option<Self> {
        match after.max {
            Ticks::MAX => Some(Self::ANY_TIME),
            NEVER.. => None,
            slots => Some(Self(slots.min(u64::from(u16::MAX) - 1) as u16)),
        }
    }

    /// True if the timer may fire now.
    pub(super) fn may_fire(self) -> bool {
        self == Self::DUE || self == Self::ANY_TIME
    }

    /// True if time cannot pass before the timer has fired.
    pub(super) fn is_due(self) -> bool {
        self == Self::DUE
    }

    /// True if the timer fires at a certain time.
    pub(super) fn is_timed(self) -> bool {
        self != Self::ANY_TIME
    }

    /// One slot passes.
    pub(super) fn tick(&mut self) {
        if self.is_timed() {
            self.0 -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_fires_in_time_at_any_time_or_never() {
        let mut soon = Countdown::new(Span::exactly(1)).unwrap();
        assert!(!soon.may_fire() && !soon.is_due());
        soon.tick();
        assert!(soon.may_fire() && soon.is_due());
        let mut any = Countdown::new(Span { min: 0, max: Ticks::MAX }).unwrap();
        any.tick();
        assert!(any.may_fire() && !any.is_due() && !any.is_timed());
        assert_eq!(Countdown::new(Span::exactly(2 * NEVER)), None);
        assert!(Countdown::new(Span::exactly(NEVER - 1)).unwrap().is_timed());
    }
}
