//! Worker processes as the benchmark sees them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::task::{Done, Ready, Reply, Task};

/// How worker processes are started: a program and what comes before a worker's own arguments.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
    first: Vec<String>,
}

/// A worker is stuck if it has not replied for this time after its task should have ended.
const REPLY_WAIT_MAX: Duration = Duration::from_secs(30);
/// A worker that has not ended this time after its stdin was closed is killed.
const END_WAIT_MAX: Duration = Duration::from_secs(8);

impl Launcher {
    /// This program, with these arguments before a worker's own.
    pub fn this_program(first: &[&str]) -> Result<Self, BenchError> {
        std::env::current_exe().map(|program| Self::new(program, first)).map_err(BenchError::new)
    }

    /// Another program, with these arguments before a worker's own.
    pub fn new(program: impl Into<PathBuf>, first: &[&str]) -> Self {
        Self { program: program.into(), first: first.iter().map(|&word| word.to_owned()).collect() }
    }

    /// Starts a worker without waiting until it is ready.
    pub(crate) fn start(&self, args: &[&str]) -> Result<Worker, BenchError> {
        let mut child = Command::new(&self.program)
            .args(&self.first)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C ends the benchmark; workers end when their stdin is closed by that.
            .process_group(0)
            .spawn()
            .map_err(|error| BenchError::new(format!("cannot start {}: {error}", self.program.display())))?;
        let (send, replies) = channel();
        let stdout = child.stdout.take().expect("it is piped");
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Ok(Worker { child, stdin, replies, what: args.join(" ") })
    }
}

/// A process that ends when this is dropped.
pub(crate) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<String>,
    what: String,
}

impl Worker {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ready(&mut self) -> Result<Ready, BenchError> {
        self.ready_within(REPLY_WAIT_MAX)
    }

    /// The same, for a worker that may take longer.
    pub(crate) fn ready_for(&mut self, seconds: f64) -> Result<Ready, BenchError> {
        self.ready_within(Duration::from_secs_f64(seconds))
    }

    pub(crate) fn ready_within(&mut self, limit: Duration) -> Result<Ready, BenchError> {
        match self.receive(limit)? {
            Reply::Ready(ready) => Ok(ready),
            Reply::Failed(why) => Err(self.fail(&why)),
            Reply::Done(_) => Err(self.fail("it replied before it was asked")),
        }
    }

    pub(crate) fn send(&mut self, task: &Task) -> Result<(), BenchError> {
        let line = serde_json::to_string(task).expect("tasks are plain data") + "\n";
        let stdin = self.stdin.as_mut().expect("it is open until the worker is dropped");
        stdin.write_all(line.as_bytes()).map_err(|error| self.fail(&error.to_string()))
    }

    pub(crate) fn done(&mut self, seconds: f64) -> Result<Done, BenchError> {
        match self.receive(REPLY_WAIT_MAX + Duration::from_secs_f64(seconds))? {
            Reply::Done(done) => Ok(done),
            Reply::Failed(why) => Err(self.fail(&why)),
            Reply::Ready(_) => Err(self.fail("it started twice")),
        }
    }

    fn receive(&self, limit: Duration) -> Result<Reply, BenchError> {
        let line = self.replies.recv_timeout(limit).map_err(|_| self.fail("it does not reply"))?;
        serde_json::from_str(&line).map_err(|error| self.fail(&format!("it sent '{line}': {error}")))
    }

    fn fail(&self, why: &str) -> BenchError {
        BenchError::new(format!("the worker '{}' failed: {why}", self.what))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let until = Instant::now() + END_WAIT_MAX;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory of the benchmark's own. A worker removes it, so that it is removed even if the benchmark is killed.
pub(crate) struct Scratch {
    path: PathBuf,
    _remover: Worker,
}

impl Scratch {
    /// On a file system in memory, if there is one.
    pub(crate) fn in_memory(launcher: &Launcher) -> Result<Self, BenchError> {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::new(launcher, memory) } else { Self::on_disk(launcher) }
    }

    /// Where temporary files are: mostly on a disk, which takes its time to store something for good.
    pub(crate) fn on_disk(launcher: &Launcher) -> Result<Self, BenchError> {
        Self::new(launcher, &std::env::temp_dir())
    }

    fn new(launcher: &Launcher, base: &Path) -> Result<Self, BenchError> {
        let path = base.join(format!("hallpass-bench-{}-{:x}", std::process::id(), crate::worker::now_ns()));
        std::fs::create_dir(&path)
            .map_err(|error| BenchError::new(format!("cannot make {}: {error}", path.display())))?;
        let mut remover = launcher.start(&["scratch", &path.display().to_string()])?;
        remover.ready()?;
        Ok(Self { path, _remover: remover })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
