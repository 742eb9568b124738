use std::sync::Arc;
use std::time::Duration;

use hallpass::Mode;
use tonic::Status;

use super::key::{LockKey, lock_name};
use super::lease::lease_id;
use super::proto::*;
use super::waiters::Seen;
use super::{Etcd, error};
use crate::http::{Caller, needs_own_lease};
use crate::service::Wanted;
use crate::tokens::Right;

/// How long a lock lasts that was acquired without a lease: nobody keeps it alive.
const TTL_WITHOUT_LEASE: Duration = Duration::from_secs(60);

impl Etcd {
    /// Waits for a lock. Dropping the future leaves no waiter.
    pub(super) async fn lock(self: Arc<Self>, caller: Caller, request: LockRequest) -> Result<LockResponse, Status> {
        let lock = lock_name(&request.name)?;
        caller.needs(Right::Acquire, &lock)?;
        let wanted = Wanted { mode: Mode::Exclusive, tries: false, timeout: None };
        let service = &self.api.service;
        let acquired = if request.lease == 0 {
            let (owner, origin) = (caller.owner(), Arc::clone(&caller.origin));
            service.acquire_new(TTL_WITHOUT_LEASE, owner, origin, &lock, wanted).await
        } else {
            let lease = lease_id(request.lease).ok_or_else(error::lease_not_found);
            let lease = lease.map_err(error::of_lock_service)?;
            caller.needs_lease(service, lease).map_err(|fault| error::of_lock_service(fault.into()))?;
            service.acquire(lease, &lock, wanted).await
        };
        let acquired = acquired.map_err(|fault| error::of_lock_service(fault.into()))?;
        let key = LockKey { lock, lease: acquired.lease.id }.bytes();
        Ok(LockResponse { header: self.header_at(acquired.fence as i64), key })
    }

    /// Deletes a key: that of a lease which does not hold the lock any more frees nothing.
    pub(super) async fn unlock(
        self: Arc<Self>,
        caller: Caller,
        request: UnlockRequest,
    ) -> Result<UnlockResponse, Status> {
        let key = LockKey::parse(&request.key).map_err(error::of_lock_service)?;
        self.delete_key(&caller, &key, None).await?;
        Ok(UnlockResponse { header: self.header() })
    }

    /// Deletes the key of a lease, or only what was seen there: true if it was there.
    pub(super) async fn delete_key(&self, caller: &Caller, key: &LockKey, seen: Option<Seen>) -> Result<bool, Status> {
        caller.needs(Right::Acquire, &key.lock)?;
        match needs_own_lease(&self.api.service, caller, key.lease).map_err(Status::from) {
            Err(status) if status.message() == error::LEASE_NOT_FOUND => Ok(false),
            Err(status) => Err(status),
            Ok(()) => self.waiters.delete(key, seen).await,
        }
    }
}
