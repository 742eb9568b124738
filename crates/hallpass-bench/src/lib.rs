//! The benchmark: hallpass, what it is built on, and other lock services, side by side in one run on one machine.
//!
//! The callers of every system are spread over a few worker processes, which all run the same loop on the same runtime;
//! the raw round trip is measured by that loop too, as if it were a lock. Rounds are interleaved, so that a machine that
//! is slow for a while is slow for every system, and the figures are medians over the rounds.
//!
//! ```no_run
//! use hallpass_bench::{Launcher, Spec, run};
//!
//! // Workers are this program again: `program worker ..` calls `hallpass_bench::work`.
//! let launcher = Launcher::this_program(&["worker"])?;
//! let report = run(&Spec::quick(), &launcher, &mut |_| {})?;
//! println!("{}", report.to_json());
//! # Ok::<(), hallpass_bench::BenchError>(())
//! ```

mod changes;
mod chart;
mod child;
mod clients;
mod group;
mod histogram;
mod holds;
mod keys;
mod measure;
mod report;
mod run;
mod servers;
mod systems;
mod task;
mod usage;
mod work;
mod worker;

pub use changes::Scale;
pub use child::Launcher;
pub use report::{ChangeFigures, Figures, Goal, Ratio, Report, Skipped};
pub use run::{Peer, Progress, Section, Spec, run};
pub use systems::lock_name;
pub use work::work;
pub use worker::{Caller, System, serve};

/// Why a benchmark could not be run. Every process that it had started has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BenchError(pub String);
