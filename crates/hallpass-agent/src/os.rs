//! Everything that depends on the operating system: a port to another system changes this file and no other.
//!
//! Clients and agent meet at a Unix socket. The agent frees what a client holds when the last descriptor of its connection is
//! closed, so that a client's child processes can keep a lock by inheriting one: a port needs a local connection with that property.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;

/// What keeps a connection open.
pub(crate) use std::os::fd::OwnedFd as Descriptor;
/// A client's end of a connection.
pub(crate) use std::os::unix::net::UnixStream as ClientStream;
/// The agent's side.
pub(crate) use tokio::net::unix::{OwnedReadHalf as ReadHalf, OwnedWriteHalf as WriteHalf};
pub(crate) use tokio::net::{UnixListener as Listener, UnixStream as Connection};

/// What is at the path of a socket.
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

/// Creates the directory of a socket if it is missing, for this user alone.
pub(crate) fn create_socket_directory(socket: &Path) -> io::Result<()> {
    match socket.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory),
        None => Ok(()),
    }
}

/// Listens at a socket that only this user may connect to. Must be called within a runtime.
pub(crate) fn listen(socket: &Path) -> io::Result<Listener> {
    let listener = Listener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
