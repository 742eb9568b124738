//! The keeper: a process between `run` and its command, which leaves nothing at work when the lock is not held any more.
//!
//! Every process that the command starts, and whose parent ends, becomes a child of the keeper, however far it has detached itself. So
//! the keeper can find them all. It talks to the agent in place of `run`, and knows until when the lock is held. When the session is not
//! renewed, the lock is broken or the agent ends, the command gets SIGTERM, then its grace, and SIGKILL before the lock can be somebody
//! else's. When `run` is gone, the keeper kills all at once, and only then closes its copy of the client connection, which keeps the lock.
//! Each of the three may be stopped or killed at any moment:
//!
//! - `run` is killed: the keeper notices, kills the command and all it started, then lets the lock go. `run` is stopped: it is not needed.
//! - the keeper is killed: the command dies with it, and `run`, to which the rest falls then, kills that. The keeper is stopped: `run`
//!   knows the last deadline that it was told, and kills all a little before it.
//! - the agent is stopped or killed: no deadline comes any more, and the last one counts.
//!
//! If the command ends by itself and leaves processes running, the keeper stays with them, and the lock is theirs until they end.
//!
//! A process of another user, such as one that `sudo` started, cannot be killed by ours. If `run` is killed the lock stays with it
//! until it has ended by itself. If the session ends nothing can be done.

use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hallpass_agent::line_protocol::{Request, Response};
use hallpass_agent::{Client, Handover, Holding, now};

use super::args::{ChildArgs, HoldArgs, KeeperArgs};
use super::private_agent;
use crate::exit::{Fault, NOT_EXECUTABLE, NOT_FOUND, Outcome};
use crate::os::{ForwardedSignals, Process, ReceivedSignal};
use crate::{os, terminal};

/// How often to look at the time, whatever happens: the system's timers stand still while a machine is suspended.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Whoever wakes up so much later than it wanted to was paused: by a signal, with the whole machine, or for want of a processor.
const PAUSE: Duration = Duration::from_millis(500);
/// How long to wait after a pause for what the agent has said meanwhile.
const CATCH_UP_TIME: Duration = Duration::from_millis(50);
/// How long a release may take before the keeper ends anyway: closing the connection releases too.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// What `run` tells the keeper, one line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Signal(ReceivedSignal),
    /// SIGKILL for the command and everything it started.
    Kill,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(ReceivedSignal { number, from_terminal }) => write!(f, "signal {number} {from_terminal}"),
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
            ["kill"] => Ok(Self::Kill),
            _ => Err(()),
        }
    }
}

/// What the keeper tells `run`, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Until when the lock is held; none if nothing can take it away.
    Until(Option<u64>),
    /// The command has ended. This is the last line.
    Ended(Ended),
}

/// How the command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// None if the keeper has killed it.
    pub(super) status: Option<ExitStatus>,
    /// Processes that the command started are still running.
    pub(super) left_running: bool,
    /// Why the lock was lost, if it was.
    pub(super) lost: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(until) => write!(f, "until {}", until.map_or("unknown".to_owned(), |until| until.to_string())),
            Self::Ended(Ended { status, left_running, lost }) => {
                let status = status.map_or("unknown".to_owned(), |status| status.into_raw().to_string());
                write!(f, "ended {status} {left_running} {}", lost.as_deref().unwrap_or_default())
            }
        }
    }
}

impl FromStr for Report {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.trim_end_matches('\n').splitn(4, ' ');
        let mut next = || words.next().ok_or(());
        match next()? {
            "until" => Ok(Self::Until(known(next()?)?)),
            "ended" => Ok(Self::Ended(Ended {
                status: known(next()?)?.map(ExitStatus::from_raw),
                left_running: next()?.parse().map_err(drop)?,
                lost: Some(next()?.to_owned()).filter(|why| !why.is_empty()),
            })),
            _ => Err(()),
        }
    }
}

/// A value, or the word for one that is not known.
fn known<T: FromStr>(word: &str) -> Result<Option<T>, ()> {
    if word == "unknown" { Ok(None) } else { word.parse().map(Some).map_err(drop) }
}

