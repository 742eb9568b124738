use std::fmt;

use hallpass_core::Ticks;
use hallpass_node::Class;

use super::faults::{Fault, FaultKind};
use super::scenes;
use crate::Rng;

pub(super) const MS: Ticks = 1_000_000;

/// Everything that a seed decides about a run before it begins. It can be cut down: see [`Cut`].
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// How many nodes found the group.
    pub(super) nodes: usize,
    /// How many callers each node has.
    pub(super) callers: usize,
    pub(super) locks: Vec<String>,
    pub(super) faults: Vec<Fault>,
    /// Nothing goes wrong after this.
    pub(super) faults_until: Ticks,
    pub(super) load: Load,
    pub(super) latency: Ticks,
    /// How long it takes to sync a write.
    pub(super) sync: Ticks,
    /// What founders store outlives a process, but for those in `bare`.
    pub(super) durable: bool,
    /// Founders without a directory, as bits, in a group whose other founders have one.
    pub(super) bare: u64,
    /// Those who join later have no directory, whatever the founders have.
    pub(super) joins_bare: bool,
    /// Whose settings are other than the group's, until the faults are over.
    pub(super) odd: Odd,
    /// Callers outlive the process of their node, and keep the lock until the session would have run out.
    pub(super) callers_outlive: bool,
    pub(super) ttl: Ticks,
    pub(super) drift_ppm: u32,
    pub(super) replace_after: Ticks,
    pub(super) voters_max: usize,
    pub(super) cache_idle: Ticks,
    pub(super) local_streak: u32,
    pub(super) limits: Limits,
    /// The most nodes that join later.
    pub(super) joins_max: usize,
    /// The steward is asked to go when all is well again.
    pub(super) ends_with_steward: bool,
    /// A lone founder that loses its directory loses what stands beside it, too.
    pub(super) loses_mark: bool,
}

/// Beyond these a node refuses its callers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) locks: usize,
    pub(super) callers: usize,
    pub(super) backlog: usize,
}

impl Limits {
    /// No run comes near these.
    pub(super) const FAR_AWAY: Self = Self { locks: 1_000_000, callers: 1_000_000, backlog: 8 * 1024 * 1024 };
}

/// Nodes that were given other settings than the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Odd {
    /// Which founders, as bits.
    pub(super) founders: u64,
    /// And those who join.
    pub(super) joiners: bool,
    pub(super) what: Oddity,
}

/// In what they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Oddity {
    #[default]
    VotersMax,
    Ttl,
    Drift,
    Classes,
    /// How many found the group.
    Expect,
    ReplaceAfter,
}

impl Oddity {
    const ALL: [Self; 6] = [Self::VotersMax, Self::Ttl, Self::Drift, Self::Classes, Self::Expect, Self::ReplaceAfter];
}

/// What a node is given that may differ from one to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) ttl: Ticks,
    pub(super) drift_ppm: u32,
    pub(super) voters_max: usize,
    pub(super) replace_after: Ticks,
    pub(super) classes: Vec<Class>,
    pub(super) expect: usize,
}

/// What callers do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) readers: f64,
    pub(super) tries: f64,
    pub(super) cancels: f64,
    pub(super) hold: Ticks,
    pub(super) think: Ticks,
}

/// Which parts of a run to keep: a failed run is cut down before it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// How many nodes found the group.
    pub nodes: Option<usize>,
    /// How many callers a node has.
    pub callers: Option<usize>,
    /// Only these faults, by their position in the seed's list.
    pub faults: Option<Vec<usize>>,
}

