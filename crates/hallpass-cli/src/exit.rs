//! Exit codes, and the one line on stderr that goes with those that are errors.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use hallpass_lab::LabError;

use crate::{terminal, usage};

/// How a command that did its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Fine,
    /// Something that must not happen did, or a claim is off: exit code 1.
    Violated,
    /// An exploration stopped before its end: exit code 2.
    Incomplete,
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The user asked for something that cannot be: exit code 64.
    Usage(String),
    /// Something on this machine did not do its part: exit code 69.
    Unavailable(String),
    /// Output cannot be written, to a file or to stdout: exit code 74.
    Write {
        /// The file's name, or `stdout`.
        target: String,
        /// What the system says.
        error: io::Error,
    },
}

/// As in sysexits.h.
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const SOFTWARE: i32 = 70;
const IO: u8 = 74;

impl From<LabError> for Fault {
    fn from(error: LabError) -> Self {
        Self::Usage(error.0)
    }
}

/// The exit code for what came of a command; a fault says its line first.
pub(crate) fn code(result: Result<Outcome, Fault>, args: &[OsString]) -> ExitCode {
    match result {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Violated) => ExitCode::from(1),
        Ok(Outcome::Incomplete) => ExitCode::from(2),
        Err(Fault::Usage(why)) => {
            terminal::complain(&format!("{why} (see '{} --help')", usage::command_of(args)));
            ExitCode::from(USAGE)
        }
        Err(Fault::Unavailable(why)) => {
            terminal::complain(&why);
            ExitCode::from(UNAVAILABLE)
        }
        Err(Fault::Write { target, error }) => {
            terminal::complain(&format!("cannot write {target}: {error}"));
            ExitCode::from(IO)
        }
    }
}

/// A panic is a bug of ours, and a backtrace is of no use to whoever meets it: one line, and the place to report it by.
pub(crate) fn on_panic_say_one_line() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |location| format!(" at {location}"));
        let payload = panic.payload();
        let owned = payload.downcast_ref::<String>().map(String::as_str);
        let why = payload.downcast_ref::<&str>().copied().or(owned).unwrap_or("a panic");
        terminal::complain(&format!("internal error{place}: {why}; this is a bug of hallpass, please report it"));
        std::process::exit(SOFTWARE);
    }));
}
