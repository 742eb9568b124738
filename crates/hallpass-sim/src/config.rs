use std::fmt;

use hallpass_core::protocol::{Needs, Options};
use hallpass_core::{Bounds, NodeId, Ticks};

use crate::{Faults, Latency};

/// Everything that decides a simulated run, but for the protocol and its options.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The founding members, by their ids.
    pub nodes: Vec<NodeId>,
    /// How many requests are issued in all.
    pub entries: u64,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Who asks, and when.
    pub load: Load,
    /// The length of a critical section.
    pub hold: Ticks,
    /// How long messages take.
    pub latency: Latency,
    /// Whether messages may overtake each other on a link.
    pub order: Order,
    /// The share of requests that are shared.
    pub readers: f64,
    /// What goes wrong.
    pub faults: Faults,
    /// No request may be overtaken more often than this, if given.
    pub overtakes_max: Option<u64>,
    /// Keep every event, to draw it.
    pub keep_trace: bool,
}

/// Who asks, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Every node asks at the start, and again as soon as it has left.
    Saturated,
    /// One request at a time in the whole group, by a node drawn evenly from all but the last that entered.
    Light,
    /// So many requests a T over the whole group, Poisson.
    Rate(f64),
    /// One request at a time, this share of them by the lowest node.
    Hotspot(f64),
}

/// Whether messages may overtake each other on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Whatever the latencies give.
    #[default]
    Any,
    /// No message overtakes an earlier one on its link.
    Fifo,
}

/// A run that cannot be: one line for people, with the cause and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

const HOUR: Ticks = 3_600_000_000_000;

/// One T where nothing else is said: a millisecond.
pub(crate) const TICK: Ticks = 1_000_000;

impl Config {
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
        }
    }

    /// One T: the mean latency.
    pub fn tick(&self) -> Ticks {
        self.latency.mean().max(1)
    }

    /// What this run promises its protocol about time.
    pub fn bounds(&self) -> Bounds {
        Bounds { transit_max: self.latency.max().unwrap_or(0), section_max: self.hold }
    }

    /// Options that know the run's T and its nodes.
    pub fn prepare(&self, mut options: Options) -> Options {
        options.tick = self.tick();
        options.nodes.clone_from(&self.nodes);
        options
    }

    /// Refuses a run that does not give the protocol what it needs.
    pub fn check(&self, needs: &Needs) -> Result<(), ConfigError> {
        let refuse = |why: String| Err(ConfigError(why));
        // Far beyond anything real, and short enough that no sum of them overflows.
        if self.tick() > HOUR || self.hold > HOUR || self.latency.max().is_some_and(|max| max > 2 * HOUR) {
            return refuse("latency and hold are at most 60m".to_owned());
        }
        if let Some(node) = self.faults.stranger(&self.nodes) {
            return refuse(format!("--faults {}: there is no node {node}", self.faults));
        }
        if self.faults.has("restart") && !self.faults.has("crash") {
            return refuse(format!("--faults {}: a restart needs a crash before it", self.faults));
        }
        if self.faults.has("join") && self.nodes.iter().any(|node| node.0 > u32::MAX - 100_000) {
            return refuse("node numbers leave no room above them for newcomers".to_owned());
        }
        if let (Some(option), None) = (needs.delay_bound, self.latency.max()) {
            return refuse(format!(
                "{option} needs a bound on message delay (T10); --latency {} has none",
                self.latency
            ));
        }
        if let (Some(option), Order::Any) = (needs.fifo, self.order) {
            return refuse(format!("{option} needs links that keep order; add --order fifo"));
        }
        if let Some(why) = needs.no_shared.filter(|_| self.readers > 0.0) {
            return refuse(why.to_owned());
        }
        if let Some(why) = needs.no_loss.filter(|_| self.faults.touches_messages()) {
            return refuse(why.to_owned());
        }
        if (self.faults.has("join") || self.faults.has("leave")) && !needs.membership {
            let why = "join and leave need a protocol whose members change; add --option membership=classic";
            return refuse(why.to_owned());
        }
        if self.faults.has("restart") && !needs.membership && !needs.recovery {
            return refuse(
                "restart needs a protocol whose nodes come back, such as --option membership=classic".to_owned(),
            );
        }
        if needs.server && self.nodes.contains(&NodeId::SERVER) {
            return refuse("0 is the server's number; name the nodes otherwise".to_owned());
        }
        Ok(())
    }
}

impl Load {
    /// Reads `saturated`, `light`, a rate such as `0.5`, or `hotspot:0.9`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let share = |text: &str| text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
        let parsed = match text {
            "saturated" => Some(Self::Saturated),
            "light" => Some(Self::Light),
            _ => match text.strip_prefix("hotspot:") {
                Some(rest) => share(rest).map(Self::Hotspot),
                None => text.parse().ok().filter(|rate: &f64| (1e-6..=1e6).contains(rate)).map(Self::Rate),
            },
        };
        parsed.ok_or_else(|| {
            ConfigError(format!(
                "load '{text}' is not known; it takes saturated, light, a rate such as 0.5 requests a T, or hotspot:0.9"
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
            Self::Hotspot(share) => write!(f, "hotspot:{share}"),
        }
    }
}