/// The keeper, as `run` sees it.
pub(super) struct Keeper {
    control: UnixStream,
    process: Child,
    /// Keeps the lock, should the keeper be killed, until what it kept is dead.
    _connection: OwnedFd,
}

impl Keeper {
    /// Starts a keeper, which goes on with the connection and starts the command.
    pub(super) fn start(args: &HoldArgs, client: Client, holding: &Holding, grace: Duration) -> std::io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let process = os::this_program_again()?
            .args(["__keeper", &grace.as_millis().to_string(), "--"])
            .args(&args.command)
            .env("HALLPASS_LOCK", args.lock())
            .env("HALLPASS_OUTER_LOCKS", serde_json::json!(args.outer_locks()).to_string())
            .env("HALLPASS_FENCE", holding.fence.to_string())
            .env("HALLPASS_NODE", &client.node)
            .stdin(OwnedFd::from(theirs))
            .spawn()?;
        let (handover, connection) = client.hand_over();
        let input = os::standard_input()?;
        // A keeper that is gone already, by an early Ctrl-C for example, is noticed by its missing report.
        let _ = os::send_descriptors(&control, [input.as_fd(), connection.as_fd()]);
        let _ = writeln!(&control, "{}", serde_json::to_string(&handover)?);
        Ok(Self { control, process, _connection: connection })
    }

    /// Waits for the process to end, which it does right after its last report, and returns its exit code as a shell would.
    pub(super) fn wait(mut self) -> Option<u8> {
        self.process.wait().ok().and_then(os::exit_code)
    }

    pub(super) fn forward(&self, signal: ReceivedSignal) {
        self.order(Order::Signal(signal));
    }

    pub(super) fn kill(&self) {
        self.order(Order::Kill);
    }

    /// One that is gone is noticed by its [reports](Self::reports).
    fn order(&self, order: Order) {
        let _ = writeln!(&self.control, "{order}");
    }

    /// What the keeper says, until it has ended.
    pub(super) fn reports(&self) -> std::io::Result<impl Iterator<Item = Report> + Send + use<>> {
        let lines = BufReader::new(self.control.try_clone()?).lines();
        Ok(lines.map_while(Result::ok).filter_map(|line| line.parse().ok()))
    }
}

/// What can happen while the keeper waits.
enum Event {
    Order(Order),
    RunGone,
    Said(Response),
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
    let mut orders = BufReader::new(control.try_clone().map_err(failed("copy the connection"))?);
    let mut handover = String::new();
    let _ = orders.read_line(&mut handover);
    // Without these 'run' was killed before it sent them: nothing has been started.
    let (Ok([input, connection]), Ok(handover)) =
        (<[OwnedFd; 2]>::try_from(received), serde_json::from_str::<Handover>(&handover))
    else {
        return Ok(Outcome::Code(1));
    };
    let watched = connection.try_clone().map_err(failed("copy the connection"))?;
    let mut client = Client::take_over(handover, connection).map_err(failed("take over the connection"))?;
    let Some(holding) = catch_up(&mut client, &watched) else {
        let ended = Ended { status: None, left_running: false, lost: Some(EXPIRED.to_owned()) };
        let _ = writeln!(&control, "{}", Report::Ended(ended));
        return Ok(Outcome::Fine);
    };
    os::make_inheritable(&watched).map_err(failed("pass the connection on"))?;
    let command = start(args, input).map_err(failed("start a process"))?;
    let sender = client.try_clone().map_err(failed("copy the connection"))?;
    let (reports, told) = tell(control);
    let events = watch(orders, client, command);
    let grace_ns = Duration::from_millis(args.grace_ms).as_nanos() as u64;
    let mut keeping = Keeping { holding, grace_ns, stopping: None, was_paused: false, reports: Some(reports) };
    let ended = keeping.wait_for_end(&events, command, sender);
    let left_running = ended.left_running;
    keeping.report(Report::Ended(ended));
    keeping.reports = None;
    let told = told.join().unwrap_or(false);
    match left_running {
        true if told => keeping.wait_for_rest(&events),
        true => drop(os::kill_descendants_except(&private_agent::ARGS, &[], None)),
        false => {}
    }
    drop(watched);
    Ok(Outcome::Fine)
}

