//! Redlock: the same lock on three Redis servers, held by the caller that has it on two of them.

use std::time::Duration;

use hallpass_bench::{BenchError, Caller, System};
use redis::Cmd;
use tokio::time::sleep;

use crate::redis::{Connection, RELEASE, release, set, token};

pub(crate) struct Redlock {
    addresses: Vec<String>,
}

impl Redlock {
    pub(crate) fn new(addresses: &[&str]) -> Self {
        Self { addresses: crate::owned(addresses) }
    }
}

impl System for Redlock {
    type Caller = RedlockCaller;

    async fn caller(&self, id: u32) -> Result<RedlockCaller, BenchError> {
        let mut servers = Vec::new();
        let mut script = String::new();
        for address in &self.addresses {
            let mut server = Connection::open(address).await?;
            script = server.load(RELEASE).await?;
            servers.push(server);
        }
        Ok(RedlockCaller { servers, script, id, attempts: 0, holds: 0 })
    }
}

pub(crate) struct RedlockCaller {
    servers: Vec<Connection>,
    script: String,
    id: u32,
    attempts: u64,
    holds: u32,
}

impl RedlockCaller {
    /// Asks all servers at once; true if most of them say yes.
    async fn ask(&mut self, command: &Cmd) -> Result<bool, BenchError> {
        for server in &mut self.servers {
            server.send(command).await?;
        }
        let mut yes = 0;
        for server in &mut self.servers {
            yes += usize::from(server.receive::<bool>().await?);
        }
        Ok(yes * 2 > self.servers.len())
    }

    /// True if most of the servers had the lock with this caller's token.
    async fn release_all(&mut self, lock: u32) -> Result<bool, BenchError> {
        let release = release(&self.script, lock, &token(self.id, self.attempts));
        self.ask(&release).await
    }
}

impl Caller for RedlockCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        loop {
            self.attempts += 1;
            if self.ask(&set(lock, &token(self.id, self.attempts))).await? {
                self.holds = lock;
                return Ok(());
            }
            self.release_all(lock).await?;
            // Callers that try in step would split the servers forever: each pauses for another time.
            let spread = (u64::from(self.id) * 7 + self.attempts * 13) % 10;
            sleep(Duration::from_micros(500 + 100 * spread)).await;
        }
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        if self.release_all(self.holds).await? { Ok(()) } else { Err(BenchError::new("Redis lost a lock")) }
    }
}
