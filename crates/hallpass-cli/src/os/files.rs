//! Directories: their owners and their default paths.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// The configuration of the machine's agent.
pub(crate) const SYSTEM_CONFIG: &str = "/etc/hallpass/hallpass.toml";
/// The socket of the machine's agent.
pub(crate) const SYSTEM_SOCKET: &str = "/run/hallpass/agent.sock";
/// The data directory of the machine's agent.
pub(crate) const SYSTEM_STATE: &str = "/var/lib/hallpass";

const NODE_NAME_CHARS_MAX: usize = 64;

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// A path from an environment variable. An empty variable counts as not set.
pub(crate) fn environment_path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where this user's agent keeps its socket and its data; an error says why there is no such directory.
///
/// It depends only on the user ID and the password database. If it depended on the environment, a login shell and a cron job
/// would find different agents, and both would enter. Root uses the machine's directory: its locks are the same, whichever agent
/// serves them.
pub(crate) fn user_directory() -> Result<PathBuf, String> {
    let uid = geteuid();
    if uid.is_root() {
        return Ok(SYSTEM_STATE.into());
    }
    if let Some(home) = home()?
        && is_own_home(&home)?
    {
        return Ok(home.join(IN_HOME));
    }
    if has_private_temporary_directory() {
        return Err(format!(
            "user {} has no home directory, and this process has a {TEMPORARY} that others of this user do not see \
             (PrivateTmp=); name an agent by HALLPASS_SOCKET, or give the user a home directory",
            uid.as_raw()
        ));
    }
    Ok(without_home())
}

/// Where this user's agent kept its data before: in earlier releases, or while the user had no home directory. A directory that
/// cannot be read is left out.
pub(crate) fn former_directories() -> Vec<PathBuf> {
    match home() {
        Ok(home) if is_root() => home.map(|home| home.join(IN_HOME)).into_iter().chain([without_home()]).collect(),
        Ok(Some(home)) if is_own_home(&home).unwrap_or(false) => vec![without_home()],
        _ => Vec::new(),
    }
}

/// This user's home directory, by the password database.
fn home() -> Result<Option<PathBuf>, String> {
    let uid = geteuid().as_raw();
    let entry = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid))
        .map_err(|error| format!("cannot look up user {uid}: {error}"))?;
    Ok(entry.map(|entry| entry.dir))
}

/// The directory of a user without a home directory. A reboot does not empty it.
fn without_home() -> PathBuf {
    Path::new(TEMPORARY).join(format!("hallpass-{}", geteuid().as_raw()))
}

/// The agent's directory, within the home directory.
const IN_HOME: &str = ".local/state/hallpass";

/// Where users without a home directory have their agent's directory.
const TEMPORARY: &str = "/var/tmp";

/// Returns false if the user has no home directory, and an error if this process cannot see it: another process of the user may.
fn is_own_home(home: &Path) -> Result<bool, String> {
    let hidden = |why: &dyn std::fmt::Display| {
        format!(
            "the home directory {} cannot be used from here: {why}; name an agent by HALLPASS_SOCKET",
            home.display()
        )
    };
    match std::fs::metadata(home) {
        Ok(found) => Ok(found.is_dir() && found.uid() == geteuid().as_raw()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // On another file system than '/', other processes may see it: it is not mounted yet, or hidden from this process only.
            let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev());
            let nearest = home.ancestors().find_map(|ancestor| device(ancestor).ok());
            match (nearest, device(Path::new("/"))) {
                (Some(nearest), Ok(root)) if nearest == root => Ok(false),
                _ => Err(hidden(&error)),
            }
        }
        Err(error) => Err(hidden(&error)),
    }
}

/// True if a service manager has given this process a private directory for temporary files.
fn has_private_temporary_directory() -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, place) = (fields.next(), fields.next());
        place == Some(TEMPORARY) && root.is_some_and(|root| root.contains("/systemd-private-"))
    })
}

/// Creates a directory that all users may read, and missing parents alike.
pub(crate) fn create_public_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Creates a directory that only this user may enter, and missing parents alike.
pub(crate) fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a file that only this user can read. It must not exist yet.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)
}

/// Gives a new file the owner, the group and the mode of another one, if that exists. An error if this user may not.
pub(crate) fn copy_ownership(from: &Path, to: &File) -> io::Result<()> {
    let found = match std::fs::metadata(from) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let new = to.metadata()?;
    if (new.uid(), new.gid()) != (found.uid(), found.gid()) {
        std::os::unix::fs::fchown(to, Some(found.uid()), Some(found.gid()))?;
    }
    to.set_permissions(found.permissions())
}

/// True if users other than its owner can do anything with a file.
pub(crate) fn is_shared(found: &Metadata) -> bool {
    found.mode() & 0o077 != 0
}

/// True for a directory that belongs to this user and that nobody else can write to. Links are not followed: another user may have
/// created the link.
pub(crate) fn is_writable_by_user_only(directory: &Path) -> bool {
    let is_own = |found: Metadata| found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
    std::fs::symlink_metadata(directory).is_ok_and(is_own)
}

/// The owner of a file or directory, if it exists.
pub(crate) fn owner(path: &Path) -> Option<u32> {
    std::fs::symlink_metadata(path).ok().map(|found| found.uid())
}

/// The host's name, cut to the maximum length of a node's name.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "node".to_owned() } else { name.chars().take(NODE_NAME_CHARS_MAX).collect() }
}
