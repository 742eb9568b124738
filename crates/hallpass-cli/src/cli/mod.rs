//! The commands, their help texts, and their arguments.

mod lab;

use clap::{Parser, Subcommand};

use crate::group::{AgentArgs, ChildArgs, ClientArgs, DemoArgs, HoldArgs, InitArgs};

pub(crate) use lab::{
    CheckArgs, ClaimsArgs, Format, LabCommand, RunArgs, Size, SwarmArgs, SweepArgs, TraceArgs, WorldArgs,
};

/// Distributed mutual exclusion by messages alone
#[derive(Debug, Parser)]
#[command(
    name = "hallpass",
    version,
    arg_required_else_help = false,
    after_help = "Examples:\n  hallpass demo\n  hallpass run nightly-backup -- ./backup.sh\n  hallpass lab run --protocol ricart-agrawala --nodes 5"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Let real nodes on loopback contend for locks, watched from outside
    #[command(
        after_help = "Exit code: 0, or 1 if two nodes held a lock at once or a fence did not rise.\n\nExample: hallpass demo --nodes 5 --seconds 3"
    )]
    Demo(DemoArgs),
    /// Run a command while holding a lock
    #[command(after_help = RUN_HELP)]
    Run(HoldArgs),
    /// Run a node for the processes of this machine
    #[command(after_help = AGENT_HELP)]
    Agent(AgentArgs),
    /// Create keys and configurations for a group
    #[command(after_help = "Example: hallpass init --names a,b,c --out group")]
    Init(InitArgs),
    /// List the locks that are held, waited for or cached on the agent's node
    #[command(after_help = "Example: hallpass locks --json")]
    Locks(ClientArgs),
    /// List the members of the agent's group
    #[command(after_help = "Example: hallpass members")]
    Members(ClientArgs),
    /// Show the agent's status
    #[command(after_help = "Example: hallpass status")]
    Status(ClientArgs),
    /// End the agent
    #[command(after_help = "Example: hallpass leave --socket a/agent.sock")]
    Leave(ClientArgs),
    #[command(name = "__child", hide = true)]
    Child(ChildArgs),
    /// The laboratory: simulate, explore, draw, and measure what the papers claim
    #[command(arg_required_else_help = false, after_help = "Example: hallpass lab claims --only RA-1")]
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
    /// Measure hallpass against raw sockets and other lock services
    #[command(after_help = crate::bench::HELP, disable_help_flag = true)]
    Bench(crate::bench::BenchArgs),
}

const RUN_HELP: &str = "\
The command gets HALLPASS_LOCK, HALLPASS_FENCE and HALLPASS_NODE in its environment.
As with flock(1), a process that the command leaves running keeps the lock until it ends; if the
agent ends first, nothing stops that process.

The agent is the one of --socket, else that of HALLPASS_CONFIG or of the machine's configuration,
else one that listens at a default socket. Without any of these a private agent is started, so that
several 'run's of this user exclude each other.

Exit code: the command's own (128+n on signal n, 127 not found, 126 not executable), or
  64 wrong usage   69 no agent answers   75 the lock was not free (--try, --timeout)
  76 the lock was lost and the command stopped

Examples:
  hallpass run nightly-backup -- ./backup.sh
  hallpass run deploy --try -- make deploy
  hallpass run report --shared --timeout 30s -- ./report.sh --all";

const AGENT_HELP: &str = "\
Flags take precedence over environment variables, those over the configuration file, that over the
defaults. HALLPASS_LOG sets how much is logged: error, warn, info, debug, trace.

The members are a fixed list: locks are granted once all of them have connected, and a member that
was restarted is refused until all have been. What must outlive the agent, so that fences rise, is
kept in --data, or beside the socket. --ttl is how long clients may outlive an agent that was killed.

Examples:
  hallpass agent --config group/a/hallpass.toml
  hallpass agent --name a --listen 127.0.0.1:7400 --peers 127.0.0.1:7400,127.0.0.1:7401";
