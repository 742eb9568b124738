//! The commands, their help texts, and their arguments.

mod lab;
mod settings;

use clap::{Parser, Subcommand};

use crate::commands::{
    AgentArgs, BreakArgs, ChildArgs, ClassCommand, ClientArgs, DemoArgs, EvictArgs, GroupArgs, InitArgs, JoinArgs,
    LocksArgs, RecoverArgs, RunArgs, SupervisorArgs, TokenCommand,
};
use crate::install::{CompletionsArgs, ManArgs};

pub(crate) use lab::{
    CheckArgs, ClaimsArgs, Format, LabCommand, LabRunArgs, ServeArgs, Size, StatesArgs, StatesFormat, StatesOf,
    SwarmArgs, SweepArgs, TraceArgs,
};

/// Locks across processes and machines, without a lock server
#[derive(Debug, Parser)]
#[command(
    name = "hallpass",
    version,
    arg_required_else_help = false,
    // Also where help goes to a file or a pipe.
    max_term_width = 80,
    after_help = MAIN_HELP
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start nodes on loopback that compete for locks, and check them from outside
    #[command(
        after_help = "Exit code: 0, or 1 if two nodes held a lock at the same time or a fence did not rise.\n\nExample: hallpass demo --nodes 5 --seconds 3"
    )]
    Demo(DemoArgs),
    /// Run a command while holding a lock
    #[command(override_usage = RUN_USAGE, after_help = RUN_HELP)]
    Run(RunArgs),
    /// Run an agent: a member of a group, for the processes of this machine
    #[command(after_help = AGENT_HELP)]
    Agent(Box<AgentArgs>),
    /// Create keys and configurations for a group, or renew its certificates
    #[command(
        after_help = "Examples:\n  hallpass init --names a,b,c --out group\n  hallpass init --names a,b,c --out group --loopback    # all on this machine\n  hallpass init --renew group --names a"
    )]
    Init(InitArgs),
    /// List the locks that are held, waited for or cached on this member
    #[command(after_help = "Examples:\n  hallpass locks --held\n  hallpass locks --prefix reports/ --json")]
    Locks(LocksArgs),
    /// List the members of the agent's group
    #[command(after_help = "Examples:\n  hallpass members\n  hallpass members --socket group/a/agent.sock --json")]
    Members(ClientArgs),
    /// Show the state of the agent and its session
    #[command(after_help = "Examples:\n  hallpass status\n  hallpass status --json")]
    Status(ClientArgs),
    /// Let an agent that is alone join a group
    #[command(after_help = JOIN_HELP)]
    Join(JoinArgs),
    /// Let the agent leave its group permanently, and end it
    #[command(after_help = LEAVE_HELP)]
    Leave(GroupArgs),
    /// Remove a member from the group
    #[command(after_help = EVICT_HELP)]
    Evict(EvictArgs),
    /// Take a lock away from its holders
    #[command(after_help = BREAK_HELP)]
    Break(BreakArgs),
    /// Change the protocol of a class of locks
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
    /// Recreate a group that has permanently lost its majority
    #[command(after_help = RECOVER_HELP)]
    Recover(RecoverArgs),
    // Where the program is started by its path, a 'run' that began before an upgrade asks for the old name.
    #[command(name = "__supervisor", alias = "__keeper", hide = true)]
    Supervisor(SupervisorArgs),
    #[command(name = "__child", hide = true)]
    Child(ChildArgs),
    /// The laboratory: simulate, explore and draw algorithms, and measure the papers' claims
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

const MAIN_HELP: &str = "\
Exit code: 0 on success, or
  1   the command failed, or a check found a violation
  64  wrong usage
  69  no agent can be used, or the change took too long
  70  internal error: a bug in hallpass
  74  output cannot be written
'hallpass run' has more exit codes: see 'hallpass run --help'.

Examples:
  hallpass demo
  hallpass run nightly-backup -- ./backup.sh
  hallpass lab run --protocol ricart-agrawala --nodes 5";

const RUN_USAGE: &str = "hallpass run [OPTIONS] LOCK -- COMMAND [ARG]...
       hallpass run [OPTIONS] --lock LOCK -- COMMAND [ARG]...";

const RUN_HELP: &str = "\
'run' waits until it has the lock, and then starts the command. It releases the lock when the \
command ends. As with flock(1), a process that the command leaves running keeps the lock until it \
ends. If the lock is lost, the command is stopped before anybody else gets the lock. Every process \
that the command started as this user is stopped too, even if it has detached itself.

An agent, which is a background process, keeps the locks. 'run' uses the first of these agents: the \
one at --socket; the one that HALLPASS_CONFIG or /etc/hallpass/hallpass.toml configures; one that this \
user has started; the machine's. If there is none, 'run' starts a private agent for this user. On a \
machine that belongs to a group, 'run' starts no agent. If the group's agent is not running, it exits \
with code 69.

