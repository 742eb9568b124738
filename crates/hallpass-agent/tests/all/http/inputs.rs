//! Whatever is sent is answered with a status below 500, or one that says that the agent cannot now; and in JSON.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::agent::TestAgent;
use crate::http::client::{Answer, Ask, get, post};
use crate::waiting::within;

/// Text that goes into a path or a query as it is, or percent-encoded.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("a".to_owned()),
        "[0-9a-f]{1,17}",
        "[a-z%/?&=+.-]{0,12}",
        "(%[0-9a-fA-F]{2}){1,8}",
        "\\PC{0,8}",
        Just("x".repeat(256)),
        Just("%2e%2e%2f".repeat(40)),
    ]
}

/// Bodies: right ones, nearly right ones, and none at all.
fn body() -> impl Strategy<Value = Option<Vec<u8>>> {
    let key = prop_oneof![
        Just("mode"),
        Just("try"),
        Just("timeout_ms"),
        Just("ttl_ms"),
        Just("lease"),
        Just("ban"),
        Just("x")
    ];
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..300u64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!(u64::MAX)),
        Just(json!("shared")),
        "[0-9a-f]{1,17}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({"a": {}})),
    ];
    let object = prop::collection::vec((key, value), 0..4).prop_map(|pairs| {
        let map: serde_json::Map<String, Value> =
            pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Some(Value::Object(map).to_string().into_bytes())
    });
    prop_oneof![
        1 => Just(None),
        6 => object,
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(Some),
        1 => Just(Some(b"[".repeat(9000))),
        1 => Just(Some(b" ".repeat(17_000))),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let method = prop_oneof![Just("GET"), Just("POST"), Just("DELETE"), Just("PUT"), Just("HEAD"), Just("OPTIONS")];
    let template = prop::sample::select(vec![
        "/",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/status",
        "/v1/members",
        "/v1/members/{}/evict",
        "/v1/locks",
        "/v1/locks/{}",
        "/v1/locks/{}/acquire",
        "/v1/locks/{}/break",
        "/v1/leases",
        "/v1/leases/{}",
        "/v1/leases/{}/keepalive",
        "/v1/leases/{}/locks/{}",
        "/{}",
        "/v1/{}",
    ]);
    let key = prop::sample::select(vec!["prefix", "search", "held", "after", "limit", "fence", "recent", "rare", "x"]);
    let query = prop::collection::vec((key, text()), 0..3);
    (method, template, text(), query, body()).prop_map(|(method, template, name, query, body)| {
        let query: Vec<String> = query.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        let target = format!("{}{mark}{}", template.replace("{}", &name), query.join("&"));
        // What is no request line at all is another test's.
        let target: String = target.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
        let ask = Ask::new(method, &target);
        match body {
            Some(body) => ask.body(&body),
            None => ask,
        }
    })
}

/// True for what may be answered to anything. 503 and 504 say that the agent or its group cannot do it now.
fn is_fine(answer: &Answer) -> bool {
    (200..500).contains(&answer.status) || matches!(answer.status, 503 | 504)
}