impl Cut {
    /// True if the whole run is kept.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// As the options of `lab swarm`, each with a space in front.
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(nodes) = self.nodes {
            write!(f, " --nodes {nodes}")?;
        }
        if let Some(callers) = self.callers {
            write!(f, " --callers {callers}")?;
        }
        match self.faults.as_deref() {
            None => Ok(()),
            Some([]) => f.write_str(" --keep-faults none"),
            Some(kept) => {
                write!(f, " --keep-faults {}", kept.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// A prefix for every protocol that a class may have.
pub(super) const CLASSES: [(&str, &str); 13] = [
    ("dir/", "directory"),
    ("cr/", "carvalho-roucairol"),
    ("central/", "central"),
    ("ra/", "ricart-agrawala"),
    ("rr/", "ricart-agrawala-ring"),
    ("lamport/", "lamport"),
    ("lf/", "lamport-fifo"),
    ("token/", "token"),
    ("nt/", "naimi-trehel"),
    ("sk/", "suzuki-kasami"),
    ("ry/", "raymond"),
    ("mk/", "maekawa"),
    ("ring/", "token-ring"),
];

/// The prefixes of locks whose protocol answers a caller who only tries in one round trip.
const ONE_ROUND_TRIP: [&str; 2] = ["cr/", "ra/"];
/// The prefixes of locks whose protocol asks all other nodes itself.
const ASKING_ALL: [&str; 6] = ["cr/", "ra/", "lamport/", "lf/", "token/", "sk/"];

impl Odd {
    /// Some of the founders, but not all.
    fn draw(rng: &mut Rng, founders: usize) -> Self {
        let what = Oddity::ALL[rng.below(Oddity::ALL.len() as u64) as usize];
        // Who votes is what counts most.
        let what = if rng.chance(0.4) { Oddity::VotersMax } else { what };
        let sides = (1u64 << founders.min(16)).saturating_sub(2);
        Self { founders: if sides == 0 { 0 } else { 1 + rng.below(sides) }, joiners: false, what }
    }
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        // Some runs are storms, some are scenes.
        match seed % 4 {
            1 => Self::scenes(seed, &mut rng),
            3 => Self::storm(seed, &mut rng),
            _ => Self::calm(seed, &mut rng),
        }
    }

    /// Few members, short sessions, locks that are always wanted, and much that goes wrong within one session or one view
    /// change: what needs several faults within milliseconds is met here.
    fn storm(seed: u64, rng: &mut Rng) -> Self {
        let ttl = 1000 * MS;
        let faults_until = ttl * (10 + rng.below(10));
        let faults = Fault::draw_storm(rng, ttl, faults_until);
        // A token can be in two places; the others have permissions.
        let locks = (0..1 + rng.below(2)).map(|number| format!("{}{number}", Self::busy_class(rng))).collect();
        Self {
            nodes: if rng.chance(0.8) { 3 } else { 5 },
            callers: 2,
            locks,
            faults,
            faults_until,
            load: Load {
                readers: 0.0,
                tries: 0.0,
                cancels: [0.0, 0.5][rng.below(2) as usize],
                hold: [5 * MS, 50 * MS, 2 * ttl][rng.below(3) as usize],
                think: 20 * MS,
            },
            latency: [MS / 5, MS, 5 * MS][rng.below(3) as usize],
            sync: [MS / 10, 10 * MS][rng.below(2) as usize],
            durable: true,
            bare: 0,
            callers_outlive: false,
            ttl,
            ..Self::calm(seed, rng)
        }
    }

    fn busy_class(rng: &mut Rng) -> &'static str {
        ["", "cr/", "token/", "nt/", "sk/", "ry/", "central/"][rng.below(7) as usize]
    }

    /// Few members, short sessions, and little that goes wrong but what is told as one scene: some faults that belong together,
    /// each at about the moment and with about the nodes that make it hard.
    fn scenes(seed: u64, rng: &mut Rng) -> Self {
        let ttl = 1000 * MS;
        let nodes = [1, 3, 3, 3, 3, 3, 4, 5][rng.below(8) as usize];
        let (faults, faults_until) = scenes::draw(rng, ttl, nodes);
        let founders_differ = nodes > 1 && rng.chance(0.15);
        Self {
            nodes,
            callers: 1 + rng.below(2) as usize,
            locks: vec![format!("{}0", Self::busy_class(rng))],
            faults,
            faults_until,
            load: Load {
                readers: 0.0,
                tries: 0.0,
                cancels: 0.0,
                hold: [5 * MS, 50 * MS, ttl / 2, 3 * ttl][rng.below(4) as usize],
                think: 20 * MS,
            },
            latency: [MS / 5, MS, 5 * MS][rng.below(3) as usize],
            sync: [MS / 10, 2 * MS, 10 * MS][rng.below(3) as usize],
            durable: rng.chance(0.85),
            bare: 0,
            callers_outlive: rng.chance(0.4),
            odd: if founders_differ { Odd::draw(rng, nodes) } else { Odd::default() },
            ttl,
            replace_after: ttl * [2, 20, 1000][rng.below(3) as usize],
            ..Self::calm(seed, rng)
        }
    }

    fn calm(seed: u64, rng: &mut Rng) -> Self {
        let pick = |rng: &mut Rng, from: &[Ticks]| from[rng.below(from.len() as u64) as usize];
        let nodes = match rng.below(100) {
            0..3 => 1,
            3..8 => 2,
            8..45 => 3,
            45..55 => 4,
            55..85 => 5,
            85..98 => 6 + rng.below(2),
            _ => 20 + rng.below(40),
        } as usize;
        // Most locks are of no class.
        let locks = (0..1 + rng.below(4)).map(|number| {
            let class = rng.below(3 * CLASSES.len() as u64) as usize;
            format!("{}{number}", CLASSES.get(class).map_or("", |(prefix, _)| prefix))
        });
        let locks = locks.collect();
        let many = nodes > 10;
        let ttl = pick(rng, &[1000 * MS, 2000 * MS, 5000 * MS]);
        let faults_until = ttl * if many { 6 } else { 6 + rng.below(20) };
        let differs = nodes > 1 && !many && rng.chance(0.04);
        Self {
            seed,
            nodes,
            locks,
            callers: if many { 1 } else { 1 + rng.below(3) as usize },
            faults: Fault::draw_all(rng, ttl, faults_until, if many { 4 } else { 30 }),
            faults_until,
            load: Load {
                readers: [0.0, 0.3, 0.8][rng.below(3) as usize],
                tries: [0.0, 0.2][rng.below(2) as usize],
                cancels: [0.0, 0.1, 0.5][rng.below(3) as usize],
                hold: pick(rng, &[5 * MS, 50 * MS, ttl / 2, 3 * ttl]),
                think: pick(rng, &[20 * MS, 200 * MS, ttl]),
            },
            latency: pick(rng, &[MS / 5, MS, 10 * MS]),
            sync: pick(rng, &[MS / 10, 2 * MS, 10 * MS]),
            durable: rng.chance(0.9),
            bare: if rng.chance(0.05) { 1 + rng.below((1 << nodes.min(8)) - 1) } else { 0 },
            joins_bare: rng.chance(0.2),
            odd: if differs { Odd::draw(rng, nodes) } else { Odd { joiners: rng.chance(0.2), ..Odd::draw(rng, 0) } },
            callers_outlive: rng.chance(0.3),
            ttl,
            drift_ppm: [1000, 10_000, 50_000][rng.below(3) as usize],
            replace_after: ttl * pick(rng, &[2, 5, 20]),
            voters_max: [5, 5, 3][rng.below(3) as usize],
            cache_idle: pick(rng, &[50 * MS, 500 * MS, 10_000 * MS]),
            local_streak: [1, 1, 4][rng.below(3) as usize],
            limits: Limits::FAR_AWAY,
            // Enough to see several come and go.
            joins_max: 4,
            ends_with_steward: rng.chance(0.2),
            loses_mark: rng.chance(0.5),
        }
    }

    /// Five nodes found a group, the others join it; when all are in, one dies, and returns later.
    pub(super) fn large(members: usize) -> Self {
        let plan = Self::draw(0);
        let joins = members.saturating_sub(5);
        let ttl = 5000 * MS;
        let dies = 4 * ttl + joins as Ticks * 20 * MS + 4 * ttl;
        Self {
            nodes: 5,
            callers: 0,
            locks: vec!["x".to_owned()],
            faults: Fault::of_large_group(joins, 4 * ttl, 20 * MS, dies, 4 * ttl),
            faults_until: dies + 5 * ttl,
            durable: true,
            bare: 0,
            joins_bare: false,
            odd: Odd::default(),
            callers_outlive: false,
            latency: MS,
            sync: MS,
            ttl,
            drift_ppm: 10_000,
            replace_after: 100 * ttl,
            voters_max: 5,
            joins_max: joins,
            ends_with_steward: false,
            loses_mark: false,
            ..plan
        }
    }

    pub(super) fn cut(mut self, cut: &Cut) -> Self {
        self.nodes = cut.nodes.unwrap_or(self.nodes);
        self.callers = cut.callers.unwrap_or(self.callers);
        if let Some(kept) = &cut.faults {
            let all = std::mem::take(&mut self.faults);
            self.faults =
                all.into_iter().enumerate().filter(|(at, _)| kept.contains(at)).map(|(_, fault)| fault).collect();
        }
        self
    }

    pub(super) fn is_answered_in_one_round_trip(&self, lock: usize) -> bool {
        ONE_ROUND_TRIP.contains(&self.prefix(lock)) && self.keeps_classes()
    }

    pub(super) fn asks_all_itself(&self, lock: usize) -> bool {
        ASKING_ALL.contains(&self.prefix(lock)) && self.keeps_classes()
    }

    /// Each prefix has the same protocol all the time.
    fn keeps_classes(&self) -> bool {
        self.faults.iter().all(|fault| fault.kind != FaultKind::ClassChange)
    }

    fn prefix(&self, lock: usize) -> &str {
        let name = &self.locks[lock];
        name.find('/').map_or("", |end| &name[..=end])
    }

    /// The same with so little room for locks and callers that some are refused.
    #[cfg(test)]
    pub(super) fn with_few_locks_and_callers(mut self) -> Self {
        (self.limits.locks, self.limits.callers) = (1, 1);
        self
    }

    /// Whether the directory of a machine outlives a process.
    pub(super) fn is_durable(&self, machine: usize, founds: bool) -> bool {
        self.durable && if founds { self.bare >> (machine % 64) & 1 == 0 } else { !self.joins_bare }
    }

    /// What a machine's node is given.
    pub(super) fn settings(&self, machine: usize, founds: bool) -> Settings {
        let is_odd = if founds { self.odd.founders >> (machine % 64) & 1 == 1 } else { self.odd.joiners };
        let mut settings = Settings {
            ttl: self.ttl,
            drift_ppm: self.drift_ppm,
            voters_max: self.voters_max,
            replace_after: self.replace_after,
            classes: Self::classes(),
            expect: self.nodes,
        };
        match self.odd.what {
            _ if !is_odd => {}
            Oddity::VotersMax => settings.voters_max = if self.voters_max == 1 { 3 } else { 1 },
            Oddity::Ttl => settings.ttl *= 2,
            Oddity::Drift => settings.drift_ppm /= 2,
            Oddity::Classes => drop(settings.classes.pop()),
            Oddity::Expect => settings.expect += 1,
            Oddity::ReplaceAfter => settings.replace_after *= 2,
        }
        settings
    }

    /// A class for every prefix.
    pub(super) fn classes() -> Vec<Class> {
        let class = |(prefix, protocol): &(&str, &str)| Class {
            prefix: (*prefix).to_owned(),
            protocol: (*protocol).to_owned(),
            options: Vec::new(),
        };
        CLASSES.iter().map(class).collect()
    }
}
