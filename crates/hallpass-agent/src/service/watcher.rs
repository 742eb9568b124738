use std::collections::BTreeMap;
use std::time::Duration;

use hallpass::{Status, ViewState};
use tokio::task::JoinHandle;

use super::Service;
use super::hold::HoldState;
use super::lease::{Lease, LeaseId};
use crate::registry::{Event, EventKind};
use crate::shared::AgentShared;
use crate::{audit, os};

/// The bounds of [`look_interval`].
const LOOK_INTERVALS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];
/// How often to look at the group, and for leases at least.
const GROUP_INTERVAL: Duration = Duration::from_millis(500);

/// Ends leases that are over, and tells subscribers what has changed. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Watcher(JoinHandle<()>);

impl Watcher {
    pub(crate) fn start(service: Service) -> Self {
        Self(tokio::spawn(async move {
            let mut group = GroupWatch::default();
            let mut look_at_group = tokio::time::interval(GROUP_INTERVAL);
            loop {
                service.withdraw_leases_of_tokens();
                let next = service.look_at_leases();
                tokio::select! {
                    () = tokio::time::sleep(next) => {}
                    () = service.leases.sooner.notified() => {}
                    _ = look_at_group.tick() => {
                        audit::tell_left_out();
                        group.look(&service.shared);
                    }
                }
            }
        }))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Service {
    /// Ends the leases that are over or have lost a lock; returns after which time to look again.
    fn look_at_leases(&self) -> Duration {
        let (now, ending) = (os::now(), self.is_ending());
        let mut over = Vec::new();
        let (mut next, mut any_held) = (u64::MAX, false);
        let mut table = self.leases.lock();
        for (id, lease) in table.iter_mut() {
            // All are looked at, so that each loss is told.
            let looks = lease.held.values_mut().map(|hold| hold.look(false).now == HoldState::Lost);
            if looks.fold(false, |any, lost| any | lost) {
                over.push((*id, EventKind::LeaseLost));
            } else if now >= lease.term.deadline() {
                over.push((*id, EventKind::LeaseExpired));
            } else if let Some(why) = lease.is_over_early(now, ending) {
                over.push((*id, why));
            } else {
                any_held |= !lease.held.is_empty();
                next = next.min(lease.term.deadline());
            }
        }
        let ended: Vec<_> = over.into_iter().filter_map(|(id, why)| Some((id, why, table.remove(&id)?))).collect();
        drop(table);
        ended.into_iter().for_each(|(id, why, lease)| self.end_lease(id, why, lease));
        let look = if any_held || ending { look_interval(self.shared.ttl()) } else { GROUP_INTERVAL };
        look.min(Duration::from_nanos(next.saturating_sub(now))).max(Duration::from_millis(1))
    }

    fn end_lease(&self, id: LeaseId, why: EventKind, lease: Lease) {
        match why {
            EventKind::LeaseLost if lease.withdrawn.is_some() => self.shared.counts.leases_revoked.add(),
            EventKind::LeaseLost => self.shared.counts.leases_lost.add(),
            EventKind::LeaseExpired => self.shared.counts.leases_expired.add(),
            // Nobody misses a lease that holds nothing, or whose client has stopped counting on it.
            _ => return,
        }
        let client = lease.registration.origin().client();
        let (owner, text) = (Some(lease.owner.clone()), lease.withdrawn.map(str::to_owned));
        let lease_id = Some(id.to_string());
        self.shared.events.send(why, || Event { lease: lease_id, client, owner, text, ..Event::default() });
        // Its locks are free from here on.
        drop(lease);
    }
}

/// How often to look at what clients hold: sixteen times in a session.
pub(super) fn look_interval(session: Duration) -> Duration {
    (session / 16).clamp(LOOK_INTERVALS[0], LOOK_INTERVALS[1])
}

/// The last seen status of the group.
#[derive(Default)]
struct GroupWatch {
    seen: Option<Status>,
}

impl GroupWatch {
    fn look(&mut self, shared: &AgentShared) {
        let status = shared.node().status();
        if let Some(before) = &self.seen {
            tell_changes(shared, before, &status);
        }
        self.seen = Some(status);
    }
}

fn tell_changes(shared: &AgentShared, before: &Status, now: &Status) {
    let send = |kind: EventKind, event: Event| shared.events.send(kind, || event);
    if before.epoch != now.epoch && now.epoch.is_some() {
        send(EventKind::View, Event { epoch: now.epoch, ..Event::default() });
    }
    let (were, are) = (members(before), members(now));
    for (id, name) in &are {
        if !were.contains_key(id) {
            send(EventKind::MemberIn, Event { member: Some(name.clone()), epoch: now.epoch, ..Event::default() });
        }
    }
    for (id, name) in &were {
        if !are.contains_key(id) {
            send(EventKind::MemberOut, Event { member: Some(name.clone()), epoch: now.epoch, ..Event::default() });
        }
    }
    if before.steward != now.steward {
        let member = now.steward.and_then(|id| are.get(&id).cloned());
        send(EventKind::Steward, Event { member, ..Event::default() });
    }
    if before.view != now.view {
        let text = match now.view {
            ViewState::Open => "open",
            ViewState::Changing => "changing",
            ViewState::Lapsed => "lapsed",
            ViewState::Joining => "joining",
        };
        send(EventKind::State, Event { text: Some(text.to_owned()), ..Event::default() });
    }
}

/// The names of the members in the view, by their numbers.
fn members(status: &Status) -> BTreeMap<u32, String> {
    let members = status.members.iter().filter(|member| member.in_view);
    members.map(|member| (member.id, member.name.clone().unwrap_or_else(|| member.address.clone()))).collect()
}
