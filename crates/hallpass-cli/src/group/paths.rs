//! Where agents are, and which one a command uses.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hallpass::{DataDirectory, StartError};
use hallpass_agent::{Client, ClientError, is_claimed};

use super::config;
use crate::exit::{Fault, TEMPORARY};
use crate::os;

/// How long an agent that has claimed its place may take until its socket is there.
const CLAIMED_TIME: Duration = Duration::from_secs(2);
/// How often to look whether it is.
const CLAIMED_INTERVAL: Duration = Duration::from_millis(10);

/// Where an agent is reached, and where it keeps what must outlive it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) socket: PathBuf,
    pub(super) data: PathBuf,
    /// It exists while this place belongs to a member of a group, also when its agent does not run: nobody else may use the
    /// place meanwhile. Only default places have one; other agents must be named.
    pub(super) member_file: Option<PathBuf>,
}

impl Place {
    fn in_directory(directory: &Path) -> Self {
        Self {
            socket: directory.join("agent.sock"),
            data: directory.join("data"),
            member_file: Some(directory.join("member")),
        }
    }

    /// The default place of this user's agent, which is also that of the private one. Root's private agent has the data of the machine's,
    /// and a socket of its own: the other one is for those who may use the machine's agent.
    fn of_user() -> Result<Self, Fault> {
        let place = os::user_directory()
            .map_err(|why| Fault::Unavailable(format!("no place for an agent: {why}")))
            .map(|directory| Self::in_directory(&directory))?;
        // One from before does not know of the locks of another one.
        if let Some(before) = former_places().into_iter().find(Place::is_in_use) {
            return Err(Fault::Unavailable(still_runs(&before)));
        }
        place.trusted()
    }

    /// Connects to the agent that has this place. For root's that may be the machine's.
    pub(super) fn connect(&self) -> Result<Client, ClientError> {
        if self.is_roots()
            && let Ok(client) = Client::connect(Path::new(os::SYSTEM_SOCKET))
        {
            return Ok(client);
        }
        Client::connect(&self.socket)
    }

    /// It is root's, and the machine's.
    fn is_roots(&self) -> bool {
        os::is_root() && self.is_machines()
    }

    /// The machine's agent belongs there, which may have a user of its own.
    pub(super) fn is_machines(&self) -> bool {
        self.directory() == Path::new(os::SYSTEM_STATE)
    }

    /// True if an agent has the data of this place, or is about to have it, whatever has become of its files.
    pub(super) fn is_in_use(&self) -> bool {
        is_in_use(&self.data) || is_claimed(&self.data, None)
    }

    /// An error if others can write to the directory: they could have put something there, even an agent.
    fn trusted(self) -> Result<Self, Fault> {
        let directory = self.directory();
        if !os::may_exist(directory) || os::is_writable_by_user_only(directory) {
            return Ok(self);
        }
        let way_out = match self.is_roots() {
            // The fences of what it has granted would not go on.
            true => "; the machine's agent of another user has it: start that one, or give the directory to root",
            false => "",
        };
        Err(Fault::Unavailable(format!(
            "cannot keep an agent in {}: it must belong to this user, and others must not be able to write there{way_out}",
            directory.display()
        )))
    }

    /// The machine's.
    fn of_machine() -> Self {
        Self { socket: os::SYSTEM_SOCKET.into(), ..Self::in_directory(Path::new(os::SYSTEM_STATE)) }
    }

    /// The directory that it is in.
    fn directory(&self) -> &Path {
        self.data.parent().unwrap_or(&self.data)
    }

    /// Creates the directory: everybody can look into the machine's, nobody else into a user's.
    pub(super) fn create(&self) -> Result<&Path, Fault> {
        let directory = self.directory();
        let fail = |why: &dyn std::fmt::Display| {
            Fault::Unavailable(format!("cannot keep an agent in {}: {why}", directory.display()))
        };
        if directory == Path::new(os::SYSTEM_STATE) {
            os::create_public_directory(directory).map_err(|error| fail(&error))?;
            return Ok(directory);
        }
        os::create_private_directory(directory).map_err(|error| fail(&error))?;
        self.clone().trusted()?;
        Ok(directory)
    }

    /// To whom the place belongs, in a few words, if it belongs to a group. One that may not be looked at may belong to one.
    fn owner(&self) -> Option<String> {
        let file = self.member_file.as_deref().filter(|file| os::may_exist(file))?;
        Some(match std::fs::read_to_string(file) {
            Ok(group) => format!("the agent here is a member of group '{}'", group.trim().escape_debug()),
            Err(error) => {
                format!("the agent here may be a member of a group (cannot read {}: {error})", file.display())
            }
        })
    }

