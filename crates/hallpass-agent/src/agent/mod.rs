//! The agent's life: it [starts](start), [serves](serve), may [join](join) a group, [repairs](repair) its files, and [ends](end).

mod end;
mod join;
mod repair;
mod serve;
mod start;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hallpass::{Builder, DataDirectory, LogLimiter, Node};
use tokio::sync::mpsc;

use crate::AgentPaths;
use crate::connections::Connections;
use crate::http::Server;
use crate::options::ApiOptions;
use crate::os::{Claim, SocketFile};
use crate::outcome::Ended;
use crate::service::{Service, Watcher};
use crate::shared::{AgentShared, Join};

/// An agent: a node, and a socket for the processes of its machine.
///
/// - **Start**: [`Agent::start`], then [`serve`](Self::serve) until it ends.
/// - **End**: by [`stopper`](Self::stopper), by a client's [`Leave`](crate::line_protocol::Request::Leave), or automatically after
///   [`idle_limit`](crate::AgentOptions::idle_limit). Clients that hold locks are told, and have one session to end. Until they have,
///   or the session is over, the agent keeps its socket and its data directory, so that nobody else is let in.
#[derive(Debug)]
pub struct Agent {
    paths: AgentPaths,
    socket: SocketFile,
    /// The directory of the socket was created for this agent.
    created_directory: bool,
    socket_group: Option<u32>,
    /// The settings of its node, to make another node that joins a group.
    builder: Builder,
    /// None for a moment, when the agent goes from one group to another.
    data: Option<Arc<DataDirectory>>,
    claims: [Claim; 2],
    /// The rights on the directory above the data: others may have to look there for what it says about the agent.
    parent_mode: Option<u32>,
    /// How often in a row its data directory could not be made again.
    failed_repairs: u32,
    shared: Arc<AgentShared>,
    service: Service,
    joins: mpsc::Receiver<Join>,
    idle_limit: Option<Duration>,
    log: LogLimiter,
    /// The connections to its socket.
    door: Arc<Connections>,
    /// Ends leases that are over.
    _watcher: Watcher,
    api: ApiOptions,
    server: Option<Server>,
}

impl Agent {
    /// The service that all front doors stand on.
    #[cfg(test)]
    pub(crate) fn service(&self) -> Service {
        self.service.clone()
    }

    /// Where the API listens on TCP, if it does.
    pub fn api_address(&self) -> Option<SocketAddr> {
        self.server.as_ref().and_then(|server| server.address)
    }

    /// The agent's node. Another node takes its place when the agent [joins](crate::line_protocol::Request::Join) a group.
    pub fn node(&self) -> Node {
        self.shared.node()
    }

    /// A function that ends the agent.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.stop(Ended::Stopped)
    }
}
