//! The arguments of `hallpass lab`. Defaults are those of the laboratory's own specs, so that there is one table of them.

use std::fmt;
use std::str::FromStr;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use hallpass_core::protocol::ProtocolKind;
use hallpass_lab::sweep::SweepSpec;
use hallpass_lab::{CheckSpec, InitialSpec};
use hallpass_sim::Order;
use hallpass_sim::cluster::Bug;

use super::settings::{self, RunSettings};

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Simulate one lock in virtual time and measure it
    #[command(after_help = RUN_EXAMPLES)]
    Run(LabRunArgs),
    /// Measure every claim of the papers
    #[command(after_help = CLAIMS_EXAMPLES)]
    Claims(ClaimsArgs),
    /// Explore every order of events
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Draw a space-time diagram of a scenario or of a run
    #[command(after_help = TRACE_EXAMPLES)]
    Trace(TraceArgs),
    /// Draw the states of a member, or of the installation of a view
    #[command(after_help = STATES_EXAMPLES)]
    States(StatesArgs),
    /// Compare protocols over group sizes and loads, as a page
    #[command(after_help = SWEEP_EXAMPLES)]
    Sweep(SweepArgs),
    /// Simulate whole nodes under faults and check every guarantee
    #[command(after_help = SWARM_EXAMPLES)]
    Swarm(SwarmArgs),
    /// Serve the laboratory to a browser
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
}

/// How `--load`, `--latency`, `--faults` and `--option` are written.
macro_rules! grammar {
    () => {
        "\
Durations are written 250us, 1ms, 10s or 2m. T is the mean latency; delays are \
measured in T.
  load     saturated: every node requests again once it has released
           light: one request at a time, by a random node
           hotspot:0.9: one at a time, nine of ten by the lowest node
           0.5: requests per T over the whole group, Poisson
  latency  1ms, uniform 1ms..3ms, exponential exp:2ms,
           or per link links:1-2=5ms,1-3=20ms,else=1ms
  faults   rates loss:0.01,dup:0.01 and counts
           crash:1,restart:1,pause:1,partition:1,join:1,leave:1,
           or node@time crash:2@30ms,pause:1@3ms..60ms,
           partition:1+2@10ms..50ms,join:9@5ms
  option   reply=implicit, request=broadcast, numbers=modulo:5,
           increment=random:4, names=5,17,3, membership=classic, ...;
           an option that does not fit is an error that lists all"
    };
}

const RUN_EXAMPLES: &str = concat!(
    grammar!(),
    "

Exit code: 0, or 1 on a violation.

Examples:
  hallpass lab run --protocol ricart-agrawala --nodes 5
  hallpass lab run --protocol ricart-agrawala --nodes 10 --load light --json
  hallpass lab run --protocol ricart-agrawala --option numbers=modulo:4"
);

const CLAIMS_EXAMPLES: &str = "\
Exit code: 0 if all measurements agree with the papers, else 1.

Examples:
  hallpass lab claims
  hallpass lab claims --only RA-14
  hallpass lab claims --full --json";

const CHECK_EXAMPLES: &str = "\
'endless' is for protocols with finitely many states: numbers=modulo:M with fence=off.

Exit code: 0, or
  1  a violation was found; a shortest path to it is printed
  2  incomplete: stopped by --states-max, by --memory, by Ctrl-C, or
     because the machine has little memory left

Examples:
  hallpass lab check --protocol ricart-agrawala --nodes 3 --entries 2
  hallpass lab check --protocol ricart-agrawala --nodes 2 --entries endless \\
      --option numbers=modulo:3 --option fence=off
  hallpass lab check --protocol ricart-agrawala --nodes 2 --entries 3 \\
      --option numbers=modulo:2 --option fence=off --draw why.svg
  hallpass lab check --model sessions
  hallpass lab check --model install --bug stale-start";

const SWEEP_EXAMPLES: &str = "\
With the defaults it takes a minute or two on two cores. A run has 1000 to 4000 entries in all, or \
ten per node where turns are counted.

Exit code: 0, or 1 on a violation.

Examples:
  hallpass lab sweep --out comparison.html
  hallpass lab sweep --nodes 2..50 --loads light,saturated --out comparison.html
  hallpass lab sweep --pictures docs/generated/sweep";

