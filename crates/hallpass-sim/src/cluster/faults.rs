//! What goes wrong on purpose. Each fault is planned before the run begins, and brings its own chance along: taking one away
//! does not change what the others do.

use hallpass_core::{NodeId, Ticks};
use hallpass_node::{Class, Request, keys};

use super::plan::{CLASSES, MS};
use super::{Bug, Ending, Event, World};
use crate::Rng;

/// What can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// Messages are under way for much longer than usual.
    Delay,
    /// Control messages overtake each other.
    Reorder,
    /// Control messages are lost.
    Loss,
    /// Control messages arrive twice.
    Duplication,
    /// A connection breaks and loses the last of what was on its way, both ways.
    Break,
    /// Some nodes cannot reach the others for a while.
    Partition,
    /// Some nodes do not hear the others, which hear them.
    OneWayPartition,
    /// Two nodes cannot reach each other; the others reach both.
    PartialPartition,
    /// A process is gone, with everything that it had not synced.
    Crash,
    /// A process starts again from its disk.
    Restart,
    /// A process starts again, and its disk is empty: it is a new node.
    DiskLoss,
    /// Syncing takes seconds.
    DiskSlow,
    /// A crash leaves a write in part: the process does not start any more until the disk is emptied.
    DiskTorn,
    /// Writes fail: the process stops.
    DiskFull,
    /// A process stands still, and finds later that time has passed.
    Pause,
    /// A clock runs at another rate, within the bound.
    ClockDrift,
    /// A new node joins.
    Join,
    /// A node leaves for good.
    Leave,
    /// A node stops cleanly, and is started again later.
    Stop,
    /// A member is removed by an operator.
    Evict,
    /// Locks with a prefix get another protocol.
    ClassChange,
    /// An operator takes a lock away from its holders.
    BreakLock,
    /// A member is removed by an operator, and its name with it.
    Ban,
    /// The majority of the voters is lost for good, and an operator goes on with what one machine has stored.
    Recover,
    /// A directory is attached to another machine; the process that had it goes on, cut off from everybody.
    Move,
    /// All processes are gone at once.
    Blackout,
    /// Nodes are given other settings than the rest of their group.
    Settings,
}

impl FaultKind {
    /// All of them, in the order in which they are counted.
    pub const ALL: [Self; 27] = [
        Self::Delay,
        Self::Reorder,
        Self::Loss,
        Self::Duplication,
        Self::Break,
        Self::Partition,
        Self::OneWayPartition,
        Self::PartialPartition,
        Self::Crash,
        Self::Restart,
        Self::DiskLoss,
        Self::DiskSlow,
        Self::DiskTorn,
        Self::DiskFull,
        Self::Pause,
        Self::ClockDrift,
        Self::Join,
        Self::Leave,
        Self::Stop,
        Self::Evict,
        Self::ClassChange,
        Self::BreakLock,
        Self::Ban,
        Self::Recover,
        Self::Move,
        Self::Blackout,
        Self::Settings,
    ];

    /// It goes on for a while.
    fn lasts(self) -> bool {
        use FaultKind::*;
        !matches!(self, Break | ClockDrift | Join | Leave | Evict | ClassChange | BreakLock | Ban | Move | Settings)
    }

    /// It is planned, and does not follow from something else.
    fn is_drawn(self) -> bool {
        !matches!(self, Self::Restart | Self::Settings)
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Reorder => "reorder",
            Self::Loss => "loss",
            Self::Duplication => "duplication",
            Self::Break => "break",
            Self::Partition => "partition",
            Self::OneWayPartition => "one-way-partition",
            Self::PartialPartition => "partial-partition",
            Self::Crash => "crash",
            Self::Restart => "restart",
            Self::DiskLoss => "disk-loss",
            Self::DiskSlow => "disk-slow",
            Self::DiskTorn => "disk-torn",
            Self::DiskFull => "disk-full",
            Self::Pause => "pause",
            Self::ClockDrift => "clock-drift",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Stop => "stop",
            Self::Evict => "evict",
            Self::ClassChange => "class-change",
            Self::BreakLock => "break-lock",
            Self::Ban => "ban",
            Self::Recover => "recover",
            Self::Move => "move",
            Self::Blackout => "blackout",
            Self::Settings => "settings",
        }
    }
}

/// One planned fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: Ticks,
    /// How long it lasts, if it does.
    pub(super) lasts: Ticks,
    pub(super) kind: FaultKind,
    /// Decides the rest: which node, how bad.
    chance: u64,
    /// Whom it hits, if that is not left to chance.
    aim: Option<Aim>,
}

