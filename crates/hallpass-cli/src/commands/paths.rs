//! Which agent a command uses, and where the agents of this user and of the machine are.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hallpass::{DataDirectory, StartError};
use hallpass_agent::{AgentPaths, Client, ClientError, MembershipError, may_exist};

use super::config;
use crate::exit::{Fault, TEMPORARY};
use crate::os;

/// How long an agent that has claimed its socket may take until the socket is there.
const CLAIMED_TIME: Duration = Duration::from_secs(2);
/// How often to check whether it is.
const CLAIMED_INTERVAL: Duration = Duration::from_millis(10);

/// The default paths of this user's agent, private or not. Root's private agent uses the data of the machine's agent, but another
/// socket: the machine's socket is for users who may use the machine's agent.
fn of_user() -> Result<AgentPaths, Fault> {
    let paths = os::user_directory()
        .map_err(|why| Fault::Unavailable(format!("no place for an agent: {why}")))
        .map(|directory| AgentPaths::in_directory(&directory))?;
    // An agent at a former path does not know the locks of this one.
    if let Some(before) = former_paths().into_iter().find(AgentPaths::is_in_use) {
        return Err(Fault::Unavailable(still_runs(&before)));
    }
    trusted(paths)
}

/// The paths of the machine's agent.
fn of_machine() -> AgentPaths {
    AgentPaths::in_directory(Path::new(os::SYSTEM_STATE)).with_socket(os::SYSTEM_SOCKET)
}

/// True if the machine's agent belongs there. It may have a user of its own.
pub(super) fn are_machines(paths: &AgentPaths) -> bool {
    paths.directory() == Path::new(os::SYSTEM_STATE)
}

/// True if they are root's, and so the machine's.
fn are_roots(paths: &AgentPaths) -> bool {
    os::is_root() && are_machines(paths)
}

/// Connects to the agent that has these paths. For root's that may be the machine's.
pub(super) fn connect(paths: &AgentPaths) -> Result<Client, ClientError> {
    if are_roots(paths)
        && let Ok(client) = Client::connect(Path::new(os::SYSTEM_SOCKET))
    {
        return Ok(client);
    }
    Client::connect(&paths.socket)
}

/// An error if others can write to the directory: they could have put something there, even an agent.
fn trusted(paths: AgentPaths) -> Result<AgentPaths, Fault> {
    let directory = paths.directory();
    if !may_exist(directory) || os::is_writable_by_user_only(directory) {
        return Ok(paths);
    }
    let way_out = match are_roots(&paths) {
        // Fences would not continue those that it has granted.
        true => "; the machine's agent of another user has it: start that one, or give the directory to root",
        false => "",
    };
    Err(Fault::Unavailable(format!(
        "cannot keep an agent in {}: it must belong to this user, and others must not be able to write there{way_out}",
        directory.display()
    )))
}

/// Creates the directory. Everybody can read the machine's, only its owner a user's.
pub(super) fn create(paths: &AgentPaths) -> Result<(), Fault> {
    let directory = paths.directory();
    let fail =
        |why: std::io::Error| Fault::Unavailable(format!("cannot keep an agent in {}: {why}", directory.display()));
    if are_machines(paths) {
        return os::create_public_directory(directory).map_err(fail);
    }
    os::create_private_directory(directory).map_err(fail)?;
    trusted(paths.clone()).map(drop)
}

/// Says in a few words which group these paths belong to, if any. Paths that cannot be read may belong to one.
fn owner(paths: &AgentPaths) -> Option<String> {
    Some(match paths.member_group()? {
        Ok(group) => format!("the agent here is a member of group '{}'", group.escape_debug()),
        Err(error) => {
            let file = paths.member_file.as_deref().unwrap_or(paths.directory());
            format!("the agent here may be a member of a group (cannot read {}: {error})", file.display())
        }
    })
}

/// Removes the record that these paths belong to a group whose agent does not run. Returns false if they belong to none.
pub(super) fn give_up_membership(paths: &AgentPaths) -> Result<bool, Fault> {
    paths.give_up_membership().map_err(|error| match error {
        MembershipError::InUse(_) => Fault::Unavailable(error.to_string()),
        _ => Fault::Failed(error.to_string()),
    })
}

