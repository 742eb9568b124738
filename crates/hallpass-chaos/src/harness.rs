//! One run from the first agent to the verdict.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::agents::{Agents, Plan};
use crate::checker::{History, check};
use crate::clients::{ClientSettings, Clients, Spec, Way, resource_socket};
use crate::faults::{Fault, FaultKind, Round, Schedule, links};
use crate::network::{Links, Network};
use crate::records::{Event, Files, Log};
use crate::report::Report;
use crate::resource::Resource;
use crate::side::Side;
use crate::{ChaosError, clock};

/// After each healing, every client must get in within a session and this time.
const RECOVERY: Duration = Duration::from_secs(5);
/// The run ends if a group does not recover within this time.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program under test.
    pub hallpass: PathBuf,
    /// This program: it is its own clients.
    pub this: PathBuf,
    /// The directory of all files of the run.
    pub directory: PathBuf,
    /// Decides which faults come when.
    pub seed: u64,
    /// The run ends after this many faults.
    pub faults: usize,
    /// The run ends after this time, if that comes first.
    pub limit: Option<Duration>,
    /// How many agents there are.
    pub agents: usize,
    /// How many clients of each kind every agent has.
    pub clients: usize,
    /// How long a session lasts.
    pub ttl: Duration,
    /// Lines for the configuration of every agent.
    pub config: String,
    /// The names of the kinds of faults. Empty means all.
    pub kinds: Vec<String>,
}

impl Options {
    fn kinds(&self) -> Result<Vec<FaultKind>, ChaosError> {
        if self.kinds.is_empty() {
            return Ok(FaultKind::ALL.map(|(kind, _)| kind).to_vec());
        }
        self.kinds.iter().map(|name| name.parse().map_err(ChaosError::Usage)).collect()
    }
}

/// The progress of a run.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The number of faults so far.
    pub faults: usize,
    /// The number of faults of the whole run.
    pub total: usize,
    /// What happens now.
    pub now: String,
}

/// Makes a run. This process must be in the [`Sandbox`](crate::Sandbox).
pub fn run(options: &Options, show: &mut dyn FnMut(Progress)) -> Result<Report, ChaosError> {
    let kinds = options.kinds()?;
    let mut harness = Harness::create(options)?;
    let mut schedule = Schedule::new(options.seed, &kinds, options.agents, harness.clients.names().len(), options.ttl);
    let start = Instant::now();
    let mut progress = |faults, now: &str| show(Progress { faults, total: options.faults, now: now.to_owned() });
    progress(0, "the group is founded");
    let founded = harness.wait_for_everybody(clock::now(), PATIENCE)?;
    if !founded {
        let why = format!("not everybody got a lock within {PATIENCE:?} of the start, before any fault");
        harness.troubles.push(why);
    }
    while founded && harness.count() < options.faults && options.limit.is_none_or(|limit| start.elapsed() < limit) {
        let round = schedule.next();
        let names: Vec<String> = round.faults.iter().map(|fault| fault.kind().to_string()).collect();
        progress(harness.count(), &names.join(" + "));
        if !harness.round(&round)? {
            break;
        }
    }
    progress(harness.count(), "checking");
    harness.finish(options, start.elapsed())
}

struct Harness {
    network: Network,
    agents: Agents,
    clients: Clients,
    resource: Resource,
    files: Files,
    events: Log,
    ttl: Duration,
    settings: ClientSettings,
    names: Vec<String>,
    faults: BTreeMap<FaultKind, usize>,
    rounds: usize,
    /// How many groups existed for one round only.
    sides: usize,
    /// Failures that are not in the records.
    troubles: Vec<String>,
}

