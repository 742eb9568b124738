//! ZooKeeper's lock recipe: an ephemeral node in sequence, and a watch on the one before it.

use std::net::SocketAddr;
use std::time::Duration;

use hallpass_bench::{BenchError, Caller, System};
use tokio_zookeeper::error::Create;
use tokio_zookeeper::{Acl, CreateMode, ZooKeeper, ZooKeeperBuilder};

/// Longer than any run, so that it needs no renewal.
const SESSION: Duration = Duration::from_secs(3600);

pub(crate) struct Ensemble {
    addresses: Vec<String>,
}

impl Ensemble {
    pub(crate) fn new(addresses: &[&str]) -> Self {
        Self { addresses: crate::owned(addresses) }
    }
}

impl System for Ensemble {
    type Caller = ZooKeeperCaller;

    async fn caller(&self, id: u32) -> Result<ZooKeeperCaller, BenchError> {
        let address: SocketAddr = crate::nearest(&self.addresses, id).parse().map_err(BenchError::new)?;
        let mut builder = ZooKeeperBuilder::default();
        builder.set_timeout(SESSION);
        let (client, _) = builder.connect(&address).await.map_err(BenchError::new)?;
        Ok(ZooKeeperCaller { client, holds: None })
    }
}

pub(crate) struct ZooKeeperCaller {
    client: ZooKeeper,
    holds: Option<String>,
}

impl ZooKeeperCaller {
    async fn create(&self, path: &str, mode: CreateMode) -> Result<Result<String, Create>, BenchError> {
        self.client.create(path, &b""[..], Acl::open_unsafe(), mode).await.map_err(BenchError::new)
    }

    /// Adds a node at the end of the lock's queue and returns its path.
    async fn enqueue(&self, queue: &str) -> Result<String, BenchError> {
        let path = format!("{queue}/n-");
        let mut node = self.create(&path, CreateMode::EphemeralSequential).await?;
        if node == Err(Create::NoNode) {
            match self.create(queue, CreateMode::Persistent).await? {
                Ok(_) | Err(Create::NodeExists) => {}
                Err(error) => return Err(BenchError::new(error)),
            }
            node = self.create(&path, CreateMode::EphemeralSequential).await?;
        }
        node.map_err(BenchError::new)
    }

    /// The name right before this one in the lock's queue.
    async fn before(&self, queue: &str, name: &str) -> Result<Option<String>, BenchError> {
        let names = self.client.get_children(queue).await.map_err(BenchError::new)?;
        Ok(names.unwrap_or_default().into_iter().filter(|other| other.as_str() < name).max())
    }
}

impl Caller for ZooKeeperCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        let queue = format!("/bench-{lock}");
        let path = self.enqueue(&queue).await?;
        let name = path.rsplit('/').next().unwrap_or_default();
        while let Some(before) = self.before(&queue, name).await? {
            let watched = self.client.with_watcher().get_data(&format!("{queue}/{before}")).await;
            // Without an answer the node is gone already.
            if let Some((changed, ..)) = watched.map_err(BenchError::new)? {
                changed.await.map_err(BenchError::new)?;
            }
        }
        self.holds = Some(path);
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        let Some(path) = self.holds.take() else { return Ok(()) };
        self.client.delete(&path, None).await.map_err(BenchError::new)?.map_err(BenchError::new)
    }
}
