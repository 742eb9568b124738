use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hallpass_core::{NodeId, Ticks};
use hallpass_node::{Class, Founding, Incarnation, NodeConfig, ViewsConfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connect::resolve;
use crate::data::{next_incarnation, random, random_id};
use crate::driver::{Driver, Parts};
use crate::members::{ListedMember, Own, check_known, check_name, other_spelling, others, parse, reaches};
use crate::node::StopOnDrop;
use crate::os::now;
use crate::tasks::Seeds;
use crate::tls::{Keys, Tls};
use crate::{DataDirectory, Node, StartError, disk, tasks};

/// The settings of a [`Node`], and its start.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::{Duration, SystemTime};
///
/// let node = hallpass::Node::builder()
///     .group("billing")
///     .name("a")
///     .listen("127.0.0.1:0")
///     .cache_idle(Duration::from_secs(60))
///     .start()
///     .await?;
/// assert_eq!(node.name(), "a");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    /// Its identity, its address, how a group is founded, and what is stored are filled in when the node starts.
    config: NodeConfig,
    listen: Listen,
    advertise: Option<String>,
    peers: Vec<String>,
    join: Vec<String>,
    expect: Option<usize>,
    has_clients: bool,
    keys: Option<Keys>,
    data: Data,
}

#[derive(Clone, Debug)]
enum Listen {
    FreePort,
    At(String),
    Nowhere,
}

impl Listen {
    fn address(&self) -> &str {
        match self {
            Self::At(address) => address,
            Self::FreePort | Self::Nowhere => FREE_PORT,
        }
    }
}

const FREE_PORT: &str = "127.0.0.1:0";

#[derive(Clone, Debug)]
enum Data {
    Nowhere,
    Path(PathBuf),
    Open(Arc<DataDirectory>),
}

impl Builder {
    pub(crate) fn new() -> Self {
        let mut config = NodeConfig::new(NodeId(1), ViewsConfig::new(""));
        config.name = "node".to_owned();
        Self {
            config,
            listen: Listen::FreePort,
            advertise: None,
            peers: Vec::new(),
            join: Vec::new(),
            expect: None,
            has_clients: false,
            keys: None,
            data: Data::Nowhere,
        }
    }

