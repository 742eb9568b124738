use std::fmt;

use hallpass_core::{NodeId, Ticks};

use crate::parse_duration;
use crate::{ConfigError, Rng};

/// What goes wrong in a run, and which nodes join and leave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The fraction of messages that are lost.
    pub loss: f64,
    /// The fraction of messages that arrive twice.
    pub duplication: f64,
    /// Faults at given times, in order of time.
    pub planned: Vec<(Ticks, FaultEvent)>,
    /// Faults at random times: how many of each kind.
    counts: Vec<(FaultKind, u64)>,
    text: String,
}

/// Something that happens to the group from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// The node stops and forgets everything.
    Crash(NodeId),
    /// The node starts again.
    Restart(NodeId),
    /// The node stops handling and sending anything.
    Pause(NodeId),
    /// The node continues.
    Resume(NodeId),
    /// Messages between these nodes and the others are lost.
    Partition(Vec<NodeId>),
    /// The partition ends.
    Heal,
    /// A new node asks to join.
    Join(NodeId),
    /// A member asks to leave.
    Leave(NodeId),
}

/// What `--faults` calls a [`FaultEvent`], or two of them that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Crash,
    Restart,
    Pause,
    Partition,
    Join,
    Leave,
}

const NAMES: &[(&str, FaultKind)] = &[
    ("crash", FaultKind::Crash),
    ("restart", FaultKind::Restart),
    ("pause", FaultKind::Pause),
    ("partition", FaultKind::Partition),
    ("join", FaultKind::Join),
    ("leave", FaultKind::Leave),
];

impl FaultEvent {
    fn kind(&self) -> FaultKind {
        match self {
            Self::Crash(_) => FaultKind::Crash,
            Self::Restart(_) => FaultKind::Restart,
            Self::Pause(_) | Self::Resume(_) => FaultKind::Pause,
            Self::Partition(_) | Self::Heal => FaultKind::Partition,
            Self::Join(_) => FaultKind::Join,
            Self::Leave(_) => FaultKind::Leave,
        }
    }

    /// The nodes it names.
    fn nodes(&self) -> &[NodeId] {
        match self {
            Self::Crash(node)
            | Self::Restart(node)
            | Self::Pause(node)
            | Self::Resume(node)
            | Self::Join(node)
            | Self::Leave(node) => std::slice::from_ref(node),
            Self::Partition(side) => side,
            Self::Heal => &[],
        }
    }
}

