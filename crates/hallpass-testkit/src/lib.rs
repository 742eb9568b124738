//! What the tests of this workspace share.

pub mod repository;
