//! Between `run` and its command: a moment in which the process ties its life to its parent's, and becomes the command.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::args::ChildArgs;
use crate::exit::{Fault, Outcome};
use crate::terminal;

pub(super) fn child(args: &ChildArgs) -> Result<Outcome, Fault> {
    let tied = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    // A parent that died before that has left this process to another.
    if !tied || getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != args.parent) {
        return Ok(Outcome::Code(1));
    }
    let Some((program, words)) = args.command.split_first() else { return Ok(Outcome::Code(127)) };
    let error = Command::new(program).args(words).exec();
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    terminal::complain(&format!("cannot run '{}': {error}", program.to_string_lossy()));
    Ok(Outcome::Code(code))
}
