//! Runs a command while a lock is held.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use hallpass_agent::Client;
use hallpass_agent::api::{Request, Response};

use super::args::HoldArgs;
use super::keeper::{Keeper, Report};
use super::private_agent;
use crate::exit::{Fault, LOCK_LOST, Outcome};
use crate::os::{ForwardedSignals, ReceivedSignal};
use crate::{os, terminal};

/// How long a release may take before `run` ends anyway: closing the connection releases too.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long processes may take to end after SIGKILL. Some cannot be killed: those of other users.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The exit code after SIGKILL.
const KILLED: u8 = 128 + 9;
/// How often to look whether this process was paused.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
const AGENT_GONE: &str = "its agent is gone";

/// What can happen while the command runs.
enum Event {
    /// The command has ended; none if the keeper was killed.
    Ended(Option<Report>),
    Signal(ReceivedSignal),
    Response(Response),
    /// The agent has closed the connection, or sent an error: the lock is lost.
    Disconnected,
}

/// How the command ended.
enum End {
    Exited(Report),
    /// It was stopped because the lock was lost, for this reason.
    Stopped(String),
    /// The keeper has ended without a report.
    KeeperGone,
}

pub(super) fn hold(args: &HoldArgs, client: Client, fence: u64) -> Result<Outcome, Fault> {
    let failed = |what: &'static str| move |error: std::io::Error| Fault::Failed(format!("cannot {what}: {error}"));
    // Before the command starts, so that a signal that comes in between is passed on to it.
    let signals = ForwardedSignals::collect().map_err(failed("watch for signals"))?;
    // Of the program that this process was before.
    let children_before = os::children();
    // The keeper has them first. If it is killed they fall to this process.
    os::adopt_orphans();
    let keeper = Keeper::start(args, &client, fence).map_err(failed("start a process"))?;
    let grace = grace(args, client.ttl);
    let mut sender = client.try_clone().map_err(failed("copy the connection"))?;
    let events = watch(client, signals, &keeper);
    let lock = args.lock().escape_debug();
    let kill_rest = || {
        thread::spawn(os::reap_all_children);
        os::kill_descendants_except(&private_agent::ARGS, &children_before, Some(KILL_TIMEOUT))
    };
    match wait_for_end(&events, &keeper, grace) {
        End::Stopped(why) => {
            let end = if kill_rest() { "the command was stopped" } else { "not all of the command could be stopped" };
            Err(Fault::Code(LOCK_LOST, format!("lock '{lock}' was lost: {why}; {end}")))
        }
        End::KeeperGone => {
            // A signal to all, before the keeper could start anything, or an error that it has reported itself.
            let code = keeper.wait().filter(|code| *code != KILLED);
            let all_stopped = kill_rest();
            if let Some(code) = code.filter(|_| all_stopped) {
                return Ok(Outcome::Code(code));
            }
            if !all_stopped {
                // This process has the connection, so the lock is kept meanwhile.
                terminal::note(
                    "the process that watches the command was killed; waiting for what cannot be killed to end",
                );
                os::kill_descendants_except(&private_agent::ARGS, &children_before, None);
            }
            let why = "the process that watches the command was killed; the command was stopped";
            Err(Fault::Code(KILLED, why.to_owned()))
        }
        End::Exited(Report { left_running: true, status }) => {
            // As with flock(1), a process that the command left running keeps the lock. The keeper stays with it.
            if args.explains() {
                terminal::note(&format!("lock '{lock}' is kept by what the command left running, until that ends"));
            }
            Ok(Outcome::Code(status.and_then(os::exit_code).unwrap_or(1)))
        }
        End::Exited(Report { status, .. }) => {
            keeper.wait();
            if !release(&mut sender, &events, args.lock(), fence) {
                return Err(Fault::Code(LOCK_LOST, format!("lock '{lock}' was lost before the command ended")));
            }
            Ok(Outcome::Code(status.and_then(os::exit_code).unwrap_or(1)))
        }
    }
}

/// How long the command has between SIGTERM and SIGKILL.
fn grace(args: &HoldArgs, ttl: Duration) -> Duration {
    let grace = args.grace.unwrap_or(ttl / 3).min(ttl / 2);
    if args.grace.is_some_and(|wanted| wanted > grace) {
        terminal::note(&format!("--grace is at most half the agent's session: {grace:?}"));
    }
    grace
}

/// Starts threads that watch the connection, the signals and the keeper.
fn watch(mut client: Client, signals: ForwardedSignals, keeper: &Keeper) -> Receiver<Event> {
    let (sender, events) = channel();
    let (of_client, of_signals) = (sender.clone(), sender.clone());
    thread::spawn(move || {
        while let Ok(response) = client.receive() {
            if of_client.send(Event::Response(response)).is_err() {
                return;
            }
        }
        let _ = of_client.send(Event::Disconnected);
    });
    thread::spawn(move || signals.for_each(|signal| of_signals.send(Event::Signal(signal)).is_ok()));
    let report = keeper.report();
    thread::spawn(move || drop(sender.send(Event::Ended(report()))));
    events
}

/// Waits for the command to end. If the lock is lost before that: SIGTERM, the grace, SIGKILL.
fn wait_for_end(events: &Receiver<Event>, keeper: &Keeper, grace: Duration) -> End {
    let mut lost: Option<(String, Instant)> = None;
    let mut last_look = Instant::now();
    loop {
        let wait = lost.as_ref().map_or(LOOK_INTERVAL, |(_, end)| end.saturating_duration_since(Instant::now()));
        let event = events.recv_timeout(wait.min(LOOK_INTERVAL));
        let now = Instant::now();
        // After a pause the session may be over: there is no time left for a grace.
        let paused = now.duration_since(last_look) > grace.max(2 * LOOK_INTERVAL);
        last_look = now;
        let end = if paused { now } else { now + grace };
        match event {
            Ok(Event::Ended(report)) => {
                return match (lost, report) {
                    (Some((why, _)), _) => End::Stopped(why),
                    // This process was paused, and the keeper noticed it first.
                    (None, Some(Report { status: None, .. })) => End::Stopped(AGENT_GONE.to_owned()),
                    (None, Some(report)) => End::Exited(report),
                    (None, None) => End::KeeperGone,
                };
            }
            Ok(Event::Signal(signal)) => keeper.forward(signal),
            Ok(Event::Response(Response::Ending { why })) if lost.is_none() => {
                lost = Some((why, end));
                keeper.terminate();
            }
            Ok(Event::Disconnected) if lost.is_none() => {
                lost = Some((AGENT_GONE.to_owned(), end));
                keeper.terminate();
            }
            Ok(Event::Disconnected | Event::Response(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return lost.map_or(End::KeeperGone, |(why, _)| End::Stopped(why)),
        }
        // What is left is killed by the caller, the keeper with it: it may be stopped.
        if let Some((why, _)) = lost.take_if(|(_, end)| *end <= Instant::now()) {
            keeper.kill();
            return End::Stopped(why);
        }
    }
}

/// Releases the lock; false if the agent says that it was lost before.
fn release(client: &mut Client, events: &Receiver<Event>, lock: &str, fence: u64) -> bool {
    if client.send(&Request::Release { lock: lock.to_owned(), fence }).is_err() {
        return true;
    }
    let end = Instant::now() + RELEASE_TIMEOUT;
    loop {
        match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Event::Response(Response::Released { held })) => return held,
            // Closing the connection releases too.
            Ok(Event::Disconnected) | Err(_) => return true,
            Ok(_) => {}
        }
    }
}
