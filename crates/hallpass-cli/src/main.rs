//! The `hallpass` command: arguments in, text or JSON and an exit code out.

mod bench;
mod cli;
mod exit;
mod group;
mod install;
mod lab;
mod man;
mod os;
mod terminal;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    exit::report_panics_in_one_line();
    let args: Vec<OsString> = std::env::args_os().collect();
    let result = match usage::parse(&args) {
        Ok(cli) => match cli.command {
            Command::Demo(args) => group::demo(&args),
            Command::Run(args) => group::run(&args),
            Command::Agent(args) => group::agent(&args),
            Command::Init(args) => group::init(&args),
            Command::Locks(args) => group::locks(&args),
            Command::Members(args) => group::members(&args),
            Command::Status(args) => group::status(&args),
            Command::Join(args) => group::join(&args),
            Command::Leave(args) => group::leave(&args),
            Command::Evict(args) => group::evict(&args),
            Command::Break(args) => group::break_lock(&args),
            Command::Class { command } => group::class(&command),
            Command::Token { command } => group::token(&command),
            Command::Recover(args) => group::recover(&args),
            Command::Supervisor(args) => group::supervise(&args),
            Command::Child(args) => group::child(&args),
            Command::Lab { command } => lab::run(&command),
            Command::Bench(args) => bench::run(&args),
            Command::Completions(args) => install::completions(&args),
            Command::Man(args) => install::man(&args),
        },
        Err(error) => usage::answer(&error, &args),
    };
    exit::code(result, &args)
}
