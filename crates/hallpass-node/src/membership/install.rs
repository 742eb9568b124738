//! From one view to the next: a member ends the old one and reports what it holds, the steward collects the reports of all
//! and starts the new one.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_core::{Mode, NodeId};

use super::group::Group;
use crate::Incarnation;
use crate::locks::{Held, HeldLock};

/// How many locks one part of a report or a start has at most.
pub(crate) const LOCKS_A_PART: usize = 1000;

/// What a member has been told of views, and answered. `G` is what it keeps of a view's group.
///
/// It starts a view only if that is the highest one it has reported for: a steward that collected an older report does not know
/// what it was granted since.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Install<G = ()> {
    /// The highest epoch that it has reported for.
    reported: u64,
    /// The highest epoch in which its session has run out: it never starts that one again.
    ended: u64,
    stage: Stage<G>,
    /// What it has reported: the same if it is asked again.
    report: Vec<Held>,
    /// The parts of the start that have come.
    parts: BTreeMap<u32, Vec<HeldLock>>,
}

/// How far a member is with the view that it reported for last.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage<G> {
    /// It is in no view.
    Outside,
    /// It has ended the view before, and waits for the start of this one.
    Reported(G),
    /// It takes part in this one.
    Open { epoch: u64, group: G },
}

impl<G> Default for Install<G> {
    fn default() -> Self {
        Self { reported: 0, ended: 0, stage: Stage::Outside, report: Vec::new(), parts: BTreeMap::new() }
    }
}

/// What to do about a `Prepare`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepare {
    /// It is out of date.
    Ignore,
    /// It was answered before: answer the same.
    Repeat,
    /// End the view, and report what is held.
    Report,
}

impl<G> Install<G> {
    /// The epoch that it takes part in; `None` if it has ended that and not started the next, or never has.
    pub fn open(&self) -> Option<u64> {
        if let Stage::Open { epoch, .. } = self.stage { Some(epoch) } else { None }
    }

    /// The group of the view that it is in, or has reported for.
    pub fn group(&self) -> Option<&G> {
        match &self.stage {
            Stage::Outside => None,
            Stage::Reported(group) | Stage::Open { group, .. } => Some(group),
        }
    }

    /// It is in a view, or has reported for one.
    pub fn is_in_view(&self) -> bool {
        self.group().is_some()
    }

    pub fn reported(&self) -> u64 {
        self.reported
    }

    pub fn report(&self) -> &[Held] {
        &self.report
    }

    pub fn on_prepare(&self, epoch: u64) -> Prepare {
        match epoch.cmp(&self.reported) {
            std::cmp::Ordering::Less => Prepare::Ignore,
            std::cmp::Ordering::Equal => Prepare::Repeat,
            std::cmp::Ordering::Greater => Prepare::Report,
        }
    }

    /// The old view has been ended, and this is held.
    pub fn on_closed(&mut self, epoch: u64, group: G, held: Vec<Held>) {
        (self.reported, self.stage, self.report) = (epoch, Stage::Reported(group), held);
        self.parts.clear();
    }

    /// A planted bug: any start will do.
    #[cfg(any(test, feature = "planted-bugs"))]
    pub fn pretend_reported(&mut self, epoch: u64, group: Option<G>) {
        if self.open() != Some(epoch) {
            self.reported = epoch;
            self.stage = match (std::mem::replace(&mut self.stage, Stage::Outside), group) {
                (Stage::Reported(group) | Stage::Open { group, .. }, _) | (Stage::Outside, Some(group)) => {
                    Stage::Reported(group)
                }
                (Stage::Outside, None) => Stage::Outside,
            };
        }
    }

    /// A part of a start; all of it if this was the last.
    pub fn on_start(&mut self, epoch: u64, part: u32, parts: u32, locks: Vec<HeldLock>) -> Option<Vec<HeldLock>> {
        let is_awaited = matches!(self.stage, Stage::Reported(_)) && epoch == self.reported && epoch > self.ended;
        if !is_awaited || part >= parts {
            return None;
        }
        self.parts.insert(part, locks);
        if self.parts.len() < parts as usize {
            return None;
        }
        let Stage::Reported(group) = std::mem::replace(&mut self.stage, Stage::Outside) else { return None };
        self.stage = Stage::Open { epoch, group };
        Some(std::mem::take(&mut self.parts).into_values().flatten().collect())
    }

