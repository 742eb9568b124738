//! Machines, and the processes that start, end, stand still and go on there.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_core::{NodeId, Ticks};
use hallpass_node::wire::Plane;
use hallpass_node::{Founding, Incarnation, Node, NodeConfig, Planted, Slot, ViewsConfig, keys};

use super::callers::Caller;
use super::clock::Clock;
use super::disk::Disk;
use super::events::Event;
use super::faults::FaultKind;
use super::plan::{MS, Settings};
use super::{Bug, World};
use crate::Rng;

/// The consensus engine's term and vote are stored under this number.
const HARD_STATE: u64 = 16;
/// A group without directories begins with an epoch that the clock gives: one for so much time, as the library counts.
pub(super) const CLOCK_STEP: Ticks = 4000 * MS;

/// Where one node runs, and the next one after its disk is lost.
pub(super) struct Machine {
    /// Also its address.
    pub(super) name: String,
    /// What its node is called: a directory that moves takes that along.
    pub(super) node_name: String,
    pub(super) settings: Settings,
    /// What is stored here outlives a process.
    pub(super) durable: bool,
    pub(super) clock: Clock,
    pub(super) disk: Disk,
    /// Syncing takes seconds until then.
    pub(super) slow_until: Ticks,
    /// How many processes have been started here.
    pub(super) life: u64,
    pub(super) process: Option<Process>,
    pub(super) paused: bool,
    /// Events that came while it was paused.
    pub(super) held_back: Vec<Event>,
    /// It is about to end, once this request is answered.
    pub(super) ending: Option<Ending>,
    pub(super) ends_with: Option<u64>,
    pub(super) asked_at: Ticks,
    /// Its node has left for good.
    pub(super) is_gone: bool,
    /// It is one of those that found the group; also with an empty disk later, since its configuration is the same.
    pub(super) founds: bool,
    /// Its directory is attached to another machine: its process goes on without one, and nobody reaches it.
    pub(super) is_cut_off: bool,
    /// Its directory was another machine's, whose process may live.
    pub(super) is_foreign: bool,
    /// It has been in a view with others.
    pub(super) has_been_more: bool,
    /// Its directory was lost, and what is remembered elsewhere, too: it has founded another group of the same name.
    pub(super) is_stray: bool,
    /// Its group was lost. It joins the recovered one, with an empty directory.
    pub(super) is_obsolete: bool,
    /// It is not started before.
    pub(super) rests_until: Ticks,
}

impl Machine {
    /// It is about to end, or cut off from its directory: operators leave it alone.
    pub(super) fn is_busy(&self) -> bool {
        self.ending.is_some() || self.is_cut_off
    }

    /// Its node knows that voters are being replaced in the group that goes on.
    pub(super) fn is_replacing_voters(&self) -> bool {
        let is_outside = self.is_cut_off || self.is_stray || self.is_obsolete;
        !is_outside && self.process.as_ref().is_some_and(|process| process.node.is_replacing_voters())
    }
}

/// Why a process is about to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// Cleanly, and is started again at that time.
    Stops {
        until: Ticks,
    },
    Leaves,
}

pub(super) struct Process {
    pub(super) node: Node<u64, Planted>,
    /// What it has asked the group for, until that is answered.
    pub(super) orders: BTreeMap<u64, String>,
    /// When the next [`Event::Timeout`] and [`Event::Connect`] are scheduled.
    pub(super) timeout: Option<Ticks>,
    /// When the last timeout was, and how many there were at that instant.
    pub(super) timeouts: (Ticks, u32),
    pub(super) connects_at: Option<Ticks>,
    /// The connections that count, by peer.
    pub(super) locks: BTreeMap<NodeId, usize>,
    pub(super) control: BTreeMap<NodeId, usize>,
    /// All connections that may still stand.
    pub(super) connections: Vec<usize>,
    /// Machines that are being dialed, whether for control messages, and who is expected there.
    pub(super) dialing: BTreeSet<(usize, bool, Option<NodeId>)>,
    /// And when they may be dialed again.
    pub(super) dialed: BTreeMap<(usize, bool, Option<NodeId>), Ticks>,
    /// Where each lock was when it was last entered.
    pub(super) slots: Vec<Option<Slot>>,
    /// The last epoch that it knew, and whether it was open.
    pub(super) seen: (Option<u64>, bool),
    /// It has been in a view.
    pub(super) was_member: bool,
}

