//! The processes around `run`: its command, what that starts, the terminal and the caller, and signals between them.
//!
//! Some of it only Linux offers; the fallback for other Unixes says what is lost.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

#[cfg(target_os = "linux")]
use hallpass_testkit::wait_until;

use crate::user::ignores;
use crate::user::{Ran, User, is_running, kill, skipped, words};

#[cfg(target_os = "linux")]
#[test]
fn a_killed_run_leaves_no_running_child_and_frees_its_lock() {
    let user = User::new("killed");
    let mut run = user.start("run x -- sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 1000'");
    user.wait_for("pid");
    let child: u32 = fs::read_to_string(user.home.join("pid")).unwrap().trim().parse().unwrap();
    assert!(is_running(child));
    kill(run.id(), "-KILL");
    run.wait().unwrap();
    assert_eq!(user.run("run x --timeout 20s -- true").code, 0);
    assert!(!is_running(child), "the lock was granted while the command was running");
}

/// Like flock(1): every process with a copy of the client connection keeps the lock.
#[test]
fn processes_that_the_command_leaves_running_keep_the_lock() {
    let user = User::new("behind");
    assert_eq!(user.run("run x -- sh -c '(until test -e end; do sleep 0.02; done) >/dev/null 2>&1 &'").code, 0);
    user.run("run x --try -- true").failed(75, "not free");
    fs::write(user.home.join("end"), "").unwrap();
    assert_eq!(user.run("run x -- true").code, 0);
    // Also if the command is ended by a signal.
    fs::remove_file(user.home.join("end")).unwrap();
    let mut run =
        user.start("run x -- sh -c 'sh -c \"touch held; until test -e end; do sleep 0.02; done\"; echo more'");
    user.wait_for("held");
    kill(run.id(), "-TERM");
    assert_eq!(run.wait().unwrap().code(), Some(128 + 15));
    user.run("run x --try -- true").failed(75, "not free");
    fs::write(user.home.join("end"), "").unwrap();
    assert_eq!(user.run("run x -- true").code, 0);
}

/// The system reaps the children of such callers itself, and drops their exit statuses.
#[test]
fn callers_who_ignore_sigchld_get_the_exit_code_too() {
    let user = User::new("ignores");
    for round in 0..2 {
        let mut caller = Command::new("env");
        caller.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_hallpass")]).args(words("run x -- sh -c 'exit 3'"));
        user.settings(&mut caller);
        assert_eq!(caller.output().unwrap().status.code(), Some(3), "round {round}");
    }
}

/// A process that adopts orphans must reap them.
#[cfg(target_os = "linux")]
#[test]
fn orphans_are_reaped_while_the_command_runs() {
    let user = User::new("zombies");
    let mut run = user.start("run x -- sh -c '(true &); (true &); (true &); sleep 0.2; touch held; sleep 30'");
    user.wait_for("held");
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let own = format!(") Z {}", run.id());
    let zombies = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| stat(entry.file_name().to_str().unwrap_or("")).contains(&own)).count()
    };
    wait_until("the orphans are reaped", || zombies() == 0);
    kill(run.id(), "-TERM");
    run.wait().unwrap();
}

#[test]
fn signals_are_passed_on_and_the_lock_is_released() {
    let user = User::new("signals");
    let mut run = user.start("run x -- sh -c 'trap \"exit 9\" INT; touch held; while :; do sleep 0.02; done'");
    user.wait_for("held");
    kill(run.id(), "-INT");
    assert_eq!(run.wait().unwrap().code(), Some(9));
    assert_eq!(user.run("run x --try -- true").code, 0);
}

/// As `nohup` and shells do for what runs in the background.
#[cfg(target_os = "linux")]
#[test]
fn what_the_caller_ignores_ends_neither_the_agent_nor_run_nor_its_command() {
    let user = User::new("ignored");
    let ignoring = |line: &str| {
        let mut command = Command::new("env");
        command.args(["--ignore-signal=HUP,INT", env!("CARGO_BIN_EXE_hallpass")]).args(words(line));
        user.settings(command.stdout(Stdio::null()).stderr(Stdio::null()));
        command.spawn().unwrap()
    };
    let mut agent = ignoring("agent --name a");
    wait_until("the agent answers", || user.run("status").code == 0);
    let mut run =
        ignoring("run x -- sh -c 'echo $$ >pid.new; mv pid.new pid; until test -e end; do sleep 0.02; done; exit 7'");
    for pid in [agent.id(), run.id(), user.number_in("pid")] {
        assert!(ignores(pid, &[1, 2]), "{}", fs::read_to_string(format!("/proc/{pid}/status")).unwrap());
        kill(pid, "-HUP");
        kill(pid, "-INT");
    }
    fs::write(user.home.join("end"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(7));
    kill(agent.id(), "-TERM");
    assert!(agent.wait().unwrap().success());
}

/// The tests themselves may be started that way: `nohup cargo test &`.
#[cfg(target_os = "linux")]
#[test]
fn these_tests_pass_where_signals_are_ignored() {
    let mut again = Command::new("timeout");
    again.args(["120", "env", "--ignore-signal=HUP,INT,QUIT"]).arg(std::env::current_exe().unwrap()).args([
        "--exact",
        "processes::signals_are_passed_on_and_the_lock_is_released",
        "processes::ctrl_c_at_a_terminal_reaches_the_command_once_though_stdin_is_a_file",
        "processes::ctrl_c_reaches_a_command_in_a_group_of_its_own",
    ]);
    let output = again.output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("3 passed"), "{}: {out}", output.status);
}

