//! `hallpass-chaos`: reads arguments, makes a run, prints the report.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use comfy_table::{LineStyle, Table, TableStyle};
use hallpass_chaos::{ChaosError, Options, Progress, Report, Sandbox, check_again, missing, run, take_part};
use indicatif::{ProgressBar, ProgressStyle};

/// As in sysexits.h.
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const SOFTWARE: u8 = 70;
/// As in shells, after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The first argument when this program runs as a client, or as the harness in its sandbox.
const CLIENT: &str = "client";
const INSIDE: &str = "inside";

const AFTER_HELP: &str = "\
Faults: partition, one-way, partial, loss, delay, kill-agent, stop-agent, wipe-agent, end-agent, rolling-restart, restart-all, \
kill-client, stop-client, wipe-founder, other-settings.

It needs root, ip, nft and /dev/net/tun. Everything happens in separate namespaces and is gone at the end.

Exit code: 0, or
  1   two held a lock at once, a fence fell, a client starved, or an agent
      ended without being told to
  69  a tool or a right is missing

Examples:
  hallpass-chaos
  hallpass-chaos --faults 1000 --seed 7
  hallpass-chaos --minutes 10 --kinds partition,loss,delay --json";

/// Let real agents contend for locks while their network and machines fail, and check what their clients saw
#[derive(Debug, Parser)]
#[command(name = "hallpass-chaos", version, max_term_width = 80, after_help = AFTER_HELP)]
struct Args {
    /// End after this many faults
    #[arg(long, value_name = "N", default_value_t = 60)]
    faults: usize,
    /// End after this many minutes, if that comes first [default: no limit]
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Seed: determines which faults come when
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of agents
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=20))]
    agents: u8,
    /// Maximum number of agents that vote; only the others are wiped
    #[arg(long, value_name = "1, 3 or 5", default_value_t = 3, value_parser = voters)]
    voters: u8,
    /// Number of clients of each of three kinds for every agent
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=20))]
    clients: u8,
    /// How long a session lasts, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(500..=60_000))]
    ttl_ms: u64,
    /// A line for the configuration of every agent, such as "local_streak = 4"; may be given several times
    #[arg(long, value_name = "LINE")]
    config: Vec<String>,
    /// Only these kinds of faults, separated by commas [default: all]
    #[arg(long, value_name = "K,..", value_delimiter = ',')]
    kinds: Vec<String>,
    /// The program under test [default: 'hallpass' beside this program]
    #[arg(long, value_name = "FILE")]
    hallpass: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    json: bool,
    /// Keep the records and logs, and say where they are
    #[arg(long)]
    keep: bool,
    /// Only check the records that an earlier run has kept
    #[arg(long, value_name = "DIR")]
    check: Option<PathBuf>,
}

fn voters(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(count @ (1 | 3 | 5)) => Ok(count),
        _ => Err("1, 3 or 5".to_owned()),
    }
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    match args.get(1).and_then(|arg| arg.to_str()) {
        Some(CLIENT) => {
            let result = take_part(&args[2..]);
            return result.map_or_else(|error| fail(&error.to_string(), SOFTWARE), |()| ExitCode::SUCCESS);
        }
        Some(INSIDE) => return inside(&args[2..]),
        _ => {}
    }
    let parsed = match Args::try_parse_from(&args) {
        Ok(parsed) => parsed,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return print(&error.render().to_string());
        }
        Err(error) => {
            let text = error.render().to_string();
            let why = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            return fail(&format!("{why} (see 'hallpass-chaos --help')"), USAGE);
        }
    };
    let result = match &parsed.check {
        Some(directory) => check_again(directory).map(|(findings, violations)| {
            let json = serde_json::json!({"findings": findings, "violations": violations});
            print(&format!("{json:#}\n"));
            if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }),
        None => outside(&parsed, &args[1..]),
    };
    result.unwrap_or_else(explain)
}

/// Makes the sandbox, and starts this program again in it.
fn outside(parsed: &Args, args: &[OsString]) -> Result<ExitCode, ChaosError> {
    if let Some(why) = missing() {
        return Err(ChaosError::Unavailable(why));
    }
    let this = this_program()?;
    let hallpass = parsed.hallpass.clone().unwrap_or_else(|| this.with_file_name("hallpass"));
    if !hallpass.is_file() {
        let (place, hint) = (hallpass.display(), "'cargo build -p hallpass-cli -p hallpass-chaos' builds both");
        return Err(ChaosError::Unavailable(format!("there is no {place}: {hint}")));
    }
    let sandbox = Sandbox::create(parsed.keep)?;
    let mut inner = vec![INSIDE.into(), sandbox.directory().into(), hallpass.into()];
    inner.extend_from_slice(args);
    let status = sandbox.run(&this, &inner)?;
    if parsed.keep {
        say(&format!("records and logs are in {}", sandbox.directory().display()));
    }
    let Some(status) = status else { return Ok(ExitCode::from(INTERRUPTED)) };
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(SOFTWARE)))
}