const EXPIRED: &str = "its session could not be renewed";
/// The agent says so when the lock is released.
pub(super) const LOST_BEFORE: &str = "the command ended too late";
const AGENT_GONE: &str = "its agent is gone";

/// If `run` was paused since the lock was granted, the lock may be somebody else's: none then. Otherwise it is held as the agent has said
/// since.
fn catch_up(client: &mut Client, connection: &OwnedFd) -> Option<Holding> {
    while client.has_buffered() || os::is_readable(connection) {
        client.receive_within(Some(CATCH_UP_TIME)).ok()?;
    }
    let (lock, fence) = (std::env::var("HALLPASS_LOCK").ok()?, std::env::var("HALLPASS_FENCE").ok()?);
    let holding = client.holding(&lock, fence.parse().ok()?)?.clone();
    (due(&holding, None, 0, now()) == Due::Nothing && !os::is_closed(connection)).then_some(holding)
}

fn start(args: &KeeperArgs, input: OwnedFd) -> std::io::Result<Process> {
    let child = os::this_program_again()?
        .args(["__child", &std::process::id().to_string(), "--"])
        .args(&args.command)
        .stdin(input)
        .spawn()?;
    Ok(Process::of(&child))
}

/// Starts a thread that tells `run` what is reported: if `run` is stopped and reads nothing, the keeper does not wait for it. The thread
/// ends with its sender, and says whether `run` was there all the time.
fn tell(mut control: UnixStream) -> (Sender<Report>, JoinHandle<bool>) {
    let (sender, reports) = channel::<Report>();
    (sender, thread::spawn(move || reports.iter().all(|report| writeln!(control, "{report}").is_ok())))
}

/// Starts threads that watch `run`, the agent and the command.
fn watch(orders: BufReader<UnixStream>, mut client: Client, command: Process) -> Receiver<Event> {
    let (sender, events) = channel();
    let (of_run, of_agent): (Sender<Event>, Sender<Event>) = (sender.clone(), sender.clone());
    thread::spawn(move || {
        for line in orders.lines().map_while(Result::ok) {
            if let Ok(order) = line.parse() {
                let _ = of_run.send(Event::Order(order));
            }
        }
        let _ = of_run.send(Event::RunGone);
    });
    thread::spawn(move || {
        while let Ok(said) = client.receive() {
            let _ = of_agent.send(Event::Said(said));
        }
        let _ = of_agent.send(Event::AgentGone);
    });
    thread::spawn(move || os::reap_children(command, |status| drop(sender.send(Event::Exited(status)))));
    events
}

/// What the keeper knows about the lock.
struct Keeping {
    holding: Holding,
    grace_ns: u64,
    /// Why the command is to end, and when it is killed.
    stopping: Option<(String, u64)>,
    /// This process was paused before the last event.
    was_paused: bool,
    /// To `run`, until the command has ended.
    reports: Option<Sender<Report>>,
}

/// What the time demands.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// SIGTERM, and SIGKILL at this time.
    Terminate(u64),
    Kill,
}

/// What the time demands: `kill_at` is when the command is to be killed in any case.
fn due(holding: &Holding, kill_at: Option<u64>, grace_ns: u64, now: u64) -> Due {
    let until = dead_by(holding);
    match kill_at {
        _ if holding.is_over(now) || until.into_iter().chain(kill_at).any(|at| now >= at) => Due::Kill,
        Some(_) => Due::Nothing,
        None => match until.filter(|until| now >= until.saturating_sub(grace_ns)) {
            Some(until) => Due::Terminate(until),
            None => Due::Nothing,
        },
    }
}

