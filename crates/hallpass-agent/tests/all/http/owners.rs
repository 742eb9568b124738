//! Leases of the users of one socket, as the system tells them apart: real processes of other users. Only root can start those.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hallpass_testkit::Scratch;
use serde_json::{Value, json};

use crate::http::agent::{TestAgent, options_in};
use crate::http::client::{delete, get, post};

/// The group of users that the agent lets in, and two of them. They are in no database of users.
const GROUP: u32 = 1_900_777_000;
const ALICE: u32 = 1_900_777_001;
const BOB: u32 = 1_900_777_002;

/// A process of a user: curl at the socket of the API.
#[derive(Clone, Copy)]
struct User<'a>(u32, &'a TestAgent);

impl User<'_> {
    async fn asks(self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut curl = Command::new("curl");
        curl.uid(self.0).gid(GROUP).current_dir("/").stdin(Stdio::null());
        curl.args(["-sS", "--max-time", "60", "-w", "\n%{http_code}", "-X", method, "-d", &body.to_string()]);
        curl.arg("--unix-socket").arg(socket(&self.1.directory)).arg(format!("http://localhost{path}"));
        let output = tokio::task::spawn_blocking(move || curl.output()).await.unwrap().expect("curl runs");
        let text = String::from_utf8(output.stdout).unwrap();
        let (document, status) = text.rsplit_once('\n').unwrap_or_default();
        let status = status.parse().unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        (status, serde_json::from_str(document).unwrap_or(Value::Null))
    }

    async fn gets(self, path: &str) -> (u16, Value) {
        self.asks("GET", path, &json!({})).await
    }

    async fn posts(self, path: &str, body: &Value) -> (u16, Value) {
        self.asks("POST", path, body).await
    }
}

fn socket(directory: &Scratch) -> PathBuf {
    directory.join("run/agent-api.sock")
}