/// Runs the harness in its sandbox. The arguments are a directory, the program under test, and the original arguments.
fn inside(args: &[OsString]) -> ExitCode {
    let [directory, hallpass, rest @ ..] = args else { return fail("this is started by hallpass-chaos only", USAGE) };
    let args = match Args::try_parse_from(std::iter::once("hallpass-chaos".into()).chain(rest.iter().cloned())) {
        Ok(args) => args,
        Err(error) => return fail(&error.to_string(), USAGE),
    };
    harness(&args, directory.into(), hallpass.into()).unwrap_or_else(explain)
}

fn harness(args: &Args, directory: PathBuf, hallpass: PathBuf) -> Result<ExitCode, ChaosError> {
    let options = Options {
        hallpass,
        this: this_program()?,
        directory,
        seed: args.seed,
        faults: args.faults,
        limit: args.minutes.map(|minutes| Duration::from_secs_f64(minutes.clamp(0.0, 1e6) * 60.0)),
        agents: args.agents.into(),
        clients: args.clients.into(),
        ttl: Duration::from_millis(args.ttl_ms),
        config: format!("voters = {}\n{}", args.voters, args.config.join("\n")),
        kinds: args.kinds.clone(),
    };
    let bar = ProgressBar::new(options.faults as u64);
    let template = "{bar:30} {pos}/{len} faults  {elapsed}  {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed").progress_chars("##-"));
    bar.enable_steady_tick(Duration::from_millis(200));
    let report = run(&options, &mut |progress: Progress| {
        bar.set_position(progress.faults as u64);
        bar.set_message(progress.now);
    });
    bar.finish_and_clear();
    let report = report?;
    let json = || serde_json::to_string_pretty(&report).expect("a report is JSON") + "\n";
    print(&if args.json { json() } else { render(&report) });
    for violation in &report.violations {
        say(violation);
    }
    if report.violations.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("again, with records and logs: hallpass-chaos --keep --seed {}", report.seed));
    Ok(ExitCode::FAILURE)
}

fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    table.set_header(["fault", "times"]);
    for (kind, count) in &report.faults_by_kind {
        table.add_row([kind, &count.to_string()]);
    }
    let found = &report.findings;
    let recovery = &found.recovery_ms;
    let exits: Vec<String> = report.run_exits.iter().map(|(code, count)| format!("{code}: {count}")).collect();
    let facts = [
        ("faults", format!("{} in {} rounds, {} s", report.faults, report.rounds, report.seconds)),
        ("group", format!("{} agents, {} clients, ttl {} ms", report.agents, report.clients, report.ttl_ms)),
        ("grants", format!("{}, of them {} shared", found.grants, found.grants_shared)),
        ("lost", format!("{}, noticed after the next holder came: {}", found.lost, found.lost_noticed_late)),
        ("work", format!("{}, refused by fence: {}", found.work, found.work_refused)),
        ("run", format!("exit codes {}", exits.join(", "))),
        ("everybody back", format!("p50 {} ms, p99 {} ms, at most {} ms", recovery.p50, recovery.p99, recovery.max)),
        ("overlaps", found.overlaps.to_string()),
        ("fences back", found.fence_regressions.to_string()),
        ("starved", found.starved.to_string()),
        ("violations", report.violations.len().to_string()),
    ];
    let fact = |(name, value): (&str, String)| format!("  {name:<15} {value}\n");
    format!("{table}\n\n{}", facts.map(fact).concat())
}

fn this_program() -> Result<PathBuf, ChaosError> {
    std::env::current_exe().map_err(|error| ChaosError::Failed(format!("cannot find this program: {error}")))
}

fn explain(error: ChaosError) -> ExitCode {
    let code = match error {
        ChaosError::Usage(_) => USAGE,
        ChaosError::Unavailable(_) => UNAVAILABLE,
        _ => SOFTWARE,
    };
    fail(&error.to_string(), code)
}

fn fail(line: &str, code: u8) -> ExitCode {
    say(line);
    ExitCode::from(code)
}

/// Writes to stdout. A closed pipe is not an error.
fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    ExitCode::SUCCESS
}

/// Writes one line to stderr, even if the text has several.
fn say(line: &str) {
    let bold = if io::stderr().is_terminal() { ["\x1b[1m", "\x1b[0m"] } else { ["", ""] };
    let _ = writeln!(io::stderr(), "{}hallpass-chaos:{} {}", bold[0], bold[1], line.replace(['\n', '\r'], " "));
}
