//! A run whose faults are chosen by hand, and everything that a person would want to see of it over time.

use std::collections::BTreeMap;

use hallpass_core::{NodeId, Ticks};
use hallpass_node::ViewState;

use super::faults::{Aim, Fault, FaultKind};
use super::plan::{Cut, Limits, Load, MS, Odd, Plan};
use super::{Bug, ClusterReport, World};

/// A group of whole nodes and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorySpec {
    /// Decides latencies, clocks and callers.
    pub seed: u64,
    /// How many nodes found the group.
    pub nodes: usize,
    /// How long a session lasts.
    pub ttl: Ticks,
    /// How long a caller holds the lock, and about how long it waits before it asks again.
    pub hold: Ticks,
    /// What goes wrong, and when.
    pub faults: Vec<StoryFault>,
}

/// Something that goes wrong for a while. Nodes are positions from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoryFault {
    /// What.
    pub kind: StoryFaultKind,
    /// When it begins.
    pub from: Ticks,
    /// When it ends.
    pub until: Ticks,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoryFaultKind {
    /// These nodes and the others do not reach each other.
    Partition(Vec<usize>),
    /// A process stands still, and finds later that time has passed.
    Pause(usize),
    /// A process is gone, and starts again from its disk.
    Crash(usize),
}

/// What was seen in such a run.
#[derive(Clone, Debug)]
pub struct Story {
    /// The names of the nodes, by position.
    pub names: Vec<String>,
    /// Whenever something about a node changed, in order.
    pub changes: Vec<NodeChange>,
    /// Every entry to a lock, in order.
    pub entries: Vec<Holding>,
    /// What went wrong, in order.
    pub faults: Vec<FaultSeen>,
    /// The positions of the nodes by the ids that violations and the log have. A node whose disk was lost has another id then.
    pub ids: BTreeMap<NodeId, usize>,
    /// The run's result.
    pub report: ClusterReport,
}

/// What is so of a node from one moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// The true time.
    pub at: Ticks,
    /// The node's position.
    pub node: usize,
    /// `open`, `changing`, `lapsed`, `joining`, `paused` or `down`.
    pub state: &'static str,
    /// The view it has, if it ever had one.
    pub epoch: Option<u64>,
    /// It is the steward, as far as it knows.
    pub is_steward: bool,
    /// The positions of the members of its open view.
    pub members: Vec<usize>,
    /// The true time at which its session runs out unless it is renewed; none if it has none that could.
    pub session_until: Option<Ticks>,
    /// What it waits for, in words, if it grants nothing.
    pub waits_for: String,
}

/// Somebody was inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The position of the node that granted it.
    pub node: usize,
    /// The lock's name.
    pub lock: String,
    /// From when.
    pub from: Ticks,
    /// Until it left, or was told that the lock is lost; none if its process was gone first.
    pub until: Option<Ticks>,
    /// The entry's fencing token.
    pub fence: u64,
    /// It did not leave: its session was over.
    pub is_lost: bool,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSeen {
    /// What.
    pub kind: FaultKind,
    /// The positions of the nodes that it hit; none if it hit the network.
    pub nodes: Vec<usize>,
    /// When it began.
    pub from: Ticks,
    /// When it was to end.
    pub until: Ticks,
}

/// More changes than this of one run are not kept.
const CHANGES_MAX: usize = 20_000;

/// Collects a story while its world runs.
#[derive(Default)]
pub(super) struct Book {
    changes: Vec<NodeChange>,
    entries: Vec<(u64, Holding)>,
    faults: Vec<FaultSeen>,
    ids: BTreeMap<NodeId, usize>,
}

/// Runs it. `goes_on` is asked now and then; if it says no, nothing is returned.
pub fn tell(spec: &StorySpec, goes_on: impl FnMut() -> bool) -> Option<Story> {
    tell_world(World::new(Plan::of_story(spec), None, false), goes_on)
}

