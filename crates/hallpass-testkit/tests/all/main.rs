//! Tests that read the repository: what crates depend on, and whether the pages tell the truth where a machine can see it.

mod counts;
mod crate_graph;
mod links;
mod names;
mod packaging;
mod track_record;
