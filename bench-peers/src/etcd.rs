//! etcd's lock API, one lease a caller: a lock without a lease makes one each time.

use etcd_client::{Client, LockOptions};
use hallpass_bench::{BenchError, Caller, System};

/// Longer than any run: nobody renews it.
const LEASE_SECONDS: i64 = 3600;

pub(crate) struct Etcd {
    addresses: Vec<String>,
}

impl Etcd {
    pub(crate) fn new(addresses: Vec<String>) -> Self {
        Self { addresses }
    }
}

impl System for Etcd {
    type Caller = EtcdCaller;

    /// Callers of one host talk to one member, as they would where each host has one.
    async fn caller(&self, id: u32) -> Result<EtcdCaller, BenchError> {
        let address = &self.addresses[id as usize % self.addresses.len()];
        let mut client = Client::connect([address], None).await.map_err(BenchError::new)?;
        let lease = client.lease_grant(LEASE_SECONDS, None).await.map_err(BenchError::new)?.id();
        Ok(EtcdCaller { client, lease, key: Vec::new() })
    }
}

pub(crate) struct EtcdCaller {
    client: Client,
    lease: i64,
    key: Vec<u8>,
}

impl Caller for EtcdCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        let options = LockOptions::new().with_lease(self.lease);
        let name = format!("bench/{lock}");
        let locked = self.client.lock(name, Some(options)).await.map_err(BenchError::new)?;
        self.key = locked.key().to_vec();
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        let key = std::mem::take(&mut self.key);
        self.client.unlock(key).await.map(|_| ()).map_err(BenchError::new)
    }
}
