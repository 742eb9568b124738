//! Default locations, and which agent a command uses.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use hallpass_agent::{Client, ClientError};

use super::config;
use crate::exit::Fault;
use crate::os;

/// The socket of an agent that this user starts. Root's is the machine's.
pub(super) fn own_socket() -> PathBuf {
    if os::is_root() && os::environment_path("XDG_RUNTIME_DIR").is_none() {
        return PathBuf::from(os::SYSTEM_SOCKET);
    }
    socket_in(&os::runtime_directory())
}

/// Connects to the agent that was named, by its socket or by a configuration, else to one that listens at a default socket: this
/// user's, then the machine's. None if there is neither an agent nor a configuration.
pub(super) fn connect(named: Option<&Path>) -> Result<Option<Client>, Fault> {
    let unavailable = |error: ClientError| Fault::Unavailable(error.to_string());
    if let Some(socket) = named {
        return Client::connect(socket).map(Some).map_err(unavailable);
    }
    if let Some(path) = os::environment_path("HALLPASS_CONFIG").or_else(system_config) {
        let config = config::read(&path).map_err(|fault| match fault {
            Fault::Failed(why) => Fault::Unavailable(why),
            other => other,
        })?;
        let socket = config.socket.unwrap_or_else(own_socket);
        return Client::connect(&socket).map(Some).map_err(unavailable);
    }
    let runtime_directory = Some(os::runtime_directory()).filter(|directory| os::is_private_to_user(directory));
    let own_socket = runtime_directory.map(|directory| socket_in(&directory));
    for socket in own_socket.into_iter().chain([PathBuf::from(os::SYSTEM_SOCKET)]) {
        match Client::connect(&socket) {
            // Only if there is no socket. One that nobody listens at belongs to an agent that will be restarted, and another agent
            // would not know which locks its clients hold.
            Err(ClientError::Absent { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            other => return other.map(Some).map_err(unavailable),
        }
    }
    Ok(None)
}

/// The configuration of the machine's agent, if there is one.
pub(super) fn system_config() -> Option<PathBuf> {
    Some(PathBuf::from(os::SYSTEM_CONFIG)).filter(|path| path.exists())
}

/// Refuses this user's default socket if somebody else could have created its directory.
pub(super) fn check_own(socket: &Path) -> Result<(), Fault> {
    let directory = os::runtime_directory();
    if socket.parent() == Some(&directory) && directory.exists() && !os::is_private_to_user(&directory) {
        let directory = directory.display();
        return Err(Fault::Failed(format!("others can write to {directory}; remove it, or name another --socket")));
    }
    Ok(())
}

/// True if a running node has locked this data directory.
pub(super) fn is_in_use(data: &Path) -> bool {
    let lock = File::open(data.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Where this user's private agent keeps its data, its socket and its log.
pub(super) fn private_agent_directory() -> PathBuf {
    os::state_directory()
}

pub(super) fn private_agent_socket(directory: &Path) -> PathBuf {
    socket_in(directory)
}

/// Creates the private agent's directory. An error if others can write there: they could have left something in it.
pub(super) fn create_private_agent_directory() -> Result<PathBuf, Fault> {
    let directory = private_agent_directory();
    let fail = |why: &dyn std::fmt::Display| {
        Fault::Unavailable(format!("cannot keep a private agent in {}: {why}", directory.display()))
    };
    os::create_private_directory(&directory).map_err(|error| fail(&error))?;
    let parent = directory.parent().filter(|parent| *parent == os::runtime_directory());
    if parent.into_iter().chain([&*directory]).any(|directory| !os::is_writable_by_user_only(directory)) {
        return Err(fail(&"others can write there; set XDG_STATE_HOME, or give it to this user alone"));
    }
    Ok(directory)
}

fn socket_in(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}
