//! The agents under test: one on each host, started, stopped, killed and started again.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::ChaosError;
use crate::network::on_host;

/// How long an agent may take to end after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Agents {
    hallpass: PathBuf,
    directory: PathBuf,
    names: Vec<String>,
    ttls: Vec<Duration>,
    running: Vec<Option<Child>>,
    /// Which agents were asked to end.
    ending: Vec<bool>,
}

/// The settings of a new group.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    /// The name of the group and of its directory.
    pub(crate) group: &'a str,
    pub(crate) port: u16,
    /// The names of the hosts. The agent on a host has the same name.
    pub(crate) names: &'a [String],
    pub(crate) ttl: Duration,
    /// Lines for the configuration of every agent.
    pub(crate) config: &'a str,
}

impl Agents {
    /// Makes keys and configurations with `hallpass init`. Nothing runs yet.
    pub(crate) fn create(hallpass: &Path, directory: &Path, plan: &Plan<'_>) -> Result<Self, ChaosError> {
        let directory = directory.join(plan.group);
        let mut init = hallpass_command(hallpass);
        init.args(["init", "--names", &plan.names.join(","), "--group", plan.group]);
        init.args(["--port", &plan.port.to_string(), "--out"]).arg(&directory);
        output(&mut init)?;
        let count = plan.names.len();
        let agents = Self {
            hallpass: hallpass.to_owned(),
            directory,
            names: plan.names.to_vec(),
            ttls: vec![plan.ttl; count],
            running: plan.names.iter().map(|_| None).collect(),
            ending: vec![false; count],
        };
        // These lines come first: after the head of a table they would belong to that table.
        for agent in 0..count {
            agents.configure(agent, |text| format!("{}\n{text}", plan.config))?;
        }
        Ok(agents)
    }

    /// Changes the configuration of an agent that does not run.
    pub(crate) fn configure(&self, agent: usize, change: impl Fn(&str) -> String) -> Result<(), ChaosError> {
        let path = self.home(agent).join("hallpass.toml");
        let failed = |error| ChaosError::file(&path, &error);
        let text = fs::read_to_string(&path).map_err(failed)?;
        fs::write(&path, change(&text)).map_err(failed)
    }

    /// Sets the session length of an agent that does not run.
    pub(crate) fn set_ttl(&mut self, agent: usize, ttl: Duration) {
        self.ttls[agent] = ttl;
    }

