use std::fmt;

use hallpass_core::{NodeId, Ticks};

use crate::parse_duration;
use crate::{ConfigError, Rng};

/// What goes wrong in a run, and who comes and goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share of messages that arrive twice.
    pub duplication: f64,
    /// Deeds at given moments.
    pub planned: Vec<(Ticks, FaultEvent)>,
    /// Deeds at moments that the seed decides: how many of each kind.
    counts: Vec<(Kind, u64)>,
    text: String,
}

/// Something done to the group from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// The node stops and forgets everything.
    Crash(NodeId),
    /// The node starts anew.
    Restart(NodeId),
    /// The node stands still: nothing is handled, nothing sent.
    Pause(NodeId),
    /// The node goes on.
    Resume(NodeId),
    /// These nodes and the others no longer hear each other.
    Cut(Vec<NodeId>),
    /// Everybody hears everybody.
    Mend,
    /// A new node asks to join.
    Join(NodeId),
    /// A member asks to leave.
    Leave(NodeId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Crash,
    Restart,
    Pause,
    Partition,
    Join,
    Leave,
}

const KINDS: &[(&str, Kind)] = &[
    ("crash", Kind::Crash),
    ("restart", Kind::Restart),
    ("pause", Kind::Pause),
    ("partition", Kind::Partition),
    ("join", Kind::Join),
    ("leave", Kind::Leave),
];

