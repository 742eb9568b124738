//! hallpass embedded: this process is a member of the group.

use hallpass::{Guard, Keys, Lock, Node};

use super::{LOCKS_MAX, lock_name};
use crate::{BenchError, Caller, System};

pub(crate) struct Embedded {
    node: Node,
}

impl Embedded {
    pub(crate) async fn start(
        name: &str,
        listen: &str,
        peers: &[&str],
        protocol: &str,
        keys: Option<&str>,
    ) -> Result<Self, BenchError> {
        let mut builder = Node::builder().group("bench").name(name).listen(listen).peers(peers.iter().copied());
        if protocol != "-" {
            builder = builder.class("", protocol, &[]);
        }
        if let Some(directory) = keys {
            builder = builder.keys(Keys::in_directory(directory));
        }
        let node = builder.start().await.map_err(BenchError::new)?;
        node.ready().await;
        Ok(Self { node })
    }
}

impl System for Embedded {
    type Caller = Embedder;

    async fn caller(&self, _id: u32) -> Result<Embedder, BenchError> {
        let locks = (0..LOCKS_MAX).map(|lock| self.node.lock(lock_name(lock))).collect();
        Ok(Embedder { locks, guard: None })
    }

    fn messages(&self) -> u64 {
        self.node.status().messages
    }
}

pub(crate) struct Embedder {
    locks: Vec<Lock>,
    guard: Option<Guard>,
}

impl Caller for Embedder {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        self.guard = Some(self.locks[lock as usize].acquire().await.map_err(BenchError::new)?);
        Ok(())
    }

    async fn acquire_shared(&mut self, lock: u32) -> Result<(), BenchError> {
        self.guard = Some(self.locks[lock as usize].acquire_shared().await.map_err(BenchError::new)?);
        Ok(())
    }

    async fn let_go(&mut self) -> Result<(), BenchError> {
        self.guard = None;
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        match self.guard.take() {
            Some(guard) => guard.release().await.map_err(BenchError::new),
            None => Ok(()),
        }
    }
}
