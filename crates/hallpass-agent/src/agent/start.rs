//! How an agent starts: nothing of it takes part in anything before the clients of the last one must have ended.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hallpass::{Builder, DataDirectory, LogLimiter, Node};

use super::Agent;
use crate::connections::{Connections, Limits};
use crate::http::{Server, ServerOptions};
use crate::marks::Marks;
use crate::os::{self, Claim, Found, SocketFile};
use crate::outcome::ServeError;
use crate::service::{Service, Watcher};
use crate::shared::AgentShared;
use crate::{AgentOptions, AgentPaths, grpc};

/// How long an agent that may be alone waits until it is.
const FOUNDING_TIME: Duration = Duration::from_secs(1);

impl Agent {
    /// Starts a node, and listens at the socket.
    ///
    /// If the last agent was killed, its clients may outlive it by up to half a session. Then nothing of this one, not even its
    /// node, takes part in anything before a whole session is over. It holds the data directory meanwhile, so that no other agent
    /// is started beside it.
    pub async fn start(builder: Builder, options: AgentOptions) -> Result<Self, ServeError> {
        let paths = options.paths();
        let AgentOptions { socket_group, is_member, private, ttl, idle_limit, api, .. } = options;
        let (socket, data) = (paths.socket.as_path(), paths.data.as_path());
        let fail = |source| ServeError::Socket { path: socket.to_owned(), source };
        let number = |group: String| os::group_number(&group).ok_or(ServeError::Group(group));
        let socket_group = socket_group.map(number).transpose()?;
        let created_directory = os::create_socket_directory(socket, socket_group).map_err(fail)?;
        check_free(socket)?;
        // What is wrong with it is said at once, not after old sessions have been waited for.
        let server = if api.is_empty() { None } else { Some(ServerOptions::check(&api).await?) };
        api.socket.as_deref().map_or(Ok(()), check_free)?;
        // Claimed before it is opened, which counts a start. An error here will come again there.
        let _ = os::create_private_directory(data);
        let parent_mode = os::mode(data.parent());
        let claim = |path: &Path| Claim::of(path).ok_or_else(|| ServeError::Claimed(path.to_owned()));
        let claims = [claim(data)?, claim(socket)?];
        let directory = Arc::new(DataDirectory::open(data)?);
        check_shared(&paths, &builder, &directory)?;
        paths.mark_private(private).map_err(|source| ServeError::Data { path: data.to_owned(), source })?;
        wait_for_old_sessions(&paths, ttl).await;
        let builder = builder.ttl(ttl);
        let node =
            first_node(&builder, &paths, &directory, private).data_directory(Arc::clone(&directory)).start().await?;
        warn_if_open(&node);
        if !is_member {
            // A group of one is there in a moment: a client that only tries must not come too early.
            let _ = tokio::time::timeout(FOUNDING_TIME, node.ready()).await;
        }
        check_free(socket)?;
        let socket_file = SocketFile::open(socket, socket_group).map_err(fail)?;
        let marks = Marks::new(paths.clone(), ttl);
        if is_member {
            marks.set_group(node.status().group);
        }
        marks.write().map_err(|source| ServeError::Data { path: data.to_owned(), source })?;
        let (shared, joins) = AgentShared::new(node, marks, private);
        let tokens = server.as_ref().and_then(ServerOptions::tokens);
        let service = Service::new(Arc::clone(&shared), tokens);
        let watcher = Watcher::start(service.clone());
        let server =
            server.map(|server| Server::start(server, service.clone(), grpc::router, socket_group)).transpose()?;
        Ok(Self {
            paths,
            socket: socket_file,
            created_directory,
            socket_group,
            builder,
            data: Some(directory),
            claims,
            parent_mode,
            failed_repairs: 0,
            shared,
            service,
            joins,
            idle_limit,
            log: LogLimiter::default(),
            door: Connections::new(Limits::of_socket(os::descriptors())),
            _watcher: watcher,
            api,
            server,
        })
    }
}

/// An error if the agent here was in a group with others, and would found another one alone.
fn check_shared(paths: &AgentPaths, builder: &Builder, directory: &DataDirectory) -> Result<(), ServeError> {
    let mark = paths.shared_mark();
    match std::fs::read_to_string(&mark) {
        Ok(group) if !directory.is_in_group() && builder.founds_alone() => {
            Err(ServeError::WasShared { group: group.escape_debug().to_string(), data: paths.data.clone(), mark })
        }
        _ => Ok(()),
    }
}

/// The settings of an agent's first node. One that is alone and was given no address listens on nothing: another user who reached its port
/// could join its group, and stop it. When it joins a group, another node takes its place, which listens.
fn first_node(builder: &Builder, paths: &AgentPaths, directory: &DataDirectory, private: bool) -> Builder {
    let is_alone = builder.founds_alone() && !directory.has_others() && !paths.shared_mark().exists();
    let builder = builder.clone();
    if private || is_alone && !builder.has_address() { builder.listen_nowhere() } else { builder }
}

/// Says who can reach a node that listens without keys.
pub(super) fn warn_if_open(node: &Node) {
    let address = node.address();
    if address.port() != 0 && !node.status().encrypted {
        tracing::warn!(
            "anybody who can reach {address}, every user of this machine among them, can join this group and take its locks; \
             'hallpass init' makes keys"
        );
    }
}

/// Waits one session if the last agent did not end in order: then it left its mark or its socket.
async fn wait_for_old_sessions(paths: &AgentPaths, ttl: Duration) {
    let left = paths.left_session();
    if left.is_none() && os::find_socket(&paths.socket) == Found::Nothing {
        return;
    }
    // The last agent's sessions may have been longer than this one's.
    let wait = ttl.max(left.unwrap_or_default());
    tracing::warn!(?wait, "the last agent did not end in order; waiting for its clients' sessions to run out");
    tokio::time::sleep(wait).await;
}

/// An error if an agent listens at this path, or if there is something that is not ours to replace.
pub(super) fn check_free(socket: &Path) -> Result<(), ServeError> {
    match os::find_socket(socket) {
        Found::Nothing | Found::StaleSocket => Ok(()),
        Found::LiveSocket => Err(ServeError::Taken(socket.to_owned())),
        Found::OtherFile => {
            let source = std::io::Error::new(ErrorKind::AlreadyExists, "there is a file that is not a socket");
            Err(ServeError::Socket { path: socket.to_owned(), source })
        }
    }
}
