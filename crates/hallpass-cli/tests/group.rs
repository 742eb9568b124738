//! Real processes: `run`, `agent`, `demo`, `init`, and what happens when one of them is killed.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A user with directories of its own. Agents that were started for it end with it.
struct User {
    home: PathBuf,
}

impl User {
    fn new(name: &str) -> Self {
        let home = std::env::temp_dir().join(format!("hallpass-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(home.join("run")).unwrap();
        Self { home }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hallpass"));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.settings(&mut command);
        command
    }

    fn settings(&self, command: &mut Command) {
        command.current_dir(&self.home).env("XDG_STATE_HOME", self.home.join("state"));
        command.env("XDG_RUNTIME_DIR", self.home.join("run"));
        command.env_remove("HALLPASS_SOCKET").env_remove("HALLPASS_CONFIG");
    }

    fn run(&self, line: &str) -> Ran {
        Ran::of(self.command(&words(line)).output().unwrap())
    }

    fn start(&self, line: &str) -> Child {
        self.command(&words(line)).spawn().unwrap()
    }

    /// Waits until a file is there.
    fn wait_for(&self, file: &str) {
        wait_until(&format!("{file} exists"), || self.home.join(file).exists());
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.run("leave");
        let _ = fs::remove_dir_all(&self.home);
    }
}

struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let code = output.status.code().unwrap_or_else(|| -output.status.signal().unwrap());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// The exit code, nothing on stdout, one line on stderr that says this.
    fn failed(&self, code: i32, text: &str) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("hallpass: ") && self.err.contains(text), "{}", self.err);
    }
}

/// Words at spaces; what stands in single quotes stays together.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 { words.push(part) } else { words.extend(part.split_whitespace()) }
    }
    words
}

/// Patience for what must happen; it is never a measurement.
fn wait_until(what: &str, mut happens: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !happens() {
        assert!(Instant::now() < end, "it never happened that {what}");
        sleep(Duration::from_millis(10));
    }
}

