//! hallpass through an agent: a node in a process of its own, reached over its Unix socket.

use std::path::Path;

use hallpass::Node;
use hallpass_agent::line_protocol::{Request, Response};
use hallpass_agent::{Agent, AgentOptions};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::lock_name;
use crate::task::{Ready, Reply};
use crate::worker::{lines_until_closed, runtime, send};
use crate::{BenchError, Caller, System};

/// Runs a worker that is an agent; with an address it serves its API there.
pub(crate) fn agent(
    name: &str,
    listen: &str,
    peers: &[&str],
    socket: &Path,
    api: Option<&str>,
) -> Result<(), BenchError> {
    let runtime = runtime()?;
    let mut lines = lines_until_closed();
    runtime.block_on(async {
        let builder = Node::builder().group("bench").name(name).listen(listen).peers(peers.iter().copied());
        let mut options = AgentOptions::new(socket, socket.with_extension("data"));
        options.api.listen = api.map(str::to_owned);
        let agent = Agent::start(builder, options).await.map_err(BenchError::new)?;
        let node = agent.node().clone();
        tokio::spawn(agent.serve());
        node.ready().await;
        send(&Reply::Ready(Ready::default()));
        while lines.recv().await.is_some() {}
        Ok(())
    })
}

/// The clients of one agent.
pub(crate) struct Clients {
    pub(crate) socket: String,
}

impl System for Clients {
    type Caller = Client;

    async fn caller(&self, _id: u32) -> Result<Client, BenchError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(BenchError::new)?;
        let mut client = Client { stream: BufReader::new(stream), line: String::new(), holds: None };
        match client.receive().await? {
            Response::Welcome { .. } => Ok(client),
            other => Err(BenchError::new(format!("the agent does not greet: {other:?}"))),
        }
    }
}

pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    line: String,
    holds: Option<(String, u64)>,
}

impl Client {
    async fn ask(&mut self, request: &Request) -> Result<Response, BenchError> {
        let line = serde_json::to_string(request).map_err(BenchError::new)? + "\n";
        self.stream.get_mut().write_all(line.as_bytes()).await.map_err(BenchError::new)?;
        loop {
            // Deadlines are pushed between answers.
            match self.receive().await? {
                Response::Session { .. } | Response::Waiting(_) => {}
                answer => return Ok(answer),
            }
        }
    }

    async fn receive(&mut self) -> Result<Response, BenchError> {
        self.line.clear();
        self.stream.read_line(&mut self.line).await.map_err(BenchError::new)?;
        serde_json::from_str(&self.line).map_err(BenchError::new)
    }
}

impl Caller for Client {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        let request = Request::Acquire {
            lock: lock_name(lock),
            shared: false,
            tries: false,
            timeout_ms: None,
            explain: false,
            hold_only: false,
        };
        match self.ask(&request).await? {
            Response::Granted { lock, fence, .. } => self.holds = Some((lock, fence)),
            other => return Err(BenchError::new(format!("the agent does not grant: {other:?}"))),
        }
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        let Some((lock, fence)) = self.holds.take() else { return Ok(()) };
        match self.ask(&Request::Release { lock, fence }).await? {
            Response::Released { held: true } => Ok(()),
            other => Err(BenchError::new(format!("the lock was not held until its release: {other:?}"))),
        }
    }
}
