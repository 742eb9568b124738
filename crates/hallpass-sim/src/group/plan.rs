use hallpass_core::{NodeId, Ticks};
use hallpass_node::{Class, Incarnation, NodeConfig};

use crate::Rng;

pub(super) const MS: Ticks = 1_000_000;

/// What a seed makes of a run: how many nodes, which locks, how busy the callers are and how bad the network is.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    pub(super) callers: usize,
    pub(super) rounds: u32,
    pub(super) locks: Vec<String>,
    pub(super) readers: f64,
    pub(super) tries: f64,
    pub(super) cancels: f64,
    pub(super) hold: Ticks,
    pub(super) think: Ticks,
    pub(super) latency: Ticks,
    /// Nothing goes wrong after this.
    pub(super) faults_until: Ticks,
    /// The mean time between two faults.
    pub(super) fault_every: Ticks,
    /// The share of chunks that are late, and of frames that are lost or come twice.
    pub(super) spikes: f64,
    pub(super) losses: f64,
    pub(super) duplicates: f64,
    pub(super) cache_idle: Ticks,
    cache_max: usize,
    pub(super) local_streak: u32,
    pub(super) limits: Limits,
    incarnations: Vec<Incarnation>,
    hash_seed: u64,
}

/// Beyond these a node refuses its callers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) locks: usize,
    pub(super) callers: usize,
    pub(super) backlog: usize,
}

/// A prefix for every protocol that a class may have.
const CLASSES: [(&str, &str); 10] = [
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

/// The prefixes of locks whose protocol answers whoever only tries in one round trip.
const ONE_ROUND_TRIP: [&str; 2] = ["", "ra/"];
/// The prefixes of locks whose protocol asks all other nodes itself.
const ASKING_ALL: [&str; 6] = ["", "ra/", "lamport/", "lf/", "token/", "sk/"];

impl Plan {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let nodes = 2 + rng.below(6) as usize;
        let pick = |rng: &mut Rng, from: &[Ticks]| from[rng.below(from.len() as u64) as usize];
        // Permissions are the default: half of the locks are theirs.
        let locks = (0..1 + rng.below(5)).map(|number| {
            let class = rng.below(2 * CLASSES.len() as u64) as usize;
            format!("{}{number}", CLASSES.get(class).map_or("", |(prefix, _)| prefix))
        });
        Self {
            nodes,
            locks: locks.collect(),
            callers: 1 + rng.below(4) as usize,
            rounds: 3 + rng.below(20) as u32,
            readers: [0.0, 0.3, 0.8][rng.below(3) as usize],
            tries: [0.0, 0.2][rng.below(2) as usize],
            cancels: [0.0, 0.1, 0.5][rng.below(3) as usize],
            hold: pick(rng, &[0, MS / 2, 5 * MS]),
            think: pick(rng, &[0, MS, 20 * MS]),
            latency: pick(rng, &[MS / 10, MS, 10 * MS]),
            faults_until: pick(rng, &[0, 200 * MS, 1000 * MS, 3000 * MS]),
            fault_every: pick(rng, &[5 * MS, 30 * MS, 200 * MS]),
            spikes: [0.0, 0.02][rng.below(2) as usize],
            losses: [0.0, 0.0, 0.01][rng.below(3) as usize],
            duplicates: [0.0, 0.05][rng.below(2) as usize],
            cache_idle: pick(rng, &[MS, 20 * MS, 500 * MS, 10_000 * MS]),
            cache_max: [0, 1, 3, 1000][rng.below(4) as usize],
            local_streak: [1, 1, 2, 5][rng.below(4) as usize],
            // Far away: no run comes near them. A test has others.
            limits: Limits { locks: 1_000_000, callers: 1_000_000, backlog: 8 * 1024 * 1024 },
            incarnations: (0..nodes).map(|_| small_incarnation(rng)).collect(),
            hash_seed: rng.next_u64(),
        }
    }

    /// The same with one lock and without faults, for planted bugs: all that goes wrong is theirs.
    pub(super) fn quiet(&self, lock: &str) -> Self {
        let (cancels, locks) = (self.cancels.max(0.1), vec![lock.to_owned()]);
        Self { locks, faults_until: 0, spikes: 0.0, losses: 0.0, duplicates: 0.0, cancels, hold: MS, ..self.clone() }
    }

    /// The same with so little room for locks and callers that some are refused.
    #[cfg(test)]
    pub(super) fn with_few_locks_and_callers(&self) -> Self {
        Self { limits: Limits { locks: 2, callers: 3, ..self.limits }, ..self.clone() }
    }

    /// The same with no room for messages that peers have not acknowledged.
    #[cfg(test)]
    pub(super) fn without_backlog(&self) -> Self {
        Self { limits: Limits { backlog: 0, ..self.limits }, ..self.clone() }
    }

    pub(super) fn is_answered_in_one_round_trip(&self, lock: usize) -> bool {
        ONE_ROUND_TRIP.contains(&self.prefix(lock))
    }

    pub(super) fn asks_all_itself(&self, lock: usize) -> bool {
        ASKING_ALL.contains(&self.prefix(lock))
    }

    fn prefix(&self, lock: usize) -> &str {
        let name = &self.locks[lock];
        name.find('/').map_or("", |end| &name[..=end])
    }

    pub(super) fn node(&self, position: usize) -> NodeConfig {
        let members = (1..=self.nodes as u32).map(NodeId);
        let class = |(prefix, protocol): &(&str, &str)| Class {
            prefix: (*prefix).to_owned(),
            protocol: (*protocol).to_owned(),
            options: Vec::new(),
        };
        NodeConfig {
            incarnation: self.incarnations[position],
            classes: CLASSES.iter().map(class).collect(),
            local_streak: self.local_streak,
            cache_idle: self.cache_idle,
            cache_max: self.cache_max,
            locks_max: self.limits.locks,
            callers_max: self.limits.callers,
            backlog_max: self.limits.backlog,
            seed: self.hash_seed,
            ..NodeConfig::new(NodeId(position as u32 + 1), members)
        }
    }
}

fn small_incarnation(rng: &mut Rng) -> Incarnation {
    Incarnation::new(1 + rng.below(3) as u32).expect("1 to 3")
}
