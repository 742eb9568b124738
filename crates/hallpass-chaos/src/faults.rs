//! Draws the faults of a run. The seed alone decides which come when.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::network::{Link, Links, pairs};
use crate::random::Random;

/// The number of agents in a group that exists for one round only.
pub(crate) const SIDE_AGENTS: usize = 3;

/// A round is complete after this many draws that do not fit to its other faults.
const DRAWS_MAX: usize = 3;

/// The kinds of faults, with the names that arguments and figures use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    Partition,
    OneWay,
    Partial,
    Loss,
    Delay,
    KillAgent,
    StopAgent,
    WipeAgent,
    EndAgent,
    RollingRestart,
    RestartAll,
    KillClient,
    StopClient,
    WipeFounder,
    OtherSettings,
}

impl FaultKind {
    pub(crate) const ALL: [(Self, &'static str); 15] = [
        (Self::Partition, "partition"),
        (Self::OneWay, "one-way"),
        (Self::Partial, "partial"),
        (Self::Loss, "loss"),
        (Self::Delay, "delay"),
        (Self::KillAgent, "kill-agent"),
        (Self::StopAgent, "stop-agent"),
        (Self::WipeAgent, "wipe-agent"),
        (Self::EndAgent, "end-agent"),
        (Self::RollingRestart, "rolling-restart"),
        (Self::RestartAll, "restart-all"),
        (Self::KillClient, "kill-client"),
        (Self::StopClient, "stop-client"),
        (Self::WipeFounder, "wipe-founder"),
        (Self::OtherSettings, "other-settings"),
    ];
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(kind, _)| kind == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(|(_, name)| name).join(", ");
        let kind = Self::ALL.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind);
        kind.ok_or_else(|| format!("no fault is called '{text}': {}", names()))
    }
}

/// One fault. Hosts and clients are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Faults of the network: partitions, loss, delay.
    Links(FaultKind, Links),
    /// The agent is killed. The healing starts it again.
    KillAgent(usize),
    StopAgent(usize),
    /// This agent, or the next that does not vote, is killed and comes back without its data.
    WipeAgent(usize),
    /// The agent is asked to end, and the healing starts it again. Its clients go on until the deadline they were told.
    EndAgent(usize),
    /// All agents end and start again, one after the other.
    RollingRestart,
    /// All agents are asked to end or killed at once.
    RestartAll {
        kill: bool,
    },
    KillClient(usize),
    StopClient(usize),
    /// In a group of its own: the founder comes back without its data, or without any file that it has written.
    WipeFounder {
        wholly: bool,
    },
    /// In a group of its own: the agents that found it have different settings.
    OtherSettings(OtherSettings),
}

/// How one founder differs from the two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtherSettings {
    /// Which founder, in the order of their nodes' ids. Nodes with the lowest ids vote first.
    pub(crate) rank: usize,
    pub(crate) what: SettingDifference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingDifference {
    /// The number of voters in this founder's configuration, and in the others'.
    Voters(u8, u8),
    /// This founder has a longer session.
    Ttl,
}

impl Fault {
    pub(crate) fn kind(&self) -> FaultKind {
        match self {
            Self::Links(kind, _) => *kind,
            Self::KillAgent(_) => FaultKind::KillAgent,
            Self::StopAgent(_) => FaultKind::StopAgent,
            Self::WipeAgent(_) => FaultKind::WipeAgent,
            Self::EndAgent(_) => FaultKind::EndAgent,
            Self::RollingRestart => FaultKind::RollingRestart,
            Self::RestartAll { .. } => FaultKind::RestartAll,
            Self::KillClient(_) => FaultKind::KillClient,
            Self::StopClient(_) => FaultKind::StopClient,
            Self::WipeFounder { .. } => FaultKind::WipeFounder,
            Self::OtherSettings(_) => FaultKind::OtherSettings,
        }
    }

    /// The agent that it concerns, if it concerns one.
    fn agent(&self) -> Option<usize> {
        match self {
            Self::KillAgent(agent) | Self::StopAgent(agent) | Self::WipeAgent(agent) | Self::EndAgent(agent) => {
                Some(*agent)
            }
            _ => None,
        }
    }

    /// True if it begins only when clients hold their locks for long.
    pub(crate) fn comes_late(&self) -> bool {
        matches!(self, Self::EndAgent(_))
    }

    /// True if it needs a round of its own: it restarts every agent, or sets the network itself.
    fn is_alone(&self) -> bool {
        use Fault::{OtherSettings, RestartAll, RollingRestart, WipeFounder};
        matches!(self, RollingRestart | RestartAll { .. } | WipeFounder { .. } | OtherSettings(_))
    }
}

