//! The files of an agent: where clients reach it, and what it leaves for the next one. Only this module knows their names.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hallpass::{DataDirectory, StartError};

use crate::os;

// In the directory of an agent.
const SOCKET: &str = "agent.sock";
const DATA: &str = "data";
const MEMBER: &str = "member";
const LOG: &str = "agent.log";
/// The data of agents with another socket than the one here.
const AGENTS: &str = "agents";

// In its data directory.
const RUNNING: &str = "running";
const LOCK: &str = "lock";
const PRIVATE: &str = "private";

/// The paths of one agent.
///
/// - **Make**: [`in_directory`](Self::in_directory), [`new`](Self::new), then [`with_socket`](Self::with_socket) and
///   [`or_else`](Self::or_else).
/// - **Ask**: [`is_in_use`](Self::is_in_use), [`is_socket_claimed`](Self::is_socket_claimed), [`is_private`](Self::is_private),
///   [`member_group`](Self::member_group).
/// - **Change**, while no agent runs: [`wait_for_old_sessions`](Self::wait_for_old_sessions),
///   [`give_up_membership`](Self::give_up_membership).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentPaths {
    /// The socket that clients connect to.
    pub socket: PathBuf,
    /// The directory for what must outlive the agent.
    pub data: PathBuf,
    /// The membership mark. It exists while these paths belong to a member of a group, even while its agent does not run. Then no other
    /// agent may use them. Only default paths have one; other agents must be named.
    pub member_file: Option<PathBuf>,
}

