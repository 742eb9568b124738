use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hallpass_core::{Mode, NodeId};
use hallpass_node::{Class, LockStatus, NodeConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::clock::now;
use crate::connection::{answer, dial};
use crate::data::{Data, incarnation_from_clock};
use crate::lock::{Guard, Lock, Term};
use crate::shared::{Peer, Shared, TICK};
use crate::tls::{Keys, Tls};
use crate::{AcquireError, StartError};

/// A member of a group, running. Clones are the same member; it stops when the last one is dropped, guards included.
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

/// Stops the node when it is dropped. Tasks hold [`Shared`] only, so that they do not keep it alive.
pub(crate) struct Running {
    pub(crate) shared: Arc<Shared>,
    name: String,
    group: String,
    address: SocketAddr,
    encrypted: bool,
}

/// How to start a [`Node`]. Every setting has a default that works on one machine.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    group: String,
    name: String,
    listen: String,
    advertise: Option<String>,
    peers: Vec<String>,
    keys: Option<Keys>,
    data: Option<PathBuf>,
    classes: Vec<Class>,
    local_streak: u32,
    cache_idle: Duration,
}

impl Node {
    /// Starts to describe a node.
    pub fn builder() -> Builder {
        Builder {
            group: "hallpass".to_owned(),
            name: "node".to_owned(),
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            peers: Vec::new(),
            keys: None,
            data: None,
            classes: Vec::new(),
            local_streak: 1,
            cache_idle: Duration::from_secs(10),
        }
    }

    /// A lock by its name: 1 to 255 bytes of UTF-8. Nothing is sent until somebody acquires it.
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock::new(Arc::clone(&self.running), name.into())
    }

    /// Acquires several locks or none, in an order that cannot deadlock.
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

    /// Waits to become the leader of this name, and is it until the term is resigned, dropped or lost.
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

    /// Waits until the node has been stopped, by [`stop`](Self::stop) or by a failure of its own.
    pub async fn stopped(&self) {
        self.running.shared.when_stopped().await;
    }

    /// Waits until every member of the group has been met, or the node is stopped.
    pub async fn ready(&self) {
        loop {
            let completed = self.running.shared.completed.notified();
            tokio::pin!(completed);
            completed.as_mut().enable();
            if self.running.shared.is_stopped() || self.running.shared.core().node.is_complete() {
                return;
            }
            tokio::select! {
                () = completed => {}
                () = self.running.shared.when_stopped() => return,
            }
        }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.running.name
    }

    /// How it does.
    pub fn status(&self) -> Status {
        let shared = &self.running.shared;
        let troubles = shared.troubles();
        let core = shared.core();
        let members = core.node.members().into_iter().map(|member| {
            let at = shared.peers.iter().position(|peer| peer.id == member.id);
            let peer = at.map(|at| &shared.peers[at]);
            Member {
                trouble: at.and_then(|at| troubles[at].clone()).filter(|_| !member.connected),
                id: member.id.0,
                address: peer.map_or_else(|| self.running.address.to_string(), |peer| peer.address.clone()),
                name: peer.map_or_else(|| Some(self.running.name.clone()), |peer| peer.name.clone()),
                incarnation: member.incarnation,
                connected: member.connected,
                is_this: peer.is_none(),
            }
        });
        Status {
            group: self.running.group.clone(),
            name: self.running.name.clone(),
            id: core.node.id().0,
            complete: core.node.is_complete(),
            epoch: core.node.epoch(),
            encrypted: self.running.encrypted,
            members: members.collect(),
            locks: core.node.len(),
            messages: core.node.messages(),
            grants: core.grants,
        }
    }

    /// The locks that are held, waited for or cached on this node, by name.
    pub fn locks(&self) -> Vec<LockInfo> {
        let core = self.running.shared.core();
        let mut locks: Vec<LockInfo> = core.node.locks().map(|lock| LockInfo::of(&lock)).collect();
        drop(core);
        locks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        locks
    }

    /// Stops taking part: whoever waits is told, whoever holds has lost, connections are closed. Other members wait for
    /// this one until all of them are started anew.
    pub async fn stop(&self) {
        self.running.shared.stop();
        // Lets the connections' tasks say goodbye.
        tokio::task::yield_now().await;
    }
}

/// How a node does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The group's name.
    pub group: String,
    /// The node's name.
    pub name: String,
    /// Its number in the group.
    pub id: u32,
    /// Every member has been met: locks are granted.
    pub complete: bool,
    /// The number of the view, once complete.
    pub epoch: Option<u64>,
    /// Messages between members are encrypted.
    pub encrypted: bool,
    /// All members, this one among them.
    pub members: Vec<Member>,
    /// How many locks take memory here.
    pub locks: usize,
    /// Protocol messages sent so far.
    pub messages: u64,
    /// Locks granted here so far.
    pub grants: u64,
}

