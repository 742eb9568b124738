//! An agent and its clients, over a real socket: what they may send, and what is left when they go.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;

use hallpass_agent::line_protocol::{Request, Response};
use hallpass_agent::{AgentOptions, Client, ClientError, Ended};
use hallpass_testkit::{LIMIT, Scratch, wait_until};
use serde_json::{Value, json};

use crate::agent_thread::{Serving, Starting};

/// An agent of a group of one. It is stopped when this is dropped.
struct TestAgent {
    directory: Scratch,
    serving: Option<Serving>,
}

impl TestAgent {
    fn start(name: &str) -> Self {
        let directory = Scratch::new(name);
        let options = AgentOptions::new(directory.join("agent.sock"), directory.join("data"));
        let serving = Starting::new(options).wait().expect("the agent starts");
        Self { directory, serving: Some(serving) }
    }

    fn ask_to_end(&self) {
        self.serving.as_ref().expect("it serves").ask_to_end();
    }

    /// Waits until it has ended, in order.
    #[track_caller]
    fn ended(&mut self) -> Ended {
        self.serving.take().expect("it serves").ended().expect("it ends in order")
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("agent.sock")
    }

    /// A client that has read its greeting.
    fn client(&self) -> Raw {
        let mut client = Raw::connect(&self.socket());
        assert_eq!(client.hear()["is"], "welcome");
        client
    }

    /// How many clients hold this lock, and how many wait for it.
    fn holders_and_waiters(&self, lock: &str) -> (u64, u64) {
        let answer = self.client().ask(&json!({"do": "locks"}));
        let locks = answer["locks"].as_array().unwrap();
        let line = locks.iter().find(|line| line["name"] == lock);
        line.map_or((0, 0), |line| (line["holders"].as_u64().unwrap(), line["waiters"].as_u64().unwrap()))
    }

    #[track_caller]
    fn wait_until(&self, lock: &str, expected: (u64, u64)) {
        let what = format!("'{lock}' has {expected:?} holders and waiters");
        wait_until(&what, || self.holders_and_waiters(lock) == expected);
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        let Some(serving) = self.serving.take() else { return };
        serving.ask_to_end();
        if thread::panicking() {
            let _ = serving.thread.join();
        } else {
            serving.ended().expect("the agent ends in order");
        }
    }
}

/// A client by hand, which can also send what `Client` never would.
struct Raw {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Raw {
    fn connect(socket: &std::path::Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        Self { stream, lines }
    }

