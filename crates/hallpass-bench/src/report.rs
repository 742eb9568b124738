//! What a run found: figures, ratios and goals.

use serde::Serialize;

use crate::changes::Change;
use crate::measure::Run;
use crate::run::Spec;

/// One system under one workload, all rounds.
pub(crate) struct Cell {
    pub(crate) system: String,
    pub(crate) workload: String,
    pub(crate) runs: Vec<Run>,
}

/// The figures of one system under one workload: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The system.
    pub system: String,
    /// What its callers did.
    pub workload: String,
    /// Acquiring and releasing together.
    pub p50_us: f64,
    /// The same, for the slowest hundredth.
    pub p99_us: f64,
    /// Its median in raw round trips to two peers.
    pub round_trips: f64,
    /// Grants to all callers together.
    pub grants_per_second: f64,
    /// Of those, grants to another caller than the last; none where there is one caller only.
    pub changed_hands_per_second: Option<f64>,
    /// From one caller's release to another caller's grant.
    pub handover_p50_us: Option<f64>,
    /// User and system time of all processes, servers too.
    pub cpu_seconds_per_1000_grants: f64,
    /// Resident, of all processes, servers too.
    pub memory_bytes: u64,
    /// Protocol messages between members; none for systems that do not count them.
    pub messages_per_grant: Option<f64>,
    /// Grants while another caller held the lock, all rounds together.
    pub violations: u64,
}

/// How long a change of a group took, from its begin until a lock was granted that had to wait for it.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeFigures {
    /// Its name.
    pub change: String,
    /// What is measured, in words.
    pub title: String,
    /// The median.
    pub p50_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// How often it was made.
    pub runs: usize,
}

/// A goal of hallpass, and what was measured: the median of the ratios within a round, or the longest of all times.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// In words.
    pub goal: String,
    /// The ratio, or seconds.
    pub measured: f64,
    /// At most, or at least, this.
    pub wanted: f64,
    /// The ratio must be at most, not at least, what is wanted.
    pub at_most: bool,
    /// True if it is.
    pub met: bool,
}

/// hallpass beside another system under the same workload.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The other system.
    pub peer: String,
    /// What callers did.
    pub workload: String,
    /// How many times its rate hallpass has; of grants that change hands, where those are counted.
    pub rate: f64,
    /// How many of hallpass's medians fit into its own.
    pub p50: f64,
}

/// A system that could not be compared with.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// Its name.
    pub peer: String,
    /// Why, such as what to install.
    pub why: String,
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How often everything was measured.
    pub rounds: u32,
    /// How long each measurement took.
    pub seconds: f64,
    /// Cores of this machine.
    pub cores: usize,
    /// The load average before the run: above 0, other programs are in the figures too.
    pub load_before: f64,
    /// All figures; those of raw round trips and of the in-process lock come first.
    pub figures: Vec<Figures>,
    /// hallpass beside each peer.
    pub ratios: Vec<Ratio>,
    /// Changes of its groups.
    pub changes: Vec<ChangeFigures>,
    /// Its goals.
    pub goals: Vec<Goal>,
    /// Peers that were left out.
    pub skipped: Vec<Skipped>,
    /// Grants of an exclusive lock by hallpass while another caller held it: 0, or hallpass is broken.
    pub violations: u64,
}

const OURS: &str = "hallpass";
const OURS_TLS: &str = "hallpass, tls";
/// Agents of ours that are used through etcd's API, by a client of etcd.
pub(crate) const ETCD_API: &str = "hallpass, etcd api";
const FLOOR: [&str; 6] = ["tcp", "tcp, woken", "tcp, 2 peers", "tls", "tls, 2 peers", "in-process"];