impl Harness {
    fn create(options: &Options) -> Result<Self, ChaosError> {
        let names: Vec<String> = (0..options.agents).map(|index| ((b'a' + index as u8) as char).to_string()).collect();
        let directory = &options.directory;
        let network = Network::create(&names, directory)?;
        let plan = Plan { group: "group", port: 7400, names: &names, ttl: options.ttl, config: &options.config };
        let mut agents = Agents::create(&options.hallpass, directory, &plan)?;
        agents.start_all()?;
        let files = Files(directory.clone());
        let socket = resource_socket(directory);
        let resource = Resource::listen(&socket, &files.work()).map_err(|error| ChaosError::file(&socket, &error))?;
        let events = Log::open(&files.events()).map_err(|error| ChaosError::file(&files.events(), &error))?;
        let settings = ClientSettings {
            hallpass: options.hallpass.clone(),
            this: options.this.clone(),
            directory: directory.clone(),
            seed: options.seed,
            ttl: options.ttl,
        };
        let clients = Clients::start(&specs(options, &agents), &settings);
        Ok(Self {
            network,
            agents,
            clients,
            resource,
            files,
            events,
            ttl: options.ttl,
            settings,
            names,
            faults: BTreeMap::new(),
            rounds: 0,
            sides: 0,
            troubles: Vec::new(),
        })
    }

    fn count(&self) -> usize {
        self.faults.values().sum()
    }

    /// Begins the faults of a round, heals them, and waits for all clients. False if the group does not recover.
    fn round(&mut self, round: &Round) -> Result<bool, ChaosError> {
        self.rounds += 1;
        self.resource.set_calm(false);
        let begun = Instant::now();
        self.network.set(&links(&round.faults))?;
        let mut stopped = Vec::new();
        for fault in round.faults.iter().filter(|fault| !fault.comes_late()) {
            self.begin(fault, &mut stopped)?;
        }
        for fault in round.faults.iter().filter(|fault| fault.comes_late()) {
            thread::sleep((self.ttl / 2).saturating_sub(begun.elapsed()));
            self.begin(fault, &mut stopped)?;
        }
        if !round.is_beside() {
            thread::sleep(round.lasts.saturating_sub(begun.elapsed()));
        }
        for (agent, status) in self.agents.ended_unasked() {
            self.troubles.push(format!("agent '{}' ended without being told to: {status}", self.agents.name(agent)));
        }
        self.heal(round, &stopped)?;
        self.recover()
    }

    fn begin(&mut self, fault: &Fault, stopped: &mut Vec<(usize, u64)>) -> Result<(), ChaosError> {
        let (at, mut kind) = (clock::now(), fault.kind());
        match *fault {
            Fault::Links(..) => {}
            Fault::KillAgent(agent) => self.agents.kill(agent),
            Fault::StopAgent(agent) => self.agents.signal(agent, Signal::STOP),
            Fault::WipeAgent(agent) => match self.agents.non_voter(agent) {
                Some(agent) => {
                    self.agents.kill(agent);
                    self.agents.wipe(agent)?;
                }
                // All members vote, and a voter must not lose its data.
                None => {
                    kind = FaultKind::KillAgent;
                    self.agents.kill(agent);
                }
            },
            Fault::EndAgent(agent) => self.agents.ask_to_end(agent),
            Fault::RollingRestart => self.rolling_restart()?,
            Fault::RestartAll { kill } => self.end_all(kill)?,
            Fault::KillClient(client) => {
                let killed = self.clients.signal(client, Signal::KILL);
                // The command of `hallpass run` is another process. Its last work shows how long it lived.
                if let Some(at) = killed.filter(|_| self.clients.way(client) != Way::Run) {
                    self.log(&Event::Killed { client: self.clients.names()[client].clone(), at })?;
                }
            }
            Fault::StopClient(client) => {
                stopped.extend(self.clients.signal(client, Signal::STOP).map(|at| (client, at)))
            }
            Fault::WipeFounder { .. } | Fault::OtherSettings(_) => self.beside(fault)?,
        }
        *self.faults.entry(kind).or_default() += 1;
        self.log(&Event::Fault { kind: kind.to_string(), what: format!("{fault:?}"), at })
    }

    /// Runs a fault that has a group of its own.
    fn beside(&mut self, fault: &Fault) -> Result<(), ChaosError> {
        self.sides += 1;
        let mut side = Side::create(self.sides, &self.names, &self.settings)?;
        let limit = self.ttl + RECOVERY;
        let troubles = match *fault {
            Fault::OtherSettings(other) => side.other_settings(other, &mut self.network, limit)?,
            Fault::WipeFounder { wholly } => side.wipe_founder(wholly, limit)?,
            _ => Vec::new(),
        };
        self.troubles.extend(troubles);
        Ok(())
    }

