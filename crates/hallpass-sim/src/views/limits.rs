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