/// A member as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its number in the group.
    pub id: u32,
    /// Where it listens.
    pub address: String,
    /// Its name, if it is known.
    pub name: Option<String>,
    /// How often it has been started; 0 if it has not been met.
    pub incarnation: u32,
    /// A connection stands.
    pub connected: bool,
    /// It is the node that was asked.
    pub is_this: bool,
    /// Why there is no connection, if that is known.
    pub trouble: Option<String>,
}

/// A lock as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// How it is held on this node, if it is: `exclusive` or `shared`.
    pub held: Option<&'static str>,
    /// How many callers of this node hold it.
    pub holders: usize,
    /// How many wait on this node.
    pub waiters: usize,
    /// The fence of the last entry on this node.
    pub fence: u64,
}

impl LockInfo {
    fn of(lock: &LockStatus<'_>) -> Self {
        let held = lock.held.map(|mode| if mode == Mode::Exclusive { "exclusive" } else { "shared" });
        let (holders, waiters, fence) = (lock.holders, lock.waiters, lock.fence.get());
        Self { name: lock.name.to_owned(), protocol: lock.protocol.to_owned(), held, holders, waiters, fence }
    }
}

impl Builder {
    /// The group's name; members of different groups refuse each other. Default: `hallpass`.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// This node's name, for people and for its certificate. Default: `node`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Where to listen, such as `127.0.0.1:7400`. Without [`keys`](Self::keys) only loopback addresses are taken.
    /// Default: a free port on loopback.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// What the other members call this node, if it is not what it listens on.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// The other members' addresses, as they are written in their own configuration: `host:port`, or `name@host:port` to
    /// insist on a name. All members must be given the same list.
    pub fn peers<P: Into<String>>(mut self, peers: impl IntoIterator<Item = P>) -> Self {
        self.peers = peers.into_iter().map(Into::into).collect();
        self
    }

    /// Authenticate and encrypt with these keys.
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// A directory of this node's own, where it counts its lives. Without one the fence's epoch comes from the clock in
    /// steps of four seconds: fences may repeat if a whole group is started anew sooner, or its clocks are set back.
    pub fn data(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data = Some(directory.into());
        self
    }

    /// Locks whose names begin with this prefix use this protocol. Default: `carvalho-roucairol` for all.
    pub fn class(mut self, prefix: impl Into<String>, protocol: impl Into<String>, options: &[&str]) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        self.classes.push(Class { prefix: prefix.into(), protocol: protocol.into(), options });
        self
    }

    /// How many callers of this node may follow each other while another node waits. Default 1, which is fair; more is
    /// faster and less fair.
    pub fn local_streak(mut self, streak: u32) -> Self {
        self.local_streak = streak.max(1);
        self
    }

    /// Permissions that are not used for so long are given up. Default: 10 seconds.
    pub fn cache_idle(mut self, idle: Duration) -> Self {
        self.cache_idle = idle;
        self
    }

    /// Starts it: it listens when this returns, and grants locks once it has met all other members.
    pub async fn start(self) -> Result<Node, StartError> {
        self.start_after(std::future::ready(())).await
    }

    /// The same after something else: the node's directory is taken at once, so that nobody else has it meanwhile, and
    /// nothing more happens before.
    pub async fn start_after(self, first: impl Future<Output = ()>) -> Result<Node, StartError> {
        let tls = self.keys.as_ref().map(|keys| Tls::load(keys, &self.name)).transpose()?;
        let (data, incarnation) = match &self.data {
            Some(path) => Data::open(path).map(|(data, incarnation)| (Some(data), incarnation))?,
            None => (None, incarnation_from_clock()),
        };
        first.await;
        let listener = self.bind(tls.is_some()).await?;
        let address = listener.local_addr().map_err(|source| self.cannot_listen(source))?;
        let (config, peers) = self.config(address, incarnation)?;
        let core = hallpass_node::Node::new(config).map_err(|error| StartError::Setting(error.0))?;
        let shared = Arc::new(Shared::new(core, peers, data));
        tokio::spawn(listen(Arc::clone(&shared), listener, tls.clone()));
        tokio::spawn(keep_time(Arc::clone(&shared)));
        let me = shared.core().node.id();
        for at in (0..shared.peers.len()).filter(|at| shared.peers[*at].id > me) {
            tokio::spawn(keep_calling(Arc::clone(&shared), at, tls.clone()));
        }
        let encrypted = tls.is_some();
        let running = Running { shared, name: self.name, group: self.group, address, encrypted };
        Ok(Node { running: Arc::new(running) })
    }

    fn cannot_listen(&self, source: std::io::Error) -> StartError {
        StartError::Listen { address: self.listen.clone(), source }
    }

    async fn bind(&self, has_keys: bool) -> Result<TcpListener, StartError> {
        let addresses = tokio::net::lookup_host(&self.listen).await;
        let addresses: Vec<SocketAddr> = addresses.map_err(|_| StartError::Address(self.listen.clone()))?.collect();
        if let Some(exposed) = addresses.iter().find(|address| !address.ip().is_loopback() && !has_keys) {
            return Err(StartError::Exposed(*exposed));
        }
        TcpListener::bind(addresses.as_slice()).await.map_err(|source| self.cannot_listen(source))
    }

    /// Members are numbered by their addresses, in the order of the alphabet: everybody comes to the same numbers.
    fn config(&self, address: SocketAddr, incarnation: u32) -> Result<(NodeConfig, Vec<Peer>), StartError> {
        let own = match &self.advertise {
            Some(advertised) => advertised.clone(),
            None if self.listen.ends_with(":0") => address.to_string(),
            None => self.listen.clone(),
        };
        let mut members: Vec<(Option<String>, String)> = Vec::new();
        for peer in &self.peers {
            let (name, address) = match peer.split_once('@') {
                Some((name, address)) => (Some(name.to_owned()), address),
                None => (None, peer.as_str()),
            };
            if !address.contains(':') {
                return Err(StartError::Address(address.to_owned()));
            }
            members.push((name, address.to_owned()));
        }
        // A list that is the same everywhere may name this node too.
        members.retain(|(_, address)| *address != own);
        members.push((Some(self.name.clone()), own.clone()));
        members.sort_unstable_by(|a, b| a.1.cmp(&b.1));
        members.dedup_by(|a, b| a.1 == b.1);
        let numbered = || members.iter().zip(1..).map(|((name, address), id)| (NodeId(id), name, address));
        let me = numbered().find(|(_, _, address)| **address == own).map_or(NodeId(1), |(id, ..)| id);
        let peers = numbered().filter(|(id, ..)| *id != me);
        let peers =
            peers.map(|(id, name, address)| Peer { id, address: address.clone(), name: name.clone() }).collect();
        let mut config = NodeConfig::new(me, numbered().map(|(id, ..)| id));
        config.group.clone_from(&self.group);
        config.name.clone_from(&self.name);
        // Different lists of the same length are not the same list.
        config.agreed = members.iter().map(|(_, address)| address.clone()).collect();
        config.incarnation = incarnation;
        config.life = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), (now(), std::process::id()));
        config.classes.clone_from(&self.classes);
        config.local_streak = self.local_streak;
        config.cache_idle = u64::try_from(self.cache_idle.as_nanos()).unwrap_or(u64::MAX);
        config.seed = now() ^ std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), address);
        Ok((config, peers))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Strangers who have not said who they are, at most.
