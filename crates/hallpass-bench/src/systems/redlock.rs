//! Redlock: the same lock on three Redis servers, held by who has two of them.

use std::time::Duration;

use tokio::time::sleep;

use super::redis::{EXPIRY_MS, RELEASE, Resp, Value};
use super::{LOCKS_MAX, lock_name};
use crate::{BenchError, Caller, System};

pub(crate) struct Redlock {
    pub(crate) addresses: Vec<String>,
}

impl System for Redlock {
    type Caller = RedlockCaller;

    async fn caller(&self, id: u32) -> Result<RedlockCaller, BenchError> {
        let mut servers = Vec::new();
        let mut script = String::new();
        for address in &self.addresses {
            let mut server = Resp::connect(address).await?;
            script = server.ask(&["SCRIPT", "LOAD", RELEASE]).await?.text()?;
            servers.push(server);
        }
        let names = (0..LOCKS_MAX).map(lock_name).collect();
        Ok(RedlockCaller { servers, script, names, id, tries: 0, holds: 0 })
    }
}

pub(crate) struct RedlockCaller {
    servers: Vec<Resp>,
    script: String,
    names: Vec<String>,
    id: u32,
    tries: u64,
    holds: u32,
}

impl RedlockCaller {
    fn token(&self) -> String {
        format!("{}-{}-{}", std::process::id(), self.id, self.tries)
    }

    /// Asks all servers at once, and counts those that say yes.
    async fn count(&mut self, words: &[&str], yes: impl Fn(&Value) -> bool) -> Result<usize, BenchError> {
        for server in &mut self.servers {
            server.send(words).await?;
        }
        let mut count = 0;
        for server in &mut self.servers {
            count += usize::from(yes(&server.receive().await?));
        }
        Ok(count)
    }

    async fn give_back(&mut self, lock: u32) -> Result<usize, BenchError> {
        let (token, name, script) = (self.token(), self.names[lock as usize].clone(), self.script.clone());
        self.count(&["EVALSHA", &script, "1", &name, &token], |answer| *answer == Value::Number(1)).await
    }
}

impl Caller for RedlockCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        loop {
            self.tries += 1;
            let (token, name) = (self.token(), self.names[lock as usize].clone());
            let words = ["SET", &name, &token, "NX", "PX", EXPIRY_MS];
            if self.count(&words, |answer| *answer != Value::Nothing).await? * 2 > self.servers.len() {
                self.holds = lock;
                return Ok(());
            }
            self.give_back(lock).await?;
            // Callers that try in step would split the servers for ever: each waits another while.
            let spread = (u64::from(self.id) * 7 + self.tries * 13) % 10;
            sleep(Duration::from_micros(500 + 100 * spread)).await;
        }
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        let released = self.give_back(self.holds).await?;
        if released * 2 > self.servers.len() { Ok(()) } else { Err(BenchError::new("Redis lost a lock")) }
    }
}