/// Faults that overlap in time, and how long they last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) faults: Vec<Fault>,
    pub(crate) lasts: Duration,
}

impl Round {
    /// True if it has a group of its own, which decides how long it takes.
    pub(crate) fn is_beside(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::WipeFounder { .. } | Fault::OtherSettings(_)))
    }
}

/// Draws rounds.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) random: Random,
    pub(crate) kinds: Vec<FaultKind>,
    pub(crate) agents: usize,
    pub(crate) clients: usize,
    pub(crate) ttl: Duration,
    /// The kinds that have not come yet. Every kind comes once before one comes again.
    pub(crate) left: Vec<FaultKind>,
}

impl Schedule {
    pub(crate) fn new(seed: u64, kinds: &[FaultKind], agents: usize, clients: usize, ttl: Duration) -> Self {
        Self { random: Random::new(seed), kinds: kinds.to_vec(), agents, clients, ttl, left: Vec::new() }
    }

    /// The next round. Half of them last longer than a session.
    pub(crate) fn next(&mut self) -> Round {
        let wanted = 1 + self.random.below(3);
        let mut faults: Vec<Fault> = vec![self.fault()];
        // Faults that do not fit together come in a later round.
        let mut later = Vec::new();
        while faults.len() < wanted && !faults[0].is_alone() && later.len() < DRAWS_MAX {
            let fault = self.fault();
            let twice = fault.agent().is_some() && faults.iter().any(|other| other.agent() == fault.agent());
            if fault.is_alone() || twice {
                later.push(fault.kind());
            } else {
                faults.push(fault);
            }
        }
        self.left.extend(later);
        let ttl_ms = self.ttl.as_millis() as u64;
        let lasts = match self.random.once_in(2) {
            true => self.random.between(ttl_ms / 8, ttl_ms),
            false => self.random.between(ttl_ms, ttl_ms * 2),
        };
        // An agent takes up to a session to end. Only afterwards its clients show how long they go on.
        let ends = faults.iter().any(Fault::comes_late);
        let lasts = if ends { lasts.max(ttl_ms * 5 / 2) } else { lasts };
        Round { faults, lasts: Duration::from_millis(lasts) }
    }

    fn fault(&mut self) -> Fault {
        if self.left.is_empty() {
            self.left = self.kinds.clone();
        }
        let kind = self.left.swap_remove(self.random.below(self.left.len()));
        match kind {
            FaultKind::Partition => {
                let sides = self.sides();
                Fault::Links(kind, cut(&sides, |from, to| from != to))
            }
            FaultKind::OneWay => {
                let sides = self.sides();
                Fault::Links(kind, cut(&sides, |from, to| from && !to))
            }
            FaultKind::Partial => Fault::Links(kind, self.some_pairs(|_| Link::CUT)),
            FaultKind::Loss => Fault::Links(
                kind,
                self.some_pairs(|random| Link { loss: random.between(5, 50) as u8, ..Link::default() }),
            ),
            FaultKind::Delay => Fault::Links(
                kind,
                self.some_pairs(|random| Link {
                    delay: Duration::from_millis(random.between(5, 150)),
                    ..Link::default()
                }),
            ),
            FaultKind::KillAgent => Fault::KillAgent(self.random.below(self.agents)),
            FaultKind::StopAgent => Fault::StopAgent(self.random.below(self.agents)),
            FaultKind::WipeAgent => Fault::WipeAgent(self.random.below(self.agents)),
            FaultKind::EndAgent => Fault::EndAgent(self.random.below(self.agents)),
            FaultKind::RollingRestart => Fault::RollingRestart,
            FaultKind::RestartAll => Fault::RestartAll { kill: self.random.once_in(2) },
            FaultKind::KillClient => Fault::KillClient(self.random.below(self.clients)),
            FaultKind::StopClient => Fault::StopClient(self.random.below(self.clients)),
            FaultKind::WipeFounder => Fault::WipeFounder { wholly: self.random.once_in(2) },
            FaultKind::OtherSettings => Fault::OtherSettings(self.other_settings()),
        }
    }

    fn other_settings(&mut self) -> OtherSettings {
        // The most dangerous difference: a founder takes itself for the only voter, and the others count it as one of three.
        let what = [
            SettingDifference::Voters(1, 3),
            SettingDifference::Voters(1, 3),
            SettingDifference::Voters(3, 1),
            SettingDifference::Ttl,
        ];
        let what = what[self.random.below(what.len())];
        let rank = if self.random.once_in(2) { 0 } else { self.random.below(SIDE_AGENTS.min(self.agents)) };
        OtherSettings { rank, what }
    }

