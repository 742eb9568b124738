//! What an operator does to machines: founds a lost group again, moves a directory, gives settings, and sets right what was
//! not.

use hallpass_core::{NodeId, Ticks};
use hallpass_node::{keys, recover};

use super::disk::Disk;
use super::faults::Aim;
use super::plan::MS;
use super::{Bug, CLOCK_STEP, Event, FaultKind, World};
use crate::Rng;
use crate::oracle::Violation;

/// The most directories that move in one run.
const MOVES_MAX: usize = 3;

impl World {
    /// Most of the voters are gone for good, with their disks. The machine is stopped, and goes on as a group of one that the others
    /// join; those of them that live go on with what they hold until their sessions are over.
    pub(super) fn recover(&mut self, survivor: usize, until: Ticks, rng: &mut Rng) -> bool {
        let here = &self.machines[survivor];
        if !self.voters_are_settled()
            || self.is_over
            || !self.is_in_group(survivor)
            || here.is_busy()
            || !here.durable
            || here.is_obsolete
            // Voters whose directories have moved are where nobody looks for them here.
            || self.machines.iter().any(|machine| machine.is_cut_off)
        {
            return false;
        }
        let id = self.id(survivor);
        let Ok((_, records)) = recover(&here.disk.records, id) else { return false };
        for machine in self.drawn_majority(survivor, rng) {
            self.crash(machine, false);
            self.lose_disk(machine);
            self.machines[machine].founds = false;
            self.queue.push(until + MS, Event::Restart { machine });
        }
        self.crash(survivor, false);
        // What was being written when it ended counts, too.
        let records = recover(&self.machines[survivor].disk.records, id).map_or(records, |(_, records)| records);
        self.machines[survivor].disk.records = records;
        for machine in (0..self.machines.len()).filter(|machine| *machine != survivor) {
            let here = &mut self.machines[machine];
            here.is_obsolete |= here.process.is_some() || !here.disk.records.is_empty();
            // None is started with an empty directory while another one of the lost group runs.
            here.rests_until = here.rests_until.max(until + MS);
            self.queue.push(until, Event::Wipe { machine });
        }
        (self.voters, self.voters_since, self.voters_term) = (vec![id], Some(self.now), None);
        self.epochs.expect_another();
        (self.recovered_on, self.recovers_until) = (Some(survivor), until + MS);
        let at = self.within(20 * MS);
        self.queue.push(at, Event::Restart { machine: survivor });
        true
    }

    /// Machines of enough voters that the others have no majority without the survivor.
    fn drawn_majority(&self, survivor: usize, rng: &mut Rng) -> Vec<usize> {
        let votes = |machine: &usize| *machine != survivor && self.voters.contains(&self.stored_id(*machine));
        let mut voting: Vec<usize> = (0..self.machines.len()).filter(votes).collect();
        let stay = rng.below((self.voters.len() as u64).div_ceil(2));
        for _ in 0..stay.min(voting.len() as u64) {
            voting.swap_remove(rng.below(voting.len() as u64) as usize);
        }
        voting
    }

    /// The node that a machine's directory belongs to.
    fn stored_id(&self, machine: usize) -> NodeId {
        let stored = self.machines[machine].disk.records.get(&keys::IDENTITY);
        stored.and_then(|bytes| bytes.first_chunk()).map_or(self.id(machine), |id| NodeId(u32::from_be_bytes(*id)))
    }

    /// A process whose group was lost is ended. The next one is to join the group that was recovered.
    pub(super) fn wipe(&mut self, machine: usize) {
        // One that was looking for a group may have found the new one.
        let group = |machine: usize| self.machines[machine].process.as_ref().and_then(|one| one.node.status().group_id);
        if self.recovered_on.is_some_and(|on| group(on).is_some() && group(on) == group(machine)) {
            self.machines[machine].is_obsolete = false;
        }
        if self.machines[machine].is_obsolete {
            self.crash(machine, false);
            self.restart(machine);
        }
    }

