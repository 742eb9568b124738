//! Many at a time, and those that do not read.

use std::future::poll_fn;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::agent::TestAgent;
use crate::http::client::{get, post};
use crate::waiting::within;

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
    let agent = TestAgent::start().await;
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
    // One of them is in: which one depends on whose request was read first.
    agent.until_uses("a", (1, WAITS - 1)).await;
    // All of them go away at once, and nothing of them is left.
    drop(waiting);
    drop(streams);
    agent.until_metric("hallpass_api_event_streams", 0.0).await;
    agent.until_metric("hallpass_api_waiting", 0.0).await;
    agent.kill().await;
}

/// It asks for far more than the system keeps for it, and reads nothing: nothing is kept for it by the agent either.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_cut_off() {
    let agent = TestAgent::start().await;
    let mut held = Vec::new();
    for number in 0..1_000 {
        held.push(agent.node.lock(format!("{number:0>250}")).acquire().await.unwrap());
    }
    let mut reader: TcpStream = within(TcpStream::connect(agent.address())).await.unwrap();
    // Some 400 kB each.
    let requests = get("/v1/locks?limit=1000").bytes("localhost").repeat(100);
    within(reader.write_all(&requests)).await.unwrap();
    agent.until_metric("hallpass_api_connections", 2.0).await;
    // Others are served meanwhile, one of which asks for this.
    agent.until_metric("hallpass_api_connections", 1.0).await;
    let mut rest = Vec::new();
    let _ = within(reader.read_to_end(&mut rest)).await;
    assert!(rest.starts_with(b"HTTP/1.1 200") && rest.len() < 40_000_000, "{} bytes", rest.len());
    drop(held);
    agent.end().await;
}

/// Requests that are given up as soon as they are sent: they wait for nothing, and their sender is cut off or served like others.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_reset_at_once_leave_nothing_behind() {
    let agent = TestAgent::start().await;
    let held = agent.node.lock("a").acquire().await.unwrap();
    let stream = within(TcpStream::connect(agent.address())).await.unwrap();
    let (mut client, connection) = within(h2::client::handshake(stream)).await.unwrap();
    let driving = tokio::spawn(async move { drop(connection.await) });
    for _ in 0..20_000 {
        if poll_fn(|cx| client.poll_ready(cx)).await.is_err() {
            break;
        }
        let target = format!("http://{}/v1/locks/a/acquire", agent.address());
        let request = http::Request::post(target).body(()).unwrap();
        let Ok((_, mut body)) = client.send_request(request, true) else { break };
        body.send_reset(h2::Reason::CANCEL);
    }
    get("/v1/status").to(&agent).await.ok();
    drop(client);
    within(driving).await.unwrap();
    agent.until_metric("hallpass_api_connections", 1.0).await;
    agent.until_uses("a", (1, 0)).await;
    drop(held);
    agent.end().await;
}
