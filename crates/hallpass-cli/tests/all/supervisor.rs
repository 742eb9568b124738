//! What is left at work when one of `run`, its supervisor and its agent is killed: nothing.

use std::fs;
use std::process::Child;

use hallpass_testkit::wait_until;

use crate::user::{User, copy_program, is_root, is_running, kill, skipped};

/// Starts a worker that has closed every descriptor it could and left the session, as a daemon does: nothing but its ancestry leads
/// to it.
const COMMAND: &str = "(for n in 3 4 5 6 7 8 9; do eval \"exec $n>&-\"; done; exec setsid sleep 1000) \
    </dev/null >/dev/null 2>&1 & echo $! >worker.new; mv worker.new worker; sleep 1000; true";

/// Starts `run` with a command that has started such a worker, and returns both.
fn run_with_worker(user: &User, options: &str) -> (Child, u32) {
    fs::write(user.home.join("work"), COMMAND).unwrap();
    let run = user.start(&format!("run x {options} -- sh ./work"));
    let worker = user.number_in("worker");
    wait_until("the worker has detached itself", || {
        fs::read_to_string(format!("/proc/{worker}/comm")).is_ok_and(|name| name.trim() == "sleep")
    });
    let open = fs::read_dir(format!("/proc/{worker}/fd")).unwrap().flatten();
    let is_socket = |file: &fs::DirEntry| {
        fs::read_link(file.path()).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    assert_eq!(open.filter(is_socket).count(), 0, "the worker has no copy of the client connection");
    (run, worker)
}

/// The supervisor of a `run`, which is one of its children.
fn supervisor_of(run: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap();
    let is_supervisor =
        |pid: &&str| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("__supervisor"));
    children.split_whitespace().find(is_supervisor).unwrap().parse().unwrap()
}

#[test]
fn a_killed_run_leaves_no_detached_worker_when_the_lock_passes_on() {
    let user = User::new("orphan");
    let (mut run, worker) = run_with_worker(&user, "");
    kill(run.id(), "-KILL");
    run.wait().unwrap();
    assert_eq!(user.run("run x --timeout 20s -- true").code, 0);
    assert!(!is_running(worker), "the lock was granted while a worker of its last holder ran");
}

#[test]
fn a_killed_supervisor_takes_the_command_and_its_workers_along() {
    let user = User::new("supervisor");
    let (mut run, worker) = run_with_worker(&user, "");
    kill(supervisor_of(run.id()), "-KILL");
    assert_eq!(run.wait().unwrap().code(), Some(128 + 9));
    assert!(!is_running(worker), "a worker outlived its run");
    assert_eq!(user.run("run x --timeout 20s -- true").code, 0);
}

/// The supervisor's death alone ends the command, at once and for certain: `run` is stopped here and cannot help.
#[test]
fn a_killed_supervisor_takes_a_command_along_that_ignores_sigterm() {
    let user = User::new("ignores-term");
    let mut run = user
        .start("run x -- sh -c 'trap \"\" TERM; echo $$ >pid.new; mv pid.new pid; while :; do sleep 0.02; done; true'");
    let command = user.number_in("pid");
    let supervisor = supervisor_of(run.id());
    kill(run.id(), "-STOP");
    kill(supervisor, "-KILL");
    let died = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !is_running(command)
    });
    // First, so that nothing stays stopped when this fails.
    kill(run.id(), "-CONT");
    assert!(died, "the command outlived its supervisor");
    assert_eq!(run.wait().unwrap().code(), Some(128 + 9));
}

/// `run` stops the command when its agent is gone. One that is stopped itself cannot: the supervisor does.
#[test]
fn a_killed_agent_leaves_no_worker_even_of_a_run_that_is_stopped() {
    let user = User::new("stopped-run");
    let mut agent = user.start("agent --socket a.sock --ttl 1s");
    user.wait_for("a.sock");
    let (mut run, worker) = run_with_worker(&user, "--socket a.sock");
    kill(run.id(), "-STOP");
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    let mut next = user.start("agent --socket a.sock --ttl 1s");
    wait_until("the next agent answers", || user.run("status --socket a.sock").code == 0);
    assert!(!is_running(worker), "the next agent was ready while a worker of the last one's client ran");
    kill(run.id(), "-CONT");
    assert_eq!(run.wait().unwrap().code(), Some(76));
    kill(next.id(), "-TERM");
    next.wait().unwrap();
}

