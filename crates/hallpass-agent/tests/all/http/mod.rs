//! The agent's API over HTTP, against a real agent.

mod agent;
mod client;
mod dashboard;
mod inputs;
mod load;
mod metrics;
mod owners;
mod rights;
#[cfg(target_os = "linux")]
mod strangers;

use std::time::Instant;

use agent::{TestAgent, options_in};
use client::{delete, get, post, read_until};
use hallpass_testkit::LIMIT;
use serde_json::{Value, json};

use crate::waiting::{until, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_acquired_kept_shown_and_released() {
    let agent = TestAgent::start().await;
    let granted = post("/v1/locks/invoices%2F42/acquire").json(&json!({"ttl_ms": 60_000})).to(&agent).await.ok();
    assert_eq!((&granted["lock"], &granted["mode"]), (&json!("invoices/42"), &json!("exclusive")));
    let fence: u64 = granted["fence"].as_str().unwrap().parse().unwrap();
    assert_eq!(granted["fence_number"], fence);
    let ttl = granted["ttl_ms"].as_u64().unwrap();
    assert!((1..5_000).contains(&ttl), "a session less drift at most: {ttl}");
    let lease = granted["lease"].as_str().unwrap().to_owned();
    let kept = post(&format!("/v1/leases/{lease}/keepalive")).to(&agent).await.ok();
    assert_eq!((&kept["locks"][0]["name"], &kept["locks"][0]["broken"]), (&json!("invoices/42"), &json!(false)));
    assert!(kept["ttl_ms"].as_u64().unwrap() < 5_000);
    let lock = get("/v1/locks/invoices%2F42").to(&agent).await.ok();
    assert_eq!((&lock["where"], &lock["fence"]), (&json!("here"), &granted["fence"]));
    assert!(lock["held_by"][0]["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{lock}");
    let shown = get(&format!("/v1/leases/{lease}")).to(&agent).await.ok();
    assert_eq!((&shown["granted_ms"], &shown["locks"][0]["fence"]), (&json!(60_000), &granted["fence"]));
    assert_eq!(get("/v1/leases").to(&agent).await.ok()["leases"][0]["lease"], lease);
    let busy = post("/v1/locks/invoices%2F42/acquire").json(&json!({"try": true})).to(&agent).await.error(409);
    assert!(busy.contains("127.0.0.1"), "it says who holds it: {busy}");
    let late = post("/v1/locks/invoices%2F42/acquire").json(&json!({"timeout_ms": 20})).to(&agent).await;
    late.error(408);
    let released = delete(&format!("/v1/leases/{lease}")).to(&agent).await.ok();
    assert_eq!(released["released"], json!([{"lock": "invoices/42", "fence": granted["fence"]}]));
    delete(&format!("/v1/leases/{lease}")).to(&agent).await.error(404);
    post(&format!("/v1/leases/{lease}/keepalive")).to(&agent).await.error(404);
    let next = post("/v1/locks/invoices%2F42/acquire").to(&agent).await.ok();
    assert!(next["fence_number"].as_u64().unwrap() > fence);
    delete(&format!("/v1/leases/{}", next["lease"].as_str().unwrap())).to(&agent).await.ok();
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_lease_holds_several_locks_and_releases_them_one_by_one() {
    let agent = TestAgent::start().await;
    let lease = post("/v1/leases").json(&json!({"ttl_ms": 60_000})).to_socket(&agent).await.ok();
    let lease = lease["lease"].as_str().unwrap().to_owned();
    for lock in ["a", "b"] {
        let ask = post(&format!("/v1/locks/{lock}/acquire")).json(&json!({"lease": lease, "mode": "shared"}));
        let first = ask.to_socket(&agent).await.ok();
        assert_eq!(ask.to_socket(&agent).await.ok()["fence"], first["fence"], "the same lease twice changes nothing");
    }
    let ask = post("/v1/locks/a/acquire").json(&json!({"lease": lease}));
    assert!(ask.to_socket(&agent).await.error(409).contains("shared"));
    let held = get("/v1/locks?held=true").to_socket(&agent).await.ok();
    assert_eq!(held["locks"].as_array().unwrap().len(), 2);
    assert_eq!(held["locks"][0]["held_by"][0]["pid"], std::process::id(), "a client of the socket is known");
    let fence: u64 = held["locks"][0]["fence"].as_str().unwrap().parse().unwrap();
    let other = format!("/v1/leases/{lease}/locks/a?fence={}", fence + 1);
    assert_eq!(delete(&other).to_socket(&agent).await.ok()["released"], false);
    let right = format!("/v1/leases/{lease}/locks/a?fence={fence}");
    assert_eq!(delete(&right).to_socket(&agent).await.ok()["released"], true);
    assert_eq!(agent.uses("a").0, 0);
    assert_eq!(agent.uses("b").0, 1);
    delete(&format!("/v1/leases/{lease}")).to_socket(&agent).await.ok();
    assert_eq!(agent.uses("b").0, 0);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_waits_no_more() {
    let agent = TestAgent::start().await;
    let held = agent.node.lock("a").acquire().await.unwrap();
    let waiting = post("/v1/locks/a/acquire").json(&json!({})).begin(&agent).await;
    agent.until_uses("a", (1, 1)).await;
    drop(waiting);
    agent.until_uses("a", (1, 0)).await;
    drop(held);
    // Nobody has it, and no lease was left behind.
    agent.until_uses("a", (0, 0)).await;
    assert_eq!(get("/v1/leases").to(&agent).await.ok()["leases"], json!([]));
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_nobody_keeps_ends() {
    let agent = TestAgent::start().await;
    let held = post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 200})).to(&agent).await.ok();
    let next = post("/v1/locks/a/acquire").to(&agent).await.ok();
    assert!(next["fence_number"].as_u64() > held["fence_number"].as_u64());
    post(&format!("/v1/leases/{}/keepalive", held["lease"].as_str().unwrap())).to(&agent).await.error(404);
    delete(&format!("/v1/leases/{}", next["lease"].as_str().unwrap())).to(&agent).await.ok();
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_breaks_a_lock_and_its_lease_ends() {
    let agent = TestAgent::start_with(|_, options| options.ttl = std::time::Duration::from_millis(600)).await;
    let held = post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 60_000})).to(&agent).await.ok();
    let mut events = get("/v1/events").begin(&agent).await;
    read_until(&mut events, ": hallpass").await;
    assert_eq!(post("/v1/locks/a/break").to(&agent).await.ok()["broken"], true);
    let told = read_until(&mut events, "lease_lost").await;
    assert!(told.contains("event: broken") && told.contains("event: lost"), "{told}");
    post(&format!("/v1/leases/{}/keepalive", held["lease"].as_str().unwrap())).to(&agent).await.error(404);
    post("/v1/locks/free/break").to(&agent).await.error(409);
    post("/v1/members/nobody/evict").to(&agent).await.error(404);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_paged_and_searched_by_the_agent() {
    let agent = TestAgent::start().await;
    let guards: Vec<_> = (0..250).map(|number| agent.node.lock(format!("job/{number:03}"))).collect();
    let mut held = Vec::new();
    for lock in &guards {
        held.push(lock.acquire().await.unwrap());
    }
    let (mut names, mut target) = (Vec::new(), "/v1/locks?limit=100".to_owned());
    loop {
        let page = get(&target).to(&agent).await.ok();
        names.extend(page["locks"].as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else {
            assert_eq!(page["more"], 0);
            break;
        };
        target = format!("/v1/locks?limit=100&after={}", next.replace('/', "%2F"));
    }
    assert_eq!(names, (0..250).map(|number| format!("job/{number:03}")).collect::<Vec<_>>());
    let count =
        async |query: &str| get(&format!("/v1/locks?{query}")).to(&agent).await.ok()["locks"].as_array().unwrap().len();
    assert_eq!(count("search=07").await, 13, "070 to 079, 007, 107 and 207");
    assert_eq!(
        (count("prefix=job/01").await, count("prefix=x").await, count("held=true&limit=1000").await),
        (10, 0, 250)
    );
    get("/v1/locks?limit=0").to(&agent).await.error(400);
    get("/v1/locks?limit=1001").to(&agent).await.error(400);
    drop(held);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_members_health_and_pages_are_served() {
    let agent = TestAgent::start().await;
    let status = get("/v1/status").to(&agent).await.ok();
    assert_eq!((&status["node"], &status["view"], &status["leases"]), (&json!("n"), &json!("open"), &json!(0)));
    let members = get("/v1/members").to(&agent).await.ok();
    assert_eq!((&members["members"][0]["name"], &members["members"][0]["this"]), (&json!("n"), &json!(true)));
    assert_eq!(get("/healthz").to(&agent).await.ok(), json!({"alive": true}));
    assert_eq!(get("/readyz").to(&agent).await.ok(), json!({"ready": true}));
    let page = get("/").to(&agent).await;
    assert!(page.status == 200 && page.head.contains("text/html") && page.head.contains("frame-ancestors 'none'"));
    let document = get("/openapi.json").to(&agent).await.ok();
    // What is answered has what is promised.
    for (answer, schema) in [(&status, "Status"), (&members["members"][0], "Member")] {
        let promised = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        let found = answer.as_object().unwrap();
        assert!(promised.keys().all(|key| found.contains_key(key)), "{schema}: {answer}");
        assert!(found.keys().all(|key| promised.contains_key(key)), "{schema}: {answer}");
    }
    get("/v2/locks").to(&agent).await.error(404);
    get("/v1/locks/a/b/acquire").to(&agent).await.error(404);
    get("/v1/locks/a/acquire").to(&agent).await.error(405);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_what_happens() {
    let agent = TestAgent::start().await;
    let mut all = get("/v1/events").begin(&agent).await;
    let mut some = get("/v1/events?prefix=other/&recent=true").begin(&agent).await;
    let told = read_until(&mut all, ": hallpass").await;
    assert!(told.contains("text/event-stream"), "{told}");
    read_until(&mut some, ": hallpass").await;
    let held = post("/v1/locks/a/acquire").to(&agent).await.ok();
    read_until(&mut all, "\"event\":\"granted\"").await;
    delete(&format!("/v1/leases/{}", held["lease"].as_str().unwrap())).to(&agent).await.ok();
    // The event and the line after it.
    let told = read_until(&mut all, "\"client\":\"127.0.0.1:").await;
    let data =
        told.lines().find_map(|line| line.strip_prefix("data: ").filter(|data| data.contains("released"))).unwrap();
    let event: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&event["lock"], &event["fence"]), (&json!("a"), &held["fence"]));
    let other = post("/v1/locks/other%2F1/acquire").to(&agent).await.ok();
    let told = read_until(&mut some, "other/1").await;
    assert!(told.contains("event: granted") && !told.contains("\"a\""), "{told}");
    delete(&format!("/v1/leases/{}", other["lease"].as_str().unwrap())).to(&agent).await.ok();
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_lets_leases_end_first() {
    let agent = TestAgent::start().await;
    let held = post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 60_000})).to(&agent).await.ok();
    let mut events = get("/v1/events").begin(&agent).await;
    read_until(&mut events, ": hallpass").await;
    agent.stop();
    read_until(&mut events, "event: ending").await;
    post("/v1/locks/b/acquire").to(&agent).await.error(503);
    get("/readyz").to(&agent).await.error(503);
    let lease = format!("/v1/leases/{}", held["lease"].as_str().unwrap());
    let kept = post(&format!("{lease}/keepalive")).to(&agent).await.ok();
    assert_eq!(kept["locks"][0]["at_risk"], true, "come to an end: {kept}");
    delete(&lease).to(&agent).await.ok();
    let directory = agent.end().await;
    assert!(!directory.join("data/running").exists(), "nobody held anything: the next agent need not wait");
    assert!(!directory.join("agent-api.sock").exists());
}

