use std::ffi::OsString;
use std::io::IsTerminal;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hallpass_agent::config::{
    advertised_address, listen_address, member_address, session_ttl, socket_group, voters_max,
};

use hallpass_agent::tokens::Right;

/// Reads `250ms`, `10s`, `2m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    hallpass_core::duration::parse(text)
        .map(Duration::from_nanos)
        .ok_or_else(|| "not a duration such as 250ms, 10s or 2m, up to a century".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Number of nodes, each with its own TCP port on loopback
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) nodes: u32,
    /// The protocol of all locks, such as ricart-agrawala
    #[arg(long, default_value = "carvalho-roucairol", value_name = "P")]
    pub(crate) protocol: String,
    /// Duration in seconds
    #[arg(long, default_value_t = 10, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The members' names, separated by commas; letters, digits, hyphens and dots, as in host names
    #[arg(long, required = true, value_delimiter = ',', value_name = "A,B,..")]
    pub(crate) names: Vec<String>,
    /// The directory to create; it must not exist, or must be empty
    #[arg(long, value_name = "DIR", required_unless_present = "renew")]
    pub(crate) out: Option<PathBuf>,
    /// Only sign new certificates, with the authority in this directory; the names may be new
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "group", "port", "loopback"])]
    pub(crate) renew: Option<PathBuf>,
    /// Validity of the certificates, in days
    #[arg(long, default_value_t = 730, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3653))]
    pub(crate) days: u32,
    /// The group's name
    #[arg(long, default_value = "hallpass", value_name = "G")]
    pub(crate) group: String,
    /// The port that members listen on; with --loopback, that of the first member
    #[arg(long, default_value_t = 7400, value_name = "PORT")]
    pub(crate) port: u16,
    /// To try a group: put all members on this machine, at 127.0.0.1 with one port each
    #[arg(long)]
    pub(crate) loopback: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The configuration file, as 'hallpass init' creates it [default: /etc/hallpass/hallpass.toml if it exists]
    #[arg(long, env = "HALLPASS_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The group's name [default: hallpass]
    #[arg(long, env = "HALLPASS_GROUP", value_name = "G")]
    pub(crate) group: Option<String>,
    /// This node's name [default: the host's]
    #[arg(long, env = "HALLPASS_NAME", value_name = "N")]
    pub(crate) name: Option<String>,
    /// Address to listen on for other members: host:port [default: none while it is alone, else a free port on loopback]
    #[arg(long, env = "HALLPASS_LISTEN", value_name = "ADDR", value_parser = listen_address)]
    pub(crate) listen: Option<String>,
    /// This node's address for other members: host:port [default: that of --listen]
    #[arg(long, env = "HALLPASS_ADVERTISE", value_name = "ADDR", value_parser = advertised_address)]
    pub(crate) advertise: Option<String>,
    /// The founders of the group, this node among them: host:port or name@host:port; the same list for all
    #[arg(long, env = "HALLPASS_PEERS", value_delimiter = ',', value_name = "ADDR,..", value_parser = member_address)]
    pub(crate) peers: Option<Vec<String>>,
    /// Join the group of one of these members, and never found one
    #[arg(long, env = "HALLPASS_JOIN", value_delimiter = ',', value_name = "ADDR,..", value_parser = member_address, conflicts_with = "peers")]
    pub(crate) join: Option<Vec<String>>,
    /// Number of founders, if a name in --peers has several addresses [default: as many as are listed]
    #[arg(long, env = "HALLPASS_EXPECT", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) expect: Option<u32>,
    /// Maximum number of voters: 1, 3 or 5 [default: 5]
    #[arg(long, env = "HALLPASS_VOTERS", value_name = "N", value_parser = voters_max)]
    pub(crate) voters: Option<usize>,
    /// How long a voter may be away before another member gets its vote [default: 10m]
    #[arg(long, env = "HALLPASS_REPLACE_AFTER", value_name = "D", value_parser = duration)]
    pub(crate) replace_after: Option<Duration>,
    /// A directory for this node alone: its identity, its vote, the state of its group [default: depends on the user]
    #[arg(long, env = "HALLPASS_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The directory with authority.pem, node.pem and node.key [default: none, loopback only]
    #[arg(long, env = "HALLPASS_KEYS", value_name = "DIR")]
    pub(crate) keys: Option<PathBuf>,
    /// The Unix socket for clients [default: depends on the user]
    #[arg(long, env = "HALLPASS_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// A group of users who may also use the socket: its name or number
    #[arg(long, env = "HALLPASS_SOCKET_GROUP", value_name = "GROUP", value_parser = socket_group)]
    pub(crate) socket_group: Option<String>,
    /// TCP address of the API for other programs: host:port [default: none]
    #[arg(long, env = "HALLPASS_API", value_name = "ADDR", value_parser = listen_address)]
    pub(crate) api: Option<String>,
    /// The Unix socket of the API; 'off' for none [default: beside --socket]
    #[arg(long, env = "HALLPASS_API_SOCKET", value_name = "PATH")]
    pub(crate) api_socket: Option<PathBuf>,
    /// The TLS certificate of the API [default: that of --keys, off loopback]
    #[arg(long, env = "HALLPASS_API_CERT", value_name = "FILE", requires = "api_key")]
    pub(crate) api_cert: Option<PathBuf>,
    /// The private key of --api-cert [default: that of --keys]
    #[arg(long, env = "HALLPASS_API_KEY", value_name = "FILE", requires = "api_cert")]
    pub(crate) api_key: Option<PathBuf>,
    /// The file of tokens that clients need over TCP, as 'hallpass token new' writes it
    #[arg(long, env = "HALLPASS_API_TOKENS", value_name = "FILE")]
    pub(crate) api_tokens: Option<PathBuf>,
    /// How long a session lasts, 500ms to 60m, in a group that this node founds [default: 5s]
    #[arg(long, env = "HALLPASS_TTL", value_name = "D", value_parser = session_ttl)]
    pub(crate) ttl: Option<Duration>,
    /// The agent that 'run' starts for its user, in this directory: ends after a minute without clients
    #[arg(long, hide = true)]
    pub(crate) private: Option<PathBuf>,
    /// It has left its parent's session and closed its files
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The lock's name: 1 to 255 bytes
    #[arg(required_unless_present = "named")]
    lock: Option<String>,
    /// The lock's name, if it begins with a hyphen
    #[arg(long = "lock", value_name = "LOCK", conflicts_with = "lock", allow_hyphen_values = true)]
    named: Option<String>,
    /// Shared mode: allows other shared holders at the same time
    #[arg(long)]
    pub(crate) shared: bool,
    /// Do not wait; exit code 75 if the lock is not free
    #[arg(long = "try", conflicts_with = "timeout")]
    tries: bool,
    /// Maximum time to wait, such as 30s; exit code 75 after that [default: no limit]
    #[arg(long, value_name = "D", value_parser = duration)]
    timeout: Option<Duration>,
    /// Show what 'run' waits for, even if stderr is not a terminal
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Time between SIGTERM and SIGKILL if the lock is lost: at most half of the session length [default: a third of it]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// The agent's socket [default: that of this user or machine]
    #[arg(long, env = "HALLPASS_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The command to run
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    pub(crate) fn lock(&self) -> &str {
        self.named.as_ref().or(self.lock.as_ref()).map_or("", String::as_str)
    }

    /// Whether to say what is waited for.
    pub(crate) fn explains(&self) -> bool {
        self.verbose || std::io::stderr().is_terminal()
    }

    /// The locks under which this command is run already.
    pub(crate) fn outer_locks(&self) -> Vec<String> {
        let outer = std::env::var("HALLPASS_OUTER_LOCKS").unwrap_or_default();
        let mut outer: Vec<String> = serde_json::from_str(&outer).unwrap_or_default();
        outer.extend(std::env::var("HALLPASS_LOCK"));
        outer
    }

    /// Not to wait at all. To wait for no time is the same.
    pub(crate) fn tries(&self) -> bool {
        self.tries || self.timeout.is_some_and(|limit| limit.is_zero())
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.filter(|limit| !limit.is_zero())
    }
}

