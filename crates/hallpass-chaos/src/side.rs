//! Groups that are there for one round, beside the one that lasts: what goes wrong when a group is founded cannot be tried on that one.
//!
//! Three agents on the first hosts, with clients and locks of their own. What their clients saw is checked like everything else.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use crate::ChaosError;
use crate::agents::{Agents, Plan};
use crate::clients::{Clients, Setting as ClientSetting, Spec, Way};
use crate::faults::{OtherSettings, SIDE_AGENTS, Setting, links_around};
use crate::network::{Links, Network};

const PORT: u16 = 7500;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// A refusal says so, in these words.
const SAME: &str = "give all members the same";

/// One such group.
#[derive(Debug)]
pub(crate) struct Side {
    name: String,
    agents: Agents,
    ttl: Duration,
    setting: ClientSetting,
    clients: Vec<Clients>,
}

impl Side {
    /// Makes the configurations of a group. Nothing runs yet.
    pub(crate) fn create(number: usize, hosts: &[String], setting: &ClientSetting) -> Result<Self, ChaosError> {
        let (name, ttl) = (format!("side-{number}"), setting.ttl);
        let names = &hosts[..SIDE_AGENTS.min(hosts.len())];
        let plan = Plan { group: &name, port: PORT, names, ttl, config: "" };
        let agents = Agents::create(&setting.hallpass, &setting.directory, &plan)?;
        Ok(Self { name, agents, ttl, setting: setting.clone(), clients: Vec::new() })
    }

    /// The first agent founds a group alone and the others join it. It loses its data, is started again as it was configured, and must
    /// not grant in another group of this name. Returns what went wrong.
    ///
    /// One that has lost everything cannot know of the others before it meets them: what it grants before that, only a fence
    /// protects from. So its clients come when it says why it grants nothing, or when it should have.
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
        // It waits a session for the clients of the one before it, and is in touch with the others by then.
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

    /// One founder's settings are different. Either they found no group and say why, or the one that they found is one, also when that
    /// founder is cut off. Returns what went wrong.
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
                Setting::Ttl if agent == odd => self.agents.set_ttl(agent, self.ttl + self.ttl / 2),
                Setting::Ttl => {}
                Setting::Voters(own, others) => {
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
                // A side that elects another steward removes the others a session later, and grants after that.
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

    /// The agents in the order of their nodes' ids, which they draw when they are first started: who votes follows from it. Each runs alone
    /// for a moment, which founds nothing.
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

    /// An agent that grants nothing says why in words with this one, or has ended.
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
        self.clients.push(Clients::start(&specs, &self.setting));
    }

    /// Ends everything. What clients did that no fault explains is added.
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