const STRANGERS_MAX: usize = 64;

async fn listen(shared: Arc<Shared>, listener: TcpListener, tls: Option<Tls>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.when_stopped() => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: it passes.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&strangers).try_acquire_owned() else {
            tracing::warn!(%from, "refused: too many strangers at once");
            continue;
        };
        tokio::spawn(receive_caller(Arc::clone(&shared), stream, from, tls.clone(), place));
    }
}

async fn receive_caller(
    shared: Arc<Shared>,
    stream: TcpStream,
    from: SocketAddr,
    tls: Option<Tls>,
    place: tokio::sync::OwnedSemaphorePermit,
) {
    let answered = answer(&shared, stream, tls.as_ref(), place);
    tokio::select! {
        result = answered => if let Err(error) = result {
            tracing::warn!(%from, %error, "refused a connection");
        },
        () = shared.when_stopped() => {}
    }
}

/// The pause between two calls to a peer that does not answer grows from one to the other.
const CALL_AGAIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

async fn keep_calling(shared: Arc<Shared>, at: usize, tls: Option<Tls>) {
    let mut pause = CALL_AGAIN[0];
    let mut told = String::new();
    while !shared.is_stopped() {
        let begun = Instant::now();
        let result = tokio::select! {
            result = dial(&shared, at, tls.as_ref()) => result,
            () = shared.when_stopped() => return,
        };
        match result {
            Ok(()) => {
                // Who is there only to part at once is not called as often as one whose connection broke.
                let lasted = begun.elapsed() > 10 * CALL_AGAIN[0];
                pause = if lasted { CALL_AGAIN[0] } else { (pause * 2).min(10 * CALL_AGAIN[0]) };
                told.clear();
            }
            Err(error) => {
                // The same again is no news.
                let text = error.to_string();
                shared.note_trouble(at, Some(text.clone()));
                if text != told {
                    tracing::warn!(peer = %shared.peers[at].address, error = %text, "cannot connect; trying again");
                    told = text;
                }
                pause = (pause * 2).min(CALL_AGAIN[1]);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

async fn keep_time(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        let next = shared.core().node.poll_timeout();
        let until = next.map_or(TICK, |at| Duration::from_nanos(at.saturating_sub(now())).min(TICK));
        tokio::select! {
            () = tokio::time::sleep(until.max(Duration::from_millis(1))) => {}
            () = shared.when_stopped() => return,
        }
        shared.tick();
    }
}
