//! Callers: they ask, wait, try, share, give up and release.

use hallpass_core::{Fence, Mode};
use hallpass_node::{Answer, Grant, Outcome, Patience, Refusal, Ticket};

use super::{Bug, Event, Group, Member};
use crate::oracle::Violation;

pub(super) struct Caller {
    pub(super) node: usize,
    round: u32,
    pub(super) lock: usize,
    pub(super) mode: Mode,
    pub(super) activity: Activity,
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
    pub(super) fn new(node: usize) -> Self {
        Self { node, round: 0, lock: 0, mode: Mode::Exclusive, activity: Activity::Thinking }
    }
}

impl Group {
    /// What a node knows a caller by.
    pub(super) fn name(&self, caller: usize) -> u64 {
        (caller as u64) << 32 | u64::from(self.callers[caller].round)
    }

    pub(super) fn on_acquire(&mut self, caller: usize) {
        let node = self.callers[caller].node;
        if self.callers[caller].round == self.plan.rounds {
            self.callers[caller].activity = Activity::Done;
            return;
        }
        let lock = self.rng.below(self.plan.locks.len() as u64) as usize;
        let mode = if self.rng.chance(self.plan.readers) { Mode::Shared } else { Mode::Exclusive };
        let patience = if self.rng.chance(self.plan.tries) { Patience::Try } else { Patience::Wait };
        (self.callers[caller].lock, self.callers[caller].mode) = (lock, mode);
        let (name, tries) = (self.name(caller), patience == Patience::Try);
        self.watch_ask(caller, tries);
        // As the library does: the fast path first, except for those who only try.
        let (Member { node: asked, slots, .. }, lock_name) = (&mut self.members[node], &self.plan.locks[lock]);
        let slot = slots[lock].filter(|_| !tries);
        let answer = match slot.and_then(|slot| asked.handle_fast_acquire(slot, lock_name, mode, self.now)) {
            Some(grant) => Ok(Answer::Granted(grant)),
            None if self.bug == Some(Bug::BusyForNothing) && tries => Ok(Answer::Busy),
            None if self.bug == Some(Bug::RefuseForNothing) => Err(Refusal::Callers),
            None => asked.handle_acquire(lock_name, mode, patience, self.now, || name),
        };
        self.log(|group| {
            let (id, lock) = (group.members[node].id, &group.plan.locks[lock]);
            format!("node {id}: {name:x} asks for '{lock}' {mode:?} {patience:?}: {answer:?}")
        });
        match answer {
            Ok(Answer::Granted(Grant { ticket, fence })) => self.enter(caller, ticket, ticket, fence),
            Ok(Answer::Waiting(ticket)) => {
                self.callers[caller].activity = Activity::Waiting(ticket);
                self.watch_wait(caller, tries);
                let violation = self.answers.on_wait(self.members[node].id, name);
                self.note(violation);
                if self.rng.chance(self.plan.cancels) {
                    let at = self.within(8 * self.plan.latency);
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
        self.drain(node);
        self.release_early(caller);
    }

    /// The caller thinks until its next round.
    fn think(&mut self, caller: usize) {
        self.callers[caller].activity = Activity::Thinking;
        self.callers[caller].round += 1;
        let at = self.within(self.plan.think);
        self.queue.push(at, Event::Acquire { caller });
    }

    fn enter(&mut self, caller: usize, entered: Ticket, asked: Ticket, fence: Fence) {
        let Caller { node, lock, mode, round, .. } = self.callers[caller];
        let fence = match self.bug {
            Some(Bug::ReadersBehind) if mode == Mode::Shared => Fence::new(fence.get() - 1),
            Some(Bug::ReadersAhead) if mode == Mode::Shared => Fence::new(fence.get() + 1),
            _ => fence,
        };
        self.members[node].slots[lock] = entered.slot();
        self.report.grants += 1;
        self.progress.on_progress(self.now.max(self.plan.faults_until));
        self.record([1, self.name(caller), fence.get()]);
        self.watch_enter(caller, fence);
        self.callers[caller].activity = Activity::Inside { entered, asked };
        let at = self.within(self.plan.hold);
        self.queue.push(at, Event::Release { caller, round });
    }

    /// A planted bug: the node is told that the caller has left, while it is still inside.
    fn release_early(&mut self, caller: usize) {
        let Caller { node, activity: Activity::Inside { entered, .. }, .. } = self.callers[caller] else { return };
        if self.bug == Some(Bug::ReleaseEarly) {
            self.members[node].node.handle_release(entered, self.now);
            self.drain(node);
        }
    }

    pub(super) fn on_cancel(&mut self, caller: usize, round: u32) {
        let Caller { node, activity: Activity::Waiting(ticket), round: current, .. } = self.callers[caller] else {
            return;
        };
        if current != round {
            return;
        }
        let (id, name) = (self.members[node].id, self.name(caller));
        let known = self.bug == Some(Bug::AnswerGone) || self.members[node].node.handle_cancel(ticket, self.now);
        self.log(|_| format!("node {id}: {name:x} gives up"));
        self.record([2, name, u64::from(known)]);
        let violation = self.answers.on_cancel(id, name, known);
        self.note(violation);
        self.watch_gone(caller);
        self.think(caller);
        self.drain(node);
    }

    pub(super) fn on_release(&mut self, caller: usize, round: u32) {
        let Caller { node, activity, round: current, .. } = self.callers[caller];
        let Activity::Inside { entered, asked } = activity else { return };
        if current != round || self.bug == Some(Bug::ReleaseNever) {
            return;
        }
        let (id, name) = (self.members[node].id, self.name(caller));
        self.watch_exit(caller);
        self.log(|_| format!("node {id}: {name:x} leaves"));
        self.record([3, name, 0]);
        // A future that is dropped right after its turn has come knows only the ticket of its waiting.
        let drops = self.rng.chance(0.2);
        let asked_node = &mut self.members[node].node;
        let known = if drops {
            asked_node.handle_cancel(asked, self.now)
        } else {
            asked_node.handle_release(entered, self.now)
        };
        if !known && self.bug != Some(Bug::ReleaseEarly) {
            let text = format!("caller {name:x} on node {id} was inside and was not known when it left");
            self.note(Some(Violation { property: "answers", text }));
        }
        self.think(caller);
        self.drain(node);
    }

    /// A node answers a caller who had to wait.
    pub(super) fn on_answer(&mut self, node: usize, name: u64, outcome: Outcome) {
        match self.bug {
            Some(Bug::AnswerNever) => return,
            Some(Bug::AnswerTwice) => self.answer(node, name, outcome),
            Some(Bug::LastInFirst) => return self.answer(node, self.last_in(name), outcome),
            _ => {}
        }
        self.answer(node, name, outcome);
    }

    /// For a planted bug: who waits on the same node for the same lock, the last of them.
    fn last_in(&self, name: u64) -> u64 {
        let first = &self.callers[(name >> 32) as usize];
        let same = |other: &Caller| {
            (other.node, other.lock, other.mode) == (first.node, first.lock, first.mode)
                && matches!(other.activity, Activity::Waiting(_))
        };
        self.callers.iter().rposition(same).map_or(name, |last| self.name(last))
    }

    fn answer(&mut self, node: usize, name: u64, outcome: Outcome) {
        let (caller, id) = ((name >> 32) as usize, self.members[node].id);
        self.log(|_| format!("node {id}: {name:x} is answered: {outcome:?}"));
        let answered = self.answers.on_answer(id, name);
        let stale = answered.is_some();
        self.note(answered);
        let Activity::Waiting(asked) = self.callers[caller].activity else { return };
        if stale {
            return;
        }
        match outcome {
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
}