/// When the command is killed: a tenth of the session before its end. On a busy machine it takes time until the keeper gets a processor to
/// notice that the time has come.
fn dead_by(holding: &Holding) -> Option<u64> {
    let margin_ns = Duration::from_millis(holding.ttl_ms).as_nanos() as u64 / 10;
    holding.valid_until_ns().map(|until| until.saturating_sub(margin_ns))
}

impl Keeping {
    /// Waits for the command to end, then releases the lock. The command is killed with all it started if the lock is lost, `run` says so or
    /// is gone.
    fn wait_for_end(&mut self, events: &Receiver<Event>, command: Process, mut client: Client) -> Ended {
        self.report(Report::Until(self.holding.valid_until_ns()));
        loop {
            // After a pause all that has happened meanwhile comes first: the lock may be held for longer than was known before.
            if !self.was_paused {
                match due(&self.holding, self.kill_at(), self.grace_ns, now()) {
                    Due::Nothing => {}
                    Due::Terminate(kill_at) => {
                        command.terminate();
                        let why = if self.holding.is_broken() { "an operator has broken it" } else { EXPIRED };
                        self.stopping = Some((why.to_owned(), kill_at));
                    }
                    Due::Kill => return self.killed(Some(command)),
                }
            }
            match self.next(events, LOOK_INTERVAL) {
                Ok(Event::Exited(status)) => {
                    if self.stopping.is_some() {
                        // What it left running has no time either.
                        return Ended { status, ..self.killed(None) };
                    }
                    let left_running = os::any_descendant_except(&private_agent::ARGS, &[]);
                    let held = left_running || self.release(events, &mut client);
                    return Ended { status, left_running, lost: (!held).then(|| LOST_BEFORE.to_owned()) };
                }
                Ok(Event::Order(Order::Signal(signal))) => command.forward(signal),
                Ok(Event::Said(said)) => self.hear(&said, Some(command)),
                Ok(Event::AgentGone) => self.stop(AGENT_GONE, Some(command)),
                Err(RecvTimeoutError::Timeout) => self.was_paused = false,
                Ok(Event::Order(Order::Kill) | Event::RunGone) | Err(_) => return self.killed(Some(command)),
            }
        }
    }

    /// Kills everything: the command, unless it has ended, and what it started.
    fn killed(&mut self, command: Option<Process>) -> Ended {
        if let Some(command) = command {
            command.kill();
        }
        os::kill_descendants_except(&private_agent::ARGS, &[], None);
        let lost = self.stopping.take().map_or_else(|| EXPIRED.to_owned(), |(why, _)| why);
        Ended { status: None, left_running: false, lost: Some(lost) }
    }

