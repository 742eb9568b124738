//! The process between `run` and its command: it makes sure that the command dies with `run`, and becomes the command.

use std::io::ErrorKind;
use std::process::Command;

use super::args::ChildArgs;
use crate::exit::{Fault, NOT_EXECUTABLE, NOT_FOUND, Outcome};
use crate::{os, terminal};

pub(crate) fn child(args: &ChildArgs) -> Result<Outcome, Fault> {
    if !os::die_with_parent(args.parent) {
        return Ok(Outcome::Code(1));
    }
    let Some((program, words)) = args.command.split_first() else { return Ok(Outcome::Code(NOT_FOUND)) };
    let error = os::exec(Command::new(program).args(words));
    terminal::error(&format!("cannot run '{}': {error}", program.to_string_lossy()));
    Ok(Outcome::Code(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }))
}