/// Whom a fault hits, at the moment at which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// The machine at this position.
    Machine(usize),
    /// Those on one side, as bits.
    Side(u64),
    /// The machine whose node leads the group.
    Steward,
    /// The machine at this position among the others that run.
    Follower(usize),
    /// The machine that was added last.
    Newest,
}

impl Fault {
    /// One that hits whom it should.
    pub(super) fn aimed(kind: FaultKind, aim: Aim, from: Ticks, until: Ticks) -> Self {
        Self { at: from, lasts: until.saturating_sub(from), kind, chance: 1, aim: Some(aim) }
    }

    /// The same with a chance of its own.
    pub(super) fn chosen(rng: &mut Rng, kind: FaultKind, aim: Option<Aim>, from: Ticks, until: Ticks) -> Self {
        Self { at: from, lasts: until.saturating_sub(from), kind, chance: rng.next_u64(), aim }
    }

    pub(super) fn draw_all(rng: &mut Rng, ttl: Ticks, until: Ticks, most: u64) -> Vec<Self> {
        // A swarm: each run has only some kinds of faults, so that the others do not hide what these bring about.
        let share = [0.2, 0.5, 1.0][rng.below(3) as usize];
        let kinds: Vec<FaultKind> =
            FaultKind::ALL.into_iter().filter(|kind| kind.is_drawn() && rng.chance(share)).collect();
        if kinds.is_empty() {
            return Vec::new();
        }
        let mut all: Vec<Self> = (0..rng.below(most + 1))
            .map(|_| {
                let at = rng.below(until);
                // Some are over long before a session runs out, some last for several.
                let longest = [ttl / 4, ttl, 4 * ttl][rng.below(3) as usize];
                let lasts = (1 + rng.below(longest)).min(until - at);
                Self {
                    at,
                    lasts,
                    kind: kinds[rng.below(kinds.len() as u64) as usize],
                    chance: rng.next_u64(),
                    aim: None,
                }
            })
            .collect();
        all.sort_by_key(|fault| fault.at);
        all
    }

    /// Many that are short, of a few kinds, and a network that is bad all the time.
    pub(super) fn draw_storm(rng: &mut Rng, ttl: Ticks, until: Ticks) -> Vec<Self> {
        const KINDS: [FaultKind; 17] = [
            FaultKind::ClassChange,
            FaultKind::Crash,
            FaultKind::PartialPartition,
            FaultKind::Partition,
            FaultKind::OneWayPartition,
            FaultKind::Pause,
            FaultKind::DiskSlow,
            FaultKind::Break,
            FaultKind::Evict,
            FaultKind::Stop,
            FaultKind::Join,
            FaultKind::Leave,
            FaultKind::DiskLoss,
            FaultKind::Ban,
            FaultKind::Recover,
            FaultKind::Move,
            FaultKind::Blackout,
        ];
        let kinds: Vec<FaultKind> = KINDS.into_iter().filter(|_| rng.chance(0.4)).collect();
        let noise = NOISE.into_iter().filter(|_| rng.chance(0.5)).collect::<Vec<_>>();
        let noise = noise.into_iter().map(|kind| Self { at: 0, lasts: until, kind, chance: rng.next_u64(), aim: None });
        let mut all: Vec<Self> = noise.collect();
        for _ in 0..if kinds.is_empty() { 0 } else { 20 + rng.below(60) } {
            let at = rng.below(until);
            let longest = [ttl / 50, ttl / 5, 2 * ttl][rng.below(3) as usize];
            let lasts = (1 + rng.below(longest)).min(until - at);
            all.push(Self {
                at,
                lasts,
                kind: kinds[rng.below(kinds.len() as u64) as usize],
                chance: rng.next_u64(),
                aim: None,
            });
        }
        all.sort_by_key(|fault| fault.at);
        all
    }

    /// Nodes join, one after the other, and then a member dies for a while.
    pub(super) fn of_large_group(joins: usize, from: Ticks, every: Ticks, dies: Ticks, lasts: Ticks) -> Vec<Self> {
        let join = |number: usize| Self {
            at: from + number as Ticks * every,
            lasts: 0,
            kind: FaultKind::Join,
            chance: number as u64,
            aim: None,
        };
        (0..joins).map(join).chain([Self { at: dies, lasts, kind: FaultKind::Crash, chance: 1, aim: None }]).collect()
    }
}

/// What the network does to messages for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    until: Ticks,
    share: f64,
}

