//! Everything that depends on the operating system: a port to another system changes this file and no other.
//!
//! Clients and agent meet at a Unix socket. The agent frees what a client holds when the last descriptor of its connection is
//! closed. So a client's child processes can keep a lock by inheriting one. A port needs a local connection with that property.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A descriptor, which keeps a connection open.
pub(crate) use std::os::fd::OwnedFd as Descriptor;
/// A client's end of a connection.
pub(crate) use std::os::unix::net::UnixStream as ClientStream;
/// The agent's side.
pub(crate) use tokio::net::unix::{OwnedReadHalf as ReadHalf, OwnedWriteHalf as WriteHalf};
pub(crate) use tokio::net::{UnixListener as Listener, UnixStream as Connection};

/// The longest command that is shown.
const COMMAND_CHARS: usize = 200;

/// Nanoseconds of the clock by which deadlines are counted, in an agent and in its clients: one that counts while the machine is suspended, and
/// whose rate nobody changes.
pub fn now() -> u64 {
    hallpass::clock::now()
}

/// A moment of [`now`], as it is told to other processes: by CLOCK_BOOTTIME, which clients of all versions know. It may be too early, not
/// too late.
pub(crate) fn to_boot_time(at: u64) -> u64 {
    let boot_time = hallpass::clock::boot_time();
    boot_time.saturating_add_signed(difference(at, now()))
}

/// The moment by [`now`] that another process has told by CLOCK_BOOTTIME.
pub(crate) fn of_boot_time(at: u64) -> u64 {
    let now = now();
    now.saturating_add_signed(difference(at, hallpass::clock::boot_time()))
}

fn difference(a: u64, b: u64) -> i64 {
    (a as i64).saturating_sub(b as i64)
}

/// The file at the path of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A socket that an agent listens at.
    LiveSocket,
    /// A socket that nobody listens at: its agent was killed.
    StaleSocket,
    /// Something else, which is not ours to remove.
    OtherFile,
}

/// Looks what is at the path of a socket.
pub(crate) fn find_socket(path: &Path) -> Found {
    match std::fs::symlink_metadata(path) {
        Err(_) => Found::Nothing,
        Ok(found) if !found.file_type().is_socket() => Found::OtherFile,
        Ok(_) if ClientStream::connect(path).is_ok() => Found::LiveSocket,
        Ok(_) => Found::StaleSocket,
    }
}

/// A socket that clients connect to, and the file it is reached by.
#[derive(Debug)]
pub(crate) struct SocketFile {
    pub(crate) listener: Listener,
    path: PathBuf,
    file: (u64, u64),
}

