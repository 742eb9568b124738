//! The `hallpass` command: arguments in, text or JSON and an exit code out.

mod bench;
mod cli;
mod commands;
mod exit;
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
            Command::Demo(args) => commands::demo(&args),
            Command::Run(args) => commands::run(&args),
            Command::Agent(args) => commands::agent(&args),
            Command::Init(args) => commands::init(&args),
            Command::Locks(args) => commands::locks(&args),
            Command::Members(args) => commands::members(&args),
            Command::Status(args) => commands::status(&args),
            Command::Join(args) => commands::join(&args),
            Command::Leave(args) => commands::leave(&args),
            Command::Evict(args) => commands::evict(&args),
            Command::Break(args) => commands::break_lock(&args),
            Command::Class { command } => commands::class(&command),
            Command::Token { command } => commands::token(&command),
            Command::Recover(args) => commands::recover(&args),
            Command::Supervisor(args) => commands::supervise(&args),
            Command::Child(args) => commands::child(&args),
            Command::Lab { command } => lab::run(&command),
            Command::Bench(args) => bench::run(&args),
            Command::Completions(args) => install::completions(&args),
            Command::Man(args) => install::man(&args),
        },
        Err(error) => usage::answer(&error, &args),
    };
    exit::code(result, &args)
}
