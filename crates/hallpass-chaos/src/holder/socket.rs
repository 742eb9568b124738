//! A client that speaks the agent's line protocol. It does not use the agent's crate, as a program in another language would not.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Gone, Holder, Holding, Identity, RETRY_INTERVAL, draw_lock};
use crate::clock;
use crate::random::Random;

/// Acquires, works and releases until the harness ends.
pub(crate) fn hold_through_socket(identity: &Identity, socket: &Path, seed: u64, ttl: Duration) -> std::io::Result<()> {
    let mut holder = Holder::new(identity)?;
    let mut random = Random::new(seed);
    loop {
        // The agent may be gone, stopped, or about to end. The next connection shows which.
        let gone = Connection::open(socket)
            .and_then(|connection| contend(&mut holder, connection, &identity.locks, &mut random, ttl));
        match gone {
            Err(Gone::Agent) => thread::sleep(RETRY_INTERVAL),
            Err(Gone::Harness(error)) => return Err(error),
            Ok(never) => match never {},
        }
    }
}

fn contend(
    holder: &mut Holder,
    mut agent: Connection,
    locks: &str,
    random: &mut Random,
    ttl: Duration,
) -> Result<std::convert::Infallible, Gone> {
    agent.next(None)?;
    loop {
        thread::sleep(Duration::from_millis(random.between(0, 30)));
        let (lock, shared) = (draw_lock(locks, random), random.once_in(5));
        // Some give up early: a waiter that leaves must not disturb the others.
        let timeout = random.once_in(6).then_some(200);
        agent.send(&json!({"do": "acquire", "lock": lock, "shared": shared, "timeout_ms": timeout}))?;
        let answer = agent.next(None)?;
        let Some(fence) = answer["fence"].as_u64() else {
            thread::sleep(RETRY_INTERVAL);
            continue;
        };
        let hold = Duration::from_millis(random.between(1, 30));
        let stubborn = random.once_in(4);
        let by_the_clock = random.once_in(3);
        let in_storm = if by_the_clock || random.once_in(4) { ttl * 3 } else { hold };
        let mut session = Session { deadline: answer["valid_until_ns"].as_u64(), stubborn, by_the_clock, gone: false };
        let held = holder
            .work(&lock, shared, fence, [hold, in_storm], |wait| session.holding(&mut agent, wait))
            .map_err(Gone::Harness)?;
        agent.send(&json!({"do": "release", "lock": lock, "fence": fence}))?;
        if !held {
            // A new connection holds nothing, so unread lines do not matter.
            return Err(Gone::Agent);
        }
        while agent.next(None)?["is"] != "released" {}
    }
}

/// What the agent has said about how long the lock is held.
struct Session {
    deadline: Option<u64>,
    /// The client goes on while the session is at risk, until the lock is lost. That is allowed.
    stubborn: bool,
    /// The client relies on its deadline alone. That is allowed: it goes on when the agent ends, and when the connection breaks.
    by_the_clock: bool,
    /// The connection is broken.
    gone: bool,
}

impl Session {
    /// Waits up to this time for a line from the agent.
    fn holding(&mut self, agent: &mut Connection, wait: Duration) -> Holding {
        let said = match self.listen(agent, wait) {
            Ok(said) => said,
            Err(_) => return Holding::Lost,
        };
        let holding = match said["is"].as_str() {
            Some("lost") => Holding::Lost,
            Some("session") => {
                self.deadline = said["valid_until_ns"].as_u64();
                Holding::Yes
            }
            Some("at_risk") if self.stubborn || self.by_the_clock => {
                // A broken lock is lost before the session ends.
                self.deadline = said["valid_until_ns"].as_u64();
                Holding::Yes
            }
            Some("ending") if self.by_the_clock => Holding::Yes,
            // The session is at risk, or the agent ends.
            Some(_) => Holding::AtRisk,
            None => Holding::Yes,
        };
        if self.deadline.is_some_and(|deadline| clock::now() >= deadline) { Holding::Lost } else { holding }
    }

    fn listen(&mut self, agent: &mut Connection, wait: Duration) -> Result<Value, Gone> {
        if self.gone {
            thread::sleep(wait);
            return Ok(Value::Null);
        }
        match agent.next(Some(wait.max(Duration::from_micros(1)))) {
            // Without a deadline, the lock is held only as long as the connection.
            Err(Gone::Agent) if self.by_the_clock && self.deadline.is_some() => {
                self.gone = true;
                Ok(Value::Null)
            }
            said => said,
        }
    }
}

struct Connection {
    stream: UnixStream,
    /// Bytes that are not a whole line yet.
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
