//! Groups that exist for one round, beside the main one. They try faults at the founding of a group, which the main group has behind it.
//!
//! Each has three agents on the first hosts, with clients and locks of their own. The checker reads the records of all clients.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use crate::ChaosError;
use crate::agents::{Agents, Plan};
use crate::clients::{ClientSettings, Clients, Spec, Way};
use crate::faults::{OtherSettings, SIDE_AGENTS, SettingDifference, links_around};
use crate::network::{Links, Network};

const PORT: u16 = 7500;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The words of a refusal.
const SAME: &str = "give all members the same";

/// A group that exists for one round.
#[derive(Debug)]
pub(crate) struct Side {
    name: String,
    agents: Agents,
    ttl: Duration,
    settings: ClientSettings,
    clients: Vec<Clients>,
}

impl Side {
    /// Makes the configurations of a group. Nothing runs yet.
    pub(crate) fn create(number: usize, hosts: &[String], settings: &ClientSettings) -> Result<Self, ChaosError> {
        let (name, ttl) = (format!("side-{number}"), settings.ttl);
        let names = &hosts[..SIDE_AGENTS.min(hosts.len())];
        let plan = Plan { group: &name, port: PORT, names, ttl, config: "" };
        let agents = Agents::create(&settings.hallpass, &settings.directory, &plan)?;
        Ok(Self { name, agents, ttl, settings: settings.clone(), clients: Vec::new() })
    }

    /// The first agent founds a group alone, and the others join it. It loses its data and starts again with the same configuration. It
    /// must not grant in another group of this name. Returns what went wrong.
    ///
    /// An agent that has lost everything cannot know of the others before it meets them. Only fences protect from what it grants before
    /// that. So its clients start when it says why it grants nothing, or when it should have.
    pub(crate) fn wipe_founder(&mut self, wholly: bool, limit: Duration) -> Result<Vec<String>, ChaosError> {
        let name = self.agents.name(0).to_owned();
        let founder = format!("{name}@{name}:{PORT}");
        for agent in 0..self.agents.count() {
            let key = if agent == 0 { "peers" } else { "join" };
            self.agents.configure(agent, |text| format!("{key} = [\"{founder}\"]\n{}", without(text, "peers")))?;
        }
        self.agents.start_all()?;
        if !self.wait_until_ready(limit) {
            let why =
                format!("{}: not all were in within {limit:?} of the start\n{}", self.name, self.agents.describe());
            return Ok(self.end(vec![why]));
        }
        self.start_clients(1..self.agents.count());
        self.start_clients(0..1);
        thread::sleep(self.ttl / 2);
        let mut troubles = Vec::new();
        if wholly {
            troubles.extend(self.clients.pop().map(Clients::end).into_iter().flat_map(|(_, failures)| failures));
        }
        self.agents.kill(0);
        if wholly {
            self.agents.wipe_wholly(0)?
        } else {
            self.agents.wipe(0)?
        }
        self.agents.start(0)?;
        // It waits a session for the clients of its predecessor, and has met the others by then.
        let begun = Instant::now();
        let says_why = self.wait_until_refused(0, "join", self.ttl * 2 + self.ttl / 2);
        if wholly {
            self.start_clients(0..1);
        }
        thread::sleep((self.ttl * 2 + self.ttl / 2).saturating_sub(begun.elapsed()).max(self.ttl));
        let serves = self.agents.is_ready(0) && self.agents.member_count(0) == Some(1);
        if serves && (1..self.agents.count()).any(|agent| self.agents.is_ready(agent)) {
            let why = "lost its data, and serves a second group of this name beside the first";
            troubles.push(format!("{}: '{name}' {why}", self.name));
        } else if !says_why {
            troubles.push(format!("{}: '{name}' lost its data, and does not say why it grants nothing", self.name));
        }
        Ok(self.end(troubles))
    }

