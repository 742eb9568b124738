//! All commands but `lab` and `bench`: they run nodes of real groups, or ask an agent that does.

mod agent;
mod args;
mod certificates;
mod change;
mod client;
mod config;
mod demo;
mod hold;
mod init;
mod log;
mod paths;
mod private_agent;
mod run;
mod supervisor;
mod token;

pub(crate) use agent::agent;
pub(crate) use args::{
    AgentArgs, BreakArgs, ChildArgs, ClassCommand, ClientArgs, DemoArgs, EvictArgs, GroupArgs, InitArgs, JoinArgs,
    LocksArgs, RecoverArgs, RunArgs, SupervisorArgs, TokenCommand,
};
pub(crate) use change::{break_lock, class, evict, join, leave, recover};
pub(crate) use client::{locks, members, status};
pub(crate) use demo::demo;
pub(crate) use init::init;
pub(crate) use run::run;
pub(crate) use supervisor::{child, supervise};
pub(crate) use token::token;

use crate::exit::Fault;

/// Creates a runtime for the whole command.
fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::Failed(format!("cannot start threads: {error}")))
}
