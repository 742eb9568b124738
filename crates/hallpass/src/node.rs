use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hallpass_core::{Fence, NodeId};
use hallpass_node::{Class, Request, RequestError, ViewState};

use crate::certificate::KeyDigest;
use crate::driver::Driver;
use crate::greeting::REJECTS;
use crate::members::parse;
use crate::status::left;
use crate::{AcquireError, Builder, Counters, GroupError, Guard, Lock, LockInfo, Member, Status, Term, Trace};

/// A member of a group, running.
///
/// Clones are the same member. The node stops when the last clone is dropped, locks and guards included. It then tries for a moment to tell
/// its group, which fails if the process ends first. [`stop`](Self::stop) waits for it.
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
    pub(crate) running: Arc<StopOnDrop>,
}

/// How many locks [`Node::locks`] looks at before it lets others use the node.
const LOCKS_AT_ONCE: u32 = 256;

/// Stops the node when it is dropped. Tasks have only the [`Driver`], so that they do not keep the node running.
pub(crate) struct StopOnDrop {
    pub(crate) driver: Arc<Driver>,
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) address: SocketAddr,
    /// The address by which others know this node.
    pub(crate) advertised: String,
    pub(crate) encrypted: bool,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.driver.stop(LEAVE_TIME);
    }
}

