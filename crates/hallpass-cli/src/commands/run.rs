//! `hallpass run`: acquires a lock from an agent, then runs the command.

use std::time::{Duration, Instant};

use hallpass_agent::line_protocol::{Request, Response, WaitingLine};
use hallpass_agent::{AgentPaths, Client, ClientError, Holding};

use super::args::RunArgs;
use super::client::unexpected;
use super::hold::hold;
use super::paths::{self, Found};
use super::private_agent;
use crate::exit::{Fault, Outcome, TEMPORARY};
use crate::{os, terminal};

/// How long `--try` waits for a private agent that is not ready.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an agent may take to answer that the lock is not free, or was not in time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &RunArgs) -> Result<Outcome, Fault> {
    if !(1..=255).contains(&args.lock().len()) {
        return Err(Fault::Usage("a lock's name has 1 to 255 bytes".to_owned()));
    }
    if args.outer_locks().iter().any(|outer| outer == args.lock()) {
        return Err(Fault::Usage(format!(
            "this is run by 'hallpass run' under lock '{}' already, and would wait for itself forever; if the locks are \
             those of different agents, unset HALLPASS_LOCK and HALLPASS_OUTER_LOCKS",
            args.lock().escape_debug()
        )));
    }
    let start = Instant::now();
    os::keep_exit_statuses();
    loop {
        let (mut client, own) = match paths::find(args.socket.as_deref())? {
            Found::Agent(client) => (client, false),
            Found::Own(own) => (connect_to_own(args, &own, start)?, true),
            Found::Absent(_, fault) => return Err(fault),
        };
        match acquire(args, &mut client, start) {
            Ok(holding) => return hold(args, client, &holding),
            // A private agent ends when it is idle or on request: another one can be started.
            Err(NotAcquired::AgentGone) if own => {}
            Err(NotAcquired::AgentGone) => {
                let why =
                    "the agent has ended, or is ending: it closed the connection; start it again with 'hallpass agent'";
                return Err(Fault::Unavailable(why.to_owned()));
            }
            Err(NotAcquired::Fault(fault)) => return Err(fault),
        }
    }
}

fn connect_to_own(args: &RunArgs, own: &AgentPaths, start: Instant) -> Result<Client, Fault> {
    let patience = args.timeout().or(args.tries().then_some(TRY_TIMEOUT));
    let client = private_agent::connect(own, patience.map(|patience| start + patience), args.explains())?;
    client.ok_or_else(|| not_free(args, Some("this user's agent is not ready yet")))
}

enum NotAcquired {
    AgentGone,
    Fault(Fault),
}

/// Waits for the lock, and returns what is held.
fn acquire(args: &RunArgs, client: &mut Client, start: Instant) -> Result<Holding, NotAcquired> {
    let remaining = args.timeout().map(|limit| limit.saturating_sub(start.elapsed()));
    if remaining.is_some_and(|remaining| remaining.is_zero()) {
        return Err(NotAcquired::Fault(not_free(args, None)));
    }
    let request = Request::Acquire {
        lock: args.lock().to_owned(),
        shared: args.shared,
        tries: args.tries(),
        timeout_ms: remaining.map(|remaining| remaining.as_millis() as u64),
        explain: args.explains(),
        // The command inherits the connection, and need not run as this user.
        hold_only: true,
    };
    // The agent keeps the time. An agent that is stopped cannot, so this process does too, with some time to spare.
    let limit = remaining.or(args.tries().then_some(Duration::ZERO)).map(|limit| limit + ANSWER_TIMEOUT);
    let mut answer = client.request_within(&request, limit);
    while let Ok(Response::Waiting(waiting)) = &answer {
        terminal::note(&format!("waiting for lock '{}': {}", args.lock().escape_debug(), reason(waiting)));
        answer = client.receive_within(limit);
    }
    if let Some(holding) = answer.as_ref().ok().and_then(Holding::of) {
        return Ok(holding);
    }
    match answer {
        Ok(Response::Busy { why } | Response::Late { why }) => Err(NotAcquired::Fault(not_free(args, why.as_deref()))),
        Ok(other) => Err(NotAcquired::Fault(unexpected(&other))),
        Err(ClientError::Closed) => Err(NotAcquired::AgentGone),
        Err(error) => Err(NotAcquired::Fault(Fault::Unavailable(error.to_string()))),
    }
}

/// What a caller waits for, in a few words.
fn reason(waiting: &WaitingLine) -> String {
    let mut reasons = waiting.missing.clone();
    if let Some(holder) = waiting.held_by.first() {
        let more = match waiting.held_by.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        // Of another member this node knows only that it has not agreed.
        let how = if holder.pid.is_some() { "held by" } else { "held, or asked for before, by" };
        reasons.push(format!("{how} {}{more}", holder.describe()));
    }
    if reasons.is_empty() {
        reasons.push("another member holds it, or asked for it before".to_owned());
    }
    if waiting.before > 0 {
        let others = terminal::count(waiting.before as u64, "other", "others");
        reasons.push(format!("{others} of this machine also waiting"));
    }
    reasons.join("; ")
}

/// The lock was not free at once, or not in time.
fn not_free(args: &RunArgs, why: Option<&str>) -> Fault {
    let lock = args.lock().escape_debug();
    let late = args.timeout().map_or("is not free".to_owned(), |limit| format!("was not free within {limit:?}"));
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    Fault::Code(TEMPORARY, format!("lock '{lock}' {late}{why}"))
}