/// The paths of an agent that is started here. Unless they are given, root's socket is the machine's, and data is kept where it
/// outlives a reboot. `state` replaces the directory that follows from the user.
pub(super) fn of_agent(
    socket: Option<PathBuf>,
    data: Option<PathBuf>,
    state: Option<&Path>,
) -> Result<AgentPaths, Fault> {
    let default = match (state, socket, data) {
        (None, Some(socket), Some(data)) if !os::is_root() => return Ok(AgentPaths::new(socket, data)),
        (Some(state), socket, data) => AgentPaths::in_directory(state).or_else(socket, data),
        (None, socket, data) if os::is_root() => of_machine().or_else(socket, data),
        (None, socket, data) => of_user()?.or_else(socket, data),
    };
    Ok(default)
}

/// Creates the directories above an agent's data, unless it was told where that is.
pub(super) fn create_parents(paths: &AgentPaths) -> Result<(), Fault> {
    if paths.data.starts_with(os::SYSTEM_STATE) {
        return create(&of_machine());
    }
    if paths.member_file.is_some() { create(paths) } else { Ok(()) }
}

/// The agent that a command uses.
pub(super) enum Found {
    /// An agent that runs.
    Agent(Client),
    /// This user's own agent, on this machine. It may have to be started.
    Own(AgentPaths),
    /// An agent that does not run and must not be replaced by another.
    Absent(AgentPaths, Fault),
}

/// Finds the agent that was named, by its socket or by a configuration; else the machine's, if the machine has one; else this user's.
/// If the right agent does not run, no other one is used: it would not know who holds the locks.
pub(super) fn find(named: Option<&Path>) -> Result<Found, Fault> {
    let unavailable = |error: ClientError| Fault::Unavailable(error.to_string());
    let connect = |socket: &Path| Client::connect(socket).map(Found::Agent).map_err(unavailable);
    if let Some(socket) = named {
        return connect(socket);
    }
    if let Some(path) = os::environment_path("HALLPASS_CONFIG") {
        let config = config::read(&path).map_err(|fault| match fault {
            Fault::Failed(why) => Fault::Unavailable(why),
            other => other,
        })?;
        if let Some(socket) = &config.socket {
            return connect(socket);
        }
        return match &config.state {
            Some(state) => match find_own(trusted(AgentPaths::in_directory(state))?)? {
                Found::Own(paths) if config.is_member() => connect(&paths.socket),
                found => Ok(found),
            },
            None if os::is_root() => connect(&of_machine().socket),
            None => connect(&of_user()?.socket),
        };
    }
    if let Some(path) = system_config() {
        // A user who may not read the configuration may be allowed to use the default socket.
        let config = config::read(&path).unwrap_or_default();
        let in_state = config.state.map(|state| AgentPaths::in_directory(&state).socket);
        let socket = config.socket.or(in_state).unwrap_or_else(|| os::SYSTEM_SOCKET.into());
        return not_beside_private(connect(&socket)?);
    }
    if os::is_root() {
        return find_roots();
    }
    let user = of_user();
    if let Ok(paths) = &user
        && (owner(paths).is_some() || Client::connect(&paths.socket).is_ok_and(|client| !client.private))
    {
        return find_own(paths.clone());
    }
    let machine = of_machine();
    if owner(&machine).is_some() {
        return not_beside_private(find_own(machine)?);
    }
    match Client::connect(&machine.socket) {
        // Only if there is no socket. A socket without a listener belongs to an agent that will be restarted.
        Err(error) if is_nothing(&error) => match wait_for_claimed(&machine)? {
            Some(client) => not_beside_private(Found::Agent(client)),
            None => find_own(user?),
        },
        other => not_beside_private(other.map(Found::Agent).map_err(unavailable)?),
    }
}

/// The same for root: the machine's agent and the private one share their data, so that at most one of them runs.
fn find_roots() -> Result<Found, Fault> {
    let machine = of_machine();
    match Client::connect(&machine.socket) {
        Ok(client) => not_beside_private(Found::Agent(client)),
        Err(_) if owner(&machine).is_some() => find_own(machine),
        Err(error) if is_nothing(&error) => match wait_for_claimed(&machine)? {
            Some(client) => not_beside_private(Found::Agent(client)),
            None => Ok(Found::Own(of_user()?)),
        },
        Err(error) => Err(Fault::Unavailable(error.to_string())),
    }
}

