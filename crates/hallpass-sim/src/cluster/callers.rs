//! Callers: they ask, wait, try, share, give up, release, and stop when they are told that a lock is lost.

use hallpass_core::{Fence, Mode, Ticks};
use hallpass_node::{Answer, Grant, Outcome, Patience, Refusal, Ticket};

use super::plan::MS;
use super::{Bug, Event, World};
use crate::oracle::Violation;

pub(super) struct Caller {
    pub(super) machine: usize,
    round: u32,
    pub(super) lock: usize,
    pub(super) mode: Mode,
    pub(super) activity: Activity,
    /// It has been inside since the faults are over.
    served: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    Thinking,
    Waiting(Ticket),
    /// With the ticket of the entry, and the one it got when it had to wait.
    Inside {
        entered: Ticket,
        asked: Ticket,
    },
    Done,
}

impl Caller {
    pub(super) fn new(machine: usize) -> Self {
        let (round, lock, mode) = (0, 0, Mode::Exclusive);
        Self { machine, round, lock, mode, activity: Activity::Thinking, served: false }
    }
}

impl World {
    /// What a node knows a caller by.
    pub(super) fn name(&self, caller: usize) -> u64 {
        (caller as u64) << 32 | u64::from(self.callers[caller].round)
    }

    fn is_healed(&self) -> bool {
        self.now >= self.plan.faults_until
    }

    /// There is nobody to ask now.
    pub(super) fn ask_later(&mut self, caller: usize) {
        if self.machines[self.callers[caller].machine].is_gone {
            self.callers[caller].activity = Activity::Done;
            return;
        }
        let at = self.within(200 * MS) + 1;
        self.queue.push(at, Event::Acquire { caller });
    }

    pub(super) fn on_acquire(&mut self, caller: usize) {
        let machine = self.callers[caller].machine;
        if self.machines[machine].ending.is_some() {
            return self.ask_later(caller);
        }
        if self.now >= self.plan.faults_until + self.plan.ttl && self.callers[caller].served {
            self.callers[caller].activity = Activity::Done;
            return;
        }
        let load = self.plan.load;
        let lock = self.rng.below(self.plan.locks.len() as u64) as usize;
        let mode = if self.rng.chance(load.readers) { Mode::Shared } else { Mode::Exclusive };
        let tries = self.rng.chance(load.tries) && !self.is_healed();
        let patience = if tries { Patience::Try } else { Patience::Wait };
        (self.callers[caller].lock, self.callers[caller].mode) = (lock, mode);
        self.watch_ask(caller, tries);
        let (name, now) = (self.name(caller), self.local(machine));
        // As the library does: the fast path first, except for those who only try.
        let process = self.machines[machine].process.as_mut().expect("it runs");
        let lock_name = &self.plan.locks[lock];
        let slot = process.slots[lock].filter(|_| !tries);
        let answer = match slot.and_then(|slot| process.node.handle_fast_acquire(slot, lock_name, mode, now)) {
            Some(grant) => Ok(Answer::Granted(grant)),
            None if self.bug == Some(Bug::BusyForNothing) && tries => Ok(Answer::Busy),
            None if self.bug == Some(Bug::RefuseForNothing) => Err(Refusal::Callers),
            None => process.node.handle_acquire(lock_name, mode, patience, now, || name),
        };
        self.log(|world| {
            let (machine, lock) = (&world.machines[machine].name, &world.plan.locks[lock]);
            format!("{machine}: {name:x} asks for '{lock}' {mode:?} {patience:?}: {answer:?}")
        });
        match answer {
            Ok(Answer::Granted(Grant { ticket, fence })) => {
                self.watch_grant(machine);
                self.enter(caller, ticket, ticket, fence);
            }
            Ok(Answer::Waiting(ticket)) => {
                self.callers[caller].activity = Activity::Waiting(ticket);
                self.watch_wait(caller, tries);
                let violation = self.answers.on_wait(self.id(machine), name);
                self.note(violation);
                if self.rng.chance(load.cancels) && !self.is_healed() {
                    let at = self.within(self.plan.ttl / 2);
                    self.queue.push(at, Event::Cancel { caller, round: self.callers[caller].round });
                }
            }
            Ok(Answer::Busy) => {
                self.watch_busy(caller);
                self.think(caller);
            }
            Err(refusal) => {
                self.watch_refusal(caller, refusal);
                self.think(caller);
            }
        }
        self.drain(machine);
    }

