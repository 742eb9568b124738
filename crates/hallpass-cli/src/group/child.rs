//! Between `run` and its command: a moment in which the process ties its life to its parent's, and becomes the command.

use std::io::ErrorKind;
use std::process::Command;

use super::args::ChildArgs;
use crate::exit::{Fault, Outcome};
use crate::{os, terminal};

pub(super) fn child(args: &ChildArgs) -> Result<Outcome, Fault> {
    if !os::die_with_parent(args.parent) {
        return Ok(Outcome::Code(1));
    }
    let Some((program, words)) = args.command.split_first() else { return Ok(Outcome::Code(127)) };
    let error = os::exec(Command::new(program).args(words));
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    terminal::complain(&format!("cannot run '{}': {error}", program.to_string_lossy()));
    Ok(Outcome::Code(code))
}
