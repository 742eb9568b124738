//! What operators do to others: breaks, evictions, and the ends of leases.

use std::sync::Arc;
use std::time::Duration;

use hallpass::{GroupError, KeyDigest};

use super::{LeaseError, LeaseId, Service};
use crate::audit;
use crate::registry::{Event, EventKind, Origin};

/// How long an eviction may take beyond the session that has to run out, unless the client says otherwise.
const EVICT_MARGIN: Duration = Duration::from_secs(10);

impl Service {
    /// Takes a lock from its holder. It is done, and noted in the log, even if the client that asked is gone.
    pub(crate) async fn break_lock(&self, lock: &str, limit: Duration, by: &Arc<Origin>) -> Result<(), GroupError> {
        let (shared, lock, by) = (Arc::clone(&self.shared), lock.to_owned(), Arc::clone(by));
        finish(async move {
            let done = shared.node().break_lock(lock.as_str(), limit).await;
            audit::record("break", &lock, &by, &done);
            done
        })
        .await
        .unwrap_or(Err(GroupError::Stopped))
    }

    /// Removes a member. As with [`break_lock`](Self::break_lock) it is done even if the client is gone.
    pub(crate) async fn evict(
        &self,
        (id, name): (u32, &str),
        ban: bool,
        limit: Option<Duration>,
        by: &Arc<Origin>,
    ) -> Result<(), GroupError> {
        let limit = limit.unwrap_or_else(|| EVICT_MARGIN.saturating_add(self.shared.ttl()));
        let (shared, member, by) = (Arc::clone(&self.shared), name.to_owned(), Arc::clone(by));
        finish(async move {
            let done = shared.node().evict(id, ban, limit).await;
            audit::record(if ban { "ban" } else { "evict" }, &member, &by, &done);
            if done.is_ok() {
                shared.events.send(EventKind::Evicted, || Event { member: Some(member), ..Event::default() });
            }
            done
        })
        .await
        .unwrap_or(Err(GroupError::Stopped))
    }

    /// Ends a lease of somebody else. As with [`break_lock`](Self::break_lock) it is done even if the client is gone.
    pub(crate) async fn end_others_lease(
        &self,
        id: LeaseId,
        by: &Arc<Origin>,
    ) -> Result<Vec<(String, u64)>, LeaseError> {
        let (service, by, owner) = (self.clone(), Arc::clone(by), self.owner(id)?);
        finish(async move {
            let ended = service.withdraw(id).await;
            audit::record("end lease", &format!("lease {id} of {owner}"), &by, &ended.as_ref().map(|_| ()));
            ended
        })
        .await
        .unwrap_or(Err(LeaseError::Ending))
    }

    /// Bans a key in the whole group, or accepts it again. As with [`break_lock`](Self::break_lock) it is done even if the client is gone.
    pub(crate) async fn ban_key(
        &self,
        key: KeyDigest,
        is_banned: bool,
        limit: Duration,
        by: &Arc<Origin>,
    ) -> Result<(), GroupError> {
        let (shared, by) = (Arc::clone(&self.shared), Arc::clone(by));
        finish(async move {
            let node = shared.node();
            let done = if is_banned { node.ban_key(key, limit).await } else { node.admit_key(key, limit).await };
            audit::record(if is_banned { "ban key" } else { "admit key" }, &key.to_string(), &by, &done);
            done
        })
        .await
        .unwrap_or(Err(GroupError::Stopped))
    }

    /// The number of a member, by its name or number.
    pub(crate) fn find_member(&self, wanted: &str) -> Result<u32, String> {
        let members = self.shared.node().members();
        let named = members.iter().filter(|member| member.id != 0 && member.name.as_deref() == Some(wanted));
        // Of several with one name, one that has lost its directory is the old one: the name means the one that takes part.
        let named = named.max_by_key(|member| member.in_view);
        let found = named.or_else(|| members.iter().find(|member| member.id != 0 && member.id.to_string() == wanted));
        found
            .map(|member| member.id)
            .ok_or_else(|| format!("there is no member '{}'; 'hallpass members' lists them", wanted.escape_debug()))
    }
}

/// Goes on to the end, whether or not it is waited for. None if it was cut off with the runtime.
async fn finish<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    tokio::spawn(work).await.ok()
}
