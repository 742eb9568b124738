//! The supervisor's process.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hallpass_agent::line_protocol::{Request, Response};
use hallpass_agent::{Client, ClientError, Handover, Holding, now};

use super::child::ProcessTree;
use super::deadline::{Due, dead_by, due};
use super::wire::{Ended, Order, Report};
use super::{EXPIRED, LOST_BEFORE_END};
use crate::commands::args::SupervisorArgs;
use crate::exit::{Fault, Outcome};
use crate::os::{self, ForwardedSignals, Process};

/// How often to look at the time, whatever happens: the system's timers stand still while a machine is suspended.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// A process that wakes up this much later than planned was paused: by a signal, with the whole machine, or for want of a processor.
const PAUSE: Duration = Duration::from_millis(500);
/// How long to wait after a pause for what the agent has said meanwhile.
const CATCH_UP_TIME: Duration = Duration::from_millis(50);
/// How long a release may take before the supervisor ends anyway: closing the connection releases too.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a lock was lost, if the connection to the agent ended.
const AGENT_GONE: &str = "its agent is gone";

/// What can happen while the supervisor waits.
enum Event {
    Order(Order),
    RunGone,
    AgentSaid(Response),
    AgentGone,
    Exited(Option<ExitStatus>),
}

/// Runs the supervisor's process.
pub(crate) fn supervise(args: &SupervisorArgs) -> Result<Outcome, Fault> {
    let failed = |what: &'static str| move |error: std::io::Error| Fault::Failed(format!("cannot {what}: {error}"));
    os::name_process();
    os::keep_exit_statuses();
    os::adopt_orphans();
    // Signals are for the command. A supervisor that ended by Ctrl-C could not watch it.
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
    let (tree, command) = ProcessTree::start(args, input).map_err(failed("start a process"))?;
    let sender = client.try_clone().map_err(failed("copy the connection"))?;
    let (reports, reporter) = start_reporter(control);
    let events = watch(orders, client, command);
    let grace_ns = Duration::from_millis(args.grace_ms).as_nanos() as u64;
    let mut supervision =
        Supervision { tree, holding, grace_ns, stopping: None, was_paused: false, reports: Some(reports) };
    let ended = supervision.wait_for_end(&events, sender);
    let left_running = ended.left_running;
    supervision.report(Report::Ended(ended));
    supervision.reports = None;
    let run_was_told = reporter.join().unwrap_or(false);
    match left_running {
        true if run_was_told => supervision.wait_for_rest(&events),
        true => supervision.tree.kill(),
        false => {}
    }
    drop(watched);
    Ok(Outcome::Fine)
}

/// Reads what the agent has said since the lock was granted. Returns `None` if `run` was paused since then and somebody else may hold the
/// lock now.
fn catch_up(client: &mut Client, connection: &OwnedFd) -> Option<Holding> {
    while client.has_buffered() || os::is_readable(connection) {
        client.receive_within(Some(CATCH_UP_TIME)).ok()?;
    }
    let (lock, fence) = (std::env::var("HALLPASS_LOCK").ok()?, std::env::var("HALLPASS_FENCE").ok()?);
    let holding = client.holding(&lock, fence.parse().ok()?)?.clone();
    (due(&holding, None, 0, now()) == Due::Nothing && !os::is_closed(connection)).then_some(holding)
}

/// Starts a thread that sends reports to `run`. If `run` is stopped and reads nothing, only this thread waits. It ends with its sender,
/// and returns whether every report was sent.
fn start_reporter(mut control: UnixStream) -> (Sender<Report>, JoinHandle<bool>) {
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
        loop {
            let event = match client.receive() {
                Ok(said) => Event::AgentSaid(said),
                // The command has the connection too, and asked for something.
                Err(ClientError::Refused(_)) => continue,
                Err(_) => break,
            };
            let _ = of_agent.send(event);
        }
        let _ = of_agent.send(Event::AgentGone);
    });
    thread::spawn(move || os::reap_children(command, |status| drop(sender.send(Event::Exited(status)))));
    events
}

/// The command, and what the supervisor knows about the lock.
struct Supervision {
    tree: ProcessTree,
    holding: Holding,
    grace_ns: u64,
    /// Why the command must end, and when it is killed.
    stopping: Option<(String, u64)>,
    /// This process was paused before the last event.
    was_paused: bool,
    /// To `run`, until the command has ended.
    reports: Option<Sender<Report>>,
}

