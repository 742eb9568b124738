//! Real groups: `demo`, `init`, `agent`, `run`, and requests to an agent.

mod agent;
mod args;
mod certificates;
mod change;
mod client;
mod config;
mod demo;
mod hold;
mod init;
mod keeper;
mod log;
mod paths;
mod private_agent;
mod run;
mod token;

pub(crate) use agent::agent;
pub(crate) use args::{
    AgentArgs, BreakArgs, ChildArgs, ClassCommand, ClientArgs, DemoArgs, EvictArgs, GroupArgs, HoldArgs, InitArgs,
    JoinArgs, KeeperArgs, LocksArgs, RecoverArgs, TokenCommand,
};
pub(crate) use change::{break_lock, class, evict, join, leave, recover};
pub(crate) use client::{locks, members, status};
pub(crate) use demo::demo;
pub(crate) use init::init;
pub(crate) use keeper::{child, keep};
pub(crate) use run::run;
pub(crate) use token::token;

use crate::exit::Fault;

/// A runtime for the whole command.
fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::Failed(format!("cannot start threads: {error}")))
}
