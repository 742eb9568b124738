//! Deterministic simulations of the state machines of `hallpass-core` and `hallpass-node`.
//!
//! - [`World`] runs a protocol in virtual time, with latencies, workloads and faults. One seed determines everything.
//! - [`Model`] lists every step that may come next: the checker takes all of them, a scenario chooses one.
//! - [`cluster`] runs whole nodes with their disks and clocks, down to the bytes; members come, go, crash and return.
//!
//! All of them check properties ([`oracle`]); the first two write the same [`trace`]s.
//!
//! ```
//! use hallpass_core::protocol::ricart_agrawala::{RicartAgrawala, Rules};
//! use hallpass_sim::{Config, World};
//!
//! let report = World::<RicartAgrawala>::new(&Config { entries: 100, ..Config::of_nodes(5) }, &Rules::default()).run();
//! assert_eq!(report.messages, 100 * 2 * (5 - 1));
//! assert!(report.violations.is_empty());
//! ```

pub mod cluster;
mod config;
mod faults;
mod latency;
mod model;
pub mod oracle;
mod queue;
mod report;
mod rng;
pub mod trace;
mod world;

pub use config::{Config, ConfigError, Load, Order};
pub use faults::{FaultEvent, Faults};
pub use hallpass_core::duration::{format as format_duration, parse as parse_duration};
pub use latency::Latency;
pub use model::{Holders, InFlight, Limits, Model, ModelConfig, Scratch, Step};
pub use report::{Delays, Report, Response, Spread};
pub use rng::Rng;
pub use world::World;
