//! Agents: their restarts, and a group of several.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use hallpass_testkit::{free_ports, wait_until};
use serde_json::Value;

use crate::user::{Ran, User, first_line, is_running, kill};

/// An agent that is started while another one runs fails at once. If it waited, its wait could be over before the other is killed.
#[test]
fn a_second_agent_does_not_wait_beside_the_first() {
    let user = User::new("second");
    let mut first = user.start("agent --socket a.sock --data a.data --ttl 60s");
    user.wait_for("a.sock");
    let taken = user.run("agent --socket a.sock");
    assert_eq!(taken.code, 75, "{}", taken.err);
    assert!(taken.err.contains("another agent already listens"), "{}", taken.err);
    // The same directory with another socket.
    let taken = user.run("agent --socket b.sock --data a.data");
    assert_eq!(taken.code, 75, "{}", taken.err);
    assert!(taken.err.contains("another agent uses a.data"), "{}", taken.err);
    let fence = |run: Ran| run.out.trim().parse::<u64>().unwrap();
    let before = fence(user.run("run x --socket a.sock -- sh -c 'echo $HALLPASS_FENCE'"));
    // Killed, it leaves its file: the next one waits as long as the first one's sessions last, though its own are short.
    kill(first.id(), "-KILL");
    first.wait().unwrap();
    let mut next = user.start("agent --socket a.sock --data a.data --ttl 500ms");
    let line = first_line(&mut next);
    assert!(line.contains("did not end in order") && line.contains("wait=60s"), "{line}");
    user.run("run x --socket a.sock -- true").failed(69, "no agent answers");
    kill(next.id(), "-KILL");
    next.wait().unwrap();
    // After an orderly end fences rise.
    fs::remove_file(user.home.join("a.data/running")).unwrap();
    fs::remove_file(user.home.join("a.sock")).unwrap();
    let mut last = user.start("agent --socket a.sock --data a.data");
    user.wait_for("a.sock");
    assert!(fence(user.run("run x --socket a.sock -- sh -c 'echo $HALLPASS_FENCE'")) > before);
    assert_eq!(user.run("leave --socket a.sock").code, 0);
    assert!(last.wait().unwrap().success());
}

#[test]
fn a_lost_agent_stops_the_command_before_the_lock_is_granted_again() {
    let user = User::new("lost");
    let start = |user: &User| {
        let agent = user.start("agent --ttl 2s --data data --name a");
        wait_until("the agent answers", || user.run("status").code == 0);
        agent
    };
    let mut agent = start(&user);
    let mut run = user.start("run x --grace 500ms -- sh -c 'trap \"touch terminated\" TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.02; done'");
    user.wait_for("pid");
    let child: u32 = fs::read_to_string(user.home.join("pid")).unwrap().trim().parse().unwrap();
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    let mut next = start(&user);
    // The next agent grants nothing until the command of the last one's client must be dead.
    assert_eq!(user.run("run x --timeout 30s -- true").code, 0);
    assert!(!is_running(child));
    assert_eq!(run.wait().unwrap().code(), Some(76));
    assert!(user.home.join("terminated").exists(), "SIGTERM comes before SIGKILL");
    assert_eq!(user.run("leave").code, 0);
    assert!(next.wait().unwrap().success());
}

/// Too many clients for its descriptors: those that are served stay so, the others come in later, and the log stays short.
#[test]
fn an_agent_without_descriptors_serves_again_when_there_are_some() {
    let user = User::new("descriptors");
    let program = env!("CARGO_BIN_EXE_hallpass");
    let mut agent = Command::new("sh");
    agent.args(["-c", &format!("ulimit -n 40; exec '{program}' agent --socket a.sock 2>log")]);
    user.settings(&mut agent);
    let mut agent = agent.spawn().unwrap();
    user.wait_for("a.sock");
    let mut holder = user.start("run x --socket a.sock -- sh -c 'touch held; until test -e end; do sleep 0.02; done'");
    user.wait_for("held");
    let connect = |_| std::os::unix::net::UnixStream::connect(user.home.join("a.sock"));
    let clients: Vec<_> = (0..60).map_while(|index| connect(index).ok()).collect();
    assert!(clients.len() > 40);
    let log = || fs::read_to_string(user.home.join("log")).unwrap();
    wait_until("the agent notices", || log().contains("cannot accept a client"));
    sleep(Duration::from_millis(500));
    assert_eq!(log().matches("cannot accept a client").count(), 1, "{}", log());
    assert!(log().contains("ulimit -n"), "{}", log());
    drop(clients);
    user.run("run x --socket a.sock --try -- true").failed(75, "held by pid");
    fs::write(user.home.join("end"), "").unwrap();
    assert!(holder.wait().unwrap().success());
    assert_eq!(user.run("run x --socket a.sock -- true").code, 0);
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

#[test]
fn three_agents_with_keys_exclude_each_others_clients() {
    let user = User::new("agents");
    let mut agents = agents(&user, free_ports(3));
    user.run("init --names a,b --out group").failed(64, "not empty");
    let section = |name: &str| {
        user.start(&format!(
            "run x --socket group/{name}/agent.sock -- sh -c 'mkdir inside && sleep 0.03 && rmdir inside'"
        ))
    };
    let mut all: Vec<Child> = ["a", "b", "c", "a", "b", "c", "a", "b", "c"].map(section).into();
    for child in &mut all {
        assert!(child.wait().unwrap().success(), "two clients held the lock at once");
    }
    let members: Value = serde_json::from_str(&user.run("members --json --socket group/a/agent.sock").out).unwrap();
    assert_eq!(members.as_array().unwrap().iter().filter(|member| member["connected"] == true).count(), 3);
    assert!(user.run("status --socket group/b/agent.sock").out.contains("grants locks"));
    for (name, agent) in ["a", "b", "c"].iter().zip(&mut agents) {
        assert_eq!(user.run(&format!("leave --socket group/{name}/agent.sock")).code, 0);
        assert!(agent.wait().unwrap().success());
    }
    assert!(!Path::new(&user.home.join("group/a/agent.sock")).exists());
}

/// Starts three agents with keys that `init` created.
pub(crate) fn agents(user: &User, base: u16) -> Vec<Child> {
    let made = user.run(&format!("init --names a,b,c --out group --loopback --port {base}"));
    assert_eq!(made.code, 0, "{}", made.err);
    let start = |name| user.start(&format!("agent --config group/{name}/hallpass.toml"));
    let agents = ["a", "b", "c"].map(start).into();
    for name in ["a", "b", "c"] {
        wait_until("the group is complete", || {
            let status = user.run(&format!("status --json --socket group/{name}/agent.sock"));
            serde_json::from_str::<Value>(&status.out).is_ok_and(|status| status["complete"] == true)
        });
    }
    agents
}
