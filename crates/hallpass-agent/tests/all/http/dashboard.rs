//! The dashboard's files, and what only it asks for. tests-browser tries the page itself.

use serde_json::json;

use crate::http::agent::TestAgent;
use crate::http::client::{delete, get, post, read_until};
use crate::waiting::until;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_its_files_are_served_under_a_strict_policy() {
    let agent = TestAgent::start().await;
    let page = get("/").to(&agent).await;
    assert!(page.head.contains("text/html"), "{}", page.head);
    for part in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"] {
        assert!(page.head.contains(part), "{part} in {}", page.head);
    }
    assert!(!page.head.contains("unsafe"), "{}", page.head);
    assert!(page.text().contains("/dashboard/app.js"));
    assert!(get("/dashboard/app.js").to(&agent).await.head.contains("text/javascript"));
    assert!(get("/dashboard/style.css").to(&agent).await.head.contains("text/css"));
    for wrong in ["nothing.js", "..%2Findex.html", "%00", "index.html"] {
        get(&format!("/dashboard/{wrong}")).to(&agent).await.error(404);
    }
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_lock_is_watched() {
    let agent = TestAgent::start().await;
    let mut trace = get("/v1/locks/a%2Fb/trace").begin(&agent).await;
    let begin = read_until(&mut trace, "event: begin").await;
    let begin = if begin.contains("\"members\"") { begin } else { read_until(&mut trace, "\"members\"").await };
    assert!(begin.contains("\"this\":true"), "{begin}");
    let other = post("/v1/locks/other/acquire").json(&json!({})).to(&agent).await.ok();
    let held = post("/v1/locks/a%2Fb/acquire").json(&json!({})).to(&agent).await.ok();
    let granted = read_until(&mut trace, "event: granted").await;
    assert!(!granted.contains("other"), "{granted}");
    for lease in [other, held] {
        delete(&format!("/v1/leases/{}", lease["lease"].as_str().unwrap())).to(&agent).await.ok();
    }
    read_until(&mut trace, "event: released").await;
    // Sixteen may watch.
    let mut others = Vec::new();
    for _ in 0..15 {
        let mut stream = get("/v1/locks/x/trace").begin(&agent).await;
        read_until(&mut stream, "event: begin").await;
        others.push(stream);
    }
    assert!(get("/v1/locks/x/trace").to(&agent).await.error(429).contains("watch"));
    drop(others);
    until("a stream that is gone makes room", async || {
        let mut stream = get("/v1/locks/x/trace").begin(&agent).await;
        read_until(&mut stream, "HTTP/1.1").await.contains("HTTP/1.1 200")
    })
    .await;
    agent.end().await;
}
