//! Directories, who owns them, and where they are by default.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::getuid;

/// The configuration of the machine's agent.
pub(crate) const SYSTEM_CONFIG: &str = "/etc/hallpass/hallpass.toml";
/// The socket of the machine's agent.
pub(crate) const SYSTEM_SOCKET: &str = "/run/hallpass/agent.sock";

const NODE_NAME_CHARS_MAX: usize = 64;

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    getuid().is_root()
}

/// A path in an environment variable; one that is set to nothing counts as not set.
pub(crate) fn environment_path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where this user's sockets belong: `XDG_RUNTIME_DIR` if it is set, else a directory of the user's own among the temporary ones.
pub(crate) fn runtime_directory() -> PathBuf {
    match environment_path("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("hallpass"),
        None => std::env::temp_dir().join(format!("hallpass-{}", getuid().as_raw())),
    }
}

/// Where this user's data belongs: `XDG_STATE_HOME` or its default, else the runtime directory.
pub(crate) fn state_directory() -> PathBuf {
    let state = environment_path("XDG_STATE_HOME")
        .or_else(|| environment_path("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(runtime_directory);
    state.join("hallpass")
}

/// Creates a directory that only this user may enter, and missing parents alike.
pub(crate) fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a file that only this user can read. It must not exist yet.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)
}

/// True for a directory of this user's that nobody else can write to.
pub(crate) fn is_writable_by_user_only(directory: &Path) -> bool {
    is_own_directory(directory, 0o022)
}

/// True for a directory of this user's that nobody else can write to, read or enter.
pub(crate) fn is_private_to_user(directory: &Path) -> bool {
    is_own_directory(directory, 0o077)
}

/// Links are not followed: another user may have created the link.
fn is_own_directory(directory: &Path, forbidden_mode: u32) -> bool {
    let is_own =
        |found: Metadata| found.is_dir() && found.uid() == getuid().as_raw() && found.mode() & forbidden_mode == 0;
    std::fs::symlink_metadata(directory).is_ok_and(is_own)
}

/// The host's name, cut to what a node may be called.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "node".to_owned() } else { name.chars().take(NODE_NAME_CHARS_MAX).collect() }
}
