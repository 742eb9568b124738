use std::fs::{DirBuilder, OpenOptions};
use std::io::IsTerminal;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hallpass_agent::talk::{Request, Response};
use hallpass_agent::{Client, ClientError};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use super::args::HoldArgs;
use super::paths;
use crate::exit::{Fault, Outcome};
use crate::terminal;

/// As in sysexits.h: the lock was not free. And one more: the lock was lost.
const NOT_FREE: u8 = 75;
const LOST: u8 = 76;
/// A private agent that takes longer to start does not start.
const START_TIME: Duration = Duration::from_secs(10);
/// How long a release may take before `run` ends anyway; closing the connection releases too.
const RELEASE_TIME: Duration = Duration::from_secs(2);

pub(super) fn run(args: &HoldArgs) -> Result<Outcome, Fault> {
    if !(1..=255).contains(&args.lock.len()) {
        return Err(Fault::Usage("a lock's name has 1 to 255 bytes".to_owned()));
    }
    let mut client = connect(args.socket.as_deref())?;
    let timeout_ms = args.timeout.map(|limit| limit.as_millis() as u64);
    let lock = args.lock.clone();
    let request = Request::Acquire { lock: lock.clone(), shared: args.shared, tries: args.tries, timeout_ms };
    let fence = match client.ask(&request) {
        Ok(Response::Granted { fence, .. }) => fence,
        Ok(Response::Busy) => return Err(Fault::Code(NOT_FREE, format!("lock '{lock}' is not free"))),
        Ok(Response::Late) => {
            return Err(Fault::Code(
                NOT_FREE,
                format!("lock '{lock}' was not free within {:?}", args.timeout.unwrap_or_default()),
            ));
        }
        Ok(other) => return Err(Fault::Failed(format!("the agent answers with nonsense: {other:?}"))),
        Err(ClientError::Refused(why)) => return Err(Fault::Unavailable(why)),
        Err(error) => return Err(Fault::Unavailable(error.to_string())),
    };
    hold(args, client, &lock, fence)
}

/// The agent that was named, or one that listens where agents do, or a private one.
fn connect(named: Option<&Path>) -> Result<Client, Fault> {
    let unavailable = |error: ClientError| Fault::Unavailable(error.to_string());
    if let Some(socket) = named {
        return Client::connect(socket).map_err(unavailable);
    }
    for socket in paths::usual_sockets() {
        match Client::connect(&socket) {
            Err(ClientError::Absent { .. }) => {}
            other => return other.map_err(unavailable),
        }
    }
    if let Some(config) = paths::configured() {
        let config = config.display();
        return Err(Fault::Unavailable(format!(
            "no agent runs, though {config} describes one; start it with 'hallpass agent'"
        )));
    }
    connect_privately()
}

