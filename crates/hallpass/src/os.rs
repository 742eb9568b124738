//! Everything that depends on the operating system: who owns a directory, and how a dead peer is noticed.

use std::time::Duration;

use tokio::net::TcpStream;

pub(crate) use crate::clock::now;

/// Creates a directory that only this user can use, and its missing parents.
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

/// True if other users of this machine can use a key, as far as that can be seen. A group may read what root has given it, as packages do.
pub(crate) fn is_public(found: &std::fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let by_group = found.mode() & 0o070 != 0 && found.uid() != 0;
        by_group || found.mode() & 0o007 != 0
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        false
    }
}

/// Tells a version of a file from others: when it was written, its length, and which file it is.
pub(crate) fn stamp(path: &std::path::Path) -> Option<(std::time::SystemTime, u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let file = std::os::unix::fs::MetadataExt::ino(&found);
    #[cfg(not(unix))]
    let file = 0;
    Some((found.modified().ok()?, found.len(), file))
}

/// Identifies the machine, its boot and the directory. Two processes with the same answer ran on one machine, in one directory, and
/// the machine was not booted between them. `None` if the system does not say.
pub(crate) fn place(directory: &std::path::Path) -> Option<String> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(directory).ok()?;
        // Containers often have no machine id. The boot id is always there: each machine draws it at random when it boots.
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

/// Describes an error of the system, with a remedy where one is known.
pub(crate) fn explain(error: &std::io::Error) -> String {
    #[cfg(unix)]
    if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
        return "this process has too many open files: close some, or raise the limit ('ulimit -n')".to_owned();
    }
    error.to_string()
}

/// Makes the system give up a connection whose data or probes are not acknowledged within this limit, and probe an idle one.
///
/// A peer whose machine is gone sends nothing, not even the end of the connection. By default the system sends data again after
/// pauses that double. So a connection stays dead for as long again as its network was. Without probes, one end may give up while
/// the other one is idle and takes the connection for alive.
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

/// Makes small messages leave at once.
///
/// BBR, the congestion control of some systems, spaces out packets by its estimate of the bandwidth. The estimate is low where little
/// is sent, so a request that follows a reply would wait. Reno does not space out packets, and every Linux has it. Locks never fill
/// its window.
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
