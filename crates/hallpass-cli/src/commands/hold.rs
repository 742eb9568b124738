//! Runs a command while a lock is held.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use hallpass_agent::{Client, Holding, now};

use super::args::RunArgs;
use super::private_agent;
use super::supervisor::{EXPIRED, Ended, LOST_BEFORE_END, Report, Supervisor};
use crate::exit::{Fault, LOCK_LOST, Outcome};
use crate::os::{ForwardedSignals, ReceivedSignal};
use crate::{os, terminal};

/// How long processes may take to end after SIGKILL. Processes of other users cannot be killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The exit code after SIGKILL.
const KILLED: u8 = 128 + 9;
/// How often to look at the time.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How long the supervisor has to report after a pause of this process, which it may have shared.
const CATCH_UP_TIME: Duration = Duration::from_millis(250);

/// What can happen while the command runs.
enum Event {
    Report(Report),
    /// The supervisor has ended.
    SupervisorGone,
    Signal(ReceivedSignal),
}

/// How the command ended.
enum End {
    Exited(Ended),
    /// It was stopped because the lock was lost, for this reason.
    Stopped(String),
    /// The supervisor has ended without a report.
    SupervisorGone,
}

pub(super) fn hold(args: &RunArgs, client: Client, holding: &Holding) -> Result<Outcome, Fault> {
    let failed = |what: &'static str| move |error: std::io::Error| Fault::Failed(format!("cannot {what}: {error}"));
    // Collect signals before the command starts, so that each one is passed on to it.
    let signals = ForwardedSignals::collect().map_err(failed("watch for signals"))?;
    // These are children of the program that called exec to become this process.
    let children_before = os::children();
    // Orphans become children of the supervisor first. If it is killed they become children of this process.
    os::adopt_orphans();
    let grace = grace(args, Duration::from_millis(holding.ttl_ms));
    let supervisor = Supervisor::start(args, client, holding, grace).map_err(failed("start a process"))?;
    let events = watch(signals, &supervisor).map_err(failed("copy a connection"))?;
    let lock = args.lock().escape_debug();
    let kill_rest = || {
        thread::spawn(os::reap_all_children);
        os::kill_descendants_except(&private_agent::ARGS, &children_before, Some(KILL_TIMEOUT))
    };
    match wait_for_end(&events, &supervisor, holding) {
        End::Stopped(why) if why == LOST_BEFORE_END => {
            Err(Fault::Code(LOCK_LOST, format!("lock '{lock}' was lost before the command ended")))
        }
        End::Stopped(why) => {
            let end = if kill_rest() { "the command was stopped" } else { "not all of the command could be stopped" };
            Err(Fault::Code(LOCK_LOST, format!("lock '{lock}' was lost: {why}; {end}")))
        }
        End::SupervisorGone => {
            // Either a signal ended all before the supervisor started anything, or it has reported an error itself.
            let code = supervisor.wait().filter(|code| *code != KILLED);
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
        End::Exited(Ended { left_running: true, status, .. }) => {
            // As with flock(1), a process that the command left running keeps the lock. The supervisor stays with it.
            if args.explains() {
                terminal::note(&format!(
                    "lock '{lock}' stays held until the processes that the command left running end"
                ));
            }
            Ok(Outcome::Code(status.and_then(os::exit_code).unwrap_or(1)))
        }
        End::Exited(Ended { status, .. }) => {
            supervisor.wait();
            Ok(Outcome::Code(status.and_then(os::exit_code).unwrap_or(1)))
        }
    }
}

/// How long the command has between SIGTERM and SIGKILL.
fn grace(args: &RunArgs, ttl: Duration) -> Duration {
    let grace = args.grace.unwrap_or(ttl / 3).min(ttl / 2);
    if args.grace.is_some_and(|wanted| wanted > grace) {
        terminal::note(&format!("--grace is at most half the agent's session: {grace:?}"));
    }
    grace
}

/// Starts threads that watch the signals and the supervisor.
fn watch(signals: ForwardedSignals, supervisor: &Supervisor) -> std::io::Result<Receiver<Event>> {
    let (sender, events) = channel();
    let of_signals = sender.clone();
    thread::spawn(move || signals.for_each(|signal| of_signals.send(Event::Signal(signal)).is_ok()));
    let reports = supervisor.reports()?;
    thread::spawn(move || {
        for report in reports {
            let _ = sender.send(Event::Report(report));
        }
        let _ = sender.send(Event::SupervisorGone);
    });
    Ok(events)
}

/// Waits for the command to end. The supervisor ends it in time if the lock is lost. If the supervisor is stopped, this process does it, a
/// twentieth of a session before the last deadline that it knows: later than the supervisor would have.
fn wait_for_end(events: &Receiver<Event>, supervisor: &Supervisor, holding: &Holding) -> End {
    let margin_ns = Duration::from_millis(holding.ttl_ms).as_nanos() as u64 / 20;
    let kill_at = |valid_until: Option<u64>| valid_until.map(|until| until.saturating_sub(margin_ns));
    let mut deadline = kill_at(holding.valid_until_ns());
    let mut patience: Option<Instant> = None;
    loop {
        let before = now();
        let left = deadline.map_or(LOOK_INTERVAL, |at| Duration::from_nanos(at.saturating_sub(before)));
        let wait = if patience.is_some() { CATCH_UP_TIME / 10 } else { left.min(LOOK_INTERVAL) };
        let event = events.recv_timeout(wait);
        if Duration::from_nanos(now() - before) > wait + CATCH_UP_TIME {
            patience = Some(Instant::now() + CATCH_UP_TIME);
        }
        match event {
            Ok(Event::Report(Report::Until(until))) => deadline = kill_at(until),
            Ok(Event::Report(Report::Ended(Ended { lost: Some(why), .. }))) => return End::Stopped(why),
            Ok(Event::Report(Report::Ended(ended))) => return End::Exited(ended),
            Ok(Event::Signal(signal)) => supervisor.forward(signal),
            Ok(Event::SupervisorGone) | Err(RecvTimeoutError::Disconnected) => return End::SupervisorGone,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let is_over = deadline.is_some_and(|at| now() >= at);
        if is_over && patience.is_none_or(|end| Instant::now() >= end) {
            // The caller kills what is left, the supervisor included: it is stopped.
            supervisor.kill_command();
            return End::Stopped(EXPIRED.to_owned());
        }
        patience = patience.filter(|_| is_over);
    }
}
