//! A client of the agent's HTTP API. It relies on exactly what it was told: a ttl that counts from when it sent the request.
//!
//! Some clients let a lease grow old before they acquire another lock under it. Some send no keepalive at all, and use up the time that
//! they were told last.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Answer, Api};
use super::{Gone, Holder, Identity, RETRY_INTERVAL, Stint, WORK_INTERVAL, draw_lock};
use crate::clock;
use crate::random::Random;

/// How long a client waits for another lock under a lease that it has.
const WAIT_MS: u64 = 200;

/// Acquires, works and releases until the harness ends.
pub(crate) fn hold_by_lease(identity: &Identity, socket: &Path, seed: u64, ttl: Duration) -> std::io::Result<()> {
    let (locks, socket) = (identity.locks.clone(), socket.to_owned());
    let mut client = Client { holder: Holder::new(identity)?, locks, socket, random: Random::new(seed), ttl };
    loop {
        match client.use_a_lease() {
            Ok(()) => {}
            Err(Gone::Agent) => thread::sleep(RETRY_INTERVAL),
            Err(Gone::Harness(error)) => return Err(error),
        }
    }
}

struct Client {
    holder: Holder,
    locks: String,
    socket: PathBuf,
    random: Random,
    ttl: Duration,
}

/// A lease, and what is done with it.
struct Lease {
    id: String,
    /// The latest moment that was promised. Until then all its locks are held.
    until: u64,
    held: Vec<Stint>,
    plan: Plan,
    /// The request that is not answered yet, and when it was sent.
    asked: Option<(Asked, u64)>,
}

struct Plan {
    /// When to send the next keepalive. None for a lease that grows old.
    keepalive_at: Option<u64>,
    /// When to acquire another lock.
    another_at: Option<u64>,
    /// How long a lock is held while it is calm, and while the network fails. In a storm a lease that is not kept alive is used up.
    hold: [Duration; 2],
    /// Since when the newest lock is held.
    since: u64,
}

enum Asked {
    Keepalive,
    Another { lock: String, shared: bool },
}

impl Client {
    /// Uses one lease, from its first lock until it is given up or over.
    fn use_a_lease(&mut self) -> Result<(), Gone> {
        thread::sleep(Duration::from_millis(self.random.between(0, 30)));
        let mut api = Api::open(&self.socket)?;
        let Some(mut lease) = self.first(&mut api)? else {
            thread::sleep(RETRY_INTERVAL);
            return Ok(());
        };
        let mut api = Some(api);
        let mut calm = false;
        loop {
            self.ask(&mut api, &mut lease)?;
            if let Some((answer, asked, sent)) = listen(&mut api, &mut lease.asked)?
                && !self.take(&mut lease, answer, asked, sent)?
            {
                return self.end(lease, true);
            }
            // Read before anything else: at this moment the locks were held.
            let now = clock::now();
            if now >= lease.until {
                return self.end(lease, true);
            }
            for stint in &mut lease.held {
                let answer = self.holder.work_once(stint, now).map_err(Gone::Harness)?;
                if !answer.accepted {
                    return self.end(lease, true);
                }
                calm = answer.calm;
            }
            if clock::now() - lease.plan.since < nanos(lease.plan.hold[usize::from(!calm)]) {
                continue;
            }
            match lease.plan.another_at {
                // The lease grows old without a lock that others wait for.
                Some(_) => self.release(&mut lease)?,
                None if lease.asked.is_some() => {}
                None => return self.give_up(lease),
            }
        }
    }

    /// A lock under a lease of its own.
    fn first(&mut self, api: &mut Api) -> Result<Option<Lease>, Gone> {
        let ttl_ms = self.ttl.as_millis() as u64;
        let (lock, shared) = (draw_lock(&self.locks, &mut self.random), self.random.once_in(5));
        let timeout = self.random.once_in(6).then_some(WAIT_MS);
        let grows_old = self.random.once_in(2);
        // A lease that grows old ends before the session.
        let longest = if grows_old { ttl_ms } else { ttl_ms * 2 };
        let wanted = self.random.between(ttl_ms / 3, longest);
        let body = json!({"ttl_ms": wanted, "mode": mode(shared), "timeout_ms": timeout});
        let mut sent = clock::now();
        let (200, granted) = api.call("POST", &acquire(&lock), &body)? else { return Ok(None) };
        let (Some(id), Some(fence)) = (granted["lease"].as_str(), granted["fence_number"].as_u64()) else {
            return Err(Gone::Agent);
        };
        let mut told = told(&granted)?;
        if sent + told <= clock::now() {
            // The wait took longer than that. It holds the lock from the next answered keepalive on.
            sent = clock::now();
            let (200, answer) = api.call("POST", &keepalive(id), &Value::Null)? else { return Ok(None) };
            told = self::told(&answer)?;
        }
        let (start, until) = (clock::now(), sent + told);
        if start >= until {
            return Ok(None);
        }
        let held = vec![self.holder.begin(1, &lock, shared, fence, start).map_err(Gone::Harness)?];
        let plan = self.plan(grows_old, sent, told, start);
        Ok(Some(Lease { id: id.to_owned(), until, held, plan, asked: None }))
    }

    fn plan(&mut self, grows_old: bool, sent: u64, told: u64, since: u64) -> Plan {
        let hold = Duration::from_millis(self.random.between(1, 30));
        let lets_go = self.random.once_in(2);
        let holds_on = if grows_old { !lets_go } else { self.random.once_in(3) };
        Plan {
            keepalive_at: (!grows_old).then_some(sent + told / 3),
            another_at: grows_old.then_some(sent + told / 100 * self.random.between(30, 90)),
            hold: [hold, if holds_on { self.ttl * 3 } else { hold }],
            since,
        }
    }

