//! What a program that needs no other process would use: a map of named mutexes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use super::{LOCKS_MAX, lock_name};
use crate::{BenchError, Caller, System};

#[derive(Clone, Default)]
pub(crate) struct Locker {
    locks: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

impl System for Locker {
    type Caller = LockerCaller;

    async fn caller(&self, _id: u32) -> Result<LockerCaller, BenchError> {
        Ok(LockerCaller { locker: self.clone(), names: (0..LOCKS_MAX).map(lock_name).collect(), guard: None })
    }
}

pub(crate) struct LockerCaller {
    locker: Locker,
    names: Vec<String>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Caller for LockerCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        let name = &self.names[lock as usize];
        let mutex = {
            let mut locks = self.locker.locks.lock().unwrap_or_else(PoisonError::into_inner);
            match locks.get(name) {
                Some(mutex) => Arc::clone(mutex),
                None => Arc::clone(locks.entry(name.clone()).or_default()),
            }
        };
        self.guard = Some(mutex.lock_owned().await);
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        self.guard = None;
        Ok(())
    }
}