const SWARM_EXAMPLES: &str = "\
The seed determines everything: nodes with their disks and clocks, locks, protocols, callers that wait, try, share \
and give up, and these faults:
  delay, reorder, loss,     of messages between nodes
  duplication
  break                     a connection loses the last bytes in flight
  partition, one-way-,      some nodes cannot reach others, in one or both
  partial-partition         directions, or only two of them each other
  crash, restart            a process loses what is not on its disk
  disk-loss, -slow,         an empty disk (a new node), syncs that take
  -torn, -full              seconds, a write in part, writes that fail
  pause                     a process stands still, and time does not
  clock-drift               clocks run at different rates, within the bound
  join, leave, stop, evict  members come and go
  class-change, break-lock  an operator changes protocols, takes locks away
  ban, recover              an operator bans a name, recreates a lost group
  move                      a directory moves to another machine, while the
                            process that had it goes on, cut off
  blackout                  all processes crash at once
  settings                  nodes with other settings than their group's
Some runs are scenes: related faults, at about the moment and with the nodes that make them hard. Then the faults \
end: all nodes must come together, and every caller must be served. A failed run is reduced to fewer \
faults, nodes and callers before it is shown.

Exit code: 0, or 1 on a violation; the command that repeats it is printed.

Examples:
  hallpass lab swarm --seeds 0..1000
  hallpass lab swarm --minutes 10 --json
  hallpass lab swarm --seeds 7..8 --nodes 3 --keep-faults 4,9";

const SERVE_EXAMPLES: &str = "\
Run, step, break and compare every algorithm in the browser. This process computes everything, within limits; the \
page loads nothing from elsewhere. A link shows the same picture again.

With --export the page is written to a folder instead, with the tours, traps and scenarios computed beforehand, for \
any web server.

Examples:
  hallpass lab serve
  hallpass lab serve --listen 127.0.0.1:0
  hallpass lab serve --listen 0.0.0.0:8700 --host lab.example.org
  hallpass lab serve --export public/lab";

const STATES_EXAMPLES: &str = "\
Exit code: 0.

Examples:
  hallpass lab states
  hallpass lab states --of installation --format svg --out installation.svg";

const TRACE_EXAMPLES: &str = concat!(
    grammar!(),
    "

Exit code: 0, or 1 if the drawn run has a violation.

Examples:
  hallpass lab trace --list
  hallpass lab trace --scenario ricart-agrawala-figure-1
  hallpass lab trace --scenario cmu-example --format html --out cmu.html
  hallpass lab trace --protocol raymond --entries 5 --format svg --out run.svg"
);

/// The default number of requests in a run.
const RUN_ENTRIES: u64 = 1000;
/// The default number of requests in a trace: a picture of more is hard to read.
const TRACE_ENTRIES: u64 = 10;

#[derive(Debug, Args)]
pub(crate) struct LabRunArgs {
    #[arg(long, value_name = "P", help = protocols())]
    pub(crate) protocol: String,
    #[command(flatten)]
    pub(crate) settings: RunSettings<RUN_ENTRIES>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ClaimsArgs {
    /// Include claims that take longer than two minutes
    #[arg(long)]
    pub(crate) full: bool,
    /// Only this claim, such as RA-14 or RA-14/safe-3
    #[arg(long, value_name = "ID")]
    pub(crate) only: Option<String>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// `all`, or names with commas between them
    #[arg(long, value_name = "P,..", default_value = "all")]
    pub(crate) protocols: String,
    /// Group sizes, up to 1000: a list, or a range, of which the round ones are used
    #[arg(long, value_name = "A..B|LIST", default_value = SweepSpec::NODES)]
    pub(crate) nodes: String,
    /// Loads as `lab run` takes them, with commas between them
    #[arg(long, value_name = "LIST", default_value_t = SweepSpec::all().loads.join(","))]
    pub(crate) loads: String,
    /// Seed: determines every random choice
    #[arg(long, default_value_t = SweepSpec::all().seed)]
    pub(crate) seed: u64,
    /// The file to write the page to
    #[arg(long, value_name = "FILE.html", required_unless_present_any = ["json", "pictures"])]
    pub(crate) out: Option<String>,
    /// The directory for each chart as an SVG file; created if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) pictures: Option<String>,
    /// Print the numbers as one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SwarmArgs {
    /// Seeds from A up to but not including B; a single seed prints its events if it fails
    #[arg(long, value_name = "A..B", required_unless_present_any = ["minutes", "members"], conflicts_with = "minutes")]
    pub(crate) seeds: Option<String>,
    /// Run new seeds for this many minutes
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) minutes: Option<u32>,
    /// Number of founders, instead of the seed's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) nodes: Option<u16>,
    /// Number of callers per node, instead of the seed's
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) callers: Option<u16>,
    /// Keep only these faults of the seed, by position from 0
    #[arg(long, value_name = "I,J,..|none")]
    pub(crate) keep_faults: Option<Positions>,
    /// Plant a bug in every node, to see that it is found
    #[arg(long, value_name = "BUG", value_parser = PossibleValuesParser::new(Bug::ALL.map(|(name, _)| name)))]
    pub(crate) bug: Option<String>,
    /// One run instead: five nodes found a group, others join until it has N members, one fails and returns
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(6..=2000),
        conflicts_with_all = ["seeds", "minutes", "nodes", "callers", "keep_faults", "bug"]
    )]
    pub(crate) members: Option<u16>,
    /// For a single seed that fails, show this many of the last events
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(crate) events: usize,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on; port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = hallpass_lab_web::LISTEN)]
    pub(crate) listen: String,
    /// A host name under which the page may be reached, besides localhost and addresses; may be given several times
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,
    /// Write the page and its data to this folder, and end
    #[arg(long, value_name = "DIR", conflicts_with_all = ["listen", "hosts"])]
    pub(crate) export: Option<String>,
}