    /// Sends what is due, if the agent is there.
    fn ask(&mut self, api: &mut Option<Api>, lease: &mut Lease) -> Result<(), Gone> {
        let now = clock::now();
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if lease.asked.is_some() || !(is_due(lease.plan.keepalive_at) || is_due(lease.plan.another_at)) {
            return Ok(());
        }
        let Some(connection) = connect(api, &self.socket)? else { return Ok(()) };
        let (asked, path, body) = if is_due(lease.plan.another_at) {
            let (lock, shared) = (draw_lock(&self.locks, &mut self.random), self.random.once_in(5));
            if lease.held.iter().any(|stint| stint.work.lock == lock) {
                return Ok(());
            }
            lease.plan.another_at = None;
            let body = json!({"lease": lease.id, "mode": mode(shared), "timeout_ms": WAIT_MS});
            (Asked::Another { lock: lock.clone(), shared }, acquire(&lock), body)
        } else {
            (Asked::Keepalive, keepalive(&lease.id), Value::Null)
        };
        let sent = clock::now();
        match connection.send("POST", &path, &body) {
            Ok(()) => lease.asked = Some((asked, sent)),
            Err(_) => *api = None,
        }
        Ok(())
    }

    /// Applies an answer. False if all locks of the lease are lost.
    fn take(&mut self, lease: &mut Lease, (status, body): Answer, asked: Asked, sent: u64) -> Result<bool, Gone> {
        match (status, asked) {
            (200, Asked::Keepalive) => {
                let told = told(&body)?;
                lease.until = lease.until.max(sent + told);
                lease.plan.keepalive_at = Some(sent + told / 3);
            }
            (200, Asked::Another { lock, shared }) => {
                lease.until = lease.until.max(sent + told(&body)?);
                let fence = body["fence_number"].as_u64().ok_or(Gone::Agent)?;
                let now = clock::now();
                if now < lease.until {
                    let stint = self.holder.begin(2, &lock, shared, fence, now).map_err(Gone::Harness)?;
                    lease.held.push(stint);
                    // While the network fails, it is held until the lease ends.
                    (lease.plan.since, lease.plan.hold[1]) = (now, self.ttl * 3);
                }
            }
            (404, _) => return Ok(false),
            // The lock was not free in time, or the agent has lost its group. What was told stays valid.
            (_, Asked::Another { .. }) => lease.plan.another_at = Some(clock::now()),
            (_, Asked::Keepalive) => lease.plan.keepalive_at = Some(clock::now() + nanos(RETRY_INTERVAL)),
        }
        Ok(true)
    }

    /// Releases the locks. The lease goes on.
    fn release(&mut self, lease: &mut Lease) -> Result<(), Gone> {
        for stint in std::mem::take(&mut lease.held) {
            let path = format!("/v1/leases/{}/locks/{}", lease.id, encoded(&stint.work.lock));
            let at = clock::now();
            self.holder.end(stint, at, at >= lease.until).map_err(Gone::Harness)?;
            Api::open(&self.socket)?.call("DELETE", &path, &Value::Null)?;
        }
        Ok(())
    }

    /// Releases everything in order.
    fn give_up(&mut self, lease: Lease) -> Result<(), Gone> {
        let path = format!("/v1/leases/{}", lease.id);
        let is_over = clock::now() >= lease.until;
        self.end(lease, is_over)?;
        Api::open(&self.socket)?.call("DELETE", &path, &Value::Null)?;
        Ok(())
    }

    fn end(&mut self, lease: Lease, lost: bool) -> Result<(), Gone> {
        for stint in lease.held {
            let at = clock::now();
            self.holder.end(stint, at, lost || at >= lease.until).map_err(Gone::Harness)?;
        }
        Ok(())
    }
}

/// The connection, opened again if it is gone. None if the agent is not there.
fn connect<'a>(api: &'a mut Option<Api>, socket: &Path) -> Result<Option<&'a mut Api>, Gone> {
    if api.is_none() {
        *api = match Api::open(socket) {
            Err(Gone::Harness(error)) => return Err(Gone::Harness(error)),
            opened => opened.ok(),
        };
    }
    if api.is_none() {
        thread::sleep(WORK_INTERVAL);
    }
    Ok(api.as_mut())
}

/// Waits a moment for the answer. What an agent has promised stays valid when the agent is gone.
fn listen(api: &mut Option<Api>, asked: &mut Option<(Asked, u64)>) -> Result<Option<(Answer, Asked, u64)>, Gone> {
    let (Some(connection), true) = (api.as_mut(), asked.is_some()) else {
        thread::sleep(WORK_INTERVAL);
        return Ok(None);
    };
    match connection.poll(Some(WORK_INTERVAL)) {
        Ok(None) => Ok(None),
        Ok(Some(answer)) => Ok(asked.take().map(|(asked, sent)| (answer, asked, sent))),
        Err(Gone::Harness(error)) => Err(Gone::Harness(error)),
        Err(Gone::Agent) => {
            (*api, *asked) = (None, None);
            Ok(None)
        }
    }
}

/// How long the locks of an answer are held, counted from when the request was sent.
fn told(answer: &Value) -> Result<u64, Gone> {
    answer["ttl_ms"].as_u64().map(|ms| ms * 1_000_000).ok_or(Gone::Agent)
}

fn mode(shared: bool) -> &'static str {
    if shared { "shared" } else { "exclusive" }
}

fn acquire(lock: &str) -> String {
    format!("/v1/locks/{}/acquire", encoded(lock))
}

fn keepalive(lease: &str) -> String {
    format!("/v1/leases/{lease}/keepalive")
}

fn encoded(lock: &str) -> String {
    lock.replace('/', "%2F")
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
