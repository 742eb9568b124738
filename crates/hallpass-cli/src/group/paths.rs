//! Where things are if nobody says where.

use std::path::{Path, PathBuf};

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

/// Sockets where an agent may be listening, this user's first.
pub(super) fn usual_sockets() -> [PathBuf; 2] {
    [runtime_directory().join("agent.sock"), PathBuf::from(SYSTEM_SOCKET)]
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
