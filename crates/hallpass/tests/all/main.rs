//! Real nodes on loopback. One program for all of these tests: it is built and linked once.

mod acquire;
mod blocking;
mod common;
mod elect;
mod failing;
mod group;
mod keys;
mod life;
mod locks;
mod refusals;
mod slow_peer;
mod strangers;
mod system;
mod upgrade;
mod views;
