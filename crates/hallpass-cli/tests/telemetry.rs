//! Traces, as a collector receives them: `cargo test --workspace --features hallpass-cli/opentelemetry --test telemetry`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use hallpass_testkit::{LIMIT, Scratch, StopOnDrop, free_port, wait_until, without_settings};

const TRACE: [u8; 16] = *b"\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Takes whatever is sent to it, and says yes.
fn collector() -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let sender = sender.clone();
            std::thread::spawn(move || {
                while let Some((head, body)) = read_message(&mut stream) {
                    let _ = sender.send((head, body));
                    let answer =
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
                    stream.get_mut().write_all(answer).unwrap();
                }
            });
        }
    });
    (address, receiver)
}

/// The first line and the body of a request or an answer.
fn read_message(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let (mut first, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if first.is_empty() {
            first = line;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((first, body))
}

struct Agent {
    child: StopOnDrop,
    _directory: Scratch,
    port: u16,
}

impl Agent {
    fn command(name: &str, collector: &str) -> (Command, Scratch, u16) {
        let directory = Scratch::new(name);
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_hallpass"));
        without_settings(&mut command);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
            command.env_remove(name);
        }
        command.args([
            "agent",
            "--name",
            "a",
            "--data",
            "d",
            "--socket",
            "a.sock",
            "--api",
            &format!("127.0.0.1:{port}"),
        ]);
        command.current_dir(&directory).env("OTEL_EXPORTER_OTLP_ENDPOINT", collector).stdin(Stdio::null());
        (command, directory, port)
    }

    fn start(name: &str, collector: &str, delay_ms: u32) -> Self {
        let (mut command, directory, port) = Self::command(name, collector);
        let child = command.env("OTEL_BSP_SCHEDULE_DELAY", delay_ms.to_string()).spawn().unwrap();
        let agent = Self { child: StopOnDrop(child), _directory: directory, port };
        let is_ready = |answer: String| answer.contains(" 200 ");
        wait_until("the agent is ready", || agent.try_ask("GET", "/readyz", "").is_some_and(is_ready));
        agent
    }

    fn try_ask(&self, method: &str, path: &str, headers: &str) -> Option<String> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).ok()?);
        let head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n{headers}\r\n");
        stream.get_mut().write_all(head.as_bytes()).ok()?;
        let (first, body) = read_message(&mut stream)?;
        Some(format!("{first}\n{}", String::from_utf8_lossy(&body)))
    }

    fn acquire(&self, lock: &str) {
        let headers = format!("traceparent: {PARENT}\r\n");
        let answer = self.try_ask("POST", &format!("/v1/locks/{lock}/acquire"), &headers).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
    }
}

/// What is received until all of these are in it.
fn receive(receiver: &Receiver<(String, Vec<u8>)>, parts: &[&[u8]]) {
    let mut all = Vec::new();
    let end = Instant::now() + LIMIT;
    let has = |all: &[u8], part: &[u8]| all.windows(part.len()).any(|window| window == part);
    while !parts.iter().all(|part| has(&all, part)) {
        let left = end.saturating_duration_since(Instant::now());
        let (first, body) = receiver.recv_timeout(left).unwrap_or_else(|_| {
            let missing: Vec<_> =
                parts.iter().filter(|part| !has(&all, part)).map(|part| part.escape_ascii()).collect();
            panic!("not received: {}", missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        });
        assert!(first.starts_with("post /v1/traces "), "{first}");
        all.extend(body);
    }
}

#[test]
fn a_request_is_part_of_its_clients_trace() {
    let (address, receiver) = collector();
    let agent = Agent::start("parent", &address, 100);
    agent.acquire("nightly");
    receive(
        &receiver,
        &[&TRACE, b"POST /v1/locks/{name}/acquire", b"acquire", b"nightly", b"exclusive", b"granted", b"hallpass"],
    );
}

#[test]
fn an_agent_that_ends_sends_its_last_traces() {
    let (address, receiver) = collector();
    let mut agent = Agent::start("last", &address, 3_600_000);
    agent.acquire("evening");
    let pid = agent.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(agent.child.wait().unwrap().success());
    receive(&receiver, &[&TRACE, b"evening"]);
}

#[test]
fn an_agent_without_its_collector_serves_all_the_same() {
    let agent = Agent::start("absent", "http://127.0.0.1:9", 100);
    agent.acquire("x");
}

#[test]
fn an_address_that_cannot_be_used_is_refused() {
    let (mut command, _directory, _) = Agent::command("wrong", "https://collector.example");
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(64) && error.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{error}");
}
