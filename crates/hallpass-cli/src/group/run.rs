use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hallpass_agent::talk::{Request, Response};
use hallpass_agent::{Client, ClientError};

use super::agent::{PRIVATE_AGENT, TAKEN};
use super::args::HoldArgs;
use super::paths;
use crate::exit::{Fault, Outcome};
use crate::os::{ForwardedSignals, Process, ReceivedSignal};
use crate::{os, terminal};

/// As in sysexits.h: the lock was not free. And one more: the lock was lost.
const NOT_FREE: u8 = 75;
const LOST: u8 = 76;
/// A private agent that takes longer to start does not start: it may have to wait for a session to run out.
const START_TIME: Duration = Duration::from_secs(15);
/// Who only tries does not wait longer for an agent that has to wait.
const TRY_TIME: Duration = Duration::from_secs(2);
/// How long an agent may take to say that it is too late, or that the lock is not free.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long a release may take before `run` ends anyway; closing the connection releases too.
const RELEASE_TIME: Duration = Duration::from_secs(2);

pub(super) fn run(args: &HoldArgs) -> Result<Outcome, Fault> {
    if !(1..=255).contains(&args.lock().len()) {
        return Err(Fault::Usage("a lock's name has 1 to 255 bytes".to_owned()));
    }
    let begun = Instant::now();
    os::keep_exit_statuses();
    loop {
        let (mut client, private) = match paths::connect(args.socket.as_deref())? {
            Some(client) => (client, false),
            None => (connect_privately(args, begun)?, true),
        };
        match acquire(args, &mut client, begun) {
            Ok(fence) => return hold(args, client, fence),
            // A private agent ends by itself, or by somebody's word: another one can be started.
            Err(Denied::Gone) if private => {}
            Err(Denied::Gone) => return Err(Fault::Unavailable(ClientError::Closed.to_string())),
            Err(Denied::For(fault)) => return Err(fault),
        }
    }
}

/// Why there is no lock.
enum Denied {
    /// The agent has gone.
    Gone,
    For(Fault),
}

/// Waits for the lock, and gives its fence.
fn acquire(args: &HoldArgs, client: &mut Client, begun: Instant) -> Result<u64, Denied> {
    let lock = args.lock();
    let left = args.timeout.map(|limit| limit.saturating_sub(begun.elapsed()));
    if left.is_some_and(|left| left.is_zero()) {
        return Err(Denied::For(too_late(args, None)));
    }
    let timeout_ms = left.map(|left| left.as_millis() as u64);
    let request = Request::Acquire { lock: lock.to_owned(), shared: args.shared, tries: args.tries, timeout_ms };
    // The agent counts; who waits for an agent that is stopped has this clock, too.
    let answer = match left.or(args.tries.then_some(Duration::ZERO)) {
        Some(left) => client.ask_within(&request, left + ANSWER_TIME),
        None => client.ask(&request),
    };
    match answer {
        Ok(Response::Granted { fence, .. }) => Ok(fence),
        Ok(Response::Busy { why } | Response::Late { why }) => Err(Denied::For(too_late(args, why.as_deref()))),
        Ok(other) => Err(Denied::For(Fault::Failed(format!("the agent answers with nonsense: {other:?}")))),
        Err(ClientError::Closed) => Err(Denied::Gone),
        Err(error) => Err(Denied::For(Fault::Unavailable(error.to_string()))),
    }
}

/// The lock was not free at once, or not in time.
fn too_late(args: &HoldArgs, why: Option<&str>) -> Fault {
    let lock = args.lock().escape_debug();
    let late = args.timeout.map_or("is not free".to_owned(), |limit| format!("was not free within {limit:?}"));
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    Fault::Code(NOT_FREE, format!("lock '{lock}' {late}{why}"))
}