#[derive(Debug, Args)]
pub(crate) struct SupervisorArgs {
    /// How long the command has between SIGTERM and SIGKILL, in milliseconds
    pub(crate) grace_ms: u64,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ChildArgs {
    /// The process id of the supervisor, to die with
    pub(crate) parent: u32,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct LocksArgs {
    /// Only locks with this prefix
    #[arg(long, value_name = "P", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub(crate) prefix: String,
    /// Only locks that are held or waited for here, without cached ones
    #[arg(long)]
    pub(crate) held: bool,
    /// Maximum number of locks shown; the rest is counted [default: 1000, with --json all]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    /// The agent's socket [default: that of this user or machine]
    #[arg(long, env = "HALLPASS_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is asked of a whole group, through one of its agents.
#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// Maximum time to wait until it has taken effect, such as 30s; exit code 69 after that
    #[arg(long, value_name = "D", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The address of any member: host:port or name@host:port
    #[arg(value_name = "ADDR", value_parser = member_address)]
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) group: GroupArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EvictArgs {
    /// The member's name or number
    #[arg(value_name = "NODE", required_unless_present_any = ["ban_key", "admit_key"])]
    pub(crate) node: Option<String>,
    /// Admit no node of this name again
    #[arg(long)]
    pub(crate) ban: bool,
    /// Evict nobody, but lift the ban on this name
    #[arg(long, conflicts_with = "ban")]
    pub(crate) admit: bool,
    /// Ban this key under any name: a certificate's file, or sha256:HEX
    #[arg(long, value_name = "KEY", conflicts_with_all = ["node", "ban", "admit", "admit_key"])]
    pub(crate) ban_key: Option<String>,
    /// Lift the ban on this key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["node", "ban", "admit"])]
    pub(crate) admit_key: Option<String>,
    #[command(flatten)]
    pub(crate) group: GroupArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BreakArgs {
    /// The lock's name
    #[arg(value_name = "LOCK")]
    pub(crate) lock: String,
    #[command(flatten)]
    pub(crate) group: GroupArgs,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ClassCommand {
    /// Change the protocol of all locks with a prefix
    #[command(
        after_help = "Held locks stay held. The longest matching prefix counts.\n\nExample: hallpass class set reports/ raymond --option tree=line"
    )]
    Set(ClassArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ClassArgs {
    /// The prefix of the locks' names; '' for all locks
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: String,
    /// The protocol, such as carvalho-roucairol
    #[arg(value_name = "PROTOCOL")]
    pub(crate) protocol: String,
    /// An option of the protocol; may be given several times
    #[arg(long = "option", value_name = "KEY=VALUE")]
    pub(crate) options: Vec<String>,
    #[command(flatten)]
    pub(crate) group: GroupArgs,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, print it, and add its hash to the file of tokens
    #[command(after_help = TOKEN_HELP)]
    New(TokenArgs),
}

const TOKEN_HELP: &str = "\
The token is printed once and stored nowhere: the file has its SHA-256. A running agent reads the \
file again automatically. To take a token back, remove its lines from the file. That also ends its \
leases.

Examples:
  hallpass token new --name ci --rights acquire,inspect --prefix ci/ \\
      --file tokens.toml
  hallpass token new --name ops --rights acquire,inspect,break,administer";

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// The token's name in the log
    #[arg(long, value_name = "N")]
    pub(crate) name: String,
    /// What it allows, separated by commas: acquire, inspect, break, administer
    #[arg(long, value_delimiter = ',', required = true, value_name = "R,..", value_parser = Right::parse)]
    pub(crate) rights: Vec<Right>,
    /// Only for locks with this prefix; may be given several times [default: all locks]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(crate) prefix: Vec<String>,
    /// Leases that its clients may have at a time [default: no limit of its own]
    #[arg(long, value_name = "N")]
    pub(crate) leases_max: Option<NonZeroU32>,
    /// Requests that may wait for locks at a time [default: no limit of its own]
    #[arg(long, value_name = "N")]
    pub(crate) waits_max: Option<NonZeroU32>,
    /// Watches and streams of events at a time [default: no limit of its own]
    #[arg(long, value_name = "N")]
    pub(crate) watches_max: Option<NonZeroU32>,
    /// Requests a second [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) rate_max: Option<NonZeroU32>,
    /// The file of tokens [default: api_tokens of the configuration]
    #[arg(long, env = "HALLPASS_API_TOKENS", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// The data directory of a survivor; its agent must not run
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}