    /// The caller thinks until its next round.
    fn think(&mut self, caller: usize) {
        self.callers[caller].activity = Activity::Thinking;
        self.callers[caller].round += 1;
        let at = self.within(self.plan.load.think) + 1;
        self.queue.push(at, Event::Acquire { caller });
    }

    fn enter(&mut self, caller: usize, entered: Ticket, asked: Ticket, fence: Fence) {
        let (machine, lock, round) =
            (self.callers[caller].machine, self.callers[caller].lock, self.callers[caller].round);
        self.machines[machine].process.as_mut().expect("it runs").slots[lock] = entered.slot();
        self.report.grants += 1;
        self.record([1, self.name(caller), fence.get()]);
        self.watch_enter(caller, fence);
        self.watch_turn(caller);
        self.callers[caller].activity = Activity::Inside { entered, asked };
        self.callers[caller].served |= self.is_healed();
        let longest = if self.is_healed() { self.plan.load.hold.min(50 * MS) } else { self.plan.load.hold };
        let at = self.within(longest);
        self.queue.push(at, Event::Release { caller, round });
    }

    pub(super) fn on_cancel(&mut self, caller: usize, round: u32) {
        let Activity::Waiting(ticket) = self.callers[caller].activity else { return };
        if self.callers[caller].round == round {
            self.give_up(caller, ticket);
            self.drain(self.callers[caller].machine);
        }
    }

    fn give_up(&mut self, caller: usize, ticket: Ticket) {
        let machine = self.callers[caller].machine;
        let (id, name, now) = (self.id(machine), self.name(caller), self.local(machine));
        let is_over = now >= self.valid_until(machine);
        let known = self.machines[machine].process.as_mut().expect("it runs").node.handle_cancel(ticket, now);
        if !known && is_over {
            // The session was looked at first: what only tried is answered with that.
            return;
        }
        self.log(|world| format!("{}: {name:x} gives up", world.machines[machine].name));
        self.record([2, name, u64::from(known)]);
        let violation = self.answers.on_cancel(id, name, known);
        self.note(violation);
        self.watch_gone(caller);
        self.think(caller);
    }

    pub(super) fn on_release(&mut self, caller: usize, round: u32) {
        let Activity::Inside { entered, asked } = self.callers[caller].activity else { return };
        if self.callers[caller].round == round {
            self.leave_lock(caller, entered, asked);
            self.drain(self.callers[caller].machine);
        }
    }

    fn leave_lock(&mut self, caller: usize, entered: Ticket, asked: Ticket) {
        let machine = self.callers[caller].machine;
        let (name, now) = (self.name(caller), self.local(machine));
        // Its node's session may have run out just now: then it is not there any more.
        self.inside_ends(name);
        self.watch_exit(caller);
        self.log(|world| format!("{}: {name:x} leaves", world.machines[machine].name));
        self.record([3, name, 0]);
        // A future that is dropped right after its turn has come knows only the ticket of its waiting.
        let drops = self.rng.chance(0.2);
        if self.forgets_release(caller) {
            return self.think(caller);
        }
        let node = &mut self.machines[machine].process.as_mut().expect("it runs").node;
        let generation = node.lapse_count();
        let known = if drops { node.handle_cancel(asked, now) } else { node.handle_release(entered, now) };
        if !known && node.lapse_count() == generation && self.bug.is_none() {
            let text = format!("caller {name:x} on node {} was inside and was not known when it left", node.id());
            self.note(Some(Violation { property: "answers", text }));
        }
        self.think(caller);
    }

    /// All callers of a node that is about to stop let go.
    pub(super) fn send_callers_away(&mut self, machine: usize) {
        for caller in 0..self.callers.len() {
            if self.callers[caller].machine != machine {
                continue;
            }
            match self.callers[caller].activity {
                Activity::Waiting(ticket) => self.give_up(caller, ticket),
                Activity::Inside { entered, asked } => self.leave_lock(caller, entered, asked),
                Activity::Thinking | Activity::Done => continue,
            }
            self.drain(machine);
        }
    }

    /// For a planted bug: everybody else is done, and this caller will be.
    fn forgets_release(&self, caller: usize) -> bool {
        let is_last = |(other, here): (usize, &Caller)| other == caller || here.activity == Activity::Done;
        self.bug == Some(Bug::ForgetLastRelease)
            && self.now >= self.plan.faults_until + self.plan.ttl
            && self.callers.iter().enumerate().all(is_last)
    }

