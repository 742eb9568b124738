//! The command, and all the processes that it started.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::process::Command;

use crate::commands::args::{ChildArgs, SupervisorArgs};
use crate::commands::private_agent;
use crate::exit::{Fault, NOT_EXECUTABLE, NOT_FOUND, Outcome};
use crate::os::{Process, ReceivedSignal};
use crate::{os, terminal};

/// The command of a supervisor and its descendants. A private agent that one of them started is not among them: it serves others too.
pub(super) struct ProcessTree {
    /// `None` once it has ended: its process id may belong to another process by now.
    command: Option<Process>,
}

impl ProcessTree {
    /// Starts the command, and returns its process for the thread that reaps it.
    pub(super) fn start(args: &SupervisorArgs, input: OwnedFd) -> std::io::Result<(Self, Process)> {
        let child = os::this_program_again()?
            .args(["__child", &std::process::id().to_string(), "--"])
            .args(&args.command)
            .stdin(input)
            .spawn()?;
        let command = Process::of(&child);
        Ok((Self { command: Some(command) }, command))
    }

    /// The command has ended and is reaped. What it started may still run.
    pub(super) fn on_exit(&mut self) {
        self.command = None;
    }

    /// Sends SIGTERM to the command, unless it has ended.
    pub(super) fn terminate(&self) {
        if let Some(command) = self.command {
            command.terminate();
        }
    }

    /// Passes a signal on to the command, unless it has ended.
    pub(super) fn forward(&self, signal: ReceivedSignal) {
        if let Some(command) = self.command {
            command.forward(signal);
        }
    }

    /// Kills everything: the command, unless it has ended, and what it started. Returns when nothing is left.
    pub(super) fn kill(&self) {
        if let Some(command) = self.command {
            command.kill();
        }
        os::kill_descendants_except(&private_agent::ARGS, &[], None);
    }

    /// True if the command, or something that it started, may still be running.
    pub(super) fn is_running(&self) -> bool {
        os::any_descendant_except(&private_agent::ARGS, &[])
    }
}

/// The process that becomes the command. It dies with the supervisor.
pub(crate) fn child(args: &ChildArgs) -> Result<Outcome, Fault> {
    if !os::die_with_parent(args.parent) {
        return Ok(Outcome::Code(1));
    }
    let Some((program, words)) = args.command.split_first() else { return Ok(Outcome::Code(NOT_FOUND)) };
    let error = os::exec(Command::new(program).args(words));
    terminal::error(&format!("cannot run '{}': {error}", program.to_string_lossy()));
    Ok(Outcome::Code(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }))
}
