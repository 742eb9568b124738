//! All nodes of a group in one process, and what happens to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hallpass::{Builder, Guard, Node};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::BenchError;
use crate::changes::{Change, Scale};
use crate::group::free_addresses;
use crate::task::{Done, Ready, Reply, Task};
use crate::worker::{lines_until_closed, now_ns, runtime, send};

/// Runs a worker that makes this change whenever it is asked to.
pub(crate) fn changes(change: &str, scale: &str, directory: &Path) -> Result<(), BenchError> {
    let change = serde_json::from_value(change.into()).map_err(BenchError::new)?;
    let scale: Scale = serde_json::from_str(scale).map_err(BenchError::new)?;
    let runtime = runtime()?;
    let mut lines = lines_until_closed();
    runtime.block_on(async {
        let mut group = match Nodes::start(change, scale, directory).await {
            Ok(group) => group,
            Err(error) => {
                send(&Reply::Failed(error.0));
                return Ok(());
            }
        };
        send(&Reply::Ready(Ready::default()));
        while let Some(line) = lines.recv().await {
            let made = match serde_json::from_str(&line) {
                Ok(Task::Change) => group.make(change).await,
                _ => Err(BenchError::new("this worker only changes groups")),
            };
            send(
                &made.map_or_else(
                    |error| Reply::Failed(error.0),
                    |nanos| Reply::Done(Done { nanos, ..Done::default() }),
                ),
            );
        }
        Ok(())
    })
}

/// Those that found the large group; the others join.
const FOUNDERS: usize = 5;
/// The others of a small group: one holds a lock, two go on when it is gone.
const SMALL: usize = 3;
/// Whatever takes longer does not happen at all.
const PATIENCE: Duration = Duration::from_secs(60);
/// No session runs out while one machine is busy with acquiring all locks of all members.
const LOADING_TTL: Duration = Duration::from_secs(60);
/// How many locks are asked for at the same time where each has to be asked for separately.
const AT_ONCE: usize = 800;

struct Nodes {
    scale: Scale,
    ttl: Duration,
    directory: PathBuf,
    nodes: Vec<Node>,
    /// How many were started with a directory of their own.
    made: usize,
    /// How often the group was changed.
    round: usize,
}

impl Nodes {
    async fn start(change: Change, scale: Scale, directory: &Path) -> Result<Self, BenchError> {
        let directory = directory.to_owned();
        let ttl = if change == Change::LoadedJoin { LOADING_TTL } else { Duration::from_secs_f64(scale.ttl_seconds) };
        let mut group = Self { scale, ttl, directory, nodes: Vec::new(), made: 0, round: 0 };
        match change {
            Change::Founding => {}
            Change::LoadedJoin => allow_descriptors(scale.members + 1)?,
            Change::Join => {
                allow_descriptors(scale.members + 1)?;
                group.found(FOUNDERS.min(scale.members)).await?;
                group.grow().await?;
            }
            _ => group.found(SMALL).await?,
        }
        Ok(group)
    }

    /// Makes the change, and all that is needed before and after it: how many nanoseconds the change itself took.
    async fn make(&mut self, change: Change) -> Result<u64, BenchError> {
        self.round += 1;
        match change {
            Change::Founding => self.begin_again().await,
            Change::Join => self.admit().await,
            Change::LoadedJoin => {
                let guards = self.found_loaded().await?;
                let nanos = self.admit().await?;
                drop(guards);
                for node in std::mem::take(&mut self.nodes) {
                    node.crash().await;
                }
                Ok(nanos)
            }
            _ => self.lose_holder(change).await,
        }
    }

    // ---- the changes ----

    async fn begin_again(&mut self) -> Result<u64, BenchError> {
        let begin = now_ns();
        let started = self.launch(SMALL).await?;
        let guard = started[0].lock("first").acquire().await.map_err(BenchError::new)?;
        let nanos = now_ns() - begin;
        drop(guard);
        for node in started {
            node.stop().await;
        }
        Ok(nanos)
    }

    async fn admit(&mut self) -> Result<u64, BenchError> {
        let begin = now_ns();
        let node = self.join().await?;
        // Every other member is asked, and answers once it has begun the view in which this node is a member.
        let guard = node.lock(format!("joined/{}", self.round)).acquire().await.map_err(BenchError::new)?;
        let nanos = now_ns() - begin;
        drop(guard);
        node.leave(PATIENCE).await.map_err(BenchError::new)?;
        self.settle().await?;
        Ok(nanos)
    }

    async fn lose_holder(&mut self, change: Change) -> Result<u64, BenchError> {
        let is_steward = |node: &Node| {
            let status = node.status();
            status.steward == Some(status.id)
        };
        let wanted = change == Change::StewardCrash;
        let found = self.nodes.iter().position(|node| is_steward(node) == wanted);
        let holder = self.nodes.swap_remove(found.ok_or_else(|| BenchError::new("nobody knows the steward"))?);
        let name = format!("held/{}", self.round);
        let guard = holder.lock(name.as_str()).acquire().await.map_err(BenchError::new)?;
        let next = self.nodes[0].lock(name.as_str());
        let waiting = tokio::spawn(async move { next.acquire().await.map(|_guard| now_ns()) });
        // By then the request has arrived.
        sleep(Duration::from_millis(100)).await;
        let begin = now_ns();
        let restarted = match change {
            Change::Stop => {
                holder.stop().await;
                None
            }
            Change::Leave => {
                holder.leave(PATIENCE).await.map_err(BenchError::new)?;
                None
            }
            Change::Restart => {
                holder.crash().await;
                Some(self.restart(&holder).await?)
            }
            _ => {
                holder.crash().await;
                None
            }
        };
        let granted = waiting.await.map_err(BenchError::new)?.map_err(BenchError::new)?;
        drop(guard);
        let node = match restarted {
            Some(node) => node,
            None if change == Change::Leave => self.join().await?,
            None => self.restart(&holder).await?,
        };
        self.nodes.push(node);
        self.settle().await?;
        Ok(granted.saturating_sub(begin))
    }

