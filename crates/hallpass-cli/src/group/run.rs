//! `hallpass run`: acquires a lock from an agent, then runs the command.

use std::time::{Duration, Instant};

use hallpass_agent::api::{Request, Response};
use hallpass_agent::{Client, ClientError};

use super::args::HoldArgs;
use super::client::unexpected;
use super::hold::hold;
use super::{paths, private_agent};
use crate::exit::{Fault, Outcome, TEMPORARY};
use crate::os;

/// How long `--try` waits for a private agent that has to wait itself.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an agent may take to answer that the lock is not free, or was not in time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &HoldArgs) -> Result<Outcome, Fault> {
    if !(1..=255).contains(&args.lock().len()) {
        return Err(Fault::Usage("a lock's name has 1 to 255 bytes".to_owned()));
    }
    let start = Instant::now();
    os::keep_exit_statuses();
    loop {
        let (mut client, is_private) = match paths::connect(args.socket.as_deref())? {
            Some(client) => (client, false),
            None => (connect_to_private_agent(args, start)?, true),
        };
        match acquire(args, &mut client, start) {
            Ok(fence) => return hold(args, client, fence),
            // A private agent ends by itself or on request: another one can be started.
            Err(NotAcquired::AgentGone) if is_private => {}
            Err(NotAcquired::AgentGone) => return Err(Fault::Unavailable(ClientError::Closed.to_string())),
            Err(NotAcquired::Fault(fault)) => return Err(fault),
        }
    }
}

fn connect_to_private_agent(args: &HoldArgs, start: Instant) -> Result<Client, Fault> {
    let patience = args.timeout.or(args.tries.then_some(TRY_TIMEOUT));
    let client = private_agent::connect(patience.map(|patience| start + patience))?;
    client.ok_or_else(|| not_free(args, Some("this user's agent is not ready yet")))
}

enum NotAcquired {
    AgentGone,
    Fault(Fault),
}

/// Waits for the lock, and returns its fence.
fn acquire(args: &HoldArgs, client: &mut Client, start: Instant) -> Result<u64, NotAcquired> {
    let remaining = args.timeout.map(|limit| limit.saturating_sub(start.elapsed()));
    if remaining.is_some_and(|remaining| remaining.is_zero()) {
        return Err(NotAcquired::Fault(not_free(args, None)));
    }
    let timeout_ms = remaining.map(|remaining| remaining.as_millis() as u64);
    let request = Request::Acquire { lock: args.lock().to_owned(), shared: args.shared, tries: args.tries, timeout_ms };
    // The agent keeps the time. An agent that is stopped cannot, so this process does too, with some time to spare.
    let answer = match remaining.or(args.tries.then_some(Duration::ZERO)) {
        Some(remaining) => client.request_within(&request, remaining + ANSWER_TIMEOUT),
        None => client.request(&request),
    };
    match answer {
        Ok(Response::Granted { fence, .. }) => Ok(fence),
        Ok(Response::Busy { why } | Response::Late { why }) => Err(NotAcquired::Fault(not_free(args, why.as_deref()))),
        Ok(other) => Err(NotAcquired::Fault(unexpected(&other))),
        Err(ClientError::Closed) => Err(NotAcquired::AgentGone),
        Err(error) => Err(NotAcquired::Fault(Fault::Unavailable(error.to_string()))),
    }
}

/// The lock was not free at once, or not in time.
fn not_free(args: &HoldArgs, why: Option<&str>) -> Fault {
    let lock = args.lock().escape_debug();
    let late = args.timeout.map_or("is not free".to_owned(), |limit| format!("was not free within {limit:?}"));
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    Fault::Code(TEMPORARY, format!("lock '{lock}' {late}{why}"))
}
