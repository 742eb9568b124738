//! Groups in virtual time. One program for all of these tests: it is built and linked once.

mod wire;
mod world;
