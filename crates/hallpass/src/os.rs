//! What depends on the operating system: the ownership of directories, and how a dead peer is noticed.

use std::time::Duration;

use tokio::net::TcpStream;

pub(crate) use crate::clock::now;

/// Makes a directory that only this user can use, and its parents.
pub(crate) fn create_private_directory(path: &std::path::Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// True if only this user can write to a file or directory, as far as that can be seen.
pub(crate) fn is_private(found: &std::fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        true
    }
}

/// True if this path leads to this open file, as far as that can be seen.
pub(crate) fn is_same_file(file: &std::fs::File, path: &std::path::Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        match (file.metadata(), std::fs::symlink_metadata(path)) {
            (Ok(file), Ok(found)) => identity(file) == identity(found),
            _ => false,
        }
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

/// True if other users of this machine can read a file, as far as that can be seen.
pub(crate) fn is_public(found: &std::fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        std::os::unix::fs::MetadataExt::mode(found) & 0o007 != 0
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        false
    }
}

/// Where a process with this directory runs: two with the same answer are on one machine that was not booted between them, in
/// the same directory. `None` if that cannot be told.
pub(crate) fn place(directory: &std::path::Path) -> Option<String> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(directory).ok()?;
        // Containers often have no id of their own; that of the boot is drawn at random by each machine.
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(format!("{} {} {}:{}", machine.trim(), boot.trim(), found.dev(), found.ino()))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = directory;
        None
    }
}

/// Makes renamed files in a directory durable.
pub(crate) fn sync_directory(path: &std::path::Path) -> std::io::Result<()> {
    if cfg!(unix) { std::fs::File::open(path)?.sync_all() } else { Ok(()) }
}

/// An error of the system, with what to do about it where that is known.
pub(crate) fn explain(error: &std::io::Error) -> String {
    #[cfg(unix)]
    if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
        return "this process has too many open files: close some, or raise the limit ('ulimit -n')".to_owned();
    }
    error.to_string()
}

/// A peer whose machine is gone sends nothing, not even the end of the connection: the system probes one that is idle, and gives up a connection
/// whose data, or probes, are not acknowledged for so long. Otherwise it sends data again after pauses that double, so that a connection is
/// dead for as long again as its network was; and one end may have given up while the other one, idle, takes it for a standing one.
pub(crate) fn give_up_after(stream: &TcpStream, limit: Duration) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::net::sockopt;
        const PROBES: u32 = 3;
        let interval = Duration::from_secs((limit / 2).as_secs().max(1));
        sockopt::set_socket_keepalive(stream, true)?;
        #[cfg(not(any(target_os = "macos", target_os = "ios", target_os = "openbsd")))]
        sockopt::set_tcp_keepidle(stream, interval)?;
        #[cfg(not(target_os = "openbsd"))]
        {
            sockopt::set_tcp_keepintvl(stream, interval)?;
            sockopt::set_tcp_keepcnt(stream, PROBES)?;
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        sockopt::set_tcp_user_timeout(stream, limit.as_millis() as u32)?;
    }
    let _ = (stream, limit);
    Ok(())
}

/// Has small messages leave at once. Where the system's congestion control is BBR, it spaces out what is sent by its estimate of the
/// bandwidth, which is low where little is sent: a request that follows a reply would wait. Reno does not, and every Linux has it;
/// locks never fill its window.
pub(crate) fn send_without_pacing(stream: &std::net::TcpStream) {
    #[cfg(target_os = "linux")]
    let _ = rustix::net::sockopt::set_tcp_congestion(stream, "reno");
    let _ = stream;
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::net::sockopt;

    use super::*;

    #[tokio::test]
    async fn a_silent_connection_is_probed_and_given_up_at_its_limit() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        for (limit_ms, interval) in [(500, 1), (1000, 1), (4000, 2)] {
            give_up_after(&stream, Duration::from_millis(limit_ms)).unwrap();
            assert_eq!(sockopt::tcp_user_timeout(&stream), Ok(limit_ms as u32));
            assert_eq!(sockopt::tcp_keepidle(&stream), Ok(Duration::from_secs(interval)));
            assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        }
    }

    #[tokio::test]
    async fn no_connection_is_paced() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        send_without_pacing(&stream);
        assert_eq!(sockopt::tcp_congestion(&stream).as_deref(), Ok("reno"));
    }
}