impl Faults {
    /// Parses words such as `loss:0.01,dup:0.01,crash:1,restart:1`, or at a given time `crash:2@30ms`,
    /// `pause:2@30ms..80ms`, `partition:1+2@10ms..50ms`, `join:9@5ms`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut faults = Self { text: text.to_owned(), ..Self::default() };
        for word in text.split(',').filter(|word| !word.is_empty()) {
            faults.parse_word(word).ok_or_else(|| {
                ConfigError(format!(
                    "unknown fault '{word}'; use loss:0.01, dup:0.01, or crash, restart, pause, partition, join, leave \
                     with a count (crash:1) or a node and a time (crash:2@30ms, pause:2@30ms..80ms, partition:1+2@10ms..50ms)"
                ))
            })?;
        }
        faults.planned.sort_by_key(|(at, _)| *at);
        Ok(faults)
    }

    fn parse_word(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once(':')?;
        let fraction = || value.parse::<f64>().ok().filter(|fraction| (0.0..1.0).contains(fraction));
        match name {
            "loss" => self.loss = fraction()?,
            "dup" => self.duplication = fraction()?,
            _ => {
                let kind = NAMES.iter().find(|(known, _)| *known == name)?.1;
                match value.split_once('@') {
                    None => self.counts.push((kind, value.parse().ok().filter(|count| *count <= 10_000)?)),
                    Some((who, when)) => self.parse_planned(kind, who, when)?,
                }
            }
        }
        Some(())
    }

    fn parse_planned(&mut self, kind: FaultKind, who: &str, when: &str) -> Option<()> {
        let nodes: Vec<NodeId> = who.split('+').map(|id| id.parse().ok().map(NodeId)).collect::<Option<_>>()?;
        let (start, end) = match when.split_once("..") {
            Some((start, end)) => (parse_duration(start)?, Some(parse_duration(end)?)),
            None => (parse_duration(when)?, None),
        };
        if end.is_some_and(|end| end <= start) {
            return None;
        }
        let node = *nodes.first()?;
        let single = |event: FaultEvent| (nodes.len() == 1 && end.is_none()).then_some((start, event));
        match kind {
            FaultKind::Crash => self.planned.push(single(FaultEvent::Crash(node))?),
            FaultKind::Restart => self.planned.push(single(FaultEvent::Restart(node))?),
            FaultKind::Join => self.planned.push(single(FaultEvent::Join(node))?),
            FaultKind::Leave => self.planned.push(single(FaultEvent::Leave(node))?),
            FaultKind::Pause if nodes.len() > 1 => return None,
            FaultKind::Pause => {
                self.planned.extend([(start, FaultEvent::Pause(node)), (end?, FaultEvent::Resume(node))]);
            }
            FaultKind::Partition => {
                self.planned.extend([(start, FaultEvent::Partition(nodes)), (end?, FaultEvent::Heal)]);
            }
        }
        Some(())
    }

    /// True if messages are lost or duplicated.
    pub(crate) fn affect_messages(&self) -> bool {
        self.loss > 0.0 || self.duplication > 0.0 || self.has(FaultKind::Partition)
    }

    /// A node that a planned fault names and that neither exists nor joins, if there is one.
    pub(crate) fn unknown_node(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let joins = |node: &NodeId| self.planned.iter().any(|(_, event)| *event == FaultEvent::Join(*node));
        let mut named = self.planned.iter().flat_map(|(_, event)| event.nodes());
        named.find(|node| !nodes.contains(node) && !joins(node)).copied()
    }

    /// True if faults of this kind are planned or counted.
    pub(crate) fn has(&self, kind: FaultKind) -> bool {
        self.count(kind) > 0 || self.planned.iter().any(|(_, event)| event.kind() == kind)
    }

    fn count(&self, kind: FaultKind) -> u64 {
        self.counts.iter().filter(|(counted, _)| *counted == kind).map(|(_, count)| count).sum()
    }

    /// All faults of a run, in order of time. Those at random times come about 50 T after one another.
    pub(crate) fn schedule(&self, nodes: &[NodeId], tick: Ticks, rng: &mut Rng) -> Vec<(Ticks, FaultEvent)> {
        let mut events = self.planned.clone();
        let mut restarts = self.count(FaultKind::Restart);
        let mut newest = nodes.iter().max().map_or(0, |node| node.0);
        let mut now = 0;
        // The nodes that may still crash or leave: one that does not come back does so only once.
        let mut victims: Vec<NodeId> = nodes.to_vec();
        for (kind, count) in self.counts.iter().filter(|(kind, _)| *kind != FaultKind::Restart) {
            for _ in 0..*count {
                now += tick * (10 + rng.below(80));
                let later = now + tick * (20 + rng.below(40));
                let node = nodes[rng.below(nodes.len() as u64) as usize];
                match kind {
                    FaultKind::Crash | FaultKind::Leave if victims.is_empty() => {}
                    FaultKind::Crash => {
                        let node = victims.remove(rng.below(victims.len() as u64) as usize);
                        events.push((now, FaultEvent::Crash(node)));
                        if restarts > 0 {
                            restarts -= 1;
                            events.push((later, FaultEvent::Restart(node)));
                            victims.push(node);
                            now = later;
                        }
                    }
                    FaultKind::Leave => {
                        let node = victims.remove(rng.below(victims.len() as u64) as usize);
                        events.push((now, FaultEvent::Leave(node)));
                    }
                    FaultKind::Pause => {
                        events.extend([(now, FaultEvent::Pause(node)), (later, FaultEvent::Resume(node))]);
                    }
                    FaultKind::Partition => {
                        let side = nodes.iter().copied().filter(|_| rng.chance(0.5)).collect();
                        events.extend([(now, FaultEvent::Partition(side)), (later, FaultEvent::Heal)]);
                        now = later;
                    }
                    FaultKind::Join => {
                        newest += 1;
                        events.push((now, FaultEvent::Join(NodeId(newest))));
                    }
                    // Comes with its crash, above.
                    FaultKind::Restart => {}
                }
            }
        }
        events.sort_by_key(|(at, _)| *at);
        events
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
    fn parses_counts_and_times() {
        let faults = Faults::parse("loss:0.1,dup:0.2,crash:2,pause:2@30ms..80ms,partition:1+2@10ms..50ms").unwrap();
        assert_eq!((faults.loss, faults.duplication, faults.count(FaultKind::Crash)), (0.1, 0.2, 2));
        let two = NodeId(2);
        let side = vec![NodeId(1), two];
        let ms = 1_000_000;
        let expected = [
            (10 * ms, FaultEvent::Partition(side)),
            (30 * ms, FaultEvent::Pause(two)),
            (50 * ms, FaultEvent::Heal),
            (80 * ms, FaultEvent::Resume(two)),
        ];
        assert_eq!(faults.planned, expected);
        assert_eq!(faults.unknown_node(&[NodeId(1)]), Some(two));
        assert_eq!(faults.unknown_node(&[NodeId(1), two]), None);
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
    fn the_seed_determines_the_schedule() {
        let faults = Faults::parse("crash:1,restart:1,join:1,leave:1,pause:1,partition:1").unwrap();
        let nodes: Vec<NodeId> = (1..=5).map(NodeId).collect();
        let schedule = |seed| faults.schedule(&nodes, 1000, &mut Rng::new(seed));
        assert_eq!(schedule(3), schedule(3));
        assert_ne!(schedule(3), schedule(4));
        assert!(schedule(3).iter().any(|(_, event)| *event == FaultEvent::Join(NodeId(6))));
    }
}
