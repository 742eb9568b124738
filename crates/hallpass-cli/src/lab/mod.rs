//! `hallpass lab`: prints the results of the laboratory's functions for people or as JSON.

mod budget;
mod check;
mod claims;
mod run;
mod serve;
mod states;
mod swarm;
mod sweep;
mod trace;
mod warnings;

use crate::cli::LabCommand;
use crate::exit::{Fault, Outcome};

pub(crate) fn run(command: &LabCommand) -> Result<Outcome, Fault> {
    match command {
        LabCommand::Run(args) => run::run(args),
        LabCommand::Claims(args) => claims::run(args),
        LabCommand::Check(args) => check::run(args),
        LabCommand::Trace(args) => trace::run(args),
        LabCommand::States(args) => states::run(args),
        LabCommand::Sweep(args) => sweep::run(args),
        LabCommand::Swarm(args) => swarm::run(args),
        LabCommand::Serve(args) => serve::run(args),
    }
}