    /// Ends that the place belongs to a group, though its agent does not run; false if it belongs to none.
    pub(super) fn give_up_membership(&self) -> Result<bool, Fault> {
        let Some(file) = self.member_file.as_deref().filter(|file| os::may_exist(file)) else { return Ok(false) };
        if self.is_in_use() {
            let data = self.data.display();
            return Err(Fault::Unavailable(format!("an agent is starting or ending in {data}; try again in a moment")));
        }
        // A private agent that finds itself in a group would wait for its members.
        DataDirectory::forget(&self.data).map_err(|error| Fault::Failed(error.to_string()))?;
        // The one by which the place is known to belong to a group is the last.
        for file in [hallpass_agent::shared_mark(&self.data), file.to_owned()] {
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Fault::Failed(format!(
                        "cannot remove {}: {error}; run as the user of the agent",
                        file.display()
                    )));
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

/// The place of an agent that is started here. Unless they are given, root's socket is the machine's, and data is kept where it
/// outlives a reboot. `state` replaces the directory that follows from the user.
pub(super) fn place_of_agent(
    socket: Option<PathBuf>,
    data: Option<PathBuf>,
    state: Option<&Path>,
) -> Result<Place, Fault> {
    let default = match state {
        Some(state) => Place::in_directory(state),
        None if os::is_root() => Place::of_machine(),
        None if socket.is_some() && data.is_some() => {
            Place { socket: PathBuf::new(), data: PathBuf::new(), member_file: None }
        }
        None => Place::of_user()?,
    };
    let socket = socket.unwrap_or_else(|| default.socket.clone());
    let is_default = socket == default.socket;
    let default_data = || match is_default {
        true => default.data.clone(),
        false => default.directory().join("agents").join(file_name_for(&socket)),
    };
    let data = data.unwrap_or_else(default_data);
    Ok(Place { data, member_file: default.member_file.filter(|_| is_default), socket })
}

/// Creates the directories above an agent's data, unless it was told where that is.
pub(super) fn create_parents(place: &Place) -> Result<(), Fault> {
    if place.data.starts_with(os::SYSTEM_STATE) {
        return Place::of_machine().create().map(drop);
    }
    if place.member_file.is_some() { place.create().map(drop) } else { Ok(()) }
}

/// A name for what belongs to the socket at this path, different for every path.
fn file_name_for(socket: &Path) -> String {
    let absolute = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    absolute.to_string_lossy().trim_start_matches('/').replace('%', "%25").replace('/', "%2F")
}

/// The agent that a command uses.
pub(super) enum Found {
    /// One that runs.
    Agent(Client),
    /// This user's own, here. It may have to be started.
    Own(Place),
    /// One that does not run and must not be replaced by another.
    Absent(Place, Fault),
}

/// Finds the agent that was named, by its socket or by a configuration; else the machine's, if the machine has one; else this user's.
/// Another agent would not know who holds the locks of the right one, so where one belongs that does not run there is none.
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
            Some(state) => match find_own(Place::in_directory(state).trusted()?)? {
                Found::Own(place) if config.is_member() => connect(&place.socket),
                found => Ok(found),
            },
            None if os::is_root() => connect(&Place::of_machine().socket),
            None => connect(&Place::of_user()?.socket),
        };
    }
    if let Some(path) = system_config() {
        // Who may not read it may be allowed to use the socket where it is by default.
        let config = config::read(&path).unwrap_or_default();
        let in_state = config.state.map(|state| Place::in_directory(&state).socket);
        let socket = config.socket.or(in_state).unwrap_or_else(|| os::SYSTEM_SOCKET.into());
        return not_beside_private(connect(&socket)?);
    }
    if os::is_root() {
        return find_roots();
    }
    let user = Place::of_user();
    if let Ok(place) = &user
        && (place.owner().is_some() || Client::connect(&place.socket).is_ok_and(|client| !client.private))
    {
        return find_own(place.clone());
    }
    let machine = Place::of_machine();
    if machine.owner().is_some() {
        return not_beside_private(find_own(machine)?);
    }
    match Client::connect(&machine.socket) {
        // Only if there is no socket. One that nobody listens at belongs to an agent that will be restarted.
        Err(error) if is_nothing(&error) => match wait_for_claimed(&machine)? {
            Some(client) => not_beside_private(Found::Agent(client)),
            None => find_own(user?),
        },
        other => not_beside_private(other.map(Found::Agent).map_err(unavailable)?),
    }
}

/// The same for root: the machine's agent and the private one share a place, so that at most one of them runs.
fn find_roots() -> Result<Found, Fault> {
    let machine = Place::of_machine();
    match Client::connect(&machine.socket) {
        Ok(client) => not_beside_private(Found::Agent(client)),
        Err(_) if machine.owner().is_some() => find_own(machine),
        Err(error) if is_nothing(&error) => match wait_for_claimed(&machine)? {
            Some(client) => not_beside_private(Found::Agent(client)),
            None => Ok(Found::Own(Place::of_user()?)),
        },
        Err(error) => Err(Fault::Unavailable(error.to_string())),
    }
}

