//! Who may do what: tokens, users, pages of other sites, and what is refused to start with.

use std::sync::Arc;
use std::time::Duration;

use hallpass_agent::tokens::{Right, Token};
use hallpass_testkit::Scratch;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::http::agent::{TestAgent, options_in};
use crate::http::client::{Ask, delete, get, post, read_until};
use crate::waiting::{until, within};

/// Writes a file that its owner alone may write to.
pub(crate) fn write(directory: &Scratch, name: &str, text: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

pub(crate) fn token(name: &str, rights: &[Right], prefixes: &[&str]) -> (String, String) {
    let (secret, token) = Token::new(name, rights.iter().copied(), prefixes.iter().copied()).unwrap();
    (secret, token.to_toml())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_allows_what_it_says_and_no_more() {
    let (ci, ci_text) = token("ci", &[Right::Acquire, Right::Inspect], &["ci/"]);
    let (eye, eye_text) = token("eye", &[Right::Inspect], &[]);
    let (ops, ops_text) = token("ops", &[Right::Acquire, Right::Inspect, Right::Break, Right::Administer], &[]);
    let file = format!("{ci_text}\n{eye_text}\n{ops_text}");
    let agent = TestAgent::start_with(|directory, options| {
        options.ttl = Duration::from_millis(600);
        options.api.tokens = Some(write(directory, "tokens.toml", &file));
    })
    .await;
    // Without one: the page, and whether it is healthy.
    for open in ["/", "/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(get(open).to(&agent).await.status, 200, "{open}");
    }
    for closed in ["/metrics", "/v1/status", "/v1/members", "/v1/locks", "/v1/locks/a", "/v1/events", "/v1/leases"] {
        assert!(get(closed).to(&agent).await.error(401).contains("token"), "{closed}");
        get(closed).token("hallpass_guess").to(&agent).await.error(401);
    }
    let acquire = |lock: &str| post(&format!("/v1/locks/{lock}/acquire")).json(&json!({"ttl_ms": 60_000}));
    acquire("ci%2Fa").to(&agent).await.error(401);
    acquire("billing").token(&ci).to(&agent).await.error(403);
    acquire("ci%2Fa").token(&eye).to(&agent).await.error(403);
    let held = acquire("ci%2Fa").token(&ci).to(&agent).await.ok();
    let lease = format!("/v1/leases/{}", held["lease"].as_str().unwrap());
    acquire("billing").token(&ops).to(&agent).await.ok();
    // Each sees what it may see.
    let names = async |token: &str| {
        let locks = get("/v1/locks").token(token).to(&agent).await.ok();
        locks["locks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|lock| lock["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&ci).await, ["ci/a"]);
    assert_eq!(names(&eye).await, ["billing", "ci/a"]);
    get("/v1/locks/billing").token(&ci).to(&agent).await.error(403);
    let shown = get("/v1/locks/ci%2Fa").token(&eye).to(&agent).await.ok();
    assert!(shown["held_by"][0]["client"].as_str().unwrap().ends_with("(token ci)"), "{shown}");
    // A lease is its owner's, or an administrator's.
    post(&format!("{lease}/keepalive")).token(&ci).to(&agent).await.ok();
    post(&format!("{lease}/keepalive")).token(&eye).to(&agent).await.error(404);
    delete(&lease).token(&eye).to(&agent).await.error(404);
    delete(&lease).to(&agent).await.error(401);
    post("/v1/locks/ci%2Fa/break").token(&ci).to(&agent).await.error(403);
    post("/v1/members/n/evict").token(&ci).to(&agent).await.error(403);
    for change in ["ban", "admit"] {
        post(&format!("/v1/keys/{KEY}/{change}")).token(&ci).to(&agent).await.error(403);
    }
    post("/v1/locks/ci%2Fa/break").token(&ops).to(&agent).await.ok();
    delete(&lease).token(&ops).to(&agent).await;
    // The user whose agent it is needs none.
    get("/v1/status").to_socket(&agent).await.ok();
    assert!(agent.metric("hallpass_api_tokens_refused_total").await >= 7.0);
    agent.end().await;
}

const KEY: &str = "sha256:5f0000000000000000000000000000000000000000000000000000000000000a";

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_administers_bans_a_key_and_admits_it() {
    let (secret, text) = token("ops", &[Right::Inspect, Right::Administer], &[]);
    let agent =
        TestAgent::start_with(|directory, options| options.api.tokens = Some(write(directory, "tokens", &text))).await;
    let banned = async || get("/v1/status").token(&secret).to(&agent).await.ok()["banned_keys"].clone();
    let ask = |change: &str| post(&format!("/v1/keys/{KEY}/{change}")).token(&secret);
    assert_eq!(ask("ban").to(&agent).await.ok(), json!({"key": KEY, "banned": true}));
    assert_eq!(banned().await, json!([KEY]));
    let admit = ask("admit").json(&json!({"timeout_ms": 30_000}));
    assert_eq!(admit.to(&agent).await.ok(), json!({"key": KEY, "banned": false}));
    assert_eq!(banned().await, json!([]));
    ask("ban").json(&json!({"for": "ever"})).to(&agent).await.error(400);
    let error = post("/v1/keys/5f/ban").token(&secret).to(&agent).await.error(400);
    assert!(error.contains("'5f' is not a key") && error.contains("64 hexadecimal digits"), "{error}");
    // Without keys a member shows none.
    let members = get("/v1/members").token(&secret).to(&agent).await.ok();
    assert_eq!(members["members"][0]["keys"], json!([]));
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_change_without_a_restart() {
    let (old, old_text) = token("old", &[Right::Inspect], &[]);
    let (new, new_text) = token("new", &[Right::Inspect], &[]);
    let agent =
        TestAgent::start_with(|directory, options| options.api.tokens = Some(write(directory, "tokens", &old_text)))
            .await;
    get("/v1/status").token(&old).to(&agent).await.ok();
    get("/v1/status").token(&new).to(&agent).await.error(401);
    let until_status = async |token: &str, status: u16| {
        let is_answered = async || get("/v1/status").token(token).to(&agent).await.status == status;
        until(&format!("the status is {status}"), is_answered).await;
    };
    write(&agent.directory, "tokens", &new_text);
    until_status(&new, 200).await;
    get("/v1/status").token(&old).to(&agent).await.error(401);
    // A file that is wrong, or gone, allows nothing; one that is right again does.
    write(&agent.directory, "tokens", "[[token]]\nname = 'x'");
    until_status(&new, 401).await;
    write(&agent.directory, "tokens", &new_text);
    until_status(&new, 200).await;
    std::fs::remove_file(agent.directory.join("tokens")).unwrap();
    until_status(&new, 401).await;
    agent.end().await;
}

/// Its rights alone are changed: nothing else tells that it is another file.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_tokens_is_used_again_when_its_rights_are_right_again() {
    use std::os::unix::fs::PermissionsExt;
    let (secret, text) = token("t", &[Right::Inspect], &[]);
    let agent =
        TestAgent::start_with(|directory, options| options.api.tokens = Some(write(directory, "tokens", &text))).await;
    for (mode, status) in [(0o666, 401), (0o600, 200)] {
        std::fs::set_permissions(agent.directory.join("tokens"), std::fs::Permissions::from_mode(mode)).unwrap();
        let is_answered = async || get("/v1/status").token(&secret).to(&agent).await.status == status;
        until(&format!("the status is {status} with {mode:o}"), is_answered).await;
    }
    agent.end().await;
}

/// That includes requests that began before: a waiter gets nothing, and a listener hears no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_taken_back_ends_its_requests() {
    let (old, old_text) = token("old", &[Right::Acquire, Right::Inspect], &[]);
    let (ops, ops_text) = token("ops", &[Right::Acquire, Right::Administer], &[]);
    let both = format!("{old_text}\n{ops_text}");
    let agent =
        TestAgent::start_with(|directory, options| options.api.tokens = Some(write(directory, "tokens", &both))).await;
    let held = post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 60_000})).token(&ops).to(&agent).await.ok();
    let mut events = get("/v1/events").token(&old).header("connection", "close").begin(&agent).await;
    let waits = post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 60_000})).token(&old);
    let (answer, ()) = tokio::join!(waits.to(&agent), async {
        agent.until_metric("hallpass_waiting", 1.0).await;
        write(&agent.directory, "tokens", &ops_text);
    });
    answer.error(401);
    agent.until_metric("hallpass_waiting", 0.0).await;
    let mut told = Vec::new();
    within(events.read_to_end(&mut told)).await.expect("the stream ends");
    // The other one's go on.
    delete(&format!("/v1/leases/{}", held["lease"].as_str().unwrap())).token(&ops).to(&agent).await.ok();
    agent.end().await;
}

