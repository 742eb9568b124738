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
    /// Let real nodes on loopback contend for locks, observed from outside
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
'hallpass run' has codes of its own, see 'hallpass run --help'.

Examples:
  hallpass demo
  hallpass run nightly-backup -- ./backup.sh
  hallpass lab run --protocol ricart-agrawala --nodes 5";

const RUN_USAGE: &str = "hallpass run [OPTIONS] LOCK -- COMMAND [ARG]...
       hallpass run [OPTIONS] --lock LOCK -- COMMAND [ARG]...";

const RUN_HELP: &str = "\
The command starts once the lock is held, and the lock is released when the command ends. As with \
flock(1), a process that the command leaves running keeps the lock until it ends. If the lock is \
lost, the command and everything it started as this user is stopped before others get the lock.

Locks are kept by an agent, a background process. 'run' uses the agent of --socket, else that of \
HALLPASS_CONFIG or of /etc/hallpass/hallpass.toml, else this user's, else the machine's. If there is \
none, it starts a private agent, so that several 'run's of this user exclude each other. It never \
does so on a machine that belongs to a group.

Durations are written 250ms, 10s or 2m.

Environment:
  HALLPASS_SOCKET  the agent's socket, as --socket
  HALLPASS_CONFIG  the agent's configuration, to find its socket
The command gets these variables:
  HALLPASS_LOCK    the lock's name
  HALLPASS_FENCE   the fence, a number that only rises: pass it with every
                   write, so that the storage can refuse a late one
  HALLPASS_NODE    the name of this member

Exit code: the command's own, or
  64     wrong usage
  69     no agent can be used; the command was not started
  75     the lock was not free (--try) or not in time (--timeout); the
         command was not started
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

Without --peers and --join a new agent is a group of one; 'hallpass join' makes it a member of \
another group. With --peers all listed nodes found a group together, once they have reached each \
other; later the list only helps to find the group. An agent that was stopped or has failed \
returns to its group when it is started again: --data keeps its identity and vote. The default \
directory depends on the user.

Other programs use the API: HTTP with JSON, at --api and at a Unix socket, with events, metrics and \
a dashboard. On loopback every user of the machine may use --api, unless there are --api-tokens. \
On any other address it needs tokens and TLS.

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
locks. It stays a member over restarts.

Exit code: 0, or 69 if it is not a member in time; it continues to try.

Examples:
  hallpass join 127.0.0.1:7400
  hallpass join a@a.example.org:7400 --timeout 1m";

const LEAVE_HELP: &str = "\
Commands that hold locks through the agent are stopped first. The member's vote goes to another \
one. To stop an agent that will be back, send it SIGTERM: it keeps its vote.

Exit code: 0, or 69 if the group has not let it go in time; the agent has ended then, but the group \
still expects it.

Example: hallpass leave --socket a/agent.sock";

const EVICT_HELP: &str = "\
The member loses its vote, and its locks once its session has run out. Without --ban it joins again \
if its agent runs. --admit undoes a --ban.

--ban-key is for a key that was stolen: no member accepts it any more, and its connections end. The \
member itself goes on with a new key: give it that first, with 'hallpass init --renew'. The key of a \
voter that the group needs is not banned before. Name the key by a certificate for it, or by its digest.

Exit code: 0, or 69 if the group has not confirmed it in time. It may take effect all the same.

Examples:
  hallpass evict b
  hallpass evict b --ban
  hallpass evict b --admit
  hallpass evict --ban-key group/b/node.pem";

const BREAK_HELP: &str = "\
A command under the lock gets SIGTERM, then its grace, then SIGKILL, on every member. Then the next \
waiter gets the lock.

Exit code: 0, or 69 if the group has not confirmed it in time. It may take effect all the same.

Example: hallpass break nightly-backup";

const RECOVER_HELP: &str = "\
Only for a group in which more than half of the voters are permanently lost, with their data: it \
can decide nothing any more. First make sure that no other member runs. The survivor becomes a \
group of one, whose fences are above all that the group can have given. The other hosts join it \
with empty data directories.

Example: hallpass recover --data /var/lib/hallpass/data";

const COMPLETIONS_HELP: &str = "\
Examples:
  source <(hallpass completions bash)    # in ~/.bashrc
  hallpass completions zsh > ~/.zfunc/_hallpass
  hallpass completions fish > ~/.config/fish/completions/hallpass.fish";