/// Why a membership could not be given up. Displayed as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// An agent uses the data. Nothing has changed.
    #[error("an agent is starting or ending in {0}; try again in a moment")]
    InUse(PathBuf),
    /// The data directory does not forget its group. The membership mark is still there.
    #[error("{0}")]
    Data(#[from] StartError),
    /// A mark cannot be removed. The data directory has forgotten its group.
    #[error("cannot remove {path}: {source}; run as the user of the agent")]
    Mark {
        /// The mark.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl AgentPaths {
    /// Paths that were named. They have no membership mark.
    pub fn new(socket: impl Into<PathBuf>, data: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), data: data.into(), member_file: None }
    }

    /// The default paths in a directory.
    pub fn in_directory(directory: &Path) -> Self {
        Self { socket: directory.join(SOCKET), data: directory.join(DATA), member_file: Some(directory.join(MEMBER)) }
    }

    /// The same with another socket.
    #[must_use]
    pub fn with_socket(self, socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), ..self }
    }

    /// These paths where none are named. An agent with another socket has data of its own, and no membership mark.
    #[must_use]
    pub fn or_else(self, socket: Option<PathBuf>, data: Option<PathBuf>) -> Self {
        let socket = socket.unwrap_or_else(|| self.socket.clone());
        let is_default = socket == self.socket;
        let default_data = || match is_default {
            true => self.data.clone(),
            false => self.directory().join(AGENTS).join(file_name_for(&socket)),
        };
        let data = data.unwrap_or_else(default_data);
        Self { data, member_file: self.member_file.filter(|_| is_default), socket }
    }

    /// The directory of the data, which has the other files too by default.
    pub fn directory(&self) -> &Path {
        self.data.parent().unwrap_or(&self.data)
    }

    /// The log of an agent that a client started.
    pub fn log_file(&self) -> PathBuf {
        self.directory().join(LOG)
    }

    /// Exists while an agent runs, and after one whose clients may still hold locks.
    pub(crate) fn running_mark(&self) -> PathBuf {
        self.data.join(RUNNING)
    }

    /// Exists from when the agent's group has had more than one member. It is beside the data directory and outlives it, so that an agent
    /// that has lost its data does not found a second group alone.
    pub fn shared_mark(&self) -> PathBuf {
        let name = self.data.file_name().unwrap_or_default().to_string_lossy();
        self.data.with_file_name(format!("{name}.shared"))
    }

    /// True if an agent has the data, or is about to have it, even if somebody has removed its files.
    pub fn is_in_use(&self) -> bool {
        let lock = File::open(self.data.join(LOCK));
        let is_locked = lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)));
        is_locked || os::is_claimed(&self.data, None)
    }

    /// True if an agent of this user, of root or of the trusted user has the socket, even if somebody has removed its file.
    pub fn is_socket_claimed(&self, trusted: Option<u32>) -> bool {
        os::is_claimed(&self.socket, trusted)
    }

    /// True if a private agent was the last to use the data. Its group never has another member.
    pub fn is_private(&self) -> bool {
        self.data.join(PRIVATE).exists()
    }

    pub(crate) fn mark_private(&self, private: bool) -> std::io::Result<()> {
        let file = self.data.join(PRIVATE);
        if private { std::fs::write(file, "") } else { remove_if_there(&file) }
    }

    /// The group whose member these paths belong to, if any. An error if the mark may be there and cannot be read.
    pub fn member_group(&self) -> Option<std::io::Result<String>> {
        let file = self.existing_member_file()?;
        Some(std::fs::read_to_string(file).map(|group| group.trim().to_owned()))
    }

    /// Ends that these paths belong to a member of a group, while its agent does not run. False if they belong to none.
    pub fn give_up_membership(&self) -> Result<bool, MembershipError> {
        let Some(member_file) = self.existing_member_file() else { return Ok(false) };
        if self.is_in_use() {
            return Err(MembershipError::InUse(self.data.clone()));
        }
        // A private agent that finds itself in a group would wait for its members.
        DataDirectory::forget(&self.data)?;
        // The membership mark goes last: until then the paths are known to belong to a group.
        for path in [self.shared_mark(), member_file.to_owned()] {
            remove_if_there(&path).map_err(|source| MembershipError::Mark { path, source })?;
        }
        Ok(true)
    }

    fn existing_member_file(&self) -> Option<&Path> {
        self.member_file.as_deref().filter(|file| os::may_exist(file))
    }

    /// How long the clients of an agent that did not end in order may hold locks, by its mark. None if it ended in order.
    pub(crate) fn left_session(&self) -> Option<Duration> {
        let ttl_ms = std::fs::read_to_string(self.running_mark()).ok()?;
        Some(Duration::from_millis(ttl_ms.trim().parse().unwrap_or(0)))
    }

    /// Waits until the commands of an agent that was killed must have ended. False if another process looks after that.
    pub fn wait_for_old_sessions(&self) -> bool {
        let Some(session) = self.left_session() else { return true };
        // No agent can be started here while the lock is held.
        let Ok(lock) = File::open(self.data.join(LOCK)) else { return true };
        if lock.try_lock().is_err() {
            return false;
        }
        std::thread::sleep(session);
        std::fs::remove_file(self.running_mark()).is_ok()
    }
}

fn remove_if_there(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A name for what belongs to the socket at this path, different for every path.
fn file_name_for(socket: &Path) -> String {
    let absolute = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    absolute.to_string_lossy().trim_start_matches('/').replace('%', "%25").replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_has_data_of_its_own() {
        let names = ["/a/b", "/a%b", "/a%2Fb"].map(|path| file_name_for(Path::new(path)));
        assert_eq!(names, ["a%2Fb", "a%25b", "a%252Fb"]);
        assert!(file_name_for(Path::new("relative.sock")).ends_with("%2Frelative.sock"));
    }

    #[test]
    fn only_the_default_socket_has_the_default_data_and_the_membership_mark() {
        let default = AgentPaths::in_directory(Path::new("/d"));
        assert_eq!(default.clone().or_else(None, None), default);
        let other = default.clone().or_else(Some("/s".into()), None);
        assert_eq!(other, AgentPaths::new("/s", "/d/agents/s"));
        let data = default.or_else(Some("/d/agent.sock".into()), Some("/x".into()));
        assert_eq!((data.data.as_path(), data.member_file), (Path::new("/x"), Some("/d/member".into())));
    }
}