/// Its locks pass on when its client has stopped counting on them, however long its lease would have lasted.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_taken_back_loses_its_leases() {
    let rights = [Right::Acquire, Right::Inspect];
    let ((old, old_text), (stays, stays_text)) = (token("old", &rights, &[]), token("stays", &rights, &[]));
    let both = format!("{old_text}\n{stays_text}");
    let agent = TestAgent::start_with(|directory, options| {
        options.ttl = Duration::from_secs(2);
        options.api.tokens = Some(write(directory, "tokens", &both));
    })
    .await;
    let acquire = |lock: &str, token: &str| {
        post(&format!("/v1/locks/{lock}/acquire")).json(&json!({"ttl_ms": 86_400_000})).token(token)
    };
    let other = acquire("b", &stays).to(&agent).await.ok();
    let asked = std::time::Instant::now();
    let held = acquire("a", &old).to(&agent).await.ok();
    let counts_until = asked + Duration::from_millis(held["ttl_ms"].as_u64().unwrap());
    let mut events = get("/v1/events").token(&stays).begin(&agent).await;
    write(&agent.directory, "tokens", &stays_text);
    let granted = within(acquire("a", &stays).to(&agent)).await.ok();
    assert!(std::time::Instant::now() >= counts_until, "it was granted while its client counted on it");
    assert!(granted["fence_number"].as_u64() > held["fence_number"].as_u64());
    read_until(&mut events, "\"lock\":\"a\"").await;
    // Those of the other token are as they were, and the token is another one when it comes again.
    post(&format!("/v1/leases/{}/keepalive", other["lease"].as_str().unwrap())).token(&stays).to(&agent).await.ok();
    write(&agent.directory, "tokens", &both);
    until("it is back", async || get("/v1/status").token(&old).to(&agent).await.status == 200).await;
    assert_eq!(get("/v1/leases").token(&old).to(&agent).await.ok(), json!({"leases": []}));
    agent.end().await;
}

