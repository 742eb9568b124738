//! How an agent joins a group: with a new node, if it had a group of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hallpass::{Builder, DataDirectory, GroupError, Node, StartError};
use tokio::net::TcpStream;

use super::Agent;
use super::start::warn_if_open;
use crate::outcome::GroupFault;
use crate::shared::Join;

/// The pause before a node is started again that could not be.
const START_RETRY: Duration = Duration::from_millis(500);

impl Agent {
    /// Leaves the group that the node is alone in, or waits to found, and joins another one as a new node.
    pub(super) async fn join(&mut self, join: Join) {
        let Join { address, limit, answer } = join;
        self.shared.set_settled(false);
        let node = self.shared.node();
        let prepared = self.check_join(&node, &address, limit).await;
        let builder = match prepared {
            Ok(builder) => builder,
            Err(why) => {
                self.shared.set_settled(true);
                let _ = answer.send(Err(why));
                return;
            }
        };
        let deadline = Instant::now() + limit;
        let is_new = builder.is_some();
        let become_new = match builder {
            Some(builder) => self.become_new(&node, builder).await,
            None => Ok(()),
        };
        self.shared.set_settled(true);
        if become_new.is_err() {
            let _ = answer.send(become_new);
            return;
        }
        if let Some(error) = self.shared.mark_membership().err() {
            tracing::warn!(%error, "cannot write down that this agent is a member of a group");
        }
        tracing::info!(address, "joining a group");
        let node = self.shared.node();
        tokio::spawn(async move {
            let left = deadline.saturating_duration_since(Instant::now());
            let joined = if is_new {
                tokio::time::timeout(left, node.ready()).await.map_err(|_| GroupError::Timeout)
            } else {
                node.join(&address, left).await
            };
            let _ = answer.send(joined.map_err(GroupFault::Group));
        });
    }

    /// Returns the settings of a new node if this one has a group of its own to give up, or waits to found one. None if it only waits to
    /// join one. After an error nothing has changed.
    async fn check_join(&self, node: &Node, address: &str, limit: Duration) -> Result<Option<Builder>, GroupFault> {
        let refuse = |why: String| Err(GroupFault::Refused(why));
        if self.shared.private {
            return refuse("a private agent joins no group; start another one with 'hallpass agent'".to_owned());
        }
        self.check_unused(node)?;
        let builder = match self.builder.clone().only_join(address) {
            Ok(builder) => builder,
            Err(error) => return refuse(format!("{error}; nothing has changed")),
        };
        let host = address.split_once('@').map_or(address, |(_, host)| host);
        match tokio::time::timeout(limit, TcpStream::connect(host)).await {
            Ok(Ok(stream)) if is_own(&stream, node.address()) => {
                refuse(format!("{host} is the address of this agent itself; nothing has changed"))
            }
            Ok(Ok(_)) => {
                // That took a while.
                self.check_unused(node)?;
                let gives_up = node.status().group_id.is_some() || !self.builder.only_joins();
                Ok(gives_up.then_some(builder))
            }
            Ok(Err(error)) => refuse(format!(
                "nobody answers at {host}: {error}; an agent that is alone listens only if it is started with --listen; nothing has changed"
            )),
            Err(_) => Err(GroupFault::Group(GroupError::Timeout)),
        }
    }

    /// An error if others are in the node's group, or clients use it.
    fn check_unused(&self, node: &Node) -> Result<(), GroupFault> {
        check_alone(node)?;
        if self.shared.clients.uses_any() {
            return Err(GroupFault::Refused(
                "clients of this agent hold locks or wait for them; try again when they have ended".to_owned(),
            ));
        }
        Ok(())
    }

    /// Replaces the node by a new one that has no group yet. If that cannot start, on a full disk for instance, it tries again until the
    /// agent is stopped. An error if it was stopped, or if others have come into the node's group: then it goes on with them.
    async fn become_new(&mut self, node: &Node, builder: Builder) -> Result<(), GroupFault> {
        node.stop().await;
        // From here on nobody comes any more.
        let alone = check_alone(node);
        let Some(data) = self.data.take() else { return Err(GroupFault::Group(GroupError::Stopped)) };
        // The claims keep other agents out while the directory is not locked.
        drop(data);
        let builder = if alone.is_ok() { builder } else { self.builder.clone() };
        while let Err(error) = self.start_anew(&builder, alone.is_ok()).await {
            tracing::error!(%error, "cannot start the node of this agent; trying again");
            self.serve_without_node(START_RETRY).await?;
        }
        self.builder = builder;
        alone
    }

    /// Lets clients ask what is wrong, and end the agent: then an error.
    async fn serve_without_node(&mut self, time: Duration) -> Result<(), GroupFault> {
        let shared = Arc::clone(&self.shared);
        let end = tokio::time::sleep(time);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return Ok(()),
                _ = shared.stopped() => return Err(GroupFault::Group(GroupError::Stopped)),
                Ok((connection, _)) = self.socket.listener.accept() => self.serve_client(connection),
            }
        }
    }

    async fn start_anew(&mut self, builder: &Builder, forgets: bool) -> Result<(), StartError> {
        let directory = match &self.data {
            Some(directory) => Arc::clone(directory),
            None => {
                if forgets {
                    DataDirectory::forget(&self.paths.data)?;
                }
                let directory = Arc::new(DataDirectory::open(&self.paths.data)?);
                Arc::clone(self.data.insert(directory))
            }
        };
        let node = builder.clone().data_directory(directory).start().await?;
        warn_if_open(&node);
        self.shared.replace_node(node);
        Ok(())
    }
}

/// An error if others are in the node's group.
fn check_alone(node: &Node) -> Result<(), GroupFault> {
    let status = node.status();
    if status.group_id.is_none() || status.members.len() <= 1 {
        return Ok(());
    }
    let members = status.members.len();
    Err(GroupFault::Refused(format!("this agent is a member of a group of {members}; let it leave that first")))
}

/// True if a connection leads to the node that listens at this address.
fn is_own(stream: &TcpStream, node: SocketAddr) -> bool {
    let (Ok(here), Ok(there)) = (stream.local_addr(), stream.peer_addr()) else { return false };
    there.port() == node.port() && (there.ip() == node.ip() || node.ip().is_unspecified() && there.ip() == here.ip())
}
