//! `hallpass bench`: the figures as tables, JSON or a picture.

use clap::Args;
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use hallpass_bench::{Figures, Launcher, Peer, Progress, Report, Spec};

use crate::exit::{Fault, Outcome};
use crate::terminal::{Facts, Paint, grouped, print, progress_bar, warn, write};

pub(crate) const EXAMPLES: &str = "\
Every caller lives in one of three processes on this machine; rounds are interleaved, figures are medians.
Peers are started on free ports with data in a folder of the benchmark's own, and ended; those that are
not installed are named and left out. 'etcd' builds its client in bench-peers first.

Exit code: 0, or 1 if two callers were inside a lock of hallpass's at once.

Examples:
  hallpass bench
  hallpass bench --peers etcd,redis,postgres --rounds 5 --svg bench.svg
  hallpass bench --quick --json";

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Whom to compare with, with commas between: etcd, redis, zookeeper, postgres, or none
    /// [default: redis,postgres]
    #[arg(long, value_name = "P,..")]
    peers: Option<String>,
    /// How often everything is measured
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// How long each measurement takes
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// A few seconds in all, to see that it works
    #[arg(long)]
    quick: bool,
    /// One JSON document on stdout
    #[arg(long)]
    json: bool,
    /// Also draw the figures
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn work(args: &WorkerArgs) -> Result<Outcome, Fault> {
    hallpass_bench::work(&args.args).map(|()| Outcome::Fine).map_err(|error| Fault::Unavailable(error.0))
}

pub(crate) fn run(args: &BenchArgs) -> Result<Outcome, Fault> {
    let spec = spec(args)?;
    let unavailable = |error: hallpass_bench::BenchError| Fault::Unavailable(error.0);
    let launcher = Launcher::this_program(&["bench-worker"]).map_err(unavailable)?;
    let bar = progress_bar("measurements");
    let mut show = |progress: Progress<'_>| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        bar.set_message(progress.now.to_owned());
    };
    let report = hallpass_bench::run(&spec, &launcher, &mut show);
    bar.finish_and_clear();
    let report = report.map_err(unavailable)?;
    for skipped in &report.skipped {
        warn(&format!("{} is left out: {}", skipped.peer, skipped.why));
    }
    if report.load_before > report.cores as f64 / 2.0 && !args.quick {
        let load = report.load_before;
        warn(&format!("the machine was busy before (load {load:.1}): trust the ratios, not the figures"));
    }
    if let Some(file) = &args.svg {
        write(Some(file), &report.to_svg())?;
    }
    print(&if args.json { report.to_json() + "\n" } else { render(&report) })?;
    Ok(if report.violations == 0 { Outcome::Fine } else { Outcome::Violated })
}

fn spec(args: &BenchArgs) -> Result<Spec, Fault> {
    let mut spec = if args.quick { Spec::quick() } else { Spec::default() };
    spec.rounds = args.rounds.unwrap_or(spec.rounds);
    if let Some(seconds) = args.seconds {
        if !(0.01..=600.0).contains(&seconds) {
            return Err(Fault::Usage(format!("'--seconds {seconds}': it takes 0.01 to 600")));
        }
        spec.seconds = seconds;
    }
    match args.peers.as_deref() {
        None => {}
        Some("none" | "") => spec.peers.clear(),
        Some(list) => {
            let peers: Result<Vec<Peer>, String> = list
                .split(',')
                .map(|name| name.parse().map_err(|why| format!("'--peers {list}': no peer is called '{name}': {why}")))
                .collect();
            spec.peers = peers.map_err(Fault::Usage)?;
        }
    }
    Ok(spec)
}

const WORKLOADS: [(&str, &str); 8] = [
    ("round-trip", "32 bytes there and back, no lock"),
    ("uncontended", "One caller, a free lock that others have held since"),
    ("hot", "One caller, the same lock again"),
    ("hot-shared", "One caller a host, the same lock shared"),
    ("contended-3", "3 callers, one lock"),
    ("contended-8", "8 callers, one lock"),
    ("contended-32", "32 callers, one lock"),
    ("rotating-32", "32 callers, 32 locks in turn"),
];

fn render(report: &Report) -> String {
    let paint = Paint::stdout();
    let mut text = String::new();
    for (workload, title) in WORKLOADS {
        let rows: Vec<&Figures> = report.figures.iter().filter(|figures| figures.workload == workload).collect();
        if !rows.is_empty() {
            text += &format!("{}\n{}\n\n", paint.bold(title), table(report, &rows));
        }
    }
    text += &format!("{}\n", paint.bold("hallpass against its goals"));
    for goal in &report.goals {
        let bound = if goal.at_most { "at most" } else { "at least" };
        let verdict = if goal.met { paint.green("met") } else { paint.red("missed") };
        text += &format!("  {:<71} {:>9.2}  ({bound} {})  {verdict}\n", goal.goal, goal.measured, goal.wanted);
    }
    let mut facts = Facts::new();
    facts.add("rounds", format!("{} of {} s a measurement, medians", report.rounds, report.seconds));
    facts.add("machine", format!("{} cores, load before {:.1}", report.cores, report.load_before));
    facts.add("violations", grouped(report.violations));
    text + "\n" + &facts.render()
}

fn table(report: &Report, rows: &[&Figures]) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    let heads = [
        "",
        "p50 us",
        "p99 us",
        "trips",
        "grants/s",
        "changed hands/s",
        "handover us",
        "cpu ms/1000",
        "MB",
        "messages",
        "hallpass x",
    ];
    table.set_header(heads);
    for row in rows {
        let ratio = report.ratios.iter().find(|ratio| ratio.peer == row.system && ratio.workload == row.workload);
        table.add_row(vec![
            row.system.clone(),
            micros(row.p50_us),
            micros(row.p99_us),
            format!("{:.2}", row.round_trips),
            grouped(row.grants_per_second as u64),
            row.changed_hands_per_second.map_or_else(String::new, |rate| grouped(rate as u64)),
            row.handover_p50_us.map_or_else(String::new, micros),
            format!("{:.2}", row.cpu_seconds_per_1000_grants * 1000.0),
            format!("{:.0}", row.memory_bytes as f64 / 1e6),
            row.messages_per_grant.map_or_else(String::new, |messages| format!("{messages:.2}")),
            ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.rate)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// As many digits as one can tell apart: `0.093`, `8.21`, `104`.
fn micros(value: f64) -> String {
    match value {
        100.0.. => grouped(value.round() as u64),
        1.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