/// As when an editor writes the file in two steps, or a hand makes a mistake in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_missing_for_a_moment_keeps_its_leases() {
    let (secret, text) = token("t", &[Right::Acquire, Right::Inspect], &[]);
    let agent =
        TestAgent::start_with(|directory, options| options.api.tokens = Some(write(directory, "tokens", &text))).await;
    let acquire = post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 86_400_000})).token(&secret);
    let held = acquire.to(&agent).await.ok();
    let until_status = async |status: u16| {
        let is_answered = async || get("/v1/status").token(&secret).to(&agent).await.status == status;
        until(&format!("the status is {status}"), is_answered).await;
    };
    for (wrong, status) in [("[[token]]\nname = 'x'", 401), (&text, 200)] {
        write(&agent.directory, "tokens", wrong);
        until_status(status).await;
    }
    let shown = get(&format!("/v1/leases/{}", held["lease"].as_str().unwrap())).token(&secret).to(&agent).await.ok();
    assert_eq!(shown["locks"][0]["name"], "a");
    // With other rights it is the same token. What it may not acquire any more it does not hold.
    let fewer = text.replace("prefixes = [\"\"]", "prefixes = [\"x/\"]");
    assert_ne!(fewer, text);
    write(&agent.directory, "tokens", &fewer);
    until("its lease is over", async || {
        get("/v1/leases").token(&secret).to(&agent).await.ok() == json!({"leases": []})
    })
    .await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_uses_no_more_than_its_quotas() {
    let rights = [Right::Acquire, Right::Inspect];
    let ((small, small_text), (ops, ops_text)) = (token("small", &rights, &[]), token("ops", &rights, &[]));
    let text = |quotas: &str| format!("{small_text}{quotas}\n{ops_text}");
    let agent = TestAgent::start_with(|directory, options| {
        options.api.tokens = Some(write(directory, "tokens", &text("leases_max = 2\nwaits_max = 1\n")));
    })
    .await;
    let acquire = |lock: &str, token: &str| {
        post(&format!("/v1/locks/{lock}/acquire")).json(&json!({"ttl_ms": 60_000})).token(token)
    };
    let held = acquire("a", &ops).to(&agent).await.ok();
    let lease = acquire("b", &small).to(&agent).await.ok();
    let waits = tokio::spawn({
        let (ask, address) = (acquire("a", &small), agent.address());
        async move { ask.over(TcpStream::connect(address).await.unwrap(), "localhost").await }
    });
    agent.until_uses("a", (1, 1)).await;
    let error = acquire("c", &small).to(&agent).await.error(429);
    assert!(error.contains("'small' may have 2 leases"), "{error}");
    let granted = post("/v3/lease/grant").json(&json!({"TTL": 60})).token(&small).to(&agent).await;
    assert_eq!((granted.status, &granted.json()["code"]), (429, &json!(8)), "ResourceExhausted");
    let under = post("/v1/locks/c/acquire").json(&json!({"lease": lease["lease"]})).token(&small);
    let error = under.to(&agent).await.error(429);
    assert!(error.contains("may wait for locks"), "{error}");
    acquire("c", &ops).to(&agent).await.ok();
    for (sample, value) in [
        ("used{token=\"small\",quota=\"leases\"}", 2.0),
        ("used{token=\"small\",quota=\"waits\"}", 1.0),
        ("quota{token=\"small\",quota=\"leases\"}", 2.0),
        ("refusals_total{token=\"small\",quota=\"leases\"}", 2.0),
        ("used{token=\"ops\",quota=\"leases\"}", 2.0),
    ] {
        assert_eq!(agent.metric(&format!("hallpass_token_{sample}")).await, value, "{sample}");
    }
    // What is given back can be used again. With other quotas it is the same token: who waits goes on.
    write(&agent.directory, "tokens", &text("leases_max = 9\n"));
    until("it may have more", async || acquire("d", &small).to(&agent).await.status == 200).await;
    delete(&format!("/v1/leases/{}", held["lease"].as_str().unwrap())).token(&ops).to(&agent).await.ok();
    within(waits).await.unwrap().ok();
    agent.end().await;
}

