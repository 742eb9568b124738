use std::net::SocketAddr;
use std::sync::Arc;

use hallpass_core::Fence;

use crate::driver::Driver;
use crate::{AcquireError, Builder, Guard, Lock, LockInfo, Member, Status, Term};

/// A member of a group, running.
///
/// Clones are the same member. It stops when the last one is dropped, locks and guards included.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let node = hallpass::Node::builder().name("a").listen("127.0.0.1:0").start().await?;
/// let guard = node.lock("invoices/42").acquire().await?;
/// assert!(guard.fence() > 0);
/// guard.release().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Node {
    pub(crate) running: Arc<Running>,
}

/// How many locks [`Node::locks`] looks at before it lets others use the node.
const LOCKS_AT_ONCE: u32 = 256;

/// Stops the node when it is dropped. Tasks have only the [`Driver`], so that they do not keep the node running.
pub(crate) struct Running {
    pub(crate) driver: Arc<Driver>,
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) address: SocketAddr,
    pub(crate) encrypted: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.driver.stop();
    }
}

impl Node {
    /// Starts to describe a node. Every setting has a default that works on one machine.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A lock by its name: 1 to 255 bytes of UTF-8. Nothing is sent until it is acquired.
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock::new(Arc::clone(&self.running), name.into())
    }

    /// Acquires several locks exclusively, or none.
    ///
    /// They are acquired in alphabetical order, so that callers of this method never deadlock with each other, whatever
    /// order they name the locks in. A name that is given twice is one lock. Dropping the future releases what it holds.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let node = hallpass::Node::builder().start().await?;
    /// let both = node.acquire_all(["a", "b"]).await?;
    /// assert_eq!(both.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_all<N: Into<String>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Vec<Guard>, AcquireError> {
        let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        let mut guards = Vec::with_capacity(names.len());
        for name in names {
            guards.push(self.lock(name).acquire().await?);
        }
        Ok(guards)
    }

    /// Waits to become the leader of this name. The term ends when it is resigned, dropped or lost.
    ///
    /// This is the lock of the same name, held exclusively.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let node = hallpass::Node::builder().start().await?;
    /// let term = node.elect("scheduler").await?;
    /// assert!(term.number() > 0);
    /// term.resign().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn elect(&self, name: &str) -> Result<Term, AcquireError> {
        self.lock(name).acquire().await.map(Term)
    }

    /// Resolves when the node has been stopped, by [`stop`](Self::stop) or by a failure of its own.
    pub async fn stopped(&self) {
        self.running.driver.when_stopped().await;
    }

    /// Resolves when the group is complete and locks are granted, or the node is stopped.
    ///
    /// A group is complete once each member has been connected with all others. There is no need to wait for it:
    /// [`Lock::acquire`] waits, too.
    pub async fn ready(&self) {
        loop {
            let completed = self.running.driver.completed.notified();
            tokio::pin!(completed);
            completed.as_mut().enable();
            if self.running.driver.is_stopped() || self.running.driver.state().node.is_complete() {
                return;
            }
            tokio::select! {
                () = completed => {}
                () = self.running.driver.when_stopped() => return,
            }
        }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.running.name
    }

    /// The state of the node and its group.
    pub fn status(&self) -> Status {
        let driver = &self.running.driver;
        let troubles = driver.troubles();
        let state = driver.state();
        let members = state.node.members().into_iter().map(|member| {
            let index = driver.peers.iter().position(|peer| peer.id == member.id);
            let peer = index.map(|index| &driver.peers[index]);
            Member {
                trouble: index.and_then(|index| troubles[index].clone()).filter(|_| !member.connected),
                id: member.id.0,
                address: peer.map_or_else(|| self.running.address.to_string(), |peer| peer.address.clone()),
                name: peer.map_or_else(|| Some(self.running.name.clone()), |peer| peer.name.clone()),
                incarnation: member.incarnation.map(|incarnation| incarnation.get()),
                connected: member.connected,
                is_this: peer.is_none(),
            }
        });
        Status {
            group: self.running.group.clone(),
            name: self.running.name.clone(),
            id: state.node.id().0,
            complete: state.node.is_complete(),
            epoch: state.node.epoch(),
            encrypted: self.running.encrypted,
            members: members.collect(),
            locks: state.node.len(),
            messages: state.node.messages(),
            grants: state.grants,
            fences_left: Fence::COUNT_MAX - state.node.fences_used(),
        }
    }

    /// The locks that are held, waited for or cached on this node, by name.
    ///
    /// A node with many of them goes on working meanwhile, so this is not one moment's picture: each lock is as it was when
    /// its turn came.
    pub fn locks(&self) -> Vec<LockInfo> {
        let mut locks = Vec::new();
        for first in (0..).step_by(LOCKS_AT_ONCE as usize) {
            let state = self.running.driver.state();
            if first >= state.node.slots() {
                break;
            }
            locks.extend(state.node.locks_in(first..first + LOCKS_AT_ONCE).map(|lock| LockInfo::of(&lock)));
        }
        locks.sort_by(|a, b| a.name.cmp(&b.name));
        // One that was forgotten and used again meanwhile may have been seen twice.
        locks.dedup_by(|a, b| a.name == b.name);
        locks
    }

    /// One lock, if it is held, waited for or cached on this node.
    pub fn lock_info(&self, name: &str) -> Option<LockInfo> {
        self.running.driver.state().node.lock_status(name).map(|lock| LockInfo::of(&lock))
    }

    /// Stops the node: waiting callers get [`AcquireError::Stopped`], guards are lost, connections are closed.
    ///
    /// As long as the members of a group are a fixed list, the others cannot do without this one: locks that need its
    /// permission wait, and to come back it needs all members to be restarted.
    pub async fn stop(&self) {
        self.stop_now();
        // Lets the connections' tasks close their sockets.
        tokio::task::yield_now().await;
    }

    pub(crate) fn stop_now(&self) {
        self.running.driver.stop();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Running { name, group, address, .. } = &*self.running;
        f.debug_struct("Node")
            .field("name", name)
            .field("group", group)
            .field("address", address)
            .finish_non_exhaustive()
    }
}
