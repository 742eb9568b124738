//! Runs a command while a lock is held.
//!
//! The command has a copy of the client connection. If this process is killed, the lock is released only when the command is dead
//! too, and the command dies with its parent.

use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use hallpass_agent::Client;
use hallpass_agent::api::{Request, Response};

use super::args::HoldArgs;
use super::private_agent;
use crate::exit::{Fault, LOCK_LOST, Outcome};
use crate::os::{ForwardedSignals, Process, ReceivedSignal};
use crate::{os, terminal};

/// How long a release may take before `run` ends anyway: closing the connection releases too.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// What can happen while the command runs.
enum Event {
    Exited(Option<ExitStatus>),
    Signal(ReceivedSignal),
    Response(Response),
    /// The agent has closed the connection, or sent an error: the lock is lost.
    Disconnected,
}

/// How the command ended.
enum End {
    Exited(Option<ExitStatus>),
    /// It was stopped because the lock was lost.
    Stopped,
}

pub(super) fn hold(args: &HoldArgs, client: Client, fence: u64) -> Result<Outcome, Fault> {
    let failed = |what: &'static str| move |error: std::io::Error| Fault::Failed(format!("cannot {what}: {error}"));
    // Before the command starts, so that a signal that comes in between is passed on to it.
    let signals = ForwardedSignals::collect().map_err(failed("watch for signals"))?;
    os::adopt_orphans();
    let command = start(args, &client, fence).map_err(failed("start a process"))?;
    let grace = grace(args, client.ttl);
    let mut sender = client.try_clone().map_err(failed("copy the connection"))?;
    let events = watch(client, signals, command);
    let lock = args.lock();
    match wait_for_end(&events, command, grace) {
        End::Stopped => {
            os::kill_descendants_except(&private_agent::ARGS);
            Err(Fault::Code(LOCK_LOST, format!("lock '{lock}' was lost; the command was stopped")))
        }
        End::Exited(status) => {
            // As with flock(1), a process that the command left running keeps the lock, by its copy of the connection.
            let left_running = os::any_descendant_except(&private_agent::ARGS);
            if !left_running && !release(&mut sender, &events, lock, fence) {
                return Err(Fault::Code(LOCK_LOST, format!("lock '{lock}' was lost before the command ended")));
            }
            Ok(Outcome::Code(status.and_then(os::exit_code).unwrap_or(1)))
        }
    }
}

fn start(args: &HoldArgs, client: &Client, fence: u64) -> std::io::Result<Process> {
    let _inherited = client.descriptor().and_then(os::make_inheritable)?;
    let child = Command::new(os::this_program()?)
        .args(["__child", &std::process::id().to_string(), "--"])
        .args(&args.command)
        .env("HALLPASS_LOCK", args.lock())
        .env("HALLPASS_FENCE", fence.to_string())
        .env("HALLPASS_NODE", &client.node)
        .spawn()?;
    Ok(Process::of(&child))
}

/// How long the command has between SIGTERM and SIGKILL.
fn grace(args: &HoldArgs, ttl: Duration) -> Duration {
    let grace = args.grace.unwrap_or(ttl / 3).min(ttl / 2);
    if args.grace.is_some_and(|wanted| wanted > grace) {
        terminal::note(&format!("--grace is at most half the agent's session: {grace:?}"));
    }
    grace
}

/// Starts threads that watch the connection, the signals and the command.
fn watch(mut client: Client, signals: ForwardedSignals, command: Process) -> Receiver<Event> {
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
    thread::spawn(move || os::reap_children(command, |status| drop(sender.send(Event::Exited(status)))));
    events
}

/// Waits for the command to end. If the lock is lost before that: SIGTERM, the grace, SIGKILL.
fn wait_for_end(events: &Receiver<Event>, command: Process, grace: Duration) -> End {
    let mut kill_at: Option<Instant> = None;
    loop {
        let event = match kill_at {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        let end = |status| if kill_at.is_some() { End::Stopped } else { End::Exited(status) };
        match event {
            Ok(Event::Exited(status)) => return end(status),
            Ok(Event::Signal(signal)) => command.forward(signal),
            Ok(Event::Disconnected) if kill_at.is_none() => {
                kill_at = Some(Instant::now() + grace);
                command.terminate();
            }
            Ok(Event::Disconnected | Event::Response(_)) => {}
            Err(RecvTimeoutError::Timeout) => {
                command.kill();
                kill_at = Some(Instant::now() + grace);
            }
            Err(RecvTimeoutError::Disconnected) => return end(None),
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
