//! `hallpass lab sweep`: compares protocols over group sizes and loads.

use hallpass_lab::sweep::{Cell, SweepSpec, pictures, sweep, to_html};

use crate::cli::SweepArgs;
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, count};

pub(super) fn run(args: &SweepArgs) -> Result<Outcome, Fault> {
    let spec = SweepSpec {
        protocols: SweepSpec::parse_protocols(&args.protocols)?,
        nodes: SweepSpec::parse_nodes(&args.nodes)?,
        loads: args.loads.split(',').map(|load| load.trim().to_owned()).collect(),
        seed: args.seed,
        mutation: None,
    };
    let bar = terminal::progress_bar("runs");
    let cells = sweep(&spec, |done, total, current| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message(current.to_owned());
    });
    bar.finish_and_clear();
    let cells = cells?;
    if let Some(file) = &args.out {
        terminal::write(Some(file), &to_html(&spec, &cells, &command(args)))?;
    }
    if let Some(directory) = &args.pictures {
        write_pictures(directory, &pictures(&spec, &cells))?;
    }
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&cells))?;
    } else {
        let targets: Vec<&str> = [&args.out, &args.pictures].into_iter().flatten().map(String::as_str).collect();
        let runs = count(cells.len() as u64, "run", "runs");
        terminal::print(&format!("{runs} measured, written to {}\n", targets.join(" and ")))?;
    }
    let violated = |cell: &Cell| cell.violations > 0;
    Ok(if cells.iter().any(violated) { Outcome::Violated } else { Outcome::Fine })
}

fn write_pictures(directory: &str, pictures: &[(String, String)]) -> Result<(), Fault> {
    std::fs::create_dir_all(directory).map_err(|error| Fault::Write { target: directory.to_owned(), error })?;
    for (name, svg) in pictures {
        terminal::write(Some(&format!("{directory}/{name}")), svg)?;
    }
    Ok(())
}

fn command(args: &SweepArgs) -> String {
    let SweepArgs { protocols, nodes, loads, seed, .. } = args;
    format!("hallpass lab sweep --protocols {protocols} --nodes {nodes} --loads {loads} --seed {seed} --out FILE.html")
}
