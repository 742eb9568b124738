//! The laboratory over HTTP: the same answers as on the command line, to clients that may ask, and as a folder of files.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use hallpass_testkit::StopOnDrop;

/// A server of its own, which ends with the test.
struct Server {
    address: String,
    _child: StopOnDrop,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hallpass"))
            .args(["lab", "serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("hallpass starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output is ours"))
            .read_line(&mut line)
            .expect("it says where it is");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
        Self { address: address.to_owned(), _child: StopOnDrop(child) }
    }

    /// The status and the body.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let host = if headers.contains("Host:") { String::new() } else { format!("Host: {}\r\n", self.address) };
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer comes");
        let text = String::from_utf8(answer).expect("the answer is text");
        let (head, rest) = text.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let body =
            if head.to_lowercase().contains("transfer-encoding: chunked") { unchunk(rest) } else { rest.to_owned() };
        (status, body)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "", "")
    }
}

fn unchunk(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
        whole.push_str(&rest[..size]);
        text = rest[size..].trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    whole
}

fn hallpass(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hallpass")).args(args).output().expect("hallpass runs")
}

fn stdout(args: &[&str]) -> String {
    String::from_utf8(hallpass(args).stdout).expect("text")
}

#[test]
fn one_seed_is_the_same_picture_on_the_page_and_on_the_command_line() {
    let server = Server::start();
    let run =
        ["--protocol", "ricart-agrawala", "--nodes", "4", "--entries", "12", "--seed", "7", "--latency", "exp:1ms"];
    let query = "protocol=ricart-agrawala&nodes=4&entries=12&seed=7&latency=exp%3A1ms";
    for (format, file) in [("json", "json"), ("svg", "svg"), ("text", "txt")] {
        let printed = stdout(&[&["lab", "trace", "--format", format], &run[..]].concat());
        assert_eq!(server.get(&format!("/api/trace.{file}?{query}")), (200, printed.clone()), "{format}");
        if format == "json" {
            let (_, document) = server.get(&format!("/api/run?{query}"));
            assert!(document.contains(&printed), "the page's run is not the same to the byte");
        }
    }
    let scenario = stdout(&["lab", "trace", "--scenario", "cmu-example", "--format", "svg"]);
    assert_eq!(server.get("/api/trace.svg?scenario=cmu-example"), (200, scenario));
}

