use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hallpass_core::NodeId;
use hallpass_node::{Class, NodeConfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connect::resolve;
use crate::data::next_incarnation;
use crate::driver::{Driver, Peer};
use crate::members::{Entry, Own, other_spelling, others, reaches};
use crate::node::Running;
use crate::os::now;
use crate::tasks::{keep_connected, keep_time, listen};
use crate::tls::{Keys, Tls};
use crate::{DataDirectory, Node, StartError};

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
    /// Its members and incarnation are filled in when the node starts.
    config: NodeConfig,
    listen: String,
    advertise: Option<String>,
    peers: Vec<String>,
    keys: Option<Keys>,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    Nowhere,
    Path(PathBuf),
    Open(Arc<DataDirectory>),
}

impl Builder {
    pub(crate) fn new() -> Self {
        let mut config = NodeConfig::new(NodeId(1), []);
        config.name = "node".to_owned();
        Self {
            config,
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            peers: Vec::new(),
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
        self.listen = address.into();
        self
    }

    /// The address by which the other members know this node, as they list it. Default: the one it listens on, which must be
    /// a single one then.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// The members' addresses: `host:port`, or `name@host:port` to accept only a peer of this name.
    ///
    /// All members must be given the same addresses, written in the same way; this node's own may be among them. With
    /// [`keys`](Self::keys) every other member needs its name: a certificate is for a name, and says nothing about addresses.
    /// Without, all of them must be on this machine. Default: none, which makes a group of one.
    pub fn peers<P: Into<String>>(mut self, peers: impl IntoIterator<Item = P>) -> Self {
        self.peers = peers.into_iter().map(Into::into).collect();
        self
    }

    /// Members authenticate each other and encrypt what they send, by mutual TLS with these keys. Default: no keys, and
    /// loopback addresses only.
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// A directory of this node's own, where it counts how often it was started. It is created if needed.
    ///
    /// Without one the front part of fences comes from the clock in steps of four seconds: they may repeat if all members of
    /// a group are restarted sooner than that, or their clocks are set back, or stand before 2026 or after 2038. Default: none.
    ///
    /// With one they rise over every restart, whatever the clock says. If the directory is lost, they rise by the clock; so keep
    /// it where it outlives a reboot.
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

    /// Locks whose names begin with this prefix use this protocol, with these options (`key=value`).
    ///
    /// All members must be given the same classes. Where several prefixes fit, the longest counts. Default:
    /// `carvalho-roucairol` for all locks.
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

    /// Permissions that were not used for this long are dropped. Longer saves messages and takes memory. Default: 10
    /// seconds.
    pub fn cache_idle(mut self, idle: Duration) -> Self {
        self.config.cache_idle = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Starts the node. It listens when this returns, and grants locks once it has been connected with all other members.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time enabled: there, use [`start_blocking`](Self::start_blocking).
    pub async fn start(self) -> Result<Node, StartError> {
        let tls = self.keys.as_ref().map(|keys| Tls::load(keys, &self.config.name)).transpose()?;
        let data = match &self.data {
            Data::Nowhere => None,
            Data::Path(path) => Some(Arc::new(DataDirectory::open(path)?)),
            Data::Open(directory) => Some(Arc::clone(directory)),
        };
        let listener = self.bind(tls.is_some()).await?;
        let address = listener.local_addr().map_err(|source| self.cannot_listen(source))?;
        let own = self.own_address(address);
        let (mut config, peers) = self.members(&own, address)?;
        self.check_peers(&own, address, &peers).await?;
        config.incarnation = match &data {
            Some(data) => data.incarnation(),
            None => {
                let counted = next_incarnation(None, SystemTime::now());
                counted.map_err(|error| StartError::Setting(error.to_string()))?
            }
        };
        let (name, group) = (config.name.clone(), config.group.clone());
        let node = hallpass_node::Node::new(config).map_err(|error| StartError::Setting(error.0))?;
        let me = node.id();
        let driver = Driver::new(format!("'{name}' ({own})"), node, peers, data);
        tokio::spawn(listen(Arc::clone(&driver), listener, tls.clone()));
        tokio::spawn(keep_time(Arc::clone(&driver)));
        // Of two members the one with the lower id makes the connection.
        for index in (0..driver.peers.len()).filter(|index| driver.peers[*index].id > me) {
            tokio::spawn(keep_connected(Arc::clone(&driver), index, tls.clone()));
        }
        Ok(Node { running: Arc::new(Running { driver, name, group, address, encrypted: tls.is_some() }) })
    }

    fn cannot_listen(&self, source: std::io::Error) -> StartError {
        StartError::Listen { address: self.listen.clone(), source }
    }

    async fn bind(&self, has_keys: bool) -> Result<TcpListener, StartError> {
        let addresses = resolve(&self.listen).await.map_err(|_| StartError::Address(self.listen.clone()))?;
        if let Some(exposed) = addresses.iter().find(|address| !address.ip().is_loopback() && !has_keys) {
            return Err(StartError::Exposed(*exposed));
        }
        TcpListener::bind(addresses.as_slice()).await.map_err(|source| self.cannot_listen(source))
    }

    /// The address by which the other members know this node.
    fn own_address(&self, address: SocketAddr) -> String {
        match &self.advertise {
            Some(advertised) => advertised.clone(),
            None if self.listen.ends_with(":0") => address.to_string(),
            None => self.listen.clone(),
        }
    }

    /// Members are numbered by their addresses, in alphabetical order: all of them come to the same numbers.
    fn members(&self, own: &str, address: SocketAddr) -> Result<(NodeConfig, Vec<Peer>), StartError> {
        let has_keys = self.keys.is_some();
        let mut members = others(&self.peers, &Own { name: &self.config.name, address: own, has_keys })?;
        members.push(Entry { name: Some(self.config.name.clone()), address: own.to_owned() });
        members.sort_unstable_by(|a, b| a.address.cmp(&b.address));
        let numbered = || members.iter().zip(1..).map(|(entry, id)| (NodeId(id), &entry.name, &entry.address));
        let mut config = self.config.clone();
        config.me = numbered().find(|(_, _, address)| **address == own).map_or(NodeId(1), |(id, ..)| id);
        config.members = numbered().map(|(id, ..)| id).collect();
        // Members compare the whole list: different lists may have the same length.
        config.agreed = members.iter().map(|entry| entry.address.clone()).collect();
        config.boot_id = random((now(), std::process::id()));
        config.seed = now() ^ random(address);
        let peers = numbered().filter(|(id, ..)| *id != config.me);
        let peers =
            peers.map(|(id, name, address)| Peer { id, address: address.clone(), name: name.clone() }).collect();
        Ok((config, peers))
    }

    /// What only the system can tell about the peers' addresses: a name that is not known, or not yet, is no reason not to start.
    async fn check_peers(&self, own: &str, bound: SocketAddr, peers: &[Peer]) -> Result<(), StartError> {
        let mut lookups = JoinSet::new();
        for Peer { address, .. } in peers.iter().cloned() {
            lookups.spawn(async move { (timeout(LOOKUP_TIME, resolve(&address)).await, address) });
        }
        while let Some(found) = lookups.join_next().await {
            let Ok((Ok(Ok(found)), address)) = found else { continue };
            if found.iter().any(|found| reaches(*found, bound)) {
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

/// A start does not wait longer for names to be looked up.
const LOOKUP_TIME: Duration = Duration::from_secs(2);

/// A number that nobody can guess, from what the standard library seeds its hash tables with.
fn random(salt: impl std::hash::Hash) -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), salt)
}