    /// The member is out: it holds nothing, and takes part in no view.
    pub fn end(&mut self) {
        (self.stage, self.ended) = (Stage::Outside, self.reported);
        self.report.clear();
        self.parts.clear();
    }
}

/// How far the steward is with the current view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Installation {
    pub epoch: u64,
    pub step: Step,
    /// Who has not answered yet.
    pub missing: BTreeMap<NodeId, Incarnation>,
    /// All members.
    members: BTreeMap<NodeId, Incarnation>,
    reports: BTreeMap<NodeId, BTreeMap<u32, Vec<Held>>>,
    /// The locks that are held when the view starts.
    pub locks: Vec<HeldLock>,
    /// Locks that two members reported to hold against each other.
    pub conflicts: u64,
    /// Members that have started, as far as they have said.
    pub started: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step {
    /// Are all of them there? The old view goes on until they are.
    Probing,
    Preparing,
    Starting,
    /// All take part.
    Done,
    /// Another steward began it, and some members have not started it: a new view is needed.
    Void,
}

/// All changes of an installation, and what brings each about. A view that follows begins with [`Step::Probing`].
pub const STEPS: &[(Step, Step, &str)] = &[
    (Step::Probing, Step::Preparing, "all members have answered"),
    (Step::Preparing, Step::Starting, "all members have reported what they hold"),
    (Step::Starting, Step::Done, "all members have started it"),
    (Step::Probing, Step::Done, "an earlier steward's: all members had started it"),
    (Step::Probing, Step::Void, "an earlier steward's: some member had not started it"),
];

impl Installation {
    /// The steward's own view, or one that it has found when it was elected.
    pub fn new(group: &Group) -> Self {
        let members: BTreeMap<_, _> = group.members.iter().map(|(id, member)| (*id, member.incarnation)).collect();
        Self {
            epoch: group.epoch,
            step: if members.is_empty() { Step::Done } else { Step::Probing },
            missing: members.clone(),
            members,
            reports: BTreeMap::new(),
            locks: Vec::new(),
            conflicts: 0,
            started: BTreeSet::new(),
        }
    }

    /// The members of the view.
    pub fn incarnations(&self) -> impl Iterator<Item = (NodeId, Incarnation)> {
        self.members.iter().map(|(id, incarnation)| (*id, *incarnation))
    }

    fn is_missing(&self, epoch: u64, from: NodeId, incarnation: Incarnation) -> bool {
        epoch == self.epoch && self.missing.get(&from) == Some(&incarnation)
    }

    fn next(&mut self, step: Step) {
        self.enter(step);
        self.missing = self.members.clone();
    }

    fn enter(&mut self, step: Step) {
        let is_known = STEPS.iter().any(|(from, to, _)| (*from, *to) == (self.step, step));
        debug_assert!(is_known, "an installation does not go from {:?} to {step:?}", self.step);
        self.step = step;
    }

    /// A member is there. `own` is true if this steward made the view: then nobody can have started it yet.
    pub fn on_probed(&mut self, epoch: u64, from: NodeId, incarnation: Incarnation, started: u64, own: bool) {
        if self.step != Step::Probing || !self.is_missing(epoch, from, incarnation) {
            return;
        }
        self.missing.remove(&from);
        if started == self.epoch {
            self.started.insert(from);
        }
        if self.missing.is_empty() {
            match own {
                true => self.next(Step::Preparing),
                false if self.started.len() == self.members.len() => self.enter(Step::Done),
                false => self.enter(Step::Void),
            }
        }
    }

    pub fn on_report(
        &mut self,
        (epoch, from, incarnation): (u64, NodeId, Incarnation),
        part: u32,
        parts: u32,
        held: Vec<Held>,
    ) {
        if self.step != Step::Preparing || !self.is_missing(epoch, from, incarnation) || part >= parts {
            return;
        }
        let report = self.reports.entry(from).or_default();
        report.insert(part, held);
        if report.len() == parts as usize {
            self.missing.remove(&from);
        }
        if self.missing.is_empty() {
            self.merge();
            self.next(Step::Starting);
        }
    }

    /// A planted bug: the reports of the others do not matter.
    #[cfg(any(test, feature = "planted-bugs"))]
    pub fn wait_no_longer(&mut self) {
        if self.step == Step::Preparing {
            self.merge();
            self.next(Step::Starting);
        }
    }

