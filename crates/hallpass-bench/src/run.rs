//! A whole run: starts everything, measures in rounds, ends everything.

use std::path::Path;
use std::rc::Rc;
use std::str::FromStr;

use crate::BenchError;
use crate::changes::{self, Change, Scale};
use crate::child::{Launcher, Scratch};
use crate::clients;
use crate::group::{self, Group, agents, floor, hallpass};
use crate::measure::{Workload, measure};
use crate::report::{Cell, ETCD_API, Report, Skipped};
use crate::servers::{self, Server, Started};

/// A lock service to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// etcd, three members, its lock API.
    Etcd,
    /// Redis, one instance.
    Redis,
    /// ZooKeeper, three members, its recipe.
    ZooKeeper,
    /// PostgreSQL's advisory locks.
    Postgres,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Etcd, Self::Redis, Self::ZooKeeper, Self::Postgres];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Redis => "redis",
            Self::ZooKeeper => "zookeeper",
            Self::Postgres => "postgres",
        }
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|peer| peer.name() == text).ok_or_else(|| format!("it is one of {}", all()))
    }
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Acquiring and releasing, beside others.
    Locks,
    /// The same in groups of several sizes.
    Sizes,
    /// Founding a group, and changes of its members.
    Views,
}

impl Section {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Locks, Self::Sizes, Self::Views];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Sizes => "sizes",
            Self::Views => "views",
        }
    }
}

impl FromStr for Section {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|section| section.name() == text).ok_or_else(|| format!("it is one of {}", all()))
    }
}

/// What to measure, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Only this part; all of it if `None`.
    pub only: Option<Section>,
    /// How often everything is measured; figures are medians.
    pub rounds: u32,
    /// How long each measurement takes.
    pub seconds: f64,
    /// Which lock services to compare with.
    pub peers: Vec<Peer>,
    /// The sizes of the groups in the part about sizes.
    pub sizes: Vec<usize>,
    /// How large the groups are that change.
    pub scale: Scale,
}

impl Default for Spec {
    fn default() -> Self {
        let peers = vec![Peer::Redis, Peer::Postgres];
        Self { only: None, rounds: 3, seconds: 1.0, peers, sizes: vec![3, 16, 50], scale: Scale::default() }
    }
}

impl Spec {
    /// A few seconds in all, to see that it works; the figures are worth little.
    pub fn quick() -> Self {
        Self { only: None, rounds: 1, seconds: 0.05, peers: Vec::new(), sizes: vec![3, 5], scale: Scale::quick() }
    }

    fn includes(&self, section: Section) -> bool {
        self.only.is_none_or(|only| only == section)
    }
}

/// How far a run is.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Measurements done.
    pub done: u64,
    /// Measurements in all; 0 while things are being started.
    pub total: u64,
    /// What is being done now.
    pub now: &'a str,
}