/// Starts an agent for this user alone, unless there is one: a real node, a group of one.
fn connect_privately(args: &HoldArgs, begun: Instant) -> Result<Client, Fault> {
    let directory = paths::make_private_directory()?;
    let socket = paths::private_socket(&directory);
    let patience = args.timeout.or(args.tries.then_some(TRY_TIME));
    let end = patience.map_or(Instant::now() + START_TIME, |patience| begun + patience.min(START_TIME));
    let mut started: Option<Child> = None;
    let mut looks_again = Instant::now();
    loop {
        let late = Instant::now() >= end;
        match Client::connect(&socket) {
            Ok(client) => return Ok(client),
            Err(ClientError::Absent { .. } | ClientError::Closed) if !late => {}
            Err(ClientError::Absent { .. } | ClientError::Closed)
                if patience.is_some_and(|limit| limit < START_TIME) =>
            {
                return Err(too_late(args, Some("this user's agent is not ready yet")));
            }
            Err(error) => {
                let log = log_of(&directory);
                return Err(Fault::Unavailable(format!("{error} (the private agent's log is {})", log.display())));
            }
        }
        let ended = started.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if ended.is_some_and(|status| status.code().is_some_and(|code| ![0, TAKEN.into()].contains(&code))) {
            return Err(Fault::Unavailable(format!("cannot start an agent for this user: {}", complaint(&directory))));
        }
        // An agent that ends, or waits for old sessions, has the directory: it is waited for, not joined by others that wait.
        if (started.is_none() || ended.is_some()) && Instant::now() >= looks_again {
            looks_again = Instant::now() + Duration::from_millis(100);
            if !paths::is_in_use(&directory.join("data")) {
                if started.is_none() && std::io::stderr().is_terminal() {
                    terminal::note("no agent runs here: starting one for this user alone");
                }
                started = Some(start_privately(&directory)?);
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// What an agent that could not start has said.
fn complaint(directory: &Path) -> String {
    let log = log_of(directory);
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let said = text.lines().rev().find_map(|line| line.strip_prefix("hallpass: "));
    said.map_or_else(|| format!("see {}", log.display()), str::to_owned)
}

fn log_of(directory: &Path) -> PathBuf {
    directory.join("agent.log")
}

fn start_privately(directory: &Path) -> Result<Child, Fault> {
    let fail = |error: std::io::Error| {
        Fault::Unavailable(format!("cannot start an agent in {}: {error}", directory.display()))
    };
    let log = OpenOptions::new().create(true).append(true).open(log_of(directory)).map_err(fail)?;
    Command::new(os::this_program().map_err(fail)?)
        .args(PRIVATE_AGENT)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(fail)
}

/// What happens while the command runs.
enum Event {
    Exited(Option<ExitStatus>),
    Signalled(ReceivedSignal),
    Heard(Response),
    /// The agent is gone, or says something that ends the hold.
    Lost,
}

/// Runs the command while the lock is held. The command has a copy of the connection: if this process is killed, the
/// lock is free only when the command is dead too, and it dies with its parent.
fn hold(args: &HoldArgs, client: Client, fence: u64) -> Result<Outcome, Fault> {
    let lock = args.lock();
    let failed = |what: &str, error: std::io::Error| Fault::Failed(format!("cannot {what}: {error}"));
    // Handlers first: a signal that comes before there is a command is passed on to it.
    let signals = ForwardedSignals::collect().map_err(|error| failed("watch for signals", error))?;
    os::adopt_orphans();
    let copy = client.descriptor().and_then(os::make_inheritable);
    let copy = copy.map_err(|error| failed("copy the connection", error))?;
    let program = os::this_program().map_err(|error| failed("find this program", error))?;
    let child = Command::new(program)
        .args(["__child", &std::process::id().to_string(), "--"])
        .args(&args.command)
        .env("HALLPASS_LOCK", lock)
        .env("HALLPASS_FENCE", fence.to_string())
        .env("HALLPASS_NODE", &client.node)
        .spawn()
        .map_err(|error| failed("start a process", error))?;
    drop(copy);
    let command = Process::of(&child);
    let (tell, events) = channel();
    let (ttl, mut talk) = (client.ttl, client.try_clone().map_err(|error| failed("copy the connection", error))?);
    listen(client, tell.clone());
    let signalled = tell.clone();
    thread::spawn(move || signals.for_each(|signal| signalled.send(Event::Signalled(signal)).is_ok()));
    thread::spawn(move || os::reap_children(command, |status| drop(tell.send(Event::Exited(status)))));
    let grace = args.grace.unwrap_or(ttl / 3).min(ttl / 2);
    if args.grace.is_some_and(|wanted| wanted > grace) {
        terminal::note(&format!("the grace is half the agent's session at the most: {grace:?}"));
    }
    let (status, lost) = watch(&events, command, grace);
    if lost {
        os::kill_descendants_except(&PRIVATE_AGENT);
        return Err(Fault::Code(LOST, format!("lock '{lock}' was lost; the command was stopped")));
    }
    // As with flock(1), what the command has left behind keeps the lock, by its copy of the connection.
    if !os::any_descendant_except(&PRIVATE_AGENT) && !release(&mut talk, &events, lock, fence) {
        return Err(Fault::Code(LOST, format!("lock '{lock}' was lost before the command ended")));
    }
    Ok(Outcome::Code(status.and_then(os::exit_code).unwrap_or(1)))
}

/// Leaves the lock; false if it was not held until now.
fn release(talk: &mut Client, events: &Receiver<Event>, lock: &str, fence: u64) -> bool {
    if talk.say(&Request::Release { lock: lock.to_owned(), fence }).is_err() {
        return true;
    }
    let end = Instant::now() + RELEASE_TIME;
    loop {
        match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Event::Heard(Response::Released { held })) => return held,
            // Closing the connection releases too.
            Ok(Event::Lost) | Err(_) => return true,
            Ok(_) => {}
        }
    }
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
fn watch(events: &Receiver<Event>, command: Process, grace: Duration) -> (Option<ExitStatus>, bool) {
    let mut lost_at: Option<Instant> = None;
    loop {
        let event = match lost_at {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => events.recv_timeout((at + grace).saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(Event::Exited(status)) => return (status, lost_at.is_some()),
            Ok(Event::Signalled(signal)) => command.forward(signal),
            Ok(Event::Lost) if lost_at.is_none() => {
                lost_at = Some(Instant::now());
                command.terminate();
            }
            Ok(Event::Lost | Event::Heard(_)) => {}
            Err(RecvTimeoutError::Timeout) => {
                command.kill();
                lost_at = Some(Instant::now());
            }
            Err(RecvTimeoutError::Disconnected) => return (None, lost_at.is_some()),
        }
    }
}
