use std::io::{BufRead, BufReader, Chain, Cursor, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Holding;
use crate::line_protocol::{Request, Response, VERSION};
use crate::os::{self, ClientStream, Descriptor};

/// An agent that does not greet within this time is stopped, or its machine is.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an agent did not answer. After all but [`Refused`](ClientError::Refused) and [`Timeout`](ClientError::Timeout) the connection is of
/// no more use.
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
    #[error("the program that listens at {0} is not a hallpass agent")]
    NotAnAgent(PathBuf),
    /// The agent has closed the connection.
    #[error("the agent closed the connection")]
    Closed,
    /// The agent has refused the request, or its answer is not understood.
    #[error("{0}")]
    Refused(String),
}

/// Lines of the agent. Those that another process has read already come first.
type Lines = BufReader<Chain<Cursor<Vec<u8>>, ClientStream>>;

fn lines_of(stream: &ClientStream, rest: Vec<u8>) -> std::io::Result<Lines> {
    Ok(BufReader::new(Cursor::new(rest).chain(stream.try_clone()?)))
}

/// A connection to an agent. What is held through it is released when it, and every copy of its descriptor, is closed.
///
/// Unasked messages of the agent about held locks are noted whenever something is received:
/// [`holding`](Self::holding) tells until when a lock is held. A client that works without talking to its agent calls
/// [`receive_within`](Self::receive_within) now and then.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: ClientStream,
    lines: Lines,
    /// The name of the agent's node.
    pub node: String,
    /// The name of its group.
    pub group: String,
    /// How long a session lasts.
    pub ttl: Duration,
    /// The agent was started by a client for its user alone.
    pub private: bool,
    held: Vec<Holding>,
    /// The part of the next line that has been read.
    line: Vec<u8>,
}

/// A client's connection, to be used by another process, which gets the descriptor by other means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    path: PathBuf,
    node: String,
    group: String,
    ttl: Duration,
    private: bool,
    held: Vec<Holding>,
    /// The part of an incomplete line that has been read.
    rest: Vec<u8>,
}