    pub fn on_started(&mut self, epoch: u64, from: NodeId, incarnation: Incarnation) {
        if self.step != Step::Starting || !self.is_missing(epoch, from, incarnation) {
            return;
        }
        self.missing.remove(&from);
        if self.missing.is_empty() {
            self.enter(Step::Done);
        }
    }

    /// Who holds what, from all reports. Two that conflict can only come from a bug or a liar: the one with the larger fence
    /// keeps the lock.
    fn merge(&mut self) {
        let mut locks: BTreeMap<Box<str>, HeldLock> = BTreeMap::new();
        for (from, parts) in std::mem::take(&mut self.reports) {
            for Held { name, mode, fence } in parts.into_values().flatten() {
                let new = HeldLock { name: name.clone(), mode, fence, holders: vec![from] };
                let Some(known) = locks.get_mut(&name) else {
                    locks.insert(name, new);
                    continue;
                };
                if known.mode == Mode::Shared && mode == Mode::Shared {
                    known.holders.push(from);
                    known.fence = known.fence.max(fence);
                    continue;
                }
                self.conflicts += 1;
                if fence > known.fence {
                    *known = new;
                }
            }
        }
        self.locks = locks.into_values().collect();
    }
}

/// Which members need to know of which locks that are held when a view starts.
pub(crate) struct Needs<'a> {
    /// Each with its home, if it has one.
    locks: Vec<(&'a HeldLock, Option<NodeId>)>,
}

impl<'a> Needs<'a> {
    /// A lock with a home concerns its home and its holders. Of other locks every member must know the holders.
    pub(crate) fn of(locks: &'a [HeldLock], home_of: impl Fn(&str) -> Option<NodeId>) -> Self {
        Self { locks: locks.iter().map(|lock| (lock, home_of(&lock.name))).collect() }
    }

    pub(crate) fn of_member(&self, member: NodeId) -> Vec<HeldLock> {
        let concerns = |(lock, home): &&(&HeldLock, Option<NodeId>)| {
            home.is_none_or(|home| home == member || lock.holders.contains(&member))
        };
        self.locks.iter().filter(concerns).map(|(lock, _)| (*lock).clone()).collect()
    }
}

/// Cuts a list into the parts that are sent; at least one.
pub(crate) fn parts<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    if list.is_empty() { vec![Vec::new()] } else { list.chunks(LOCKS_A_PART).map(<[T]>::to_vec).collect() }
}

#[cfg(test)]
mod tests {
    use hallpass_core::Fence;

    use super::*;

    #[test]
    fn a_lock_with_a_home_is_told_to_its_home_and_its_holders_only() {
        let lock = |name: &str, holders: &[u32]| HeldLock {
            name: name.into(),
            mode: Mode::Shared,
            fence: Fence::new(1),
            holders: holders.iter().copied().map(NodeId).collect(),
        };
        let locks = [lock("at 1", &[2, 3]), lock("at 4", &[4]), lock("everywhere", &[2])];
        let home_of = |name: &str| name.strip_prefix("at ").map(|home| NodeId(home.parse().unwrap()));
        let needs = Needs::of(&locks, home_of);
        let told = |member| needs.of_member(NodeId(member)).into_iter().map(|lock| lock.name).collect::<Vec<_>>();
        assert_eq!(told(1), [Box::from("at 1"), "everywhere".into()]);
        assert_eq!(told(3), [Box::from("at 1"), "everywhere".into()]);
        assert_eq!(told(4), [Box::from("at 4"), "everywhere".into()]);
        assert_eq!(told(5), [Box::from("everywhere")]);
    }

    #[test]
    fn a_view_is_not_started_again_after_its_session_is_over() {
        let mut install = Install::<()>::default();
        install.on_closed(3, (), Vec::new());
        assert!(install.on_start(3, 0, 1, Vec::new()).is_some());
        install.end();
        assert_eq!(install.on_start(3, 0, 1, Vec::new()), None, "a Start that was repeated");
        install.on_closed(4, (), Vec::new());
        assert_eq!(install.on_start(3, 0, 1, Vec::new()), None, "it has reported for a later view");
        assert!(install.on_start(4, 0, 1, Vec::new()).is_some());
    }
}