impl Noise {
    /// Whether the next message is hit.
    pub(super) fn hits(self, now: Ticks, rng: &mut Rng) -> bool {
        now < self.until && rng.chance(self.share)
    }
}

/// The kinds of [`Noise`], by position.
pub(super) const NOISE: [FaultKind; 4] =
    [FaultKind::Delay, FaultKind::Reorder, FaultKind::Loss, FaultKind::Duplication];

impl World {
    pub(super) fn on_fault(&mut self, fault: Fault) {
        let mut rng = Rng::new(fault.chance);
        let until = self.now + fault.lasts;
        let drawn = rng.below(self.machines.len() as u64) as usize;
        let machine = fault.aim.map_or(drawn, |aim| self.aimed_at(aim));
        let mut hit = vec![machine];
        let happened = match fault.kind {
            FaultKind::Delay | FaultKind::Reorder | FaultKind::Loss | FaultKind::Duplication => {
                self.note_fault(fault.kind, Vec::new(), until);
                let share = [0.01, 0.1, 0.5][rng.below(3) as usize];
                self.noise[fault.kind as usize] = Noise { until, share };
                // Each message that is hit is counted.
                false
            }
            FaultKind::Break => {
                hit.clear();
                self.break_one(&mut rng)
            }
            FaultKind::Partition | FaultKind::OneWayPartition => {
                hit = self.partition(until, fault.kind == FaultKind::Partition, fault.aim, &mut rng);
                !hit.is_empty()
            }
            FaultKind::PartialPartition => {
                hit = self.separate_two(until, &mut rng);
                !hit.is_empty()
            }
            FaultKind::Crash | FaultKind::Restart => self.crash_for(machine, until, FaultKind::Crash),
            FaultKind::DiskLoss | FaultKind::DiskTorn | FaultKind::DiskFull => {
                self.crash_for(machine, until, fault.kind)
            }
            FaultKind::DiskSlow => {
                self.machines[machine].slow_until = until;
                true
            }
            FaultKind::Pause => self.pause(machine, until),
            FaultKind::ClockDrift => {
                let ppm = [0, self.plan.drift_ppm][rng.below(2) as usize];
                self.machines[machine].clock.slew(self.now, ppm);
                true
            }
            FaultKind::Join => {
                hit = vec![self.machines.len()];
                self.join(&mut rng)
            }
            FaultKind::Leave => self.leave(machine),
            FaultKind::Stop => self.stop(machine, until, &mut rng),
            FaultKind::Evict | FaultKind::ClassChange | FaultKind::BreakLock | FaultKind::Ban => {
                hit.clear();
                self.ask_of_group(machine, fault.kind, &mut rng)
            }
            FaultKind::Recover => self.recover(machine, until, &mut rng),
            FaultKind::Move => self.move_directory(machine, &mut rng),
            FaultKind::Blackout => self.blackout(until, &mut rng),
            FaultKind::Settings => false,
        };
        if happened {
            self.note_fault(fault.kind, hit, if fault.kind.lasts() { until } else { self.now });
            self.count(fault.kind);
        }
    }

    pub(super) fn count(&mut self, kind: FaultKind) {
        self.log(|_| format!("-- {}", kind.name()));
        self.report.faults[kind as usize] += 1;
        self.record([5, kind as u64, 0]);
    }

    pub(super) fn aimed_at(&self, aim: Aim) -> usize {
        let last = self.machines.len() - 1;
        let leads = |machine: &usize| {
            let process = self.machines[*machine].process.as_ref();
            process.is_some_and(|process| process.node.status().steward == Some(process.node.id()))
        };
        match aim {
            Aim::Machine(machine) => machine.min(last),
            Aim::Side(_) => 0,
            Aim::Newest => last,
            Aim::Steward => (0..=last).find(leads).unwrap_or(0),
            Aim::Follower(number) => {
                let runs = |machine: &usize| self.machines[*machine].process.is_some() && !leads(machine);
                (0..=last).filter(runs).nth(number).unwrap_or(last)
            }
        }
    }

    fn break_one(&mut self, rng: &mut Rng) -> bool {
        let live: Vec<usize> = (0..self.connections.len()).filter(|at| !self.connections[*at].broken).collect();
        let Some(connection) = live.get(rng.below(live.len() as u64) as usize) else { return false };
        self.break_off(*connection);
        true
    }

