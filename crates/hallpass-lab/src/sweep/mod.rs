//! The comparison: every protocol over group sizes and loads, as numbers and as a page.

mod page;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hallpass_core::protocol::{Mutation, ProtocolKind};
use hallpass_sim::Report;
use serde::Serialize;

use crate::{Flow, LabError, RunSpec, simulate_watched};

pub use page::{pictures, render as to_html};

/// What to compare.
#[derive(Clone, Debug)]
pub struct SweepSpec {
    /// Protocols by name.
    pub protocols: Vec<String>,
    /// Group sizes, in rising order.
    pub nodes: Vec<u32>,
    /// Loads as `lab run` takes them.
    pub loads: Vec<String>,
    /// Decides everything random.
    pub seed: u64,
    /// A bug to plant, for tests of the sweep itself.
    pub mutation: Option<Mutation>,
}

/// One protocol at one size under one load. Delays are in T, the mean time of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The protocol's name.
    pub protocol: String,
    /// How many nodes.
    pub nodes: u32,
    /// The load.
    pub load: String,
    /// Entries measured.
    pub entries: u64,
    /// Protocol messages per entry.
    pub messages: f64,
    /// From a release to the next entry, where a node was waiting; none if no node ever was.
    pub sync_delay: Option<f64>,
    /// From a request to its entry.
    pub response_time: f64,
    /// The fewest entries of a node divided by the most, so 1 is even; only under the saturated load, and only where
    /// every node had enough turns for it to mean something.
    pub fairness: Option<f64>,
    /// The most entries of others while one request waited, divided by N-1: 1 if every other node entered once. None for
    /// one node.
    pub overtakes: Option<f64>,
    /// Violations that the oracles found.
    pub violations: usize,
}

impl SweepSpec {
    /// The sizes of [`all`](Self::all), as `parse_nodes` reads them.
    pub const NODES: &str = "2..1000";

    /// All protocols from 2 to 1000 nodes, from light to saturated. Where a release and the next entry are two messages
    /// apart, a third of a request per T is the most that can be served, so 0.3 is busy for those. Only
    /// `ricart-agrawala-ring` was seen to fall behind without bound at that load.
    pub fn all() -> Self {
        let mut protocols: Vec<String> = ProtocolKind::ALL.iter().map(|kind| kind.name().to_owned()).collect();
        protocols.dedup();
        Self {
            protocols,
            nodes: Self::parse_nodes(Self::NODES).expect("the default is a range"),
            loads: ["light", "0.1", "0.3", "saturated"].map(str::to_owned).into(),
            seed: 1,
            mutation: None,
        }
    }

    /// Reads `all` or a list of names.
    pub fn parse_protocols(text: &str) -> Result<Vec<String>, LabError> {
        let all = Self::all().protocols;
        if text == "all" {
            return Ok(all);
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        match names.iter().find(|name| !all.contains(name)) {
            Some(name) => Err(LabError(format!("there is no protocol '{name}'; there are {}", all.join(", ")))),
            None => Ok(names),
        }
    }

    /// Reads `2..100`, which takes the round sizes in between, or a list such as `2,10,50`.
    pub fn parse_nodes(text: &str) -> Result<Vec<u32>, LabError> {
        let fail =
            || LabError(format!("nodes '{text}' is not a range such as 2..100 or a list such as 2,10,50, up to 1000"));
        let number = |word: &str| word.trim().parse::<u32>().ok().filter(|count| (1..=1000).contains(count));
        if let Some((low, high)) = text.split_once("..") {
            let (low, high) = number(low).zip(number(high)).filter(|(low, high)| low <= high).ok_or_else(fail)?;
            let round = [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000];
            let mut sizes: Vec<u32> =
                round.into_iter().filter(|size| (low..=high).contains(size)).chain([low, high]).collect();
            sizes.sort_unstable();
            sizes.dedup();
            return Ok(sizes);
        }
        let mut sizes = text.split(',').map(number).collect::<Option<Vec<u32>>>().ok_or_else(fail)?;
        sizes.sort_unstable();
        sizes.dedup();
        Ok(sizes)
    }

    /// The runs to make, one for each cell.
    pub fn runs(&self) -> Vec<RunSpec> {
        let mut runs = Vec::new();
        for load in &self.loads {
            for protocol in &self.protocols {
                for nodes in &self.nodes {
                    runs.push(RunSpec {
                        nodes: *nodes,
                        entries: entries_for(*nodes, load),
                        seed: self.seed,
                        load: load.clone(),
                        mutation: self.mutation,
                        ..RunSpec::of(protocol)
                    });
                }
            }
        }
        runs
    }
}

/// Enough entries for a mean, and where fairness is measured enough turns for every node.
fn entries_for(nodes: u32, load: &str) -> u64 {
    let turns = if load == "saturated" { TURNS } else { 0 };
    (20 * u64::from(nodes)).clamp(1000, 4000).max(turns * u64::from(nodes))
}

/// Entries per node from which fairness is measured.
const TURNS: u64 = 10;

/// Runs them all on all cores; `watch` is called with how many are done, of how many, and which is next.
pub fn sweep(spec: &SweepSpec, watch: impl Fn(usize, usize, &str) + Sync) -> Result<Vec<Cell>, LabError> {
    let runs = spec.runs();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let cells: Mutex<Vec<(usize, Result<Cell, LabError>)>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(index) else { break };
            watch(
                done.load(Ordering::Relaxed),
                runs.len(),
                &format!("{} N = {} {}", run.protocol, run.nodes, run.load),
            );
            let cell = measure(run);
            done.fetch_add(1, Ordering::Relaxed);
            cells.lock().expect("no run panics while it holds the lock").push((index, cell));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    let mut cells = cells.into_inner().expect("no run panics while it holds the lock");
    cells.sort_by_key(|(index, _)| *index);
    cells.into_iter().map(|(_, cell)| cell).collect()
}

fn measure(run: &RunSpec) -> Result<Cell, LabError> {
    measure_watched(run, || Flow::Continue).map(|(cell, _)| cell)
}

/// Makes one run, which may be stopped, and returns its cell and the whole report.
pub fn measure_watched(run: &RunSpec, mut on_progress: impl FnMut() -> Flow) -> Result<(Cell, Report), LabError> {
    // Only protocols that need links in order refuse the default; they get such links, and their names say so.
    let report = match simulate_watched(run, |_| on_progress()) {
        Err(error) if on_progress() == Flow::Stop => return Err(error),
        Err(_) => simulate_watched(&RunSpec { order: hallpass_sim::Order::Fifo, ..run.clone() }, |_| on_progress())?,
        Ok(report) => report,
    };
    let counts = || report.entries_by_node.iter().map(|(_, count)| *count);
    let (fewest, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    // Under other loads the random workload decides which node enters how often, not the protocol.
    let enough = report.entries >= TURNS * u64::from(run.nodes) && run.nodes > 1 && run.load == "saturated";
    let cell = Cell {
        protocol: run.protocol.clone(),
        nodes: run.nodes,
        load: run.load.clone(),
        entries: report.entries,
        messages: report.messages_per_entry,
        sync_delay: (report.sync_delay.max > 0.0).then_some(report.sync_delay.mean),
        response_time: report.response_time.mean,
        fairness: enough.then(|| fewest as f64 / most.max(1) as f64),
        overtakes: (run.nodes > 1).then(|| report.max_overtakes as f64 / f64::from(run.nodes - 1)),
        violations: report.violations.len(),
    };
    Ok((cell, report))
}
