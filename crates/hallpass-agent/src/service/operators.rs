//! Changes of the group by operators: breaks and evictions.

use std::sync::Arc;
use std::time::Duration;

use hallpass::{GroupError, KeyDigest};

use super::Service;
use crate::audit;
use crate::registry::{Event, EventKind, Origin};

impl Service {
    /// Takes a lock from its holder. It is done, and noted in the log, even if the client that asked is gone.
    pub(crate) async fn break_lock(&self, lock: &str, limit: Duration, by: &Arc<Origin>) -> Result<(), GroupError> {
        let (shared, lock, by) = (Arc::clone(&self.shared), lock.to_owned(), Arc::clone(by));
        finish(async move {
            let done = shared.node().break_lock(lock.as_str(), limit).await;
            audit::breaks(&lock, &by, &done);
            done
        })
        .await
    }

    /// Removes a member. As with [`break_lock`](Self::break_lock) it is done even if the client is gone.
    pub(crate) async fn evict(
        &self,
        (id, name): (u32, &str),
        ban: bool,
        limit: Duration,
        by: &Arc<Origin>,
    ) -> Result<(), GroupError> {
        let (shared, member, by) = (Arc::clone(&self.shared), name.to_owned(), Arc::clone(by));
        finish(async move {
            let done = shared.node().evict(id, ban, limit).await;
            audit::evicts(&member, ban, &by, &done);
            if done.is_ok() {
                shared.events.send(EventKind::Evicted, || Event { member: Some(member), ..Event::default() });
            }
            done
        })
        .await
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
            audit::bans_key(key, is_banned, &by, &done);
            done
        })
        .await
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

/// Goes on to the end, whether or not it is waited for.
async fn finish(work: impl Future<Output = Result<(), GroupError>> + Send + 'static) -> Result<(), GroupError> {
    // A task that is not awaited to its end was cut off with the runtime.
    tokio::spawn(work).await.unwrap_or(Err(GroupError::Stopped))
}