/// A stream of events, the messages of a lock, or a watch of etcd's API: each is open for as long as its client likes.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_listens_to_no_more_than_its_quota() {
    let rights = [Right::Acquire, Right::Inspect];
    let ((small, small_text), (ops, ops_text)) = (token("small", &rights, &[]), token("ops", &rights, &[]));
    let text = format!("{small_text}watches_max = 2\n\n{ops_text}");
    let agent =
        TestAgent::start_with(|directory, options| options.api.tokens = Some(write(directory, "tokens", &text))).await;
    let held = post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 60_000})).token(&small).to(&agent).await.ok();
    // A watch of the key of what is held, in gRPC's frame.
    let key = format!("a/{}", held["lease"].as_str().unwrap()).into_bytes();
    let create = [&[0x0a, key.len() as u8 + 2, 0x0a, key.len() as u8], &key[..]].concat();
    let frame = [&[0, 0, 0, 0, create.len() as u8], &create[..]].concat();
    let grpc = |path: &str| post(path).header("content-type", "application/grpc");
    let watch = grpc("/etcdserverpb.Watch/Watch").body(&frame).token(&small);
    let (events, trace) = (get("/v1/events"), get("/v1/locks/a/trace"));
    let used = "hallpass_token_used{token=\"small\",quota=\"watches\"}";
    let watches = watch.begin(&agent).await;
    agent.until_metric(used, 1.0).await;
    let listens = events.clone().token(&small).begin(&agent).await;
    agent.until_metric(used, 2.0).await;
    for refused in [&events, &trace] {
        let error = refused.clone().token(&small).to(&agent).await.error(429);
        assert!(error.contains("'small' may listen to 2 things"), "{error}");
    }
    read_until(&mut watch.begin(&agent).await, "'small' may listen to 2 things").await;
    read_until(&mut events.clone().token(&ops).begin(&agent).await, ": hallpass").await;
    for (sample, value) in [("quota", 2.0), ("refusals_total", 3.0)] {
        let sample = format!("hallpass_token_{sample}{{token=\"small\",quota=\"watches\"}}");
        assert_eq!(agent.metric(&sample).await, value, "{sample}");
    }
    // What is given back can be used again.
    drop(listens);
    agent.until_metric(used, 1.0).await;
    read_until(&mut trace.token(&small).begin(&agent).await, "event: begin").await;
    drop(watches);
    agent.until_metric(used, 0.0).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_sends_no_more_requests_than_its_rate() {
    let (secret, text) = token("slow", &[Right::Acquire, Right::Inspect], &[]);
    let agent = TestAgent::start_with(|directory, options| {
        options.api.tokens = Some(write(directory, "tokens", &format!("{text}rate_max = 1\n")));
    })
    .await;
    let ask = get("/v1/status").token(&secret);
    let mut refused = None;
    until("one comes too fast", async || {
        let answer = ask.to(&agent).await;
        let is_refused = answer.status == 429;
        refused = Some(answer).filter(|_| is_refused);
        is_refused
    })
    .await;
    let refused = refused.unwrap();
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert!(refused.error(429).contains("1 requests a second"));
    let call = || post("/etcdserverpb.Lease/LeaseLeases").header("content-type", "application/grpc").body(&[0; 5]);
    until("a call of gRPC comes too fast", async || {
        call().token(&secret).to(&agent).await.head.contains("grpc-status: 8")
    })
    .await;
    until("it may ask again", async || ask.to(&agent).await.status == 200).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_hears_of_no_leases_but_its_own() {
    let (web, web_text) = token("web", &[Right::Acquire, Right::Inspect], &["web/"]);
    let (ops, ops_text) = token("ops", &[Right::Acquire, Right::Inspect], &[]);
    let both = format!("{web_text}\n{ops_text}");
    let agent =
        TestAgent::start_with(|directory, options| options.api.tokens = Some(write(directory, "tokens", &both))).await;
    let mut events = get("/v1/events").token(&web).begin(&agent).await;
    for (lock, token) in [("secret", &ops), ("web%2F1", &web)] {
        let acquire = post(&format!("/v1/locks/{lock}/acquire")).json(&json!({"ttl_ms": 300})).token(token);
        acquire.to(&agent).await.ok();
    }
    let told = read_until(&mut events, "released").await;
    assert!(told.contains("lease_expired") && !told.contains("secret"), "{told}");
    assert!(!told.contains("token ops"), "{told}");
    agent.end().await;
}

/// etcd's clients are given a name and a password.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_had_by_its_name_with_itself_as_the_password() {
    let (secret, text) = token("ci", &[Right::Acquire], &[]);
    let agent =
        TestAgent::start_with(|directory, options| options.api.tokens = Some(write(directory, "tokens", &text))).await;
    let authenticate =
        |name: &str, password: &str| post("/v3/auth/authenticate").json(&json!({"name": name, "password": password}));
    assert_eq!(authenticate("ci", &secret).to(&agent).await.ok()["token"], secret);
    for (name, password) in [("ci", "guess"), ("other", secret.as_str()), ("", "")] {
        let error = authenticate(name, password).to(&agent).await.error(400);
        assert!(error.contains("invalid user ID or password"), "{error}");
    }
    let open = TestAgent::start().await;
    let error = authenticate("ci", "x").to(&open).await.error(412);
    assert!(error.contains("authentication is not enabled"), "{error}");
    agent.end().await;
    open.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_are_kept_out_of_the_loopback() {
    let agent = TestAgent::start().await;
    let port = agent.address().port();
    // A name that was made to point here.
    for target in ["/", "/v1/status", "/v1/locks"] {
        let error = get(target).host(&format!("evil.example:{port}")).to(&agent).await.error(403);
        assert!(error.contains("evil.example") && error.contains("localhost"), "{error}");
    }
    get("/v1/status").host(&format!("localhost:{port}")).to(&agent).await.ok();
    // A form or a script of another page.
    let acquire = || post("/v1/locks/a/acquire").json(&json!({"ttl_ms": 100}));
    acquire().header("origin", "https://evil.example").to(&agent).await.error(403);
    acquire().header("origin", "null").to(&agent).await.error(403);
    acquire().header("sec-fetch-site", "cross-site").to(&agent).await.error(403);
    let own = format!("http://127.0.0.1:{port}");
    acquire().header("origin", &own).header("sec-fetch-site", "same-origin").to(&agent).await.ok();
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_others_reach_needs_tls_and_tokens() {
    let keys = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (_, text) = token("t", &[Right::Inspect], &[]);
    let tls = |directory: &Scratch| {
        Some((
            write(directory, "cert.pem", &keys.cert.pem()),
            write(directory, "key.pem", &keys.signing_key.serialize_pem()),
        ))
    };
    for (with_tls, with_tokens, lacks) in
        [(false, false, "TLS (api_cert"), (false, true, "TLS (api_cert"), (true, false, "tokens (api_tokens")]
    {
        let directory = Scratch::new("http");
        let mut options = options_in(&directory);
        options.api.listen = Some("0.0.0.0:0".to_owned());
        options.api.tls = tls(&directory).filter(|_| with_tls);
        options.api.tokens = Some(write(&directory, "tokens", &text)).filter(|_| with_tokens);
        let error = TestAgent::start_in(directory, options).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(lacks) && error.lines().count() == 1, "{error}");
    }
    // What cannot be used is said, too.
    let directory = Scratch::new("http");
    let mut options = options_in(&directory);
    options.api.tokens = Some(directory.join("absent"));
    let error = TestAgent::start_in(directory, options).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("absent") && error.contains("token new"), "{error}");
}

