//! The audit lines in the logs of real agents.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::user::Ran;
use crate::views::Group;

/// The line as the page has it: with a user and a process of its own.
fn as_on_the_page(line: &str) -> String {
    let (_, line) = line.split_once("audit: ").expect("an audit line");
    let (before, rest) = line.split_once("who=\"").expect("it says who");
    let (who, rest) = rest.split_once('"').expect("a quoted name");
    let uid = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap());
    assert!(who.starts_with("user ") && who.contains(&uid.to_string()), "{who}");
    let (from, rest) = rest.split_once("pid ").expect("it says which process");
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("audit: {before}who=\"user ops (1000)\"{from}pid 4711{rest}")
}

/// The member where it was asked for says who did; the steward and the holder's member say which member it was.
#[test]
fn a_break_is_noted_on_every_member_that_carries_it_out() {
    let group = Group::of_three("audit", "1s");
    let (holder, _) = group.hold("a");
    assert_eq!(group.run("b", "break x {}").code, 0);
    Ran::of(holder.wait_with_output().unwrap()).failed(76, "an operator has broken it");
    let line = group.logged("b", &["audit: break", "result=\"done\""]);
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md")).unwrap();
    let example = as_on_the_page(&line);
    assert!(page.contains(&example), "the page has no {example}");
    let steward = group.steward("b");
    group.assert_logged(&steward, &["audit: break", "what=\"x\"", "who=\"member b\"", "result=\"begun\""]);
    let by = format!("who=\"member {steward}\"");
    group.assert_logged("a", &["audit: break", "what=\"x\"", &by, "result=\"begun for holders here\""]);
    assert_eq!(group.run("c", "class set reports/ naimi-trehel {}").code, 0);
    group.assert_logged("c", &["audit: class set", "what=\"reports/ naimi-trehel\"", "pid", "result=\"done\""]);
    group.assert_logged(&group.steward("c"), &["audit: class set", "reports/ naimi-trehel", "who=\"member c\""]);
}

fn ask(port: u16, method: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n");
    stream.write_all(format!("{head}authorization: Bearer {token}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Nobody fills a disk with them.
#[test]
fn refused_rights_are_noted_a_few_times_and_counted() {
    let mut group = Group::new("refused", "1s");
    let made = |line: &str| group.user.run(line).out.trim().to_owned();
    let ci = made("token new --name ci --rights acquire,inspect --file tokens");
    let ops = made("token new --name ops --rights inspect,administer --file tokens");
    let port = hallpass_testkit::free_port();
    group.start_with("a", &format!("--api 127.0.0.1:{port} --api-tokens tokens"));
    group.wait_until_open("a");
    for number in 0..50 {
        assert!(ask(port, "POST", &format!("/v1/locks/{number}/break"), &ci).contains(" 403 "));
        assert!(ask(port, "GET", "/v1/status", &format!("guess{number}")).contains(" 401 "));
    }
    let line = group.logged("a", &["audit: refused", "POST /v1/locks/0/break"]);
    assert!(line.contains("who=\"token ci\" from=\"tcp 127.0.0.1:") && line.contains("result=\"refused\""), "{line}");
    group.assert_logged("a", &["audit: refused", "a token that is not valid", "who=\"anybody\"", "tcp 127.0.0.1:"]);
    let log = fs::read_to_string(group.log_of("a")).unwrap();
    let refused = log.lines().filter(|line| line.contains("audit: refused")).count();
    assert!(refused <= 20, "{refused} lines for 100 refusals");
    // What is allowed, and takes something from others, has a line each.
    let held = ask(port, "POST", "/v1/locks/x/acquire", &ci);
    let lease = held.split("\"lease\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a lease");
    assert!(ask(port, "DELETE", &format!("/v1/leases/{lease}"), &ops).contains(" 200 "));
    let what = format!("what=\"lease {lease} of token ci\"");
    group.assert_logged("a", &["audit: end lease", &what, "who=\"token ops\"", "result=\"done\""]);
}
