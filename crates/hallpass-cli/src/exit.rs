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
    /// A guarantee was violated, or a claim does not hold: exit code 1.
    Violated,
    /// An exploration stopped before its end: exit code 2.
    Incomplete,
    /// Another program's exit code.
    Code(u8),
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The arguments are wrong: exit code 64.
    Usage(String),
    /// The command failed: exit code 1.
    Failed(String),
    /// No agent answers: exit code 69.
    Unavailable(String),
    /// Failed, with another exit code.
    Code(u8, String),
    /// Output cannot be written, to a file or to stdout: exit code 74.
    Write {
        /// The file's name, or `stdout`.
        target: String,
        /// The system's error.
        error: io::Error,
    },
}

// As in sysexits.h.
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const SOFTWARE: i32 = 70;
const IO: u8 = 74;
/// A temporary failure: the lock is not free, or another agent runs already.
pub(crate) const TEMPORARY: u8 = 75;
/// Beyond sysexits.h: the lock was lost while the command ran.
pub(crate) const LOCK_LOST: u8 = 76;
// As in shells.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

impl From<LabError> for Fault {
    fn from(error: LabError) -> Self {
        Self::Usage(error.0)
    }
}

/// The exit code for a command's result. A fault is reported on stderr first.
pub(crate) fn code(result: Result<Outcome, Fault>, args: &[OsString]) -> ExitCode {
    match result {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Violated) => ExitCode::from(1),
        Ok(Outcome::Incomplete) => ExitCode::from(2),
        Ok(Outcome::Code(code)) => ExitCode::from(code),
        Err(fault) => {
            let (code, line) = match fault {
                Fault::Usage(why) => (USAGE, format!("{why} (see '{} --help')", usage::command_of(args))),
                Fault::Failed(why) => (1, why),
                Fault::Unavailable(why) => (UNAVAILABLE, why),
                Fault::Code(code, why) => (code, why),
                Fault::Write { target, error } => (IO, format!("cannot write {target}: {error}")),
            };
            terminal::error(&line);
            ExitCode::from(code)
        }
    }
}

/// Reports a panic as one line with its place in the source. It is a bug of ours, and a backtrace is of no use to users.
pub(crate) fn report_panics_in_one_line() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |location| format!(" at {location}"));
        let payload = panic.payload();
        let owned = payload.downcast_ref::<String>().map(String::as_str);
        let why = payload.downcast_ref::<&str>().copied().or(owned).unwrap_or("a panic");
        terminal::error(&format!("internal error{place}: {why}; this is a bug of hallpass, please report it"));
        std::process::exit(SOFTWARE);
    }));
}

/// For work that catches its own panics and reports more about them than this could.
pub(crate) fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Runs itself as a process of its own, in which a thread beside the first one panics.
    #[test]
    fn a_panic_anywhere_ends_the_process_with_one_line() {
        const PANICS: &str = "HALLPASS_TEST_PANICS";
        if std::env::var_os(PANICS).is_some() {
            super::report_panics_in_one_line();
            let _ = std::thread::spawn(|| panic!("on purpose")).join();
            return;
        }
        let this = std::env::current_exe().unwrap();
        let name = "exit::tests::a_panic_anywhere_ends_the_process_with_one_line";
        let ended = Command::new(this).args([name, "--exact", "--nocapture"]).env(PANICS, "1").output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(super::SOFTWARE), "{said}");
        let [line] = said.lines().collect::<Vec<_>>()[..] else { panic!("one line: {said}") };
        assert!(line.contains("internal error at crates/hallpass-cli/src/exit.rs:"), "{line}");
        assert!(line.contains("on purpose; this is a bug of hallpass"), "{line}");
    }
}