/// An agent without a certificate of its own for the API shows its member's. That of another member is not taken for it, and a certificate
/// that replaces it is shown at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_another_agent_is_not_accepted() {
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
    let sign = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec![name.to_owned(), "member.hallpass".to_owned()];
        let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let mut files = Vec::new();
    let (certificate, key) = sign("a");
    let agent = TestAgent::start_with(|directory, options| {
        files = vec![write(directory, "node.pem", &certificate), write(directory, "node.key", &key)];
        options.api.tls = Some((files[0].clone(), files[1].clone()));
        options.api.tls_on_loopback = true;
    })
    .await;
    let port = agent.address().port();
    let connects = async |name: &'static str| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
        let stream = within(TcpStream::connect(("127.0.0.1", port))).await.unwrap();
        let name = ServerName::try_from(name).unwrap();
        within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await.is_ok()
    };
    assert!(connects("a").await);
    for other in ["b", "member.hallpass", "Member.Hallpass"] {
        assert!(!connects(other).await, "{other}");
    }
    // Half of a new pair changes nothing.
    let (certificate, key) = sign("b");
    std::fs::write(&files[0], &certificate).unwrap();
    assert!(connects("a").await && !connects("b").await);
    std::fs::write(&files[1], &key).unwrap();
    assert!(connects("b").await && !connects("a").await);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_tokens_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Scratch::new("http");
    let (_, text) = token("t", &[Right::Inspect], &[]);
    let path = write(&directory, "tokens", &text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let mut options = options_in(&directory);
    options.api.tokens = Some(path);
    let error = TestAgent::start_in(directory, options).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("other users may write"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_over_tls_is_answered_with_a_token() {
    let keys = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = keys.cert.pem();
    let (secret, text) = token("t", &[Right::Inspect], &[]);
    let agent = TestAgent::start_with(|directory, options| {
        options.api.listen = Some("0.0.0.0:0".to_owned());
        options.api.tls =
            Some((write(directory, "cert.pem", &pem), write(directory, "key.pem", &keys.signing_key.serialize_pem())));
        options.api.tokens = Some(write(directory, "tokens", &text));
    })
    .await;
    let port = agent.address().port();
    let ask = async |ask: Ask| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let stream = within(TcpStream::connect(("127.0.0.1", port))).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap();
        ask.over(stream, "api.example.org").await
    };
    // Off loopback any name is right: the token counts.
    ask(get("/v1/status").token(&secret)).await.ok();
    ask(get("/v1/status")).await.error(401);
    assert_eq!(ask(get("/healthz")).await.status, 200);
    agent.end().await;
}