impl Report {
    pub(crate) fn new(
        spec: &Spec,
        load_before: f64,
        cells: &[Cell],
        changes: &[(Change, Vec<f64>)],
        skipped: Vec<Skipped>,
    ) -> Self {
        let fan_out = find(cells, "tcp, 2 peers", "round-trip");
        let figures: Vec<Figures> = cells.iter().map(|cell| Figures::of(cell, fan_out)).collect();
        let ours = figures.iter().filter(|figures| figures.system.starts_with(OURS));
        Self {
            rounds: spec.rounds,
            seconds: spec.seconds,
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            load_before,
            violations: ours.map(|figures| figures.violations).sum(),
            ratios: ratios(cells),
            goals: goals(cells).into_iter().chain(changes.iter().map(|made| Goal::of_change(spec, made))).collect(),
            changes: changes.iter().map(|made| ChangeFigures::of(spec, made)).collect(),
            figures,
            skipped,
        }
    }

    /// One JSON document.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// A bar chart, as SVG.
    pub fn to_svg(&self) -> String {
        crate::chart::draw(self)
    }

    /// True for other lock services.
    pub(crate) fn is_peer(system: &str) -> bool {
        !Self::is_floor(system) && !system.starts_with(OURS)
    }

    /// True for what lock services are built on.
    pub fn is_floor(system: &str) -> bool {
        FLOOR.contains(&system)
    }
}

impl Figures {
    fn of(cell: &Cell, fan_out: Option<&Cell>) -> Self {
        let over = |figure: &dyn Fn(&Run) -> f64| median(cell.runs.iter().map(figure));
        let counts_changes = cell.runs.iter().all(|run| run.changes.is_some()) && cell.workload != "round-trip";
        let sends = cell.system.starts_with(OURS);
        Self {
            system: cell.system.clone(),
            workload: cell.workload.clone(),
            p50_us: over(&p50),
            p99_us: over(&|run| run.cycles.quantile(0.99).unwrap_or(0.0) / 1e3),
            round_trips: fan_out.map_or(0.0, |fan_out| ratio(cell, &p50, fan_out, &p50)),
            grants_per_second: over(&rate),
            changed_hands_per_second: counts_changes.then(|| over(&changes)),
            handover_p50_us: counts_changes.then(|| over(&handover)),
            cpu_seconds_per_1000_grants: over(&|run| run.cpu_seconds * 1000.0 / run.grants.max(1) as f64),
            memory_bytes: over(&|run| run.memory_bytes as f64) as u64,
            messages_per_grant: sends.then(|| over(&|run| run.messages as f64 / run.grants.max(1) as f64)),
            violations: cell.runs.iter().map(|run| run.violations).sum(),
        }
    }
}

impl ChangeFigures {
    fn of(spec: &Spec, (change, seconds): &(Change, Vec<f64>)) -> Self {
        Self {
            change: change.name().to_owned(),
            title: change.title(&spec.scale),
            p50_ms: median(seconds.iter().copied()) * 1e3,
            max_ms: longest(seconds) * 1e3,
            runs: seconds.len(),
        }
    }
}

impl Goal {
    /// What is promised of a change is promised of every one.
    fn of_change(spec: &Spec, (change, seconds): &(Change, Vec<f64>)) -> Self {
        let (measured, wanted) = (longest(seconds), change.seconds_max(&spec.scale));
        let goal = format!("{}, in seconds", change.title(&spec.scale));
        Self { goal, measured, wanted, at_most: true, met: measured <= wanted }
    }
}

fn longest(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(0.0, f64::max)
}

fn p50(run: &Run) -> f64 {
    run.cycles.quantile(0.5).unwrap_or(0.0) / 1e3
}

fn rate(run: &Run) -> f64 {
    run.grants as f64 / run.seconds.max(1e-9)
}

/// Grants that change hands, a second; all grants where one caller is alone.
fn changes(run: &Run) -> f64 {
    run.changes.unwrap_or(run.grants) as f64 / run.seconds.max(1e-9)
}

fn handover(run: &Run) -> f64 {
    run.handovers.quantile(0.5).unwrap_or(0.0) / 1e3
}

fn find<'a>(cells: &'a [Cell], system: &str, workload: &str) -> Option<&'a Cell> {
    cells.iter().find(|cell| cell.system == system && cell.workload == workload)
}

