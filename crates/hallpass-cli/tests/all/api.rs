//! The agent's API from the command line: flags, tokens, and the examples of its page.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use hallpass_testkit::{Scratch, without_settings};
use serde_json::Value;

/// A directory for one test.
struct TestDirectory(Scratch);

impl TestDirectory {
    fn new(name: &str) -> Self {
        Self(Scratch::new(name))
    }

    fn prepare(&self, command: &mut Command) -> Output {
        command.current_dir(&self.0).stdin(Stdio::null());
        without_settings(command).output().expect("it runs")
    }

    fn hallpass(&self, line: &str) -> Output {
        self.prepare(Command::new(env!("CARGO_BIN_EXE_hallpass")).args(line.split_whitespace()))
    }

    #[track_caller]
    fn run(&self, line: &str) -> String {
        let Output { status, stdout, stderr } = self.hallpass(line);
        assert!(status.success(), "{line}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    #[track_caller]
    fn refused(&self, line: &str, part: &str) {
        let Output { status, stderr, .. } = self.hallpass(line);
        let error = String::from_utf8(stderr).unwrap();
        let last = error.lines().last().unwrap_or_default();
        assert!(status.code() == Some(64) && last.contains(part), "{line}: {status}: {error}");
    }
}

#[test]
fn a_token_is_printed_once_and_stored_as_a_hash() {
    let directory = TestDirectory::new("token");
    let secret =
        directory.run("token new --name ci --rights acquire,inspect --prefix ci/ --prefix tmp/ --file tokens.toml");
    let secret = secret.trim();
    assert!(secret.starts_with("hallpass_") && secret.len() == 9 + 64, "{secret}");
    let file = directory.0.join("tokens.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&secret[9..]), "the secret is not in the file");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let line = "token new --name ops --rights administer --leases-max 5 --watches-max 6 --rate-max 7 --file tokens.toml --json";
    let second: Value = serde_json::from_str(&directory.run(line)).unwrap();
    assert_ne!(second["token"], secret);
    let tokens = hallpass_agent::tokens::Tokens::parse(&fs::read_to_string(&file).unwrap()).unwrap();
    let found = tokens.find(secret).expect("the first is still there");
    assert!(found.may(hallpass_agent::tokens::Right::Acquire, "tmp/x"));
    assert_eq!(
        found.quotas(),
        hallpass_agent::tokens::Quotas::default(),
        "a file without quotas is as valid as before"
    );
    let quotas = tokens.find(second["token"].as_str().unwrap()).unwrap().quotas();
    let quotas = [quotas.leases_max, quotas.waits_max, quotas.watches_max, quotas.rate_max];
    assert_eq!(quotas.map(|max| max.map(|max| max.get())), [Some(5), None, Some(6), Some(7)]);
    directory.refused("token new --name y --rights inspect --rate-max 0 --file tokens.toml", "--rate-max");
    directory.refused("token new --name ci --rights inspect --file tokens.toml", "already");
    directory.refused("token new --name x --rights fly --file tokens.toml", "unknown right 'fly'");
    directory.refused("token new --name x --rights inspect", "--file");
}

#[test]
fn an_api_that_others_reach_needs_more() {
    let directory = TestDirectory::new("exposed");
    let agent = "agent --name a --data d --socket a.sock";
    directory.refused(&format!("{agent} --api 0.0.0.0:0"), "reachable from other machines");
    directory.refused(&format!("{agent} --api 0.0.0.0:0 --api-cert c.pem"), "--api-key");
    directory.refused(&format!("{agent} --api 127.0.0.1:0 --api-tokens absent"), "token new");
    directory.refused(&format!("{agent} --api nowhere"), "host:port");
}

/// The examples of the page, one after the other, as a reader types them; on a port of the test's own.
#[test]
fn the_examples_of_the_page_work() {
    if Command::new("curl").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "curl is needed to run the page's examples");
        println!("SKIPPED: there is no curl");
        return;
    }
    let directory = TestDirectory::new("page");
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md")).unwrap();
    let blocks: Vec<&str> = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 5, "{blocks:?}");
    let port = hallpass_testkit::free_port();
    let script = format!(
        "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{}",
        blocks.concat().replace(":7500", &format!(":{port}"))
    );
    let script = script.replace("curl -s ", "curl -sS --fail-with-body --max-time 60 ");
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_hallpass"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let Output { status, stdout, stderr } = directory.prepare(
        Command::new("timeout").args(["120", "bash", "-c", &script]).env("PATH", path).env("HALLPASS_LOG", "warn"),
    );
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{status}\n{out}\n{err}");
    for part in [
        "\"lock\":\"nightly\"",
        "\"mode\":\"shared\"",
        "\"released\":[",
        "\"view\":\"open\"",
        ": hallpass",
        "hallpass_grants_total 2",
    ] {
        assert!(out.contains(part), "no {part}:\n{out}\n{err}");
    }
}
