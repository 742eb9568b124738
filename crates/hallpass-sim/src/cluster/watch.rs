//! What the oracles are told. They stand outside: they see true time, and all nodes at once.

use hallpass_core::{Fence, NodeId, Ticks};

use super::plan::Plan;
use super::turns::Turns;
use super::{Machine, World};
use crate::oracle::{FenceOrder, Holder, Holders, Violation};

/// The oracles of one lock.
pub(super) struct Watch {
    holders: Holders,
    fences: FenceOrder,
    pub(super) turns: Turns,
}

impl Watch {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { holders: Holders::default(), fences: FenceOrder::default(), turns: Turns::new(plan) }
    }

    pub(super) fn overtaken(&self) -> u64 {
        self.turns.fairness.worst()
    }
}

/// Somebody who was granted a lock and has neither released it nor been told that it is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    machine: usize,
    lock: usize,
    /// How often its node had lost everything when it entered.
    generation: u64,
    /// Its process is gone; it stays until the machine's clock shows this.
    until: Option<Ticks>,
    /// It has lost the lock, by its own clock, and somebody else has entered since.
    is_over: bool,
}

impl World {
    pub(super) fn id(&self, machine: usize) -> NodeId {
        self.machines[machine].process.as_ref().map_or(NodeId(0), |process| process.node.id())
    }

    /// Until when a machine's process holds what it holds, by its own clock.
    pub(super) fn valid_until(&self, machine: usize) -> Ticks {
        self.machines[machine].process.as_ref().map_or(0, |process| process.node.valid_until())
    }

    pub(super) fn watch_enter(&mut self, caller: usize, fence: Fence) {
        let (machine, lock, mode) =
            (self.callers[caller].machine, self.callers[caller].lock, self.callers[caller].mode);
        let (node, entry) = (self.id(machine), self.name(caller));
        let generation = self.machines[machine].process.as_ref().map_or(0, |process| process.node.lapse_count());
        if self.machines[machine].is_stray {
            // What the other group's members hold it cannot know before it meets one.
            self.note_entry(entry, machine, lock, fence.get());
            return;
        }
        if self.local(machine) >= self.valid_until(machine) {
            let text = format!("node {node} granted a lock after its session had run out");
            self.note(Some(Violation { property: "session", text }));
        }
        let mut holders = std::mem::take(&mut self.watches[lock].holders);
        let is_over = |other: &Holder| {
            self.inside.get(&other.entry).is_none_or(|inside| {
                self.local(inside.machine) >= inside.until.unwrap_or_else(|| self.valid_until(inside.machine))
            })
        };
        let (over, overlap) = holders.on_enter(Holder { node, entry, mode }, is_over);
        self.watches[lock].holders = holders;
        let order = self.watches[lock].fences.on_enter(node, mode, fence);
        for holder in over {
            if let Some(inside) = self.inside.get_mut(&holder.entry) {
                inside.is_over = true;
            }
        }
        self.note_entry(entry, machine, lock, fence.get());
        self.inside.insert(entry, Inside { machine, lock, generation, until: None, is_over: false });
        self.note(overlap);
        self.note(order);
    }

    /// A caller was granted a lock at once.
    pub(super) fn watch_grant(&mut self, machine: usize) {
        let Some(process) = &self.machines[machine].process else { return };
        if !process.node.is_complete() {
            let text = format!("node {} granted a lock without an open view", process.node.id());
            self.note(Some(Violation { property: "view", text }));
        }
    }

    /// Somebody has left, or was told that the lock is lost.
    pub(super) fn inside_ends(&mut self, entry: u64) {
        if let Some(inside) = self.inside.remove(&entry) {
            let is_lost =
                self.local(inside.machine) >= inside.until.unwrap_or_else(|| self.valid_until(inside.machine));
            self.note_exit(entry, is_lost);
            self.watches[inside.lock].holders.on_exit(entry);
        }
    }

    /// Somebody's process is gone, and its session ends at that local time.
    pub(super) fn inside_until(&mut self, entry: u64, until: Ticks) {
        if let Some(inside) = self.inside.get_mut(&entry) {
            inside.until = Some(until);
        }
    }

