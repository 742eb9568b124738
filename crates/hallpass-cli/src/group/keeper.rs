//! The keeper: a process between `run` and its command, which leaves nothing at work when the lock is not held any more.
//!
//! Every process that the command starts, and whose parent ends, becomes a child of the keeper, however far it has detached itself. So
//! the keeper can find them all. When `run` or the agent is gone it kills them, and only then closes its copy of the client
//! connection, which keeps the lock. Each of the three may be killed at any moment:
//!
//! - `run`: the keeper notices, kills the command and all it started, then lets the lock go.
//! - the keeper: the command dies with it, and `run`, to which the rest falls then, kills that.
//! - the agent: `run` stops the command within half a session; if `run` itself is stopped, the keeper does.
//!
//! If the command ends by itself and leaves processes running, the keeper stays with them, and the lock is theirs until they end.
//!
//! A process of another user, such as one that `sudo` started, cannot be killed by ours. If `run` is killed the lock stays with it
//! until it has ended by itself. If the agent is gone nothing can be done.

use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hallpass_agent::Client;

use super::args::{ChildArgs, HoldArgs, KeeperArgs};
use super::private_agent;
use crate::exit::{Fault, NOT_EXECUTABLE, NOT_FOUND, Outcome};
use crate::os::{ForwardedSignals, Process, ReceivedSignal};
use crate::{os, terminal};

/// What `run` tells the keeper, one line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Signal(ReceivedSignal),
    /// SIGTERM for the command.
    Terminate,
    /// SIGKILL for the command and everything it started.
    Kill,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(ReceivedSignal { number, from_terminal }) => write!(f, "signal {number} {from_terminal}"),
            Self::Terminate => f.write_str("terminate"),
            Self::Kill => f.write_str("kill"),
        }
    }
}

impl FromStr for Order {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["signal", number, from_terminal] => Ok(Self::Signal(ReceivedSignal {
                number: number.parse().map_err(drop)?,
                from_terminal: from_terminal.parse().map_err(drop)?,
            })),
            ["terminate"] => Ok(Self::Terminate),
            ["kill"] => Ok(Self::Kill),
            _ => Err(()),
        }
    }
}

/// What the keeper tells `run`, once: how the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// None if the keeper has killed it, because `run` said so or the agent is gone.
    pub(super) status: Option<ExitStatus>,
    /// Processes that the command started are still running.
    pub(super) left_running: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.map_or("unknown".to_owned(), |status| status.into_raw().to_string());
        write!(f, "ended {status} {}", self.left_running)
    }
}

impl FromStr for Report {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ended", status, left_running] = words[..] else { return Err(()) };
        let status = if status == "unknown" { None } else { Some(status.parse().map_err(drop)?) };
        Ok(Self { status: status.map(ExitStatus::from_raw), left_running: left_running.parse().map_err(drop)? })
    }
}

/// The keeper, as `run` sees it.
pub(super) struct Keeper {
    control: UnixStream,
    process: Child,
}

impl Keeper {
    /// Starts a keeper, which starts the command.
    pub(super) fn start(args: &HoldArgs, client: &Client, fence: u64) -> std::io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let process = os::this_program_again()?
            .args(["__keeper", &client.ttl.as_millis().to_string(), "--"])
            .args(&args.command)
            .env("HALLPASS_LOCK", args.lock())
            .env("HALLPASS_OUTER_LOCKS", serde_json::json!(args.outer_locks()).to_string())
            .env("HALLPASS_FENCE", fence.to_string())
            .env("HALLPASS_NODE", &client.node)
            .stdin(OwnedFd::from(theirs))
            .spawn()?;
        let (input, connection) = (os::standard_input()?, client.descriptor()?);
        // A keeper that is gone already, by an early Ctrl-C for example, is noticed by its missing report.
        let _ = os::send_descriptors(&control, [input.as_fd(), connection.as_fd()]);
        Ok(Self { control, process })
    }

    /// Waits for the process to end, which it does right after its report, and returns its exit code as a shell would.
    pub(super) fn wait(mut self) -> Option<u8> {
        self.process.wait().ok().and_then(os::exit_code)
    }

    pub(super) fn forward(&self, signal: ReceivedSignal) {
        self.order(Order::Signal(signal));
    }

    pub(super) fn terminate(&self) {
        self.order(Order::Terminate);
    }

    pub(super) fn kill(&self) {
        self.order(Order::Kill);
    }

    /// One that is gone is noticed by [`report`](Self::report).
    fn order(&self, order: Order) {
        let _ = writeln!(&self.control, "{order}");
    }

    /// Waits until the command has ended; none if the keeper was killed.
    pub(super) fn report(&self) -> impl FnOnce() -> Option<Report> + Send + use<> {
        let control = self.control.try_clone();
        move || {
            let mut line = String::new();
            BufReader::new(control.ok()?).read_line(&mut line).ok()?;
            line.parse().ok()
        }
    }
}

/// What can happen while the keeper waits.
enum Event {
    Order(Order),
    RunGone,
    AgentGone,
    Exited(Option<ExitStatus>),
}

