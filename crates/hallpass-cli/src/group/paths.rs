//! Where things are if nobody says where.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use hallpass_agent::{Client, ClientError};
use rustix::fs::{FlockOperation, flock};

use super::config::Config;
use crate::exit::Fault;

/// The configuration of a machine's agent.
const SYSTEM_CONFIG: &str = "/etc/hallpass/hallpass.toml";
/// Where a machine's agent listens.
const SYSTEM_SOCKET: &str = "/run/hallpass/agent.sock";

fn from_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The socket of an agent that this user starts: root's is the machine's.
pub(super) fn own_socket() -> PathBuf {
    if rustix::process::getuid().is_root() && from_environment("XDG_RUNTIME_DIR").is_none() {
        return PathBuf::from(SYSTEM_SOCKET);
    }
    runtime_directory().join("agent.sock")
}

/// The agent that was named, by its socket or by a configuration, or one that listens where agents do: this user's, the
/// machine's. Nothing if there is neither agent nor configuration.
pub(super) fn connect(named: Option<&Path>) -> Result<Option<Client>, Fault> {
    let unavailable = |error: ClientError| Fault::Unavailable(error.to_string());
    if let Some(socket) = named {
        return Client::connect(socket).map(Some).map_err(unavailable);
    }
    if let Some(path) = from_environment("HALLPASS_CONFIG").or_else(system_config) {
        let config = Config::read(&path).map_err(|fault| match fault {
            Fault::Failed(why) => Fault::Unavailable(why),
            other => other,
        })?;
        let socket = config.socket.unwrap_or_else(own_socket);
        return Client::connect(&socket).map(Some).map_err(unavailable);
    }
    let own = Some(runtime_directory()).filter(|directory| is_private(directory)).map(|own| own.join("agent.sock"));
    for socket in own.into_iter().chain([PathBuf::from(SYSTEM_SOCKET)]) {
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
    let lock = std::fs::File::open(data.join("lock"));
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
}

/// True if nobody else could have put something there.
fn is_private(directory: &Path) -> bool {
    is_own(directory) && std::fs::symlink_metadata(directory).is_ok_and(|found| found.mode() & 0o077 == 0)
}

/// Where this user's own agent will listen, unless somebody else has made the directory.
pub(super) fn check_own(socket: &Path) -> Result<(), Fault> {
    let directory = runtime_directory();
    if socket.parent() == Some(&directory) && directory.exists() && !is_private(&directory) {
        let directory = directory.display();
        return Err(Fault::Failed(format!("others can write to {directory}; remove it, or name another --socket")));
    }
    Ok(())
}

fn runtime_directory() -> PathBuf {
    match from_environment("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("hallpass"),
        None => std::env::temp_dir().join(format!("hallpass-{}", rustix::process::getuid().as_raw())),
    }
}

/// Where the private agent of this user lives: its data, its socket and its log.
pub(super) fn private_directory() -> PathBuf {
    let state = from_environment("XDG_STATE_HOME")
        .or_else(|| from_environment("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(runtime_directory);
    state.join("hallpass")
}

/// Makes it, unless somebody else could have put something there.
pub(super) fn make_private_directory() -> Result<PathBuf, Fault> {
    let directory = private_directory();
    let fail = |why: &dyn std::fmt::Display| {
        Fault::Unavailable(format!("cannot keep a private agent in {}: {why}", directory.display()))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| fail(&error))?;
    let parent = directory.parent().filter(|parent| *parent == runtime_directory());
    if parent.into_iter().chain([&*directory]).any(|directory| !is_own(directory)) {
        return Err(fail(&"others can write there; set XDG_STATE_HOME, or give it to this user alone"));
    }
    Ok(directory)
}

/// True if it belongs to this user and nobody else can write there.
fn is_own(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory).is_ok_and(|found| {
        found.is_dir() && found.uid() == rustix::process::getuid().as_raw() && found.mode() & 0o022 == 0
    })
}

pub(super) fn private_socket(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}

/// The configuration of this machine's agent, if there is one.
pub(super) fn system_config() -> Option<PathBuf> {
    Some(PathBuf::from(SYSTEM_CONFIG)).filter(|path| path.exists())
}