#[test]
fn no_request_is_answered_with_an_internal_error() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let agent = runtime.block_on(TestAgent::start());
    let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&ask(), |ask| {
        // Nobody holds anything for long: what was granted by chance is not waited for.
        let answer = runtime.block_on(ask.to(&agent));
        prop_assert!(is_fine(&answer), "{ask:?}: {answer:?}");
        let is_head = format!("{ask:?}").contains("\"HEAD\"");
        if answer.status >= 400 && !is_head && !answer.body.is_empty() {
            let document: Value = serde_json::from_slice(&answer.body)
                .map_err(|error| TestCaseError::fail(format!("{ask:?}: {error}: {answer:?}")))?;
            prop_assert!(document["error"].as_str().is_some_and(|text| !text.contains(char::is_control)), "{document}");
        }
        Ok(())
    });
    result.unwrap();
    runtime.block_on(async {
        // It still serves, and nothing was left behind that keeps it from ending.
        get("/v1/status").to(&agent).await.ok();
        agent.end().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_request_cost_their_sender_the_connection_only() {
    let agent = TestAgent::start().await;
    let mut runner = TestRunner::deterministic();
    let mut bytes: Vec<Vec<u8>> =
        (0..200).map(|_| prop::collection::vec(any::<u8>(), 0..200).new_tree(&mut runner).unwrap().current()).collect();
    bytes.push(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0garbage".to_vec());
    bytes.push(b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_vec());
    bytes.push(b"GET / HTTP/9.9\r\n\r\n".to_vec());
    bytes.push([b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ".as_slice(), &b"y".repeat(100_000)].concat());
    for garbage in bytes {
        let mut stream = within(TcpStream::connect(agent.address())).await.unwrap();
        let _ = stream.write_all(&garbage).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = within(stream.read_to_end(&mut answer)).await;
        let shown = String::from_utf8_lossy(&answer);
        assert!(!shown.starts_with("HTTP/1.1 5"), "{shown}");
    }
    get("/v1/status").to(&agent).await.ok();
    agent.until_metric("hallpass_api_connections", 1.0).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said() {
    let agent = TestAgent::start().await;
    let long = "x".repeat(256);
    let cases = [
        (post("/v1/locks/a/acquire").body(b"{"), 400, "body"),
        (post("/v1/locks/a/acquire").body(b"\xff"), 400, "body"),
        (post("/v1/locks/a/acquire").json(&json!({"mod": "shared"})), 400, "mod"),
        (post("/v1/locks/a/acquire").json(&json!({"mode": "both"})), 400, "exclusive"),
        (post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 1})), 400, "ttl_ms"),
        (post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 1_000_000_000})), 400, "ttl_ms"),
        (post("/v1/locks/a/acquire").json(&json!({"lease": "xyz"})), 400, "lease"),
        (post("/v1/locks/a/acquire").json(&json!({"lease": "1f"})), 404, "lease 1f"),
        (post("/v1/locks/a/acquire").json(&json!({"lease": "1f", "ttl_ms": 500})), 400, "both"),
        (post("/v1/locks/a/acquire").body(&b" ".repeat(17_000)), 413, "16384 bytes"),
        (post(&format!("/v1/locks/{long}/acquire")), 400, "255 bytes"),
        (get("/v1/locks/%ff"), 400, "path"),
        (post("/v1/locks/%zz/acquire"), 400, "%25"),
        (post("/v1/locks/a%2/acquire"), 400, "%25"),
        (post("/v1/leases").body(b"[5000]"), 400, "not a JSON object"),
        (post("/v1/leases").body(b"null"), 400, "not a JSON object"),
        (post("/v3/lease/grant").body(b"[5]"), 400, "not a JSON object"),
        (get("/v3/lock/lock"), 405, "POST"),
        (post("/v3/kv/put"), 501, "docs/etcd.md"),
        (get("/v1/locks?limit=many"), 400, "limit"),
        (get("/v1/locks?limi=1"), 400, "limi"),
        (get("/v1/leases/0"), 400, "lease"),
        (get("/v1/events?recent=perhaps"), 400, "recent"),
    ];
    for (ask, status, part) in cases {
        let error = ask.to(&agent).await.error(status);
        assert!(error.contains(part), "{ask:?}: {error}");
    }
    agent.end().await;
}

/// Where two readers would disagree about the end of a request, it is refused, and nothing after it is read as another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_end_is_in_doubt_is_refused() {
    let agent = TestAgent::start().await;
    for doubtful in [
        "content-length: 4\r\ncontent-length: 5",
        "content-length: 4, 5",
        "content-length: +4",
        "content-length : 4",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: xchunked",
    ] {
        let head = format!("POST /v1/leases HTTP/1.1\r\nhost: localhost\r\n{doubtful}\r\n\r\n");
        let request = format!("{head}{{}}  GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let mut stream = within(TcpStream::connect(agent.address())).await.unwrap();
        let _ = within(stream.write_all(request.as_bytes())).await;
        let mut answer = Vec::new();
        let _ = within(stream.read_to_end(&mut answer)).await;
        let shown = String::from_utf8_lossy(&answer);
        assert!(shown.starts_with("HTTP/1.1 400") && !shown.contains("alive"), "{doubtful}: {shown}");
    }
    agent.end().await;
}
