//! The private agent: a real node in a group of one. `run` starts it for its user where no other agent runs.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hallpass::{Builder, Node};
use hallpass_agent::{AgentOptions, AgentPaths, Client, ClientError};

use super::paths;
use crate::exit::{Fault, Outcome, TEMPORARY};
use crate::{os, terminal};

/// The arguments that a private agent is started with, and recognised by.
pub(super) const ARGS: [&str; 2] = ["agent", "--private"];
/// It ends after this time without clients.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// How long it may take to start: it may have to wait for the sessions of the last one to run out.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// After this time a waiting user is told why.
const EXPLAIN_AFTER: Duration = Duration::from_secs(1);
/// How often to try to connect to an agent that starts.
const CONNECT_INTERVAL: Duration = Duration::from_millis(10);
/// How often to check whether an agent must be started.
const START_INTERVAL: Duration = Duration::from_millis(100);

/// Starts this program again without the session and the open files of its parent.
pub(super) fn detach(directory: &Path) -> Result<Outcome, Fault> {
    os::leave_session();
    let error = os::this_program_again()
        .map_or_else(|error| error, |mut program| os::exec(program.args(ARGS).arg(directory).arg("--detached")));
    Err(Fault::Failed(format!("cannot start again: {error}")))
}

/// The settings of a private agent.
pub(super) fn settings(directory: &Path) -> Result<(Builder, AgentOptions), Fault> {
    os::name_process();
    let agent_paths = paths::of_agent(None, None, Some(directory))?;
    paths::create_parents(&agent_paths)?;
    paths::take_over_former(&agent_paths)?;
    let mut options = AgentOptions::new(agent_paths.socket, agent_paths.data);
    options.idle_limit = Some(IDLE_LIMIT);
    options.private = true;
    Ok((Node::builder().group("private").name("private"), options))
}

/// Connects to this user's private agent, and starts it if it does not run. None if it is not ready at the deadline.
pub(super) fn connect(
    agent_paths: &AgentPaths,
    deadline: Option<Instant>,
    explains: bool,
) -> Result<Option<Client>, Fault> {
    paths::create(agent_paths)?;
    let start_deadline = Instant::now() + START_TIMEOUT;
    let end = deadline.unwrap_or(start_deadline).min(start_deadline);
    let mut started: Option<Child> = None;
    let mut next_start = Instant::now();
    let mut explain_at = Some(Instant::now() + EXPLAIN_AFTER).filter(|_| explains);
    loop {
        let late = Instant::now() >= end;
        match paths::connect(agent_paths) {
            Ok(client) => return Ok(Some(client)),
            Err(ClientError::Absent { .. } | ClientError::Closed) if !late => {}
            Err(ClientError::Absent { .. } | ClientError::Closed) if end < start_deadline => return Ok(None),
            Err(_) if agent_paths.is_in_use() => {
                return Err(Fault::Unavailable(format!(
                    "this user's agent is starting, ending or stopped, and was not ready within {START_TIMEOUT:?}; its log \
                     is {}",
                    agent_paths.log_file().display()
                )));
            }
            Err(error) => {
                let log = agent_paths.log_file();
                return Err(Fault::Unavailable(format!("{error} (the private agent's log is {})", log.display())));
            }
        }
        let ended = started.as_mut().and_then(|agent| agent.try_wait().ok().flatten());
        // An agent that finds the directory in use ends in order, and leaves it to the other agent.
        let failed = |code: i32| ![0, TEMPORARY.into()].contains(&code);
        if ended.and_then(|status| status.code()).is_some_and(failed) {
            return Err(Fault::Unavailable(format!(
                "cannot start an agent for this user: {}",
                last_error(agent_paths)
            )));
        }
        // The directory may be in use by an agent that is ending, or that waits for old sessions. A second agent could only wait, too.
        if (started.is_none() || ended.is_some()) && Instant::now() >= next_start {
            next_start = Instant::now() + START_INTERVAL;
            if !agent_paths.is_in_use() {
                if started.is_none() && explains {
                    terminal::note("no agent is running: starting one for this user only");
                }
                started = Some(start(agent_paths)?);
            }
        }
        if explain_at.is_some_and(|at| Instant::now() >= at) {
            explain_at = None;
            terminal::note(
                "waiting for this user's agent: it is ending, or the commands of the last agent may still be running",
            );
        }
        thread::sleep(CONNECT_INTERVAL);
    }
}

fn start(agent_paths: &AgentPaths) -> Result<Child, Fault> {
    let directory = agent_paths.directory();
    let fail = |error: std::io::Error| {
        Fault::Unavailable(format!("cannot start an agent in {}: {error}", directory.display()))
    };
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(agent_paths.log_file()).map_err(fail)?;
    os::this_program_again()
        .map_err(fail)?
        .args(ARGS)
        .arg(std::path::absolute(directory).map_err(fail)?)
        .current_dir("/")
        // It outlives this command, and serves others. The command's environment does not concern it.
        .env_clear()
        .envs(std::env::var_os("HALLPASS_LOG").map(|level| ("HALLPASS_LOG", level)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(fail)
}

/// Why an agent could not start, by its log, or because it could not even write that.
fn last_error(agent_paths: &AgentPaths) -> String {
    let (directory, log) = (agent_paths.directory(), agent_paths.log_file());
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    if let Some(error) = text.lines().rev().find_map(|line| line.strip_prefix("hallpass: ")) {
        return error.to_owned();
    }
    let probe = directory.join("probe");
    let written = std::fs::write(&probe, "Can this be written? Then it can be removed.");
    let _ = std::fs::remove_file(&probe);
    match written {
        Ok(()) => format!("see {}", log.display()),
        Err(error) => format!("cannot write to {}: {error}", directory.display()),
    }
}
