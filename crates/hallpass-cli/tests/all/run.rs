//! `run` as its users see it: exit codes, exclusion, errors.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use hallpass_testkit::wait_until;
use serde_json::Value;

use crate::user::{Ran, User, kill, words};

#[test]
fn run_passes_the_commands_own_exit_code_on() {
    let user = User::new("codes");
    let ran = user.run("run nightly -- sh -c 'echo $HALLPASS_LOCK $HALLPASS_FENCE $HALLPASS_NODE; exit 7'");
    assert_eq!(ran.code, 7, "{}", ran.err);
    let parts: Vec<&str> = ran.out.split_whitespace().collect();
    assert_eq!((parts[0], parts[2]), ("nightly", "private"));
    let fence: u64 = parts[1].parse().unwrap();
    assert_eq!(user.run("run nightly -- true").code, 0);
    assert_eq!(user.run("run nightly -- sh -c 'kill -TERM $$'").code, 128 + 15);
    user.run("run nightly -- ./no-such-command").failed(127, "no-such-command");
    fs::write(user.home.join("plain"), "text").unwrap();
    user.run("run nightly -- ./plain").failed(126, "plain");
    let later = user.run("run nightly -- sh -c 'echo $HALLPASS_FENCE'").out.trim().parse::<u64>().unwrap();
    assert!(later > fence);
}

#[test]
fn run_gives_up_after_try_and_timeout() {
    let user = User::new("busy");
    let mut holder = user.start("run x -- sh -c 'touch held; while [ ! -e go ]; do sleep 0.02; done'");
    user.wait_for("held");
    user.run("run x --try -- touch never").failed(75, "not free");
    user.run("run x --timeout 50ms -- touch never").failed(75, "not free within 50ms");
    user.run("run x --shared --try -- touch never").failed(75, "not free");
    assert_eq!(user.run("run other --try -- true").code, 0);
    let locks: Value = serde_json::from_str(&user.run("locks --json").out).unwrap();
    assert_eq!((&locks[0]["name"], &locks[0]["held"]), (&Value::from("x"), &Value::from("exclusive")));
    fs::write(user.home.join("go"), "").unwrap();
    assert!(holder.wait().unwrap().success());
    assert!(!user.home.join("never").exists());
    assert_eq!(user.run("run x --try -- true").code, 0);
}

#[test]
fn runs_exclude_each_other_and_readers_share() {
    let user = User::new("exclude");
    let section = "run x -- sh -c 'mkdir inside && sleep 0.05 && rmdir inside'";
    let mut all: Vec<Child> = (0..8).map(|_| user.start(section)).collect();
    assert!(all.iter_mut().all(|child| child.wait().unwrap().success()), "two commands ran at once");
    let reads = |name: &str| {
        user.start(&format!("run x --shared -- sh -c 'touch {name}; while [ ! -e go ]; do sleep 0.02; done'"))
    };
    let mut readers = [reads("one"), reads("two")];
    user.wait_for("one");
    user.wait_for("two");
    fs::write(user.home.join("go"), "").unwrap();
    assert!(readers.iter_mut().all(|child| child.wait().unwrap().success()));
}

#[test]
fn a_killed_waiter_leaves_the_queue() {
    let user = User::new("waiter");
    let mut holder = user.start("run x -- sh -c 'touch held; while [ ! -e go ]; do sleep 0.02; done'");
    user.wait_for("held");
    let mut waiter = user.start("run x -- touch never");
    let waiters = || serde_json::from_str::<Value>(&user.run("locks --json").out).unwrap()[0]["waiters"].clone();
    wait_until("one waits", || waiters() == 1);
    kill(waiter.id(), "-KILL");
    waiter.wait().unwrap();
    wait_until("nobody waits", || waiters() == 0);
    fs::write(user.home.join("go"), "").unwrap();
    assert!(holder.wait().unwrap().success());
    assert_eq!(user.run("run x --timeout 20s -- true").code, 0);
    assert!(!user.home.join("never").exists());
}