    /// A directory is attached to another machine as it is on the disk now. Its process is cut off, goes on, and writes nothing any more.
    pub(super) fn move_directory(&mut self, machine: usize, rng: &mut Rng) -> bool {
        let moved = self.machines.iter().filter(|machine| machine.is_cut_off).count();
        let here = &self.machines[machine];
        // Who votes alone has no session that ends: nothing protects from it, and the documentation says so.
        let decides_alone =
            self.voters.len() < 3 && self.voters.contains(&self.id(machine)) || self.valid_until(machine) == Ticks::MAX;
        if moved >= MOVES_MAX
            || !self.is_running(machine)
            || here.is_busy()
            || !here.durable
            || here.is_obsolete
            || decides_alone
            // Founders are known by their addresses until there is a group.
            || !self.is_in_group(machine)
        {
            return false;
        }
        let clock = self.draw_clock(rng);
        let founds = here.founds;
        let to = self.add_machine(clock, founds);
        for other in 0..self.machines.len() {
            self.block(machine, other, self.plan.faults_until, true);
            self.block(other, machine, self.plan.faults_until, true);
        }
        let here = &mut self.machines[machine];
        here.is_cut_off = true;
        let mut disk = std::mem::take(&mut here.disk);
        disk.on_crash(false, &mut self.rng);
        let (node_name, life, has_been_more) = (here.node_name.clone(), here.life, here.has_been_more);
        let there = &mut self.machines[to];
        (there.disk, there.node_name, there.life, there.has_been_more) = (disk, node_name, life, has_been_more);
        (there.is_foreign, there.durable) = (true, true);
        if self.recovered_on == Some(machine) {
            self.recovered_on = Some(to);
        }
        let at = self.within(50 * MS);
        self.queue.push(at, Event::Restart { machine: to });
        true
    }

    /// When all is well again the steward is asked to go, once: nothing is in its way now. False if it is not.
    pub(super) fn goes_on_without_steward(&mut self) -> bool {
        if !std::mem::take(&mut self.plan.ends_with_steward) {
            return false;
        }
        let steward = self.aimed_at(Aim::Steward);
        let mut rng = Rng::new(self.rng.next_u64());
        let goes = if rng.chance(0.5) { self.leave(steward) } else { self.stop(steward, self.now, &mut rng) };
        if goes {
            self.calm_since = self.now;
            self.queue.push(self.now + 100 * MS, Event::Check);
        }
        goes
    }

    /// Who was asked to go does so soon once nothing is in its way.
    pub(super) fn watch_endings(&mut self) {
        self.watch_strays();
        let limit = 20 * self.plan.ttl + 10_000 * MS;
        let waits = |machine: &super::Machine| {
            machine.ending.is_some() && self.now > machine.asked_at.max(self.plan.faults_until) + limit
        };
        if let Some(machine) = self.machines.iter().find(|machine| waits(machine)) {
            let waited = (self.now - machine.asked_at) / (1000 * MS);
            let text = format!("{} was asked to go {waited} s ago, and has no answer", machine.name);
            self.note(Some(Violation { property: "answer", text }));
        }
    }

    /// All processes are gone at once, and with them a group that nobody has stored.
    pub(super) fn blackout(&mut self, until: Ticks, rng: &mut Rng) -> bool {
        if !self.forgets_all() {
            return false;
        }
        let until = until.max(if self.plan.durable { 0 } else { self.clock_passes() });
        for machine in 0..self.machines.len() {
            if !self.machines[machine].is_cut_off {
                self.crash(machine, false);
                self.machines[machine].rests_until = until;
                let at = until + rng.below(self.plan.ttl / 4);
                self.queue.push(at, Event::Restart { machine });
            }
        }
        true
    }

    /// When the clock is past the epochs of a group that has stored nothing: the next one begins there.
    fn clock_passes(&self) -> Ticks {
        self.epochs.highest() * CLOCK_STEP
    }