    /// Which hosts are on the smaller side: one, or up to half of them.
    fn sides(&mut self) -> Vec<bool> {
        let count = 1 + self.random.below((self.agents / 2).max(1));
        let side = self.random.subset(count, self.agents);
        (0..self.agents).map(|host| side.contains(&host)).collect()
    }

    /// Draws pairs of hosts, half of them in one direction only.
    fn some_pairs(&mut self, link: impl Fn(&mut Random) -> Link) -> Links {
        let all: Vec<(usize, usize)> = pairs(self.agents).collect();
        let count = 1 + self.random.below(all.len() / 2);
        let mut links = BTreeMap::new();
        for index in self.random.subset(count, all.len()) {
            let (from, to) = all[index];
            let link = link(&mut self.random);
            links.insert((from, to), link);
            if self.random.once_in(2) {
                links.insert((to, from), link);
            }
        }
        links
    }
}

/// Cuts the links between two sides.
fn cut(sides: &[bool], is_cut: impl Fn(bool, bool) -> bool) -> Links {
    pairs(sides.len()).filter(|&(from, to)| is_cut(sides[from], sides[to])).map(|pair| (pair, Link::CUT)).collect()
}

/// Cuts one host off from all others.
pub(crate) fn links_around(host: usize, hosts: usize) -> Links {
    let sides: Vec<bool> = (0..hosts).map(|other| other == host).collect();
    cut(&sides, |from, to| from != to)
}

/// All faults of the network in a round.
pub(crate) fn links(faults: &[Fault]) -> Links {
    let mut all = Links::new();
    for fault in faults {
        if let Fault::Links(_, links) = fault {
            for (pair, link) in links {
                let before = all.entry(*pair).or_default();
                *before = before.and(*link);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> [FaultKind; 15] {
        FaultKind::ALL.map(|(kind, _)| kind)
    }

    fn rounds(seed: u64, count: usize) -> Vec<Round> {
        let mut schedule = Schedule::new(seed, &kinds(), 5, 15, Duration::from_secs(2));
        (0..count).map(|_| schedule.next()).collect()
    }

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(rounds(7, 100), rounds(7, 100));
        assert_ne!(rounds(7, 100), rounds(8, 100));
    }

    #[test]
    fn a_short_run_has_every_kind_of_fault() {
        for seed in 0..50 {
            let seen: Vec<FaultKind> =
                rounds(seed, 25).iter().flat_map(|round| round.faults.iter().map(Fault::kind)).collect();
            let missing: Vec<FaultKind> = kinds().into_iter().filter(|kind| !seen.contains(kind)).collect();
            assert_eq!(missing, [], "seed {seed}");
        }
    }

    #[test]
    fn one_agent_has_one_trouble_at_a_time() {
        for round in rounds(1, 1000) {
            let mut agents: Vec<usize> = round.faults.iter().filter_map(Fault::agent).collect();
            let count = agents.len();
            agents.sort_unstable();
            agents.dedup();
            assert_eq!(agents.len(), count, "{round:?}");
            assert!(round.faults.len() == 1 || !round.faults.iter().any(Fault::is_alone), "{round:?}");
        }
    }

    #[test]
    fn partitions_cut_what_they_say() {
        for round in rounds(1, 1000) {
            for fault in &round.faults {
                let Fault::Links(kind, links) = fault else { continue };
                let back = links.keys().filter(|(from, to)| links.contains_key(&(*to, *from))).count();
                match kind {
                    FaultKind::Partition => assert_eq!(back, links.len(), "both ways"),
                    FaultKind::OneWay => assert_eq!(back, 0, "one way"),
                    FaultKind::Partial => assert!(links.values().all(|link| *link == Link::CUT)),
                    FaultKind::Loss => assert!(links.values().all(|link| (1..100).contains(&link.loss))),
                    _ => assert!(links.values().all(|link| link.loss == 0 && !link.delay.is_zero())),
                }
                assert!(!links.is_empty());
            }
        }
    }

    #[test]
    fn troubles_of_one_link_add_up() {
        let late = Link { loss: 10, delay: Duration::from_millis(5) };
        let fault = |link| Fault::Links(FaultKind::Loss, [((0, 1), link)].into());
        assert_eq!(links(&[fault(late), fault(Link::CUT)]), [((0, 1), Link { loss: 100, ..late })].into());
    }
}