    /// Two sides, the first of which does not hear the other; with `both_ways` neither hears the other. Returns the first
    /// side, or nobody if the other one is empty.
    fn partition(&mut self, until: Ticks, both_ways: bool, aim: Option<Aim>, rng: &mut Rng) -> Vec<usize> {
        let alone = aim.map(|aim| self.aimed_at(aim));
        let side = (0..self.machines.len()).map(|node| match aim {
            Some(Aim::Side(bits)) => bits >> (node % 64) & 1 == 1,
            Some(_) => alone == Some(node),
            None => rng.chance(0.5),
        });
        let side: Vec<bool> = side.collect();
        let breaks = rng.chance(0.5);
        for deaf in (0..side.len()).filter(|node| side[*node]) {
            for far in (0..side.len()).filter(|node| !side[*node]) {
                self.block(far, deaf, until, breaks);
                if both_ways {
                    self.block(deaf, far, until, breaks);
                }
            }
        }
        if side.contains(&false) { (0..side.len()).filter(|node| side[*node]).collect() } else { Vec::new() }
    }

    /// Returns the two, or nobody if they are one.
    fn separate_two(&mut self, until: Ticks, rng: &mut Rng) -> Vec<usize> {
        let count = self.machines.len() as u64;
        let (one, other) = (rng.below(count) as usize, rng.below(count) as usize);
        let breaks = rng.chance(0.5);
        self.block(one, other, until, breaks);
        self.block(other, one, until, breaks);
        if one == other { Vec::new() } else { vec![one, other] }
    }

    /// A process ends, in one of several ways, and is started again later.
    fn crash_for(&mut self, machine: usize, until: Ticks, kind: FaultKind) -> bool {
        let disk_fails = matches!(kind, FaultKind::DiskLoss | FaultKind::DiskTorn | FaultKind::DiskFull);
        let durable = self.machines[machine].durable;
        let loses_disk = kind == FaultKind::DiskLoss || !durable;
        if self.machines[machine].process.is_none()
            || (disk_fails && (!durable || self.machines[machine].is_cut_off))
            || (loses_disk && !self.may_lose_disk(machine))
        {
            return false;
        }
        // A disk that fails ends the process when it writes the next time.
        let disk = &mut self.machines[machine].disk;
        match kind {
            FaultKind::DiskFull => {
                disk.is_full = true;
                self.queue.push(until, Event::FreeSpace { machine });
                return true;
            }
            FaultKind::DiskTorn => {
                disk.tears_next = true;
                self.queue.push(until, Event::Restart { machine });
                return false;
            }
            _ => self.crash(machine, false),
        }
        if kind == FaultKind::DiskLoss {
            self.lose_disk(machine);
        }
        self.queue.push(until, Event::Restart { machine });
        true
    }

    /// What a machine has stored is gone, and its node with it.
    pub(super) fn lose_disk(&mut self, machine: usize) {
        let disk = &mut self.machines[machine].disk;
        if let Some(id) = disk.records.get(&keys::IDENTITY).and_then(|bytes| bytes.first_chunk()) {
            self.lost.insert(NodeId(u32::from_be_bytes(*id)));
        }
        *disk = Default::default();
    }

    /// The group promises to survive the loss of a voter's disk while it has the others', and not of several at once, nor of one to which the
    /// others are just giving their votes: in a group without directories all of them may go to one.
    pub(super) fn may_lose_disk(&self, machine: usize) -> bool {
        let Some(id) = self.machines[machine].process.as_ref().map(|process| process.node.id()) else { return false };
        if self.machines.iter().any(super::Machine::is_replacing_voters) {
            return false;
        }
        let ends = |machine: &super::Machine| !machine.durable && machine.ending.is_some();
        let settled = self.voters_are_settled() && !self.voters.is_empty() && !self.machines.iter().any(ends);
        let is_voter = self.voters.contains(&id);
        let lost = self.voters.iter().filter(|voter| self.lost.contains(voter)).count();
        settled && (!is_voter || (lost == 0 && self.voters.len() >= 3))
    }

    fn pause(&mut self, machine: usize, until: Ticks) -> bool {
        if self.machines[machine].process.is_none() || self.machines[machine].paused {
            return false;
        }
        self.machines[machine].paused = true;
        self.note_change(machine);
        self.queue.push(until, Event::Resume { machine });
        true
    }

    pub(super) fn is_running(&self, machine: usize) -> bool {
        self.machines[machine].process.is_some() && !self.machines[machine].paused
    }

