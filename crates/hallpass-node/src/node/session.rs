//! Every input looks at the session first.

use hallpass_core::Ticks;

use super::Node;
use crate::faults::Conduct;

/// The time of an input before which the session was looked at. Only this file makes one, and nothing that an input changes takes
/// another time: so no input can forget it.
#[derive(Clone, Copy)]
pub(crate) struct Checked(Ticks);

impl Checked {
    /// A node that has just been made has no session yet.
    pub(super) fn at_the_start() -> Self {
        Self(0)
    }

    /// A planted bug: the session is not looked at.
    pub(super) fn not_at_all(now: Ticks) -> Self {
        Self(now)
    }

    pub(crate) fn ticks(self) -> Ticks {
        self.0
    }
}

impl<C, F: Conduct> Node<C, F> {
    /// Every input begins here: the driver's contract is kept, what connections did not take is offered again, and a session
    /// that has run out is over before anything else happens.
    #[inline]
    pub(super) fn begin(&mut self, now: Ticks) -> Checked {
        self.assert_drained();
        self.links.offer_leftovers();
        self.lapse_if_expired(now)
    }

    #[inline]
    pub(super) fn lapse_if_expired(&mut self, now: Ticks) -> Checked {
        if now >= self.valid_until {
            self.lapse(now);
        }
        Checked(now)
    }

    #[inline]
    pub(super) fn assert_drained(&self) {
        debug_assert!(!self.has_output(), "the outputs of the last input were not taken: see the driver's contract");
    }

    #[cold]
    fn lapse(&mut self, now: Ticks) {
        self.views.lapse_if_due(now);
        self.apply_actions(Checked(now));
    }
}
