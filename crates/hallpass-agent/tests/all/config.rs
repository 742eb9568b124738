//! The configuration file: what is wrong in it is found when it is read, and told with its line.

use std::collections::BTreeSet;
use std::time::Duration;

use hallpass_agent::config::{Config, check_socket};

/// Asserts that a configuration is refused for this line, with all of these texts.
#[track_caller]
fn refused(text: &str, line: usize, why: &[&str]) {
    let error = Config::parse(text).expect_err(text);
    let shown = error.to_string();
    assert_eq!(error.line, line, "{text:?}: {shown}");
    assert!(shown.lines().count() == 1, "{shown:?}");
    assert!(why.iter().all(|part| shown.contains(part)), "{text:?}: {shown}");
}

#[test]
fn a_session_is_a_duration_within_limits() {
    assert_eq!(Config::parse("ttl = '1.5s'").unwrap().ttl, Some(Duration::from_millis(1500)));
    refused("group = 'g'\nttl = '5'\n", 2, &["'5'", "duration such as"]);
    refused("ttl = 5", 1, &["string"]);
    refused("ttl = '10ms'", 1, &["10ms", "500ms to 60m"]);
    refused("ttl = '2h'", 1, &["2h", "500ms to 60m"]);
}

#[test]
fn an_address_has_a_host_and_a_port() {
    for good in ["127.0.0.1:7400", "[::]:7400", "host.example:1", "0.0.0.0:0", "localhost:65535"] {
        assert_eq!(Config::parse(&format!("listen = '{good}'")).unwrap().listen.as_deref(), Some(good));
    }
    for bad in
        ["7400", "host", "host:", "host:http", "host:65536", "host:-1", ":7400", "::1:7400", "[::1]", "", "a b:1"]
    {
        for key in ["listen", "advertise"] {
            refused(&format!("name = 'n'\n{key} = '{bad}'"), 2, &[bad]);
        }
        refused(&format!("name = 'n'\npeers = [\n  'a@host:1',\n  '{bad}',\n]"), 2, &[bad]);
    }
    // Only one's own may be any port that is free, and only members' addresses have names.
    refused("peers = ['host:0']", 1, &["host:0"]);
    refused("advertise = 'host:0'", 1, &["host:0"]);
    refused("peers = ['@host:1']", 1, &["name"]);
    refused("listen = 'a@host:1'", 1, &["a@host"]);
    refused("listen = '::1:7400'", 1, &["[::1]:7400"]);
}

#[test]
fn an_unknown_key_brings_the_one_that_was_meant() {
    refused("group = 'g'\nlisen = 'x:1'\n", 2, &["'lisen'", "did you mean 'listen'?"]);
    refused("local-streak = 3", 1, &["'local_streak'"]);
    refused("[[class]]\nprefx = 'a/'\nprotocol = 'token'", 2, &["'prefx'", "'prefix'"]);
    refused("colour = 'red'", 1, &["'colour'", "group", "socket_group"]);
    refused("'a` b' = 1", 1, &["'a` b'"]);
}

#[test]
fn paths_are_whole() {
    for key in ["data", "keys", "socket"] {
        refused(&format!("{key} = ''"), 1, &["empty"]);
        refused(&format!("{key} = '~/hallpass'"), 1, &["~", "whole path"]);
    }
    let relative = Config::parse("data = 'd'\nkeys = '/k'").unwrap().relative_to("/etc/hallpass".as_ref());
    assert_eq!((relative.data, relative.keys), (Some("/etc/hallpass/d".into()), Some("/k".into())));
}

#[test]
fn a_socket_that_the_system_would_not_take_is_refused() {
    let of_length = |bytes: usize| format!("/{}", "s".repeat(bytes - 1));
    assert_eq!(check_socket(of_length(100).as_ref()), Ok(()));
    let why = check_socket(of_length(120).as_ref()).unwrap_err();
    assert!(why.contains("120 bytes") && why.contains("shorter"), "{why}");
    assert!(check_socket("/run/a\0b".as_ref()).is_err());
    if cfg!(target_os = "linux") {
        // As the system itself has it.
        for bytes in [107, 108] {
            let path = of_length(bytes);
            let possible = std::os::unix::net::SocketAddr::from_pathname(&path).is_ok();
            assert_eq!(check_socket(path.as_ref()).is_ok(), possible, "{bytes}");
        }
    }
}

#[test]
fn a_group_of_users_is_a_name_or_a_number() {
    for good in ["wheel", "1000", "domain users", "dev-ops_2"] {
        assert_eq!(Config::parse(&format!("socket_group = '{good}'")).unwrap().socket_group.as_deref(), Some(good));
    }
    for bad in ["", "a:b", "a/b", " a", "4294967296", "4294967295"] {
        refused(&format!("socket_group = '{bad}'"), 1, &["group"]);
    }
    refused("socket_group = 1000", 1, &["string"]);
}

#[test]
fn nobody_may_hold_a_lock_no_times_in_a_row() {
    refused("local_streak = 0", 1, &["0"]);
}

/// The page that explains every key.
fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    std::fs::read_to_string(path).expect("the page is there")
}

#[test]
fn every_key_is_documented_and_nothing_else() {
    // Whatever is like no key brings the list of all.
    let all = Config::parse("zzz = 1").unwrap_err().message;
    let keys: BTreeSet<&str> = all.rsplit_once("there are ").expect("a list").1.split(", ").collect();
    assert!(keys.contains("group") && keys.contains("class"), "{keys:?}");
    let page = page();
    let documented = page.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).collect();
    assert_eq!(keys, documented);
    for key in keys {
        let section = page.split_once(&format!("### `{key}`\n")).unwrap().1.split("\n#").next().unwrap();
        assert!(section.contains("Default:"), "{key} has no default");
    }
}

#[test]
fn the_example_of_the_page_has_every_key() {
    let page = page();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let config = Config::parse(example).unwrap();
    // One that founds a group does not join another.
    let config = Config::parse(&format!("join = ['d.example.org:7400']\nexpect = 3\n{example}")).unwrap_or(config);
    let unset = format!("{config:?}");
    assert!(!unset.contains("None") && !config.classes.is_empty(), "a key is missing in the example: {unset}");
}
