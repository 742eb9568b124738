use std::collections::BTreeMap;

use hallpass_core::protocol::OptionError;
use hallpass_core::{NodeId, Ticks};

use crate::Incarnation;
use crate::wire::{FRAME_MAX, LABEL_MAX};

/// What a node is made from.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The group's name.
    pub group: String,
    /// This node's name, for people.
    pub name: String,
    /// This node.
    pub me: NodeId,
    /// How often this node has been started. It must be on disk before the node is made.
    pub incarnation: Incarnation,
    /// Drawn at random at each start: tells two processes apart that have the same incarnation by mistake.
    pub boot_id: u64,
    /// Which protocol serves which locks, in a group that this node founds; the longest prefix counts. Other locks use
    /// [`FOUNDED_WITH`].
    pub classes: Vec<Class>,
    /// How many local callers may follow each other while another node waits. More is faster and less fair.
    pub local_streak: u32,
    /// Permissions that are not used for this long are dropped.
    pub cache_idle: Ticks,
    /// At most this many locks keep permissions that nobody uses.
    pub cache_max: usize,
    /// Local callers are refused another lock of a class while this many of that class are held, waited for or cached.
    /// Requests of other members are answered beyond that. A protocol that passes a token keeps its locks forever, used or
    /// not: where the token is must not be forgotten. So such a class can fill up, and does not keep others from working.
    pub locks_max: usize,
    /// At most this many callers wait or hold at once.
    pub callers_max: usize,
    /// New requests are refused while more than this many bytes wait for one peer.
    pub backlog_max: usize,
    /// Makes the hashes of lock names unpredictable to those who choose the names.
    pub seed: u64,
    /// How it takes part in a group whose members come, go and fail.
    pub views: ViewsConfig,
}

/// What a node needs to take part in views.
#[derive(Clone, Debug)]
pub struct ViewsConfig {
    /// The address by which others reach this node.
    pub address: String,
    /// How a group comes to be, if this node is in none.
    pub founding: Founding,
    /// What it stores outlives the process. In a group whose members do, others have no vote.
    pub durable: bool,
    /// What it has stored: see [`Write`](crate::Write). [`keys`](crate::keys) names what its driver stores there.
    pub stored: BTreeMap<u64, Vec<u8>>,
    /// A group that it founds has epochs above this one.
    pub epoch_floor: u64,
    /// Every earlier process of this node is dead, and so are the callers it had granted locks to.
    pub predecessor_is_dead: bool,
    /// How long a session lasts without being renewed, in a group that this node founds.
    pub ttl: Ticks,
    /// By how many millionths the clocks of two members may differ in rate, in a group that this node founds.
    pub drift_ppm: u32,
    /// A voter that is away for longer is replaced.
    pub replace_after: Ticks,
    /// The most members that vote: 1, 3 or 5.
    pub voters_max: usize,
}

/// How a group comes to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Founding {
    /// This node joins a group that exists.
    Never,
    /// This many nodes found a group together, this one among them, as soon as all of them have found each other. With 1 it
    /// founds a group alone.
    Together(usize),
}

impl ViewsConfig {
    /// The defaults of every setting: a group of one that is founded at once and forgotten with its process.
    pub fn new(address: impl Into<String>) -> Self {
        const SECOND: Ticks = 1_000_000_000;
        Self {
            address: address.into(),
            founding: Founding::Together(1),
            durable: false,
            stored: BTreeMap::new(),
            epoch_floor: 0,
            predecessor_is_dead: true,
            ttl: 5 * SECOND,
            drift_ppm: 10_000,
            replace_after: 600 * SECOND,
            voters_max: 5,
        }
    }
}

/// The protocol of the locks whose names begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// The beginning of the names.
    pub prefix: String,
    /// The protocol, as the laboratory names it.
    pub protocol: String,
    /// Its options: `key=value`.
    pub options: Vec<String>,
}

impl Class {
    /// The protocol of locks for which a group has agreed on none. Every version must serve them alike.
    pub(crate) fn default_for(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), protocol: "carvalho-roucairol".to_owned(), options: Vec::new() }
    }

    /// The classes with which a group is founded: these, and [`FOUNDED_WITH`] for all other locks.
    pub(crate) fn founded_with(classes: &[Self]) -> Vec<Self> {
        let mut classes = classes.to_vec();
        if !classes.iter().any(|class| class.prefix.is_empty()) {
            classes.push(Self { prefix: String::new(), protocol: FOUNDED_WITH.to_owned(), options: Vec::new() });
        }
        classes
    }
}

/// The protocol of new groups. Groups that exist keep the one that they have agreed on.
pub const FOUNDED_WITH: &str = "directory";

impl NodeConfig {
    /// The defaults of every setting, in one place.
    pub fn new(me: NodeId, views: ViewsConfig) -> Self {
        const SECOND: Ticks = 1_000_000_000;
        Self {
            group: "hallpass".to_owned(),
            name: me.to_string(),
            me,
            incarnation: Incarnation::FIRST,
            boot_id: 0,
            classes: Vec::new(),
            local_streak: 1,
            cache_idle: 10 * SECOND,
            cache_max: 100_000,
            locks_max: 1_000_000,
            callers_max: 1_000_000,
            backlog_max: 8 * 1024 * 1024,
            seed: 0,
            views,
        }
    }

    /// Says what does not fit.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        if [&self.group, &self.name].iter().any(|text| text.is_empty() || text.len() > LABEL_MAX) {
            return Err(OptionError(format!("names of groups and nodes have 1 to {LABEL_MAX} bytes")));
        }
        Ok(())
    }

    /// How many bytes of one peer are kept until its view is open here. A sender holds back its requests at `backlog_max`, but
    /// not what belongs to requests that it has made before, and not what it passes on: the receiver keeps twice as much, so
    /// that no member is cut off for being busy.
    pub(crate) fn inbound_max(&self) -> usize {
        self.backlog_max.saturating_mul(2).saturating_add(FRAME_MAX)
    }

    /// How many bytes of answers are kept for a peer that does not read them, while it goes on asking. A member never comes
    /// near: it asks only while at most `backlog_max` bytes of its own are not acknowledged, what acknowledges them has come
    /// behind the answers, and an answer is less than four times as long as what it answers.
    pub(crate) fn unread_max(&self) -> usize {
        self.backlog_max.saturating_mul(4).saturating_add(FRAME_MAX)
    }
}

/// FNV-1a: it guards against mistakes, not against malice.
pub(crate) struct Digest(pub(crate) u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
