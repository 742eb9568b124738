//! etcd's JSON gateway of a real agent, over TCP. gRPC is tested with etcd's own clients in etcd-tests/.

use hallpass::Node;
use hallpass_agent::{Agent, AgentOptions};
use hallpass_testkit::Scratch;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::waiting::{until, within};

/// "jobs", in base64.
const NAME: &str = "am9icw==";

/// Opens a request, and does not wait for its answer.
async fn send(address: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("the agent listens");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("the agent reads");
    stream
}

async fn answer(mut stream: TcpStream) -> (u16, Value) {
    let mut text = String::new();
    within(stream.read_to_string(&mut text)).await.expect("it is text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

async fn post(address: &str, path: &str, body: &Value) -> (u16, Value) {
    answer(send(address, path, &body.to_string()).await).await
}

#[tokio::test]
async fn scripts_use_locks_as_with_etcd() {
    let directory = Scratch::new("gateway");
    let mut options = AgentOptions::new(directory.join("agent.sock"), directory.join("data"));
    options.api.listen = Some("127.0.0.1:0".to_owned());
    let agent = Agent::start(Node::builder().group("g").name("n"), options).await.expect("the agent starts");
    let address = agent.api_address().expect("it listens on TCP").to_string();
    let (node, stop) = (agent.node(), agent.stopper());
    let serving = tokio::spawn(agent.serve());

    let (status, lease) = post(&address, "/v3/lease/grant", &json!({"TTL": 60, "ID": "31"})).await;
    assert_eq!((status, &lease["ID"]), (200, &json!("31")));
    let (status, again) = post(&address, "/v3/lease/grant", &json!({"TTL": "60", "ID": 31})).await;
    assert_eq!((status, &again["code"], &again["error"]), (412, &json!(9), &json!("etcdserver: lease already exists")));
    let (status, locked) = post(&address, "/v3/lock/lock", &json!({"name": NAME, "lease": 31})).await;
    assert_eq!((status, &locked["key"]), (200, &json!("am9icy8xZg==")));
    let fence = node.lock_info("jobs").expect("it is held").fence;
    assert_eq!(locked["header"]["revision"], fence.to_string());

    // A script that waits, and one that is killed while it waits.
    let killed = send(&address, "/v3/lock/lock", &format!(r#"{{"name": "{NAME}"}}"#)).await;
    let waits = send(&address, "/v3/lock/lock", &format!(r#"{{"name": "{NAME}"}}"#)).await;
    let waiters = async |number: usize| {
        let is_so = async || node.lock_info("jobs").map_or(0, |lock| lock.waiters) == number;
        until(&format!("{number} wait"), is_so).await;
    };
    waiters(2).await;
    drop(killed);
    waiters(1).await;
    let (status, kept) = post(&address, "/v3/lease/keepalive", &json!({"ID": 31})).await;
    assert_eq!((status, &kept["result"]["ID"]), (200, &json!("31")));
    assert_eq!(post(&address, "/v3/lock/unlock", &json!({"key": "am9icy8xZg=="})).await.0, 200);
    let (status, next) = answer(waits).await;
    assert_eq!(status, 200, "{next}");
    let revision = next["header"]["revision"].as_str().and_then(|revision| revision.parse().ok());
    assert!(revision.is_some_and(|revision: u64| revision > fence), "{next}");

    for path in ["/v3/lease/revoke", "/v3/kv/lease/revoke"] {
        let (status, missing) = post(&address, path, &json!({"ID": 99})).await;
        assert_eq!((status, &missing["code"]), (404, &json!(5)));
    }
    let (status, refused) = answer(send(&address, "/v3/lock/lock", "{\"name\": 5}").await).await;
    assert_eq!((status, &refused["code"]), (400, &json!(3)));
    assert_eq!(post(&address, "/v3/lease/revoke", &json!({"ID": 31})).await.0, 200);
    let (_, told) = post(&address, "/v3/lease/timetolive", &json!({"ID": 31})).await;
    assert_eq!(told["TTL"], "-1");

    let (_, leases) = post(&address, "/v3/lease/leases", &json!({})).await;
    for lease in leases["leases"].as_array().expect("the other lock's") {
        assert_eq!(post(&address, "/v3/lease/revoke", lease).await.0, 200);
    }
    stop();
    within(serving).await.expect("without a panic").expect("in order");
}
