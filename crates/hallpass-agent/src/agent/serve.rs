//! The loop of an agent that serves.

use std::sync::Arc;
use std::time::Duration;

use super::Agent;
use crate::connections::Source;
use crate::os::{self, Connection};
use crate::outcome::{Ended, ServeError};
use crate::session::Session;

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
        let who = os::credentials(&connection);
        let source = if os::is_trusted(who.uid) { Source::Own } else { Source::User(who.uid) };
        let service = self.service.clone();
        let sheds = self
            .door
            .admit(source, |permit| tokio::spawn(Session::new(service, connection, permit).run()).abort_handle());
        if sheds && let Some(left_out) = self.log.pass("too many clients") {
            tracing::warn!(
                left_out,
                "too many clients that have asked nothing: closed a connection to make room for another"
            );
        }
    }
}
