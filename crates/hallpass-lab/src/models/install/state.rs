//! What stewards and members do in the model of installations.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hallpass_core::protocol::Floor;
use hallpass_core::{Bounds, Effect, Fence, InitialHolders, Input, Mode, NodeId, Protocol, Setup, View};
use hallpass_node::Incarnation;
use hallpass_node::model::{Change, Command, Group, Held, HeldLock, Install, Installation, Prepare, Step as Phase};
use hallpass_sim::oracle::Violation;

use super::super::{group, incarnation};
use super::{Bug, InstallModel, MEMBERS, Reason};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::models) struct InstallState<P: Protocol> {
    /// What has been agreed: each command with the term it was proposed in and the steward that committed it.
    pub(super) agreed: Vec<(Command, usize)>,
    /// Proposed by the current steward.
    pub(super) proposed: Option<Command>,
    /// In the order of their elections: the last one leads, the others do not know that they do not.
    pub(super) stewards: Vec<Steward>,
    pub(super) members: [Member<P>; MEMBERS],
    /// Every control message that was ever sent.
    pub(super) control: BTreeSet<Control>,
    /// The lock messages from the first to the second member and back, with their epochs.
    pub(super) links: [VecDeque<(u64, P::Message)>; MEMBERS],
    pub(super) lapses: u8,
    /// The largest fence that was given.
    pub(super) fence: Fence,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Steward {
    pub(super) applied: usize,
    pub(super) group: Arc<Group>,
    pub(super) installation: Installation,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Member<P> {
    pub(super) incarnation: Incarnation,
    pub(super) install: Install,
    pub(super) view: Option<Arc<Group>>,
    pub(super) lock: Option<P>,
    pub(super) caller: Caller,
    pub(super) entries: u8,
    /// Its requests are numbered above this.
    pub(super) floor: u64,
    /// Its session is over, and it should know.
    pub(super) is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Caller {
    Away,
    Waiting,
    Inside(Fence),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Control {
    Prepare { epoch: u64, members: Vec<(NodeId, Incarnation)> },
    Report { epoch: u64, from: NodeId, incarnation: Incarnation, held: Option<Fence> },
    Start { epoch: u64, holder: Option<(NodeId, Fence)> },
}

pub(super) const fn id(member: usize) -> NodeId {
    NodeId(member as u32 + 1)
}

impl<P> Member<P> {
    pub(super) fn is_open(&self) -> bool {
        self.install.open().is_some()
    }

    pub(super) fn is_inside(&self) -> bool {
        matches!(self.caller, Caller::Inside(_))
    }
}

impl<P: Protocol> InstallState<P> {
    /// The steward that leads.
    pub(super) fn leader(&self) -> &Steward {
        self.stewards.last().expect("there is always one")
    }

    pub(super) fn term(&self) -> u64 {
        self.stewards.len() as u64
    }

    pub(super) fn command(&self, reason: Reason) -> Option<Command> {
        let group = &self.leader().group;
        let known = |member: usize| group.incarnation_of(id(member));
        let alive = |member: usize| self.members[member].incarnation;
        let changes = match reason {
            Reason::NextEpoch => Vec::new(),
            Reason::Remove(member) => {
                // Its session is over.
                let gone = known(member).filter(|known| *known < alive(member) || self.members[member].is_over)?;
                vec![Change::Remove { id: id(member), incarnation: gone, keeps_vote: true }]
            }
            Reason::Add(member) => {
                known(member).is_none_or(|known| known < alive(member)).then_some(())?;
                vec![Change::Add(super::super::member(id(member), alive(member).get()))]
            }
        };
        Some(Command { term: self.term(), base: group.epoch, changes })
    }

    pub(super) fn apply_entry(&mut self, index: usize) {
        let steward = &mut self.stewards[index];
        let command = &self.agreed[steward.applied].0;
        steward.applied += 1;
        if Arc::make_mut(&mut steward.group).apply(command.term, command) {
            steward.installation = Installation::new(&steward.group);
        }
    }

    /// What the steward says at this point of the installation.
    pub(super) fn announce(&self, index: usize) -> Option<Control> {
        let Steward { group, installation, .. } = &self.stewards[index];
        let epoch = group.epoch;
        let members = || group.members.values().map(|member| (member.id, member.incarnation)).collect();
        match installation.step {
            Phase::Preparing => Some(Control::Prepare { epoch, members: members() }),
            Phase::Starting => {
                let holder = installation.locks.first().map(|lock| (lock.holders[0], lock.fence));
                Some(Control::Start { epoch, holder })
            }
            _ => None,
        }
    }

    pub(super) fn on_report(&mut self, model: &InstallModel<P>, index: usize, message: &Control) {
        let Control::Report { epoch, from, incarnation, held } = message else { return };
        let held = held.map(|fence| Held { name: "lock".into(), mode: Mode::Exclusive, fence });
        let installation = &mut self.stewards[index].installation;
        installation.on_report((*epoch, *from, *incarnation), 0, 1, held.into_iter().collect());
        if model.bug == Some(Bug::NoWaitForReports) {
            installation.wait_no_longer();
        }
    }

    pub(super) fn on_prepare(&mut self, index: usize, epoch: u64, members: &[(NodeId, Incarnation)]) {
        let member = &mut self.members[index];
        if !members.contains(&(id(index), member.incarnation)) {
            return;
        }
        if member.install.on_prepare(epoch) != Prepare::Report {
            return;
        }
        let view = group(members.iter().map(|(id, incarnation)| super::super::member(*id, incarnation.get())));
        member.view = Some(Arc::new(Group { epoch, ..view }));
        let held = if let Caller::Inside(fence) = member.caller { Some(fence) } else { None };
        let report = held.map(|fence| Held { name: "lock".into(), mode: Mode::Exclusive, fence });
        member.install.on_closed(epoch, (), report.into_iter().collect());
        let incarnation = member.incarnation;
        self.control.insert(Control::Report { epoch, from: id(index), incarnation, held });
    }

    pub(super) fn on_start(
        &mut self,
        model: &InstallModel<P>,
        index: usize,
        epoch: u64,
        holder: Option<(NodeId, Fence)>,
    ) -> Option<Violation> {
        let member = &mut self.members[index];
        if model.bug == Some(Bug::StaleStart) {
            member.install.pretend_reported(epoch, Some(()));
        }
        let lock =
            |(holder, fence)| HeldLock { name: "lock".into(), mode: Mode::Exclusive, fence, holders: vec![holder] };
        let started = member.install.on_start(epoch, 0, 1, holder.map(lock).into_iter().collect())?;
        let view = member.view.clone()?;
        self.reopen(model, index, &view, epoch, &started)
    }

    /// As the node's locks do it: afresh from the holders, what was released is released, who waits asks again.
    pub(super) fn reopen(
        &mut self,
        model: &InstallModel<P>,
        index: usize,
        group: &Group,
        epoch: u64,
        held: &[HeldLock],
    ) -> Option<Violation> {
        let view = View::new(group.members.keys().copied()).with_epoch(epoch);
        let holders: &[NodeId] = held.first().map_or(&[], |lock| &lock.holders);
        let initial = InitialHolders { holders, mode: Mode::Exclusive, fence: Fence::new(0) };
        let setup = Setup {
            me: id(index),
            view: &view,
            initial,
            home: id(0),
            incarnation: 0,
            bounds: Bounds::NONE,
            options: &model.options,
        };
        let mut lock = P::new(&setup);
        let member = &mut self.members[index];
        let old = member.lock.take();
        let number = old.as_ref().filter(|_| member.caller == Caller::Waiting).and_then(|old| old.number_floor());
        member.floor = member.floor.max(old.map_or(0, |old| old.highest_number()));
        let is_listed = holders.contains(&id(index));
        if !is_listed && member.is_inside() {
            let text = format!("{} loses its lock in view {epoch}, though its session is valid", index + 1);
            return Some(Violation { property: "kept", text });
        }
        lock.raise_floor(Floor { number: number.unwrap_or(member.floor), fence: 0 });
        let (waits, released) = (member.caller == Caller::Waiting, is_listed && !member.is_inside());
        member.lock = Some(lock);
        let violation = if released { self.handle(index, Input::Release) } else { None };
        if violation.is_some() || !waits {
            return violation;
        }
        self.handle(index, Input::Acquire { mode: Mode::Exclusive, draw: 0 })
    }

    pub(super) fn handle(&mut self, index: usize, input: Input<P::Message, P::Timer>) -> Option<Violation> {
        let member = &mut self.members[index];
        let (Some(lock), Some(epoch)) = (&mut member.lock, member.install.open()) else { return None };
        let mut effects = Vec::new();
        lock.handle(input, &mut effects);
        let mut violation = None;
        for effect in effects {
            match effect {
                Effect::Send { message, .. } | Effect::Broadcast { message } => {
                    self.links[index].push_back((epoch, message));
                }
                Effect::Enter { fence } => {
                    self.members[index].caller = Caller::Inside(fence);
                    violation = violation.or(self.check_entry(index, fence));
                }
                _ => {}
            }
        }
        violation
    }

    pub(super) fn check_entry(&mut self, index: usize, fence: Fence) -> Option<Violation> {
        let other = 1 - index;
        if self.members[other].is_inside() {
            let text = format!("{} enters while {} is inside", index + 1, other + 1);
            return Some(Violation { property: "exclusion", text });
        }
        if fence <= self.fence {
            let text = format!("{} enters with fence {}, after {}", index + 1, fence.get(), self.fence.get());
            return Some(Violation { property: "fence", text });
        }
        self.fence = fence;
        None
    }

    pub(super) fn lapse(&mut self, model: &InstallModel<P>, index: usize) {
        self.lapses -= 1;
        let member = &mut self.members[index];
        if model.bug == Some(Bug::KeepPermissions) {
            member.is_over = true;
            return;
        }
        member.incarnation = incarnation(member.incarnation.get() + 1);
        member.install.end();
        member.view = None;
        // Those who wait are asked for again in the next view, with a new number.
        if let Some(lock) = member.lock.take() {
            member.floor = member.floor.max(lock.highest_number());
        }
        if member.is_inside() {
            member.caller = Caller::Away;
        }
        self.links.iter_mut().for_each(VecDeque::clear);
    }
}
