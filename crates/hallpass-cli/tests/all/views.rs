//! Groups of agents whose members come, go and fail. Sessions are short, so that nothing takes long.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hallpass_testkit::{free_ports, wait_until};
use serde_json::{Value, json};

use crate::user::{Ran, User, is_running, kill, words};

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Agents on loopback, each with its own socket and data: `a.sock`, `a.data`, `a.log`.
pub(crate) struct Group {
    pub(crate) user: User,
    base: u16,
    ttl: &'static str,
    pub(crate) running: BTreeMap<String, Child>,
}

impl Group {
    pub(crate) fn new(name: &str, ttl: &'static str) -> Self {
        Self { user: User::new(name), base: free_ports(4), ttl, running: BTreeMap::new() }
    }

    /// Three agents that have founded a group.
    pub(crate) fn of_three(name: &str, ttl: &'static str) -> Self {
        let mut group = Self::new(name, ttl);
        NAMES.iter().for_each(|name| group.start(name));
        NAMES.iter().for_each(|name| group.wait_until_open(name));
        group
    }

    pub(crate) fn address(&self, name: &str) -> String {
        let index = name.bytes().next().unwrap() - b'a';
        format!("127.0.0.1:{}", self.base + u16::from(index))
    }

    /// Starts a founder.
    pub(crate) fn start(&mut self, name: &str) {
        self.start_with(name, &self.as_founder());
    }

    pub(crate) fn as_founder(&self) -> String {
        format!("--peers {}", NAMES.map(|name| self.address(name)).join(","))
    }

    pub(crate) fn agent_line(&self, name: &str, options: &str) -> String {
        format!(
            "agent --name {name} --listen {} --socket {name}.sock --data {name}.data --ttl {} {options}",
            self.address(name),
            self.ttl
        )
    }

    pub(crate) fn start_with(&mut self, name: &str, options: &str) {
        let line = self.agent_line(name, options);
        let log = File::options().create(true).append(true).open(self.log_of(name)).unwrap();
        let agent = self.user.command(&words(&line)).stderr(log).spawn().unwrap();
        self.running.insert(name.to_owned(), agent);
    }

    pub(crate) fn log_of(&self, name: &str) -> PathBuf {
        self.user.home.join(format!("{name}.log"))
    }

    /// A line of this agent's log has all of these parts.
    pub(crate) fn assert_logged(&self, name: &str, parts: &[&str]) {
        self.logged(name, parts);
    }

    pub(crate) fn logged(&self, name: &str, parts: &[&str]) -> String {
        let log = std::fs::read_to_string(self.log_of(name)).unwrap();
        let found = log.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        found.unwrap_or_else(|| panic!("{parts:?} in {log}")).to_owned()
    }

    /// The name of the steward, as a member knows it.
    pub(crate) fn steward(&self, name: &str) -> String {
        self.json(name, "status")["steward"].as_str().expect("there is one").to_owned()
    }

    fn signal(&self, name: &str, signal: &str) {
        kill(self.running[name].id(), signal);
    }

    /// Ends an agent by a signal.
    pub(crate) fn end(&mut self, name: &str, signal: &str) {
        self.signal(name, signal);
        self.running.remove(name).unwrap().wait().unwrap();
    }

    /// A command for one of the agents: `{}` stands for the option that names it.
    pub(crate) fn run(&self, name: &str, line: &str) -> Ran {
        self.user.run(&line.replace("{}", &format!("--socket {name}.sock")))
    }

    pub(crate) fn start_run(&self, name: &str, line: &str) -> Child {
        self.user.start(&line.replace("{}", &format!("--socket {name}.sock")))
    }

    pub(crate) fn json(&self, name: &str, what: &str) -> Value {
        let ran = self.run(name, &format!("{what} {{}} --json"));
        serde_json::from_str(&ran.out).unwrap_or(Value::Null)
    }

    fn is_open(&self, name: &str) -> bool {
        self.json(name, "status")["view"] == "open"
    }

    pub(crate) fn wait_until_open(&self, name: &str) {
        wait_until(&format!("{name} grants locks"), || self.is_open(name));
    }