fn tell_world(mut world: World, mut goes_on: impl FnMut() -> bool) -> Option<Story> {
    world.book = Some(Book::default());
    if !world.run_to_end(&mut goes_on) {
        return None;
    }
    let names = world.machines.iter().map(|machine| machine.name.clone()).collect();
    let Book { changes, entries, faults, ids } = world.book.take().unwrap_or_default();
    let entries = entries.into_iter().map(|(_, entry)| entry).collect();
    Some(Story { names, changes, entries, faults, ids, report: world.report })
}

/// Runs what a seed decides, or a part of it, perhaps with a bug in it: a run of the swarm, with the log of its events.
#[doc(hidden)]
pub fn tell_seed(seed: u64, cut: &Cut, bug: Option<Bug>, goes_on: impl FnMut() -> bool) -> Option<Story> {
    tell_world(World::new(Plan::draw(seed).cut(cut), bug, true), goes_on)
}

impl Plan {
    fn of_story(spec: &StorySpec) -> Self {
        let faults: Vec<Fault> = spec.faults.iter().map(StoryFault::plan).collect();
        let last = spec.faults.iter().map(|fault| fault.until).max().unwrap_or(0);
        Self {
            seed: spec.seed,
            nodes: spec.nodes,
            callers: 1,
            locks: vec!["x".to_owned()],
            faults,
            faults_until: last.max(4 * spec.ttl) + 3 * spec.ttl,
            load: Load { readers: 0.0, tries: 0.0, cancels: 0.0, hold: spec.hold, think: spec.hold },
            durable: true,
            bare: 0,
            joins_bare: false,
            odd: Odd::default(),
            callers_outlive: false,
            latency: MS,
            sync: MS,
            ttl: spec.ttl,
            drift_ppm: 10_000,
            replace_after: 1000 * spec.ttl,
            voters_max: 5,
            cache_idle: 10_000 * MS,
            local_streak: 1,
            limits: Limits::FAR_AWAY,
            joins_max: 0,
            ends_with_steward: false,
            loses_mark: false,
        }
    }
}

impl StoryFault {
    fn plan(&self) -> Fault {
        let (kind, aim) = match &self.kind {
            StoryFaultKind::Partition(side) => {
                (FaultKind::Partition, Aim::Side(side.iter().fold(0, |bits, node| bits | 1 << (node % 64))))
            }
            StoryFaultKind::Pause(node) => (FaultKind::Pause, Aim::Machine(*node)),
            StoryFaultKind::Crash(node) => (FaultKind::Crash, Aim::Machine(*node)),
        };
        Fault::aimed(kind, aim, self.from, self.until)
    }
}

impl World {
    /// Notes what is so of a machine's node, if it has changed.
    pub(super) fn note_change(&mut self, machine: usize) {
        if self.book.as_ref().is_none_or(|book| book.changes.len() >= CHANGES_MAX) {
            return;
        }
        let change = self.look(machine);
        let Some(book) = &mut self.book else { return };
        let before = book.changes.iter().rev().find(|other| other.node == machine);
        if before.is_none_or(|before| NodeChange { at: before.at, ..change.clone() } != *before) {
            book.changes.push(change);
        }
    }

    fn look(&self, machine: usize) -> NodeChange {
        let here = &self.machines[machine];
        let mut change = NodeChange {
            at: self.now,
            node: machine,
            state: "down",
            epoch: None,
            is_steward: false,
            members: Vec::new(),
            session_until: None,
            waits_for: String::new(),
        };
        let Some(process) = &here.process else { return change };
        let status = process.node.status();
        change.state = match status.view {
            _ if here.paused => "paused",
            ViewState::Open => "open",
            ViewState::Changing => "changing",
            ViewState::Lapsed => "lapsed",
            ViewState::Joining => "joining",
        };
        change.epoch = status.epoch;
        change.is_steward = status.steward == Some(process.node.id());
        let position = |id| (0..self.machines.len()).find(|other| self.id(*other) == id);
        change.members = process.node.view().into_iter().filter_map(position).collect();
        let until = process.node.valid_until();
        change.session_until = (until != Ticks::MAX && until > 0).then(|| here.clock.when(until));
        change.waits_for = status.waits_for.unwrap_or_default();
        change
    }

