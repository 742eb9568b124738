//! PostgreSQL's advisory locks, by prepared statements.

use std::path::Path;

use hallpass_bench::{BenchError, Caller, System};
use tokio_postgres::{Client, Config, NoTls, Statement};

pub(crate) struct Postgres {
    config: Config,
}

impl Postgres {
    /// At `127.0.0.1:5432`, or at the path of its socket, which ends in the port too: `/run/.s.PGSQL.5432`.
    pub(crate) fn new(address: &str) -> Self {
        let mut config = Config::new();
        let path = Path::new(address);
        let port = address.rsplit(['.', ':']).next().and_then(|port| port.parse().ok()).unwrap_or(5432);
        match path.parent() {
            Some(directory) if path.is_absolute() => config.host_path(directory),
            _ => config.host(address.split(':').next().unwrap_or(address)),
        };
        config.port(port).user("postgres").dbname("postgres");
        Self { config }
    }
}

impl System for Postgres {
    type Caller = PostgresCaller;

    async fn caller(&self, _id: u32) -> Result<PostgresCaller, BenchError> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(BenchError::new)?;
        tokio::spawn(connection);
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await.map_err(BenchError::new)?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await.map_err(BenchError::new)?;
        Ok(PostgresCaller { client, lock, unlock, holds: 0 })
    }
}

pub(crate) struct PostgresCaller {
    client: Client,
    lock: Statement,
    unlock: Statement,
    holds: i64,
}

impl Caller for PostgresCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        self.holds = i64::from(lock);
        self.client.execute(&self.lock, &[&self.holds]).await.map(|_| ()).map_err(BenchError::new)
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        let row = self.client.query_one(&self.unlock, &[&self.holds]).await.map_err(BenchError::new)?;
        if row.get(0) { Ok(()) } else { Err(BenchError::new("PostgreSQL lost a lock")) }
    }
}
