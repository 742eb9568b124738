//! A client of an agent, for programs without async.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::os::{ClientStream, Descriptor};
use crate::talk::{Request, Response, VERSION};

/// Why an agent did not answer. The connection is of no more use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody listens there.
    #[error("no agent answers at {path}: {source}; start one with 'hallpass agent'")]
    Absent {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The user may not.
    #[error("no permission to use the agent's socket {0}; run as the user who runs the agent")]
    Forbidden(PathBuf),
    /// It speaks another version.
    #[error(
        "the agent speaks version {theirs} of the client language, this command {VERSION}; use the same release of both"
    )]
    Version {
        /// Its version.
        theirs: u32,
    },
    /// It is there and says nothing.
    #[error("the agent at {0} does not answer; is it stopped?")]
    Silent(PathBuf),
    /// It is something else.
    #[error("whoever listens at {0} is no hallpass agent")]
    Stranger(PathBuf),
    /// It went away.
    #[error("the agent closed the connection")]
    Closed,
    /// It refused, and says why.
    #[error("{0}")]
    Refused(String),
}

/// A connection to an agent. Whatever is held through it is free when it, and every copy of its descriptor, is closed.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: ClientStream,
    lines: BufReader<ClientStream>,
    /// The node's name.
    pub node: String,
    /// How long a session lasts.
    pub ttl: Duration,
}

impl Client {
    /// Connects, and hears who is there.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = ClientStream::connect(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::PermissionDenied => ClientError::Forbidden(path.to_owned()),
            _ => ClientError::Absent { path: path.to_owned(), source },
        })?;
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut lines = BufReader::new(stream.try_clone().map_err(|_| ClientError::Closed)?);
        let mut line = String::new();
        let stranger = || ClientError::Stranger(path.to_owned());
        if read_line(&mut lines, &mut line, path)? == 0 {
            return Err(ClientError::Closed);
        }
        // The version is looked at before anything else: later ones may say more, or less.
        let value: serde_json::Value = serde_json::from_str(&line).map_err(|_| stranger())?;
        let theirs = value.get("version").and_then(serde_json::Value::as_u64).ok_or_else(stranger)?;
        if theirs != u64::from(VERSION) {
            return Err(ClientError::Version { theirs: u32::try_from(theirs).unwrap_or(u32::MAX) });
        }
        let Ok(Response::Welcome { node, ttl_ms, .. }) = serde_json::from_value(value) else { return Err(stranger()) };
        let _ = stream.set_read_timeout(None);
        Ok(Self { path: path.to_owned(), stream, lines, node, ttl: Duration::from_millis(ttl_ms) })
    }

    /// Asks and waits for the answer, however long it takes.
    pub fn ask(&mut self, request: &Request) -> Result<Response, ClientError> {
        self.say(request)?;
        self.hear()
    }

    /// The same, but not longer than this: an agent that does not answer then is stopped, or its machine is.
    pub fn ask_within(&mut self, request: &Request, limit: Duration) -> Result<Response, ClientError> {
        let _ = self.stream.set_read_timeout(Some(limit));
        let answer = self.ask(request);
        let _ = self.stream.set_read_timeout(None);
        answer
    }

    /// Asks.
    pub fn say(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line = serde_json::to_string(request).map_err(|error| ClientError::Refused(error.to_string()))?;
        line.push('\n');
        self.stream.write_all(line.as_bytes()).map_err(|_| ClientError::Closed)
    }

    /// Waits for an answer.
    pub fn hear(&mut self) -> Result<Response, ClientError> {
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

    /// Another descriptor of the same connection: as long as it is open, nothing is released by itself.
    pub fn descriptor(&self) -> std::io::Result<Descriptor> {
        self.stream.try_clone().map(Descriptor::from)
    }

    /// The same connection, to be used from another thread.
    pub fn try_clone(&self) -> std::io::Result<Self> {
        let stream = self.stream.try_clone()?;
        let lines = BufReader::new(stream.try_clone()?);
        Ok(Self { path: self.path.clone(), stream, lines, node: self.node.clone(), ttl: self.ttl })
    }
}

fn read_line(lines: &mut BufReader<ClientStream>, line: &mut String, path: &Path) -> Result<usize, ClientError> {
    lines.read_line(line).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => ClientError::Silent(path.to_owned()),
        std::io::ErrorKind::InvalidData => ClientError::Stranger(path.to_owned()),
        _ => ClientError::Closed,
    })
}