fn is_at_work(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

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
fn run_gives_up_as_it_was_told() {
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
    assert!(all.iter_mut().all(|child| child.wait().unwrap().success()), "two were inside");
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
fn a_killed_run_leaves_no_child_at_work_and_frees_its_lock() {
    let user = User::new("killed");
    let mut run = user.start("run x -- sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 1000'");
    user.wait_for("pid");
    let child: u32 = fs::read_to_string(user.home.join("pid")).unwrap().trim().parse().unwrap();
    assert!(is_at_work(child));
    kill(run.id(), "-KILL");
    run.wait().unwrap();
    assert_eq!(user.run("run x --timeout 20s -- true").code, 0);
    assert!(!is_at_work(child), "the lock went on while the command was at work");
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

#[test]
fn ctrl_c_at_a_terminal_reaches_the_command_once_though_stdin_is_a_file() {
    let user = User::new("terminal");
    // A trap runs at once while the shell waits for a child.
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

/// Like flock(1): whatever still has the command's copy of the connection keeps the lock.
#[test]
fn what_the_command_leaves_behind_keeps_the_lock() {
    let user = User::new("behind");
    assert_eq!(user.run("run x -- sh -c '(until test -e end; do sleep 0.02; done) >/dev/null 2>&1 &'").code, 0);
    user.run("run x --try -- true").failed(75, "not free");
    fs::write(user.home.join("end"), "").unwrap();
    assert_eq!(user.run("run x -- true").code, 0);
    // And so when the command is ended by a signal in the midst of its work.
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

/// The system buries the children of such callers itself, and then nobody knows how they ended.
#[test]
fn callers_who_ignore_their_children_get_the_exit_code_all_the_same() {
    let user = User::new("ignores");
    for round in 0..2 {
        let mut caller = Command::new("env");
        caller.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_hallpass")]).args(words("run x -- sh -c 'exit 3'"));
        user.settings(&mut caller);
        assert_eq!(caller.output().unwrap().status.code(), Some(3), "round {round}");
    }
}

/// The agent of an inner `run` becomes a child of the outer one, but it is there for all.
#[test]
fn a_lost_run_takes_no_private_agent_with_it() {
    let user = User::new("inner");
    let mut agent = user.start("agent --socket n.sock");
    user.wait_for("n.sock");
    let hallpass = env!("CARGO_BIN_EXE_hallpass");
    fs::write(user.home.join("inner"), format!("'{hallpass}' run in -- true; touch held; sleep 60")).unwrap();
    let mut outer = user.start("run out --socket n.sock -- sh ./inner");
    user.wait_for("held");
    let other = user.start("run other -- sh -c 'touch other; until test -e end; do sleep 0.02; done; exit 5'");
    user.wait_for("other");
    kill(agent.id(), "-TERM");
    assert_eq!(outer.wait().unwrap().code(), Some(76));
    fs::write(user.home.join("end"), "").unwrap();
    assert_eq!(Ran::of(other.wait_with_output().unwrap()).code, 5);
    agent.wait().unwrap();
}

/// A private agent that ends under those who wait is replaced; one that has to wait for old sessions is not waited for
/// longer than was said.
#[test]
fn waiters_outlive_their_private_agent_and_keep_their_own_time() {
    let user = User::new("outlive");
    let mut holder = user.start("run x -- sh -c 'touch held; sleep 60'");
    user.wait_for("held");
    let waiter = user.start("run x -- true");
    sleep(Duration::from_millis(200));
    assert_eq!(user.run("leave").code, 0);
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    // Somebody was inside: the next agent waits for a session.
    user.run("run x --timeout 300ms -- true").failed(75, "not ready yet");
    let ran = Ran::of(waiter.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

/// Another agent knows nothing of the locks of one that is coming back.
#[test]
fn an_agent_that_was_killed_is_not_replaced_by_a_private_one() {
    let user = User::new("killed");
    let mut agent = user.start("agent --ttl 60s");
    user.wait_for("run/hallpass/agent.sock");
    assert_eq!(user.run("run x -- true").code, 0);
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    user.run("run x -- true").failed(69, "no agent answers");
}

/// Whoever takes orphans in must bury them.
#[test]
fn no_zombies_pile_up_while_the_command_runs() {
    let user = User::new("zombies");
    let mut run = user.start("run x -- sh -c '(true &); (true &); (true &); sleep 0.2; touch held; sleep 30'");
    user.wait_for("held");
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let own = format!(") Z {}", run.id());
    let zombies = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| stat(entry.file_name().to_str().unwrap_or("")).contains(&own)).count()
    };
    wait_until("the orphans are buried", || zombies() == 0);
    kill(run.id(), "-TERM");
    run.wait().unwrap();
}

/// timeout(1) makes a group of its own: the terminal's Ctrl-C does not reach it there.
#[test]
fn ctrl_c_reaches_a_command_in_a_group_of_its_own() {
    let user = User::new("groups");
    let Some(mut terminal) = terminal(&user, "run x -- timeout 60 sh -c 'touch held; sleep 60'") else { return };
    user.wait_for("held");
    terminal.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    terminal.wait().unwrap();
    assert_eq!(user.run("run x --try -- true").code, 0, "the lock is free again");
}

/// A command line of hallpass's in front of a terminal of its own, with stdin from elsewhere. Nothing without script(1).
fn terminal(user: &User, line: &str) -> Option<Child> {
    if Command::new("script").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "'script' is not installed");
        eprintln!("SKIPPED: 'script', which makes a terminal, is not installed");
        return None;
    }
    let mut terminal = Command::new("script");
    let line = format!("exec '{}' {line} </dev/null", env!("CARGO_BIN_EXE_hallpass"));
    terminal.args(["-qec", &line, "/dev/null"]);
    terminal.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    user.settings(terminal.env("SHELL", "/bin/sh"));
    Some(terminal.spawn().unwrap())
}

/// An agent that is started while another one is at work fails at once: its wait would be over before that one is killed.
#[test]
fn a_second_agent_does_not_wait_beside_the_first() {
    let user = User::new("second");
    let mut first = user.start("agent --socket a.sock --ttl 60s");
    user.wait_for("a.sock");
    let taken = user.run("agent --socket a.sock");
    assert_eq!(taken.code, 75, "{}", taken.err);
    assert!(taken.err.contains("another agent already listens"), "{}", taken.err);
    // The same directory by another socket.
    let taken = user.run("agent --socket b.sock --data a.data");
    assert_eq!(taken.code, 75, "{}", taken.err);
    assert!(taken.err.contains("another node uses the directory"), "{}", taken.err);
    let fence = |run: Ran| run.out.trim().parse::<u64>().unwrap();
    let before = fence(user.run("run x --socket a.sock -- sh -c 'echo $HALLPASS_FENCE'"));
    // Killed, it leaves its mark: the next one waits as long as the first one's sessions are, though its own are short.
    kill(first.id(), "-KILL");
    first.wait().unwrap();
    let mut next = user.start("agent --socket a.sock --ttl 500ms");
    sleep(Duration::from_secs(2));
    user.run("run x --socket a.sock -- true").failed(69, "no agent answers");
    kill(next.id(), "-KILL");
    next.wait().unwrap();
    // In order, fences rise without a directory that anybody named.
    fs::remove_file(user.home.join("a.data/running")).unwrap();
    fs::remove_file(user.home.join("a.sock")).unwrap();
    let mut last = user.start("agent --socket a.sock");
    user.wait_for("a.sock");
    assert!(fence(user.run("run x --socket a.sock -- sh -c 'echo $HALLPASS_FENCE'")) > before);
    assert_eq!(user.run("leave --socket a.sock").code, 0);
    assert!(last.wait().unwrap().success());
}

/// A configuration that was named is the one that counts: no other agent stands in for its own.
#[test]
fn an_agent_that_was_named_by_its_configuration_is_not_replaced_by_another() {
    let user = User::new("named");
    assert_eq!(user.run("init --names a,b --out group --loopback").code, 0);
    assert_eq!(user.run("run x -- true").code, 0, "a private agent is there");
    let with = |config: &str| {
        Ran::of(
            user.command(&["run", "x", "--", "true"]).env("HALLPASS_CONFIG", user.home.join(config)).output().unwrap(),
        )
    };
    with("group/a/hallpass.toml").failed(69, "no agent answers");
    with("nowhere.toml").failed(69, "nowhere.toml");
}

/// Whoever waits for an agent that is stopped has a clock of its own.
#[test]
fn an_agent_that_says_nothing_is_not_waited_for_longer_than_was_said() {
    let user = User::new("silent");
    let mut agent = user.start("agent --socket a.sock");
    user.wait_for("a.sock");
    let mut holder = user.start("run x --socket a.sock -- sh -c 'touch held; sleep 60'");
    user.wait_for("held");
    let waiter = user.start("run x --socket a.sock --timeout 500ms -- true");
    sleep(Duration::from_millis(100));
    kill(agent.id(), "-STOP");
    Ran::of(waiter.wait_with_output().unwrap()).failed(69, "does not answer");
    kill(agent.id(), "-CONT");
    kill(holder.id(), "-TERM");
    holder.wait().unwrap();
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

/// Nobody else's directory, and none that others can write to.
#[test]
fn a_private_agent_is_not_kept_where_others_can_write() {
    use std::os::unix::fs::PermissionsExt;
    let user = User::new("open");
    let directory = user.home.join("state/hallpass");
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    user.run("run x -- true").failed(69, "others can write there");
    assert!(fs::read_dir(&directory).unwrap().next().is_none(), "nothing was put there");
    // And one that cannot be used is told at once, in the agent's own words.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(directory.join("data"), "a file").unwrap();
    user.run("run x -- true").failed(69, "cannot use the directory");
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

#[test]
fn a_lost_agent_stops_the_command_before_anybody_else_is_let_in() {
    let user = User::new("lost");
    let start = |user: &User| {
        let agent = user.start("agent --ttl 2s --data data --name a");
        wait_until("the agent answers", || user.run("status").code == 0);
        agent
    };
    let mut agent = start(&user);
    let mut run = user.start("run x --grace 100ms -- sh -c 'echo $$ > pid.new; mv pid.new pid; trap \"touch told\" TERM; while :; do sleep 0.02; done'");
    user.wait_for("pid");
    let child: u32 = fs::read_to_string(user.home.join("pid")).unwrap().trim().parse().unwrap();
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    let mut next = start(&user);
    // The next agent lets nobody in until the command of the last one's client must be dead.
    assert_eq!(user.run("run x --timeout 30s -- true").code, 0);
    assert!(!is_at_work(child));
    assert_eq!(run.wait().unwrap().code(), Some(76));
    assert!(user.home.join("told").exists(), "SIGTERM comes before SIGKILL");
    assert_eq!(user.run("leave").code, 0);
    assert!(next.wait().unwrap().success());
}

#[test]
fn nothing_that_the_command_started_goes_on_after_a_loss() {
    let user = User::new("orphans");
    let mut agent = user.start("agent --ttl 1s --name a");
    wait_until("the agent answers", || user.run("status").code == 0);
    let mut run = user
        .start("run x --grace 50ms -- sh -c '(sleep 1000 & echo $! > left.new); mv left.new left; sleep 1000; true'");
    user.wait_for("left");
    let left: u32 = fs::read_to_string(user.home.join("left")).unwrap().trim().parse().unwrap();
    assert!(is_at_work(left));
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(76));
    wait_until("what was left behind is dead", || !is_at_work(left));
}

#[test]
fn what_was_ignored_stays_ignored_and_what_was_open_stays_with_the_command() {
    let user = User::new("inherit");
    let program = env!("CARGO_BIN_EXE_hallpass");
    let script = format!("trap '' HUP; exec {program} run x -- sh -c 'kill -HUP $$; echo alive >&7' 7>out");
    let ran = Ran::of(
        Command::new("sh")
            .arg("-c")
            .arg(script)
            .current_dir(&user.home)
            .env("XDG_STATE_HOME", user.home.join("state"))
            .env("XDG_RUNTIME_DIR", user.home.join("run"))
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fs::read_to_string(user.home.join("out")).unwrap(), "alive\n");
    // The private agent that it started has nothing of that open.
    let out = fs::canonicalize(user.home.join("out")).unwrap();
    let agents = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|line| line.contains("--private")));
    for descriptor in agents.flat_map(|agent| fs::read_dir(agent.path().join("fd")).into_iter().flatten().flatten()) {
        assert!(!fs::read_link(descriptor.path()).is_ok_and(|target| target == out));
    }
}

#[test]
fn what_is_missing_or_wrong_is_one_clear_line() {
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

#[test]
fn strangers_behind_the_socket_are_told_apart() {
    let user = User::new("stranger");
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
    answer("220 mail ready\n").failed(69, "no hallpass agent");
    answer("").failed(69, "closed the connection");
    // A socket that is somebody else's: root may use any, so there it is asked as nobody.
    let path = user.home.join("other.sock");
    let _ = fs::remove_file(&path);
    let _listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let mut command = user.command(&words("run x --socket other.sock -- true"));
    if fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
        // The binary itself may lie where nobody else can go: it is started from a copy.
        let copy = user.home.join("hallpass");
        fs::copy(env!("CARGO_BIN_EXE_hallpass"), &copy).unwrap();
        command = Command::new(copy);
        command.args(words("run x --socket other.sock -- true")).current_dir(&user.home).uid(65_534).gid(65_534);
    }
    Ran::of(command.stdin(Stdio::null()).output().unwrap()).failed(69, "no permission");
}

/// Three agents with keys, as `init` makes them.
fn agents(user: &User, base: u16) -> Vec<Child> {
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

/// Ports that are free now, in a row.
fn free_ports(count: u16) -> u16 {
    let is_free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let seed = std::process::id() as u16 % 200 * 100;
    (0..1000).map(|at| 20_000 + seed + at * 3).find(|base| (0..count).all(|at| is_free(base + at))).unwrap()
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
        assert!(child.wait().unwrap().success(), "two were inside");
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

#[test]
fn demo_ends_by_itself_and_saw_nothing_wrong() {
    let user = User::new("demo");
    let ran = user.run("demo --seconds 1 --json");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let expected =
        ["nodes", "protocol", "seconds", "grants", "messages", "messages_per_grant", "grants_per_second", "violations"];
    assert_eq!(keys, expected);
    assert_eq!((&report["violations"], &report["nodes"]), (&Value::from(0), &Value::from(3)));
    assert!(report["grants"].as_u64().unwrap() > 0);
    assert!(user.run("demo --seconds 1 --nodes 2 --protocol ricart-agrawala").out.contains("violations  none"));
}