/// A lease of 20 s at 0.5 s: an answer that says 20 s counts on what another client may have by then.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_acquired_under_an_old_lease_is_told_what_is_left_of_it() {
    let agent = TestAgent::start_with(|_, options| options.ttl = LIMIT).await;
    let granted = post("/v1/leases").json(&json!({"ttl_ms": 20_000})).to(&agent).await.ok();
    let began = Instant::now();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let lease = format!("/v1/leases/{}", granted["lease"].as_str().unwrap());
    // It lasts for its ttl and the drift of clocks, and that is taken off from what is told.
    let left = 20_000 - began.elapsed().as_millis() as u64 * 100 / 101;
    let body = json!({"lease": granted["lease"]});
    let acquired = post("/v1/locks/a/acquire").json(&body).to(&agent).await.ok();
    let again = post("/v1/locks/a/acquire").json(&body).to(&agent).await.ok();
    let shown = get(&lease).to(&agent).await.ok();
    for told in [&acquired["ttl_ms"], &again["ttl_ms"], &shown["left_ms"]] {
        assert!(told.as_u64().unwrap() <= left, "told {told}, and {left} are left");
    }
    let kept = post(&format!("{lease}/keepalive")).to(&agent).await.ok();
    assert!(kept["ttl_ms"].as_u64() > acquired["ttl_ms"].as_u64(), "a keepalive makes it longer: {kept}");
    delete(&lease).to(&agent).await.ok();
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_after_one_that_was_killed_waits_for_its_leases() {
    let ttl = std::time::Duration::from_millis(800);
    let agent = TestAgent::start_with(|_, options| options.ttl = ttl).await;
    let sent = Instant::now();
    let held = post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 60_000})).to(&agent).await.ok();
    let believed = sent + std::time::Duration::from_millis(held["ttl_ms"].as_u64().unwrap());
    let directory = agent.kill().await;
    let mut options = options_in(&directory);
    options.ttl = ttl;
    let next = within(TestAgent::start_in(directory, options)).await.expect("it starts");
    let again = post("/v1/locks/a/acquire").to(&next).await.ok();
    assert!(Instant::now() >= believed, "it was granted while the first client counted on it");
    assert!(again["fence_number"].as_u64() > held["fence_number"].as_u64());
    post(&format!("/v1/leases/{}/keepalive", held["lease"].as_str().unwrap())).to(&next).await.error(404);
    next.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_was_removed_is_made_again() {
    let agent = TestAgent::start().await;
    std::fs::remove_file(agent.api_socket()).unwrap();
    until("the socket is made again", async || agent.api_socket().exists()).await;
    get("/v1/status").to_socket(&agent).await.ok();
    agent.end().await;
}