/// The median of the rounds' own ratios: a round that was slow for both is no worse than the others.
fn ratio(one: &Cell, of_one: &dyn Fn(&Run) -> f64, other: &Cell, of_other: &dyn Fn(&Run) -> f64) -> f64 {
    let pairs = one.runs.iter().zip(&other.runs);
    median(pairs.map(|(one, other)| of_one(one) / of_other(other).max(1e-9)))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

fn ratios(cells: &[Cell]) -> Vec<Ratio> {
    let peers = cells.iter().filter(|cell| Report::is_peer(&cell.system));
    let beside = peers.filter_map(|peer| Some((find(cells, OURS, &peer.workload)?, peer)));
    beside
        .map(|(ours, peer)| Ratio {
            peer: peer.system.clone(),
            workload: peer.workload.clone(),
            rate: ratio(ours, &changes, peer, &changes),
            p50: ratio(peer, &p50, ours, &p50),
        })
        .collect()
}

/// Measures a goal of one of our systems.
type Beside<'a> = &'a dyn Fn(&str) -> Option<f64>;

fn goals(cells: &[Cell]) -> Vec<Goal> {
    let mut goals = against_floor(cells);
    goals.extend(against_peers(cells));
    goals.extend(of_sizes(cells));
    goals
}

fn against_floor(cells: &[Cell]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut add = |goal: &str, of: Beside<'_>, system: &str, wanted: f64| {
        let Some(measured) = of(system) else { return };
        let met = measured <= wanted;
        goals.push(Goal { goal: goal.to_owned(), measured, wanted, at_most: true, met });
    };
    let p50s = |system: &str, workload: &str, floor: &str, floor_workload: &str| {
        Some(ratio(find(cells, system, workload)?, &p50, find(cells, floor, floor_workload)?, &p50))
    };
    let free: Beside<'_> = &|system| p50s(system, "uncontended", "tcp", "round-trip");
    add("a free lock, in raw round trips to one peer", free, OURS, 1.15);
    add("the same encrypted, in raw round trips in the clear", free, OURS_TLS, 1.5);
    let encrypted: Beside<'_> = &|system| p50s(system, "uncontended", "tls", "round-trip");
    add("the same encrypted, in encrypted round trips", encrypted, OURS_TLS, 1.5);
    let hot: Beside<'_> = &|system| p50s(system, "hot", "in-process", "hot");
    add("a lock that is here, in in-process locks", hot, OURS, 1.35);
    // Half a round trip is one way.
    let one_way = |run: &Run| p50(run) / 2.0;
    let three = |system: &str, floor: &str| find(cells, system, "contended-3").zip(find(cells, floor, "round-trip"));
    let grants: Beside<'_> = &|system| {
        let (ours, trip) = three(system, "tcp")?;
        Some(ratio(ours, &|run| 1e6 / rate(run).max(1e-9), trip, &one_way))
    };
    add("3 callers on one lock: a grant every so many one-way trips", grants, OURS, 1.4);
    // The task that reads the socket wakes the caller that gets the lock; so it does in this measurement.
    let handovers: Beside<'_> = &|system| {
        let (ours, trip) = three(system, "tcp, woken")?;
        Some(ratio(ours, &handover, trip, &one_way))
    };
    add("3 callers on one lock: a handover, in one-way trips that wake a task", handovers, OURS, 1.4);
    goals
}

