//! `hallpass bench`: arguments in, tables, JSON or a picture out.

mod args;
mod tables;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use console::style;
use hallpass_bench::{BenchError, Launcher, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use args::Args;

/// As in sysexits.h.
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const IO: u8 = 74;

/// Before the arguments of a worker process, which is this program again.
const WORKER: &str = "worker";

/// A line for stderr, and the exit code that goes with it.
struct Failure(String, u8);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let result = match args.get(1).map(String::as_str) {
        Some(WORKER) => hallpass_bench::work(&args[2..]).map(|()| ExitCode::SUCCESS).map_err(unavailable),
        _ => match Args::try_parse_from(&args) {
            Ok(args) => measure(&args),
            Err(error) => explain(&error),
        },
    };
    result.unwrap_or_else(|Failure(line, code)| {
        say(&line);
        ExitCode::from(code)
    })
}

fn measure(args: &Args) -> Result<ExitCode, Failure> {
    let launcher = Launcher::this_program(&[WORKER]).map_err(unavailable)?;
    let bar = progress_bar();
    let mut show = |progress: Progress<'_>| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        bar.set_message(progress.now.to_owned());
    };
    let report = hallpass_bench::run(&args.spec(), &launcher, &mut show);
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
        std::fs::write(file, report.to_svg()).map_err(|error| cannot_write(file, &error))?;
    }
    print(&if args.json { report.to_json() + "\n" } else { tables::render(&report) })?;
    Ok(if report.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Answers what the parser did not accept: `--help`, `--version` or an error.
fn explain(error: &clap::Error) -> Result<ExitCode, Failure> {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(&text).map(|()| ExitCode::SUCCESS),
        _ => {
            // The first paragraph says what is wrong; behind it come a usage text and a pointer to the help.
            let why = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            Err(Failure(format!("{why} (see 'hallpass bench --help')"), USAGE))
        }
    }
}

fn unavailable(error: BenchError) -> Failure {
    Failure(error.0, UNAVAILABLE)
}

fn cannot_write(target: &str, error: &io::Error) -> Failure {
    Failure(format!("cannot write {target}: {error}"), IO)
}

/// Writes to stdout. A reader that closed the pipe (`| head -1`) is no error.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(cannot_write("stdout", &error)),
        _ => Ok(()),
    }
}

/// On stderr, and hidden where that is no terminal.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "{bar:30} {pos}/{len} measurements  {elapsed}  {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed").progress_chars("##-"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn warn(line: &str) {
    say(&format!("{}{line}", style("warning: ").yellow().for_stderr()));
}

/// Always one line, whatever it quotes.
fn say(line: &str) {
    let line = line.replace(['\n', '\r'], " ");
    // If stderr is closed too, there is nowhere left to report to.
    let _ = writeln!(io::stderr(), "{} {line}", style("hallpass:").bold().for_stderr());
}
