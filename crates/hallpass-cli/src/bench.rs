//! `hallpass bench`: passes its arguments on to `hallpass-bench`, an executable of its own, so that only those who
//! measure have to build it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::exit::{Fault, Outcome};
use crate::terminal::{note, print};

pub(crate) const HELP: &str = "\
Options: --only locks or views, --peers etcd,redis,zookeeper,postgres or none, --rounds N, --seconds S, --quick, \
--json and --svg FILE.svg. 'hallpass-bench', an executable beside this one, explains them; without it this help \
lists only their names.

Exit code: that of hallpass-bench, or 69 if that is missing.

Examples:
  hallpass bench
  hallpass bench --peers etcd,redis,postgres --rounds 5 --svg bench.svg
  hallpass bench --only views --rounds 5
  hallpass bench --quick --json";

const EXECUTABLE: &str = "hallpass-bench";
/// In the source, beside the workspace's manifest: tells our workspace from that of another program.
const CRATE: &str = "crates/hallpass-bench/Cargo.toml";
/// How both executables are built into one directory.
const BUILD: &str = "cargo build --profile dist -p hallpass-cli -p hallpass-bench";

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Options of the benchmark, see below
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<Outcome, Fault> {
    let this = env::current_exe().map_err(|error| Fault::Unavailable(format!("cannot find this program: {error}")))?;
    let beside = this.with_file_name(EXECUTABLE);
    let asks_help = args.args.iter().any(|arg| arg == "--help" || arg == "-h");
    let is_built = beside.is_file();
    if asks_help && !is_built {
        return help();
    }
    // What lies beside a program that cargo runs may be older than the source, or not optimised: good enough for help.
    let by_cargo = if asks_help { None } else { cargo(&this) };
    let mut command = match by_cargo {
        Some(command) => command,
        None if is_built => Command::new(beside),
        None => {
            let place = beside.display();
            return Err(Fault::Unavailable(format!("there is no {place}: in the source, '{BUILD}' builds both")));
        }
    };
    let error = command.args(&args.args).exec();
    let program = command.get_program().to_string_lossy();
    Err(Fault::Unavailable(format!("cannot start {program}: {error}")))
}

fn help() -> Result<Outcome, Fault> {
    let mut cli = Cli::command();
    cli.build();
    let bench = cli.find_subcommand_mut("bench").expect("this is its code");
    print(&bench.render_help().to_string())?;
    Ok(Outcome::Fine)
}

/// Builds and runs the benchmark, if `cargo run` started this program.
fn cargo(this: &Path) -> Option<Command> {
    let cargo = env::var_os("CARGO")?;
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let workspace = package.as_deref().and_then(workspace).or_else(|| workspace(this))?;
    let mut command = Command::new(cargo);
    command.arg("run").arg("--manifest-path").arg(workspace.join("Cargo.toml"));
    command.args(["--profile", "dist", "-p", EXECUTABLE, "--bin", EXECUTABLE]);
    // `target/PROFILE/hallpass` is where cargo put this program.
    let built = this.ancestors().nth(2).map(|target| target.join("dist").join(EXECUTABLE));
    if built.is_some_and(|built| built.is_file()) {
        command.arg("--quiet");
    } else {
        note("the benchmark is built now, once");
    }
    command.arg("--");
    Some(command)
}

/// The root of our source that this path is in.
fn workspace(path: &Path) -> Option<&Path> {
    path.ancestors().find(|directory| directory.join(CRATE).is_file())
}