/// True if there is no socket, not even one without a listener.
fn is_nothing(error: &ClientError) -> bool {
    matches!(error, ClientError::Absent { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// The machine's agent, if it runs without its socket: it has just been started, or the socket was removed and it will make it again.
/// Its claim cannot be removed. `None` if there is no claim.
fn wait_for_claimed(machine: &AgentPaths) -> Result<Option<Client>, Fault> {
    // It may have a user of its own.
    let owner = os::owner(machine.directory());
    let end = Instant::now() + CLAIMED_TIME;
    while machine.is_socket_claimed(owner) {
        match Client::connect(&machine.socket) {
            Ok(client) => return Ok(Some(client)),
            Err(error) if is_nothing(&error) && Instant::now() < end => std::thread::sleep(CLAIMED_INTERVAL),
            Err(error) if is_nothing(&error) => {
                return Err(Fault::Unavailable(format!(
                    "the machine's agent is starting, ending or stopped: its socket {} is not there; try again in a moment",
                    machine.socket.display()
                )));
            }
            Err(error) => return Err(Fault::Unavailable(error.to_string())),
        }
    }
    Ok(None)
}

/// Former paths of this user's agent.
fn former_paths() -> Vec<AgentPaths> {
    os::former_directories().iter().map(|directory| AgentPaths::in_directory(directory)).collect()
}

fn still_runs(former: &AgentPaths) -> String {
    format!(
        "an agent of this user still runs where it was before, in {}; it ends a minute after its last command, or with 'hallpass \
         leave --socket {}'",
        former.directory().display(),
        former.socket.display()
    )
}

/// Carries over the epochs of root's private agent from its path in earlier releases, before root's agent starts. So no fence falls.
pub(super) fn take_over_former(paths: &AgentPaths) -> Result<(), Fault> {
    if !are_roots(paths) || paths.data != of_machine().data {
        return Ok(());
    }
    for former in former_paths() {
        if former.is_in_use() || !former.wait_for_old_sessions() {
            return Err(Fault::Code(TEMPORARY, still_runs(&former)));
        }
        DataDirectory::take_over(&paths.data, &former.data).map_err(|error| match error {
            StartError::InUse(path) => Fault::Code(TEMPORARY, format!("another agent uses {}", path.display())),
            error => Fault::Failed(format!(
                "cannot go on from the fences of {}: {error}; if no storage remembers any of them, remove the directory",
                former.data.display()
            )),
        })?;
    }
    Ok(())
}

/// This agent, unless the paths belong to a group and its agent does not run.
fn find_own(paths: AgentPaths) -> Result<Found, Fault> {
    let Some(owner) = owner(&paths) else { return Ok(Found::Own(paths)) };
    Ok(match Client::connect(&paths.socket) {
        Ok(client) => Found::Agent(client),
        Err(ClientError::Absent { .. } | ClientError::Closed) => {
            let why = Fault::Unavailable(format!(
                "{owner} and does not run; start it again with 'hallpass agent', or give its membership up with \
                 'hallpass leave'"
            ));
            Found::Absent(paths, why)
        }
        Err(error) => return Err(Fault::Unavailable(error.to_string())),
    })
}

/// Refuses to go on beside a private agent that was started before the machine had an agent. It does not know the machine's locks, so
/// both agents would let somebody in.
fn not_beside_private(found: Found) -> Result<Found, Fault> {
    if let Some(before) = former_paths().into_iter().find(AgentPaths::is_in_use) {
        return Err(Fault::Unavailable(still_runs(&before)));
    }
    let (Found::Agent(_), Ok(own)) = (&found, of_user()) else { return Ok(found) };
    if are_roots(&own) {
        return Ok(found);
    }
    let socket = own.socket.display();
    if Client::connect(&own.socket).is_ok_and(|client| client.private) {
        return Err(Fault::Unavailable(format!(
            "this machine has an agent now, and a private agent of this user still runs; it ends a minute after its last \
             command, or with 'hallpass leave --socket {socket}', which stops its commands"
        )));
    }
    // An agent that does not answer may be starting, ending or stopped, while its commands are running.
    if own.is_in_use() || !own.wait_for_old_sessions() {
        return Err(Fault::Unavailable(format!(
            "this machine has an agent now, and another one of this user, at {socket}, is starting, ending or stopped; try \
             again in a moment"
        )));
    }
    Ok(found)
}

/// The configuration of the machine's agent, if it exists. A file that cannot be examined counts as existing.
pub(super) fn system_config() -> Option<PathBuf> {
    Some(PathBuf::from(os::SYSTEM_CONFIG)).filter(|path| may_exist(path))
}