    /// For a planted bug: the last of those who wait on the same node for the same lock.
    fn last_in(&self, name: u64) -> u64 {
        let first = &self.callers[(name >> 32) as usize];
        let same = |other: &Caller| {
            (other.machine, other.lock, other.mode) == (first.machine, first.lock, first.mode)
                && matches!(other.activity, Activity::Waiting(_))
        };
        self.callers.iter().rposition(same).map_or(name, |last| self.name(last))
    }

    /// A node answers a caller who had to wait.
    pub(super) fn on_answer(&mut self, machine: usize, name: u64, outcome: Outcome) {
        let name = if self.bug == Some(Bug::LastInFirst) { self.last_in(name) } else { name };
        let caller = (name >> 32) as usize;
        self.log(|world| format!("{}: {name:x} is answered: {outcome:?}", world.machines[machine].name));
        let violation = self.answers.on_answer(self.id(machine), name);
        let stale = violation.is_some();
        self.note(violation);
        let Activity::Waiting(asked) = self.callers[caller].activity else { return };
        match outcome {
            _ if stale => {}
            Outcome::Granted(Grant { ticket, fence }) => self.enter(caller, ticket, asked, fence),
            Outcome::Busy => {
                self.watch_busy(caller);
                self.think(caller);
            }
            Outcome::Refused(refusal) => {
                self.watch_refusal(caller, refusal);
                self.think(caller);
            }
        }
    }

    /// A node has lost everything that was granted.
    pub(super) fn on_lapsed(&mut self, machine: usize) {
        self.log(|world| format!("{} lapses", world.machines[machine].name));
        self.record([8, machine as u64, 0]);
        self.report.lapses += 1;
        for caller in 0..self.callers.len() {
            if self.callers[caller].machine == machine {
                self.on_lock_lost(caller);
            }
        }
    }

    pub(super) fn on_lost(&mut self, machine: usize, ticket: Ticket) {
        self.log(|world| format!("{} loses {ticket:?}", world.machines[machine].name));
        if let Some(caller) = self.holder_of(machine, ticket) {
            self.on_lock_lost(caller);
        }
    }

    fn on_lock_lost(&mut self, caller: usize) {
        let Activity::Inside { entered, .. } = self.callers[caller].activity else { return };
        self.inside_ends(self.name(caller));
        self.watch_exit(caller);
        self.think(caller);
        // Its guard is dropped a little later.
        let machine = self.callers[caller].machine;
        let at = self.within(20 * MS);
        self.queue.push(at, Event::DropGuard { machine, life: self.machines[machine].life, ticket: entered });
    }

    /// Most let go when they are asked to; the others lose the lock later.
    pub(super) fn on_revoked(&mut self, machine: usize, ticket: Ticket) {
        self.log(|world| format!("{} has to give {ticket:?} back", world.machines[machine].name));
        if let Some(caller) = self.holder_of(machine, ticket)
            && self.rng.chance(0.7)
        {
            let at = self.within(50 * MS);
            self.queue.push(at, Event::Release { caller, round: self.callers[caller].round });
        }
    }

    fn holder_of(&self, machine: usize, ticket: Ticket) -> Option<usize> {
        let holds = |caller: &Caller| {
            caller.machine == machine
                && matches!(caller.activity, Activity::Inside { entered, .. } if entered == ticket)
        };
        self.callers.iter().position(holds)
    }

    /// A process is gone. Those inside go with it, or stay until its session would have run out.
    pub(super) fn lose_callers(&mut self, machine: usize, deadline: Ticks) {
        for caller in 0..self.callers.len() {
            if self.callers[caller].machine != machine {
                continue;
            }
            let name = self.name(caller);
            match self.callers[caller].activity {
                Activity::Waiting(_) => self.watch_gone(caller),
                Activity::Inside { .. } => self.watch_exit(caller),
                Activity::Thinking | Activity::Done => {}
            }
            match self.callers[caller].activity {
                Activity::Waiting(_) => drop(self.answers.on_cancel(hallpass_core::NodeId(0), name, true)),
                Activity::Inside { .. } if self.plan.callers_outlive => self.inside_until(name, deadline),
                Activity::Inside { .. } => self.inside_ends(name),
                Activity::Thinking | Activity::Done => continue,
            }
            self.think(caller);
        }
    }
}
