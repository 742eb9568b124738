//! The loop of an agent that serves.

use std::sync::Arc;
use std::time::Duration;

use super::Agent;
use crate::os::Connection;
use crate::outcome::{Ended, ServeError};
use crate::session::Session;

/// Bounds the memory and the descriptors that clients take: each has one connection.
const CLIENTS_MAX: usize = 10_000;
/// The pause after a connection could not be accepted, usually for want of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How often to check that the agent's files are still there.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

impl Agent {
    /// Serves clients until the agent ends.
    pub async fn serve(mut self) -> Result<Ended, ServeError> {
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        let shared = Arc::clone(&self.shared);
        let idle = shared.clients.idle_for(self.idle_limit);
        tokio::pin!(idle);
        let result = loop {
            let accepted = tokio::select! {
                accepted = self.socket.listener.accept() => accepted,
                why = shared.stopped() => break Ok(why),
                () = shared.failed() => break Err(ServeError::Failed),
                Some(join) = self.joins.recv() => {
                    self.join(join).await;
                    continue;
                }
                () = &mut idle => break Ok(Ended::Idle),
                _ = checks.tick() => match self.check_files() {
                    Ok(()) => continue,
                    Err(error) => break Err(error),
                },
            };
            match accepted {
                Ok((connection, _)) => self.serve_client(connection),
                Err(error) => {
                    if let Some(left_out) = self.log.pass(&error.to_string()) {
                        tracing::warn!(
                            %error,
                            left_out,
                            "cannot accept a client; if the process is out of file descriptors, raise 'ulimit -n'"
                        );
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        };
        self.end(&result).await;
        result
    }

    pub(super) fn serve_client(&self, connection: Connection) {
        if self.shared.clients.len() >= CLIENTS_MAX {
            if let Some(left_out) = self.log.pass("too many clients") {
                tracing::warn!(left_out, "refused a client: there are {CLIENTS_MAX} already");
            }
            return;
        }
        tokio::spawn(Session::new(self.service.clone(), connection).run());
    }
}