impl Client {
    /// Connects, and reads the agent's greeting.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = ClientStream::connect(path).map_err(|source| match source.kind() {
            ErrorKind::PermissionDenied => ClientError::Forbidden(path.to_owned()),
            _ => ClientError::Absent { path: path.to_owned(), source },
        })?;
        let _ = stream.set_read_timeout(Some(WELCOME_TIMEOUT));
        let mut lines = lines_of(&stream, Vec::new()).map_err(|_| ClientError::Closed)?;
        let mut line = Vec::new();
        let not_an_agent = || ClientError::NotAnAgent(path.to_owned());
        if read_line(&mut lines, &mut line, path)? == 0 {
            return Err(ClientError::Closed);
        }
        // The version is read before anything else: the rest of the greeting may differ in other versions.
        let greeting: serde_json::Value = serde_json::from_slice(&line).map_err(|_| not_an_agent())?;
        let theirs = greeting.get("version").and_then(serde_json::Value::as_u64).ok_or_else(not_an_agent)?;
        if theirs != u64::from(VERSION) {
            return Err(ClientError::Version { theirs: u32::try_from(theirs).unwrap_or(u32::MAX) });
        }
        let Ok(Response::Welcome { node, group, ttl_ms, private, .. }) = serde_json::from_value(greeting) else {
            return Err(not_an_agent());
        };
        let _ = stream.set_read_timeout(None);
        let (path, ttl) = (path.to_owned(), Duration::from_millis(ttl_ms));
        Ok(Self { path, stream, lines, node, group, ttl, private, held: Vec::new(), line: Vec::new() })
    }

    /// Sends a request and waits for the response, however long it takes.
    pub fn request(&mut self, request: &Request) -> Result<Response, ClientError> {
        self.send(request)?;
        self.answer(Self::receive)
    }

    /// The same, but waits no longer than this, if there is a limit.
    pub fn request_within(&mut self, request: &Request, limit: Option<Duration>) -> Result<Response, ClientError> {
        self.send(request)?;
        self.answer(|client| client.receive_within(limit))
    }

    /// Waits for the next message that is not about held locks.
    fn answer(
        &mut self,
        receive: impl Fn(&mut Self) -> Result<Response, ClientError>,
    ) -> Result<Response, ClientError> {
        loop {
            match receive(self)? {
                Response::Session { .. } | Response::AtRisk { .. } | Response::Lost { .. } => {}
                answer => return Ok(answer),
            }
        }
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
        if let Request::Release { lock, fence } = request {
            self.held.retain(|held| held.lock != *lock || held.fence != *fence);
        }
        self.stream.write_all(line.as_bytes()).map_err(|_| ClientError::Closed)
    }

    /// Waits for a response.
    pub fn receive(&mut self) -> Result<Response, ClientError> {
        if read_line(&mut self.lines, &mut self.line, &self.path)? == 0 {
            return Err(ClientError::Closed);
        }
        match serde_json::from_slice::<Response>(&std::mem::take(&mut self.line)) {
            Ok(Response::Error { text }) => Err(ClientError::Refused(text)),
            Ok(response) => {
                let response = response.with_deadlines(os::of_boot_time);
                self.held.iter_mut().for_each(|held| held.handle(&response));
                self.held.extend(Holding::of(&response));
                Ok(response)
            }
            Err(error) => Err(ClientError::Refused(format!("the agent's answer is not understood: {error}"))),
        }
    }

    /// Another descriptor of this connection. While it is open, nothing that the client holds is released automatically.
    pub fn descriptor(&self) -> std::io::Result<Descriptor> {
        self.stream.try_clone().map(Descriptor::from)
    }

    /// The same connection, to be used from another thread.
    pub fn try_clone(&self) -> std::io::Result<Self> {
        let stream = self.stream.try_clone()?;
        let lines = lines_of(&stream, Vec::new())?;
        let (path, node, group) = (self.path.clone(), self.node.clone(), self.group.clone());
        Ok(Self {
            path,
            stream,
            lines,
            node,
            group,
            ttl: self.ttl,
            private: self.private,
            held: self.held.clone(),
            line: Vec::new(),
        })
    }

    /// A lock that is held through this connection, as far as the agent has said: by its name and fence.
    pub fn holding(&self, lock: &str, fence: u64) -> Option<&Holding> {
        self.held.iter().find(|held| held.lock == lock && held.fence == fence)
    }

    /// True if part of what the agent has said was read and not returned yet.
    pub fn has_buffered(&self) -> bool {
        let (before, _) = self.lines.get_ref().get_ref();
        !self.lines.buffer().is_empty() || before.position() < before.get_ref().len() as u64
    }

    /// Ends the use of the connection here. Another process that gets the descriptor goes on where this one has stopped.
    pub fn hand_over(self) -> (Handover, Descriptor) {
        let Self { path, stream, lines, node, group, ttl, private, held, line } = self;
        let (before, _) = lines.get_ref().get_ref();
        let before = &before.get_ref()[before.position() as usize..];
        let rest = [&line, lines.buffer(), before].concat();
        (Handover { path, node, group, ttl, private, held, rest }, Descriptor::from(stream))
    }

    /// Goes on with a connection of another process.
    pub fn take_over(from: Handover, descriptor: Descriptor) -> std::io::Result<Self> {
        let Handover { path, node, group, ttl, private, held, rest } = from;
        let stream = ClientStream::from(descriptor);
        let lines = lines_of(&stream, rest)?;
        Ok(Self { path, stream, lines, node, group, ttl, private, held, line: Vec::new() })
    }
}

/// Reads until the end of a line. What has been read before an error stays in it.
fn read_line(lines: &mut Lines, line: &mut Vec<u8>, path: &Path) -> Result<usize, ClientError> {
    lines.read_until(b'\n', line).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Timeout(path.to_owned()),
        _ => ClientError::Closed,
    })
}
