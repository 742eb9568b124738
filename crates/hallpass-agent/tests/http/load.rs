//! Many at a time, and those that do not read.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::agent::{LIMIT, Running, within};
use crate::client::{get, post, read_until};

const STREAMS: usize = 1_000;
const WAITS: usize = 5_000;

/// Each connection takes a descriptor on both sides.
fn has_descriptors(wanted: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(wanted, |most| most.min(wanted));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most.max(limit.current.unwrap_or(0))), ..limit });
    getrlimit(Resource::Nofile).current.is_none_or(|now| now >= wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_listen_and_five_thousand_wait() {
    if !has_descriptors(2 * (STREAMS + WAITS) as u64 + 1_000) {
        assert!(std::env::var_os("CI").is_none(), "too few descriptors: raise 'ulimit -n'");
        println!("SKIPPED: too few descriptors: raise 'ulimit -n'");
        return;
    }
    let agent = Running::start().await;
    let held = agent.node.lock("a").acquire().await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(get("/v1/events?rare=true").begin(&agent).await);
    }
    let mut waiting = Vec::new();
    for _ in 0..WAITS {
        waiting.push(post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 60_000})).begin(&agent).await);
    }
    agent.until_uses("a", (1, WAITS)).await;
    agent.until_metric("hallpass_api_event_streams", STREAMS as f64).await;
    assert_eq!(agent.metric("hallpass_api_waiting").await, WAITS as f64);
    // It goes on serving: another lock, and who comes next on this one.
    let other = post("/v1/locks/b/acquire").to(&agent).await.ok();
    assert!(other["fence"].is_string());
    drop(held);
    let first = read_until(&mut waiting[0], "fence_number").await;
    assert!(first.contains("200"), "{first}");
    // All of them go away at once, and nothing of them is left.
    drop(waiting);
    drop(streams);
    agent.until_uses("a", (1, 0)).await;
    agent.until_metric("hallpass_api_event_streams", 0.0).await;
    agent.until_metric("hallpass_api_waiting", 0.0).await;
    agent.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_read_is_cut_off() {
    let agent = Running::start().await;
    // A little is on the way at a time, so that little needs to be sent before it stands still.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut reader: TcpStream = within(socket.connect(agent.address())).await.unwrap();
    within(reader.write_all(&get("/v1/events").bytes("localhost"))).await.unwrap();
    agent.until_metric("hallpass_api_event_streams", 1.0).await;
    let name = "x".repeat(200);
    let end = std::time::Instant::now() + LIMIT;
    let client = hallpass_agent::Client::connect(&agent.directory.0.join("agent.sock")).unwrap();
    let busy = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let goes_on = std::sync::Arc::clone(&busy);
    let working = tokio::task::spawn_blocking(move || {
        use hallpass_agent::api::{Request, Response};
        let mut client = client;
        while goes_on.load(std::sync::atomic::Ordering::Relaxed) {
            let request =
                Request::Acquire { lock: name.clone(), shared: false, tries: false, timeout_ms: None, explain: false };
            let Ok(Response::Granted { fence, .. }) = client.request(&request) else { panic!("not granted") };
            client.request(&Request::Release { lock: name.clone(), fence }).unwrap();
        }
    });
    // It reads nothing: its stream ends by itself, while others are served.
    while agent.metric("hallpass_api_event_streams").await > 0.0 {
        assert!(std::time::Instant::now() < end, "it is still written to");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    busy.store(false, std::sync::atomic::Ordering::Relaxed);
    within(working).await.unwrap();
    // The connection is closed: what was on the way comes, and then its end.
    let mut rest = Vec::new();
    let _ = within(reader.read_to_end(&mut rest)).await;
    assert!(rest.starts_with(b"HTTP/1.1 200"), "it was served before");
    agent.end().await;
}
