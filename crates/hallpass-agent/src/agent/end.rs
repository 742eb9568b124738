//! How an agent ends: nobody is let in before its holders are out.

use std::time::Duration;

use hallpass::{DataDirectory, GroupError};

use super::Agent;
use crate::line_protocol::Response;
use crate::os;
use crate::outcome::{Ended, GroupFault, ServeError};

/// How a node has left for good, so that nobody counts on it.
enum Leaving {
    /// There was nobody to leave.
    Alone,
    /// The others in its group have let it go.
    LetGo,
}

impl Agent {
    /// Waits for clients that hold locks, then stops granting. Meanwhile the socket stays, so that no other agent takes the paths, and new
    /// clients are sent away. The next agent need not wait if nobody holds a lock.
    pub(super) async fn end(self, result: &Result<Ended, ServeError>) {
        let stop_at = self.shared.begin_ending();
        self.service.look_at_leases_soon();
        self.wait_for_clients(stop_at).await;
        // A lock that was granted counts as held, though its client may not have read the grant yet.
        let nothing_held = self.shared.clients.len() == 0;
        let left = if let Ok(Ended::Left) = result { self.leave().await } else { Ok(Leaving::Alone) };
        self.shared.node().stop().await;
        // The data directory is still this agent's, so none of these files can be another one's.
        if nothing_held && result.is_ok() {
            self.shared.marks().remove_running();
        }
        if let (Ok(Ended::Left), Ok(_)) = (result, &left) {
            self.shared.marks().remove_membership();
        }
        drop(self.server);
        self.socket.remove();
        if self.created_directory {
            let _ = self.socket.path().parent().map(std::fs::remove_dir);
        }
        let is_open = self.data.is_some();
        drop(self.data);
        if let Ok(Leaving::LetGo) = left
            && is_open
            && let Err(error) = DataDirectory::forget(&self.paths.data)
        {
            tracing::warn!(%error, "the node has left its group, but its data directory still says that it is a member");
        }
        let answer = match left {
            Ok(_) => Response::Done,
            Err(GroupFault::Group(GroupError::Timeout)) => Response::Late { why: None },
            Err(error) => Response::Error { text: error.to_string() },
        };
        for mut client in self.shared.take_leaving() {
            let _ = client.send(&answer).await;
        }
    }

    /// Waits until no client is left, or all that was granted is over.
    async fn wait_for_clients(&self, stop_at: u64) {
        while self.shared.clients.len() > 0 && os::now() < stop_at {
            // By the clock that clients go by: a timer may be early by it.
            let left = Duration::from_nanos(stop_at.saturating_sub(os::now()));
            tokio::select! {
                () = self.shared.clients.client_left() => {}
                // New clients: their connections are closed at once.
                _ = self.socket.listener.accept() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// Leaves the group for good. An error if others may go on counting on this node.
    async fn leave(&self) -> Result<Leaving, GroupFault> {
        let (node, shared_mark) = (self.shared.node(), self.paths.shared_mark());
        let status = node.status();
        if status.group_id.is_none() && shared_mark.exists() {
            return Err(GroupFault::Refused(format!(
                "the node that was here before was in a group with others, and this one is in none: evict that one from a member, then \
                 remove {}",
                shared_mark.display()
            )));
        }
        // Those that are not in the view count as well, and it need not be in one itself: it can leave as soon as it reaches them.
        if status.group_id.is_none() || status.members.len() <= 1 {
            return Ok(Leaving::Alone);
        }
        node.leave(self.shared.leave_limit()).await?;
        Ok(Leaving::LetGo)
    }
}
