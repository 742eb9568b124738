use std::fmt;

use hallpass_core::Ticks;
use hallpass_node::Class;

use super::faults::Fault;
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
    /// What is stored outlives a process.
    pub(super) durable: bool,
    /// Whoever a node has granted a lock to outlives its process, and keeps the lock until the session would have run out.
    pub(super) callers_outlive: bool,
    pub(super) ttl: Ticks,
    pub(super) drift_ppm: u32,
    pub(super) replace_after: Ticks,
    pub(super) voters_max: usize,
    pub(super) cache_idle: Ticks,
    pub(super) local_streak: u32,
    /// At most so many nodes join later.
    pub(super) joins_max: usize,
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
    /// So many nodes found the group.
    pub nodes: Option<usize>,
    /// So many callers a node.
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
pub(super) const CLASSES: [(&str, &str); 10] = [
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

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        // Some runs are storms.
        if seed % 4 == 3 { Self::storm(seed, &mut rng) } else { Self::calm(seed, &mut rng) }
    }

    /// Few members, short sessions, locks that are always wanted, and much that goes wrong within one session or one view
    /// change: what needs several faults within milliseconds is met here.
    fn storm(seed: u64, rng: &mut Rng) -> Self {
        let ttl = 1000 * MS;
        let faults_until = ttl * (10 + rng.below(10));
        let faults = Fault::draw_storm(rng, ttl, faults_until);
        // A token can be in two places; the others have permissions.
        let class = |rng: &mut Rng| ["", "token/", "nt/", "sk/", "ry/"][rng.below(5) as usize];
        let locks = (0..1 + rng.below(2)).map(|number| format!("{}{number}", class(rng))).collect();
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
            callers_outlive: false,
            ttl,
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
        // Permissions are the default: most locks are theirs.
        let locks = (0..1 + rng.below(4)).map(|number| {
            let class = rng.below(3 * CLASSES.len() as u64) as usize;
            format!("{}{number}", CLASSES.get(class).map_or("", |(prefix, _)| prefix))
        });
        let locks = locks.collect();
        let many = nodes > 10;
        let ttl = pick(rng, &[1000 * MS, 2000 * MS, 5000 * MS]);
        let faults_until = ttl * if many { 6 } else { 6 + rng.below(20) };
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
            callers_outlive: rng.chance(0.3),
            ttl,
            drift_ppm: [1000, 10_000, 50_000][rng.below(3) as usize],
            replace_after: ttl * pick(rng, &[2, 5, 20]),
            voters_max: [5, 5, 3][rng.below(3) as usize],
            cache_idle: pick(rng, &[50 * MS, 500 * MS, 10_000 * MS]),
            local_streak: [1, 1, 4][rng.below(3) as usize],
            // Enough to see several come and go.
            joins_max: 4,
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
            callers_outlive: false,
            latency: MS,
            sync: MS,
            ttl,
            drift_ppm: 10_000,
            replace_after: 100 * ttl,
            voters_max: 5,
            joins_max: joins,
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
