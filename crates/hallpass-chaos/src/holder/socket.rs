//! A client that speaks the agent's line protocol. It does so without the agent's own crate, as a program in another language would.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Holder, Holding, Identity, LOCKS, lock_name};
use crate::clock;
use crate::random::Random;

const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Acquires, works and releases, for ever. Ends when the harness does.
pub(crate) fn hold_through_socket(identity: &Identity, socket: &Path, seed: u64, ttl: Duration) -> std::io::Result<()> {
    let mut holder = Holder::new(identity)?;
    let mut random = Random::new(seed);
    loop {
        // The agent may be gone, stopped, or about to end: the next connection shows.
        let gone = Connection::open(socket).and_then(|connection| contend(&mut holder, connection, &mut random, ttl));
        match gone {
            Err(Gone::Agent) => thread::sleep(RETRY_INTERVAL),
            Err(Gone::Harness(error)) => return Err(error),
            Ok(never) => match never {},
        }
    }
}

enum Gone {
    Agent,
    Harness(std::io::Error),
}

fn contend(
    holder: &mut Holder,
    mut agent: Connection,
    random: &mut Random,
    ttl: Duration,
) -> Result<std::convert::Infallible, Gone> {
    agent.next(None)?;
    loop {
        thread::sleep(Duration::from_millis(random.between(0, 30)));
        let (lock, shared) = (lock_name(random.below(LOCKS)), random.once_in(5));
        // Some give up early: a waiter that leaves must not disturb the others.
        let timeout = random.once_in(6).then_some(200);
        agent.send(&json!({"do": "acquire", "lock": lock, "shared": shared, "timeout_ms": timeout}))?;
        let answer = agent.next(None)?;
        let Some(fence) = answer["fence"].as_u64() else {
            thread::sleep(RETRY_INTERVAL);
            continue;
        };
        let hold = Duration::from_millis(random.between(1, 30));
        let in_storm = if random.once_in(4) { ttl * 3 } else { hold };
        let mut session = Session { deadline: answer["valid_until_ns"].as_u64(), stubborn: random.once_in(4) };
        let held = holder
            .work(&lock, shared, fence, [hold, in_storm], |wait| session.holding(&mut agent, wait))
            .map_err(Gone::Harness)?;
        agent.send(&json!({"do": "release", "lock": lock, "fence": fence}))?;
        if !held {
            // What was said meanwhile is of no interest: a new connection holds nothing.
            return Err(Gone::Agent);
        }
        while agent.next(None)?["is"] != "released" {}
    }
}

/// Until when the lock is held, as far as the agent has said so.
struct Session {
    deadline: Option<u64>,
    /// The client goes on while the session is at risk, which it may, until the lock is lost.
    stubborn: bool,
}

impl Session {
    /// Waits up to this time for the agent to say something.
    fn holding(&mut self, agent: &mut Connection, wait: Duration) -> Holding {
        let said = match agent.next(Some(wait.max(Duration::from_micros(1)))) {
            Err(Gone::Agent | Gone::Harness(_)) => return Holding::Lost,
            Ok(said) => said,
        };
        let holding = match said["is"].as_str() {
            Some("lost") => Holding::Lost,
            Some("session") => {
                self.deadline = said["valid_until_ns"].as_u64();
                Holding::Yes
            }
            Some("at_risk") if self.stubborn => {
                // A lock that was broken is lost before the session is.
                self.deadline = said["valid_until_ns"].as_u64();
                Holding::Yes
            }
            // The session is at risk, or the agent ends.
            Some(_) => Holding::AtRisk,
            None => Holding::Yes,
        };
        if self.deadline.is_some_and(|deadline| clock::now() >= deadline) { Holding::Lost } else { holding }
    }
}

struct Connection {
    stream: UnixStream,
    /// What was read and is no whole line yet.
    rest: Vec<u8>,
}

impl Connection {
    fn open(socket: &Path) -> Result<Self, Gone> {
        let stream = UnixStream::connect(socket).map_err(|_| Gone::Agent)?;
        Ok(Self { stream, rest: Vec::new() })
    }

    fn send(&mut self, request: &Value) -> Result<(), Gone> {
        self.stream.write_all(format!("{request}\n").as_bytes()).map_err(|_| Gone::Agent)
    }

    /// The next line, or null if none comes in time.
    fn next(&mut self, limit: Option<Duration>) -> Result<Value, Gone> {
        self.stream.set_read_timeout(limit).map_err(Gone::Harness)?;
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|_| Gone::Agent);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Gone::Agent),
                Ok(count) => self.rest.extend_from_slice(&bytes[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(Value::Null);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Gone::Agent),
            }
        }
    }
}
