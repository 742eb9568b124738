use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::{Request, Response, VERSION};
use crate::os::{ClientStream, Descriptor};

/// An agent that does not greet within this time is stopped, or its machine is.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an agent did not answer. After all but [`Refused`](ClientError::Refused) the connection is of no more use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no agent.
    #[error("no agent answers at {path}: {source}; start one with 'hallpass agent'")]
    Absent {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// This user may not use the agent's socket.
    #[error(
        "no permission to use the agent's socket {0}; run as its user, or join the group of its setting socket_group"
    )]
    Forbidden(PathBuf),
    /// The agent has another version of the line protocol.
    #[error(
        "the agent uses version {theirs} of the client protocol, this command {VERSION}; use the same release of both"
    )]
    Version {
        /// The agent's version.
        theirs: u32,
    },
    /// The agent has not answered in time.
    #[error("the agent at {0} does not answer; is it stopped?")]
    Timeout(PathBuf),
    /// Another program listens at the socket.
    #[error("the program that listens at {0} is no hallpass agent")]
    NotAnAgent(PathBuf),
    /// The agent has closed the connection.
    #[error("the agent closed the connection")]
    Closed,
    /// The agent has refused the request, or its answer is not understood.
    #[error("{0}")]
    Refused(String),
}

/// A connection to an agent. What is held through it is released when it, and every copy of its descriptor, is closed.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: ClientStream,
    lines: BufReader<ClientStream>,
    /// The name of the agent's node.
    pub node: String,
    /// The name of its group.
    pub group: String,
    /// How long a session lasts.
    pub ttl: Duration,
    /// The agent was started by a client for its user alone.
    pub private: bool,
}

impl Client {
    /// Connects, and reads the agent's greeting.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = ClientStream::connect(path).map_err(|source| match source.kind() {
            ErrorKind::PermissionDenied => ClientError::Forbidden(path.to_owned()),
            _ => ClientError::Absent { path: path.to_owned(), source },
        })?;
        let _ = stream.set_read_timeout(Some(WELCOME_TIMEOUT));
        let mut lines = BufReader::new(stream.try_clone().map_err(|_| ClientError::Closed)?);
        let mut line = String::new();
        let not_an_agent = || ClientError::NotAnAgent(path.to_owned());
        if read_line(&mut lines, &mut line, path)? == 0 {
            return Err(ClientError::Closed);
        }
        // The version is read before anything else: the rest of the greeting may differ in other versions.
        let greeting: serde_json::Value = serde_json::from_str(&line).map_err(|_| not_an_agent())?;
        let theirs = greeting.get("version").and_then(serde_json::Value::as_u64).ok_or_else(not_an_agent)?;
        if theirs != u64::from(VERSION) {
            return Err(ClientError::Version { theirs: u32::try_from(theirs).unwrap_or(u32::MAX) });
        }
        let Ok(Response::Welcome { node, group, ttl_ms, private, .. }) = serde_json::from_value(greeting) else {
            return Err(not_an_agent());
        };
        let _ = stream.set_read_timeout(None);
        let (path, ttl) = (path.to_owned(), Duration::from_millis(ttl_ms));
        Ok(Self { path, stream, lines, node, group, ttl, private })
    }

    /// Sends a request and waits for the response, however long it takes.
    pub fn request(&mut self, request: &Request) -> Result<Response, ClientError> {
        self.send(request)?;
        self.receive()
    }

    /// The same, but waits no longer than this, if there is a limit.
    pub fn request_within(&mut self, request: &Request, limit: Option<Duration>) -> Result<Response, ClientError> {
        self.send(request)?;
        self.receive_within(limit)
    }

    /// Waits for a response, but no longer than this, if there is a limit.
    pub fn receive_within(&mut self, limit: Option<Duration>) -> Result<Response, ClientError> {
        let _ = self.stream.set_read_timeout(limit);
        let response = self.receive();
        let _ = self.stream.set_read_timeout(None);
        response
    }

    /// Sends a request; [`receive`](Self::receive) gets its response.
    pub fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line = serde_json::to_string(request).map_err(|error| ClientError::Refused(error.to_string()))?;
        line.push('\n');
        self.stream.write_all(line.as_bytes()).map_err(|_| ClientError::Closed)
    }

    /// Waits for a response.
    pub fn receive(&mut self) -> Result<Response, ClientError> {
        let mut line = String::new();
        if read_line(&mut self.lines, &mut line, &self.path)? == 0 {
            return Err(ClientError::Closed);
        }
        match serde_json::from_str(&line) {
            Ok(Response::Error { text }) => Err(ClientError::Refused(text)),
            Ok(response) => Ok(response),
            Err(error) => Err(ClientError::Refused(format!("the agent's answer is not understood: {error}"))),
        }
    }

    /// Another descriptor of this connection. While it is open, nothing that the client holds is released by itself.
    pub fn descriptor(&self) -> std::io::Result<Descriptor> {
        self.stream.try_clone().map(Descriptor::from)
    }

    /// The same connection, to be used from another thread.
    pub fn try_clone(&self) -> std::io::Result<Self> {
        let stream = self.stream.try_clone()?;
        let lines = BufReader::new(stream.try_clone()?);
        let (path, node, group) = (self.path.clone(), self.node.clone(), self.group.clone());
        Ok(Self { path, stream, lines, node, group, ttl: self.ttl, private: self.private })
    }
}

fn read_line(lines: &mut BufReader<ClientStream>, line: &mut String, path: &Path) -> Result<usize, ClientError> {
    lines.read_line(line).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Timeout(path.to_owned()),
        ErrorKind::InvalidData => ClientError::NotAnAgent(path.to_owned()),
        _ => ClientError::Closed,
    })
}
