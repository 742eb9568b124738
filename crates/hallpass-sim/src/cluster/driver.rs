//! What drives a node, as the library does: every output is carried out, what is written reaches the disk later, and the next timeout
//! is kept.

use hallpass_core::Ticks;
use hallpass_node::{Node, Output, Planted, Request, RequestError, Write};

use super::events::Event;
use super::faults::FaultKind;
use super::plan::MS;
use super::processes::{Ending, Machine};
use super::{Bug, World};
use crate::oracle::Violation;

/// No node needs more timeouts at one instant.
const TIMEOUTS_MAX: u32 = 1000;

impl World {
    // ---- the driver ----

    /// What the machine's clock shows.
    pub(super) fn local(&self, machine: usize) -> Ticks {
        self.machines[machine].clock.at(self.now)
    }

    pub(super) fn with_node(&mut self, machine: usize, input: impl FnOnce(&mut Node<u64, Planted>, Ticks)) {
        let now = self.local(machine);
        if let Some(process) = &mut self.machines[machine].process {
            input(&mut process.node, now);
            self.drain(machine);
        }
    }

    /// The driver's contract: after every input, all outputs in order, then the next timeout.
    pub(super) fn drain(&mut self, machine: usize) {
        while let Some(process) = &mut self.machines[machine].process
            && let Some(output) = process.node.poll_output()
        {
            match output {
                Output::Persist(write) => self.persist(machine, write),
                Output::Answer { caller, outcome } => self.on_answer(machine, caller, outcome),
                Output::Lapsed => self.on_lapsed(machine),
                Output::Lost(ticket) => self.on_lost(machine, ticket),
                Output::Revoked { ticket, .. } => self.on_revoked(machine, ticket),
                Output::Done { token, result } => self.on_done(machine, token, &result),
                Output::Ordered(_) => {}
                Output::View => self.on_view(machine),
                Output::Disconnect(peer) => self.disconnect(machine, peer),
                Output::Refuse(peer) => self.refuse(machine, peer),
                Output::Denied { .. } => {}
                Output::Control { to, bytes } => self.send_control(machine, to, bytes),
                Output::Transmit(peer) => self.transmit(machine, peer),
                other => unreachable!("the simulator does not know {other:?}"),
            }
        }
        self.watch(machine);
        self.note_change(machine);
        let Machine { process, clock, life, .. } = &mut self.machines[machine];
        let Some(process) = process else { return };
        if let Some(local) = process.node.poll_timeout() {
            let at = clock.when(local).max(self.now);
            if process.timeout.is_none_or(|timeout| at < timeout) {
                process.timeout = Some(at);
                self.queue.push(at, Event::Timeout { machine, life: *life });
            }
        }
    }

    pub(super) fn on_timeout(&mut self, machine: usize) {
        let process = self.machines[machine].process.as_mut().expect("it runs");
        // One that was scheduled before an earlier one was needed comes a second time.
        if process.timeout.take_if(|timeout| *timeout <= self.now).is_none() {
            return;
        }
        let (last, count) = process.timeouts;
        process.timeouts = (self.now, if last == self.now { count + 1 } else { 0 });
        if count > TIMEOUTS_MAX {
            let text =
                format!("node {} asks for a timeout again and again, and time does not go on", process.node.id());
            self.note(Some(Violation { property: "timeout", text }));
        }
        self.with_node(machine, |node, now| node.handle_timeout(now));
    }

    /// Gives a write to the thread that writes. It is idle or at work: then the write waits with others for its turn.
    pub(super) fn persist(&mut self, machine: usize, write: Write) {
        let (life, is_cut_off) = (self.machines[machine].life, self.machines[machine].is_cut_off);
        if is_cut_off {
            return;
        }
        if self.bug == Some(Bug::SendBeforeSync) {
            self.queue.push(self.now, Event::Persisted { machine, life, write: write.clone() });
        }
        self.machines[machine].disk.submit(write);
        if self.machines[machine].disk.may_take() {
            // It may be as quick as to take the first alone.
            if self.rng.chance(0.2) {
                self.take_writes(machine, life, 1);
            } else {
                self.queue.push(self.now, Event::Taken { machine, life });
            }
        }
    }

    pub(super) fn take_writes(&mut self, machine: usize, life: u64, most: usize) {
        let here = &mut self.machines[machine];
        if here.life != life || here.process.is_none() || !here.disk.may_take() {
            return;
        }
        here.disk.take(most);
        let slow = if self.now < here.slow_until { self.rng.below(3000 * MS) } else { 0 };
        let takes = self.plan.sync / 2 + self.rng.exponential(self.plan.sync as f64 / 2.0) as Ticks;
        self.queue.push(self.now + takes + slow, Event::Synced { machine, life });
    }

    pub(super) fn on_synced(&mut self, machine: usize, life: u64) {
        let here = &self.machines[machine];
        if here.life != life || here.process.is_none() || here.is_cut_off {
            return;
        }
        if here.disk.is_full {
            return self.crash(machine, false);
        }
        if std::mem::take(&mut self.machines[machine].disk.tears_next) && self.may_lose_disk(machine) {
            self.count(FaultKind::DiskTorn);
            return self.crash(machine, true);
        }
        let writes = self.machines[machine].disk.sync();
        self.take_writes(machine, life, usize::MAX);
        if self.bug == Some(Bug::SendBeforeSync) {
            return;
        }
        // The node hears of each one separately, and of other things between them.
        let mut at = self.now;
        for (number, write) in writes.into_iter().enumerate() {
            if number > 0 && self.rng.chance(0.5) {
                at += self.rng.below(self.plan.latency);
            }
            let event = Event::Persisted { machine, life, write };
            if at == self.now { self.handle(event) } else { self.queue.push(at, event) }
        }
    }

    // ---- requests ----

    pub(super) fn request(&mut self, machine: usize, request: Request) {
        self.requests += 1;
        let token = self.requests;
        self.log(|world| format!("{} asks the group: {request:?} ({token})", world.machines[machine].name));
        if let Some(process) = &mut self.machines[machine].process {
            process.orders.insert(token, format!("{request:?}"));
        }
        self.with_node(machine, |node, now| node.handle_request(request, token, now));
    }

    pub(super) fn on_done(&mut self, machine: usize, token: u64, result: &Result<(), RequestError>) {
        self.log(|world| format!("{}: request {token}: {result:?}", world.machines[machine].name));
        self.record([7, token, u64::from(result.is_ok())]);
        let here = &mut self.machines[machine];
        if let Some(process) = &mut here.process {
            process.orders.remove(&token);
        }
        if here.ending == Some(Ending::Leaves) && here.ends_with == Some(token) && result.is_ok() {
            let members = here.process.as_ref().map_or_else(Vec::new, |process| process.node.members());
            let me = here.process.as_ref().map(|process| process.node.id());
            // Only the steward leaves without anybody who takes over, and it knows who is in the group.
            let decides = members.iter().any(|member| member.steward && Some(member.id) == me);
            self.is_over |= decides && members.iter().all(|member| !member.in_view || Some(member.id) == me);
        }
        match here.ending {
            Some(_) if result.is_ok() && here.ends_with == Some(token) => {
                self.queue.push(self.now, Event::Kill { machine, life: here.life });
            }
            Some(Ending::Leaves) if here.ends_with == Some(token) => here.ending = None,
            _ => {}
        }
    }
}
