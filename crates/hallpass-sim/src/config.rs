use std::fmt;

use hallpass_core::protocol::{Needs, Options};
use hallpass_core::{Bounds, NodeId, Ticks};

use crate::faults::FaultKind;
use crate::{Faults, Latency};

/// Everything that determines a simulated run, except the protocol and its options.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The ids of the founding members.
    pub nodes: Vec<NodeId>,
    /// How many requests are made in all.
    pub entries: u64,
    /// Determines every random choice.
    pub seed: u64,
    /// Which nodes make requests, and when.
    pub load: Load,
    /// How long a node stays in the critical section.
    pub hold: Ticks,
    /// How long messages take.
    pub latency: Latency,
    /// Whether messages may overtake each other on a link.
    pub order: Order,
    /// The fraction of requests in shared mode.
    pub readers: f64,
    /// What goes wrong.
    pub faults: Faults,
    /// Report a violation if a request is overtaken more often than this.
    pub overtakes_max: Option<u64>,
    /// Record every event, so that the run can be drawn.
    pub keep_trace: bool,
    /// Record the nodes' variables too.
    pub keep_states: bool,
    /// A run with more recorded events than this is given up.
    pub trace_max: usize,
}

/// Which nodes make requests, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Every node makes a request at the start, and the next one as soon as it has left.
    Saturated,
    /// One request at a time in the whole group, by a node drawn uniformly from all but the last that entered.
    Light,
    /// Poisson arrivals: this many requests per T in the whole group.
    Rate(f64),
    /// One request at a time in the whole group, this fraction of them by the node with the lowest id.
    Hotspot(f64),
}

/// Whether messages may overtake each other on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Messages arrive in any order.
    #[default]
    Any,
    /// Messages on one link arrive in the order in which they were sent.
    Fifo,
}

/// A configuration that cannot be run. One line for people: the cause and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

const HOUR: Ticks = 3_600_000_000_000;

/// One T by default: a millisecond.
const TICK: Ticks = 1_000_000;

impl Config {
    /// More recorded events than this would fill the memory.
    pub const TRACE_MAX: usize = 5_000_000;

    /// The defaults of `lab run` for nodes 1 to `count`.
    pub fn of_nodes(count: u32) -> Self {
        Self {
            nodes: (1..=count).map(NodeId).collect(),
            entries: 1000,
            seed: 1,
            load: Load::Saturated,
            hold: TICK,
            latency: Latency::Constant(TICK),
            order: Order::Any,
            readers: 0.0,
            faults: Faults::default(),
            overtakes_max: None,
            keep_trace: false,
            keep_states: false,
            trace_max: Self::TRACE_MAX,
        }
    }

    /// One T: the mean latency.
    pub fn tick(&self) -> Ticks {
        self.latency.mean().max(1)
    }

    /// The bounds on time that this run guarantees to its protocol.
    pub fn bounds(&self) -> Bounds {
        Bounds { transit_max: self.latency.max().unwrap_or(0), section_max: self.hold }
    }

    /// Completes a protocol's options with the run's T and nodes.
    pub fn prepare(&self, mut options: Options) -> Options {
        options.tick = self.tick();
        options.nodes.clone_from(&self.nodes);
        options
    }

    /// Checks that this run can be made, and gives the protocol what it needs.
    pub fn check(&self, needs: &Needs) -> Result<(), ConfigError> {
        let refuse = |why: String| Err(ConfigError(why));
        // Far beyond anything real, and short enough that no sum of them overflows.
        if self.tick() > HOUR || self.hold > HOUR || self.latency.max().is_some_and(|max| max > 2 * HOUR) {
            return refuse("latency and hold are at most 60m".to_owned());
        }
        let faults = &self.faults;
        if let Some(node) = faults.unknown_node(&self.nodes) {
            return refuse(format!("--faults {faults}: there is no node {node}"));
        }
        if faults.has(FaultKind::Restart) && !faults.has(FaultKind::Crash) {
            return refuse(format!("--faults {faults}: a restart needs a crash before it"));
        }
        if faults.has(FaultKind::Join) && self.nodes.iter().any(|node| node.0 > u32::MAX - 100_000) {
            return refuse(NO_ROOM.to_owned());
        }
        if let (Some(option), None) = (needs.delay_bound, self.latency.max()) {
            let latency = &self.latency;
            return refuse(format!("{option} needs a bound on message delay (T10); --latency {latency} has none"));
        }
        let features = Features {
            nodes: &self.nodes,
            order: self.order,
            shared: self.readers > 0.0,
            cancel: false,
            lossy: faults.affect_messages(),
            membership: faults.has(FaultKind::Join) || faults.has(FaultKind::Leave),
            restart: faults.has(FaultKind::Restart),
            home: false,
        };
        features.check(needs)
    }
}

/// The error if no ids are left above the founding members'.
pub(crate) const NO_ROOM: &str = "node numbers leave no room above them for newcomers";

/// What a simulation or an exploration uses that not every protocol supports.
pub(crate) struct Features<'a> {
    pub(crate) nodes: &'a [NodeId],
    pub(crate) order: Order,
    pub(crate) shared: bool,
    pub(crate) cancel: bool,
    /// Messages are lost or duplicated.
    pub(crate) lossy: bool,
    /// Nodes join or leave.
    pub(crate) membership: bool,
    pub(crate) restart: bool,
    /// Attempts, upgrades or re-entry.
    pub(crate) home: bool,
}

impl Features<'_> {
    pub(crate) fn check(&self, needs: &Needs) -> Result<(), ConfigError> {
        let refuse = |why: &str| Err(ConfigError(why.to_owned()));
        if let (Some(option), Order::Any) = (needs.fifo, self.order) {
            return refuse(&format!("{option} needs links that keep order; add --order fifo"));
        }
        let unsupported = [(self.shared, needs.no_shared), (self.cancel, needs.no_cancel), (self.lossy, needs.no_loss)];
        for (used, why_not) in unsupported {
            if let Some(why) = why_not.filter(|_| used) {
                return refuse(why);
            }
        }
        if self.membership && !needs.membership {
            return refuse("join and leave need a protocol whose members change; add --option membership=classic");
        }
        if self.restart && !needs.membership && !needs.recovery {
            return refuse("restart needs a protocol whose nodes come back, such as --option membership=classic");
        }
        if self.home && !needs.home {
            return refuse("attempts, upgrades and re-entry are explored with --protocol directory only");
        }
        if needs.server && self.nodes.contains(&NodeId::SERVER) {
            return refuse("0 is the number of the server; give the nodes other numbers");
        }
        Ok(())
    }
}

impl Load {
    /// Reads `saturated`, `light`, a rate such as `0.5`, or `hotspot:0.9`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let fraction = |text: &str| text.parse::<f64>().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
        let parsed = match text {
            "saturated" => Some(Self::Saturated),
            "light" => Some(Self::Light),
            _ => match text.strip_prefix("hotspot:") {
                Some(rest) => fraction(rest).map(Self::Hotspot),
                None => text.parse().ok().filter(|rate: &f64| (1e-6..=1e6).contains(rate)).map(Self::Rate),
            },
        };
        parsed.ok_or_else(|| {
            ConfigError(format!(
                "unknown load '{text}'; use saturated, light, a rate such as 0.5 (requests per T), or hotspot:0.9"
            ))
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Saturated => f.write_str("saturated"),
            Self::Light => f.write_str("light"),
            Self::Rate(rate) => rate.fmt(f),
            Self::Hotspot(fraction) => write!(f, "hotspot:{fraction}"),
        }
    }
}
