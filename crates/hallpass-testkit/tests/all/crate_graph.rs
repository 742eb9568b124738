//! Dependencies point one way, and what must stay pure depends on nothing.

use std::process::Command;

use serde_json::Value;

/// Every crate of the workspace, with the others of the workspace that it may depend on.
const OURS: &[(&str, &[&str])] = &[
    ("hallpass-core", &[]),
    ("hallpass-node", &["hallpass-core"]),
    ("hallpass-chart", &[]),
    ("hallpass-page", &[]),
    ("hallpass-sim", &["hallpass-core", "hallpass-node", "hallpass-page"]),
    ("hallpass-check", &["hallpass-core", "hallpass-sim"]),
    ("hallpass-lab", &["hallpass-core", "hallpass-node", "hallpass-sim", "hallpass-check", "hallpass-chart"]),
    ("hallpass-lab-web", &["hallpass-core", "hallpass-page", "hallpass-sim", "hallpass-lab"]),
    ("hallpass", &["hallpass-core", "hallpass-node"]),
    ("hallpass-agent", &["hallpass", "hallpass-core", "hallpass-node", "hallpass-page"]),
    (
        "hallpass-cli",
        &[
            "hallpass-core",
            "hallpass-node",
            "hallpass-sim",
            "hallpass-check",
            "hallpass-lab",
            "hallpass-lab-web",
            "hallpass",
            "hallpass-agent",
        ],
    ),
    ("hallpass-bench", &["hallpass", "hallpass-agent", "hallpass-chart"]),
    // It sees the program from outside only; of the core it takes the random generator.
    ("hallpass-chaos", &["hallpass-core"]),
    (TESTKIT, &[]),
];

/// What tests share. Every crate may use it in its tests, and in nothing else.
const TESTKIT: &str = "hallpass-testkit";

/// Crates that read no clock, no socket and no chance, with everything from elsewhere that they may depend on.
const DETERMINISTIC: &[(&str, &[&str])] = &[
    ("hallpass-core", &[]),
    // Consensus: its one source of chance, the length of election timeouts, is given a single value to choose from.
    ("hallpass-node", &["raft", "slog"]),
    ("hallpass-chart", &[]),
    ("hallpass-page", &[]),
    ("hallpass-sim", &["serde", "serde_json"]),
    ("hallpass-check", &["foldhash"]),
    ("hallpass-lab", &["serde", "serde_json"]),
];

fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

fn name(of: &Value) -> &str {
    of["name"].as_str().expect("a name")
}

/// What a crate depends on: when it runs or builds, or, with `tests`, in its tests too.
fn dependencies(package: &Value, tests: bool) -> Vec<&str> {
    let all = package["dependencies"].as_array().expect("a list of dependencies");
    all.iter().filter(|dependency| tests || dependency["kind"] != "dev").map(name).collect()
}

fn allowed<'a>(list: &'a [(&str, &[&'static str])], package: &Value) -> Option<&'a [&'static str]> {
    list.iter().find(|(listed, _)| *listed == name(package)).map(|(_, allowed)| *allowed)
}

#[test]
fn dependencies_within_the_workspace_point_one_way() {
    for package in packages() {
        let allowed =
            allowed(OURS, &package).unwrap_or_else(|| panic!("{} is not in this test's list", name(&package)));
        assert!(
            !dependencies(&package, false).contains(&TESTKIT),
            "{} may use {TESTKIT} in tests only",
            name(&package)
        );
        for dependency in dependencies(&package, true).into_iter().filter(|dependency| *dependency != TESTKIT) {
            let ours = OURS.iter().any(|(listed, _)| *listed == dependency);
            assert!(!ours || allowed.contains(&dependency), "{} may not depend on {dependency}", name(&package));
        }
    }
}

#[test]
fn deterministic_crates_depend_on_nothing_that_is_not() {
    for package in packages() {
        let Some(allowed) = allowed(DETERMINISTIC, &package) else { continue };
        for dependency in dependencies(&package, false) {
            let ours = OURS.iter().any(|(listed, _)| *listed == dependency);
            assert!(ours || allowed.contains(&dependency), "{} may not depend on {dependency}", name(&package));
        }
    }
}

#[test]
fn the_order_has_no_cycle() {
    // Listed so that each crate comes after all that it may depend on.
    for (index, (crate_name, allowed)) in OURS.iter().enumerate() {
        for dependency in *allowed {
            let before = OURS[..index].iter().any(|(listed, _)| listed == dependency);
            assert!(before, "{crate_name} is listed before {dependency}, which it may depend on");
        }
    }
}