/// Positions in a list, such as 4,9, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Positions(pub(crate) Vec<usize>);

impl std::str::FromStr for Positions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let positions = text.split(',').map(|part| part.trim().parse().ok()).collect::<Option<_>>();
        positions.map(Self).ok_or_else(|| "give positions from 0, as 4,9, or none".to_owned())
    }
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[arg(long, value_name = "P", help = protocols(), required_unless_present = "model", default_value = "", hide_default_value = true)]
    pub(crate) protocol: String,
    #[arg(long, value_name = "M", help = models(), conflicts_with_all = ["protocol", "nodes", "entries", "last_entries", "first_entries", "tries", "upgrades", "reentry", "order", "cancels", "readers", "options", "faults", "draw"])]
    pub(crate) model: Option<String>,
    /// Break a rule of the model, to see that it is found
    #[arg(long, value_name = "NAME", requires = "model")]
    pub(crate) bug: Option<String>,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = check_defaults().nodes)]
    pub(crate) nodes: u32,
    /// Requests per node, or 'endless'
    #[arg(long, value_name = "K", default_value_t = Endless(check_defaults().entries))]
    pub(crate) entries: Endless,
    /// Requests of the node with the highest id [default: as --entries]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u8).range(..=COUNT_MAX as i64))]
    pub(crate) last_entries: Option<u8>,
    /// Requests of the node with the lowest id [default: as --entries]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u8).range(..=COUNT_MAX as i64))]
    pub(crate) first_entries: Option<u8>,
    /// Order of messages on a link; fifo: as sent
    #[arg(long, value_name = "any|fifo", value_enum, hide_possible_values = true, default_value_t = check_defaults().order.into())]
    pub(crate) order: OrderArg,
    /// Number of cancellations in all, or 'any'
    #[arg(long, value_name = "C", default_value_t = Any(check_defaults().cancels))]
    pub(crate) cancels: Any,
    /// Requests may be in shared mode
    #[arg(long)]
    pub(crate) readers: bool,
    /// Requests may be attempts, which do not wait for a holder; for directory
    #[arg(long)]
    pub(crate) tries: bool,
    /// Who is inside may go on in shared mode, or ask to be alone again; for directory
    #[arg(long)]
    pub(crate) upgrades: bool,
    /// A node's next caller may follow the one inside; for directory
    #[arg(long)]
    pub(crate) reentry: bool,
    /// Nodes may forget the idle lock at any moment
    #[arg(long)]
    pub(crate) drop_idle: bool,
    /// Holders at the start, as 2 or 1,3:shared; 'all': every possible set
    #[arg(long, value_name = "NODES", default_value_t = check_defaults().initial)]
    pub(crate) initial_holders: InitialSpec,
    /// An option of the protocol; may be given several times
    #[arg(long = "option", value_name = "KEY=VALUE")]
    pub(crate) options: Vec<String>,
    /// Number of faults of each kind, as crash:1,restart:1; also loss, dup, join, leave [default: none]
    #[arg(long, value_name = "SPEC", default_value_t = check_defaults().faults, hide_default_value = true)]
    pub(crate) faults: String,
    /// Stop, incomplete, after this many states
    #[arg(long, value_name = "N", default_value_t = check_defaults().states_max as u32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) states_max: u32,
    /// Stop, incomplete, near this much memory, as 500M or 2G [default: half of what is free]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the trace of the violation to FILE.svg or FILE.html
    #[arg(long, value_name = "FILE")]
    pub(crate) draw: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// A scenario: its name, or a path that has a '/' or ends in .txt
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = settings::keys().chain(["protocol"]))]
    pub(crate) scenario: Option<String>,
    /// List the scenarios
    #[arg(long, conflicts_with_all = settings::keys().chain(["protocol", "scenario"]))]
    pub(crate) list: bool,
    #[arg(long, value_name = "P", help = protocols())]
    pub(crate) protocol: Option<String>,
    #[command(flatten)]
    pub(crate) settings: RunSettings<TRACE_ENTRIES>,
    /// Format: text, json, svg, html, or shiviz (a log for that viewer)
    #[arg(long, value_enum, hide_possible_values = true, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// The file to write [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StatesArgs {
    /// Whose states: member or installation
    #[arg(long, value_enum, hide_possible_values = true, default_value_t = StatesOf::Member)]
    pub(crate) of: StatesOf,
    /// Format: text or svg
    #[arg(long, value_enum, hide_possible_values = true, default_value_t = StatesFormat::Text)]
    pub(crate) format: StatesFormat,
    /// The file to write [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<String>,
}

