//! etcd's lock API, one lease per caller: a lock without a lease makes one each time.

use etcd_client::{Client, LockOptions};
use hallpass_bench::{BenchError, Caller, System, lock_name};

/// Longer than any run, so that it needs no renewal.
const LEASE_SECONDS: i64 = 3600;

pub(crate) struct Etcd {
    addresses: Vec<String>,
}

impl Etcd {
    pub(crate) fn new(addresses: &[&str]) -> Self {
        Self { addresses: crate::owned(addresses) }
    }
}

impl System for Etcd {
    type Caller = EtcdCaller;

    async fn caller(&self, id: u32) -> Result<EtcdCaller, BenchError> {
        let address = crate::nearest(&self.addresses, id);
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
        let locked = self.client.lock(lock_name(lock), Some(options)).await.map_err(BenchError::new)?;
        self.key = locked.key().to_vec();
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        let key = std::mem::take(&mut self.key);
        self.client.unlock(key).await.map(|_| ()).map_err(BenchError::new)
    }
}
