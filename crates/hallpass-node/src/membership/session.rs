//! A member's own session: what it holds, it holds until its own clock says that the session is over.

use hallpass_core::Ticks;

use crate::Incarnation;

/// The session of one incarnation.
///
/// It is valid for a ttl from the moment at which the last acknowledged renewal was *sent*, by the member's own clock: the
/// steward cannot have received it earlier. A lapse is final: no late acknowledgement undoes it, and the node takes part
/// again only under the next incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Session {
    pub incarnation: Incarnation,
    ttl: Ticks,
    /// `None` before the first acknowledgement.
    valid_until: Option<Ticks>,
    lapsed: bool,
}

impl Session {
    pub fn new(incarnation: Incarnation, ttl: Ticks) -> Self {
        Self { incarnation, ttl, valid_until: None, lapsed: false }
    }

    pub fn ttl(&self) -> Ticks {
        self.ttl
    }

    /// The steward has acknowledged the renewal that was sent at this time.
    pub fn on_acknowledged(&mut self, incarnation: Incarnation, sent: Ticks, now: Ticks) {
        // What has run out is not undone, and lapses with everything that follows from it.
        let has_run_out = self.lapsed || self.valid_until.is_some_and(|until| now >= until);
        if incarnation == self.incarnation && !has_run_out && sent <= now {
            let until = sent.saturating_add(self.ttl);
            // An acknowledgement that was under way for longer than a session begins none.
            if until > now {
                self.valid_until = Some(self.valid_until.map_or(until, |valid| valid.max(until)));
            }
        }
    }

    /// This node decides alone: its renewal is sent, confirmed and acknowledged in one moment.
    pub fn renew_at(&mut self, now: Ticks) {
        if !self.lapsed {
            self.valid_until = Some(now.saturating_add(self.ttl));
        }
    }

    /// The session is over if its time is; true if it is over now and was not before.
    pub fn lapse_if_due(&mut self, now: Ticks) -> bool {
        let due = !self.lapsed && self.valid_until.is_some_and(|until| now >= until);
        self.lapsed |= due;
        due
    }

    /// A planted bug: an acknowledgement counts however late it is.
    #[cfg(any(test, feature = "planted-bugs"))]
    pub fn revive(&mut self, sent: Ticks) {
        self.lapsed = false;
        self.valid_until = Some(sent.saturating_add(self.ttl.saturating_mul(2)));
    }

    /// Ends the session before its time.
    pub fn end(&mut self) {
        self.lapsed = true;
    }

    pub fn has_lapsed(&self) -> bool {
        self.lapsed
    }

    /// Until when what is held is held for certain; `None` without a session.
    pub fn valid_until(&self) -> Option<Ticks> {
        self.valid_until.filter(|_| !self.lapsed)
    }

    pub fn is_valid(&self, now: Ticks) -> bool {
        self.valid_until().is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_that_comes_too_late_leaves_the_lapse_to_be_noticed() {
        let mut session = Session::new(Incarnation::FIRST, 10);
        session.on_acknowledged(Incarnation::FIRST, 0, 1);
        session.on_acknowledged(Incarnation::FIRST, 10, 10);
        assert!(!session.is_valid(10) && !session.has_lapsed());
        assert!(session.lapse_if_due(10), "only now everything that was held is given up");
        assert!(session.has_lapsed() && !session.lapse_if_due(11));
    }
}
