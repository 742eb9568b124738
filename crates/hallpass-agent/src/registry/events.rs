use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::broadcast;

use crate::owner::Owner;

/// How far a subscriber may be behind before it misses events: some seconds of a busy agent, and half a megabyte at most.
const BEHIND_MAX: usize = 2048;
/// How many rare events are kept for later subscribers, of the group and of clients each: enough to fill a page.
const RECENT_MAX: usize = 128;

/// Publishes what happens on an agent.
///
/// Nobody is waited for: a subscriber that is too far behind misses events, and is told how many.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    next: u64,
    /// A crowd of clients that lose their leases at once must not hide why.
    of_group: VecDeque<Arc<Event>>,
    of_clients: VecDeque<Arc<Event>>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventKind {
    /// A client holds a lock.
    #[default]
    Granted,
    /// A client has released a lock, or its lease or connection has ended.
    Released,
    /// A client has lost a lock.
    Lost,
    /// A client may lose a lock soon.
    AtRisk,
    /// An operator takes a lock away.
    Broken,
    /// A lease was not kept alive.
    LeaseExpired,
    /// A lease has ended with its locks: the session of the agent's node has run out, or a lock of it was broken.
    LeaseLost,
    /// The group's view has changed.
    View,
    /// Another member is in.
    MemberIn,
    /// A member is out.
    MemberOut,
    /// An operator has removed a member, through this agent.
    Evicted,
    /// There is another steward.
    Steward,
    /// The node's view is open, changing, lapsed or joining.
    State,
    /// The agent ends.
    Ending,
}

impl EventKind {
    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::AtRisk => "at_risk",
            Self::Broken => "broken",
            Self::LeaseExpired => "lease_expired",
            Self::LeaseLost => "lease_lost",
            Self::View => "view",
            Self::MemberIn => "member_in",
            Self::MemberOut => "member_out",
            Self::Evicted => "evicted",
            Self::Steward => "steward",
            Self::State => "state",
            Self::Ending => "ending",
        }
    }

    /// About the members of the group, not about what clients hold.
    fn is_of_group(self) -> bool {
        matches!(
            self,
            Self::View | Self::MemberIn | Self::MemberOut | Self::Evicted | Self::Steward | Self::State | Self::Ending
        )
    }

    /// Grants and releases come by the thousand.
    fn is_rare(self) -> bool {
        !matches!(self, Self::Granted | Self::Released)
    }
}

/// One event. Only what it is about is filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// Rises from event to event, until the agent ends.
    pub(crate) id: u64,
    pub(crate) event: EventKind,
    /// In milliseconds since 1970, by the agent's clock: for people only.
    pub(crate) at_ms: u64,
    /// The same in microseconds, to sort it between messages.
    #[serde(skip)]
    pub(crate) at_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lock: Option<String>,
    /// In decimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<String>,
    /// In hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u64>,
    /// More, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The owner of the lease that it is about: others do not see it.
    #[serde(skip)]
    pub(crate) owner: Option<Owner>,
}

impl Default for Events {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BEHIND_MAX), recent: Mutex::default() }
    }
}

impl Events {
    /// Tells all subscribers. A frequent event that nobody listens to is not even made.
    pub(crate) fn send(&self, kind: EventKind, make: impl FnOnce() -> Event) {
        if !kind.is_rare() && self.sender.receiver_count() == 0 {
            return;
        }
        let at_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let event = Event { event: kind, at_ms: at_us / 1_000, at_us, ..make() };
        // Sent under the lock, so that numbers arrive in order.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.next += 1;
        let event = Arc::new(Event { id: recent.next, ..event });
        if kind.is_rare() {
            let kept = if kind.is_of_group() { &mut recent.of_group } else { &mut recent.of_clients };
            if kept.len() == RECENT_MAX {
                kept.pop_front();
            }
            kept.push_back(Arc::clone(&event));
        }
        let _ = self.sender.send(event);
    }

    /// The rare events of the past, and all that follow.
    pub(crate) fn subscribe(&self) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut past: Vec<_> = recent.of_group.iter().chain(&recent.of_clients).map(Arc::clone).collect();
        past.sort_by_key(|event| event.id);
        (past, self.sender.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_events_are_kept_and_frequent_ones_are_not() {
        let events = Events::default();
        events.send(EventKind::Granted, || unreachable!("nobody listens"));
        for _ in 0..RECENT_MAX + 3 {
            events.send(EventKind::View, Event::default);
        }
        let (past, mut following) = events.subscribe();
        assert_eq!((past.len(), past[0].id), (RECENT_MAX, 4));
        events.send(EventKind::Released, Event::default);
        let next = following.try_recv().unwrap();
        assert_eq!((next.event, next.id), (EventKind::Released, RECENT_MAX as u64 + 4));
    }

    #[test]
    fn many_lost_leases_do_not_hide_what_became_of_the_group() {
        let events = Events::default();
        events.send(EventKind::State, Event::default);
        (0..2 * RECENT_MAX).for_each(|_| events.send(EventKind::LeaseLost, Event::default));
        events.send(EventKind::Steward, Event::default);
        let (past, _) = events.subscribe();
        assert_eq!((past[0].event, past[1].event), (EventKind::State, EventKind::LeaseLost));
        assert_eq!((past.len(), past.last().unwrap().event), (RECENT_MAX + 2, EventKind::Steward));
    }

    #[test]
    fn names_are_those_of_the_documents() {
        for kind in [EventKind::AtRisk, EventKind::LeaseExpired, EventKind::MemberIn, EventKind::View] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