impl Process {
    pub(super) fn current(&self, plane: Plane) -> &BTreeMap<NodeId, usize> {
        if plane == Plane::Locks { &self.locks } else { &self.control }
    }

    pub(super) fn current_mut(&mut self, plane: Plane) -> &mut BTreeMap<NodeId, usize> {
        if plane == Plane::Locks { &mut self.locks } else { &mut self.control }
    }
}

impl World {
    pub(super) fn set_up(&mut self) {
        for _ in 0..self.plan.nodes {
            let mut rng = Rng::new(self.rng.next_u64());
            let clock = self.draw_clock(&mut rng);
            self.add_machine(clock, true);
        }
        for machine in 0..self.plan.nodes {
            let at = self.rng.below(100 * MS);
            self.queue.push(at, Event::Restart { machine });
        }
        for fault in self.plan.faults.clone() {
            self.queue.push(fault.at, Event::Fault(fault));
        }
        self.queue.push(self.plan.faults_until, Event::Heal);
    }

    pub(super) fn add_machine(&mut self, clock: Clock, founds: bool) -> usize {
        let machine = self.machines.len();
        self.machines.push(Machine {
            name: format!("m{machine}"),
            node_name: format!("m{machine}"),
            settings: self.plan.settings(machine, founds),
            durable: self.plan.is_durable(machine, founds),
            clock,
            disk: Disk::default(),
            slow_until: 0,
            life: 0,
            process: None,
            paused: false,
            held_back: Vec::new(),
            ending: None,
            ends_with: None,
            asked_at: 0,
            is_gone: false,
            founds,
            is_cut_off: false,
            is_foreign: false,
            has_been_more: false,
            is_stray: false,
            is_obsolete: false,
            rests_until: 0,
        });
        self.note_settings(machine);
        for _ in 0..self.plan.callers {
            let caller = self.callers.len();
            self.callers.push(Caller::new(machine));
            let at = self.within(200 * MS);
            self.queue.push(at, Event::Acquire { caller });
        }
        machine
    }

    // ---- processes ----

    pub(super) fn restart(&mut self, machine: usize) {
        // What was torn is emptied at once, or when the faults are over.
        if self.machines[machine].disk.is_torn && (self.now >= self.plan.faults_until || self.rng.chance(0.5)) {
            self.lose_disk(machine);
        }
        if self.now < self.machines[machine].rests_until {
            return self.queue.push(self.machines[machine].rests_until, Event::Restart { machine });
        }
        if self.machines[machine].process.is_none() && std::mem::take(&mut self.machines[machine].is_obsolete) {
            self.lose_disk(machine);
            self.machines[machine].founds = false;
        }
        let Machine { process, disk, is_gone, is_cut_off, life, .. } = &self.machines[machine];
        if process.is_some() || *is_gone || *is_cut_off || disk.is_torn || disk.is_full {
            return;
        }
        if *life > 0 && !disk.records.is_empty() {
            self.count(FaultKind::Restart);
        }
        self.start(machine);
    }