    /// Either everything is stored, or nothing is and all founders are there to begin again.
    fn forgets_all(&mut self) -> bool {
        let takes_part = |machine: &&super::Machine| !machine.is_gone && !machine.is_cut_off;
        if self.plan.durable && self.plan.bare == 0 {
            return true;
        }
        let founders_stay = self.machines.iter().filter(|machine| machine.founds).all(|machine| !machine.is_gone);
        // What outlives a process is waited for by what it has stored, and here nothing is.
        let is_soon = self.clock_passes() < self.plan.faults_until + 10_000 * MS;
        if self.plan.durable || self.plan.callers_outlive || !founders_stay || !is_soon {
            return false;
        }
        debug_assert!(self.machines.iter().filter(takes_part).all(|machine| !machine.durable));
        (self.voters, self.voters_since, self.voters_term) = (Vec::new(), None, None);
        self.epochs.expect_another();
        true
    }

    /// The faults are over: a directory's former process is ended, and everybody has the group's settings.
    pub(super) fn set_right(&mut self, machine: usize) {
        self.wipe(machine);
        let here = &mut self.machines[machine];
        if here.is_cut_off {
            here.is_gone = true;
            return self.crash(machine, false);
        }
        let right = super::Plan { odd: Default::default(), ..self.plan.clone() }.settings(machine, here.founds);
        if here.settings != right {
            here.settings = right;
            let in_group = here.process.as_ref().is_some_and(|process| process.node.status().group_id.is_some());
            if !in_group {
                self.crash(machine, false);
            }
        }
    }

    /// A founder that has begun a group alone does not begin another one when its directory is gone, if the group has ever had
    /// a second member: that is remembered beside the directory. Where that is lost, too, or there is no directory, it does, until it
    /// meets one of the others.
    pub(super) fn may_found(&mut self, machine: usize) -> bool {
        let forgets = self.bug == Some(Bug::ForgetMark);
        let loses_mark = self.plan.loses_mark;
        let here = &mut self.machines[machine];
        if self.plan.nodes > 1 || !here.disk.records.is_empty() {
            return here.founds;
        }
        let is_first = here.founds && !here.has_been_more;
        here.is_stray = here.founds && here.has_been_more && (loses_mark || !here.durable) && !forgets;
        let founds = is_first || here.founds && (forgets || here.is_stray);
        if is_first && here.life > 0 {
            self.epochs.expect_another();
        }
        founds
    }

    /// One that has founded another group of the same name is told so as soon as one of the others meets it, and then it grants nothing. An
    /// operator has it join them.
    fn watch_strays(&mut self) {
        if self.now < self.calm_since + 10_000 * MS {
            return;
        }
        for machine in (0..self.machines.len()).filter(|machine| self.machines[*machine].is_stray).collect::<Vec<_>>() {
            let is_complete = self.machines[machine].process.as_ref().is_some_and(|process| process.node.is_complete());
            let group = |machine: &super::Machine| {
                let process = machine.process.as_ref().filter(|process| process.node.is_complete());
                process.and_then(|process| process.node.status().group_id)
            };
            // Where all others have forgotten the first one they have joined this.
            let mine = group(&self.machines[machine]);
            let is_elsewhere = |other: &super::Machine| group(other).is_some_and(|other| Some(other) != mine);
            if is_complete && self.machines.iter().any(is_elsewhere) {
                let name = self.machines[machine].name.clone();
                let text = format!("{name} has founded a second group, grants, and has long been reached by the first");
                return self.note(Some(Violation { property: "stray", text }));
            }
            let here = &mut self.machines[machine];
            (here.is_stray, here.is_obsolete) = (false, true);
            self.wipe(machine);
        }
    }

    pub(super) fn note_settings(&mut self, machine: usize) {
        let settings = self.plan.settings(machine, self.machines[machine].founds);
        if settings != (super::Plan { odd: Default::default(), ..self.plan.clone() }).settings(machine, true) {
            self.count(FaultKind::Settings);
        }
        self.machines[machine].settings = settings;
    }

    /// The disk of a machine that was cut off from its directory takes nothing.
    pub(super) fn empty_disk(&mut self, machine: usize) {
        self.machines[machine].disk = Disk::default();
    }
}
