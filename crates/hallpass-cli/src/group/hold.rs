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
    /// It was stopped because its keeper was killed.
    KeeperGone,
}

pub(super) fn hold(args: &HoldArgs, client: Client, fence: u64) -> Result<Outcome, Fault> {
    let failed = |what: &'static str| move |error: std::io::Error| Fault::Failed(format!("cannot {what}: {error}"));
    // Before the command starts, so that a signal that comes in between is passed on to it.
    let signals = ForwardedSignals::collect().map_err(failed("watch for signals"))?;
    // The keeper has them first. If it is killed they fall to this process.
    os::adopt_orphans();
    let keeper = Keeper::start(args, &client, fence).map_err(failed("start a process"))?;
    let grace = grace(args, client.ttl);
    let mut sender = client.try_clone().map_err(failed("copy the connection"))?;
    let events = watch(client, signals, &keeper);
    let lock = args.lock().escape_debug();
    let kill_rest = || {
        thread::spawn(os::reap_all_children);
        os::kill_descendants_except(&private_agent::ARGS, Some(KILL_TIMEOUT))
    };
    match wait_for_end(&events, &keeper, grace) {
        End::Stopped(why) => {
            let end = if kill_rest() { "the command was stopped" } else { "not all of the command could be stopped" };
            Err(Fault::Code(LOCK_LOST, format!("lock '{lock}' was lost: {why}; {end}")))
        }
        End::KeeperGone => {
            kill_rest();
            Err(Fault::Code(
                128 + 9,
                "the process that watches the command was killed; the command was stopped".to_owned(),
            ))
        }
        End::Exited(Report { status, left_running }) => {
            keeper.wait();
            // As with flock(1), a process that the command left running keeps the lock, by its copy of the connection.
            if !left_running && !release(&mut sender, &events, args.lock(), fence) {
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
    let mut lost: Option<String> = None;
    let mut deadline: Option<Instant> = None;
    let mut killed = false;
    loop {
        let event = match deadline {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(Event::Ended(report)) => {
                return match (lost, report) {
                    (Some(why), _) => End::Stopped(why),
                    // This process was paused, and the keeper noticed it first.
                    (None, Some(Report { status: None, .. })) => End::Stopped(AGENT_GONE.to_owned()),
                    (None, Some(report)) => End::Exited(report),
                    (None, None) => End::KeeperGone,
                };
            }
            Ok(Event::Signal(signal)) => keeper.forward(signal),
            Ok(Event::Response(Response::Ending { why })) if lost.is_none() => {
                (lost, deadline) = (Some(why), Some(Instant::now() + grace));
                keeper.terminate();
            }
            Ok(Event::Disconnected) if lost.is_none() => {
                (lost, deadline) = (Some(AGENT_GONE.to_owned()), Some(Instant::now() + grace));
                keeper.terminate();
            }
            Ok(Event::Disconnected | Event::Response(_)) => {}
            Err(RecvTimeoutError::Timeout) if !killed => {
                killed = true;
                deadline = Some(Instant::now() + KILL_TIMEOUT);
                keeper.kill();
            }
            Err(_) => return lost.map_or(End::KeeperGone, End::Stopped),
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
