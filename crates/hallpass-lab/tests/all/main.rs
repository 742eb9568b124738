//! The laboratory: runs, explorations, scenarios, claims. One program for all of these tests: it is built and linked once.

mod check;
mod claims;
mod directory;
mod models;
mod play;
mod scenarios;
mod states;
mod swarm;
mod sweep;