    /// The command has ended and left processes running. They keep the lock until they have ended, also those that have closed their copy
    /// of the connection; when the lock is lost they are killed.
    fn wait_for_rest(&mut self, events: &Receiver<Event>) {
        const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
        os::close_standard_output();
        let mut pause = PAUSES[0];
        while os::any_descendant_except(&private_agent::ARGS, &[]) {
            if !self.was_paused && due(&self.holding, self.kill_at(), 0, now()) == Due::Kill {
                os::kill_descendants_except(&private_agent::ARGS, &[], None);
            }
            match self.next(events, pause) {
                Ok(Event::Said(said)) => self.hear(&said, None),
                Ok(Event::AgentGone) => self.stop(AGENT_GONE, None),
                Err(RecvTimeoutError::Disconnected) => thread::sleep(pause),
                Err(RecvTimeoutError::Timeout) => self.was_paused = false,
                Ok(_) => {}
            }
            // It may be a daemon, which lives for ever.
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// The next event, if one comes within this time and before the next deadline.
    fn next(&mut self, events: &Receiver<Event>, limit: Duration) -> Result<Event, RecvTimeoutError> {
        let before = now();
        let until = dead_by(&self.holding);
        let terminate_at = until.map(|until| until.saturating_sub(self.grace_ns)).filter(|_| self.stopping.is_none());
        let next = until.into_iter().chain(terminate_at).chain(self.kill_at()).min();
        let left = next.map_or(limit, |at| Duration::from_nanos(at.saturating_sub(before)));
        let wait = if self.was_paused { CATCH_UP_TIME } else { left.min(limit) };
        let event = events.recv_timeout(wait);
        if Duration::from_nanos(now() - before) > wait + PAUSE {
            self.was_paused = true;
            // There may be more than what was waited for.
            return event.or_else(|_| events.recv_timeout(CATCH_UP_TIME));
        }
        event
    }

    fn kill_at(&self) -> Option<u64> {
        self.stopping.as_ref().map(|(_, at)| *at)
    }

    /// The agent has said something.
    fn hear(&mut self, said: &Response, command: Option<Process>) {
        let before = self.holding.valid_until_ns();
        self.holding.handle(said);
        if self.holding.valid_until_ns() != before {
            self.report(Report::Until(self.holding.valid_until_ns()));
        }
        if let Response::Ending { why } = said {
            self.stop(why, command);
        }
    }

    /// The command is to end: SIGTERM now, SIGKILL after the grace. After a pause there is no time for a grace: the agent may have said so,
    /// or ended, long ago.
    fn stop(&mut self, why: &str, command: Option<Process>) {
        if self.stopping.is_none() {
            let grace_ns = if self.was_paused { 0 } else { self.grace_ns };
            self.stopping = Some((why.to_owned(), now() + grace_ns));
            if let Some(command) = command {
                command.terminate();
            }
        }
    }

    fn report(&self, report: Report) {
        if let Some(reports) = &self.reports {
            let _ = reports.send(report);
        }
    }

    /// Releases the lock; false if the agent says that it was lost before.
    fn release(&self, events: &Receiver<Event>, client: &mut Client) -> bool {
        let Holding { lock, fence, .. } = &self.holding;
        if client.send(&Request::Release { lock: lock.clone(), fence: *fence }).is_err() {
            return true;
        }
        let end = Instant::now() + RELEASE_TIMEOUT;
        loop {
            match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Event::Said(Response::Released { held })) => return held,
                // Closing the connection releases too.
                Ok(Event::AgentGone) | Err(_) => return true,
                Ok(_) => {}
            }
        }
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
        for order in [Order::Signal(signal), Order::Kill] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for (status, lost) in [(None, Some("it was lost, for ever")), (Some(0), None), (Some(9), Some("why"))] {
            let (status, lost) = (status.map(ExitStatus::from_raw), lost.map(str::to_owned));
            let report = Report::Ended(Ended { status, left_running: status.is_some(), lost });
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        for until in [None, Some(7)] {
            assert_eq!(Report::Until(until).to_string().parse(), Ok(Report::Until(until)));
        }
        for line in ["", "signal", "signal x true", "ended", "ended 0", "until", "until x"] {
            assert!(line.parse::<Order>().is_err() && line.parse::<Report>().is_err(), "{line:?}");
        }
    }

    #[test]
    fn sigterm_comes_a_grace_before_the_end_and_sigkill_before_the_session_does() {
        let granted =
            |valid_until_ns| Response::Granted { lock: "x".to_owned(), fence: 1, valid_until_ns, ttl_ms: 1000 };
        let holding = Holding::of(&granted(Some(2_000_000_000))).unwrap();
        let (grace, kill_at) = (300_000_000, 1_900_000_000);
        assert_eq!(due(&holding, None, grace, 1_599_999_999), Due::Nothing);
        assert_eq!(due(&holding, None, grace, 1_600_000_000), Due::Terminate(kill_at));
        assert_eq!(due(&holding, Some(kill_at), grace, 1_899_999_999), Due::Nothing, "SIGTERM comes once");
        assert_eq!(due(&holding, Some(kill_at), grace, kill_at), Due::Kill);
        assert_eq!(due(&holding, Some(1_000), grace, 1_000), Due::Kill, "the agent ends");
        assert_eq!(due(&holding, Some(u64::MAX), grace, kill_at), Due::Kill, "the session ends first");
        let for_ever = Holding::of(&granted(None)).unwrap();
        assert_eq!(due(&for_ever, None, grace, u64::MAX), Due::Nothing);
    }
}
