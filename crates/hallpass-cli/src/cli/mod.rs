//! The commands, their help texts, and their arguments.

mod lab;
mod settings;

use clap::{Parser, Subcommand};

use crate::group::{
    AgentArgs, BreakArgs, ChildArgs, ClassCommand, ClientArgs, DemoArgs, EvictArgs, GroupArgs, HoldArgs, InitArgs,
    JoinArgs, KeeperArgs, LocksArgs, RecoverArgs, TokenCommand,
};
use crate::install::{CompletionsArgs, ManArgs};

pub(crate) use lab::{
    CheckArgs, ClaimsArgs, Format, LabCommand, RunArgs, ServeArgs, Size, SwarmArgs, SweepArgs, TraceArgs,
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
    Agent(Box<AgentArgs>),
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
    /// Let an agent that is alone join a group
    #[command(after_help = JOIN_HELP)]
    Join(JoinArgs),
    /// Let the agent leave its group for good, and end it
    #[command(after_help = LEAVE_HELP)]
    Leave(GroupArgs),
    /// Remove a member from the group
    #[command(after_help = EVICT_HELP)]
    Evict(EvictArgs),
    /// Take a lock from whoever holds it
    #[command(after_help = BREAK_HELP)]
    Break(BreakArgs),
    /// Change the protocols of locks
    #[command(arg_required_else_help = false, after_help = "Example: hallpass class set reports/ naimi-trehel")]
    Class {
        #[command(subcommand)]
        command: ClassCommand,
    },
    /// Make tokens for the agent's API
    #[command(
        arg_required_else_help = false,
        after_help = "Example: hallpass token new --name ci --rights acquire,inspect --prefix ci/"
    )]
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Found a group again that has lost its majority for good
    #[command(after_help = RECOVER_HELP)]
    Recover(RecoverArgs),
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

Without --peers and --join a new agent is a group of one; 'hallpass join' makes it a member of \
another. With --peers all that are listed found a group together, as soon as they have found each \
other; later on the list only helps to find it. An agent that is stopped, or fails, comes back by \
itself when it is started again: what it must not forget is kept in --data, by default in a place \
that follows from the user.

Other programs use the API: HTTP with JSON at --api and at a Unix socket, with events, metrics and \
a dashboard. On loopback every user of the machine may use --api, unless there are --api-tokens; \
anywhere else it needs those, and TLS.

Examples:
  hallpass agent --config group/a/hallpass.toml
  hallpass agent --api 127.0.0.1:7500
  hallpass agent --name d --listen 127.0.0.1:7403 --join 127.0.0.1:7400
  hallpass agent --name a --listen 127.0.0.1:7400 \\
      --peers 127.0.0.1:7400,127.0.0.1:7401";

const JOIN_HELP: &str = "\
The agent gives up its own group of one, and becomes a new member: it must not hold any locks. \
It stays a member over restarts.

Exit code: 69 if it has not become one in time; it goes on trying then.

Example: hallpass join 127.0.0.1:7400";

const LEAVE_HELP: &str = "\
Commands that hold locks through the agent are stopped first, and its vote goes to another member. \
To stop an agent that will be back, send it SIGTERM: it keeps its vote.

Exit code: 69 if the group has not let it go in time; the agent has ended, but is still expected.

Example: hallpass leave --socket a/agent.sock";

const EVICT_HELP: &str = "\
It loses its vote, and what it holds once its session has run out. Without --ban it joins again if \
its agent runs. --admit undoes a --ban.

Exit code: 69 if it has not taken effect in time.

Examples:
  hallpass evict b --ban
  hallpass evict b --admit";

const BREAK_HELP: &str = "\
Commands under it get SIGTERM, then their grace, then SIGKILL, on whatever member they run. Others \
who wait for it get it next.

Exit code: 69 if it has not taken effect in time.

Example: hallpass break nightly-backup";

const RECOVER_HELP: &str = "\
Only if more than half of the members that vote are lost for good, with their data: then nothing \
is decided any more. Make sure that no other member runs. The survivor becomes a group of one, with \
fences above all that the group can have given; the others join it with empty data directories.

Example: hallpass recover --data /var/lib/hallpass/data";

const COMPLETIONS_HELP: &str = "\
Examples:
  source <(hallpass completions bash)    # in ~/.bashrc
  hallpass completions zsh > ~/.zfunc/_hallpass
  hallpass completions fish > ~/.config/fish/completions/hallpass.fish";
