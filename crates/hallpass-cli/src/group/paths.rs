//! Where things are if nobody says where.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::config::Config;
use crate::exit::Fault;

/// The configuration of a machine's agent.
pub(super) const SYSTEM_CONFIG: &str = "/etc/hallpass/hallpass.toml";
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

/// Sockets where an agent may be listening: the one of the configuration, this user's, the machine's.
pub(super) fn usual_sockets() -> Vec<PathBuf> {
    let configured = configured().and_then(|path| Config::read(&path).ok()).and_then(|config| config.socket);
    let own = Some(runtime_directory()).filter(|directory| is_private(directory)).map(|own| own.join("agent.sock"));
    configured.into_iter().chain(own).chain([PathBuf::from(SYSTEM_SOCKET)]).collect()
}

/// True if nobody else could have put something there.
fn is_private(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory).is_ok_and(|found| {
        found.is_dir() && found.uid() == rustix::process::getuid().as_raw() && found.mode() & 0o077 == 0
    })
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

pub(super) fn private_socket(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}

/// The configuration that an agent of this machine would use, if there is one.
pub(super) fn configured() -> Option<PathBuf> {
    let path = from_environment("HALLPASS_CONFIG").unwrap_or_else(|| PathBuf::from(SYSTEM_CONFIG));
    path.exists().then_some(path)
}
