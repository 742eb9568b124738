//! The settings of an agent.

use std::path::PathBuf;
use std::time::Duration;

use crate::AgentPaths;

/// How an agent serves its clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentOptions {
    /// The socket for clients. Its directory is created if it is missing.
    pub socket: PathBuf,
    /// The directory for what must outlive the agent, and a reboot.
    pub data: PathBuf,
    /// The members of this group of users may use the socket, beside the agent's own user: a group's name or number. The
    /// default is nobody else.
    pub socket_group: Option<String>,
    /// The membership mark: a file that exists while these paths belong to a member of a group. The agent writes it. Only an agent that is
    /// asked to [leave](crate::line_protocol::Request::Leave) removes it: after any other end the paths are not free. The default is none.
    pub member_file: Option<PathBuf>,
    /// The paths belong to a member of a group from the start. They do, too, from when the agent is asked to
    /// [join](crate::line_protocol::Request::Join) one. The default is false.
    pub is_member: bool,
    /// A client started the agent for its user alone. Its clients are told. The default is false.
    pub private: bool,
    /// How long a session lasts in a group that the agent's node founds. After an agent was killed, the next agent waits this long before
    /// it grants anything; so do the other members. The default is [`TTL_DEFAULT`](Self::TTL_DEFAULT). Longer sessions outlast longer
    /// disturbances and give clients more time to end. The next holder waits longer for them.
    pub ttl: Duration,
    /// The agent ends after this time without clients. The default is never.
    pub idle_limit: Option<Duration>,
    /// How the API is reached. The default is not at all.
    pub api: ApiOptions,
}

impl AgentOptions {
    /// The default of [`ttl`](Self::ttl).
    pub const TTL_DEFAULT: Duration = Duration::from_secs(5);

    /// The defaults, with this socket and this data directory.
    pub fn new(socket: impl Into<PathBuf>, data: impl Into<PathBuf>) -> Self {
        Self::at(AgentPaths::new(socket, data))
    }

    /// The defaults, with these paths.
    pub fn at(paths: AgentPaths) -> Self {
        let AgentPaths { socket, data, member_file } = paths;
        Self {
            socket,
            data,
            socket_group: None,
            member_file,
            is_member: false,
            private: false,
            ttl: Self::TTL_DEFAULT,
            idle_limit: None,
            api: ApiOptions::default(),
        }
    }

    pub(crate) fn paths(&self) -> AgentPaths {
        AgentPaths { socket: self.socket.clone(), data: self.data.clone(), member_file: self.member_file.clone() }
    }
}

/// How an agent's API is reached: HTTP over TCP, over a Unix socket, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiOptions {
    /// The address to listen on, `host:port`. One that other machines can reach needs [`tls`](Self::tls) and
    /// [`tokens`](Self::tokens). The default is none.
    pub listen: Option<String>,
    /// The Unix socket, beside the one for lines. The same users may use it. The default is none.
    pub socket: Option<PathBuf>,
    /// A certificate and its key, in PEM. The default is none.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Connections on loopback are encrypted, too. The default is false.
    pub tls_on_loopback: bool,
    /// A [file of tokens](crate::tokens). With one, clients over TCP need a token, on loopback too. The default is none.
    pub tokens: Option<PathBuf>,
}

impl ApiOptions {
    pub(crate) fn is_empty(&self) -> bool {
        self.listen.is_none() && self.socket.is_none()
    }
}