    fn home(&self, agent: usize) -> PathBuf {
        self.directory.join(&self.names[agent])
    }

    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, agent: usize) -> &str {
        &self.names[agent]
    }

    pub(crate) fn socket(&self, agent: usize) -> PathBuf {
        self.home(agent).join("agent.sock")
    }

    /// Starts an agent that does not run.
    pub(crate) fn start(&mut self, agent: usize) -> Result<(), ChaosError> {
        if self.running[agent].is_some() {
            return Ok(());
        }
        let home = self.home(agent);
        let log_path = home.join("agent.log");
        let log = OpenOptions::new().create(true).append(true).open(&log_path);
        let log = log.map_err(|error| ChaosError::file(&log_path, &error))?;
        let mut command = without_settings(on_host(&self.names[agent], &self.hallpass));
        command.arg("agent").arg("--config").arg(home.join("hallpass.toml"));
        command.arg("--ttl").arg(format!("{}ms", self.ttls[agent].as_millis()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|error| ChaosError::Failed(format!("cannot start an agent: {error}")))?;
        self.running[agent] = Some(child);
        Ok(())
    }

    pub(crate) fn start_all(&mut self) -> Result<(), ChaosError> {
        (0..self.names.len()).try_for_each(|agent| self.start(agent))
    }

    /// Sends SIGKILL, which also ends a stopped agent.
    pub(crate) fn kill(&mut self, agent: usize) {
        self.ending[agent] = false;
        if let Some(mut child) = self.running[agent].take() {
            // An error means that it has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn signal(&self, agent: usize, signal: Signal) {
        if let Some(pid) = self.running[agent].as_ref().and_then(|child| Pid::from_raw(child.id() as i32)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks an agent to end. It lets its clients end first.
    pub(crate) fn ask_to_end(&mut self, agent: usize) {
        self.ending[agent] = self.running[agent].is_some();
        self.signal(agent, Signal::TERM);
    }

    /// The agents that were asked to end and may still run.
    pub(crate) fn ending(&self) -> Vec<usize> {
        (0..self.names.len()).filter(|agent| self.ending[*agent]).collect()
    }

    /// Asks an agent to end, unless it was asked before, and waits until it has ended.
    pub(crate) fn end(&mut self, agent: usize) -> Result<(), ChaosError> {
        if !std::mem::take(&mut self.ending[agent]) {
            self.signal(agent, Signal::TERM);
        }
        let Some(mut child) = self.running[agent].take() else { return Ok(()) };
        let limit = Instant::now() + END_TIMEOUT;
        while Instant::now() < limit {
            if let Ok(Some(_)) = child.try_wait() {
                return Ok(());
            }
            thread::sleep(LOOK_INTERVAL);
        }
        let _ = child.kill();
        let _ = child.wait();
        let name = self.name(agent);
        Err(ChaosError::Failed(format!("agent '{name}' did not end within {END_TIMEOUT:?} of SIGTERM")))
    }

    /// Removes the data of an agent that does not run. It comes back as a new member.
    pub(crate) fn wipe(&self, agent: usize) -> Result<(), ChaosError> {
        let data = self.home(agent).join("data");
        match fs::remove_dir_all(&data) {
            // The same round has already wiped it.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result.map_err(|error| ChaosError::file(&data, &error)),
        }
    }

    /// Removes its data and the files beside them. Only its keys and its configuration remain.
    pub(crate) fn wipe_wholly(&self, agent: usize) -> Result<(), ChaosError> {
        self.wipe(agent)?;
        let home = self.home(agent);
        let failed = |error| ChaosError::file(&home, &error);
        for entry in fs::read_dir(&home).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("data.") {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The agents that ended without being asked, with their exit statuses.
    pub(crate) fn ended_unasked(&mut self) -> Vec<(usize, ExitStatus)> {
        let ended = |(agent, child): (usize, &mut Option<Child>)| Some((agent, child.as_mut()?.try_wait().ok()??));
        let asked = self.ending.clone();
        let running = self.running.iter_mut().enumerate().filter(|(agent, _)| !asked[*agent]);
        let ended: Vec<_> = running.filter_map(ended).collect();
        ended.iter().for_each(|(agent, _)| self.running[*agent] = None);
        ended
    }

    /// Whether an agent is a member of its group and serves locks.
    pub(crate) fn is_ready(&self, agent: usize) -> bool {
        let status = self.ask(agent, "status");
        status.is_some_and(|status| status["complete"] != false && status.get("view").is_none_or(|view| view == "open"))
    }

    /// What an agent says it waits for.
    pub(crate) fn waits_for(&self, agent: usize) -> Option<String> {
        self.ask(agent, "status")?["waits_for"].as_str().map(str::to_owned)
    }

    /// Whether an agent that was started has ended.
    pub(crate) fn has_ended(&mut self, agent: usize) -> bool {
        self.running[agent].as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// The id of an agent's node.
    pub(crate) fn id(&self, agent: usize) -> Option<u64> {
        let members = self.ask(agent, "members")?;
        members.as_array()?.iter().find(|member| member["this"] == true)?["id"].as_u64()
    }

    /// How many members an agent knows.
    pub(crate) fn member_count(&self, agent: usize) -> Option<usize> {
        Some(self.ask(agent, "members")?.as_array()?.len())
    }

    /// Waits until an agent is ready, but no longer than `limit`. False if it is not.
    pub(crate) fn wait_until_ready(&self, agent: usize, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while !self.is_ready(agent) {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(LOOK_INTERVAL);
        }
        true
    }

    /// The first agent that does not vote, in a ring from `agent` on.
    pub(crate) fn non_voter(&self, agent: usize) -> Option<usize> {
        let members = (0..self.names.len()).find_map(|asked| self.ask(asked, "members"))?;
        let does_not_vote =
            |name: &str| members.as_array()?.iter().find(|member| member["name"] == name)?["voter"].as_bool();
        let count = self.names.len();
        (0..count).map(|step| (agent + step) % count).find(|agent| does_not_vote(self.name(*agent)) == Some(false))
    }

    /// The status, members and locks of every agent, to find the cause of a failure.
    pub(crate) fn describe(&self) -> String {
        let line = |agent: usize| {
            let [status, members, locks] = ["status", "members", "locks"]
                .map(|what| self.ask(agent, what).map_or_else(|| "no answer".to_owned(), |answer| answer.to_string()));
            format!("{}: {status}\n  {members}\n  {locks}\n", self.name(agent))
        };
        (0..self.names.len()).map(line).collect()
    }

    /// The answer to `hallpass status`, `members` or `locks`.
    fn ask(&self, agent: usize, what: &str) -> Option<Value> {
        self.running[agent].as_ref()?;
        let mut command = Command::new("timeout");
        command.arg("2").arg(&self.hallpass).args([what, "--json", "--socket"]).arg(self.socket(agent));
        serde_json::from_slice(&output(&mut command).ok()?).ok()
    }
}

/// The program under test, without the settings of hallpass that this process was started with.
pub(crate) fn hallpass_command(hallpass: &Path) -> Command {
    without_settings(Command::new(hallpass))
}

fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HALLPASS_")) {
        command.env_remove(name);
    }
    command
}

fn output(command: &mut Command) -> Result<Vec<u8>, ChaosError> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| ChaosError::Failed(format!("cannot start {command:?}: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(ChaosError::Failed(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
