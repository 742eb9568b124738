//! The program as users see it: its commands, its pages, real processes, and what happens when one of them is killed.
//!
//! One program for all of these tests: it is built and linked once.

mod agents;
mod api;
mod audit;
mod bench;
mod cli;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod doors;
#[cfg(target_os = "linux")]
mod elsewhere;
mod ending;
mod explain;
mod files;
#[cfg(target_os = "linux")]
mod inherited;
mod init;
mod install;
mod lab_serve;
#[cfg(target_os = "linux")]
mod machine;
mod pages;
mod place;
#[cfg(target_os = "linux")]
mod ports;
mod private_agent;
mod processes;
mod run;
mod settings;
#[cfg(target_os = "linux")]
mod supervisor;
mod user;
#[cfg(target_os = "linux")]
mod views;

use serde_json::Value;

use user::User;

#[test]
fn demo_ends_by_itself_without_a_violation() {
    let user = User::new("demo");
    let ran = user.run("demo --seconds 1 --json");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let expected =
        ["nodes", "protocol", "seconds", "grants", "messages", "messages_per_grant", "grants_per_second", "violations"];
    assert_eq!(keys, expected);
    assert_eq!((&report["violations"], &report["nodes"]), (&Value::from(0), &Value::from(3)));
    assert!(report["grants"].as_u64().unwrap() > 0);
    assert!(user.run("demo --seconds 1 --nodes 2 --protocol ricart-agrawala").out.contains("violations  none"));
}
