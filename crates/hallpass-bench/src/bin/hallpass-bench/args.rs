//! The arguments, as `hallpass bench` passes them on.

use std::str::FromStr;

use clap::Parser;
use hallpass_bench::{Peer, Section, Spec};

const AFTER_HELP: &str = "\
Callers run in three processes on this machine. Rounds are interleaved, and figures are medians. Peers are \
started on free ports, with data in a directory of the benchmark, and stopped at the end. Peers that are not \
installed are named and omitted. Their clients are first built in bench-peers.

The part 'locks' measures callers. The part 'sizes' does the same in groups of 3, 16 and 50 processes. \
The part 'views' measures how long a group takes to be founded, and to \
continue when members join, leave and fail. All its nodes run in one process, with their directories in the \
place for temporary files.

Exit code: 0, or 1 if two callers held a lock of hallpass at the same time.

Examples:
  hallpass bench
  hallpass bench --peers etcd,redis,postgres --rounds 5 --svg bench.svg
  hallpass bench --only views --rounds 5
  hallpass bench --quick --json";

/// Measure hallpass against raw sockets and other lock services
#[derive(Debug, Parser)]
#[command(name = "hallpass-bench", bin_name = "hallpass bench", version, max_term_width = 80, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Measure only one part: locks, sizes or views [default: all]
    #[arg(long, value_name = "PART")]
    only: Option<Section>,
    /// Lock services to compare with, separated by commas: etcd, redis, zookeeper, postgres, or none
    /// [default: redis,postgres]
    #[arg(long, value_name = "P,..")]
    peers: Option<Peers>,
    /// Number of rounds [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Seconds for each measurement, 0.01 to 600 [default: 1, with --quick 0.05]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Measure for a few seconds in all, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Also draw the figures to this file
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) svg: Option<String>,
}

impl Args {
    /// What to measure: the defaults, or those of `--quick`, changed as the other arguments say.
    pub(crate) fn spec(&self) -> Spec {
        let mut spec = if self.quick { Spec::quick() } else { Spec::default() };
        spec.only = self.only;
        spec.rounds = self.rounds.unwrap_or(spec.rounds);
        spec.seconds = self.seconds.unwrap_or(spec.seconds);
        if let Some(Peers(peers)) = &self.peers {
            spec.peers.clone_from(peers);
        }
        spec
    }
}

#[derive(Clone, Debug)]
struct Peers(Vec<Peer>);

impl FromStr for Peers {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        if matches!(list, "none" | "") {
            return Ok(Self(Vec::new()));
        }
        let peer = |name: &str| name.parse().map_err(|why| format!("no peer is called '{name}': {why}"));
        list.split(',').map(peer).collect::<Result<_, _>>().map(Self)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=600.0).contains(seconds));
    seconds.ok_or_else(|| "it takes 0.01 to 600".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_fits_80_columns() {
        let help = Args::command().render_long_help().to_string();
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
}
