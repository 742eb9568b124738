//! What goes wrong when: decided by the seed alone.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::network::{Link, Links, pairs};
use crate::random::Random;

/// How many agents a group has that is there for one round.
pub(crate) const SIDE_AGENTS: usize = 3;

/// After so many faults that do not go with the others of a round it is left as it is.
const DRAWS_MAX: usize = 3;

/// The kinds of faults, with the names that arguments and figures use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
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

impl Kind {
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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(kind, _)| kind == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for Kind {
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
    /// Of the network: partitions, loss, delay.
    Links(Kind, Links),
    /// The agent is killed and, at the healing, started again.
    KillAgent(usize),
    StopAgent(usize),
    /// An agent that does not vote is killed, and comes back without its data: this one, or the next that does not vote.
    WipeAgent(usize),
    /// The agent is asked to end, and is started again at the healing. Its clients go on for as long as they were told.
    EndAgent(usize),
    /// All agents end and start again, one after the other.
    RollingRestart,
    /// All at once, asked to end or killed.
    RestartAll {
        kill: bool,
    },
    KillClient(usize),
    StopClient(usize),
    /// In a group of its own: the agent that founded it alone comes back without its data, or without anything that it has written.
    WipeFounder {
        wholly: bool,
    },
    /// In a group of its own: the agents that found it have different settings.
    OtherSettings(OtherSettings),
}

/// In what one of the founders differs from the two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtherSettings {
    /// Which one, in the order of their nodes' ids: those with the lowest ones vote first.
    pub(crate) rank: usize,
    pub(crate) what: Setting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// How many vote: as this one has it, and as the others do.
    Voters(u8, u8),
    /// This one has a longer session.
    Ttl,
}

impl Fault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Links(kind, _) => *kind,
            Self::KillAgent(_) => Kind::KillAgent,
            Self::StopAgent(_) => Kind::StopAgent,
            Self::WipeAgent(_) => Kind::WipeAgent,
            Self::EndAgent(_) => Kind::EndAgent,
            Self::RollingRestart => Kind::RollingRestart,
            Self::RestartAll { .. } => Kind::RestartAll,
            Self::KillClient(_) => Kind::KillClient,
            Self::StopClient(_) => Kind::StopClient,
            Self::WipeFounder { .. } => Kind::WipeFounder,
            Self::OtherSettings(_) => Kind::OtherSettings,
        }
    }

    /// The one agent that it is about.
    fn agent(&self) -> Option<usize> {
        match self {
            Self::KillAgent(agent) | Self::StopAgent(agent) | Self::WipeAgent(agent) | Self::EndAgent(agent) => {
                Some(*agent)
            }
            _ => None,
        }
    }

    /// It comes when clients have begun to hold their locks for long.
    pub(crate) fn comes_late(&self) -> bool {
        matches!(self, Self::EndAgent(_))
    }

    /// It restarts every agent, or needs a network of which it knows what works: it is a round of its own.
    fn is_alone(&self) -> bool {
        use Fault::{OtherSettings, RestartAll, RollingRestart, WipeFounder};
        matches!(self, RollingRestart | RestartAll { .. } | WipeFounder { .. } | OtherSettings(_))
    }
}

/// Faults that overlap in time, and for how long they last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) faults: Vec<Fault>,
    pub(crate) lasts: Duration,
}

impl Round {
    /// It is about a group of its own, and takes the time that this one takes.
    pub(crate) fn is_beside(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::WipeFounder { .. } | Fault::OtherSettings(_)))
    }
}

/// Draws rounds, forever.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) random: Random,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) agents: usize,
    pub(crate) clients: usize,
    pub(crate) ttl: Duration,
    /// Every kind comes once before one comes again.
    pub(crate) left: Vec<Kind>,
}

impl Schedule {
    pub(crate) fn new(seed: u64, kinds: &[Kind], agents: usize, clients: usize, ttl: Duration) -> Self {
        Self { random: Random::new(seed), kinds: kinds.to_vec(), agents, clients, ttl, left: Vec::new() }
    }