impl SocketFile {
    /// Listens at this path. A file that is there is replaced, at no moment is there none. Members of the group may connect, if
    /// one is given, otherwise this user alone. Must be called within a runtime.
    pub(crate) fn open(path: &Path, group: Option<u32>) -> io::Result<Self> {
        let draft = path.with_file_name(format!(".{}.sock", std::process::id()));
        // Of a process that had this number before.
        if std::fs::symlink_metadata(&draft).is_ok_and(|found| found.file_type().is_socket()) {
            std::fs::remove_file(&draft)?;
        }
        let listener = Listener::bind(&draft)?;
        if group.is_some() {
            std::os::unix::fs::chown(&draft, None, group)?;
        }
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(mode))?;
        let file = identity(&draft)?;
        std::fs::rename(&draft, path)?;
        Ok(Self { listener, path: path.to_owned(), file })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// False if the file was removed or replaced: then nobody can connect any more.
    pub(crate) fn is_reachable(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.file)
    }

    /// Removes the file, unless it is another one by now.
    pub(crate) fn remove(&self) {
        if self.is_reachable() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and number of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Tells a version of a file from another, also if only its rights have changed.
pub(crate) type FileStamp = (u64, u64, i64, i64);

pub(crate) fn file_stamp(found: &std::fs::Metadata) -> FileStamp {
    (found.ino(), found.len(), found.ctime(), found.ctime_nsec())
}

/// False only if there is certainly nothing at this path: one that may not be looked at counts as being there.
pub fn may_exist(path: &Path) -> bool {
    !matches!(std::fs::symlink_metadata(path), Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// True if users other than its owner may write to a file.
pub(crate) fn others_may_write(found: &std::fs::Metadata) -> bool {
    found.mode() & 0o022 != 0
}

/// True if other users can use a key. A group may read what root has given it, as packages do.
pub(crate) fn is_public(found: &std::fs::Metadata) -> bool {
    found.mode() & 0o007 != 0 || found.mode() & 0o070 != 0 && found.uid() != 0
}

/// True if a file belongs to this user or to root. Its owner can change it at any time.
pub(crate) fn is_owner_trusted(found: &std::fs::Metadata) -> bool {
    is_trusted(Some(found.uid()))
}

/// Creates the directory of a socket if it is missing, for this user alone, or for a group's members to enter. True if it was
/// missing.
pub(crate) fn create_socket_directory(socket: &Path, group: Option<u32>) -> io::Result<bool> {
    let Some(directory) = socket.parent().filter(|directory| !directory.as_os_str().is_empty()) else {
        return Ok(false);
    };
    if directory.is_dir() {
        return Ok(false);
    }
    create_private_directory(directory)?;
    if group.is_some() {
        std::os::unix::fs::chown(directory, None, group)?;
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o750))?;
    }
    Ok(true)
}

/// Creates a directory that only this user may enter, and missing parents alike.
pub(crate) fn create_private_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The rights on a directory.
pub(crate) fn mode(directory: Option<&Path>) -> Option<u32> {
    std::fs::metadata(directory?).ok().map(|found| found.mode() & 0o7777)
}

/// Makes a directory that was removed, with the rights that it had. If that fails, so does what is to be made in it.
pub(crate) fn create_again(directory: Option<&Path>, mode: Option<u32>) {
    if let (Some(directory), Some(mode)) = (directory.filter(|directory| !directory.exists()), mode) {
        let _ = std::fs::DirBuilder::new().recursive(true).mode(mode & !0o022).create(directory);
    }
}

/// The number of a group, given by its name or number.
pub(crate) fn group_number(group: &str) -> Option<u32> {
    let named = nix::unistd::Group::from_name(group).ok().flatten().map(|group| group.gid.as_raw());
    named.or_else(|| group.parse().ok())
}

/// The process and the user at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credentials {
    pub(crate) pid: Option<u32>,
    pub(crate) uid: Option<u32>,
}

pub(crate) fn credentials(connection: &Connection) -> Credentials {
    let found = connection.peer_cred().ok();
    let pid = found.as_ref().and_then(|found| found.pid()).and_then(|pid| u32::try_from(pid).ok());
    Credentials { pid, uid: found.map(|found| found.uid()) }
}

/// How many descriptors this process may have.
pub(crate) fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// A user's name, or the number where there is none.
pub(crate) fn user_name(uid: u32) -> String {
    let known = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

/// The command line of a process; for `hallpass run` the command that it runs.
pub(crate) fn command_of(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let is_run = words.get(1).is_some_and(|word| word == "run");
    let start = words.iter().position(|word| word == "--").filter(|_| is_run).map_or(0, |separator| separator + 1);
    let text = words[start..].join(" ");
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(COMMAND_CHARS).collect::<String>();
    (!shown.is_empty()).then_some(shown)
}

/// The right to be the one agent with a socket or a data directory, for as long as it is kept. Files and the locks on them can be
/// removed; this one is not kept in the file system.
#[derive(Debug)]
pub(crate) struct Claim {
    #[cfg(target_os = "linux")]
    listener: Option<std::os::unix::net::UnixListener>,
}

impl Claim {
    /// Claims a path; none if another agent of this user has.
    #[cfg(target_os = "linux")]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = claim_name(path);
        let Ok(address) = SocketAddr::from_abstract_name(&name) else { return Some(Self { listener: None }) };
        match UnixListener::bind_addr(&address) {
            // Without that `drain` would wait.
            Ok(listener) => Some(Self { listener: Some(listener).filter(|it| it.set_nonblocking(true).is_ok()) }),
            // Any user can take the name. Only one who could have the files counts.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_trusted(owner_of(&name)) => None,
            Err(_) => Some(Self { listener: None }),
        }
    }

    /// Accepts the connections of processes that asked whose the claim is. They would fill the queue.
    pub(crate) fn drain(&self) {
        #[cfg(target_os = "linux")]
        while self.listener.as_ref().is_some_and(|listener| listener.accept().is_ok()) {}
    }

    /// Only the lock inside the data directory counts.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of(_path: &Path) -> Option<Self> {
        Some(Self {})
    }

    /// True if no other agent can have the path, whatever becomes of the files.
    pub(crate) fn is_exclusive(&self) -> bool {
        #[cfg(target_os = "linux")]
        {
            self.listener.is_some()
        }
        #[cfg(not(target_os = "linux"))]
        {
            false
        }
    }
}

