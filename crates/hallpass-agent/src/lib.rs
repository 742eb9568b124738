//! The agent: one node of a group for all processes of a machine, which reach it over a Unix socket.
//!
//! - [`Agent`] is the server: a node, and a socket for clients.
//! - [`Client`] is the other end, for programs without async.
//! - [`line_protocol`] is what they send each other: one JSON document per line.
//! - [`config`] is the agent's configuration file.
//! - [`tokens`] are who may do what through its API over HTTP ([`ApiOptions`]), which programs in other languages use.
//!
//! A client is a connection. What it holds is released as soon as every copy of the connection's descriptor is closed, so a client that is
//! killed holds nothing. With every grant comes a deadline, which moves on as the node's session is renewed. So a client whose agent is
//! stopped, or cut off from its group, knows by its own clock when to stop ([`Holding`]).

mod account;
mod agent;
mod audit;
mod client;
pub mod config;
mod connections;
mod grpc;
mod holding;
mod http;
pub mod line_protocol;
mod lines;
mod marks;
mod options;
mod os;
mod outcome;
mod owner;
mod paths;
mod registry;
mod service;
mod session;
mod shared;
mod shares;
mod status;
mod telemetry;
pub mod tokens;

pub use agent::Agent;
pub use client::{Client, ClientError, Handover};
#[doc(hidden)]
pub use grpc::fuzzing as etcd_fuzzing;
pub use holding::Holding;
pub use options::{AgentOptions, ApiOptions};
#[doc(hidden)]
pub use os::may_exist;
pub use os::now;
pub use outcome::{Ended, ServeError};
pub use paths::{AgentPaths, MembershipError};
