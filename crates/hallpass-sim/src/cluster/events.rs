//! What happens in a run, and who must be there for it.

use hallpass_node::{Ticket, Write};

use super::World;
use super::faults::Fault;
use super::processes::Machine;

#[derive(Debug)]
pub(super) enum Event {
    /// Bytes arrive at one end of a connection.
    Arrive {
        connection: usize,
        end: usize,
        bytes: Vec<u8>,
    },
    /// One end of a connection notices that it is broken.
    Notice {
        connection: usize,
        end: usize,
    },
    /// A process makes the connections that it lacks.
    Connect {
        machine: usize,
        life: u64,
    },
    /// A connection that did not take all bytes takes more.
    Writable {
        machine: usize,
        life: u64,
    },
    Timeout {
        machine: usize,
        life: u64,
    },
    /// The thread that writes takes what there is.
    Taken {
        machine: usize,
        life: u64,
    },
    /// A disk has carried out what was being written.
    Synced {
        machine: usize,
        life: u64,
    },
    /// The process hears of it.
    Persisted {
        machine: usize,
        life: u64,
        write: Write,
    },
    Acquire {
        caller: usize,
    },
    Cancel {
        caller: usize,
        round: u32,
    },
    Release {
        caller: usize,
        round: u32,
    },
    /// A guard is dropped whose lock was lost before.
    DropGuard {
        machine: usize,
        life: u64,
        ticket: Ticket,
    },
    Fault(Fault),
    Resume {
        machine: usize,
    },
    Restart {
        machine: usize,
    },
    /// An operator empties the directory of a node whose group was lost.
    Wipe {
        machine: usize,
    },
    FreeSpace {
        machine: usize,
    },
    /// A process that is still there is ended.
    Kill {
        machine: usize,
        life: u64,
    },
    /// The faults are over.
    Heal,
    /// Whether everything is as it should be after the faults.
    Check,
}

impl World {
    pub(super) fn handle(&mut self, event: Event) {
        if let Some((machine, life)) = self.owner(&event) {
            let Machine { process, paused, held_back, life: current, .. } = &mut self.machines[machine];
            if process.is_none() || life.is_some_and(|life| life != *current) {
                if let Event::Acquire { caller } = event {
                    self.ask_later(caller);
                }
                return;
            }
            if *paused {
                return held_back.push(event);
            }
        }
        match event {
            Event::Arrive { connection, end, bytes } => self.on_arrive(connection, end, &bytes),
            Event::Notice { connection, end } => self.on_notice(connection, end),
            Event::Connect { machine, .. } => self.on_connect(machine),
            Event::Writable { machine, .. } => self.with_node(machine, |node, now| node.handle_writable(now)),
            Event::Timeout { machine, .. } => self.on_timeout(machine),
            Event::Taken { machine, life } => self.take_writes(machine, life, usize::MAX),
            Event::Synced { machine, life } => self.on_synced(machine, life),
            Event::Persisted { machine, write, .. } => {
                self.with_node(machine, |node, now| node.handle_persisted(write, now));
            }
            Event::Acquire { caller } => self.on_acquire(caller),
            Event::Cancel { caller, round } => self.on_cancel(caller, round),
            Event::Release { caller, round } => self.on_release(caller, round),
            Event::DropGuard { machine, ticket, .. } => {
                // It is not known any more, or has not been released yet: both are fine.
                self.with_node(machine, |node, now| {
                    node.handle_release(ticket, now);
                });
            }
            Event::Fault(fault) => self.on_fault(fault),
            Event::Resume { machine } => self.resume(machine),
            Event::Restart { machine } => self.restart(machine),
            Event::Wipe { machine } => self.wipe(machine),
            Event::FreeSpace { machine } => {
                self.machines[machine].disk.is_full = false;
                self.restart(machine);
            }
            Event::Kill { machine, life } => {
                if self.machines[machine].life == life && self.machines[machine].process.is_some() {
                    self.end_process(machine);
                }
            }
            Event::Heal => self.on_heal(),
            Event::Check => self.on_check(),
        }
    }

    /// The machine, and which of its processes, that must be running for this event.
    pub(super) fn owner(&self, event: &Event) -> Option<(usize, Option<u64>)> {
        match event {
            Event::Arrive { connection, end, .. } | Event::Notice { connection, end } => {
                let end = &self.connections[*connection].ends[*end];
                Some((end.machine, Some(end.life)))
            }
            Event::Connect { machine, life }
            | Event::Writable { machine, life }
            | Event::Timeout { machine, life }
            | Event::Persisted { machine, life, .. }
            | Event::DropGuard { machine, life, .. } => Some((*machine, Some(*life))),
            Event::Acquire { caller } | Event::Cancel { caller, .. } | Event::Release { caller, .. } => {
                Some((self.callers[*caller].machine, None))
            }
            _ => None,
        }
    }

    /// By which way an event gets to the process: what the disk's thread says, the clock, each connection, and each caller.
    pub(super) fn way(&self, event: &Event) -> (u64, usize) {
        match event {
            Event::Persisted { .. } => (0, 0),
            Event::Timeout { .. } | Event::Connect { .. } | Event::Writable { .. } => (1, 0),
            Event::Arrive { connection, .. } | Event::Notice { connection, .. } => (2, *connection),
            Event::Acquire { caller } | Event::Cancel { caller, .. } | Event::Release { caller, .. } => (3, *caller),
            _ => (4, 0),
        }
    }
}
