//! Metrics: each is explained, and what dashboards and alerts ask for is there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::http::agent::TestAgent;
use crate::http::client::{delete, get, post};
use crate::waiting::within;

/// An agent of which everything has been asked once.
async fn used() -> TestAgent {
    let agent = TestAgent::start().await;
    let held = post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 60_000})).to(&agent).await.ok();
    post("/v1/locks/a/acquire").json(&json!({"try": true})).to(&agent).await.error(409);
    let lease = format!("/v1/leases/{}", held["lease"].as_str().unwrap());
    post(&format!("{lease}/keepalive")).to(&agent).await.ok();
    delete(&lease).to(&agent).await.ok();
    agent
}

/// Names of metrics with their types, and all samples.
fn read(text: &str) -> (BTreeMap<String, String>, Vec<(String, f64)>) {
    let (mut types, mut samples, mut helped) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(help.len() > 10 && help.ends_with('.'), "{line}");
            assert!(helped.insert(name.to_owned()), "{name} is explained twice");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(helped.contains(name), "{name} has a type and no help");
            types.insert(name.to_owned(), kind.to_owned());
        } else {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            samples.push((name.to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}"))));
        }
    }
    assert_eq!(helped, types.keys().cloned().collect());
    (types, samples)
}

/// The metric that a sample belongs to.
fn metric_of(sample: &str, types: &BTreeMap<String, String>) -> String {
    let name = sample.split('{').next().unwrap();
    let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    let histogram = histogram.filter(|name| types.get(*name).is_some_and(|kind| kind == "histogram"));
    histogram.unwrap_or(name).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_has_a_type_and_a_help_text() {
    let agent = used().await;
    let (types, samples) = read(&get("/metrics").to(&agent).await.text());
    assert!(types.len() > 30, "{types:?}");
    for (sample, _) in &samples {
        let name = metric_of(sample, &types);
        let kind = types.get(&name).unwrap_or_else(|| panic!("{sample} has no type"));
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
    }
    let value = |name: &str| samples.iter().find(|(sample, _)| sample == name).unwrap_or_else(|| panic!("no {name}")).1;
    assert_eq!(value("hallpass_ready"), 1.0);
    assert_eq!(value("hallpass_grants_total"), 1.0);
    assert_eq!(value("hallpass_wait_seconds_count"), 1.0);
    assert_eq!(value("hallpass_hold_seconds_bucket{le=\"+Inf\"}"), 1.0);
    assert_eq!(value("hallpass_refusals_total{reason=\"busy\"}"), 1.0);
    assert_eq!(value("hallpass_leases_total{event=\"revoked\"}"), 1.0);
    assert_eq!(value("hallpass_elections_total"), 1.0);
    assert_eq!(value("hallpass_views_total"), 1.0);
    assert_eq!(value("hallpass_api_requests_total{route=\"/v1/locks/{name}/acquire\",status=\"409\"}"), 1.0);
    agent.end().await;
}

/// What looks like one of our metrics in an expression.
fn named_in(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("hallpass_")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboards_and_alerts_ask_for_what_is_exported() {
    let agent = used().await;
    let (types, _) = read(&get("/metrics").to(&agent).await.text());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/");
    let read = |name: &str| std::fs::read_to_string(format!("{folder}{name}")).expect("a file");
    let dashboard: Value = serde_json::from_str(&read("grafana/hallpass.json")).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().unwrap();
    let mut named = BTreeSet::new();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        named.extend(named_in(target["expr"].as_str().unwrap()));
    }
    let alerts = read("prometheus/alerts.yml");
    let expressions: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert!(expressions.len() >= 8 && expressions.len() == alerts.matches("- alert: ").count(), "{expressions:?}");
    expressions.iter().for_each(|expression| named.extend(named_in(expression)));
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(types.contains_key(&metric_of(&name, &types)), "{name} is not exported");
    }
    agent.end().await;
}

/// The messages of a group of two are counted by protocol and kind.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_counted_by_protocol_and_kind() {
    let agent = TestAgent::start().await;
    let other =
        hallpass::Node::builder().group("g").name("m").join(agent.node.address().to_string()).start().await.unwrap();
    within(other.ready()).await;
    // Some of these locks have their home here, the others there.
    for lock in 'a'..='t' {
        within(other.lock(lock.to_string()).acquire()).await.unwrap().release().await.unwrap();
        let held = post(&format!("/v1/locks/{lock}/acquire")).to(&agent).await.ok();
        delete(&format!("/v1/leases/{}", held["lease"].as_str().unwrap())).to(&agent).await.ok();
    }
    let text = get("/metrics").to(&agent).await.text();
    for kind in ["REQ", "GRANT", "BACK"] {
        let sample = format!("hallpass_messages_total{{protocol=\"directory\",kind=\"{kind}\"}} ");
        let count =
            text.lines().find_map(|line| line.strip_prefix(&sample)).unwrap_or_else(|| panic!("no {kind}: {text}"));
        assert!(count.parse::<u64>().unwrap() >= 1);
    }
    let summed: u64 = text
        .lines()
        .filter(|line| line.starts_with("hallpass_messages_total{"))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(summed, agent.node.status().messages);
    other.stop().await;
    agent.end().await;
}