#[test]
fn ctrl_c_at_a_terminal_reaches_the_command_once_though_stdin_is_a_file() {
    let user = User::new("terminal");
    // A shell runs a trap at once while it waits for a child.
    let counts = "trap 'echo >>hits' INT; touch hits; until test -e end; do sleep 0.1 & wait $!; done; exit 0";
    fs::write(user.home.join("counts"), counts).unwrap();
    let Some(mut terminal) = terminal(&user, "run x -- sh ./counts") else { return };
    user.wait_for("hits");
    let hits = || fs::read_to_string(user.home.join("hits")).unwrap().len();
    for hit in 1..=10 {
        terminal.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
        wait_until("Ctrl-C arrives", || hits() >= hit);
        sleep(Duration::from_millis(20));
    }
    fs::write(user.home.join("end"), "").unwrap();
    assert!(terminal.wait().unwrap().success());
    assert_eq!(hits(), 10);
    assert_eq!(user.run("run x --try -- true").code, 0, "the lock is free again");
}

/// The terminal's Ctrl-C does not reach another process group.
#[test]
fn ctrl_c_reaches_a_command_in_a_group_of_its_own() {
    let user = User::new("groups");
    // The shell has no child: it would ignore a Ctrl-C that its child seems to have handled.
    let Some(mut terminal) = terminal(&user, "run x -- setsid sh -c '>held; exec sleep 60'") else { return };
    user.wait_for("held");
    terminal.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    wait_until("Ctrl-C ends the command", || terminal.try_wait().unwrap().is_some());
    assert_eq!(user.run("run x --try -- true").code, 0, "the lock is free again");
}

/// Runs hallpass at a terminal of its own, with stdin from elsewhere. None without script(1).
fn terminal(user: &User, line: &str) -> Option<Child> {
    if Command::new("script").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "'script' is not installed");
        skipped("'script', which creates a terminal, is not installed");
        return None;
    }
    let mut terminal = Command::new("script");
    let line = format!("exec '{}' {line} </dev/null", env!("CARGO_BIN_EXE_hallpass"));
    terminal.args(["-qec", &line, "/dev/null"]);
    terminal.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    user.settings(terminal.env("SHELL", "/bin/sh"));
    Some(terminal.spawn().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn everything_that_the_command_started_is_killed_when_the_lock_is_lost() {
    let user = User::new("orphans");
    let mut agent = user.start("agent --ttl 1s --name a");
    wait_until("the agent answers", || user.run("status").code == 0);
    let mut run = user
        .start("run x --grace 50ms -- sh -c '(sleep 1000 & echo $! > left.new); mv left.new left; sleep 1000; true'");
    user.wait_for("left");
    let left: u32 = fs::read_to_string(user.home.join("left")).unwrap().trim().parse().unwrap();
    assert!(is_running(left));
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(76));
    wait_until("the process that was left running is dead", || !is_running(left));
}

#[cfg(target_os = "linux")]
#[test]
fn the_command_inherits_ignored_signals_and_open_files_and_the_private_agent_does_not() {
    let user = User::new("inherit");
    let program = env!("CARGO_BIN_EXE_hallpass");
    let script = format!("trap '' HUP; exec {program} run x -- sh -c 'kill -HUP $$; echo alive >&7' 7>out");
    let ran = Ran::of(
        Command::new("sh")
            .arg("-c")
            .arg(script)
            .current_dir(&user.home)
            .env("HALLPASS_CONFIG", user.home.join("hallpass.toml"))
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fs::read_to_string(user.home.join("out")).unwrap(), "alive\n");
    // The private agent that it started does not have the file open.
    let out = fs::canonicalize(user.home.join("out")).unwrap();
    let agents = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|line| line.contains("--private")));
    for descriptor in agents.flat_map(|agent| fs::read_dir(agent.path().join("fd")).into_iter().flatten().flatten()) {
        assert!(!fs::read_link(descriptor.path()).is_ok_and(|target| target == out));
    }
}
