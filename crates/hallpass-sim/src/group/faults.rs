//! What goes wrong on purpose.

use hallpass_core::Ticks;

use super::plan::MS;
use super::{Event, Group};

/// What can go wrong in a group whose membership is fixed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Bytes are under way for much longer than usual.
    Delay,
    /// A connection breaks and loses the last of what was on its way, both ways.
    Break,
    /// A frame is missing in the middle of a connection.
    Loss,
    /// A frame arrives twice.
    Duplication,
    /// Some nodes cannot reach the others for a while.
    Partition,
    /// A node stands still for a while.
    Pause,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Delay, Self::Break, Self::Loss, Self::Duplication, Self::Partition, Self::Pause];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Break => "break",
            Self::Loss => "loss",
            Self::Duplication => "duplication",
            Self::Partition => "partition",
            Self::Pause => "pause",
        }
    }
}

/// A bug to plant, for tests of the oracles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(hidden)]
pub enum Bug {
    /// The link delivers a message twice: the network repeats it under the next number.
    Twice,
    /// The link loses a message: the network leaves it out and renumbers the rest.
    Lost,
    /// A driver releases as soon as it has been granted.
    ReleaseEarly,
    /// A driver answers a waiter twice.
    AnswerTwice,
    /// A driver does not answer a waiter.
    AnswerNever,
    /// A driver answers a waiter who has given up.
    AnswerGone,
    /// A driver never releases a lock.
    ReleaseNever,
    /// A driver tells whoever only tries that the lock is not free, and has not asked the node.
    BusyForNothing,
    /// A driver refuses a caller for a limit that is far away.
    RefuseForNothing,
    /// A driver gives the lock to the caller who has waited for the shortest time.
    LastInFirst,
    /// Nodes keep a lock for as long as they have callers of their own.
    NeverYield,
    /// A reader is given one less than its fence: the last exclusive one.
    ReadersBehind,
    /// A reader is given one more than its fence: beyond the next exclusive one.
    ReadersAhead,
}

impl Group {
    pub(super) fn schedule_fault(&mut self) {
        let at = self.now + 1 + self.rng.exponential(self.plan.fault_every as f64) as Ticks;
        if at < self.plan.faults_until {
            self.queue.push(at, Event::Fault);
        }
    }

    pub(super) fn on_fault(&mut self) {
        let left = self.plan.faults_until - self.now;
        let lasts = self.rng.below(400 * MS).min(left);
        match self.rng.below(8) {
            0 => self.pause(lasts),
            1 => self.partition(lasts),
            2 | 3 => self.stall(lasts),
            _ => self.break_one(),
        }
        self.schedule_fault();
    }

    fn count(&mut self, fault: Fault) {
        self.log(|_| format!("-- {}", fault.name()));
        self.report.faults[fault as usize] += 1;
        self.record([5, fault as u64, 0]);
    }

    fn pause(&mut self, lasts: Ticks) {
        let node = self.rng.below(self.members.len() as u64) as usize;
        if self.members[node].paused {
            return;
        }
        self.count(Fault::Pause);
        self.members[node].paused = true;
        self.queue.push(self.now + lasts, Event::Resume { node });
    }

    /// A set of nodes and the others: connections break, or deliver nothing until it is over.
    fn partition(&mut self, lasts: Ticks) {
        self.count(Fault::Partition);
        let side: Vec<bool> = self.members.iter().map(|_| self.rng.chance(0.5)).collect();
        let breaks = self.rng.chance(0.5);
        for high in 0..side.len() {
            for low in (0..high).filter(|low| side[*low] != side[high]) {
                let pair = self.pair([low, high]);
                self.blocked_until[pair] = self.now + lasts;
                match self.newest[pair] {
                    Some(newest) if breaks => self.break_off(newest),
                    Some(newest) => self.delay(newest, lasts),
                    None => {}
                }
            }
        }
    }

    fn stall(&mut self, lasts: Ticks) {
        if let Some(connection) = self.any_connection() {
            self.count(Fault::Delay);
            self.delay(connection, lasts);
        }
    }

    fn delay(&mut self, connection: usize, lasts: Ticks) {
        for end in &mut self.connections[connection].ends {
            end.arrives = end.arrives.max(self.now + lasts);
        }
    }

    fn break_one(&mut self) {
        if let Some(connection) = self.any_connection() {
            self.count(Fault::Break);
            self.break_off(connection);
        }
    }

    fn any_connection(&mut self) -> Option<usize> {
        let live: Vec<usize> =
            self.newest.iter().flatten().copied().filter(|newest| !self.connections[*newest].broken).collect();
        live.get(self.rng.below(live.len() as u64) as usize).copied()
    }
}