/// True if an agent of this user, of root or of the trusted user has claimed the path of its socket or data. The files there may be gone. False where there are no claims: on other systems than Linux, and in another network namespace.
pub(crate) fn is_claimed(path: &Path, trusted: Option<u32>) -> bool {
    #[cfg(target_os = "linux")]
    {
        let owner = owner_of(&claim_name(path));
        is_trusted(owner) || owner.is_some() && owner == trusted
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (path, trusted);
        false
    }
}

/// The abstract name that stands for a path. It is the same when the directories above have been removed: what is left of them is on
/// the same file system.
#[cfg(target_os = "linux")]
fn claim_name(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    const PATH_BYTES: usize = 60;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = |directory: &Path| Some((directory.canonicalize().ok()?, directory.to_owned()));
    let (directory, written) = path.ancestors().skip(1).find_map(existing).unwrap_or_default();
    // Containers can share names of sockets, but not their file systems.
    let device = std::fs::metadata(&directory).map_or(0, |found| found.dev());
    let path = directory.join(path.strip_prefix(&written).unwrap_or(&path));
    let path = path.as_os_str().as_bytes();
    // Names of sockets are short; two paths with the same long end do not occur on one machine.
    let tail = &path[path.len().saturating_sub(PATH_BYTES)..];
    [format!("hallpass {device:x} ").as_bytes(), tail].concat()
}

/// The user who listens at an abstract name. It never blocks, since a listener that accepts nothing could make it last.
#[cfg(target_os = "linux")]
fn owner_of(name: &[u8]) -> Option<u32> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name).ok()?).ok()?;
    rustix::net::sockopt::socket_peercred(&socket).ok().map(|found| found.uid.as_raw())
}

/// True for this user and for root.
pub(crate) fn is_trusted(uid: Option<u32>) -> bool {
    uid.is_some_and(|uid| uid == 0 || uid == rustix::process::geteuid().as_raw())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_known_when_the_directories_above_it_are_gone() {
        let base = std::env::temp_dir().join(format!("hallpass-claim-{}", std::process::id()));
        let path = base.join("run/hallpass/agent.sock");
        create_private_directory(path.parent().unwrap()).unwrap();
        assert!(!is_claimed(&path, None), "nobody has claimed it");
        let claim = Claim::of(&path).unwrap();
        assert!(claim.is_exclusive() && is_claimed(&path, None) && Claim::of(&path).is_none());
        std::fs::remove_dir_all(base.join("run")).unwrap();
        assert!(is_claimed(&path, None), "no file can be asked any more");
        std::fs::remove_dir_all(&base).unwrap();
        assert!(is_claimed(&path, None));
        drop(claim);
        assert!(!is_claimed(&path, None));
    }

    /// More ask than can wait.
    #[test]
    fn a_claim_can_be_asked_for_as_often_as_one_likes() {
        let path = std::env::temp_dir().join(format!("hallpass-asked-{}", std::process::id()));
        let claim = Claim::of(&path).unwrap();
        for _ in 0..10 {
            for _ in 0..1000 {
                assert!(is_claimed(&path, None));
            }
            claim.drain();
        }
    }
}