impl Supervision {
    /// Waits for the command to end, then releases the lock. Kills the command and all it started if the lock is lost, or if `run` orders it
    /// or has ended.
    fn wait_for_end(&mut self, events: &Receiver<Event>, mut client: Client) -> Ended {
        self.report(Report::Until(self.holding.valid_until_ns()));
        loop {
            // After a pause all that has happened meanwhile comes first: the lock may be held for longer than was known before.
            if !self.was_paused {
                match due(&self.holding, self.kill_at(), self.grace_ns, now()) {
                    Due::Nothing => {}
                    Due::Terminate(kill_at) => {
                        self.tree.terminate();
                        let why = if self.holding.is_broken() { "an operator has broken it" } else { EXPIRED };
                        self.stopping = Some((why.to_owned(), kill_at));
                    }
                    Due::Kill => return self.kill(),
                }
            }
            match self.next(events, LOOK_INTERVAL) {
                Ok(Event::Exited(status)) => {
                    self.tree.on_exit();
                    if self.stopping.is_some() {
                        // What the command left running has no time left either.
                        return Ended { status, ..self.kill() };
                    }
                    let left_running = self.tree.is_running();
                    let held = left_running || self.release(events, &mut client);
                    return Ended { status, left_running, lost: (!held).then(|| LOST_BEFORE_END.to_owned()) };
                }
                Ok(Event::Order(Order::Signal(signal))) => self.tree.forward(signal),
                Ok(Event::AgentSaid(said)) => self.on_agent_said(&said),
                Ok(Event::AgentGone) => self.stop(AGENT_GONE),
                Err(RecvTimeoutError::Timeout) => self.was_paused = false,
                Ok(Event::Order(Order::Kill) | Event::RunGone) | Err(_) => return self.kill(),
            }
        }
    }

    /// Kills everything, and says why.
    fn kill(&mut self) -> Ended {
        self.tree.kill();
        let lost = self.stopping.take().map_or_else(|| EXPIRED.to_owned(), |(why, _)| why);
        Ended { status: None, left_running: false, lost: Some(lost) }
    }

    /// Waits until the processes that the command left running have ended. They keep the lock until then, even if they have closed their
    /// copy of the connection. When the lock is lost they are killed.
    fn wait_for_rest(&mut self, events: &Receiver<Event>) {
        const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
        os::close_standard_output();
        let mut pause = PAUSES[0];
        while self.tree.is_running() {
            if !self.was_paused && due(&self.holding, self.kill_at(), 0, now()) == Due::Kill {
                self.tree.kill();
            }
            match self.next(events, pause) {
                Ok(Event::AgentSaid(said)) => self.on_agent_said(&said),
                Ok(Event::AgentGone) => self.stop(AGENT_GONE),
                Err(RecvTimeoutError::Disconnected) => thread::sleep(pause),
                Err(RecvTimeoutError::Timeout) => self.was_paused = false,
                Ok(_) => {}
            }
            // It may be a daemon, which never ends.
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Returns the next event, if one comes within this time and before the next deadline.
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
            // There may be more than the event that was waited for.
            return event.or_else(|_| events.recv_timeout(CATCH_UP_TIME));
        }
        event
    }

    fn kill_at(&self) -> Option<u64> {
        self.stopping.as_ref().map(|(_, at)| *at)
    }

    fn on_agent_said(&mut self, said: &Response) {
        let before = self.holding.valid_until_ns();
        self.holding.handle(said);
        if self.holding.valid_until_ns() != before {
            self.report(Report::Until(self.holding.valid_until_ns()));
        }
        match said {
            Response::Ending { why } => self.stop(why),
            // Somebody else may have it by now.
            Response::Released { held: true } => self.stop_within("the command has released it", 0),
            _ => {}
        }
    }

    /// Ends the command: SIGTERM now, SIGKILL after the grace. After a pause there is no time for a grace: the agent may have said so, or
    /// ended, long ago.
    fn stop(&mut self, why: &str) {
        self.stop_within(why, if self.was_paused { 0 } else { self.grace_ns });
    }

    fn stop_within(&mut self, why: &str, grace_ns: u64) {
        if self.stopping.is_none() {
            self.stopping = Some((why.to_owned(), now() + grace_ns));
            self.tree.terminate();
        }
    }

    fn report(&self, report: Report) {
        if let Some(reports) = &self.reports {
            let _ = reports.send(report);
        }
    }

    /// Releases the lock. Returns false if the agent says that it was lost before.
    fn release(&self, events: &Receiver<Event>, client: &mut Client) -> bool {
        let Holding { lock, fence, .. } = &self.holding;
        if client.send(&Request::Release { lock: lock.clone(), fence: *fence }).is_err() {
            return true;
        }
        let end = Instant::now() + RELEASE_TIMEOUT;
        loop {
            match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Event::AgentSaid(Response::Released { held })) => return held,
                // Closing the connection releases too.
                Ok(Event::AgentGone) | Err(_) => return true,
                Ok(_) => {}
            }
        }
    }
}