    // ---- the nodes ----

    fn builder(&self, name: &str, listen: &str) -> Builder {
        Node::builder()
            .group("bench")
            .name(name)
            .listen(listen)
            .data(self.directory.join(name))
            .ttl(self.ttl)
            // What is cached is still there when the group changes.
            .cache_idle(Duration::from_secs(3600))
    }

    /// New nodes, which found a group together.
    async fn launch(&mut self, count: usize) -> Result<Vec<Node>, BenchError> {
        let addresses = free_addresses(count)?;
        let mut starting = JoinSet::new();
        for address in &addresses {
            let name = format!("n{}", self.made);
            self.made += 1;
            starting.spawn(self.builder(&name, address).peers(addresses.clone()).start());
        }
        let started = starting.join_all().await;
        started.into_iter().collect::<Result<_, _>>().map_err(BenchError::new)
    }

    async fn found(&mut self, count: usize) -> Result<(), BenchError> {
        self.nodes = self.launch(count).await?;
        self.settle().await
    }

    /// Lets nodes join until there are as many as there should be.
    async fn grow(&mut self) -> Result<(), BenchError> {
        while self.nodes.len() < self.scale.members {
            let node = self.join().await?;
            self.nodes.push(node);
        }
        self.settle().await
    }

    /// A new node joins.
    async fn join(&mut self) -> Result<Node, BenchError> {
        let address = free_addresses(1)?.remove(0);
        let name = format!("n{}", self.made);
        self.made += 1;
        let builder = self.builder(&name, &address).join(self.nodes[0].address().to_string());
        builder.start().await.map_err(BenchError::new)
    }

    /// The same node again.
    async fn restart(&self, node: &Node) -> Result<Node, BenchError> {
        let peers = self.nodes.iter().chain([node]).map(|node| node.address().to_string());
        let builder = self.builder(node.name(), &node.address().to_string()).peers(peers);
        builder.start().await.map_err(BenchError::new)
    }

    /// Waits until all nodes are in the same view.
    async fn settle(&self) -> Result<(), BenchError> {
        let is_settled = || {
            let status: Vec<_> = self.nodes.iter().map(Node::status).collect();
            let members = |of: &hallpass::Status| of.members.iter().filter(|member| member.in_view).count();
            status.iter().all(|one| {
                one.complete && one.steward.is_some() && one.epoch == status[0].epoch && members(one) == status.len()
            })
        };
        let settled = async {
            while !is_settled() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, settled).await.map_err(|_| {
            let waits_for = |node: &Node| node.status().waits_for.map(|why| format!(": {} {why}", node.name()));
            let why = self.nodes.iter().find_map(waits_for).unwrap_or_default();
            BenchError::new(format!("{} nodes do not come to one view{why}", self.nodes.len()))
        })
    }

    // ---- locks ----

    /// A new group whose members hold locks, and have others cached, each its share. They ask for them before there is a group:
    /// then all requests to a member are one message, and the locks are there a hundred times sooner.
    async fn found_loaded(&mut self) -> Result<Vec<Guard>, BenchError> {
        let Scale { members, held, cached, .. } = self.scale;
        self.nodes = self.launch(members).await?;
        let holding = self.acquire("held", held, held);
        let (guards, cached_once, ()) =
            tokio::try_join!(holding, self.acquire("cached", cached, cached), self.settle())?;
        drop(cached_once);
        // If it was not founded in one view, what was cached before the last one is gone.
        drop(self.acquire("cached", cached, AT_ONCE).await?);
        let locks = self.nodes.iter().map(|node| node.status().locks).sum::<usize>();
        if locks < held + cached {
            return Err(BenchError::new(format!("only {locks} locks are held or cached")));
        }
        Ok(guards)
    }

    /// The nodes acquire locks, each its share, some at the same time.
    async fn acquire(&self, prefix: &'static str, locks: usize, at_once: usize) -> Result<Vec<Guard>, BenchError> {
        let mut working = JoinSet::new();
        let at_once = at_once.div_ceil(self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate() {
            for part in 0..at_once {
                let (node, first, step) = (node.clone(), part * self.nodes.len() + index, at_once * self.nodes.len());
                working.spawn(async move {
                    let mut guards = Vec::new();
                    for lock in (first..locks).step_by(step) {
                        guards.push(node.lock(format!("{prefix}/{lock}")).acquire().await?);
                    }
                    Ok::<_, hallpass::AcquireError>(guards)
                });
            }
        }
        let mut guards = Vec::new();
        for acquired in working.join_all().await {
            guards.extend(acquired.map_err(BenchError::new)?);
        }
        Ok(guards)
    }
}

/// Every two nodes have two connections, and both ends of each are here.
fn allow_descriptors(nodes: usize) -> Result<(), BenchError> {
    let needed = (2 * nodes * nodes + 50 * nodes + 200) as u64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        if limit.maximum.is_some_and(|maximum| maximum < needed) {
            let why = format!("{nodes} nodes in one process need {needed} descriptors: raise the limit (ulimit -Hn)");
            return Err(BenchError::new(why));
        }
        limit.current = Some(needed);
        setrlimit(Resource::Nofile, limit).map_err(BenchError::new)?;
    }
    Ok(())
}
