//! Namespaces of the harness's own for network, mounts and processes. The system removes them all, even if the harness crashes.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::ChaosError;

/// Programs that the test needs, with the Debian package of each.
const TOOLS: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("mount", "mount"),
];

/// What this machine lacks for a run, as one line. None if it has everything.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it makes network namespaces, and needs root for that".to_owned());
    }
    let absent = |(tool, _): &&(&str, &str)| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        !std::env::split_paths(&path).any(|directory| directory.join(tool).is_file())
    };
    if let Some((tool, package)) = TOOLS.iter().find(absent) {
        return Some(format!("there is no '{tool}': install it (Debian: apt-get install {package})"));
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun, which delays packets: load the kernel module tun".to_owned());
    }
    None
}

/// A directory and namespaces for one run.
#[derive(Debug)]
pub struct Sandbox {
    directory: PathBuf,
    keep: bool,
}

impl Sandbox {
    /// Makes the directory. It is removed at the end, unless `keep` is set.
    pub fn create(keep: bool) -> Result<Self, ChaosError> {
        let directory = std::env::temp_dir().join(format!("hallpass-chaos-{}", std::process::id()));
        let created = fs::DirBuilder::new().mode(0o700).create(&directory);
        created.map_err(|error| ChaosError::file(&directory, &error))?;
        Ok(Self { directory, keep })
    }

    /// The directory of all files of the run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs a program inside. None if this process was asked to end meanwhile. Then no process of the program is left.
    pub fn run(&self, program: &Path, args: &[OsString]) -> Result<Option<ExitStatus>, ChaosError> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let registered = signal_hook::flag::register(signal, Arc::clone(&asked));
            registered.map_err(|error| ChaosError::Failed(format!("cannot watch for signals: {error}")))?;
        }
        // If this process is killed, the system kills its child. The child's own child is the first process of the namespace, and all
        // others die with it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
        command.args(["--mount-proc", "--propagation", "private", "--"]).arg(program).args(args);
        let failed = |error: std::io::Error| ChaosError::Failed(format!("cannot make namespaces: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        wait(&mut child, &asked).map_err(failed)
    }
}

fn wait(child: &mut Child, asked: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status).filter(|_| !asked.load(Ordering::SeqCst)));
        }
        if asked.load(Ordering::SeqCst) {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}