    pub(super) fn note_entry(&mut self, entry: u64, machine: usize, lock: usize, fence: u64) {
        let from = self.now;
        if let Some(book) = &mut self.book {
            let lock = self.plan.locks[lock].clone();
            book.entries.push((entry, Holding { node: machine, lock, from, until: None, fence, is_lost: false }));
        }
    }

    pub(super) fn note_fault(&mut self, kind: FaultKind, nodes: Vec<usize>, until: Ticks) {
        let from = self.now;
        if let Some(book) = &mut self.book {
            book.faults.push(FaultSeen { kind, nodes, from, until });
        }
    }

    pub(super) fn note_start(&mut self, id: NodeId, machine: usize) {
        if let Some(book) = &mut self.book {
            book.ids.insert(id, machine);
        }
    }

    pub(super) fn note_exit(&mut self, entry: u64, is_lost: bool) {
        let now = self.now;
        let Some(book) = &mut self.book else { return };
        if let Some((_, open)) = book.entries.iter_mut().rev().find(|(id, _)| *id == entry)
            && open.until.is_none()
        {
            (open.until, open.is_lost) = (Some(now), is_lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(faults: Vec<StoryFault>) -> StorySpec {
        StorySpec { seed: 1, nodes: 3, ttl: 2000 * MS, hold: 200 * MS, faults }
    }

    fn tell(spec: &StorySpec) -> Story {
        super::tell(spec, || true).expect("it goes on")
    }

    /// When a node's state was this, as far as it was noted.
    fn was(story: &Story, node: usize, state: &str) -> bool {
        story.changes.iter().any(|change| change.node == node && change.state == state)
    }

    #[test]
    fn a_quiet_group_opens_one_view_and_takes_turns() {
        let story = tell(&spec(Vec::new()));
        assert_eq!(story.report.violation, None);
        assert!((0..3).all(|node| story.entries.iter().any(|entry| entry.node == node)));
        assert!(story.entries.windows(2).all(|pair| pair[0].fence < pair[1].fence));
        assert!(story.changes.iter().any(|change| change.is_steward && change.members.len() == 3));
    }

    #[test]
    fn who_is_cut_off_lapses_before_the_others_go_on() {
        let cut = StoryFault { kind: StoryFaultKind::Partition(vec![2]), from: 6000 * MS, until: 14_000 * MS };
        let story = tell(&spec(vec![cut]));
        assert_eq!(story.report.violation, None);
        assert!(was(&story, 2, "lapsed") || was(&story, 2, "joining"));
        // Members are in the order of their ids, which are drawn.
        let is_smaller = |change: &&NodeChange| change.members.len() == 2 && !change.members.contains(&2);
        let smaller = story.changes.iter().find(is_smaller).expect("the others go on");
        let renewed = story.changes.iter().filter(|change| change.node == 2 && change.at < smaller.at);
        let session = renewed.filter_map(|change| change.session_until).max().expect("it had a session");
        assert!(session <= smaller.at, "a new view opens before the session of who is not in it is over");
    }

    #[test]
    fn a_pause_and_a_crash_hit_whom_they_should() {
        let pause = StoryFault { kind: StoryFaultKind::Pause(1), from: 5000 * MS, until: 9000 * MS };
        let crash = StoryFault { kind: StoryFaultKind::Crash(0), from: 16_000 * MS, until: 20_000 * MS };
        let story = tell(&spec(vec![pause, crash]));
        assert_eq!(story.report.violation, None);
        assert!(was(&story, 1, "paused") && was(&story, 0, "down"));
        assert!(!was(&story, 0, "paused") && !was(&story, 2, "paused"));
        let seen: Vec<_> = story.faults.iter().map(|fault| (fault.kind.name(), fault.nodes.as_slice())).collect();
        assert_eq!(seen, [("pause", &[1][..]), ("crash", &[0][..])]);
        assert_eq!(story.report.epoch, tell(&spec(Vec::new())).report.epoch.max(story.report.epoch));
    }

    #[test]
    fn a_run_that_nobody_wants_ends() {
        let mut asked = 0;
        let large = Cut { nodes: Some(60), callers: Some(60), faults: None };
        let told = tell_seed(5, &large, None, || {
            asked += 1;
            false
        });
        assert!(told.is_none() && asked == 1);
    }
}