/// Starts an agent for this user alone, unless there is one: a real node, a group of one.
fn connect_privately() -> Result<Client, Fault> {
    let directory = paths::private_directory();
    let socket = paths::private_socket(&directory);
    let end = Instant::now() + START_TIME;
    let mut started: Option<std::process::Child> = None;
    loop {
        match Client::connect(&socket) {
            Ok(client) => return Ok(client),
            Err(ClientError::Absent { .. } | ClientError::Closed) if Instant::now() < end => {}
            Err(error) => {
                let log = log_of(&directory);
                return Err(Fault::Unavailable(format!("{error} (the private agent's log is {})", log.display())));
            }
        }
        // Another agent may just be ending, or another 'run' may have started one: then ours ends at once, and once more.
        let ended = started.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()));
        if ended {
            if started.is_none() && std::io::stderr().is_terminal() {
                terminal::note("no agent runs here: starting one for this user alone");
            }
            thread::sleep(if started.is_some() { Duration::from_millis(200) } else { Duration::ZERO });
            started = Some(start_privately(&directory)?);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn log_of(directory: &Path) -> PathBuf {
    directory.join("agent.log")
}

fn start_privately(directory: &Path) -> Result<std::process::Child, Fault> {
    let fail = |error: std::io::Error| {
        Fault::Unavailable(format!("cannot start an agent in {}: {error}", directory.display()))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(fail)?;
    let log = OpenOptions::new().create(true).append(true).open(log_of(directory)).map_err(fail)?;
    Command::new(THIS_PROGRAM)
        .args(["agent", "--private"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(fail)
}

/// The program that runs, whatever has become of its file.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Signals that whoever started this process wants to be ignored, as `nohup` does: the command must ignore them too.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// What happens while the command runs.
enum Event {
    Exited(ExitStatus),
    Signalled {
        signal: i32,
        from_terminal: bool,
    },
    Heard(Response),
    /// The agent is gone, or says something that ends the hold.
    Lost,
}

/// Runs the command while the lock is held. The command has a copy of the connection: if this process is killed, the
/// lock is free only when the command is dead too, and it dies with its parent.
fn hold(args: &HoldArgs, client: Client, lock: &str, fence: u64) -> Result<Outcome, Fault> {
    let failed = |what: &str, error: std::io::Error| Fault::Failed(format!("cannot {what}: {error}"));
    // Handlers first: a signal between them and the command reaches the command.
    let ignored = ignored_signals();
    let passed = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
    let mut signals =
        SignalsInfo::<WithRawSiginfo>::new(passed.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0))
            .map_err(|error| failed("watch for signals", error))?;
    // What the command leaves behind becomes this process's child, so that it can be found.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let copy = client.descriptor().map_err(|error| failed("copy the connection", error))?;
    fcntl_setfd(&copy, FdFlags::empty()).map_err(|error| failed("copy the connection", error.into()))?;
    let mut child = Command::new(THIS_PROGRAM)
        .args(["__child", &std::process::id().to_string(), "--"])
        .args(&args.command)
        .env("HALLPASS_LOCK", lock)
        .env("HALLPASS_FENCE", fence.to_string())
        .env("HALLPASS_NODE", &client.node)
        .spawn()
        .map_err(|error| failed("start a process", error))?;
    drop(copy);
    let pid = Pid::from_child(&child);
    let (tell, events) = channel();
    let (ttl, mut talk) = (client.ttl, client.try_clone().map_err(|error| failed("copy the connection", error))?);
    listen(client, tell.clone());
    let signalled = tell.clone();
    thread::spawn(move || {
        signals.forever().all(|info| {
            // Processes send with codes of zero and less; of these signals the kernel sends only a terminal's.
            let (signal, from_terminal) = (info.si_signo, info.si_code > 0);
            signalled.send(Event::Signalled { signal, from_terminal }).is_ok()
        })
    });
    thread::spawn(move || child.wait().map(|status| tell.send(Event::Exited(status))));
    let grace = args.grace.unwrap_or(ttl / 3).min(ttl / 2);
    let (status, lost) = watch(&events, pid, grace);
    if lost {
        kill_descendants();
        return Err(Fault::Code(LOST, format!("lock '{lock}' was lost; the command was stopped")));
    }
    let release = Request::Release { lock: lock.to_owned(), fence };
    if talk.say(&release).is_ok() {
        let end = Instant::now() + RELEASE_TIME;
        while let Ok(event) = events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if matches!(event, Event::Heard(Response::Released { .. }) | Event::Lost) {
                break;
            }
        }
    }
    let code = status.and_then(|status| status.code().or_else(|| status.signal().map(|signal| 128 + signal)));
    Ok(Outcome::Code(u8::try_from(code.unwrap_or(1)).unwrap_or(1)))
}

fn listen(mut client: Client, tell: Sender<Event>) {
    thread::spawn(move || {
        while let Ok(response) = client.hear() {
            if tell.send(Event::Heard(response)).is_err() {
                return;
            }
        }
        let _ = tell.send(Event::Lost);
    });
}

/// Waits for the command's end. If the lock is lost before: SIGTERM, the grace, SIGKILL.
fn watch(events: &Receiver<Event>, pid: Pid, grace: Duration) -> (Option<ExitStatus>, bool) {
    let mut lost_at: Option<Instant> = None;
    loop {
        let event = match lost_at {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => events.recv_timeout((at + grace).saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(Event::Exited(status)) => return (Some(status), lost_at.is_some()),
            Ok(Event::Signalled { signal, from_terminal }) => pass_on(pid, signal, from_terminal),
            Ok(Event::Lost) if lost_at.is_none() => {
                lost_at = Some(Instant::now());
                let _ = kill_process(pid, Signal::TERM);
            }
            Ok(Event::Lost | Event::Heard(_)) => {}
            Err(RecvTimeoutError::Timeout) => {
                let _ = kill_process(pid, Signal::KILL);
                lost_at = Some(Instant::now());
            }
            Err(RecvTimeoutError::Disconnected) => return (None, lost_at.is_some()),
        }
    }
}

/// The lock is lost: nothing that the command started goes on. New ones may appear while others are killed.
fn kill_descendants() {
    for _ in 0..100 {
        let found = descendants(std::process::id());
        if found.is_empty() {
            return;
        }
        for pid in found.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The processes below this one that have not ended.
fn descendants(of: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(parent).collect();
    let mut found = vec![of];
    let mut at = 0;
    while at < found.len() {
        found
            .extend(parents.iter().filter(|(_, parent)| *parent == found[at]).map(|(pid, _)| *pid).collect::<Vec<_>>());
        at += 1;
    }
    found.split_off(1)
}

/// A process and its parent, from /proc; not those that have ended.
fn parent(entry: std::fs::DirEntry) -> Option<(u32, u32)> {
    let pid = entry.file_name().to_str()?.parse().ok()?;
    let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
    let mut fields = stat.rsplit(") ").next()?.split(' ');
    let state = fields.next()?;
    (state != "Z" && state != "X").then_some((pid, fields.next()?.parse().ok()?))
}

/// The terminal sends Ctrl-C to every process in front of it, the command too; what somebody sends to this process alone
/// is passed on.
fn pass_on(pid: Pid, signal: i32, from_terminal: bool) {
    if let Some(signal) = Signal::from_named_raw(signal).filter(|_| !from_terminal) {
        let _ = kill_process(pid, signal);
    }
}
