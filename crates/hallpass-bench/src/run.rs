//! A whole run: starts everything, measures round after round, ends everything.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::str::FromStr;

use crate::BenchError;
use crate::child::{Launcher, Scratch};
use crate::group::{Group, agents, clients, floor, hallpass};
use crate::measure::{Workload, measure};
use crate::report::{Cell, Report, Skipped};
use crate::servers::{self, Missing, Server, Started, find, missing};

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

/// What to measure, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// How often everything is measured; figures are medians.
    pub rounds: u32,
    /// How long each measurement takes.
    pub seconds: f64,
    /// Whom to compare with.
    pub peers: Vec<Peer>,
}

impl Default for Spec {
    fn default() -> Self {
        Self { rounds: 3, seconds: 1.0, peers: vec![Peer::Redis, Peer::Postgres] }
    }
}

impl Spec {
    /// A few seconds in all, to see that it works; the figures are worth little.
    pub fn quick() -> Self {
        Self { rounds: 1, seconds: 0.05, peers: Vec::new() }
    }
}

/// How far a run has come.
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
    let scratch = Scratch::new(launcher)?;
    let (mut groups, mut skipped) = start(spec, launcher, scratch.path(), progress)?;
    let mut cells: Vec<(usize, Workload, Cell)> = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        cells.extend(group.workloads.iter().map(|&workload| {
            (at, workload, Cell { system: group.name.clone(), workload: workload.name(), runs: Vec::new() })
        }));
    }
    let total = cells.len() as u64 * u64::from(spec.rounds);
    let mut done = 0;
    for _ in 0..spec.rounds {
        for (at, workload, cell) in &mut cells {
            progress(Progress { done, total, now: &format!("{}: {}", cell.system, cell.workload) });
            done += 1;
            if skipped.iter().any(|skipped| skipped.peer == cell.system) {
                continue;
            }
            match measure(&mut groups[*at], *workload, spec.seconds, scratch.path()) {
                Ok(run) => cell.runs.push(run),
                // A peer that fails is left out; what the others took is not lost with it.
                Err(error) if Report::is_peer(&cell.system) => {
                    skipped.push(Skipped { peer: cell.system.clone(), why: error.to_string() });
                }
                Err(error) => return Err(error),
            }
        }
    }
    cells.retain(|(.., cell)| skipped.iter().all(|skipped| skipped.peer != cell.system));
    progress(Progress { done, total, now: "" });
    let cells: Vec<Cell> = cells.into_iter().map(|(.., cell)| cell).collect();
    Ok(Report::new(spec, load, &cells, skipped))
}

fn start(
    spec: &Spec,
    launcher: &Launcher,
    scratch: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(Vec<Group>, Vec<Skipped>), BenchError> {
    let keys = scratch.join("keys");
    crate::keys::make(&keys, &["n0", "n1", "n2"])?;
    let mut say = |now: &str| progress(Progress { done: 0, total: 0, now });
    say("starting hallpass");
    let mut groups = floor(launcher, &keys)?;
    groups.push(hallpass(launcher, None)?);
    groups.push(hallpass(launcher, Some(&keys))?);
    groups.push(agents(launcher, scratch)?);
    let mut skipped = Vec::new();
    for peer in &spec.peers {
        say(&format!("starting {}", peer.name()));
        match start_peer(*peer, launcher, scratch)? {
            Ok(more) => groups.extend(more),
            Err(Missing(why)) => skipped.push(Skipped { peer: peer.name().to_owned(), why }),
        }
    }
    Ok((groups, skipped))
}

fn start_peer(peer: Peer, launcher: &Launcher, scratch: &Path) -> Result<Result<Vec<Group>, Missing>, BenchError> {
    let started = match peer {
        Peer::Redis => servers::redis(launcher, scratch)?,
        Peer::Postgres => servers::postgres(launcher, scratch)?,
        // What takes long comes after what may be missing.
        Peer::Etcd => match Builder::find() {
            Ok(_) => servers::etcd(launcher, scratch)?,
            Err(missing) => Err(missing),
        },
        Peer::ZooKeeper => servers::zookeeper(launcher, scratch)?,
    };
    let Started { servers, addresses } = match started {
        Ok(started) => started,
        Err(missing) => return Ok(Err(missing)),
    };
    let mut groups = match peer {
        Peer::Redis => vec![
            clients("redis, poll", launcher, &["redis", &addresses[0], "poll"])?,
            clients("redis, pub/sub", launcher, &["redis", &addresses[0], "wake-up"])?,
            clients("redlock, 3", launcher, &["redlock", &addresses[0], &addresses[1], &addresses[2]])?,
        ],
        Peer::Postgres => vec![
            clients("postgres, unix", launcher, &["postgres", &addresses[0]])?,
            clients("postgres, tcp", launcher, &["postgres", &addresses[1]])?,
        ],
        Peer::ZooKeeper => {
            vec![clients("zookeeper", launcher, &["zookeeper", &addresses[0], &addresses[1], &addresses[2]])?]
        }
        Peer::Etcd => {
            let other = match Builder::find() {
                Ok(builder) => builder.build()?,
                Err(missing) => return Ok(Err(missing)),
            };
            vec![clients(peer.name(), &other, &["worker", peer.name(), &addresses.join(",")])?]
        }
    };
    let servers: Rc<[Server]> = servers.into();
    groups.iter_mut().for_each(|group| group.servers = Rc::clone(&servers));
    Ok(Ok(groups))
}

/// Clients whose crates need more than Rust to build live in a workspace of their own.
struct Builder {
    manifest: PathBuf,
}

impl Builder {
    fn find() -> Result<Self, Missing> {
        if find("protoc", &[]).is_none() {
            return Err(missing("protoc", "protobuf-compiler, to build the client"));
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench-peers/Cargo.toml");
        let here = PathBuf::from("bench-peers/Cargo.toml");
        let manifest = [here, source].into_iter().find(|manifest| manifest.is_file());
        manifest
            .map(|manifest| Self { manifest })
            .ok_or_else(|| Missing("its client is in 'bench-peers' of the source: call it from there".to_owned()))
    }

    fn build(&self) -> Result<Launcher, BenchError> {
        let manifest = self.manifest.display().to_string();
        let args = ["--release", "--quiet", "--manifest-path", &manifest];
        let built = Command::new("cargo").arg("build").args(args).output().map_err(BenchError::new)?;
        if !built.status.success() {
            let why = String::from_utf8_lossy(&built.stderr);
            return Err(BenchError::new(format!("bench-peers does not build: {}", why.trim())));
        }
        Ok(Launcher::new("cargo", &[&["run"][..], &args, &["--"]].concat()))
    }
}

/// How busy the machine was before.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
