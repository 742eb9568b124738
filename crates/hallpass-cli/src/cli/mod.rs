//! The commands, their help texts, and their arguments.

mod lab;

use clap::{Parser, Subcommand};

use crate::group::{AgentArgs, ChildArgs, ClientArgs, DemoArgs, HoldArgs, InitArgs, KeeperArgs, LocksArgs};
use crate::install::{CompletionsArgs, ManArgs};

pub(crate) use lab::{
    CheckArgs, ClaimsArgs, Format, LabCommand, RunArgs, Size, SwarmArgs, SweepArgs, TraceArgs, WorldArgs,
};

/// Distributed mutual exclusion by messages alone
#[derive(Debug, Parser)]
#[command(
    name = "hallpass",
    version,
    arg_required_else_help = false,
    // Also where help goes to a file or a pipe.
    max_term_width = 80,
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
    /// Create keys and configurations for a group, or renew its certificates
    #[command(
        after_help = "Examples:\n  hallpass init --names a,b,c --out group\n  hallpass init --names a,b,c --out group --loopback    # to try it here\n  hallpass init --renew group --names a"
    )]
    Init(InitArgs),
    /// List the locks that are held, waited for or cached on the agent's node
    #[command(after_help = "Example: hallpass locks --json")]
    Locks(LocksArgs),
    /// List the members of the agent's group
    #[command(after_help = "Example: hallpass members")]
    Members(ClientArgs),
    /// Show the agent's status
    #[command(after_help = "Example: hallpass status")]
    Status(ClientArgs),
    /// End the agent
    #[command(after_help = "Example: hallpass leave --socket a/agent.sock")]
    Leave(ClientArgs),
    #[command(name = "__keeper", hide = true)]
    Keeper(KeeperArgs),
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
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
    /// Print the man page, or write one for each command
    #[command(after_help = "Examples:\n  hallpass man | man -l -\n  hallpass man --out ~/.local/share/man/man1")]
    Man(ManArgs),
}

const RUN_HELP: &str = "\
The command gets HALLPASS_LOCK, HALLPASS_FENCE and HALLPASS_NODE in its environment. \
As with flock(1), a process that the command leaves running keeps the lock until it ends; \
if the agent ends first, that process is stopped.

The agent is the one of --socket, else that of HALLPASS_CONFIG or of the machine's configuration, \
else this user's, else the machine's. Where none belongs, a private agent is started, so that \
several 'run's of this user exclude each other; never where an agent of a group belongs.

Exit code: the command's own (128+n on signal n, 127 not found, 126 not executable), or
  64  wrong usage
  69  no agent answers
  75  the lock was not free (--try, --timeout)
  76  the lock was lost and the command stopped

Examples:
  hallpass run nightly-backup -- ./backup.sh
  hallpass run deploy --try -- make deploy
  hallpass run report --shared --timeout 30s -- ./report.sh --all";

const AGENT_HELP: &str = "\
Flags take precedence over environment variables, those over the configuration file, that over the \
defaults. HALLPASS_LOG sets how much is logged: error, warn, info, debug, trace.

The members are a fixed list: locks are granted once all of them have connected, and a member that \
was restarted is refused until all have been. What must outlive the agent, so that fences rise, is \
kept in --data, by default in a place that follows from the user. --ttl is how long clients may outlive an agent that was killed.

Examples:
  hallpass agent --config group/a/hallpass.toml
  hallpass agent --name a --listen 127.0.0.1:7400 \\
      --peers 127.0.0.1:7400,127.0.0.1:7401";

const COMPLETIONS_HELP: &str = "\
Examples:
  source <(hallpass completions bash)    # in ~/.bashrc
  hallpass completions zsh > ~/.zfunc/_hallpass
  hallpass completions fish > ~/.config/fish/completions/hallpass.fish";
