//! Consensus in a small world of its own, and under messages that nobody should send.

mod faults;
mod messages;
mod steps;
mod world;
