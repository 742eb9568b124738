//! A real agent, with its API on loopback.

use std::net::SocketAddr;
use std::path::PathBuf;

use hallpass::Node;
use hallpass_agent::{Agent, AgentOptions, ServeError};
use hallpass_testkit::Scratch;
use tokio::task::JoinHandle;

use crate::http::client::get;
use crate::waiting::{until, within};

/// Settings of an agent that has all its files in this directory, with its API on loopback and on a Unix socket.
pub(crate) fn options_in(directory: &Scratch) -> AgentOptions {
    let mut options = AgentOptions::new(directory.join("agent.sock"), directory.join("data"));
    options.api.listen = Some("127.0.0.1:0".to_owned());
    options.api.socket = Some(directory.join("agent-api.sock"));
    options
}

/// An agent of a group of one.
pub(crate) struct TestAgent {
    pub(crate) directory: Scratch,
    pub(crate) node: Node,
    address: SocketAddr,
    stop: Box<dyn Fn() + Send + Sync>,
    serving: JoinHandle<()>,
}

impl TestAgent {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_, _| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&Scratch, &mut AgentOptions)) -> Self {
        let directory = Scratch::new("http");
        let mut options = options_in(&directory);
        change(&directory, &mut options);
        Self::start_in(directory, options).await.expect("the agent starts")
    }

    pub(crate) async fn start_in(directory: Scratch, options: AgentOptions) -> Result<Self, ServeError> {
        let agent = within(Agent::start(Node::builder().group("g").name("n").listen("127.0.0.1:0"), options)).await?;
        let (node, address) = (agent.node(), agent.api_address().expect("it listens"));
        let stop = Box::new(agent.stopper());
        let serving = tokio::spawn(async move { drop(agent.serve().await) });
        Ok(Self { directory, node, address, stop, serving })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn api_socket(&self) -> PathBuf {
        self.directory.join("agent-api.sock")
    }

    /// How many hold a lock here, and how many wait for it.
    pub(crate) fn uses(&self, lock: &str) -> (usize, usize) {
        self.node.lock_info(lock).map_or((0, 0), |lock| (lock.holders, lock.waiters))
    }

    pub(crate) async fn until_uses(&self, lock: &str, expected: (usize, usize)) {
        let what = format!("'{lock}' has {expected:?} holders and waiters");
        until(&what, async || self.uses(lock) == expected).await;
    }

    /// The value of a metric.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = get("/metrics").to_socket(self).await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().expect("a number")
    }

    pub(crate) async fn until_metric(&self, name: &str, expected: f64) {
        until(&format!("{name} is {expected}"), async || self.metric(name).await == expected).await;
    }

    /// Asks it to end.
    pub(crate) fn stop(&self) {
        (self.stop)();
    }

    /// Ends it in order. It must not have panicked.
    pub(crate) async fn end(self) -> Scratch {
        (self.stop)();
        within(self.serving).await.expect("the agent does not panic");
        self.directory
    }

    /// As if it had been killed: nobody is told anything.
    pub(crate) async fn kill(self) -> Scratch {
        self.serving.abort();
        let _ = self.serving.await;
        self.node.crash().await;
        self.directory
    }
}