    /// After every input of a node.
    pub(super) fn watch(&mut self, machine: usize) {
        let now = self.local(machine);
        let Some(process) = &mut self.machines[machine].process else { return };
        // Without a view there is no epoch, and the last one stays the last.
        let seen = (process.node.epoch().or(process.seen.0), process.node.is_complete());
        let (before, id) = (std::mem::replace(&mut process.seen, seen), process.node.id());
        let (valid, generation) = (now < process.node.valid_until(), process.node.lapse_count());
        let lacks_deadline = process.node.valid_until() == Ticks::MAX && process.node.has_session() && {
            // Consensus may be ahead of the view: a node that is alone by that cannot lose anything.
            seen.1 && process.node.members().iter().filter(|member| member.in_view).count() > 1
        };
        let returned = |inside: &Inside| {
            inside.is_over && inside.until.is_none() && inside.machine == machine && inside.generation == generation
        };
        if valid && self.inside.values().any(returned) {
            let text = format!("node {id} holds a lock again that it had lost when its session ran out");
            self.note(Some(Violation { property: "session", text }));
        }
        if lacks_deadline {
            let text = format!("node {id} is in a view with others, and its session never ends");
            self.note(Some(Violation { property: "session", text }));
        }
        if seen.0 < before.0 {
            let text = format!("node {id} went from epoch {:?} to {:?}", before.0, seen.0);
            self.note(Some(Violation { property: "epoch", text }));
        }
        if self.voters_since.is_none() && self.stores_voters(machine) {
            self.voters_since = Some(self.now);
        }
        if seen != before {
            self.excuse_attempts(machine);
            if let (Some(epoch), true) = seen {
                self.watches.iter_mut().for_each(|watch| watch.turns.fairness.on_view());
                self.on_open(machine, epoch);
            }
        }
    }

    /// A node has opened a view: a node that is not in it must have lost its session by now.
    fn on_open(&mut self, machine: usize, epoch: u64) {
        let life = self.machines[machine].life;
        let Some(process) = &mut self.machines[machine].process else { return };
        process.was_member = true;
        let (id, group) = (process.node.id(), process.node.status().group_id.unwrap_or(0));
        let members = process.node.view();
        if self.machines[machine].is_stray {
            return self
                .log(|world| format!("{} opens epoch {epoch} of a group of its own", world.machines[machine].name));
        }
        self.log(|world| format!("{} opens epoch {epoch}: {members:?}", world.machines[machine].name));
        self.record([9, machine as u64, epoch]);
        let violation = self.epochs.on_open((id, life), group, epoch, &members);
        self.note(violation);
        let violation = self.pace.on_view(self.now, epoch, self.machines.len(), &self.plan);
        self.note(violation);
        let here = &mut self.machines[machine];
        here.is_foreign = false;
        here.has_been_more |= members.len() > 1;
        let outside = (0..self.machines.len()).find(|other| {
            let Some(process) = &self.machines[*other].process else { return false };
            // The members are sorted, and there may be many.
            let old = process.was_member
                && !self.machines[*other].is_stray
                && process.node.epoch().is_some_and(|known| known < epoch);
            // A process whose directory another one has is not the member of its name.
            let is_out = self.machines[*other].is_cut_off || members.binary_search(&process.node.id()).is_err();
            old && is_out && self.local(*other) < process.node.valid_until()
        });
        if let Some(outside) = outside {
            let text = format!("node {} is not in epoch {epoch}, but its session lasts", self.id(outside));
            self.note(Some(Violation { property: "session", text }));
        }
    }

    /// Most of the voters have known for a while that they are the voters: fewer of them may be lost. While they change, each of the
    /// former ones may still be needed.
    pub(super) fn voters_are_settled(&self) -> bool {
        let is_long = self.voters_since.is_some_and(|since| self.now.saturating_sub(since) > 2 * self.plan.ttl);
        is_long && self.now > self.shrinks_until
    }

    /// A steward knows that most of the voters have stored that they are.
    fn stores_voters(&self, machine: usize) -> bool {
        self.machines[machine].process.as_ref().is_some_and(|process| {
            let node = &process.node;
            node.voters_are_stored() && node.term() >= self.voters_term && node.status().voters == self.voters
        })
    }

    /// Something that a node's status shows has changed.
    pub(super) fn on_view(&mut self, machine: usize) {
        self.connect_later(machine, 10 * super::MS);
        let Some(process) = &self.machines[machine].process else { return };
        let status = process.node.status();
        let Machine { is_stray, is_obsolete, .. } = self.machines[machine];
        let term = process.node.term();
        let leads = !is_stray && !is_obsolete && status.steward == Some(process.node.id()) && term >= self.voters_term;
        if leads && status.voters != self.voters {
            (self.voters, self.voters_since, self.voters_term) = (status.voters, None, term);
            self.log(|world| format!("{}: voters are {:?}", world.machines[machine].name, world.voters));
        }
    }
}