fn against_peers(cells: &[Cell]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut add = |goal: &str, measured: Option<f64>, wanted: f64| {
        let Some(measured) = measured else { return };
        let met = measured >= wanted;
        goals.push(Goal { goal: goal.to_owned(), measured, wanted, at_most: false, met });
    };
    let rates = |workload: &str, name: &str| {
        let ours = find(cells, OURS, workload)?;
        let theirs = cells
            .iter()
            .filter(|cell| cell.workload == workload && cell.system.starts_with(name) && Report::is_peer(&cell.system));
        theirs.map(|peer| ratio(ours, &changes, peer, &changes)).min_by(f64::total_cmp)
    };
    let grants = |workload: &str, name: &str| {
        let (ours, theirs) = (find(cells, OURS, workload)?, find(cells, name, workload)?);
        Some(ratio(ours, &rate, theirs, &rate))
    };
    add(
        "a free lock, over all homes: grants of PostgreSQL on a Unix socket",
        grants("uncontended", "postgres, unix"),
        1.5,
    );
    add("3 callers on one lock: handovers of PostgreSQL", rates("contended-3", "postgres"), 1.0);
    add("8 callers on one lock: handovers of PostgreSQL", rates("contended-8", "postgres"), 4.0);
    add("8 callers on one lock: handovers of the best peer", rates("contended-8", ""), 2.0);
    add("32 callers on 32 locks in turn: grants of Redis", rates("rotating-32", "redis"), 3.0);
    add("32 callers on 32 locks in turn: grants of etcd", rates("rotating-32", "etcd"), 20.0);
    let etcd = |system: &str, workload: &str| {
        Some(ratio(find(cells, "etcd", "uncontended")?, &p50, find(cells, system, workload)?, &p50))
    };
    add("a free lock: times as fast as etcd", etcd(OURS, "uncontended"), 10.0);
    add("a free lock through the agent: times as fast as etcd", etcd("hallpass, agent", "uncontended"), 5.0);
    let same_program =
        |workload: &str| Some(ratio(find(cells, ETCD_API, workload)?, &rate, find(cells, "etcd", workload)?, &rate));
    add("a client of etcd, a free lock: grants of etcd", same_program("uncontended"), 5.0);
    add("8 clients of etcd on one lock: grants of etcd", same_program("contended-8"), 10.0);
    add("a lock that is here: times as fast as etcd", etcd(OURS, "hot"), 1000.0);
    goals
}

/// A group of fifty beside one of three, and how many messages a grant takes.
fn of_sizes(cells: &[Cell]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut add = |goal: String, measured: Option<f64>, wanted: f64| {
        let Some(measured) = measured else { return };
        goals.push(Goal { goal, measured, wanted, at_most: true, met: measured <= wanted });
    };
    let of = |members: usize, workload: &str| find(cells, &format!("{OURS}, {members} members"), workload);
    let cost = |run: &Run| 1.0 / rate(run).max(1e-9);
    let both = of(50, "uncontended").zip(of(3, "uncontended"));
    let measured = both.map(|(large, small)| ratio(large, &cost, small, &cost));
    add("a free lock at 50 members, in the time it takes at 3".to_owned(), measured, 1.3);
    for (members, workload) in [3, 16, 50].into_iter().flat_map(|n| [(n, "uncontended"), (n, "contended-8")]) {
        let messages = |cell: &Cell| median(cell.runs.iter().map(|run| run.messages as f64 / run.grants.max(1) as f64));
        add(format!("{workload} at {members} members: messages a grant"), of(members, workload).map(messages), 3.0);
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;

    fn cell(system: &str, workload: &str, micros: &[u64]) -> Cell {
        let run = |micros: &u64| {
            let mut cycles = Histogram::default();
            cycles.add(micros * 1000);
            Run { cycles, grants: 1_000_000 / micros, seconds: 1.0, ..Run::default() }
        };
        Cell { system: system.to_owned(), workload: workload.to_owned(), runs: micros.iter().map(run).collect() }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let floor = cell("tcp, 2 peers", "round-trip", &[100, 200, 50]);
        let ours = cell(OURS, "uncontended", &[120, 240, 75]);
        assert!((ratio(&ours, &p50, &floor, &p50) - 1.2).abs() < 0.02);
    }

    #[test]
    fn a_goal_is_compared_with_the_best_peer() {
        let cells = [
            cell(OURS, "contended-8", &[10]),
            cell("redis, poll", "contended-8", &[100]),
            cell("postgres, unix", "contended-8", &[50]),
            cell("in-process", "contended-8", &[1]),
        ];
        let goals = goals(&cells);
        let best = goals.iter().find(|goal| goal.goal.ends_with("the best peer")).unwrap();
        assert!(best.met && (best.measured - 5.0).abs() < 0.1, "{goals:?}");
    }

    #[test]
    fn medians_need_no_odd_number() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
