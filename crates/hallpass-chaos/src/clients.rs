//! The clients of the agents: processes that are started again each time they end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde::{Deserialize, Serialize};

use crate::agents::hallpass_command;
use crate::clock;
use crate::holder::{Identity, draw_lock, hold_by_lease, hold_through_socket, work_under_run};
use crate::random::Random;
use crate::records::Files;

/// The pause between two commands of one client.
const PAUSE: Duration = Duration::from_millis(100);

/// The exit codes that `hallpass run` may have here: success, no agent, lock not free in time, lock lost, killed.
const RUN_EXITS: [i32; 5] = [0, 69, 75, 76, 137];
/// More failures than this add nothing to the report.
const FAILURES_MAX: usize = 20;

/// How a client gets its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A process that speaks the agent's line protocol.
    Socket,
    /// A process with leases of the agent's HTTP API.
    Lease,
    /// `hallpass run`, again and again.
    Run,
}

impl Way {
    /// Each way with the word for it in clients' names.
    pub(crate) const ALL: [(Self, &'static str); 3] =
        [(Self::Socket, "socket"), (Self::Lease, "lease"), (Self::Run, "run")];
}

#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) way: Way,
    /// The prefix of its locks.
    pub(crate) locks: String,
    /// The agent's socket.
    pub(crate) socket: PathBuf,
}

/// The task of a client process. The harness passes it in one argument.
#[derive(Serialize, Deserialize)]
struct Part {
    client: String,
    locks: String,
    directory: PathBuf,
    seed: u64,
    ttl_ms: u64,
    does: Does,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Does {
    /// It uses the line protocol at this socket.
    Socket(PathBuf),
    Lease(PathBuf),
    /// It is the command of `hallpass run`.
    Run {
        shared: bool,
    },
}

/// The settings that all clients share.
#[derive(Clone, Debug)]
pub(crate) struct ClientSettings {
    pub(crate) hallpass: PathBuf,
    pub(crate) this: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) seed: u64,
    pub(crate) ttl: Duration,
}

/// The client processes, each with a thread that starts it again.
#[derive(Debug)]
pub(crate) struct Clients {
    names: Vec<String>,
    ways: Vec<Way>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// A process stays here until just before it is reaped, so no other process can have its number.
    running: Mutex<Vec<Option<Pid>>>,
    /// How often `hallpass run` ended with each exit code. -1 means a signal.
    exits: Mutex<BTreeMap<i32, u64>>,
    /// Processes that ended in a way that no fault explains.
    failures: Mutex<Vec<String>>,
    ending: AtomicBool,
}

impl Clients {
    pub(crate) fn start(specs: &[Spec], settings: &ClientSettings) -> Self {
        let shared = Arc::new(Shared {
            running: Mutex::new(vec![None; specs.len()]),
            exits: Mutex::default(),
            failures: Mutex::default(),
            ending: AtomicBool::new(false),
        });
        let start = |(index, spec): (usize, &Spec)| {
            let (shared, spec, settings) = (Arc::clone(&shared), spec.clone(), settings.clone());
            thread::spawn(move || shared.supervise(index, &spec, &settings))
        };
        let threads = specs.iter().enumerate().map(start).collect();
        let names = specs.iter().map(|spec| spec.name.clone()).collect();
        Self { names, ways: specs.iter().map(|spec| spec.way).collect(), shared, threads }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn way(&self, client: usize) -> Way {
        self.ways[client]
    }

    /// Sends a signal to a client's process. Returns the time, read before the signal, or none if the client does not run now.
    pub(crate) fn signal(&self, client: usize, signal: Signal) -> Option<u64> {
        let running = lock(&self.shared.running);
        let pid = running[client]?;
        let at = clock::now();
        kill_process(pid, signal).is_ok().then_some(at)
    }

    /// Ends all clients. Returns how often `hallpass run` ended with each exit code, and the failures that no fault explains.
    pub(crate) fn end(self) -> (BTreeMap<i32, u64>, Vec<String>) {
        self.shared.ending.store(true, Ordering::SeqCst);
        for client in 0..self.names.len() {
            self.signal(client, Signal::KILL);
        }
        for thread in self.threads {
            let _ = thread.join();
        }
        (lock(&self.shared.exits).clone(), lock(&self.shared.failures).clone())
    }
}

impl Shared {
    fn supervise(&self, index: usize, spec: &Spec, settings: &ClientSettings) {
        let mut random = Random::new(settings.seed ^ (index as u64 + 1) << 32);
        while !self.ending.load(Ordering::SeqCst) {
            let mut command = match spec.way {
                Way::Socket => own_client(spec, settings, random.next(), Does::Socket(spec.socket.clone())),
                Way::Lease => own_client(spec, settings, random.next(), Does::Lease(api_socket(&spec.socket))),
                Way::Run => run_command(spec, settings, &mut random),
            };
            let Ok(child) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
                thread::sleep(PAUSE);
                continue;
            };
            let code = self.watch(index, child).and_then(|status| status.code());
            if spec.way == Way::Run {
                *lock(&self.exits).entry(code.unwrap_or(-1)).or_default() += 1;
            }
            // The clients in this program end by a signal only.
            let unexpected = code.filter(|code| spec.way != Way::Run || !RUN_EXITS.contains(code));
            let mut failures = lock(&self.failures);
            if let Some(code) = unexpected.filter(|_| failures.len() < FAILURES_MAX) {
                failures.push(format!("client {} ended with exit code {code}", spec.name));
            }
            drop(failures);
            thread::sleep(PAUSE);
        }
    }