    /// The group's name. Members of different groups reject each other. Default: `hallpass`.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.config.group = group.into();
        self
    }

    /// This node's name, in logs, in [`Status`](crate::Status) and in its certificate. Default: `node`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Where to listen, such as `127.0.0.1:7400`. Without [`keys`](Self::keys) this must be a loopback address.
    /// Default: a free port on loopback.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = Listen::At(address.into());
        self
    }

    /// Listens on nothing: nobody can reach this node, and it is the only member of its group. [`Node::address`] has port 0 then.
    pub fn listen_nowhere(mut self) -> Self {
        self.listen = Listen::Nowhere;
        self
    }

    /// True if it was said where the node listens, or how others reach it.
    pub fn has_address(&self) -> bool {
        !matches!(self.listen, Listen::FreePort) || self.advertise.is_some()
    }

    /// The address by which the other members know this node, as they list it. Default: the one it listens on, which must be
    /// a single one then.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// The nodes that found a group together: `host:port`, or `name@host:port` to accept only a node of this name there.
    ///
    /// This node's own address may be among them. Nodes that are in no group found one as soon as all that are listed have found
    /// each other. If a group exists already, this node joins it. So all nodes may have the same list forever. An old list still
    /// finds the group while one of its nodes is a member. With [`keys`](Self::keys) every other node needs its name: a certificate is
    /// for a name, and says nothing about addresses. Without keys all of them must be on this machine. Default: none, and this node founds
    /// a group alone.
    pub fn peers<P: Into<String>>(mut self, peers: impl IntoIterator<Item = P>) -> Self {
        self.peers = peers.into_iter().map(Into::into).collect();
        self
    }

    /// A member of an existing group, as `host:port` or `name@host:port`: this node joins the group through it, and never founds one. May be
    /// given several times.
    pub fn join(mut self, address: impl Into<String>) -> Self {
        self.join.push(address.into());
        self
    }

    /// Joins only through this member: it replaces what [`peers`](Self::peers), [`join`](Self::join) and [`expect`](Self::expect) set before.
    /// An error says what is wrong with the address, before anything depends on it.
    pub fn only_join(mut self, address: impl Into<String>) -> Result<Self, StartError> {
        (self.peers, self.expect, self.join) = (Vec::new(), None, vec![address.into()]);
        let own = self.expected_address();
        // A free port is known when the node listens. It only counts whether others can reach the host.
        let host = own.strip_suffix(":0").filter(|_| self.advertise.is_none());
        self.listed(&host.map_or(own.clone(), |host| format!("{host}:1")))?;
        Ok(self)
    }

    /// True if the node founds a group alone when it is in none.
    pub fn founds_alone(&self) -> bool {
        let others = self.listed(&self.expected_address()).map_or(usize::MAX, |others| others.len());
        self.join.is_empty() && self.expect.unwrap_or(1) <= 1 && others == 0
    }

    /// True if the node only joins a group and never founds one.
    pub fn only_joins(&self) -> bool {
        !self.join.is_empty()
    }

    /// This node's address for others, as far as it is known before it listens.
    fn expected_address(&self) -> String {
        self.advertise.clone().unwrap_or_else(|| self.listen.address().to_owned())
    }

    /// How many nodes found a group together, this one among them. The names in [`peers`](Self::peers) may then have several addresses, each a
    /// node, as the name of a headless service has. They are looked up again while the node looks for a group. Give all nodes the same
    /// number: with half of all nodes or fewer, two groups may be founded. Default: as many as are listed.
    pub fn expect(mut self, nodes: usize) -> Self {
        self.expect = Some(nodes);
        self
    }

    /// How long locks are certain without a message from the group, in a group that this node founds. A member that fails or is cut off has
    /// lost its locks after this time, and others get them shortly after. A shorter time makes failover faster, but shorter disturbances
    /// of the network or the machine lose locks. Default: 5 seconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.views.ttl = ticks(ttl);
        self
    }

    /// The maximum number of members that vote on who the members are: 1, 3 or 5. With 3 one may fail, with 5 two, and each decision takes
    /// more messages. Default: 5.
    pub fn voters_max(mut self, voters: usize) -> Self {
        self.config.views.voters_max = voters;
        self
    }

    /// A voting member that is away for longer than this gives its vote to another member, if one can take it. Default: 10 minutes.
    pub fn replace_after(mut self, away: Duration) -> Self {
        self.config.views.replace_after = ticks(away);
        self
    }

    /// Says that this node lends its locks to other processes, which may outlive it. After a crash the next start then waits until their
    /// session is over, even if the crashed process has certainly ended. Default: false.
    pub fn has_clients(mut self, has_clients: bool) -> Self {
        self.has_clients = has_clients;
        self
    }

    /// Makes members authenticate each other and encrypt what they send, by mutual TLS with these keys. Default: no keys, and loopback
    /// addresses only.
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// A directory for this node alone. It is created if needed. Keep it where it outlives a reboot.
    ///
    /// With a directory, a node that is started again is the same member and keeps its vote. Fences rise over every restart of everything,
    /// whatever the clocks say.
    ///
    /// Without a directory, a restarted process is a new member. A group in which no member has one ends when more than half of its voters
    /// are gone at once. A new group may be founded then. Its fences come from the clock in steps of four seconds: they may repeat if
    /// clocks are set back, or stand before 2026 or after 2038. Default: none.
    pub fn data(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data = Data::Path(directory.into());
        self
    }

    /// Like [`data`](Self::data), with a directory that is already open. Keep an `Arc` of it to have the directory for longer
    /// than the node.
    pub fn data_directory(mut self, directory: impl Into<Arc<DataDirectory>>) -> Self {
        self.data = Data::Open(directory.into());
        self
    }

    /// Sets the protocol of all locks with this prefix. Options have the form `key=value`.
    ///
    /// This holds for a group that this node founds. All founding nodes must be given the same classes. A group that the node joins has its
    /// own classes, and [`Node::set_class`] changes them. If several prefixes fit, the longest counts. Default: `directory` for
    /// all locks.
    pub fn class(mut self, prefix: impl Into<String>, protocol: impl Into<String>, options: &[&str]) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        self.config.classes.push(Class { prefix: prefix.into(), protocol: protocol.into(), options });
        self
    }

    /// How many callers of this node may hold a lock in a row while another node waits for it. More is faster and less
    /// fair. Default: 1.
    pub fn local_streak(mut self, streak: u32) -> Self {
        self.config.local_streak = streak.max(1);
        self
    }

    /// Permissions that were not used for this long are dropped. A longer time saves messages and takes memory. Default: 10 seconds.
    pub fn cache_idle(mut self, idle: Duration) -> Self {
        self.config.cache_idle = ticks(idle);
        self
    }

    /// Starts the node. It listens when this returns, and grants locks once it is a member of a group: [`Node::ready`] resolves then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time enabled: there, use [`start_blocking`](Self::start_blocking).
    pub async fn start(self) -> Result<Node, StartError> {
        check_name(&self.config.name)?;
        let tls = self.keys.as_ref().map(|keys| Tls::load(keys, &self.config.name)).transpose()?.map(Arc::new);
        let data = match &self.data {
            Data::Nowhere => None,
            Data::Path(path) => Some(Arc::new(retry(|| DataDirectory::open(path), is_in_use).await?)),
            Data::Open(directory) => Some(Arc::clone(directory)),
        };
        let listener = match self.listen {
            Listen::Nowhere => None,
            _ => Some(self.bind(tls.is_some()).await?),
        };
        let address = match &listener {
            Some(listener) => listener.local_addr().map_err(|source| self.cannot_listen(source))?,
            None if self.founds_alone() => NOWHERE,
            None => return Err(StartError::Setting("a node that has others must listen".to_owned())),
        };
        let own = self.own_address(address);
        let listed = self.listed(&own)?;
        self.check_peers(&own, address, &listed).await?;
        let mut config = self.config.clone();
        config.boot_id = random((now(), std::process::id()));
        config.seed = now() ^ random(address);
        let is_alone = listed.is_empty();
        self.fill_in_views(&mut config, &own, listed.len(), data.as_deref())?;
        let seeds = listed.into_iter().map(ListedMember::into_peer).collect();
        let (name, group, boot_id) = (config.name.clone(), config.group.clone(), config.boot_id);
        let node = hallpass_node::Node::new(config).map_err(|error| StartError::Setting(error.0))?;
        let me = format!("'{name}' ({own})");
        let encrypted = tls.is_some();
        let driver = Driver::new(Parts { me, boot_id, tls, seeds, node });
        let disk =
            data.map(|data| disk::start(data, Arc::downgrade(&driver))).transpose().map_err(StartError::Thread)?;
        let (jobs, writing) = disk.unzip();
        let listener = listener.map(TcpListener::into_std).transpose().map_err(|source| self.cannot_listen(source))?;
        let seeds = if self.expect.is_some() { Seeds::Every } else { Seeds::One };
        driver.begin(jobs);
        tasks::start(Arc::clone(&driver), listener, seeds, writing).map_err(StartError::Thread)?;
        if is_alone {
            // A caller without peers expects that a free lock is granted at once.
            let _ = timeout(FOUNDED_WITHIN, driver.when_complete()).await;
        }
        Ok(Node { running: Arc::new(StopOnDrop { driver, name, group, address, advertised: own, encrypted }) })
    }

    fn cannot_listen(&self, source: std::io::Error) -> StartError {
        StartError::Listen { address: self.listen.address().to_owned(), source }
    }

    async fn bind(&self, has_keys: bool) -> Result<TcpListener, StartError> {
        let addresses = resolve(self.listen.address()).await;
        let addresses = addresses.map_err(|_| StartError::Address(self.listen.address().to_owned()))?;
        if let Some(exposed) = addresses.iter().find(|address| !address.ip().is_loopback() && !has_keys) {
            return Err(StartError::Exposed(*exposed));
        }
        let bind = || {
            let listener = std::net::TcpListener::bind(addresses.as_slice())?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
        retry(bind, is_taken).await.map_err(|source| self.cannot_listen(source))
    }

    /// The other nodes that are listed, to found a group with or to join one through.
    fn listed(&self, own: &str) -> Result<Vec<ListedMember>, StartError> {
        let setting = |why: &str| Err(StartError::Setting(why.to_owned()));
        if !self.join.is_empty() {
            if !self.peers.is_empty() || self.expect.is_some() {
                return setting(
                    "a node either joins a group or is one of those that found it: give it peers, or an address to join",
                );
            }
            check_known(own)?;
            return self.join.iter().map(|address| parse(address)).collect();
        }
        match self.expect {
            Some(0) => return setting("a group is founded by one node at least"),
            Some(2..) if self.peers.is_empty() => {
                return setting("there are no peers among which the others could be found");
            }
            Some(_) => {
                check_known(own)?;
                return self.peers.iter().map(|peer| parse(peer)).collect();
            }
            None => {}
        }
        others(&self.peers, &Own { name: &self.config.name, address: own, has_keys: self.keys.is_some() })
    }

    /// Fills in what a node needs to take part in a group.
    fn fill_in_views(
        &self,
        config: &mut NodeConfig,
        own: &str,
        others: usize,
        data: Option<&DataDirectory>,
    ) -> Result<(), StartError> {
        if self.config.views.ttl < MIN_TTL {
            return Err(StartError::Setting(format!(
                "a session of less than {} ms cannot be kept",
                MIN_TTL / 1_000_000
            )));
        }
        if ![1, 3, 5].contains(&self.config.views.voters_max) {
            return Err(StartError::Setting("at most 1, 3 or 5 members can vote".to_owned()));
        }
        let views = &mut config.views;
        views.address = own.to_owned();
        views.founding = match (self.join.is_empty(), self.expect) {
            (false, _) => Founding::Never,
            (true, Some(nodes)) => Founding::Together(nodes),
            (true, None) => Founding::Together(others + 1),
        };
        match data.map(DataDirectory::started) {
            Some(started) => {
                (config.me, config.incarnation) = (started.node, started.incarnation);
                views.durable = true;
                views.stored = started.stored.clone();
                views.epoch_floor = started.epoch_floor;
                views.predecessor_is_dead = started.predecessor_is_dead && !self.has_clients;
            }
            None => {
                (config.me, config.incarnation) = (random_id(), Incarnation::FIRST);
                views.epoch_floor = by_the_clock()?.get().into();
            }
        }
        Ok(())
    }

    /// The address by which the other members know this node.
    fn own_address(&self, address: SocketAddr) -> String {
        match &self.advertise {
            Some(advertised) => advertised.clone(),
            None if self.listen.address().ends_with(":0") => address.to_string(),
            None => self.listen.address().to_owned(),
        }
    }

    /// Checks what only the system knows about the peers' addresses. A name that cannot be resolved (yet) does not prevent the start.
    async fn check_peers(&self, own: &str, bound: SocketAddr, peers: &[ListedMember]) -> Result<(), StartError> {
        let mut lookups = JoinSet::new();
        for ListedMember { address, .. } in peers.iter().cloned() {
            lookups.spawn(async move { (timeout(LOOKUP_TIME, resolve(&address)).await, address) });
        }
        while let Some(found) = lookups.join_next().await {
            let Ok((Ok(Ok(found)), address)) = found else { continue };
            // If names may have several addresses, this node's own is expected to be one of them.
            if self.expect.is_none() && found.iter().any(|found| reaches(*found, bound)) {
                return Err(StartError::Setting(other_spelling(&address, own)));
            }
            if self.keys.is_none() && !found.iter().any(|found| found.ip().is_loopback()) {
                return Err(StartError::Setting(format!(
                    "the peer {address} is on another machine, and there are no keys: make some with 'hallpass init'"
                )));
            }
        }
        Ok(())
    }
}

/// The address of a node that does not listen.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// How long a start waits for names to be looked up.
const LOOKUP_TIME: Duration = Duration::from_secs(2);

/// How long a node without peers may take to found its group. One that takes longer is in a group that it cannot reach now.
const FOUNDED_WITHIN: Duration = Duration::from_millis(500);

/// The shortest session: a shorter one would run out while a machine is merely busy.
const MIN_TTL: Ticks = 100_000_000;

fn ticks(duration: Duration) -> Ticks {
    Ticks::try_from(duration.as_nanos()).unwrap_or(Ticks::MAX)
}

fn by_the_clock() -> Result<Incarnation, StartError> {
    next_incarnation(None, SystemTime::now()).map_err(|error| StartError::Setting(error.to_string()))
}

fn is_in_use(error: &StartError) -> bool {
    matches!(error, StartError::InUse(_))
}

/// How long to wait for the address and the directory of a node that was just dropped: it frees them when it has told its group.
const FREE_WITHIN: Duration = Duration::from_secs(1);

async fn retry<T, E>(mut attempt: impl FnMut() -> Result<T, E>, may_pass: impl Fn(&E) -> bool) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if may_pass(&error) && begun.elapsed() < FREE_WITHIN => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            ended => return ended,
        }
    }
}