/// The keeper's process.
pub(crate) fn keep(args: &KeeperArgs) -> Result<Outcome, Fault> {
    let failed = |what: &'static str| move |error: std::io::Error| Fault::Failed(format!("cannot {what}: {error}"));
    os::name_process();
    os::keep_exit_statuses();
    os::adopt_orphans();
    // They are for the command: a keeper that ended by Ctrl-C could keep nothing.
    let _signals = ForwardedSignals::collect().map_err(failed("watch for signals"))?;
    let control = os::control_connection().map_err(failed("reach 'hallpass run'"))?;
    let received = os::receive_descriptors(&control).map_err(failed("receive the connection"))?;
    // Without them 'run' was killed before it sent them: nothing has been started.
    let Ok([input, connection]) = <[OwnedFd; 2]>::try_from(received) else { return Ok(Outcome::Code(1)) };
    // If 'run' was paused since the lock was granted, the agent may be gone and the lock somebody else's.
    if os::is_closed(&connection) {
        let _ = writeln!(&control, "{}", Report { status: None, left_running: false });
        return Ok(Outcome::Fine);
    }
    os::make_inheritable(&connection).map_err(failed("pass the connection on"))?;
    let command = start(args, input).map_err(failed("start a process"))?;
    let orders = control.try_clone().map_err(failed("copy the connection"))?;
    let watched = connection.try_clone().map_err(failed("copy the connection"))?;
    let events = watch(orders, watched, command);
    let limit = Duration::from_millis(args.ttl_ms) / 2;
    let report = wait_for_end(&events, command, limit);
    let told = writeln!(&control, "{report}").is_ok();
    drop(control);
    match report.left_running {
        true if told => wait_for_rest(&events, limit),
        true => drop(os::kill_descendants_except(&private_agent::ARGS, &[], None)),
        false => {}
    }
    Ok(Outcome::Fine)
}

fn start(args: &KeeperArgs, input: OwnedFd) -> std::io::Result<Process> {
    let child = os::this_program_again()?
        .args(["__child", &std::process::id().to_string(), "--"])
        .args(&args.command)
        .stdin(input)
        .spawn()?;
    Ok(Process::of(&child))
}

/// Starts threads that watch `run`, the agent and the command.
fn watch(control: UnixStream, connection: OwnedFd, command: Process) -> Receiver<Event> {
    let (sender, events) = channel();
    let (of_run, of_agent): (Sender<Event>, Sender<Event>) = (sender.clone(), sender.clone());
    thread::spawn(move || {
        for line in BufReader::new(control).lines().map_while(Result::ok) {
            if let Ok(order) = line.parse() {
                let _ = of_run.send(Event::Order(order));
            }
        }
        let _ = of_run.send(Event::RunGone);
    });
    thread::spawn(move || {
        os::wait_for_close(&connection);
        let _ = of_agent.send(Event::AgentGone);
    });
    thread::spawn(move || os::reap_children(command, |status| drop(sender.send(Event::Exited(status)))));
    events
}

/// Waits for the command to end, and kills it with all it started if `run` says so or is gone. `run` has this time to do it by itself
/// when the agent is gone.
fn wait_for_end(events: &Receiver<Event>, command: Process, limit: Duration) -> Report {
    let mut kill_at: Option<Instant> = None;
    loop {
        let event = match kill_at {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(Event::Exited(status)) => {
                let left_running = os::any_descendant_except(&private_agent::ARGS, &[]);
                return Report { status, left_running };
            }
            Ok(Event::Order(Order::Signal(signal))) => command.forward(signal),
            Ok(Event::Order(Order::Terminate)) => command.terminate(),
            Ok(Event::AgentGone) => kill_at = kill_at.or(Some(Instant::now() + limit)),
            Ok(Event::Order(Order::Kill) | Event::RunGone) | Err(_) => {
                command.kill();
                os::kill_descendants_except(&private_agent::ARGS, &[], None);
                return Report { status: None, left_running: false };
            }
        }
    }
}

/// The command has ended and left processes running. They keep the lock until they have ended, also those that have closed their copy
/// of the connection; when the agent is gone they are killed.
fn wait_for_rest(events: &Receiver<Event>, limit: Duration) {
    const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
    os::close_standard_output();
    let mut pause = PAUSES[0];
    while os::any_descendant_except(&private_agent::ARGS, &[]) {
        if let Ok(Event::AgentGone) = events.recv_timeout(pause) {
            thread::sleep(limit);
            os::kill_descendants_except(&private_agent::ARGS, &[], None);
        }
        // It may be a daemon, which lives for ever.
        pause = (pause * 2).min(PAUSES[1]);
    }
}

/// The process that becomes the command. It dies with the keeper.
pub(crate) fn child(args: &ChildArgs) -> Result<Outcome, Fault> {
    if !os::die_with_parent(args.parent) {
        return Ok(Outcome::Code(1));
    }
    let Some((program, words)) = args.command.split_first() else { return Ok(Outcome::Code(NOT_FOUND)) };
    let error = os::exec(Command::new(program).args(words));
    terminal::error(&format!("cannot run '{}': {error}", program.to_string_lossy()));
    Ok(Outcome::Code(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_between_run_and_its_keeper_are_read_as_they_were_written() {
        let signal = ReceivedSignal { number: 2, from_terminal: true };
        for order in [Order::Signal(signal), Order::Terminate, Order::Kill] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for status in [None, Some(ExitStatus::from_raw(0)), Some(ExitStatus::from_raw(9))] {
            let report = Report { status, left_running: status.is_some() };
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        for line in ["", "signal", "signal x true", "ended", "ended 0"] {
            assert!(line.parse::<Order>().is_err() && line.parse::<Report>().is_err(), "{line:?}");
        }
    }
}