    fn watch(&self, index: usize, mut child: Child) -> Option<ExitStatus> {
        let pid = Pid::from_raw(child.id() as i32)?;
        lock(&self.running)[index] = Some(pid);
        // It may have been started while all clients were being ended.
        if self.ending.load(Ordering::SeqCst) {
            let _ = kill_process(pid, Signal::KILL);
        }
        while waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .is_err_and(|error| error == rustix::io::Errno::INTR)
        {}
        let mut running = lock(&self.running);
        running[index] = None;
        child.wait().ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the arguments that make this program a client.
fn client(command: &mut Command, spec: &Spec, settings: &ClientSettings, seed: u64, does: Does) {
    let part = Part {
        client: spec.name.clone(),
        locks: spec.locks.clone(),
        directory: settings.directory.clone(),
        seed,
        ttl_ms: settings.ttl.as_millis() as u64,
        does,
    };
    let text = serde_json::to_string(&part).expect("a part is JSON");
    command.arg("client").arg(text);
}

fn own_client(spec: &Spec, settings: &ClientSettings, seed: u64, does: Does) -> Command {
    let mut command = Command::new(&settings.this);
    client(&mut command, spec, settings, seed, does);
    command
}

fn run_command(spec: &Spec, settings: &ClientSettings, random: &mut Random) -> Command {
    let mut command = hallpass_command(&settings.hallpass);
    let shared = random.once_in(5);
    command.arg("run").arg(draw_lock(&spec.locks, random)).arg("--socket").arg(&spec.socket);
    if shared {
        command.arg("--shared");
    }
    if random.once_in(6) {
        command.args(["--timeout", "200ms"]);
    }
    command.arg("--").arg(&settings.this);
    client(&mut command, spec, settings, random.next(), Does::Run { shared });
    command
}

/// Runs as a client, with the arguments from the harness.
pub fn take_part(args: &[OsString]) -> std::io::Result<()> {
    let part = match args {
        [part] => part.to_str().and_then(|part| serde_json::from_str::<Part>(part).ok()),
        _ => None,
    };
    let Some(Part { client, locks, directory, seed, ttl_ms, does }) = part else {
        return Err(std::io::Error::other("a client is started by the harness only"));
    };
    let resource = resource_socket(&directory);
    let identity = Identity { client, locks, files: Files(directory), resource };
    let ttl = Duration::from_millis(ttl_ms);
    match does {
        Does::Socket(socket) => hold_through_socket(&identity, &socket, seed, ttl),
        Does::Lease(socket) => hold_by_lease(&identity, &socket, seed, ttl),
        Does::Run { shared } => work_under_run(&identity, shared, seed, ttl),
    }
}

/// Where the agent with this socket serves its API.
fn api_socket(socket: &Path) -> PathBuf {
    socket.with_file_name("agent-api.sock")
}

pub(crate) fn resource_socket(directory: &Path) -> PathBuf {
    directory.join("resource.sock")
}