#[test]
fn what_is_played_can_be_exported_and_played_by_the_tests() {
    let server = Server::start();
    let text = "title By hand\nprotocol ricart-agrawala\nnodes 1 2\n\nask 1\n----\n\nask 2\n----\n\ndeliver REQUEST 1 -> 2\n----\n\ncrash 2\n----\n";
    let (status, body) = server.ask("POST", "/api/play", "", text);
    assert_eq!(status, 200, "{body}");
    let document: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    let exported = document["text"].as_str().expect("the scenario");
    let file = std::env::temp_dir().join(format!("hallpass-played-{}.txt", std::process::id()));
    std::fs::write(&file, exported).unwrap();
    let played = hallpass(&["lab", "trace", "--scenario", file.to_str().unwrap(), "--format", "json"]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(played.status.code(), Some(0), "the exported scenario does not come out as it says");
    assert!(body.contains(String::from_utf8(played.stdout).unwrap().trim_end()), "it plays to another outcome");
    let commands = document["next"].as_array().expect("steps").iter().map(|step| step["command"].as_str().unwrap());
    assert!(commands.clone().any(|command| command == "cancel 1"), "{:?}", commands.collect::<Vec<_>>());
}

#[test]
fn strangers_and_nonsense_are_sent_away() {
    let server = Server::start();
    assert_eq!(server.ask("GET", "/api/about", "Host: evil.example\r\n", "").0, 421);
    assert_eq!(server.ask("GET", "/api/about", "Sec-Fetch-Site: cross-site\r\n", "").0, 403);
    assert_eq!(server.ask("GET", "/", "Host: localhost\r\n", "").0, 200);
    assert_eq!(server.get("/../Cargo.toml").0, 404);
    for path in [
        "run?protocol=paxos",
        "run?nodes=1001",
        "run?entries=0",
        "trap?id=T31",
        "scenario?name=x",
        "views?nodes=99",
        "run?%ff",
        "views?faults=flood:1",
    ] {
        let (status, body) = server.get(&format!("/api/{path}"));
        assert_eq!(status, 400, "{path}: {body}");
        assert!(body.contains("error"), "{path}: {body}");
    }
    assert_eq!(server.ask("POST", "/api/play", "", "explore entries=2\n").0, 400);
    assert_eq!(server.ask("POST", "/api/play", "", &"x".repeat(300_000)).0, 413);
}

#[test]
fn explorations_tell_how_far_they_are_and_give_the_way_to_a_violation() {
    let server = Server::start();
    let (status, body) = server.get("/api/check?protocol=central&nodes=2&entries=1&as-printed=T22");
    assert_eq!(status, 200);
    assert!(body.contains("event: done") && body.contains("VIOLATION"), "{body}");
    let (_, refused) = server.get("/api/check?protocol=central&nodes=6");
    assert!(refused.contains("event: failed") && refused.contains("at most 5 nodes"), "{refused}");
    let (_, fits) = server.get("/api/calculate?nodes=3&load=0.1");
    assert!(fits.contains("event: done") && fits.contains("\"keeps_up\":true"), "{fits}");
}

#[test]
fn a_violation_says_where_it_can_be_seen() {
    let text = stdout(&[
        "lab",
        "check",
        "--protocol",
        "token",
        "--nodes",
        "2",
        "--entries",
        "2",
        "--faults",
        "dup:1",
        "--option",
        "as-printed=T20",
    ]);
    let link = text.lines().find(|line| line.contains("/#check?")).expect("a link");
    assert_eq!(
        link.trim(),
        "http://127.0.0.1:8700/#check?protocol=token&nodes=2&entries=2&faults=dup:1&as-printed=T20"
    );
    let server = Server::start();
    let (_, found) = server.get(&format!("/api/check?{}", link.split('?').nth(1).unwrap()));
    assert!(found.contains("\"violation\": \"fence"), "{found}");
}

#[test]
fn a_folder_of_files_has_every_tour_trap_and_scenario() {
    let folder = std::env::temp_dir().join(format!("hallpass-export-{}", std::process::id()));
    let output = hallpass(&["lab", "serve", "--export", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let has = |name: &str| folder.join(name).is_file();
    assert!(has("index.html") && has("main.js") && has("data/about.json") && has("data/trap_id_T30.json"));
    assert!(has("data/scenario_name_cmu-example.json") && has("data/run_protocol_raymond.json"));
    assert!(std::fs::read_to_string(folder.join("index.html")).unwrap().contains("data-static"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Says why a test is not run; where nothing may be left out that is a failure.
fn skip(why: &str) {
    println!("SKIPPED: {why}");
    assert!(std::env::var_os("CI").is_none(), "{why}");
}

fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name))).find(|file| file.is_file())
}

/// Every part of the page in a real browser: `crates/hallpass-lab-web/browser` has the test itself. It takes two minutes, so it is run only
/// where `HALLPASS_LONG_TESTS` is set: `.ci/full` sets it.
#[test]
fn the_page_works_in_a_browser() {
    if std::env::var_os("HALLPASS_LONG_TESTS").is_none() {
        println!("SKIPPED: HALLPASS_LONG_TESTS is not set");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hallpass-lab-web/browser");
    let Some(browser) = browser() else { return skip("there is no chromium") };
    if Command::new("node").arg("--version").output().is_err() {
        return skip("there is no node");
    }
    if !folder.join("node_modules/playwright-core").is_dir() {
        return skip("run 'npm ci' in crates/hallpass-lab-web/browser first");
    }
    let server = Server::start();
    // As with other recorded results: the flag writes what is seen now.
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/generated/lab");
    let rewrite = std::env::var_os("HALLPASS_REWRITE").is_some();
    let status = Command::new("node")
        .arg("test.mjs")
        .arg(format!("http://{}/", server.address))
        .args(rewrite.then_some(["--screenshots".as_ref(), pictures.as_os_str()]).into_iter().flatten())
        .env("BROWSER", browser)
        .current_dir(folder)
        .status()
        .expect("node runs");
    assert!(status.success(), "the page does not work; see above");
}
