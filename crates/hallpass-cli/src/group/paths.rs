//! Where things are if nobody says where.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use hallpass_agent::{Client, ClientError};

use super::config::Config;
use crate::exit::Fault;
use crate::os;

/// The socket of an agent that this user starts: root's is the machine's.
pub(super) fn own_socket() -> PathBuf {
    if os::is_root() && os::environment_path("XDG_RUNTIME_DIR").is_none() {
        return PathBuf::from(os::SYSTEM_SOCKET);
    }
    os::runtime_directory().join("agent.sock")
}

/// The agent that was named, by its socket or by a configuration, or one that listens where agents do: this user's, the
/// machine's. Nothing if there is neither agent nor configuration.
pub(super) fn connect(named: Option<&Path>) -> Result<Option<Client>, Fault> {
    let unavailable = |error: ClientError| Fault::Unavailable(error.to_string());
    if let Some(socket) = named {
        return Client::connect(socket).map(Some).map_err(unavailable);
    }
    if let Some(path) = os::environment_path("HALLPASS_CONFIG").or_else(system_config) {
        let config = Config::read(&path).map_err(|fault| match fault {
            Fault::Failed(why) => Fault::Unavailable(why),
            other => other,
        })?;
        let socket = config.socket.unwrap_or_else(own_socket);
        return Client::connect(&socket).map(Some).map_err(unavailable);
    }
    let own = Some(os::runtime_directory())
        .filter(|directory| os::is_private_to_user(directory))
        .map(|own| own.join("agent.sock"));
    for socket in own.into_iter().chain([PathBuf::from(os::SYSTEM_SOCKET)]) {
        match Client::connect(&socket) {
            // A socket where nobody listens is that of an agent which is coming back: another one would know nothing of its locks.
            Err(ClientError::Absent { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            other => return other.map(Some).map_err(unavailable),
        }
    }
    Ok(None)
}

/// True if a node has this directory.
pub(super) fn is_in_use(data: &Path) -> bool {
    let lock = File::open(data.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Where this user's own agent will listen, unless somebody else has made the directory.
pub(super) fn check_own(socket: &Path) -> Result<(), Fault> {
    let directory = os::runtime_directory();
    if socket.parent() == Some(&directory) && directory.exists() && !os::is_private_to_user(&directory) {
        let directory = directory.display();
        return Err(Fault::Failed(format!("others can write to {directory}; remove it, or name another --socket")));
    }
    Ok(())
}

/// Where the private agent of this user keeps its data, its socket and its log.
pub(super) fn private_directory() -> PathBuf {
    os::state_directory()
}

/// Makes it, unless somebody else could have put something there.
pub(super) fn make_private_directory() -> Result<PathBuf, Fault> {
    let directory = private_directory();
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

pub(super) fn private_socket(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}

/// The configuration of this machine's agent, if there is one.
pub(super) fn system_config() -> Option<PathBuf> {
    Some(PathBuf::from(os::SYSTEM_CONFIG)).filter(|path| path.exists())
}
