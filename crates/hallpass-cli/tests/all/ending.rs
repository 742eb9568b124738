//! The end of an agent: nobody is let in before the last holder is out.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::user::{Ran, User, first_line, kill};

/// The command does not end at SIGTERM: it is inside until the grace is over.
const STUBBORN: &str = "sh -c 'touch held; trap \"\" TERM; while :; do sleep 0.02; done; true'";

#[test]
fn an_agent_that_is_ended_lets_nobody_in_before_the_last_holder_is_out() {
    let user = User::new("ending");
    let mut agent = user.start("agent --ttl 4s");
    user.wait_for("state/agent.sock");
    let mut holder = user.start(&format!("run x --grace 2s -- {STUBBORN}"));
    user.wait_for("held");
    kill(agent.id(), "-TERM");
    // Callers of this user find the agent that ends, or wait for it: none of them starts another one beside it.
    let mut other = user.start("run x --timeout 60s -- sh -c 'touch entered'");
    while other.try_wait().unwrap().is_none() {
        let entered = user.home.join("entered").exists();
        assert!(!entered || holder.try_wait().unwrap().is_some(), "a second caller was inside");
        sleep(Duration::from_millis(5));
    }
    assert!(other.wait().unwrap().success());
    let holder = Ran::of(holder.wait_with_output().unwrap());
    holder.failed(76, "the agent was ended; the command was stopped");
    assert!(agent.wait().unwrap().success());
}

/// What a client holds is released to the group before its agent is gone.
#[test]
fn a_holder_that_ends_in_time_releases_the_lock_to_the_other_members() {
    let user = User::new("in-time");
    let base = hallpass_testkit::free_ports(2);
    let peers = format!("127.0.0.1:{base},127.0.0.1:{}", base + 1);
    let start = |name: &str, port: u16| {
        user.start(&format!(
            "agent --name {name} --listen 127.0.0.1:{port} --peers {peers} --socket {name}.sock --ttl 30s"
        ))
    };
    let (mut a, mut b) = (start("a", base), start("b", base + 1));
    user.wait_for("a.sock");
    user.wait_for("b.sock");
    let mut holder = user.start("run x --socket a.sock -- sh -c 'touch held; exec sleep 60'");
    user.wait_for("held");
    let mut waiter = user.start("run x --socket b.sock --timeout 60s -- sh -c 'touch entered'");
    user.wait_for_waiter("--socket b.sock");
    assert!(!user.home.join("entered").exists());
    kill(a.id(), "-TERM");
    assert!(waiter.wait().unwrap().success(), "the lock was released before the member was gone");
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    assert!(a.wait().unwrap().success());
    // The next agent of this place need not wait: nobody held anything when the last one ended.
    assert!(!running_files(&user).iter().any(|file| file.contains("a.sock")), "{:?}", running_files(&user));
    kill(b.id(), "-TERM");
    b.wait().unwrap();
}

fn running_files(user: &User) -> Vec<String> {
    let agents = fs::read_dir(user.home.join("state/agents")).unwrap().flatten();
    let running = agents.filter(|agent| agent.path().join("running").exists());
    running.map(|agent| agent.file_name().to_string_lossy().into_owned()).collect()
}

/// A socket that was left over is waited for as long as a session lasts, also if nothing else was left.
#[test]
fn a_left_over_socket_is_waited_for() {
    let user = User::new("left-over");
    let mut agent = user.start("agent --socket a.sock --data data");
    user.wait_for("a.sock");
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    fs::remove_dir_all(user.home.join("data")).unwrap();
    let mut next = user.start("agent --socket a.sock --data data --ttl 60s");
    let line = first_line(&mut next);
    assert!(line.contains("did not end in order") && line.contains("wait=60s"), "{line}");
    user.run("run x --socket a.sock -- true").failed(69, "no agent answers");
    kill(next.id(), "-KILL");
    next.wait().unwrap();
}

/// A command that ignores SIGTERM is killed after half a session at most, whatever was asked for.
#[test]
fn a_grace_is_at_most_half_a_session() {
    let user = User::new("grace");
    let mut agent = user.start("agent --socket a.sock --ttl 4s");
    user.wait_for("a.sock");
    let holder = user.start(&format!("run x --socket a.sock --grace 1h -- {STUBBORN}"));
    user.wait_for("held");
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    let ran = Ran::of(holder.wait_with_output().unwrap());
    assert_eq!(ran.code, 76, "{}", ran.err);
    assert!(ran.err.contains("--grace is at most half the agent's session: 2s"), "{}", ran.err);
    assert!(ran.err.contains("its agent is gone"), "{}", ran.err);
}