/// How long a node that is dropped may take to tell its group.
const LEAVE_TIME: Duration = Duration::from_millis(300);
/// How long one that is stopped may.
const STOP_TIME: Duration = Duration::from_secs(1);

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
    /// It acquires them in alphabetical order. So callers of this method never deadlock with each other, in whatever order they name the
    /// locks. A name that is given twice is one lock. Dropping the future releases what it holds.
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

    /// Resolves when the node is a member of a group and locks are granted, or the node is stopped.
    ///
    /// You need not wait for it: [`Lock::acquire`] waits, too.
    pub async fn ready(&self) {
        self.running.driver.when_complete().await;
    }

    /// The address it listens on. Its port is 0 if it [listens on nothing](Builder::listen_nowhere).
    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.running.name
    }

    /// The state of the node and its group.
    pub fn status(&self) -> Status {
        let StopOnDrop { driver, name, group, advertised, encrypted, .. } = &*self.running;
        let (peers, seeds) = (driver.peers(), driver.seeds());
        let state = driver.state();
        let seen = state.node.status();
        let mut members: Vec<Member> = state
            .node
            .members()
            .into_iter()
            .map(|member| {
                let (id, connected) = (member.id, member.connected);
                let own = Member::of(member, peers.get(&id).map(|peer| &**peer));
                if id != driver.id {
                    return Member { keys: state.keys_of(id), ..own };
                }
                let keys = driver.own_key().into_iter().collect();
                Member { address: advertised.clone(), name: Some(name.clone()), is_this: true, connected, keys, ..own }
            })
            .collect();
        if seen.group_id.is_none() {
            let found = |seed: &Member| members.iter().any(|member| member.address == seed.address);
            let missing: Vec<Member> =
                seeds.iter().map(|seed| Member::of_seed(seed)).filter(|seed| !found(seed)).collect();
            members.extend(missing);
        }
        // A node that the others do not listen to hears the reason only from their greetings.
        let rejected =
            members.iter().find(|member| member.trouble.as_ref().is_some_and(|why| why.starts_with(REJECTS)));
        let rejected = rejected.filter(|_| seen.view == ViewState::Joining);
        let rejection = rejected.and_then(|member| {
            let who = member.name.as_ref().unwrap_or(&member.address);
            Some(format!("'{who}' is there, but {}", member.trouble.as_ref()?))
        });
        Status {
            group: group.clone(),
            name: name.clone(),
            id: driver.id.0,
            complete: state.node.is_complete(),
            view: seen.view,
            group_id: seen.group_id,
            epoch: seen.epoch,
            steward: seen.steward.map(|steward| steward.0),
            voters: seen.voters.iter().map(|voter| voter.0).collect(),
            session: seen.session_until.and_then(left),
            ttl: Duration::from_nanos(seen.ttl),
            drift_ppm: seen.drift_ppm,
            waits_for: rejection.or(seen.waits_for),
            encrypted: *encrypted,
            members,
            locks: state.node.len(),
            messages: state.node.messages(),
            grants: state.grants,
            banned: state.node.banned().filter(|name| KeyDigest::of_label(name).is_none()).map(str::to_owned).collect(),
            banned_keys: state.node.banned().filter_map(KeyDigest::of_label).collect(),
            fences_left: Fence::COUNT_MAX - state.node.fences_used(),
        }
    }

    /// The members of the group, as this node sees them: see [`Status::members`].
    pub fn members(&self) -> Vec<Member> {
        self.status().members
    }

    /// The locks that are held, waited for or cached on this node, by name.
    ///
    /// The node continues to work while this list is made, so it is not a picture of one moment: each lock is shown as it was when its turn
    /// came.
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
        // A lock that was forgotten and used again in the meantime may have been seen twice.
        locks.dedup_by(|a, b| a.name == b.name);
        locks
    }

    /// Counts what has happened on this node so far, for metrics.
    pub fn counters(&self) -> Counters {
        self.running.driver.state().node.counters()
    }

    /// How long what is held here is certainly held without a message from the group: see [`Guard::valid_until`]. Zero while nothing can be
    /// held, `None` if nothing can take a lock away.
    pub fn session_left(&self) -> Option<Duration> {
        self.running.driver.session_left()
    }

    /// Promises that no lock that is [broken](Self::break_lock) from now on is lost before this time is over.
    ///
    /// A program that lends its locks to its own clients calls this *before* it tells a client that it holds a lock for this time. So the
    /// client need not be reached when the lock is broken. A lock that was broken before may be lost earlier: look at
    /// [`Guard::valid_until`] after this call.
    pub fn promise(&self, left: Duration) {
        self.running.driver.promise(left);
    }

    /// One lock, if it is held, waited for or cached on this node.
    pub fn lock_info(&self, name: &str) -> Option<LockInfo> {
        self.running.driver.state().node.lock_status(name).map(|lock| LockInfo::of(&lock))
    }

    /// Asks the member that keeps a lock's order for whom the callers here wait. Its answer is in [`lock_info`](Self::lock_info) a round
    /// trip later.
    pub fn inquire(&self, name: &str) {
        self.running.driver.inquire(name);
    }

    /// Watches the messages of one lock. Returns `None` if sixteen are watched already.
    pub fn trace(&self, lock: &str) -> Option<Trace> {
        Trace::new(&self.running.driver, lock)
    }

    /// Stops the node: waiting callers get [`AcquireError::Stopped`], guards are lost, and the others continue without it at once.
    ///
    /// It keeps its vote, if it has one: started again with the same [directory](Builder::data) it is the same member. This takes at most a
    /// second. When it returns, the address and the directory are free.
    pub async fn stop(&self) {
        self.running.driver.stop(STOP_TIME);
        self.running.driver.when_ended().await;
    }

    pub(crate) fn stop_now(&self) {
        self.running.driver.stop(STOP_TIME);
    }

    /// Stops the node without telling other members, as if its process had been killed.
    #[doc(hidden)]
    pub async fn crash(&self) {
        self.running.driver.close_now();
        self.running.driver.when_ended().await;
    }

    /// Panics inside the node, as a bug would.
    #[doc(hidden)]
    pub fn fail(&self) {
        let driver = &self.running.driver;
        let fails = || {
            let _state = driver.state();
            // Without the process's own hook for panics, which may end it.
            std::panic::resume_unwind(Box::new("on purpose"))
        };
        let _: std::thread::Result<()> = std::thread::scope(|scope| scope.spawn(fails).join());
    }

    /// Leaves the group for good: its locks are given up, its vote is handed over, then the node stops.
    ///
    /// After a [`Timeout`](GroupError::Timeout) it has not left yet. It grants nothing more and keeps trying. Call this again to wait longer,
    /// or [`stop`](Self::stop) the node and let another member [evict](Self::evict) it.
    pub async fn leave(&self, limit: Duration) -> Result<(), GroupError> {
        self.request(Request::Leave, limit).await?;
        // No member is left that should be told.
        self.running.driver.close_now();
        self.running.driver.when_ended().await;
        Ok(())
    }

    /// Joins the group of this member, as `host:port` or `name@host:port`, if this node is in none yet.
    pub async fn join(&self, address: &str, limit: Duration) -> Result<(), GroupError> {
        let invalid = |why: String| GroupError::Refused(RequestError::Invalid(why));
        let driver = &self.running.driver;
        let entry = parse(address).map_err(|error| invalid(error.to_string()))?;
        if driver.state().node.status().group_id.is_some() {
            return Err(invalid("this node is in a group already: let it leave first".to_owned()));
        }
        driver.add_seed(entry.into_peer());
        tokio::time::timeout(limit, self.ready()).await.map_err(|_| GroupError::Timeout)?;
        if driver.is_stopped() { Err(GroupError::Stopped) } else { Ok(()) }
    }

    /// Removes a member, by its number: it loses its locks and its vote. With `ban` no node of its name is admitted again, until
    /// [`admit`](Self::admit).
    pub async fn evict(&self, member: u32, ban: bool, limit: Duration) -> Result<(), GroupError> {
        self.request(Request::Evict { node: NodeId(member), ban }, limit).await
    }

    /// Bans a key: no member accepts it any more, whatever name its certificate is for, until [`admit_key`](Self::admit_key). Connections
    /// that were made with it end. Its owner needs a new key. An earlier version does not refuse it.
    pub async fn ban_key(&self, key: KeyDigest, limit: Duration) -> Result<(), GroupError> {
        if self.running.driver.own_key() == Some(key) {
            let why = "it is the key of this node: give this node a new one first, or ask another member".to_owned();
            return Err(GroupError::Refused(RequestError::Invalid(why)));
        }
        self.request(Request::Ban { name: key.label() }, limit).await
    }

    /// Accepts a key again.
    pub async fn admit_key(&self, key: KeyDigest, limit: Duration) -> Result<(), GroupError> {
        self.admit(key.label(), limit).await
    }

    /// Admits nodes of this name again.
    pub async fn admit(&self, name: impl Into<String>, limit: Duration) -> Result<(), GroupError> {
        self.request(Request::Admit { name: name.into() }, limit).await
    }

    /// Changes the protocol of all locks with this prefix, on all members. Options have the form `key=value`.
    pub async fn set_class(
        &self,
        prefix: impl Into<String>,
        protocol: impl Into<String>,
        options: &[&str],
        limit: Duration,
    ) -> Result<(), GroupError> {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        self.request(Request::SetClass(Class { prefix: prefix.into(), protocol: protocol.into(), options }), limit)
            .await
    }

    /// Takes a lock from its holder, on any member: its guards are at risk first, then lost.
    pub async fn break_lock(&self, lock: impl Into<String>, limit: Duration) -> Result<(), GroupError> {
        self.request(Request::Break { lock: lock.into() }, limit).await
    }

    async fn request(&self, request: Request, limit: Duration) -> Result<(), GroupError> {
        let driver = &self.running.driver;
        if driver.is_stopped() {
            return Err(GroupError::Stopped);
        }
        let (token, done) = driver.request(request);
        let asked = Asked { driver, token };
        match tokio::time::timeout(limit, done).await {
            Err(_) => Err(GroupError::Timeout),
            Ok(Err(_)) => Err(GroupError::Stopped),
            Ok(Ok(result)) => {
                std::mem::forget(asked);
                result.map_err(GroupError::Refused)
            }
        }
    }
}

/// A request to the group. If it is dropped before its answer, it is forgotten.
struct Asked<'a> {
    driver: &'a Driver,
    token: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.driver.forget_request(self.token);
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StopOnDrop { name, group, address, .. } = &*self.running;
        f.debug_struct("Node")
            .field("name", name)
            .field("group", group)
            .field("address", address)
            .finish_non_exhaustive()
    }
}
