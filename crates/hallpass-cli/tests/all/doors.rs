//! Doors of a real agent that somebody tries to hold shut: by memory, by silence, by noise.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use h2::client::{Builder, SendRequest};
use hallpass_testkit::{free_port, wait_until};
use http::Request;
use tokio::task::JoinSet;

use crate::user::{User, skipped, words};

/// By how much an agent may grow, whatever two connections of strangers do.
const STRANGERS_KIB_MAX: u64 = 64 * 1024;
/// The same for known clients, who may have thousands of calls open. In builds for tests each call takes more than in others.
const KNOWN_KIB_MAX: u64 = 128 * 1024;
/// How long everything has that is waited for.
const LIMIT: Duration = Duration::from_secs(120);

/// An agent with its API on TCP.
struct Agent {
    user: User,
    child: Child,
    port: u16,
    token: Option<String>,
}

impl Agent {
    fn start(name: &str, with_tokens: bool) -> Self {
        let (user, port) = (User::new(name), free_port());
        let made = with_tokens.then(|| user.run("token new --name t --rights acquire,inspect --file tokens.toml"));
        let tokens = if with_tokens { "--api-tokens tokens.toml" } else { "" };
        let line = format!("agent --socket a.sock --data data --api 127.0.0.1:{port} {tokens}");
        let log = fs::File::create(user.home.join("log")).unwrap();
        let child = user.command(&words(&line)).stderr(log).spawn().unwrap();
        user.wait_for("a.sock");
        let agent = Self { user, child, port, token: made.map(|made| made.out.trim().to_owned()) };
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
        if std::thread::panicking() {
            println!("{}", fs::read_to_string(self.user.home.join("log")).unwrap_or_default());
        }
        let _ = self.child.kill();
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

/// Opens many streams with messages that are never complete. Returns the codes of the answers, which are empty where there is none.
async fn flood(port: u16, method: &'static str, message: usize) -> Vec<String> {
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
        // What it does not read of an answer must not be waited for.
        answers.spawn(async move {
            let answer = answer.await.ok()?;
            answer.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned())
        });
    }
    let mut codes = Vec::new();
    while let Some(answer) = answers.join_next().await {
        codes.push(answer.unwrap().unwrap_or_default());
    }
    codes
}

fn grows_little(name: &str, with_tokens: bool, method: &'static str, message: usize) {
    let agent = Agent::start(name, with_tokens);
    let most = if with_tokens { STRANGERS_KIB_MAX } else { KNOWN_KIB_MAX };
    let before = agent.peak_kib();
    let check = || {
        let grown = agent.peak_kib() - before;
        assert!(grown < most, "it grew from {before} KiB by {grown} KiB");
        grown
    };
    // In the end all are answered: what stays incomplete is given up.
    let codes = runtime().block_on(async {
        let floods = async { tokio::join!(flood(agent.port, method, message), flood(agent.port, method, message)) };
        let mut floods = std::pin::pin!(floods);
        loop {
            tokio::select! {
                (one, other) = floods.as_mut() => break [one, other].concat(),
                () = tokio::time::sleep(Duration::from_millis(100)) => drop(check()),
            }
        }
    });
    println!("{method}: {} KiB, {} answered", check(), codes.len());
    if with_tokens && !method.contains("Auth") {
        assert!(codes.iter().all(|code| code == "16" || code.is_empty()));
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

/// As many as the limit of descriptors allows: each takes one here, and one there until the agent closes it.
///
/// `between` is called now and then: on a machine that is busy they take a minute, and what is idle so long is closed.
fn silent_connections(agent: &Agent, mut between: impl FnMut()) -> Vec<TcpStream> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let most = getrlimit(Resource::Nofile).current.map_or(10_000, |most| most.saturating_sub(500).min(10_000));
    if most < 10_000 {
        skipped(&format!("10,000 silent connections: descriptors suffice for {most}"));
    }
    // Several at a time: where the system's queue is full, a connection takes a second.
    let connect =
        || (0..most / 160).map_while(|_| TcpStream::connect(("127.0.0.1", agent.port)).ok()).collect::<Vec<_>>();
    let mut made: Vec<TcpStream> = Vec::new();
    for _ in 0..10 {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(connect)).collect();
            made.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
        });
        between();
    }
    assert!(made.len() as u64 > most / 2, "{} connections", made.len());
    made
}

#[test]
fn silent_connections_hold_no_door_shut() {
    let agent = Agent::start("silent", true);
    let token = agent.token.clone().unwrap();
    let mut held =
        agent.user.start("run x --socket a.sock -- sh -c 'touch held; until test -e end; do sleep 0.02; done'");
    agent.user.wait_for("held");
    // A client that waits, and one that has asked before and is idle.
    let post = |path: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-length: 0\r\n\r\n")
    };
    let (mut waits, mut idle) = (agent.connect().unwrap(), agent.connect().unwrap());
    waits.write_all(post("/v1/locks/x/acquire").as_bytes()).unwrap();
    agent.user.wait_for_waiter("--socket a.sock");
    let answered = |idle: &mut TcpStream| {
        idle.write_all(post("/v1/leases").as_bytes()).unwrap();
        let mut answer = [0; 12];
        idle.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let _ = idle.read(&mut [0; 4096]).unwrap();
    };
    answered(&mut idle);
    let silent = silent_connections(&agent, || answered(&mut idle));
    // The Unix API at once, and so is the agent's own socket; TCP soon.
    assert!(agent.get_unix("/v1/status").is_some_and(|line| line.contains("200")));
    assert_eq!(agent.user.run("run y --socket a.sock -- true").code, 0);
    wait_until("TCP is served", || agent.get_tcp("/healthz").is_some_and(|line| line.contains("200")));
    // A client that was served before is still served.
    answered(&mut idle);
    fs::write(agent.user.home.join("end"), "").unwrap();
    assert!(held.wait().unwrap().success());
    let mut answer = [0; 12];
    waits.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    drop(silent);
}