/// Which diagram is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatesOf {
    Member,
    Installation,
}

/// How a state diagram is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatesFormat {
    Text,
    Svg,
}

/// How a trace is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Svg,
    Html,
    Shiviz,
}

/// [`Order`] as users type it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    Any,
    Fifo,
}

impl From<Order> for OrderArg {
    fn from(order: Order) -> Self {
        match order {
            Order::Any => Self::Any,
            Order::Fifo => Self::Fifo,
        }
    }
}

impl From<OrderArg> for Order {
    fn from(order: OrderArg) -> Self {
        match order {
            OrderArg::Any => Self::Any,
            OrderArg::Fifo => Self::Fifo,
        }
    }
}

/// The most of anything in an exploration: far beyond what can be explored, and within a byte.
const COUNT_MAX: u8 = 200;

/// Requests per node: a number, or no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endless(pub(crate) Option<u8>);

impl FromStr for Endless {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_count(text, "endless", 1).map(Self)
    }
}

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_count(f, self.0, "endless")
    }
}

/// Cancellations in all: a number, or any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Any(pub(crate) Option<u8>);

impl FromStr for Any {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_count(text, "any", 0).map(Self)
    }
}

impl fmt::Display for Any {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_count(f, self.0, "any")
    }
}

/// A number of bytes, as `500M` or `2G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
        let size = units.iter().find_map(|(unit, shift)| {
            let number: u64 = text.strip_suffix(*unit)?.parse().ok()?;
            number.checked_mul(1 << shift).filter(|size| *size > 0)
        });
        size.map(Self).ok_or_else(|| "it takes a size such as 500M or 2G".to_owned())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 >> 20 {
            megabytes @ 0..10_000 if megabytes % 1024 != 0 => write!(f, "{megabytes} MB"),
            megabytes => write!(f, "{} GB", megabytes >> 10),
        }
    }
}

fn parse_count(text: &str, unbounded: &str, min: u8) -> Result<Option<u8>, String> {
    if text == unbounded {
        return Ok(None);
    }
    let count = text.parse().ok().filter(|count| (min..=COUNT_MAX).contains(count));
    count.map(Some).ok_or_else(|| format!("it takes {min} to {COUNT_MAX}, or {unbounded}"))
}

fn write_count(f: &mut fmt::Formatter<'_>, count: Option<u8>, unbounded: &str) -> fmt::Result {
    match count {
        Some(count) => write!(f, "{count}"),
        None => f.write_str(unbounded),
    }
}

/// The models of the view layer.
fn models() -> String {
    let names: Vec<&str> = hallpass_lab::models().into_iter().map(|(name, _)| name).collect();
    format!("Explore a part of the view layer instead: {}", names.join(", "))
}

fn check_defaults() -> CheckSpec {
    CheckSpec::of("")
}

fn protocols() -> String {
    let mut names: Vec<&str> = ProtocolKind::ALL.iter().map(|kind| kind.name()).collect();
    names.dedup();
    format!("The protocol: {}", names.join(", "))
}
