//! Bounds on what a group does: how many events, and how many views, in how much time.

use std::collections::VecDeque;

use hallpass_core::Ticks;

use super::plan::Plan;
use crate::oracle::Violation;

/// Counts events and views in virtual time. A run may be long, but nothing in it may happen faster and faster.
#[derive(Default)]
pub(super) struct Pace {
    /// When the current second began, and how many events it has had.
    second: (Ticks, u64),
    /// The views of the last session's time: when each was opened first.
    views: VecDeque<(Ticks, u64)>,
}

const SECOND: Ticks = 1_000_000_000;
/// More views than this within a session's time have no reason.
const VIEWS_MAX: u64 = 60;

/// No group has more events within a second. In a large one every two members are connected twice, and greet each other.
fn events_max(plan: &Plan) -> u64 {
    let members = (plan.nodes + plan.joins_max) as u64;
    400_000 + 1000 * members.pow(2)
}

impl Pace {
    pub(super) fn on_event(&mut self, now: Ticks, plan: &Plan) -> Option<Violation> {
        if now >= self.second.0 + SECOND {
            self.second = (now, 0);
        }
        self.second.1 += 1;
        let text = || format!("{} events within a second", self.second.1);
        (self.second.1 > events_max(plan)).then(|| Violation { property: "progress", text: text() })
    }

    /// A node opens a view. Epochs count the views that were never opened, too.
    pub(super) fn on_view(&mut self, now: Ticks, epoch: u64, machines: usize, plan: &Plan) -> Option<Violation> {
        if self.views.back().is_some_and(|(_, last)| epoch <= *last) {
            return None;
        }
        // A group that was lost and found again begins far above.
        if self.views.back().is_some_and(|(_, last)| epoch > last + (1 << 15)) {
            self.views.clear();
        }
        self.views.push_back((now, epoch));
        while self.views.len() > 2 && self.views[1].0 + plan.ttl < now {
            self.views.pop_front();
        }
        let (since, first) = self.views[0];
        let most = VIEWS_MAX + 2 * machines as u64;
        let took = (now - since).max(plan.ttl);
        let views = (epoch - first) as u128 * u128::from(plan.ttl) / u128::from(took);
        let text = || format!("{views} views within the time of a session, up to epoch {epoch}");
        (views > u128::from(most)).then(|| Violation { property: "views", text: text() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_views_is_a_violation_and_a_jump_after_a_recovery_is_none() {
        let plan = Plan::draw(3);
        let mut pace = Pace::default();
        for epoch in 2..30 {
            assert_eq!(pace.on_view(epoch * plan.ttl / 10, epoch, 3, &plan), None);
        }
        assert_eq!(pace.on_view(4 * plan.ttl, 70_000, 3, &plan), None, "a group that was found again");
        let storm =
            (1..200).find_map(|number| pace.on_view(5 * plan.ttl + number * 1_000_000, 70_000 + number, 3, &plan));
        assert_eq!(storm.map(|violation| violation.property), Some("views"));
    }

    #[test]
    fn a_long_run_is_none_and_a_second_without_end_is_one() {
        let plan = Plan::draw(3);
        let mut pace = Pace::default();
        assert!((0..5_000_000).all(|event| pace.on_event(event * SECOND / 100_000, &plan).is_none()));
        let mut pace = Pace::default();
        assert!((0..5_000_000).any(|_| pace.on_event(7, &plan).is_some()));
    }
}