    fn say(&mut self, request: &Value) {
        self.write(format!("{request}\n").as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next line. What is not an answer is left out.
    #[track_caller]
    fn hear(&mut self) -> Value {
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            let document: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
            if document["is"] != "waiting" {
                return document;
            }
        }
    }

    #[track_caller]
    fn ask(&mut self, request: &Value) -> Value {
        self.say(request);
        self.hear()
    }

    /// Acquires a lock that is free, and returns its fence.
    #[track_caller]
    fn acquire(&mut self, lock: &str) -> u64 {
        let answer = self.ask(&acquire(lock));
        assert_eq!((&answer["is"], &answer["lock"]), (&json!("granted"), &json!(lock)), "{answer}");
        answer["fence"].as_u64().expect("a fence")
    }

    #[track_caller]
    fn is_closed(&mut self) {
        let mut rest = Vec::new();
        let result = self.lines.read_to_end(&mut rest);
        // With unread bytes on the other side the system calls it a reset.
        let closed = result.is_ok() || result.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(closed && rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest));
    }
}

fn acquire(lock: &str) -> Value {
    json!({"do": "acquire", "lock": lock})
}

fn try_acquire(lock: &str) -> Value {
    json!({"do": "acquire", "lock": lock, "try": true})
}

fn release(lock: &str, fence: u64) -> Value {
    json!({"do": "release", "lock": lock, "fence": fence})
}

#[test]
fn requests_that_come_at_once_are_answered_in_their_order() {
    let agent = TestAgent::start("order");
    let mut client = agent.client();
    assert_eq!(client.ask(&acquire("x"))["is"], "granted");
    let requests = [json!({"do": "cancel"}), json!({"do": "status"}), json!({"do": "members"}), json!({"do": "locks"})];
    let all: String = requests.iter().map(|request| format!("{request}\n")).collect();
    client.write(all.as_bytes());
    let answers = ["cancelled", "status", "members", "locks"].map(|_| client.hear());
    let kinds = answers.each_ref().map(|answer| answer["is"].as_str().unwrap().to_owned());
    assert_eq!(kinds, ["cancelled", "status", "members", "locks"]);
    assert_eq!((&answers[1]["node"], &answers[1]["group"]), (&json!("n"), &json!("g")));
    assert_eq!(answers[3]["locks"][0]["held"], "exclusive");
}

/// The command under `run` inherits the connection.
#[test]
fn a_connection_that_only_holds_can_do_nothing_but_release() {
    let agent = TestAgent::start("holds");
    let (mut holder, mut other) = (agent.client(), agent.client());
    assert_eq!(other.ask(&acquire("y"))["is"], "granted");
    let only = |lock: &str| json!({"do": "acquire", "lock": lock, "try": true, "hold_only": true});
    assert_eq!(holder.ask(&only("y"))["is"], "busy");
    assert_eq!(holder.ask(&json!({"do": "status"}))["is"], "status", "it holds nothing yet");
    let granted = holder.ask(&only("x"));
    assert_eq!(granted["is"], "granted");
    let fence = granted["fence"].as_u64().unwrap();
    let requests = [
        acquire("z"),
        try_acquire("z"),
        json!({"do": "acquire", "lock": "z", "hold_only": false}),
        json!({"do": "cancel"}),
        json!({"do": "locks"}),
        json!({"do": "members"}),
        json!({"do": "status"}),
        json!({"do": "break", "lock": "y"}),
        json!({"do": "evict", "node": "n"}),
        json!({"do": "admit", "name": "n"}),
        json!({"do": "join", "address": "127.0.0.1:1"}),
        json!({"do": "set_class", "prefix": "p", "protocol": "raymond"}),
        json!({"do": "leave"}),
    ];
    for request in &requests {
        let answer = holder.ask(request);
        assert!(answer["text"].as_str().is_some_and(|text| text.contains("nothing but release it")), "{answer}");
    }
    assert_eq!(holder.ask(&release("x", fence + 1))["held"], false);
    agent.wait_until("x", (1, 0));
    agent.wait_until("z", (0, 0));
    assert_eq!(holder.ask(&release("x", fence))["held"], true);
    assert_eq!(holder.ask(&json!({"do": "leave"}))["is"], "error", "nor when it has released it");
    agent.wait_until("y", (1, 0));
}

#[test]
fn a_request_in_bits_is_one_request() {
    let agent = TestAgent::start("bits");
    let mut client = agent.client();
    for byte in format!("{}\n", acquire("x")).bytes() {
        client.write(&[byte]);
    }
    assert_eq!(client.hear()["is"], "granted");
    // One that is not finished is none.
    let mut other = agent.client();
    other.write(br#"{"do":"leave"}"#);
    drop(other);
    assert_eq!(client.ask(&json!({"do": "status"}))["is"], "status");
}

#[test]
fn a_request_during_a_wait_ends_the_wait() {
    let agent = TestAgent::start("during");
    let (mut holder, mut waiter) = (agent.client(), agent.client());
    let fence = holder.acquire("x");
    waiter.say(&acquire("x"));
    agent.wait_until("x", (1, 1));
    let answer = waiter.ask(&json!({"do": "status"}));
    assert!(answer["is"] == "error" && answer["text"].as_str().unwrap().contains("one request at a time"), "{answer}");
    agent.wait_until("x", (1, 0));
    // Both connections can be used further.
    assert_eq!(waiter.ask(&try_acquire("x"))["is"], "busy");
    assert_eq!(holder.ask(&release("x", fence))["held"], true);
    assert!(waiter.acquire("x") > fence);
}

#[test]
fn a_wait_that_is_cancelled_leaves_no_waiter() {
    let agent = TestAgent::start("cancel");
    let (mut holder, mut waiter) = (agent.client(), agent.client());
    assert_eq!(waiter.ask(&json!({"do": "cancel"}))["is"], "cancelled", "also with nothing to cancel");
    let fence = holder.acquire("x");
    waiter.say(&acquire("x"));
    agent.wait_until("x", (1, 1));
    assert_eq!(waiter.ask(&json!({"do": "cancel"}))["is"], "cancelled");
    agent.wait_until("x", (1, 0));
    assert_eq!(holder.ask(&release("x", fence))["held"], true);
    agent.wait_until("x", (0, 0));
    let late = waiter.ask(&json!({"do": "acquire", "lock": "x", "timeout_ms": 60_000}));
    assert!(late["is"] == "granted" && late["fence"].as_u64() > Some(fence), "{late}");
    // A time limit ends a wait as well.
    let answer = holder.ask(&json!({"do": "acquire", "lock": "x", "timeout_ms": 20}));
    assert_eq!(answer["is"], "late", "{answer}");
    agent.wait_until("x", (1, 0));
}

#[test]
fn only_the_holder_with_the_right_fence_releases() {
    let agent = TestAgent::start("fence");
    let (mut holder, mut other) = (agent.client(), agent.client());
    assert_eq!(holder.ask(&release("x", 1)), json!({"is": "released", "held": false}), "before it was ever held");
    let fence = holder.acquire("x");
    for wrong in [0, fence - 1, fence + 1, u64::MAX] {
        assert_eq!(holder.ask(&release("x", wrong))["held"], false, "{wrong}");
    }
    assert_eq!(holder.ask(&release("y", fence))["held"], false, "another lock");
    assert_eq!(other.ask(&release("x", fence))["held"], false, "another client");
    assert_eq!(other.ask(&try_acquire("x"))["is"], "busy");
    assert_eq!(agent.holders_and_waiters("x"), (1, 0));
    assert_eq!(holder.ask(&release("x", fence))["held"], true);
    assert_eq!(holder.ask(&release("x", fence))["held"], false, "a second time");
    // A late release of an old grant does not touch the new one.
    let next = holder.acquire("x");
    assert!(next > fence);
    assert_eq!(holder.ask(&release("x", fence))["held"], false);
    assert_eq!(other.ask(&try_acquire("x"))["is"], "busy");
}

#[test]
fn readers_share_and_release_one_by_one() {
    let agent = TestAgent::start("readers");
    let (mut reader, mut writer) = (agent.client(), agent.client());
    let shared = json!({"do": "acquire", "lock": "x", "shared": true});
    let fences = [reader.ask(&shared), reader.ask(&shared)].map(|answer| answer["fence"].as_u64().expect("granted"));
    assert_eq!(agent.holders_and_waiters("x"), (2, 0));
    assert_eq!(reader.ask(&release("x", fences[0]))["held"], true);
    assert_eq!(writer.ask(&try_acquire("x"))["is"], "busy");
    assert_eq!(reader.ask(&release("x", fences[1]))["held"], true);
    assert_eq!(writer.ask(&try_acquire("x"))["is"], "granted");
}

#[test]
fn garbage_is_answered_and_harms_nobody() {
    let agent = TestAgent::start("garbage");
    let mut client = agent.client();
    let fence = client.acquire("x");
    for garbage in [
        &b""[..],
        b"GET / HTTP/1.1\r",
        b"{}",
        b"[]",
        b"null",
        br#"{"do":"acquire"}"#,
        br#"{"do":"acquire","lock":7}"#,
        br#"{"do":"release","lock":"x","fence":-1}"#,
        br#"{"do":"release","lock":"x","fence":18446744073709551616}"#,
        b"\xff\xfe\0",
    ] {
        client.write(garbage);
        client.write(b"\n");
        let answer = client.hear();
        let text = answer["text"].as_str().unwrap_or_default();
        assert!(answer["is"] == "error" && text.contains("not understood"), "{garbage:?}: {answer}");
    }
    for name in [String::new(), "x".repeat(256)] {
        let answer = client.ask(&acquire(&name));
        assert_eq!(answer["is"], "error", "{answer}");
    }
    assert_eq!(client.ask(&release("x", fence))["held"], true);
}

#[test]
fn a_line_that_is_too_long_costs_its_sender_the_connection() {
    let agent = TestAgent::start("long");
    let (mut client, mut other) = (agent.client(), agent.client());
    let fence = other.acquire("y");
    client.acquire("x");
    // The longest that is allowed, spaces included.
    let padded = |bytes: usize| format!("{:<bytes$}\n", r#"{"do":"status"}"#);
    client.write(padded(Request::BYTES_MAX).as_bytes());
    assert_eq!(client.hear()["is"], "status");
    client.write(padded(Request::BYTES_MAX + 1).as_bytes());
    client.is_closed();
    agent.wait_until("x", (0, 0));
    // A line without an end is not waited for.
    let mut endless = agent.client();
    endless.write(&vec![b' '; Request::BYTES_MAX + 1]);
    endless.is_closed();
    assert_eq!(other.ask(&release("y", fence))["held"], true);
}

#[test]
fn a_client_that_disconnects_leaves_nothing() {
    let agent = TestAgent::start("disconnect");
    let (mut holder, mut waiter, mut next) = (agent.client(), agent.client(), agent.client());
    let fence = holder.acquire("x");
    waiter.say(&acquire("x"));
    agent.wait_until("x", (1, 1));
    next.say(&acquire("x"));
    agent.wait_until("x", (1, 2));
    drop(waiter);
    agent.wait_until("x", (1, 1));
    // What the holder held goes to the one that still waits.
    drop(holder);
    let answer = next.hear();
    assert!(answer["is"] == "granted" && answer["fence"].as_u64() > Some(fence), "{answer}");
    assert_eq!(agent.holders_and_waiters("x"), (1, 0));
}

#[test]
fn a_lock_is_held_while_any_copy_of_the_descriptor_is_open() {
    let agent = TestAgent::start("descriptor");
    let mut client = Client::connect(&agent.socket()).unwrap();
    let request: Request = serde_json::from_value(acquire("x")).unwrap();
    assert!(matches!(client.request(&request), Ok(Response::Granted { .. })));
    let copy = client.descriptor().unwrap();
    drop(client);
    let mut other = agent.client();
    assert_eq!(other.ask(&try_acquire("x"))["is"], "busy");
    drop(copy);
    other.acquire("x");
}

#[test]
fn an_agent_that_is_told_to_leave_ends() {
    let mut agent = TestAgent::start("leave");
    let mut client = agent.client();
    assert_eq!(client.ask(&json!({"do": "leave"}))["is"], "leaving");
    assert_eq!(client.hear()["is"], "done");
    client.is_closed();
    assert_eq!(agent.ended(), Ended::Left);
    assert!(!agent.socket().exists());
}

#[test]
fn a_holder_is_told_that_the_agent_ends_and_keeps_the_lock_until_it_releases() {
    let mut agent = TestAgent::start("ending");
    let (mut holder, mut waiter) = (agent.client(), agent.client());
    let fence = holder.acquire("x");
    waiter.say(&acquire("x"));
    agent.wait_until("x", (1, 1));
    agent.ask_to_end();
    assert_eq!(holder.hear()["is"], "ending");
    let until = holder.hear();
    assert!(until["is"] == "session" && until["valid_until_ns"].is_u64(), "{until}");
    // Nobody else comes in: a waiting client is sent away.
    waiter.is_closed();
    assert_eq!(holder.ask(&release("x", fence))["held"], true);
    holder.is_closed();
    assert_eq!(agent.ended(), Ended::Stopped);
}

#[test]
fn a_client_says_what_it_found_instead_of_an_agent() {
    let directory = Scratch::new("none");
    let socket = directory.join("agent.sock");
    let absent = Client::connect(&socket).unwrap_err();
    assert!(matches!(&absent, ClientError::Absent { path, .. } if *path == socket), "{absent}");
    let listener = UnixListener::bind(&socket).unwrap();
    let greeted_with = |greeting: &'static [u8]| {
        let listener = listener.try_clone().unwrap();
        let server = thread::spawn(move || listener.accept().unwrap().0.write_all(greeting).unwrap());
        let error = Client::connect(&socket).expect_err("no agent");
        server.join().unwrap();
        error
    };
    for greeting in [&b"220 mail.example.org ESMTP\r\n"[..], b"{\"is\":\"welcome\"}\n", b"\xff\xff\n"] {
        let error = greeted_with(greeting);
        assert!(matches!(error, ClientError::NotAnAgent(_)), "{error}");
    }
    let newer = greeted_with(b"{\"is\":\"welcome\",\"version\":99,\"something\":\"new\"}\n");
    assert!(matches!(newer, ClientError::Version { theirs: 99 }), "{newer}");
    assert!(matches!(greeted_with(b""), ClientError::Closed));
}
