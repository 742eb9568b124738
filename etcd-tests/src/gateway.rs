//! etcd's JSON gateway, as scripts use it with curl.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::group::Group;
use crate::{Case, cases, within};

/// All cases.
pub const CASES: &[Case] = cases![scripts_lock_with_json, scripts_get_errors_in_json];

/// "script" and "script/1f2e", in base64.
const NAME: &str = "c2NyaXB0";
const KEY: &str = "c2NyaXB0LzFmMmU=";

/// Posts a document to one server; returns the status and what came back.
async fn post(group: &Group, path: &str, body: &str) -> (u16, Value) {
    let endpoint = group.endpoint(0);
    let mut stream = TcpStream::connect(endpoint).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {endpoint}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    // Chunks begin with their length, in a line of its own: the documents are what is between braces.
    let document = body.find('{').zip(body.rfind('}')).map_or("null", |(begin, end)| &body[begin..=end]);
    (status, serde_json::from_str(document).unwrap_or_else(|error| panic!("{answer}: {error}")))
}

async fn scripts_lock_with_json(group: Arc<Group>) {
    let (status, granted) = post(&group, "/v3/lease/grant", r#"{"TTL": 30, "ID": "7982"}"#).await;
    assert_eq!((status, &granted["ID"]), (200, &json!("7982")));
    assert!(granted["TTL"].as_str().and_then(|ttl| ttl.parse().ok()).is_some_and(|ttl: i64| (1..=30).contains(&ttl)));
    assert!(granted["header"]["member_id"].is_string());
    let (status, locked) = post(&group, "/v3/lock/lock", &format!(r#"{{"name": "{NAME}", "lease": 7982}}"#)).await;
    assert_eq!((status, &locked["key"]), (200, &json!(KEY)));
    let (_, kept) = post(&group, "/v3/lease/keepalive", r#"{"ID": 7982}"#).await;
    assert_eq!(kept["result"]["ID"], "7982");
    for path in ["/v3/lease/timetolive", "/v3/kv/lease/timetolive"] {
        let (_, told) = post(&group, path, r#"{"ID": 7982, "keys": true}"#).await;
        assert_eq!((&told["grantedTTL"], &told["keys"]), (&json!("30"), &json!([KEY])));
    }
    let (_, listed) = post(&group, "/v3/lease/leases", "{}").await;
    assert!(listed["leases"].as_array().unwrap().contains(&json!({"ID": "7982"})));
    let (status, _) = post(&group, "/v3/lock/unlock", &format!(r#"{{"key": "{KEY}"}}"#)).await;
    assert_eq!(status, 200);
    let (status, _) = post(&group, "/v3/kv/lease/revoke", r#"{"ID": 7982}"#).await;
    assert_eq!(status, 200);
    let (_, told) = post(&group, "/v3/lease/timetolive", r#"{"ID": 7982}"#).await;
    assert_eq!(told["TTL"], "-1");
}

async fn scripts_get_errors_in_json(group: Arc<Group>) {
    let (status, missing) = post(&group, "/v3/lease/revoke", r#"{"ID": 7}"#).await;
    assert_eq!(
        (status, &missing["code"], &missing["error"]),
        (404, &json!(5), &json!("etcdserver: requested lease not found"))
    );
    post(&group, "/v3/lease/grant", r#"{"TTL": 30, "ID": "7983"}"#).await;
    let (status, exists) = post(&group, "/v3/lease/grant", r#"{"TTL": 30, "ID": "7983"}"#).await;
    assert_eq!(
        (status, &exists["code"], &exists["message"]),
        (412, &json!(9), &json!("etcdserver: lease already exists"))
    );
    post(&group, "/v3/lease/revoke", r#"{"ID": 7983}"#).await;
    let (status, long) = post(&group, "/v3/lease/grant", r#"{"TTL": "9000000001"}"#).await;
    assert_eq!((status, &long["code"]), (400, &json!(11)));
    for wrong in ["garbage", r#"{"TTL": "x"}"#, r#"{"TTL": []}"#] {
        let (status, answer) = post(&group, "/v3/lease/grant", wrong).await;
        assert_eq!((status, &answer["code"]), (400, &json!(3)), "{wrong}");
    }
    let (status, answer) = post(&group, "/v3/lock/lock", r#"{"name": "not base64!"}"#).await;
    assert_eq!((status, &answer["code"]), (400, &json!(3)));
    let (_, unknown) = post(&group, "/v3/lock/lock", &format!(r#"{{"name": "{NAME}", "lease": 7}}"#)).await;
    assert_eq!(unknown["error"], "etcdserver: requested lease not found");
}
