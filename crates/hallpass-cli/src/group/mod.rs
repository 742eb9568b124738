//! Real groups: `demo`, `init`, `agent`, `run`, and questions to an agent.

mod agent;
mod args;
mod ask;
mod child;
mod config;
mod demo;
mod init;
mod paths;
mod run;

pub(crate) use args::{AgentArgs, AskArgs, ChildArgs, DemoArgs, HoldArgs, InitArgs};

use crate::exit::{Fault, Outcome};

pub(crate) fn demo(args: &DemoArgs) -> Result<Outcome, Fault> {
    demo::demo(args)
}

pub(crate) fn init(args: &InitArgs) -> Result<Outcome, Fault> {
    init::init(args)
}

pub(crate) fn agent(args: &AgentArgs) -> Result<Outcome, Fault> {
    agent::agent(args)
}

pub(crate) fn run(args: &HoldArgs) -> Result<Outcome, Fault> {
    run::run(args)
}

pub(crate) fn child(args: &ChildArgs) -> Result<Outcome, Fault> {
    child::child(args)
}

pub(crate) fn locks(args: &AskArgs) -> Result<Outcome, Fault> {
    ask::locks(args)
}

pub(crate) fn members(args: &AskArgs) -> Result<Outcome, Fault> {
    ask::members(args)
}

pub(crate) fn status(args: &AskArgs) -> Result<Outcome, Fault> {
    ask::status(args)
}

pub(crate) fn leave(args: &AskArgs) -> Result<Outcome, Fault> {
    ask::leave(args)
}

/// A runtime for what the command does; the machine has threads to spare or nothing works.
fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::Failed(format!("cannot start threads: {error}")))
}
