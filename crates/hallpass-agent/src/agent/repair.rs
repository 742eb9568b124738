//! The agent makes files again that somebody has removed, unless another agent may have been started meanwhile.

use super::Agent;
use super::start::check_free;
use crate::http::Server;
use crate::os::{self, Claim, SocketFile};
use crate::outcome::ServeError;

/// How often an agent tries to make its data directory again before it gives up.
const REPAIRS_MAX: u32 = 3;

impl Agent {
    /// Checks the files that the agent is reached by, and those that keep other agents from being started beside it.
    pub(super) fn check_files(&mut self) -> Result<(), ServeError> {
        self.claims.iter().for_each(Claim::drain);
        if !self.check_data()? {
            return Ok(());
        }
        self.check_socket();
        self.check_api();
        self.shared.mark_shared();
        Ok(())
    }

    /// False if the data directory is not there yet. An error if it cannot be made again.
    fn check_data(&mut self) -> Result<bool, ServeError> {
        let Some(data) = self.data.as_ref().filter(|data| !data.is_intact()) else { return Ok(true) };
        // No other agent can have been started meanwhile if the claims were kept.
        let is_ours = self.claims.iter().all(Claim::is_exclusive);
        os::create_again(data.path().parent(), self.parent_mode);
        let repaired = is_ours && data.repair().and_then(|()| self.shared.marks().write()).is_ok();
        self.failed_repairs = if repaired { 0 } else { self.failed_repairs + 1 };
        if !is_ours || self.failed_repairs >= REPAIRS_MAX {
            return Err(ServeError::DataGone(data.path().to_owned()));
        }
        // Otherwise somebody may still be removing it.
        if repaired {
            tracing::warn!(data = %data.path().display(), "data directory made again: somebody removed it");
        }
        Ok(repaired)
    }

    fn check_socket(&mut self) {
        if self.socket.is_reachable() {
            return;
        }
        let path = self.socket.path().to_owned();
        let _ = os::create_socket_directory(&path, self.socket_group);
        let opened = check_free(&path).map(|()| SocketFile::open(&path, self.socket_group));
        let error = match opened {
            Ok(Ok(socket)) => {
                self.socket = socket;
                tracing::warn!(socket = %path.display(), "socket made again: somebody removed it");
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        if let Some(left_out) = self.log.pass(&error) {
            tracing::warn!(socket = %path.display(), error, left_out, "cannot make the socket again that somebody removed");
        }
    }

    /// Makes the API's socket again. Connections stay: only the file was gone.
    fn check_api(&mut self) {
        let reachable = self.server.as_ref().is_none_or(Server::is_reachable);
        let Some(path) = self.api.socket.as_deref().filter(|_| !reachable) else { return };
        let _ = os::create_socket_directory(path, self.socket_group);
        if check_free(path).is_ok()
            && let Some(Ok(())) = self.server.as_mut().map(|server| server.open_again(path, self.socket_group))
        {
            tracing::warn!(socket = %path.display(), "API socket made again: somebody removed it");
        }
    }
}