    /// One founder has different settings. Either the agents found no group and say why, or they found exactly one, even if that founder
    /// is cut off. Returns what went wrong.
    pub(crate) fn other_settings(
        &mut self,
        other: OtherSettings,
        network: &mut Network,
        limit: Duration,
    ) -> Result<Vec<String>, ChaosError> {
        let Some(odd) = self.by_id(limit)?.get(other.rank).copied() else {
            let why = format!("{}: not all agents have started", self.name);
            return Ok(self.end(vec![why]));
        };
        for agent in 0..self.agents.count() {
            match other.what {
                SettingDifference::Ttl if agent == odd => self.agents.set_ttl(agent, self.ttl + self.ttl / 2),
                SettingDifference::Ttl => {}
                SettingDifference::Voters(own, others) => {
                    let voters = if agent == odd { own } else { others };
                    self.agents.configure(agent, |text| format!("voters = {voters}\n{text}"))?;
                }
            }
        }
        self.agents.start_all()?;
        self.start_clients(0..self.agents.count());
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if self.is_refused(odd, SAME) {
                return Ok(self.end(Vec::new()));
            }
            if (0..self.agents.count()).all(|agent| self.agents.is_ready(agent)) {
                network.set(&links_around(odd, network.hosts()))?;
                // A side that elects another steward removes the other members after a session, and grants after that.
                thread::sleep(self.ttl * 4);
                network.set(&Links::new())?;
                return Ok(self.end(Vec::new()));
            }
            thread::sleep(LOOK_INTERVAL);
        }
        let why = format!(
            "{}: founders with {other:?} found no group, and do not say why\n{}",
            self.name,
            self.agents.describe()
        );
        Ok(self.end(vec![why]))
    }

    /// The agents in the order of their nodes' ids, which decides who votes. Nodes draw their ids when they first start. So each agent runs
    /// alone for a moment, which founds nothing.
    fn by_id(&mut self, limit: Duration) -> Result<Vec<usize>, ChaosError> {
        let mut ids = Vec::new();
        for agent in 0..self.agents.count() {
            self.agents.start(agent)?;
            let end = Instant::now() + limit;
            while self.agents.id(agent).is_none() && Instant::now() < end {
                thread::sleep(LOOK_INTERVAL);
            }
            ids.extend(self.agents.id(agent).map(|id| (id, agent)));
            self.agents.end(agent)?;
        }
        ids.sort_unstable();
        Ok(ids.into_iter().map(|(_, agent)| agent).collect())
    }

    fn wait_until_ready(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        (0..self.agents.count())
            .all(|agent| self.agents.wait_until_ready(agent, end.saturating_duration_since(Instant::now())))
    }

    /// Whether an agent grants nothing and says why with this word, or has ended.
    fn is_refused(&mut self, agent: usize, word: &str) -> bool {
        self.agents.waits_for(agent).is_some_and(|why| why.contains(word)) || self.agents.has_ended(agent)
    }

    fn wait_until_refused(&mut self, agent: usize, word: &str, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while !self.is_refused(agent, word) {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(LOOK_INTERVAL);
        }
        true
    }

    fn start_clients(&mut self, agents: Range<usize>) {
        let mut specs = Vec::new();
        for agent in agents {
            for (way, word) in Way::ALL.into_iter().filter(|(way, _)| *way != Way::Run) {
                let name = format!("{}-{}-{word}", self.name, self.agents.name(agent));
                specs.push(Spec { name, way, locks: self.name.clone(), socket: self.agents.socket(agent) });
            }
        }
        self.clients.push(Clients::start(&specs, &self.settings));
    }

    /// Ends all processes. Adds the clients' failures that no fault explains.
    fn end(&mut self, mut troubles: Vec<String>) -> Vec<String> {
        for clients in self.clients.drain(..) {
            troubles.extend(clients.end().1);
        }
        (0..self.agents.count()).for_each(|agent| self.agents.kill(agent));
        troubles
    }
}

/// A configuration without this key.
fn without(text: &str, key: &str) -> String {
    text.lines().filter(|line| !line.starts_with(&format!("{key} ="))).map(|line| format!("{line}\n")).collect()
}