/// An agent that lets in the users of a group. None where other users' processes cannot be started.
async fn agent_for_a_group() -> Option<TestAgent> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if !is_root || Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "root and curl are needed, to ask as other users");
        // The test harness does not hide this, unlike what macros print.
        let _ = writeln!(std::io::stderr(), "SKIPPED: root and curl are needed, to ask as other users");
        return None;
    }
    let directory = Scratch::new("owners");
    let mut options = options_in(&directory);
    options.socket = directory.join("run/agent.sock");
    options.api.socket = Some(socket(&directory));
    options.socket_group = Some(GROUP.to_string());
    Some(TestAgent::start_in(directory, options).await.expect("the agent starts"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_the_socket_sees_keeps_alive_and_ends_only_its_own_leases() {
    let Some(agent) = agent_for_a_group().await else { return };
    let (alice, bob) = (User(ALICE, &agent), User(BOB, &agent));
    let (status, held) = alice.posts("/v1/locks/x/acquire", &json!({"ttl_ms": 60_000})).await;
    assert_eq!(status, 200, "{held}");
    let lease = held["lease"].as_str().unwrap();
    let path = format!("/v1/leases/{lease}");
    let number = u64::from_str_radix(lease, 16).unwrap().to_string();

    // The lease is nobody else's.
    assert_eq!(bob.gets("/v1/leases").await, (200, json!({"leases": []})));
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/keepalive")),
        ("DELETE", format!("{path}/locks/x")),
    ] {
        let (status, answer) = bob.asks(method, &path, &json!({})).await;
        assert_eq!(status, 404, "{method} {path}: {answer}");
    }
    let (status, answer) = bob.posts("/v1/locks/y/acquire", &json!({"lease": lease})).await;
    assert_eq!(status, 404, "{answer}");
    // In etcd's words too.
    let id = json!({"ID": number});
    let (status, answer) = bob.posts("/v3/lease/timetolive", &json!({"ID": number, "keys": true})).await;
    assert_eq!((status, &answer["TTL"], &answer["keys"]), (200, &json!("-1"), &Value::Null), "{answer}");
    let (status, answer) = bob.posts("/v3/lease/keepalive", &id).await;
    assert!(status == 200 && matches!(answer["result"]["TTL"].as_str(), None | Some("0")), "{answer}");
    let (_, answer) = bob.posts("/v3/lease/leases", &json!({})).await;
    assert!(!answer.to_string().contains(&number), "{answer}");
    let (status, answer) = bob.posts("/v3/lease/revoke", &id).await;
    assert_eq!((status, answer["message"].as_str()), (404, Some("etcdserver: requested lease not found")));
    let (status, answer) = bob.posts("/v3/lock/lock", &json!({"name": "eQ==", "lease": number})).await;
    assert_ne!(status, 200, "{answer}");

    // Who holds a lock is for everybody to see.
    let (_, lock) = bob.gets("/v1/locks/x").await;
    assert_eq!(lock["held_by"][0]["user"], ALICE.to_string(), "{lock}");
    let (status, kept) = alice.posts(&format!("{path}/keepalive"), &json!({})).await;
    assert!(status == 200 && kept["locks"][0]["name"] == "x", "it is still held: {kept}");
    let (_, mine) = alice.gets("/v1/leases").await;
    assert_eq!(
        (&mine["leases"][0]["lease"], &mine["leases"][0]["user"]),
        (&held["lease"], &lock["held_by"][0]["user"])
    );
    agent.end().await;
}

/// The agent's own user takes nothing away at once that a client still counts on.
#[tokio::test(flavor = "multi_thread")]
async fn the_agents_user_sees_and_ends_all_leases() {
    let Some(agent) = agent_for_a_group().await else { return };
    let alice = User(ALICE, &agent);
    let (_, held) = alice.posts("/v1/locks/x/acquire", &json!({"ttl_ms": 60_000})).await;
    let asked = Instant::now();
    let (_, told) = alice.posts(&format!("/v1/leases/{}/keepalive", held["lease"].as_str().unwrap()), &json!({})).await;
    let counts_until = asked + Duration::from_millis(told["ttl_ms"].as_u64().unwrap());
    let path = format!("/v1/leases/{}", held["lease"].as_str().unwrap());
    let stream = tokio::net::UnixStream::connect(socket(&agent.directory)).await.unwrap();
    let shown = get(&path).over(stream, "localhost").await.ok();
    assert_eq!(shown["locks"][0]["name"], "x");
    // Over TCP on loopback, where there are no tokens, everything is allowed as well.
    let ended = delete(&path).to(&agent).await.ok();
    assert_eq!(ended["released"][0]["lock"], "x");
    assert!(Instant::now() >= counts_until, "it was freed while its client counted on it");
    assert_eq!(agent.uses("x"), (0, 0));
    let (status, _) = alice.posts(&format!("{path}/keepalive"), &json!({})).await;
    assert_eq!(status, 404);
    agent.end().await;
}

/// Clients over TCP have no names where there are no tokens. They count on their locks all the same.
#[tokio::test(flavor = "multi_thread")]
async fn who_ends_a_lease_that_nobody_owns_waits_for_its_client() {
    let agent = TestAgent::start().await;
    let held = post("/v1/locks/x/acquire").json(&json!({"ttl_ms": 60_000})).to(&agent).await.ok();
    let other = post("/v1/locks/y/acquire").json(&json!({"ttl_ms": 60_000})).to(&agent).await.ok();
    let (lease, other) = (held["lease"].as_str().unwrap(), other["lease"].as_str().unwrap());
    let path = format!("/v1/leases/{lease}");
    // Nor is one of its locks free at once, in whichever words.
    let why = delete(&format!("{path}/locks/x")).to_socket(&agent).await.error(403);
    assert!(why.contains("belongs to somebody else"), "{why}");
    let key = json!({"key": BASE64.encode(format!("x/{lease}"))});
    assert_eq!(post("/v3/lock/unlock").json(&key).to_socket(&agent).await.status, 403);
    assert_eq!(agent.uses("x"), (1, 0));

    let asked = Instant::now();
    let mut counts_until = Vec::new();
    for lease in [lease, other] {
        let told = post(&format!("/v1/leases/{lease}/keepalive")).to(&agent).await.ok();
        counts_until.push(asked + Duration::from_millis(told["ttl_ms"].as_u64().unwrap()));
    }
    let id = json!({"ID": u64::from_str_radix(other, 16).unwrap().to_string()});
    let revoke = async {
        assert_eq!(post("/v3/lease/revoke").json(&id).to_socket(&agent).await.status, 200);
        assert!(Instant::now() >= counts_until[1], "it was freed while its client counted on it");
    };
    let end = async {
        assert_eq!(delete(&path).to_socket(&agent).await.ok()["released"][0]["lock"], "x");
        assert!(Instant::now() >= counts_until[0], "it was freed while its client counted on it");
    };
    tokio::join!(revoke, end);
    assert_eq!((agent.uses("x"), agent.uses("y")), ((0, 0), (0, 0)));
    // Its own clients come that way.
    let mine = post("/v1/locks/x/acquire").to(&agent).await.ok();
    let mine = delete(&format!("/v1/leases/{}/locks/x", mine["lease"].as_str().unwrap())).to(&agent).await.ok();
    assert_eq!(mine["released"], true);
    agent.end().await;
}
