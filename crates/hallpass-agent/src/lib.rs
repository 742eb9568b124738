//! The agent: one node of a group for all processes of a machine, which reach it over a Unix socket.
//!
//! A client is a connection. What it holds is free as soon as the connection, and every copy of its descriptor, is closed:
//! a client that is killed holds nothing.

mod client;
mod os;
mod server;
pub mod talk;

pub use client::{Client, ClientError};
pub use server::{Agent, ServeError};