    /// The names of those that take part, as one of them sees it.
    fn members(&self, name: &str) -> Vec<String> {
        let members = self.json(name, "members");
        let taking_part = members.as_array().into_iter().flatten().filter(|member| member["state"] == "member");
        let mut names: Vec<String> = taking_part.map(|member| member["name"].as_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn wait_until_members(&self, name: &str, expected: &[&str]) {
        wait_until(&format!("the members are {expected:?}"), || self.members(name) == expected);
    }

    /// Starts a command that does not end by itself, under lock `x`, and returns its process: it marks SIGTERM with a file, and goes on.
    pub(crate) fn hold(&self, name: &str) -> (Child, u32) {
        let script =
            "trap \"touch terminated\" TERM; echo $$ >pid.new; mv pid.new pid; while :; do sleep 0.01; done; true";
        fs::write(self.user.home.join("work"), script).unwrap();
        let run = self.start_run(name, "run x {} --grace 200ms -- sh ./work");
        (run, self.user.number_in("pid"))
    }

    /// Runs a command under lock `x` that looks for the holder's: true if both were inside.
    pub(crate) fn overlaps(&self, name: &str, holder: u32) -> bool {
        let look = format!(
            "run x {{}} --timeout 25s -- sh -c 'kill -0 {holder} 2>/dev/null && touch overlap; touch entered; true'"
        );
        let ran = self.run(name, &look);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(self.user.home.join("entered").exists());
        self.user.home.join("overlap").exists()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for agent in self.running.values_mut() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        if std::thread::panicking() {
            for name in ["a", "b", "c", "d"] {
                let log = fs::read_to_string(self.user.home.join(format!("{name}.log"))).unwrap_or_default();
                eprintln!("---- {name}\n{log}");
            }
        }
    }
}

#[test]
fn a_killed_agent_loses_its_locks_to_the_others_and_comes_back_by_itself() {
    let mut group = Group::of_three("killed", "1s");
    let (mut holder, command) = group.hold("a");
    group.end("a", "-KILL");
    assert!(!group.overlaps("b", command), "two were inside");
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    assert!(group.user.home.join("terminated").exists(), "SIGTERM comes before SIGKILL");
    group.wait_until_members("b", &["b", "c"]);
    group.start("a");
    group.wait_until_open("a");
    group.wait_until_members("b", &NAMES);
    assert_eq!(group.run("a", "run x {} -- true").code, 0);
}

/// Its clients may have outlived it, so nobody gets their locks before their time is over.
#[test]
fn an_agent_that_is_killed_and_restarted_at_once_frees_its_locks_within_a_session() {
    let mut group = Group::of_three("killed-restarted", "1s");
    for name in NAMES {
        let (mut holder, command) = group.hold(name);
        let other = NAMES.into_iter().find(|other| *other != name).unwrap();
        let killed = Instant::now();
        group.end(name, "-KILL");
        group.start(name);
        assert!(!group.overlaps(other, command), "two were inside");
        println!("the next one was in {:?} after {name} was killed", killed.elapsed());
        assert_eq!(holder.wait().unwrap().code(), Some(76));
        group.wait_until_open(name);
        group.wait_until_members(other, &NAMES);
        ["pid", "entered"].iter().for_each(|file| fs::remove_file(group.user.home.join(file)).unwrap());
    }
}

#[test]
fn the_command_of_a_stopped_agent_is_dead_before_another_member_gets_the_lock() {
    let group = Group::of_three("stopped", "1s");
    let (mut holder, command) = group.hold("a");
    group.signal("a", "-STOP");
    assert!(!group.overlaps("b", command), "two were inside");
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    assert!(group.user.home.join("terminated").exists(), "SIGTERM comes before SIGKILL");
    group.signal("a", "-CONT");
    group.wait_until_open("a");
    group.wait_until_members("b", &NAMES);
}

/// Neither the agent nor `run` can do anything: the supervisor knows the deadline.
#[test]
fn the_supervisor_ends_the_command_when_run_and_its_agent_are_stopped() {
    let group = Group::of_three("both-stopped", "1s");
    let (mut holder, command) = group.hold("a");
    kill(holder.id(), "-STOP");
    group.signal("a", "-STOP");
    assert!(!group.overlaps("b", command), "two were inside");
    kill(holder.id(), "-CONT");
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    group.signal("a", "-CONT");
}

/// A session that is renewed keeps its lock for as long as it likes, also while `run` is stopped.
#[test]
fn a_lock_is_kept_for_many_sessions() {
    let group = Group::of_three("kept", "500ms");
    let mut holder = group.start_run("a", "run x {} -- sh -c 'touch held; until test -e end; do sleep 0.02; done'");
    group.user.wait_for("held");
    kill(holder.id(), "-STOP");
    for _ in 0..4 {
        group.run("b", "run x {} --timeout 500ms -- true").failed(75, "lock 'x' was not free");
    }
    kill(holder.id(), "-CONT");
    fs::write(group.user.home.join("end"), "").unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(0));
}

#[test]
fn locks_are_granted_again_after_the_steward_was_killed() {
    let mut group = Group::of_three("steward", "1s");
    let steward = group.json("a", "status")["steward"].as_str().unwrap().to_owned();
    group.end(&steward, "-KILL");
    let others: Vec<&str> = NAMES.into_iter().filter(|name| *name != steward).collect();
    for name in &others {
        assert_eq!(group.run(name, "run x {} --timeout 25s -- true").code, 0);
    }
    group.wait_until_members(others[0], &others);
    group.start(&steward);
    group.wait_until_members(others[0], &NAMES);
}

/// The session is long, so that it is not what frees the lock.
#[test]
fn a_killed_client_frees_its_lock_at_once() {
    let group = Group::of_three("client", "60s");
    let (mut holder, command) = group.hold("a");
    kill(holder.id(), "-KILL");
    holder.wait().unwrap();
    assert!(!group.overlaps("b", command), "two were inside");
}

#[test]
fn status_and_members_tell_who_votes_and_how_long_the_session_lasts() {
    let mut group = Group::of_three("keys", "60s");
    let status = group.json("a", "status");
    assert_eq!((&status["view"], &status["voters"]), (&json!("open"), &json!(NAMES)));
    assert!(NAMES.contains(&status["steward"].as_str().unwrap()) && status["epoch"].as_u64().unwrap() > 0);
    assert!((1..=60_000).contains(&status["session_ms"].as_u64().unwrap()), "{status}");
    let steward = status["steward"].as_str().unwrap();
    let members = group.json(steward, "members");
    for member in members.as_array().unwrap() {
        assert_eq!((&member["state"], &member["voter"]), (&json!("member"), &json!(true)));
        assert_eq!(member["steward"] == true, member["name"] == steward);
        assert!(member["session_ms"].as_u64().unwrap() <= 61_000, "{member}");
    }
    let alone = User::new("alone");
    let mut agent = alone.start("agent --socket s.sock --data data");
    let status = || serde_json::from_str::<Value>(&alone.run("status --json --socket s.sock").out).unwrap_or_default();
    wait_until("the agent is a group of one", || status()["view"] == "open");
    let status = status();
    assert_eq!((&status["view"], &status["session_ms"]), (&json!("open"), &Value::Null));
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
    // One that has stopped in order keeps its vote, and says so.
    let away = NAMES.into_iter().find(|name| *name != steward).unwrap();
    group.end(away, "-TERM");
    let seen = |members: Value| members.as_array().unwrap().iter().find(|member| member["name"] == away).cloned();
    wait_until("it is away", || seen(group.json(steward, "members")).is_some_and(|member| member["state"] == "away"));
    let member = seen(group.json(steward, "members")).unwrap();
    assert!(member["voter"] == true && member["trouble"].is_string(), "{member}");
}

/// A program in any language: lines on a socket.
struct Lines {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Lines {
    fn connect(group: &Group, name: &str) -> Self {
        let stream = UnixStream::connect(group.user.home.join(format!("{name}.sock"))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut new = Self { stream, lines };
        assert_eq!(new.next()["is"], "welcome");
        new
    }

    fn say(&mut self, request: &Value) {
        self.stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The next line of this kind.
    fn next_of(&mut self, kind: &str) -> Value {
        std::iter::repeat_with(|| self.next()).take(1000).find(|line| line["is"] == kind).unwrap()
    }
}

#[test]
fn a_client_is_told_its_deadline_and_what_becomes_of_it() {
    let group = Group::of_three("deadline", "1s");
    let mut client = Lines::connect(&group, "a");
    client.say(&json!({"do": "acquire", "lock": "x"}));
    let granted = client.next();
    let mut until = granted["valid_until_ns"].as_u64().unwrap_or_else(|| panic!("{granted}"));
    for _ in 0..4 {
        let later = client.next_of("session")["valid_until_ns"].as_u64().unwrap();
        assert!(later > until, "the session was renewed");
        until = later;
    }
    let broken = group.run("b", "break x {}");
    assert_eq!(broken.code, 0, "{}", broken.err);
    let at_risk = client.next_of("at_risk");
    assert_eq!(
        (&at_risk["lock"], &at_risk["fence"], &at_risk["broken"]),
        (&json!("x"), &granted["fence"], &json!(true))
    );
    assert!(at_risk["valid_until_ns"].is_u64(), "{at_risk}");
    assert_eq!(client.next_of("lost")["fence"], granted["fence"]);
    client.say(&json!({"do": "release", "lock": "x", "fence": granted["fence"]}));
    assert_eq!(client.next_of("released")["held"], false);
    // A group of one: nothing can take the lock away.
    let alone = User::new("alone");
    let mut agent = alone.start("agent --socket s.sock --data data");
    wait_until("the agent answers", || alone.run("status --socket s.sock").code == 0);
    let stream = UnixStream::connect(alone.home.join("s.sock")).unwrap();
    let mut client = Lines { lines: BufReader::new(stream.try_clone().unwrap()), stream };
    client.say(&json!({"do": "acquire", "lock": "x"}));
    assert_eq!(client.next_of("granted")["valid_until_ns"], Value::Null);
    drop(client);
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

/// Nobody can take the lock of a client away whose agent is alone, until another one is about to join.
#[test]
fn a_client_of_a_lone_agent_is_told_a_deadline_when_another_one_joins() {
    let mut group = Group::new("lone", "1s");
    group.start_with("a", "");
    group.wait_until_open("a");
    let mut client = Lines::connect(&group, "a");
    client.say(&json!({"do": "acquire", "lock": "x"}));
    assert_eq!(client.next_of("granted")["valid_until_ns"], Value::Null);
    group.start_with("b", &format!("--join {}", group.address("a")));
    assert!(client.next_of("session")["valid_until_ns"].is_u64());
    group.wait_until_members("b", &["a", "b"]);
    group.run("b", "run x {} --try -- true").failed(75, "not free");
}

#[test]
fn a_broken_lock_is_taken_from_its_command_on_another_member() {
    let group = Group::of_three("broken", "1s");
    let (holder, command) = group.hold("a");
    let broken = group.run("b", "break x {} --json");
    assert_eq!(broken.code, 0, "{}", broken.err);
    assert_eq!(serde_json::from_str::<Value>(&broken.out).unwrap(), json!({"broken": "x"}));
    assert!(!is_running(command), "it returns when it has taken effect");
    Ran::of(holder.wait_with_output().unwrap()).failed(76, "an operator has broken it; the command was stopped");
    assert!(group.user.home.join("terminated").exists(), "SIGTERM comes before SIGKILL");
    group.run("b", "break x {}").failed(1, "nobody holds this lock");
    group.assert_logged("b", &["audit: break", "what=\"x\"", "nobody holds this lock"]);
    assert_eq!(group.run("c", "run x {} --try -- true").code, 0);
}

/// The HTTP client disconnects before the lock is broken. The lock is broken all the same, and the log has it.
#[test]
fn a_lock_that_is_broken_for_a_client_that_is_gone_is_noted() {
    let mut group = Group::new("gone", "1s");
    let port = hallpass_testkit::free_port();
    group.start_with("a", &format!("--api 127.0.0.1:{port}"));
    group.wait_until_open("a");
    let (holder, _) = group.hold("a");
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"POST /v1/locks/x/break HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").unwrap();
    wait_until("the holder is told", || group.user.home.join("terminated").exists());
    drop(stream);
    Ran::of(holder.wait_with_output().unwrap()).failed(76, "an operator has broken it");
    wait_until("it is noted", || {
        let log = fs::read_to_string(group.log_of("a")).unwrap();
        log.contains("audit: break") && log.contains("result=\"done\"")
    });
    group.run("a", "evict a {}").failed(1, "it is the last member");
}

#[test]
fn an_agent_joins_is_evicted_banned_and_admitted_and_leaves() {
    let mut group = Group::of_three("life", "1s");
    group.start_with("d", "");
    group.wait_until_open("d");
    let address = group.address("a");
    group.run("d", "join 127.0.0.1:1 {}").failed(1, "nobody answers at 127.0.0.1:1");
    // A member whose clients hold locks does not leave its group for another one.
    let mut holder = group.start_run("d", "run x {} -- sh -c 'touch held; until test -e end; do sleep 0.02; done'");
    group.user.wait_for("held");
    group.run("d", &format!("join {address} {{}}")).failed(1, "hold locks");
    fs::write(group.user.home.join("end"), "").unwrap();
    assert!(holder.wait().unwrap().success());
    let joined = group.run("d", &format!("join {address} {{}} --json"));
    assert_eq!(joined.code, 0, "{}", joined.err);
    let all = ["a", "b", "c", "d"];
    assert_eq!(group.members("d"), all);
    group.run("d", &format!("join {address} {{}}")).failed(1, "leave");
    // It stays a member over restarts, though nothing but its directory says so.
    group.end("d", "-TERM");
    group.wait_until_members("a", &NAMES);
    group.start_with("d", "");
    group.wait_until_members("d", &all);
    group.wait_until_members("a", &all);

    group.run("a", "evict nobody {}").failed(1, "there is no member 'nobody'");
    assert_eq!(group.run("b", "evict d {}").code, 0);
    group.assert_logged("b", &["audit: evict", "what=\"d\"", "pid", "result=\"done\""]);
    group.assert_logged(&group.steward("b"), &["audit: evict", "what=\"d\"", "who=\"member b\"", "result=\"begun\""]);
    group.wait_until_members("a", &all);
    group.wait_until_open("d");
    let evicted = group.run("a", "evict d --ban {} --json");
    assert_eq!(
        serde_json::from_str::<Value>(&evicted.out).unwrap(),
        json!({"evicted": "d", "banned": true}),
        "{}",
        evicted.err
    );
    group.assert_logged("a", &["audit: ban", "what=\"d\"", "pid", "result=\"done\""]);
    group.assert_logged("d", &["audit: join", &format!("what=\"{address}\""), "pid", "result=\"done\""]);
    group.assert_logged(&group.steward("a"), &["audit: ban", "what=\"d\"", "who=\"member a\""]);
    assert_eq!(group.members("a"), NAMES);
    wait_until("it is told why", || group.run("d", "status {}").out.contains("evicted"));
    assert_eq!(group.run("b", "evict d --admit {}").code, 0);
    group.assert_logged("b", &["audit: admit", "what=\"d\"", "result=\"done\""]);
    group.wait_until_members("a", &all);
    group.wait_until_open("d");

    let left = group.run("d", "leave {} --json");
    assert_eq!(serde_json::from_str::<Value>(&left.out).unwrap(), json!({"left": true}), "{}", left.err);
    group.assert_logged("d", &["audit: leave", "what=\"d\"", "pid", "result=\"begun\""]);
    assert!(group.running.remove("d").unwrap().wait().unwrap().success());
    group.wait_until_members("a", &NAMES);
    // One that votes hands its vote over.
    assert_eq!(group.run("c", "leave {}").code, 0);
    group.wait_until_members("a", &["a", "b"]);
    wait_until("its vote is handed over", || {
        let voters = group.json("a", "status")["voters"].clone();
        !voters.as_array().unwrap().contains(&json!("c"))
    });
    assert_eq!(group.run("b", "run x {} -- true").code, 0);
}

/// Nobody lists it, and it never founds a group of its own.
#[test]
fn an_agent_that_is_started_to_join_becomes_a_member_whenever_the_group_is_there() {
    let mut group = Group::new("to-join", "1s");
    let join = format!("--join {},{}", group.address("c"), group.address("a"));
    group.start_with("d", &join);
    wait_until("it says what it waits for", || group.json("d", "status")["view"] == "joining");
    group.run("d", "run x {} --timeout 200ms -- true").failed(75, "not free");
    NAMES.iter().for_each(|name| group.start(name));
    let all = ["a", "b", "c", "d"];
    group.wait_until_members("d", &all);
    group.wait_until_open("d");
    assert_eq!(group.run("d", "run x {} -- true").code, 0);
    // The same line starts it again, also when those whom it names are away.
    group.end("d", "-TERM");
    group.end("c", "-TERM");
    group.start_with("d", &join);
    group.wait_until_members("b", &["a", "b", "d"]);
    group.wait_until_open("d");
}

#[test]
fn the_protocol_of_locks_changes_for_all_members() {
    let group = Group::of_three("class", "1s");
    let set = group.run("a", "class set t/ naimi-trehel {} --json");
    assert_eq!(set.code, 0, "{}", set.err);
    for name in NAMES {
        assert_eq!(group.run(name, "run t/1 {} -- true").code, 0);
        let locks = group.json(name, "locks --prefix t/");
        assert_eq!(locks[0]["protocol"], "naimi-trehel", "{name}: {locks}");
    }
    group.run("b", "class set t/ no-such-protocol {}").failed(1, "no-such-protocol");
    group.run("b", "class set t/ raymond --option tree=nonsense {}").failed(1, "tree");
}

#[test]
fn a_survivor_founds_the_group_again() {
    let mut group = Group::of_three("recover", "1s");
    let fence = |ran: Ran| ran.out.trim().parse::<u64>().unwrap();
    let before = fence(group.run("a", "run x {} -- sh -c 'echo $HALLPASS_FENCE'"));
    group.user.run("recover --data a.data").failed(75, "an agent uses a.data");
    group.end("b", "-KILL");
    group.end("c", "-KILL");
    group.run("a", "class set t/ raymond {} --timeout 500ms").failed(69, "has not confirmed it within 500ms");
    // It is told, too, that nobody let it go; and its directory stays what it is.
    group.run("a", "leave {} --timeout 200ms").failed(69, "its group has not let it go in time");
    assert!(group.running.remove("a").unwrap().wait().unwrap().success());
    let recovered = group.user.run("recover --data a.data --json");
    let epoch = serde_json::from_str::<Value>(&recovered.out).unwrap()["epoch"].as_u64().unwrap();
    assert!(epoch > 1 << 16, "{epoch}");
    group.start("a");
    group.wait_until_open("a");
    assert!(group.json("a", "status")["epoch"].as_u64().unwrap() >= epoch);
    assert!(fence(group.run("a", "run x {} -- sh -c 'echo $HALLPASS_FENCE'")) > before);
    // The others join with empty directories.
    fs::remove_dir_all(group.user.home.join("b.data")).unwrap();
    group.start("b");
    group.wait_until_members("a", &["a", "b"]);
    group.user.run("recover --data nowhere").failed(1, "nowhere");
    assert!(!group.user.home.join("nowhere").exists());
}

/// Agents are restarted one after the other, and everybody else goes on.
#[test]
fn a_rolling_restart_keeps_nobody_out() {
    let mut group = Group::of_three("rolling", "1s");
    for restarted in NAMES {
        let (done, entries) = (&AtomicBool::new(false), &AtomicU32::new(0));
        std::thread::scope(|scope| {
            let worker = |name: &str| {
                let line = format!("run x --socket {name}.sock --timeout 20s -- sh -c 'mkdir inside && rmdir inside'");
                let mut command = group.user.command(&words(&line));
                scope.spawn(move || {
                    let mut longest = Duration::ZERO;
                    while !done.load(Ordering::SeqCst) {
                        let begun = Instant::now();
                        let ran = Ran::of(command.output().unwrap());
                        longest = longest.max(begun.elapsed());
                        assert_eq!(ran.code, 0, "{}", ran.err);
                        entries.fetch_add(1, Ordering::SeqCst);
                    }
                    println!("{:?} at most for a command while {restarted} was restarted", longest);
                })
            };
            let workers: Vec<_> = NAMES.into_iter().filter(|name| *name != restarted).map(worker).collect();
            group.end(restarted, "-TERM");
            group.start(restarted);
            group.wait_until_open(restarted);
            group.wait_until_members(restarted, &NAMES);
            let before = entries.load(Ordering::SeqCst);
            wait_until("the others go on", || {
                entries.load(Ordering::SeqCst) > before || workers.iter().any(|worker| worker.is_finished())
            });
            done.store(true, Ordering::SeqCst);
        });
        assert_eq!(group.run(restarted, "run x {} --timeout 20s -- true").code, 0);
    }
}
