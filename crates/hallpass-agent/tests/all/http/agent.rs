//! A real agent, with its API on loopback.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hallpass::Node;
use hallpass_agent::{Agent, AgentOptions, ServeError};
use tokio::task::JoinHandle;

use crate::http::client::{a_moment, get};

/// Much longer than anything takes that must happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it takes no longer")
}

/// A directory of a test's own, which is removed.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("hallpass-http-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn options(&self) -> AgentOptions {
        let mut options = AgentOptions::new(self.0.join("agent.sock"), self.0.join("data"));
        options.api.listen = Some("127.0.0.1:0".to_owned());
        options.api.socket = Some(self.0.join("agent-api.sock"));
        options
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An agent of a group of one.
pub(crate) struct TestAgent {
    pub(crate) directory: Directory,
    pub(crate) node: Node,
    address: SocketAddr,
    stop: Box<dyn Fn() + Send + Sync>,
    serving: JoinHandle<()>,
}

impl TestAgent {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_, _| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&Directory, &mut AgentOptions)) -> Self {
        let directory = Directory::new();
        let mut options = directory.options();
        change(&directory, &mut options);
        Self::start_in(directory, options).await.expect("the agent starts")
    }

    pub(crate) async fn start_in(directory: Directory, options: AgentOptions) -> Result<Self, ServeError> {
        let agent = within(Agent::start(Node::builder().group("g").name("n"), options)).await?;
        let (node, address) = (agent.node(), agent.api_address().expect("it listens"));
        let stop = Box::new(agent.stopper());
        let serving = tokio::spawn(async move { drop(agent.serve().await) });
        Ok(Self { directory, node, address, stop, serving })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn api_socket(&self) -> PathBuf {
        self.directory.0.join("agent-api.sock")
    }

    /// How many hold a lock here, and how many wait for it.
    pub(crate) fn uses(&self, lock: &str) -> (usize, usize) {
        self.node.lock_info(lock).map_or((0, 0), |lock| (lock.holders, lock.waiters))
    }

    pub(crate) async fn until_uses(&self, lock: &str, expected: (usize, usize)) {
        let end = Instant::now() + LIMIT;
        while self.uses(lock) != expected {
            assert!(Instant::now() < end, "never {expected:?}: {:?}", self.uses(lock));
            a_moment().await;
        }
    }

    /// The value of a metric.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = get("/metrics").to_socket(self).await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().expect("a number")
    }

    pub(crate) async fn until_metric(&self, name: &str, expected: f64) {
        let end = Instant::now() + LIMIT;
        loop {
            let value = self.metric(name).await;
            if value == expected {
                return;
            }
            assert!(Instant::now() < end, "{name} is {value}, never {expected}");
            a_moment().await;
        }
    }

    /// Asks it to end.
    pub(crate) fn stop(&self) {
        (self.stop)();
    }

    /// Ends it in order. It must not have panicked.
    pub(crate) async fn end(self) -> Directory {
        (self.stop)();
        within(self.serving).await.expect("the agent does not panic");
        self.directory
    }

    /// As if it had been killed: nobody is told anything.
    pub(crate) async fn kill(self) -> Directory {
        self.serving.abort();
        let _ = self.serving.await;
        self.node.crash().await;
        self.directory
    }
}