/// There is no socket, not even one that nobody listens at.
fn is_nothing(error: &ClientError) -> bool {
    matches!(error, ClientError::Absent { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// The machine's agent, if it runs though its socket is not there: it makes a socket again that was removed, and has none yet when it has
/// just been started. Its claim cannot be removed. None if there is no claim.
fn wait_for_claimed(machine: &Place) -> Result<Option<Client>, Fault> {
    // It may have a user of its own.
    let owner = os::owner(machine.directory());
    let end = Instant::now() + CLAIMED_TIME;
    while is_claimed(&machine.socket, owner) {
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

/// Where this user's agent was before.
fn former_places() -> Vec<Place> {
    os::former_directories().iter().map(|directory| Place::in_directory(directory)).collect()
}

fn still_runs(former: &Place) -> String {
    format!(
        "an agent of this user still runs where it was before, in {}; it ends a minute after its last command, or with 'hallpass \
         leave --socket {}'",
        former.directory().display(),
        former.socket.display()
    )
}

/// Before root's agent starts: what was counted where its private agent was in earlier releases goes on here, so that no fence falls.
pub(super) fn take_over_former(place: &Place) -> Result<(), Fault> {
    if !place.is_roots() || place.data != Place::of_machine().data {
        return Ok(());
    }
    for former in former_places() {
        if former.is_in_use() || !wait_for_old_sessions(&former) {
            return Err(Fault::Code(TEMPORARY, still_runs(&former)));
        }
        DataDirectory::take_over(&place.data, &former.data).map_err(|error| match error {
            StartError::InUse(path) => Fault::Code(TEMPORARY, format!("another agent uses {}", path.display())),
            error => Fault::Failed(format!(
                "cannot go on from the fences of {}: {error}; if no storage remembers any of them, remove the directory",
                former.data.display()
            )),
        })?;
    }
    Ok(())
}

/// This agent, unless the place belongs to a group and its agent does not run.
fn find_own(place: Place) -> Result<Found, Fault> {
    let Some(owner) = place.owner() else { return Ok(Found::Own(place)) };
    Ok(match Client::connect(&place.socket) {
        Ok(client) => Found::Agent(client),
        Err(ClientError::Absent { .. } | ClientError::Closed) => {
            let why = Fault::Unavailable(format!(
                "{owner} and does not run; start it again with 'hallpass agent', or give its membership up with \
                 'hallpass leave'"
            ));
            Found::Absent(place, why)
        }
        Err(error) => return Err(Fault::Unavailable(error.to_string())),
    })
}

/// A private agent from before the machine had its agent does not know of its locks: both would let somebody in.
fn not_beside_private(found: Found) -> Result<Found, Fault> {
    if let Some(before) = former_places().into_iter().find(Place::is_in_use) {
        return Err(Fault::Unavailable(still_runs(&before)));
    }
    let (Found::Agent(_), Ok(own)) = (&found, Place::of_user()) else { return Ok(found) };
    if own.is_roots() {
        return Ok(found);
    }
    let socket = own.socket.display();
    if Client::connect(&own.socket).is_ok_and(|client| client.private) {
        return Err(Fault::Unavailable(format!(
            "this machine has an agent now, and a private agent of this user still runs; it ends a minute after its last \
             command, or with 'hallpass leave --socket {socket}', which stops its commands"
        )));
    }
    // One that does not answer may be starting, ending or stopped, with commands at work.
    if own.is_in_use() || !wait_for_old_sessions(&own) {
        return Err(Fault::Unavailable(format!(
            "this machine has an agent now, and another one of this user, at {socket}, is starting, ending or stopped; try \
             again in a moment"
        )));
    }
    Ok(found)
}

/// Waits until the commands of an agent that was killed must have ended. False if another process looks after that.
fn wait_for_old_sessions(place: &Place) -> bool {
    let file = place.data.join("running");
    let Ok(ttl_ms) = std::fs::read_to_string(&file) else { return true };
    // While it is locked no agent can be started there.
    let Ok(lock) = File::open(place.data.join("lock")) else { return true };
    if lock.try_lock().is_err() {
        return false;
    }
    std::thread::sleep(Duration::from_millis(ttl_ms.trim().parse().unwrap_or(0)));
    std::fs::remove_file(&file).is_ok()
}

/// The configuration of the machine's agent. One that may not be looked at is there.
pub(super) fn system_config() -> Option<PathBuf> {
    Some(PathBuf::from(os::SYSTEM_CONFIG)).filter(|path| os::may_exist(path))
}

/// True if a running node has locked this data directory.
pub(super) fn is_in_use(data: &Path) -> bool {
    let lock = File::open(data.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_has_data_of_its_own() {
        let names = ["/a/b", "/a%b", "/a%2Fb"].map(|path| file_name_for(Path::new(path)));
        assert_eq!(names, ["a%2Fb", "a%25b", "a%252Fb"]);
        assert!(file_name_for(Path::new("relative.sock")).ends_with("%2Frelative.sock"));
    }
}