/// The command ends, and its worker goes on: the lock is the worker's, though it has closed its copy of the connection. When the agent is
/// gone, the worker is killed before another one grants anything.
#[test]
fn a_worker_that_the_command_leaves_running_keeps_the_lock_and_dies_with_the_agent() {
    let user = User::new("left-worker");
    let start = || {
        let agent = user.start("agent --socket a.sock --ttl 1s");
        wait_until("the agent answers", || user.run("status --socket a.sock").code == 0);
        agent
    };
    let mut agent = start();
    fs::write(user.home.join("work"), COMMAND.replace("sleep 1000; true", "true")).unwrap();
    // A reader of the output of run need not wait for the worker.
    assert_eq!(user.run("run x --socket a.sock -- sh ./work").code, 0);
    let worker = user.number_in("worker");
    user.run("run x --socket a.sock --try -- true").failed(75, "not free");
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    let mut next = start();
    assert!(!is_running(worker), "the next agent was ready while a worker of the last one's client ran");
    assert_eq!(user.run("run x --socket a.sock --timeout 20s -- true").code, 0);
    // One that ends by itself lets the lock go.
    fs::write(user.home.join("work"), COMMAND.replace("sleep 1000; true", "true").replace("sleep 1000", "sleep 1"))
        .unwrap();
    assert_eq!(user.run("run x --socket a.sock -- sh ./work").code, 0);
    assert_eq!(user.run("run x --socket a.sock --timeout 20s -- true").code, 0);
    kill(next.id(), "-TERM");
    next.wait().unwrap();
}

/// A `run` that was paused when the lock was granted, and goes on when it is somebody else's, starts nothing.
#[test]
fn a_paused_run_whose_agent_is_gone_does_not_start_its_command() {
    let user = User::new("paused");
    let mut agent = user.start("agent --socket a.sock --ttl 1s");
    user.wait_for("a.sock");
    let mut holder = user.start("run x --socket a.sock -- sh -c 'touch held; until test -e end; do sleep 0.02; done'");
    user.wait_for("held");
    let waiter = user.start("run x --socket a.sock -- touch stale");
    user.wait_for_waiter("--socket a.sock");
    kill(waiter.id(), "-STOP");
    fs::write(user.home.join("end"), "").unwrap();
    assert!(holder.wait().unwrap().success());
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    kill(waiter.id(), "-CONT");
    let ran = crate::user::Ran::of(waiter.wait_with_output().unwrap());
    assert!([69, 76].contains(&ran.code), "{}: {}", ran.code, ran.err);
    assert!(!user.home.join("stale").exists(), "the command was started");
}

/// A program may become `run` and have children of its own: they are nobody's business.
#[test]
fn children_from_before_are_not_killed() {
    let user = User::new("before");
    let mut agent = user.start("agent --socket a.sock --ttl 1s");
    user.wait_for("a.sock");
    let program = env!("CARGO_BIN_EXE_hallpass");
    let script = format!(
        "sleep 1000 >/dev/null 2>&1 & echo $! >child.new; mv child.new child; \
         exec '{program}' run x --socket a.sock -- sh -c 'touch held; exec sleep 1000'"
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]);
    user.settings(&mut shell);
    let mut run = shell.stderr(std::process::Stdio::null()).spawn().unwrap();
    user.wait_for("held");
    let child = user.number_in("child");
    kill(agent.id(), "-TERM");
    assert_eq!(run.wait().unwrap().code(), Some(76));
    agent.wait().unwrap();
    assert!(is_running(child));
    kill(child, "-KILL");
}

/// A process that this user may not kill keeps the lock, as long as the agent lives. Only root can become another user here.
#[test]
fn a_process_of_another_user_keeps_the_lock_of_a_killed_run() {
    if !is_root() {
        return skipped("it needs root, to start a command as another user");
    }
    let user = User::new("setuid");
    // The agent and run are of another user, and what they start becomes root's, as with sudo: by a set-user-id program.
    let setpriv = user.home.join("setpriv");
    copy_program("/usr/bin/setpriv", &setpriv);
    fs::set_permissions(&setpriv, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    if !suid_works(&user) {
        return skipped("set-user-id programs are not honoured here");
    }
    let user = user.of_somebody_else();
    let mut run = user.start("run x -- sh -c 'echo $$ >pid.new; mv pid.new pid; exec ./setpriv --reuid 0 sleep 4'");
    let sleeper = user.number_in("pid");
    wait_until("sleep has started", || {
        fs::read_to_string(format!("/proc/{sleeper}/comm")).is_ok_and(|name| name.trim() == "sleep")
    });
    kill(run.id(), "-KILL");
    run.wait().unwrap();
    user.run("run x --try -- true").failed(75, "not free");
    assert!(is_running(sleeper), "it cannot be killed by this user");
    assert_eq!(user.run("run x --timeout 30s -- true").code, 0, "it keeps the lock until it ends");
    assert!(!is_running(sleeper));
}

/// File systems can be mounted so that set-user-id bits do nothing.
fn suid_works(user: &User) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let of = |line: &str| line.split(' ').nth(1).is_some_and(|place| user.home.starts_with(place));
    mounts.lines().rfind(|line| of(line)).is_none_or(|line| !line.contains("nosuid"))
}