    /// Starts a process: it takes its identity from the disk, and counts its start there before anything else.
    pub(super) fn start(&mut self, machine: usize) {
        let (now, seed, drawn) = (self.now, self.rng.next_u64(), self.rng.next_u64());
        let founds = self.may_found(machine);
        let Machine { name, node_name, settings, durable, disk, life, is_foreign, .. } = &mut self.machines[machine];
        *life += 1;
        let number = |key: u64| disk.records.get(&key)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let id = number(keys::IDENTITY).unwrap_or((drawn as u32).max(1));
        let counted = number(keys::INCARNATION).unwrap_or(0);
        let incarnation = match self.bug {
            Some(Bug::SameIncarnation) => counted.max(1),
            _ => counted + 1,
        };
        disk.records.insert(keys::IDENTITY, id.to_be_bytes().to_vec());
        disk.records.insert(keys::INCARNATION, incarnation.to_be_bytes().to_vec());
        if self.bug == Some(Bug::ForgetVote) {
            disk.forget_since_start(HARD_STATE);
        }
        let founding = if founds { Founding::Together(settings.expect) } else { Founding::Never };
        let views = ViewsConfig {
            founding,
            durable: *durable,
            stored: disk.records.clone(),
            epoch_floor: if *durable { 0 } else { 1 + now / CLOCK_STEP },
            predecessor_is_dead: !self.plan.callers_outlive && !*is_foreign,
            ttl: settings.ttl,
            drift_ppm: settings.drift_ppm,
            replace_after: settings.replace_after,
            voters_max: settings.voters_max,
            ..ViewsConfig::new(name.clone())
        };
        let bug = if let Some(Bug::Node(sabotage)) = self.bug { Some(sabotage) } else { None };
        let config = NodeConfig {
            name: node_name.clone(),
            incarnation: Incarnation::new(incarnation).expect("few starts"),
            boot_id: drawn,
            classes: settings.classes.clone(),
            local_streak: if self.bug == Some(Bug::NeverYield) { u32::MAX } else { self.plan.local_streak },
            locks_max: self.plan.limits.locks,
            callers_max: self.plan.limits.callers,
            backlog_max: self.plan.limits.backlog,
            cache_idle: self.plan.cache_idle,
            seed,
            ..NodeConfig::new(NodeId(id), views)
        };
        let node = Node::with_bug(config, bug).expect("a node starts from what it has stored");
        self.machines[machine].process = Some(Process {
            orders: BTreeMap::new(),
            node,
            timeout: None,
            timeouts: (0, 0),
            connects_at: None,
            locks: BTreeMap::new(),
            control: BTreeMap::new(),
            connections: Vec::new(),
            dialing: BTreeSet::new(),
            dialed: BTreeMap::new(),
            slots: vec![None; self.plan.locks.len()],
            seen: (None, false),
            was_member: false,
        });
        self.note_start(NodeId(id), machine);
        self.log(|world| format!("{} starts as node {id}, incarnation {incarnation}", world.machines[machine].name));
        self.record([6, machine as u64, id.into()]);
        self.drain(machine);
        self.connect_later(machine, 20 * MS);
    }

    /// A process is gone at once.
    pub(super) fn crash(&mut self, machine: usize, tears: bool) {
        // Nobody is told more than a session's time, also by a node that is alone.
        let deadline = self.valid_until(machine).min(self.local(machine) + self.plan.ttl);
        let here = &mut self.machines[machine];
        let Some(process) = here.process.take() else { return };
        here.disk.on_crash(tears, &mut self.rng);
        (here.paused, here.ending) = (false, None);
        let held_back = std::mem::take(&mut here.held_back);
        let loses = here.disk.is_torn || !here.durable;
        self.log(|world| format!("{} is gone", world.machines[machine].name));
        self.note_change(machine);
        for connection in process.connections.iter().copied() {
            self.break_off(connection);
        }
        if loses {
            self.lost.insert(process.node.id());
        }
        if !self.machines[machine].durable {
            self.empty_disk(machine);
        }
        self.lose_callers(machine, deadline);
        for event in held_back {
            if let Event::Acquire { caller } = event {
                self.ask_later(caller);
            }
        }
    }

    /// A process ends as it was asked to.
    pub(super) fn end_process(&mut self, machine: usize) {
        let ending = self.machines[machine].ending;
        self.crash(machine, false);
        match ending {
            Some(Ending::Leaves) => {
                self.lose_disk(machine);
                self.machines[machine].is_gone = true;
            }
            Some(Ending::Stops { until }) => self.queue.push(until.max(self.now), Event::Restart { machine }),
            None => self.queue.push(self.now, Event::Restart { machine }),
        }
    }

    /// A process goes on. What has come meanwhile it reads in one go: what came over one way in its order, but which of its threads
    /// is first to get the node is left to chance.
    pub(super) fn resume(&mut self, machine: usize) {
        if !std::mem::take(&mut self.machines[machine].paused) {
            return;
        }
        self.log(|world| format!("{} goes on", world.machines[machine].name));
        self.note_change(machine);
        let held_back = std::mem::take(&mut self.machines[machine].held_back);
        let mut ways: Vec<((u64, usize), Vec<Event>)> = Vec::new();
        for event in held_back {
            let way = self.way(&event);
            match ways.iter_mut().find(|(known, _)| *known == way) {
                Some((_, events)) => events.push(event),
                None => ways.push((way, vec![event])),
            }
        }
        while !ways.is_empty() {
            let first = self.rng.below(ways.len() as u64) as usize;
            for event in ways.swap_remove(first).1 {
                self.handle(event);
            }
        }
    }
}