/// Measures everything. All processes it starts have ended when it returns.
pub fn run(spec: &Spec, launcher: &Launcher, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Report, BenchError> {
    let load = load();
    let mut skipped = Vec::new();
    let locks = spec.includes(Section::Locks).then(|| measure_locks(spec, launcher, &mut skipped, progress));
    let mut cells = locks.transpose()?.unwrap_or_default();
    let sizes: &[usize] = if spec.includes(Section::Sizes) { &spec.sizes } else { &[] };
    for members in sizes {
        cells.extend(measure_size(spec, *members, launcher, &mut skipped, progress)?);
    }
    let views = spec.includes(Section::Views).then(|| measure_changes(spec, launcher, &mut skipped, progress));
    let changes = views.transpose()?.unwrap_or_default();
    Ok(Report::new(spec, load, &cells, &changes, skipped))
}

fn measure_locks(
    spec: &Spec,
    launcher: &Launcher,
    skipped: &mut Vec<Skipped>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Cell>, BenchError> {
    let scratch = Scratch::in_memory(launcher)?;
    let (groups, missing) = start(spec, launcher, scratch.path(), progress)?;
    skipped.extend(missing);
    measure_all(spec, groups, scratch.path(), skipped, progress)
}

/// One size after the other: a hundred processes are too many to be there while others are measured.
fn measure_size(
    spec: &Spec,
    members: usize,
    launcher: &Launcher,
    skipped: &mut Vec<Skipped>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Cell>, BenchError> {
    let scratch = Scratch::in_memory(launcher)?;
    progress(Progress { done: 0, total: 0, now: &format!("starting groups of {members} members") });
    let groups = group::sized(launcher, members)?;
    measure_all(spec, groups.into(), scratch.path(), skipped, progress)
}

fn measure_all(
    spec: &Spec,
    mut groups: Vec<Group>,
    scratch: &Path,
    skipped: &mut Vec<Skipped>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Cell>, BenchError> {
    let mut cells: Vec<(usize, Workload, Cell)> = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        cells.extend(group.workloads.iter().map(|&workload| {
            (index, workload, Cell { system: group.name.clone(), workload: workload.name(), runs: Vec::new() })
        }));
    }
    let total = cells.len() as u64 * u64::from(spec.rounds);
    let mut done = 0;
    for _ in 0..spec.rounds {
        for (group, workload, cell) in &mut cells {
            progress(Progress { done, total, now: &format!("{}: {}", cell.system, cell.workload) });
            done += 1;
            if skipped.iter().any(|skipped| skipped.peer == cell.system) {
                continue;
            }
            match measure(&mut groups[*group], *workload, spec.seconds, scratch) {
                Ok(run) => cell.runs.push(run),
                // A peer that fails is left out; the figures of the others are not lost with it.
                Err(error) if Report::is_peer(&cell.system) => {
                    skipped.push(Skipped { peer: cell.system.clone(), why: error.to_string() });
                }
                Err(error) => return Err(error),
            }
        }
    }
    cells.retain(|(.., cell)| skipped.iter().all(|skipped| skipped.peer != cell.system));
    progress(Progress { done, total, now: "" });
    Ok(cells.into_iter().map(|(.., cell)| cell).collect())
}

/// How many seconds each change took, each time. A change that fails is left out; the figures of the others are not lost with it.
fn measure_changes(
    spec: &Spec,
    launcher: &Launcher,
    skipped: &mut Vec<Skipped>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<(Change, Vec<f64>)>, BenchError> {
    let scratch = Scratch::on_disk(launcher)?;
    let total = Change::ALL.len() as u64 * u64::from(spec.rounds);
    let mut done = 0;
    let mut measured = Vec::new();
    for change in Change::ALL {
        let title = change.title(&spec.scale);
        let mut make_all = || {
            progress(Progress { done, total, now: &title });
            let mut worker = change.start(&spec.scale, launcher, scratch.path())?;
            (0..spec.rounds)
                .map(|_| {
                    progress(Progress { done, total, now: &title });
                    done += 1;
                    changes::make(&mut worker)
                })
                .collect::<Result<Vec<f64>, BenchError>>()
        };
        match make_all() {
            Ok(seconds) => measured.push((change, seconds)),
            Err(error) => skipped.push(Skipped { peer: format!("'{title}'"), why: error.to_string() }),
        }
    }
    progress(Progress { done, total, now: "" });
    Ok(measured)
}

fn start(
    spec: &Spec,
    launcher: &Launcher,
    scratch: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(Vec<Group>, Vec<Skipped>), BenchError> {
    let keys = scratch.join("keys");
    crate::keys::make(&keys, &["n0", "n1", "n2"])?;
    let mut report = |now: &str| progress(Progress { done: 0, total: 0, now });
    report("starting hallpass");
    let mut groups = floor(launcher, &keys)?;
    groups.push(hallpass(launcher, None)?);
    groups.push(group::permissions(launcher)?);
    groups.push(hallpass(launcher, Some(&keys))?);
    groups.push(agents(launcher, scratch)?);
    let (peers, skipped) = start_peers(&spec.peers, launcher, scratch, &mut report);
    groups.extend(peers);
    Ok((groups, skipped))
}

/// Starts the servers of all peers, then the clients of those that run. A peer that does not start is left out.
fn start_peers(
    peers: &[Peer],
    launcher: &Launcher,
    scratch: &Path,
    report: &mut dyn FnMut(&str),
) -> (Vec<Group>, Vec<Skipped>) {
    let mut skipped = Vec::new();
    let mut skip = |peer: Peer, why: BenchError| skipped.push(Skipped { peer: peer.name().to_owned(), why: why.0 });
    let mut running = Vec::new();
    for peer in peers {
        report(&format!("starting {}", peer.name()));
        match start_servers(*peer, launcher, scratch) {
            Ok(servers) => running.push((*peer, servers)),
            Err(why) => skip(*peer, why),
        }
    }
    if running.is_empty() {
        return (Vec::new(), skipped);
    }
    report("building the clients of other lock services");
    let clients = clients::build(running.iter().any(|(peer, _)| *peer == Peer::Etcd));
    let mut groups = Vec::new();
    for (peer, servers) in running {
        let started = clients.clone().and_then(|clients| {
            let mut started = start_clients(peer, &clients, servers)?;
            if peer == Peer::Etcd {
                // The same program, and servers of ours in place of etcd's.
                let Started { servers, addresses } = group::etcd_agents(launcher, scratch)?;
                let args: Vec<&str> = ["etcd"].into_iter().chain(addresses.iter().map(String::as_str)).collect();
                started.push(group::clients(ETCD_API, &clients, &args, servers.into())?);
            }
            Ok(started)
        });
        match started {
            Ok(started) => groups.extend(started),
            Err(why) => skip(peer, why),
        }
    }
    (groups, skipped)
}

fn start_servers(peer: Peer, launcher: &Launcher, scratch: &Path) -> Result<Started, BenchError> {
    match peer {
        Peer::Redis => servers::redis(launcher, scratch),
        Peer::Postgres => servers::postgres(launcher, scratch),
        Peer::ZooKeeper => servers::zookeeper(launcher, scratch),
        Peer::Etcd => {
            clients::etcd_can_be_built()?;
            servers::etcd(launcher, scratch)
        }
    }
}

fn start_clients(peer: Peer, clients: &Launcher, started: Started) -> Result<Vec<Group>, BenchError> {
    let addresses: Vec<&str> = started.addresses.iter().map(String::as_str).collect();
    let systems = match peer {
        Peer::Redis => vec![
            ("redis, poll", vec!["redis", "poll", addresses[0]]),
            ("redis, pub/sub", vec!["redis", "pub-sub", addresses[0]]),
            ("redlock, 3", [&["redlock"], &addresses[..]].concat()),
        ],
        Peer::Postgres => {
            vec![("postgres, unix", vec!["postgres", addresses[0]]), ("postgres, tcp", vec!["postgres", addresses[1]])]
        }
        Peer::ZooKeeper | Peer::Etcd => vec![(peer.name(), [&[peer.name()], &addresses[..]].concat())],
    };
    let servers: Rc<[Server]> = started.servers.into();
    let group = |(name, args): &(&str, Vec<&str>)| group::clients(name, clients, args, Rc::clone(&servers));
    systems.iter().map(group).collect()
}

/// How busy the machine was before the run.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