/// An agent that is stopped does not keep the time: its clients do.
#[test]
fn an_agent_that_does_not_answer_is_not_waited_for_beyond_the_timeout() {
    let user = User::new("stopped");
    let mut agent = user.start("agent --socket a.sock");
    user.wait_for("a.sock");
    let mut holder = user.start("run x --socket a.sock -- sh -c 'touch held; exec sleep 60'");
    user.wait_for("held");
    let waiter = user.start("run x --socket a.sock --timeout 5s -- true");
    user.wait_for_waiter("--socket a.sock");
    kill(agent.id(), "-STOP");
    Ran::of(waiter.wait_with_output().unwrap()).failed(69, "does not answer");
    kill(agent.id(), "-CONT");
    kill(holder.id(), "-TERM");
    holder.wait().unwrap();
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

#[test]
fn every_error_is_one_line_that_names_the_cause() {
    let user = User::new("wrong");
    user.run("run x --socket gone.sock -- true").failed(69, "no agent answers at gone.sock");
    user.run("locks").failed(69, "no agent runs here");
    user.run("run x").failed(64, "COMMAND");
    user.run("run x --try --timeout 1s -- true").failed(64, "cannot be used with");
    user.run("run x --timeout soon -- true").failed(64, "not a duration");
    let long = format!("run {} -- true", "x".repeat(256));
    user.run(&long).failed(64, "1 to 255 bytes");
    user.run("agent --listen nonsense").failed(64, "nonsense");
    user.run("agent --listen 0.0.0.0:0").failed(64, "hallpass init");
    user.run("agent --config none.toml").failed(1, "none.toml");
    fs::write(user.home.join("bad.toml"), "group = \"g\"\nlisen = 3\n").unwrap();
    user.run("agent --config bad.toml").failed(1, "line 2");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    user.run(&format!("agent --listen {}", taken.local_addr().unwrap())).failed(1, "cannot listen on");
    assert_eq!(user.run("run --lock -x -- true").code, 0, "a name may begin with a hyphen");
    let bare = user.run("");
    bare.failed(64, "subcommand");
    assert!(!bare.err.contains("__child"), "{}", bare.err);
    user.run("demo --protocol paxos").failed(64, "paxos");
    user.run("demo --nodes 0").failed(64, "0");
}

/// Service files leave a variable out by setting it to nothing.
#[test]
fn variables_that_are_set_to_nothing_count_as_not_set() {
    let user = User::new("empty");
    let mut run = user.command(&words("run x -- true"));
    let ran = Ran::of(run.env("HALLPASS_SOCKET", "").env("HALLPASS_TTL", "").output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn other_programs_and_versions_behind_the_socket_are_distinguished() {
    let user = User::new("other");
    let answer = |line: &'static str| {
        let path = user.home.join("other.sock");
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(line.as_bytes());
        });
        let ran = user.run("run x --socket other.sock -- true");
        server.join().unwrap();
        ran
    };
    answer("{\"is\":\"welcome\",\"version\":99}\n").failed(69, "version 99");
    answer("220 mail ready\n").failed(69, "not a hallpass agent");
    answer("").failed(69, "closed the connection");
    // A socket without permission: root may use any, so as root the command runs as another user.
    let path = user.home.join("other.sock");
    let _ = fs::remove_file(&path);
    let _listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let mut command = user.command(&words("run x --socket other.sock -- true"));
    if fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
        // The directory of the binary may be closed to others, so a copy is started.
        let copy = user.home.join("hallpass");
        fs::copy(env!("CARGO_BIN_EXE_hallpass"), &copy).unwrap();
        command = Command::new(copy);
        command.args(words("run x --socket other.sock -- true")).current_dir(&user.home).uid(65_534).gid(65_534);
    }
    Ran::of(command.stdin(Stdio::null()).output().unwrap()).failed(69, "no permission");
}
