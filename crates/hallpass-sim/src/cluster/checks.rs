//! What must be so when the faults are over.

use hallpass_core::Ticks;
use hallpass_node::{LockStatus, Request};

use super::callers::Activity;
use super::events::Event;
use super::plan::MS;
use super::processes::{Ending, Machine, Process};
use super::{ClusterReport, World};
use crate::oracle::{Leftovers, Violation};

/// How long after idle locks should have been forgotten the check comes.
const IDLE_WAIT: Ticks = 500 * MS;
/// Longer caches are not waited for: most of a run would be waiting.
const CACHE_IDLE_MAX: Ticks = 500 * MS;

impl World {
    // ---- after the faults ----

    pub(super) fn on_check(&mut self) {
        self.watch_endings();
        let plan = &self.plan;
        if self.now > self.calm_since + 40 * plan.ttl + 2 * plan.replace_after + 30_000 * MS {
            let violation = self.unsettled();
            for machine in 0..self.machines.len() {
                let status = self.machines[machine].process.as_ref().map(|process| process.node.status());
                self.log(|world| format!("{}: {status:?}", world.machines[machine].name));
            }
            return self.note(Some(violation));
        }
        if self.now >= self.admit_at {
            self.admit_at = self.now + 4 * self.plan.ttl;
            // Any node passes it on, also one that is not admitted itself; best one that surely reaches the steward.
            let running = |machine: &&usize| self.machines[**machine].ending.is_none();
            let is_open =
                |machine: &usize| self.machines[*machine].process.as_ref().map(|process| process.node.is_complete());
            let machines: Vec<usize> = (0..self.machines.len()).collect();
            if let Some(asked) = machines.iter().filter(running).max_by_key(|machine| is_open(machine)).copied() {
                for name in self.admit.clone() {
                    self.request(asked, Request::Admit { name });
                }
            }
            self.admit_where_it_is_unknown();
        }
        self.queue.push(self.now + 100 * MS, Event::Check);
    }

    /// A node that was away when a ban was lifted may listen to nobody who could tell it: its operator does.
    fn admit_where_it_is_unknown(&mut self) {
        for machine in 0..self.machines.len() {
            let here = &self.machines[machine];
            let outside = |process: &&Process| !process.node.is_complete();
            let Some(process) = here.process.as_ref().filter(outside) else { continue };
            let banned: Vec<String> = process.node.banned().map(str::to_owned).collect();
            for name in banned {
                if self.admit.contains(&name) {
                    self.request(machine, Request::Admit { name });
                }
            }
        }
    }

    /// Everybody is in one open view, and every caller has been served.
    pub(super) fn is_settled(&self) -> bool {
        if self.is_over {
            return true;
        }
        // If all leave, nobody may be there to tell a node that is cut off.
        let leaves = |machine: &Machine| machine.is_gone || matches!(machine.ending, Some(Ending::Leaves));
        if self.machines.iter().all(leaves) {
            return true;
        }
        let callers = self.callers.iter().all(|caller| caller.activity == Activity::Done);
        let mut here = self.machines.iter().filter(|machine| !machine.is_gone);
        let epoch = self.epochs.highest();
        callers
            && here.all(|machine| {
                let is_open = |process: &Process| {
                    process.node.is_complete() && process.node.epoch() == Some(epoch) && process.orders.is_empty()
                };
                machine.process.as_ref().is_some_and(is_open) && machine.ending.is_none()
            })
    }

    pub(super) fn unsettled(&self) -> Violation {
        let out = self.machines.iter().filter(|machine| !machine.is_gone).filter_map(|machine| {
            let Some(process) = &machine.process else { return Some(format!("{} does not run", machine.name)) };
            let status = process.node.status();
            if let Some((_, order)) = process.orders.first_key_value() {
                return Some(format!("{} has no answer to {order}", machine.name));
            }
            let fine = status.epoch == Some(self.epochs.highest()) && process.node.is_complete();
            let (epoch, why) = (status.epoch.unwrap_or(0), status.waits_for.unwrap_or_default());
            (!fine).then(|| {
                format!("{} (node {}) is {:?} in epoch {epoch}: {why}", machine.name, process.node.id(), status.view)
            })
        });
        let out: Vec<String> = out.take(4).collect();
        let waiting = self.callers.iter().enumerate().filter(|(_, caller)| caller.activity != Activity::Done);
        let waiting: Vec<String> = waiting
            .map(|(number, caller)| {
                let (machine, lock) = (&self.machines[caller.machine].name, &self.plan.locks[caller.lock]);
                let (mode, activity) = (caller.mode, caller.activity);
                format!("{machine}: {:x} for '{lock}' {mode:?} {activity:?}", self.name(number))
            })
            .collect();
        let text = if out.is_empty() {
            let (count, some) = (waiting.len(), &waiting[..waiting.len().min(3)]);
            format!("all nodes are in one view, and {count} callers are not served: {}", some.join("; "))
        } else {
            format!("the faults are long over, but {}", out.join("; "))
        };
        Violation { property: "progress", text }
    }

    /// Long after the last caller has gone no node remembers a lock that it may forget. What happens until then does not count as the run.
    pub(super) fn check_leftovers(&mut self) {
        if self.report.violation.is_some() || self.book.is_some() {
            return;
        }
        let (report, until) = (self.report.clone(), self.now + 3 * self.plan.cache_idle + IDLE_WAIT);
        let are_forgotten = self.plan.cache_idle <= CACHE_IDLE_MAX;
        self.is_recorded = true;
        while are_forgotten
            && self.report.violation.is_none()
            && let Some((at, event)) = self.queue.pop()
            && at <= until
        {
            self.now = at;
            // Everything has been as it should be, and no fault has come since.
            if !matches!(event, Event::Check) {
                self.handle(event);
            }
        }
        let (violation, log) = (self.report.violation.take(), std::mem::take(&mut self.report.log));
        self.report = ClusterReport { violation, log, ..report };
        let processes = self.machines.iter().filter_map(|machine| machine.process.as_ref());
        let left = processes.filter(|process| process.node.is_complete()).find_map(|process| {
            let mut locks = process.node.locks();
            let is_left = |lock: &LockStatus<'_>| are_forgotten || lock.holders > 0 || lock.waiters > 0;
            locks.find_map(|lock| Leftovers.on_end(process.node.id(), &lock).filter(|_| is_left(&lock)))
        });
        self.note(left);
    }
}