impl Faults {
    /// Reads words such as `loss:0.01,dup:0.01,crash:1,restart:1`, or at a given moment `crash:2@30ms`,
    /// `pause:2@30ms..80ms`, `partition:1+2@10ms..50ms`, `join:9@5ms`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut faults = Self { text: text.to_owned(), ..Self::default() };
        for word in text.split(',').filter(|word| !word.is_empty()) {
            faults.parse_word(word).ok_or_else(|| {
                ConfigError(format!(
                    "fault '{word}' is not known; write loss:0.01, dup:0.01, or crash, restart, pause, partition, join, leave \
                     with a count (crash:1) or a node and a moment (crash:2@30ms, pause:2@30ms..80ms, partition:1+2@10ms..50ms)"
                ))
            })?;
        }
        faults.planned.sort_by_key(|(at, _)| *at);
        Ok(faults)
    }

    fn parse_word(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once(':')?;
        let share = || value.parse::<f64>().ok().filter(|share| (0.0..1.0).contains(share));
        match name {
            "loss" => self.loss = share()?,
            "dup" => self.duplication = share()?,
            _ => {
                let kind = KINDS.iter().find(|(known, _)| *known == name)?.1;
                match value.split_once('@') {
                    None => self.counts.push((kind, value.parse().ok().filter(|count| *count <= 10_000)?)),
                    Some((who, when)) => self.parse_planned(kind, who, when)?,
                }
            }
        }
        Some(())
    }

    fn parse_planned(&mut self, kind: Kind, who: &str, when: &str) -> Option<()> {
        let nodes: Vec<NodeId> = who.split('+').map(|id| id.parse().ok().map(NodeId)).collect::<Option<_>>()?;
        let (start, end) = match when.split_once("..") {
            Some((start, end)) => (parse_duration(start)?, Some(parse_duration(end)?)),
            None => (parse_duration(when)?, None),
        };
        if end.is_some_and(|end| end <= start) {
            return None;
        }
        let node = *nodes.first()?;
        let single = |fault_event| (nodes.len() == 1 && end.is_none()).then_some(fault_event);
        match kind {
            Kind::Crash => self.planned.push((start, single(FaultEvent::Crash(node))?)),
            Kind::Restart => self.planned.push((start, single(FaultEvent::Restart(node))?)),
            Kind::Join => self.planned.push((start, single(FaultEvent::Join(node))?)),
            Kind::Leave => self.planned.push((start, single(FaultEvent::Leave(node))?)),
            Kind::Pause if nodes.len() > 1 => return None,
            Kind::Pause => self.planned.extend([(start, FaultEvent::Pause(node)), (end?, FaultEvent::Resume(node))]),
            Kind::Partition => self.planned.extend([(start, FaultEvent::Cut(nodes)), (end?, FaultEvent::Mend)]),
        }
        Some(())
    }

    /// True if messages are lost or repeated.
    pub fn touches_messages(&self) -> bool {
        let cuts = self.planned.iter().any(|(_, fault_event)| matches!(fault_event, FaultEvent::Cut(_)));
        self.loss > 0.0
            || self.duplication > 0.0
            || cuts
            || self.counts.iter().any(|(kind, _)| *kind == Kind::Partition)
    }

    /// A planned fault_event about a node that does not exist, if there is one.
    pub fn stranger(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let joins = |node: &NodeId| self.planned.iter().any(|(_, fault_event)| *fault_event == FaultEvent::Join(*node));
        let named = self.planned.iter().flat_map(|(_, fault_event)| match fault_event {
            FaultEvent::Crash(node)
            | FaultEvent::Restart(node)
            | FaultEvent::Pause(node)
            | FaultEvent::Resume(node)
            | FaultEvent::Leave(node) => {
                vec![*node]
            }
            FaultEvent::Cut(side) => side.clone(),
            FaultEvent::Mend | FaultEvent::Join(_) => Vec::new(),
        });
        named.into_iter().find(|node| !nodes.contains(node) && !joins(node))
    }

    /// True if a fault_event of this name is asked for, counted or planned.
    pub fn has(&self, name: &str) -> bool {
        let planned = |fault_event: &FaultEvent| match fault_event {
            FaultEvent::Crash(_) => name == "crash",
            FaultEvent::Restart(_) => name == "restart",
            FaultEvent::Pause(_) | FaultEvent::Resume(_) => name == "pause",
            FaultEvent::Cut(_) | FaultEvent::Mend => name == "partition",
            FaultEvent::Join(_) => name == "join",
            FaultEvent::Leave(_) => name == "leave",
        };
        self.count(name) > 0 || self.planned.iter().any(|(_, fault_event)| planned(fault_event))
    }

    /// How many fault_events of one kind are asked for, as `lab check` counts them.
    pub fn count(&self, name: &str) -> u64 {
        let kind = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        self.counts.iter().filter(|(counted, _)| Some(*counted) == kind).map(|(_, count)| count).sum()
    }

    /// All fault_events of a run in order, those left to the seed included: each about 50 T after the one before.
    pub(crate) fn schedule(&self, nodes: &[NodeId], tick: Ticks, rng: &mut Rng) -> Vec<(Ticks, FaultEvent)> {
        let mut fault_events = self.planned.clone();
        let count =
            |kind| self.counts.iter().filter(|(counted, _)| *counted == kind).map(|(_, count)| *count).sum::<u64>();
        let mut restarts = count(Kind::Restart);
        let mut newest = nodes.iter().max().map_or(0, |node| node.0);
        let mut now = 0;
        let mut victims: Vec<NodeId> = nodes.to_vec();
        for (kind, count) in self.counts.iter().filter(|(kind, _)| *kind != Kind::Restart) {
            for _ in 0..*count {
                now += tick * (10 + rng.below(80));
                let later = now + tick * (20 + rng.below(40));
                let node = nodes[rng.below(nodes.len() as u64) as usize];
                match kind {
                    // A node that goes for good goes once.
                    Kind::Crash | Kind::Leave if victims.is_empty() => {}
                    Kind::Crash => {
                        let node = victims.remove(rng.below(victims.len() as u64) as usize);
                        fault_events.push((now, FaultEvent::Crash(node)));
                        if restarts > 0 {
                            restarts -= 1;
                            fault_events.push((later, FaultEvent::Restart(node)));
                            victims.push(node);
                            now = later;
                        }
                    }
                    Kind::Leave => fault_events
                        .push((now, FaultEvent::Leave(victims.remove(rng.below(victims.len() as u64) as usize)))),
                    Kind::Pause => {
                        fault_events.extend([(now, FaultEvent::Pause(node)), (later, FaultEvent::Resume(node))])
                    }
                    Kind::Partition => {
                        let side = nodes.iter().copied().filter(|_| rng.chance(0.5)).collect();
                        fault_events.extend([(now, FaultEvent::Cut(side)), (later, FaultEvent::Mend)]);
                        now = later;
                    }
                    Kind::Join => {
                        newest += 1;
                        fault_events.push((now, FaultEvent::Join(NodeId(newest))));
                    }
                    Kind::Restart => {}
                }
            }
        }
        fault_events.sort_by_key(|(at, _)| *at);
        fault_events
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_counts_and_moments() {
        let faults = Faults::parse("loss:0.1,dup:0.2,crash:2,pause:2@30ms..80ms,partition:1+2@10ms..50ms").unwrap();
        assert_eq!((faults.loss, faults.duplication, faults.count("crash")), (0.1, 0.2, 2));
        let fault_events: Vec<&FaultEvent> = faults.planned.iter().map(|(_, fault_event)| fault_event).collect();
        let two = NodeId(2);
        assert_eq!(
            fault_events,
            [
                &FaultEvent::Cut(vec![NodeId(1), two]),
                &FaultEvent::Pause(two),
                &FaultEvent::Mend,
                &FaultEvent::Resume(two)
            ]
        );
        assert_eq!(faults.stranger(&[NodeId(1)]), Some(two));
        assert_eq!(faults.stranger(&[NodeId(1), two]), None);
        for bad in [
            "pause:1@80ms..30ms",
            "pause:1+2@3ms..4ms",
            "partition:1@5ms..5ms",
            "loss",
            "loss:2",
            "crash:x",
            "crash:1@soon",
            "pause:2@30ms",
            "flood:1",
            "crash:1+2@3ms",
        ] {
            assert!(Faults::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_seed_decides_the_schedule() {
        let faults = Faults::parse("crash:1,restart:1,join:1,leave:1,pause:1,partition:1").unwrap();
        let nodes: Vec<NodeId> = (1..=5).map(NodeId).collect();
        let schedule = |seed| faults.schedule(&nodes, 1000, &mut Rng::new(seed));
        assert_eq!(schedule(3), schedule(3));
        assert_ne!(schedule(3), schedule(4));
        assert!(schedule(3).iter().any(|(_, fault_event)| *fault_event == FaultEvent::Join(NodeId(6))));
    }
}
