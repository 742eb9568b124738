//! Doors of a real agent that somebody tries to hold shut: by memory, by silence, by noise.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use h2::client::{Builder, SendRequest};
use hallpass_testkit::{free_port, wait_until};
use http::{HeaderMap, Request};
use tokio::task::JoinSet;

use crate::user::{User, kill, words};

/// By how much an agent may grow, whatever strangers do.
const GROWTH_MAX_KIB: u64 = 64 * 1024;
/// How long everything has that is waited for.
const LIMIT: Duration = Duration::from_secs(120);

/// An agent with its API on TCP.
struct Agent {
    user: User,
    child: Child,
    port: u16,
}

impl Agent {
    fn start(name: &str, with_tokens: bool) -> Self {
        let (user, port) = (User::new(name), free_port());
        if with_tokens {
            assert_eq!(user.run("token new --name t --rights acquire,inspect --file tokens.toml").code, 0);
        }
        let tokens = if with_tokens { "--api-tokens tokens.toml" } else { "" };
        let line = format!("agent --socket a.sock --data data --api 127.0.0.1:{port} {tokens}");
        let log = fs::File::create(user.home.join("log")).unwrap();
        let child = user.command(&words(&line)).stderr(log).spawn().unwrap();
        user.wait_for("a.sock");
        let agent = Self { user, child, port };
        wait_until("it serves", || agent.get_tcp("/healthz").is_some());
        agent
    }

    /// The most memory that it has ever had, in KiB.
    fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        Some(stream)
    }

    /// The status line of an answer.
    fn get_tcp(&self, path: &str) -> Option<String> {
        ask(self.connect()?, path)
    }

    fn get_unix(&self, path: &str) -> Option<String> {
        let stream = UnixStream::connect(self.user.home.join("a-api.sock")).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        ask(stream, path)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        kill(self.child.id(), "-KILL");
        let _ = self.child.wait();
    }
}

fn ask(mut stream: impl Read + Write, path: &str) -> Option<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.lines().next().map(str::to_owned)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn http2(port: u16) -> SendRequest<bytes::Bytes> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (client, connection) = Builder::new().handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client.ready().await.unwrap()
}

/// A call of gRPC with a large head.
fn call(port: u16, method: &str) -> Request<()> {
    let request = Request::post(format!("http://127.0.0.1:{port}{method}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    request.header("x-padding", "p".repeat(7_000)).body(()).unwrap()
}

/// Opens many streams with messages that are never complete. Returns the answers by their codes, and how many there were none to.
async fn flood(port: u16, method: &'static str, message: usize) -> (Vec<String>, usize) {
    const STREAMS: usize = 5_000;
    let mut client = http2(port).await;
    let part = [&[0][..], &(message as u32).to_be_bytes(), &vec![7; message - 10]].concat();
    let (part, mut answers, mut kept) = (bytes::Bytes::from(part), JoinSet::new(), Vec::new());
    for _ in 0..STREAMS {
        let Ok(ready) = client.ready().await else { break };
        client = ready;
        let Ok((answer, mut body)) = client.send_request(call(port, method), false) else { break };
        let _ = body.send_data(part.clone(), false);
        kept.push(body);
        answers.spawn(async move {
            let code = |headers: &HeaderMap| headers.get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
            let answer = answer.await.ok()?;
            match code(answer.headers()) {
                Some(code) => Some(code),
                None => code(&answer.into_body().trailers().await.ok()??),
            }
        });
    }
    let mut codes = Vec::new();
    // What is still open then is kept open for longer than the agent bears.
    while let Ok(Some(answer)) = tokio::time::timeout(Duration::from_secs(2), answers.join_next()).await {
        codes.extend(answer.unwrap());
    }
    (codes, answers.len())
}

fn grows_little(name: &str, with_tokens: bool, method: &'static str, message: usize) {
    let agent = Agent::start(name, with_tokens);
    let before = agent.peak_kib();
    let (one, other) = runtime()
        .block_on(async { tokio::join!(flood(agent.port, method, message), flood(agent.port, method, message)) });
    let grown = agent.peak_kib() - before;
    println!("{method}: {grown} KiB, {} answered, {} open", one.0.len() + other.0.len(), one.1 + other.1);
    assert!(grown < GROWTH_MAX_KIB, "it grew from {before} KiB by {grown} KiB");
    if with_tokens && !method.contains("Auth") {
        assert!(one.0.len() > 1_000 && one.0.iter().all(|code| code == "16"), "{:?}", one.0.first());
    }
    assert!(agent.get_unix("/v1/status").is_some_and(|line| line.contains("200")));
}

/// They sent bodies that were buffered before anybody asked for their rights: from 14 to 1,475 MiB.
#[test]
fn two_connections_without_a_token_take_little_memory() {
    grows_little("flood", true, "/v3lockpb.Lock/Lock", 16_000);
    grows_little("flood-auth", true, "/etcdserverpb.Auth/Authenticate", 1_000);
}

#[test]
fn two_connections_where_no_token_is_needed_take_little_memory() {
    grows_little("flood-open", false, "/v3lockpb.Lock/Lock", 16_000);
}