    fn join(&mut self, rng: &mut Rng) -> bool {
        if self.machines.len() >= self.plan.nodes + self.plan.joins_max || self.now < self.recovers_until {
            return false;
        }
        let clock = self.draw_clock(rng);
        let machine = self.add_machine(clock, false);
        self.start(machine);
        true
    }

    /// A node that is about to found a group has nothing to leave.
    pub(super) fn is_in_group(&self, machine: usize) -> bool {
        let process = self.machines[machine].process.as_ref();
        self.is_running(machine) && process.is_some_and(|process| process.node.status().group_id.is_some())
    }

    pub(super) fn leave(&mut self, machine: usize) -> bool {
        let here = self.machines.iter().filter(|machine| !machine.is_gone).count();
        let is_last = |process: &super::processes::Process| process.node.view().len() <= 1;
        if here <= 2
            || !self.is_in_group(machine)
            || self.machines[machine].is_busy()
            || self.machines[machine].process.as_ref().is_none_or(is_last)
        {
            return false;
        }
        self.shrinks_until = self.now + 10 * self.plan.ttl;
        self.machines[machine].ending = Some(Ending::Leaves);
        self.machines[machine].asked_at = self.now;
        self.machines[machine].ends_with = Some(self.requests + 1);
        self.request(machine, Request::Leave);
        true
    }

    pub(super) fn stop(&mut self, machine: usize, until: Ticks, rng: &mut Rng) -> bool {
        let loses = !self.machines[machine].durable && !self.may_lose_disk(machine);
        if loses || !self.is_in_group(machine) || self.machines[machine].is_busy() {
            return false;
        }
        if rng.chance(0.5) {
            self.send_callers_away(machine);
        }
        let life = self.machines[machine].life;
        self.machines[machine].ending = Some(Ending::Stops { until });
        self.machines[machine].asked_at = self.now;
        self.machines[machine].ends_with = Some(self.requests + 1);
        self.request(machine, Request::Stop);
        // Some wait for the answer until the faults are over, and then it must come.
        if rng.chance(0.5) && self.now < self.plan.faults_until {
            self.queue.push(self.now + 3 * self.plan.ttl, Event::Kill { machine, life });
        }
        true
    }

    fn ask_of_group(&mut self, machine: usize, kind: FaultKind, rng: &mut Rng) -> bool {
        let Some(process) = &self.machines[machine].process else { return false };
        if self.machines[machine].paused {
            return false;
        }
        let request = match kind {
            FaultKind::Evict | FaultKind::Ban => {
                let members = process.node.members();
                let Some(member) = members.get(rng.below(members.len() as u64) as usize) else { return false };
                let ban = (kind == FaultKind::Ban || rng.chance(0.3)) && !member.name.is_empty();
                if ban {
                    self.banned.insert(member.name.clone());
                }
                self.shrinks_until = self.now + 10 * self.plan.ttl;
                Request::Evict { node: member.id, ban }
            }
            FaultKind::ClassChange => {
                let at = |rng: &mut Rng| rng.below(CLASSES.len() as u64) as usize;
                let (prefix, protocol) = (CLASSES[at(rng)].0.to_owned(), CLASSES[at(rng)].1.to_owned());
                Request::SetClass(Class { prefix, protocol, options: Vec::new() })
            }
            _ => Request::Break { lock: self.plan.locks[rng.below(self.plan.locks.len() as u64) as usize].clone() },
        };
        self.request(machine, request);
        true
    }

    /// The faults are over: everything is reachable, everybody runs.
    pub(super) fn on_heal(&mut self) {
        self.log(|_| "-- the faults are over".to_owned());
        self.blocked.clear();
        self.noise = Default::default();
        for machine in 0..self.machines.len() {
            self.machines[machine].slow_until = 0;
            self.machines[machine].disk.is_full = false;
            self.resume(machine);
            self.machines[machine].disk.tears_next = false;
            self.set_right(machine);
            self.restart(machine);
        }
        for name in std::mem::take(&mut self.banned) {
            self.admit.insert(name);
        }
        self.queue.push(self.now + 100 * MS, Event::Check);
    }

    pub(super) fn draw_clock(&self, rng: &mut Rng) -> super::clock::Clock {
        let ppm = match self.bug {
            // One clock is much slower than the stated bound allows.
            Some(Bug::ClocksBeyondDrift) => [0, 2_000_000][rng.below(2) as usize],
            _ => [0, rng.below(u64::from(self.plan.drift_ppm) + 1) as u32, self.plan.drift_ppm][rng.below(3) as usize],
        };
        super::clock::Clock::new(rng.below(1 << 50), ppm)
    }
}