Durations are written 250ms, 10s or 2m.

Environment:
  HALLPASS_SOCKET  the agent's socket, instead of --socket
  HALLPASS_CONFIG  the agent's configuration file, which names its socket
The command gets these variables:
  HALLPASS_LOCK    the lock's name
  HALLPASS_FENCE   the fence, a number that only rises: pass it with every
                   write, so that the storage can refuse a late write
  HALLPASS_NODE    the name of this member

Exit code: the command's own, or
  64     wrong usage
  69     no agent can be used; the command was not started
  75     the lock was not free (--try), or did not become free in time
         (--timeout); the command was not started
  76     the lock was lost, and the command was stopped
  126    the command is not executable
  127    the command was not found
  128+N  signal N ended the command

Examples:
  hallpass run nightly-backup -- ./backup.sh
  hallpass run deploy --try -- make deploy
  hallpass run report --shared --timeout 30s -- ./report.sh --all
  hallpass run ledger -- sh -c './book --fence $HALLPASS_FENCE'";

const AGENT_HELP: &str = "\
A flag takes precedence over its environment variable, the variable over the configuration file, \
and the file over the default.

A new agent without --peers and --join is a group of one. 'hallpass join' makes it a member of \
another group. With --peers, all listed nodes found a group together, once they have reached each \
other. Later the list only helps to find the group. An agent that was stopped or has failed \
returns to its group when it is started again: --data keeps its identity and vote. The default \
directory depends on the user.

Other programs use the API: HTTP with JSON, at --api and at a Unix socket. It has events, metrics and \
a dashboard, too. If --api is on loopback, every user of the machine may use it, unless there are \
--api-tokens. On any other address the API needs tokens and TLS.

Environment:
  HALLPASS_LOG  how much is logged: error, warn, info (default), debug,
                trace

Exit code: 0 if the agent was shut down cleanly, or
  1   it cannot start, or has failed
  64  a setting is wrong
  75  another agent uses the same socket or data directory

Examples:
  hallpass agent --config group/a/hallpass.toml
  hallpass agent --api 127.0.0.1:7500
  hallpass agent --name d --listen 127.0.0.1:7403 --join 127.0.0.1:7400
  hallpass agent --name a --listen 127.0.0.1:7400 \\
      --peers 127.0.0.1:7400,127.0.0.1:7401";

const JOIN_HELP: &str = "\
The agent gives up its own group of one and becomes a new member. Its clients must not hold any \
locks. It is still a member after a restart.

Exit code: 0, or 69 if it has not become a member in time. It continues to try.

Examples:
  hallpass join 127.0.0.1:7400
  hallpass join a@a.example.org:7400 --timeout 1m";

const LEAVE_HELP: &str = "\
Commands that hold locks through the agent are stopped first. The member's vote goes to another \
one. To stop an agent that will be back, send it SIGTERM: it keeps its vote.

Exit code: 0, or 69 if the group has not let it go in time. The agent has ended then, but the group \
still expects it.

Example: hallpass leave --socket a/agent.sock";

const EVICT_HELP: &str = "\
The member loses its vote. It loses its locks when its session has run out. Without --ban it joins \
again if its agent runs. --admit undoes a --ban.

--ban-key is for a stolen key: no member accepts it any more, and its connections end. First give the \
member itself a new key, with 'hallpass init --renew'. If the group needs a member's vote, it does not \
ban the key that this member uses. Name the key by a certificate for it, or by its digest.

Exit code: 0, or 69 if the group has not confirmed it in time. It may take effect all the same.

Examples:
  hallpass evict b
  hallpass evict b --ban
  hallpass evict b --admit
  hallpass evict --ban-key group/b/node.pem";

const BREAK_HELP: &str = "\
Each command that holds the lock, on any member, gets SIGTERM. If it still runs after its --grace, \
it gets SIGKILL. Then the next waiter gets the lock.

Exit code: 0, or 69 if the group has not confirmed it in time. It may take effect all the same.

Example: hallpass break nightly-backup";

const RECOVER_HELP: &str = "\
Only for a group in which more than half of the voters are permanently lost, with their data. Such a \
group cannot decide anything any more. First make sure that no other member runs. The survivor \
becomes a group of one. Its fences begin far above all that it knows of. The other hosts join it with \
empty data directories.

Example: hallpass recover --data /var/lib/hallpass/data";

const COMPLETIONS_HELP: &str = "\
Examples:
  source <(hallpass completions bash)    # in ~/.bashrc
  hallpass completions zsh > ~/.zfunc/_hallpass
  hallpass completions fish > ~/.config/fish/completions/hallpass.fish";