    /// The next round. Half of them last longer than a session.
    pub(crate) fn next(&mut self) -> Round {
        let wanted = 1 + self.random.below(3);
        let mut faults: Vec<Fault> = vec![self.fault()];
        // What does not go together comes in a later round.
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
        // An agent takes up to a session to end, and then it shows until when its clients go on.
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
            Kind::Partition => {
                let sides = self.sides();
                Fault::Links(kind, cut(&sides, |from, to| from != to))
            }
            Kind::OneWay => {
                let sides = self.sides();
                Fault::Links(kind, cut(&sides, |from, to| from && !to))
            }
            Kind::Partial => Fault::Links(kind, self.some_pairs(|_| Link::CUT)),
            Kind::Loss => Fault::Links(
                kind,
                self.some_pairs(|random| Link { loss: random.between(5, 50) as u8, ..Link::default() }),
            ),
            Kind::Delay => Fault::Links(
                kind,
                self.some_pairs(|random| Link {
                    delay: Duration::from_millis(random.between(5, 150)),
                    ..Link::default()
                }),
            ),
            Kind::KillAgent => Fault::KillAgent(self.random.below(self.agents)),
            Kind::StopAgent => Fault::StopAgent(self.random.below(self.agents)),
            Kind::WipeAgent => Fault::WipeAgent(self.random.below(self.agents)),
            Kind::EndAgent => Fault::EndAgent(self.random.below(self.agents)),
            Kind::RollingRestart => Fault::RollingRestart,
            Kind::RestartAll => Fault::RestartAll { kill: self.random.once_in(2) },
            Kind::KillClient => Fault::KillClient(self.random.below(self.clients)),
            Kind::StopClient => Fault::StopClient(self.random.below(self.clients)),
            Kind::WipeFounder => Fault::WipeFounder { wholly: self.random.once_in(2) },
            Kind::OtherSettings => Fault::OtherSettings(self.other_settings()),
        }
    }

    fn other_settings(&mut self) -> OtherSettings {
        // One that takes itself for the only voter, where the others count on it as one of three, is the worst of them.
        let what = [Setting::Voters(1, 3), Setting::Voters(1, 3), Setting::Voters(3, 1), Setting::Ttl];
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

    /// Some pairs of hosts; half of the pairs in one direction only.
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

/// Cuts from one side to the other.
fn cut(sides: &[bool], is_cut: impl Fn(bool, bool) -> bool) -> Links {
    pairs(sides.len()).filter(|&(from, to)| is_cut(sides[from], sides[to])).map(|pair| (pair, Link::CUT)).collect()
}

/// One host cut off from all others.
pub(crate) fn links_around(host: usize, hosts: usize) -> Links {
    let sides: Vec<bool> = (0..hosts).map(|other| other == host).collect();
    cut(&sides, |from, to| from != to)
}

/// All troubles of the network in a round.
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

    fn kinds() -> [Kind; 15] {
        Kind::ALL.map(|(kind, _)| kind)
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
            let seen: Vec<Kind> =
                rounds(seed, 25).iter().flat_map(|round| round.faults.iter().map(Fault::kind)).collect();
            let missing: Vec<Kind> = kinds().into_iter().filter(|kind| !seen.contains(kind)).collect();
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
                    Kind::Partition => assert_eq!(back, links.len(), "both ways"),
                    Kind::OneWay => assert_eq!(back, 0, "one way"),
                    Kind::Partial => assert!(links.values().all(|link| *link == Link::CUT)),
                    Kind::Loss => assert!(links.values().all(|link| (1..100).contains(&link.loss))),
                    _ => assert!(links.values().all(|link| link.loss == 0 && !link.delay.is_zero())),
                }
                assert!(!links.is_empty());
            }
        }
    }

    #[test]
    fn troubles_of_one_link_add_up() {
        let late = Link { loss: 10, delay: Duration::from_millis(5) };
        let fault = |link| Fault::Links(Kind::Loss, [((0, 1), link)].into());
        assert_eq!(links(&[fault(late), fault(Link::CUT)]), [((0, 1), Link { loss: 100, ..late })].into());
    }
}