    fn rolling_restart(&mut self) -> Result<(), ChaosError> {
        for agent in 0..self.agents.count() {
            self.end_agent(agent);
            self.agents.start(agent)?;
            if !self.agents.wait_until_ready(agent, self.ttl + RECOVERY) {
                let name = self.agents.name(agent);
                self.troubles
                    .push(format!("agent '{name}' was not back within {:?} of its restart", self.ttl + RECOVERY));
            }
        }
        Ok(())
    }

    fn end_all(&mut self, kill: bool) -> Result<(), ChaosError> {
        if !kill {
            (0..self.agents.count()).for_each(|agent| self.agents.signal(agent, Signal::TERM));
        }
        for agent in 0..self.agents.count() {
            if kill { self.agents.kill(agent) } else { self.end_agent(agent) }
        }
        Ok(())
    }

    fn end_agent(&mut self, agent: usize) {
        if let Err(error) = self.agents.end(agent) {
            self.troubles.push(error.to_string());
        }
    }

    fn heal(&mut self, round: &Round, stopped: &[(usize, u64)]) -> Result<(), ChaosError> {
        self.network.set(&Links::new())?;
        for fault in &round.faults {
            if let Fault::StopAgent(agent) = fault {
                self.agents.signal(*agent, Signal::CONT);
            }
        }
        for &(client, from) in stopped {
            self.clients.signal(client, Signal::CONT);
            let client = self.clients.names()[client].clone();
            self.log(&Event::Stopped { client, from, to: clock::now() })?;
        }
        for agent in self.agents.ending() {
            self.end_agent(agent);
        }
        self.agents.start_all()
    }

    fn recover(&mut self) -> Result<bool, ChaosError> {
        let (healed, limit) = (clock::now(), self.ttl + RECOVERY);
        self.resource.set_calm(true);
        let mut recovered = self.wait_for_everybody(healed, limit)?;
        let until = clock::now();
        let clients = self.clients.names().to_vec();
        self.log(&Event::Healed { at: healed, until, limit: limit.as_nanos() as u64, clients })?;
        if !recovered {
            let path = self.files.0.join(format!("starved-{}.txt", self.rounds));
            std::fs::write(&path, self.agents.describe()).map_err(|error| ChaosError::file(&path, &error))?;
            recovered = self.wait_for_everybody(healed, PATIENCE)?;
            if !recovered {
                self.troubles.push(format!("the group did not recover within {PATIENCE:?}: the run was ended"));
            }
        }
        Ok(recovered)
    }

    /// False if a client has not got in in time. An agent that ended unasked is a violation, and is started again.
    fn wait_for_everybody(&mut self, since: u64, limit: Duration) -> Result<bool, ChaosError> {
        let end = since + limit.as_nanos() as u64;
        loop {
            let waiting = self.resource.waiting_since(self.clients.names(), since).len();
            if waiting == 0 {
                return Ok(true);
            }
            if clock::now() >= end {
                return Ok(false);
            }
            for (agent, status) in self.agents.ended_unasked() {
                self.troubles
                    .push(format!("agent '{}' ended without being told to: {status}", self.agents.name(agent)));
            }
            self.agents.start_all()?;
            thread::sleep(LOOK_INTERVAL);
        }
    }

    fn log(&mut self, event: &Event) -> Result<(), ChaosError> {
        self.events.append(event).map_err(|error| ChaosError::file(&self.files.events(), &error))
    }

    fn finish(mut self, options: &Options, took: Duration) -> Result<Report, ChaosError> {
        let (exits, failures) = self.clients.end();
        self.troubles.extend(failures);
        (0..self.agents.count()).for_each(|agent| self.agents.kill(agent));
        let verdict = check(&History::read(&self.files)?);
        let faults = self.faults.iter().map(|(kind, count)| (kind.to_string(), *count)).collect();
        Ok(Report::new(options, took, self.rounds, faults, &exits, self.troubles, &verdict))
    }
}

fn specs(options: &Options, agents: &Agents) -> Vec<Spec> {
    let mut specs = Vec::new();
    for agent in 0..options.agents {
        for number in 1..=options.clients {
            for (way, word) in Way::ALL {
                let name = format!("{}-{word}-{number}", agents.name(agent));
                specs.push(Spec { name, way, locks: "chaos".to_owned(), socket: agents.socket(agent) });
            }
        }
    }
    specs
}
