//! Dependencies point one way, and the core depends on nothing.

use std::process::Command;

use serde_json::Value;

/// Each crate with what it may depend on, of ours and of others'.
const ALLOWED: &[(&str, &[&str])] = &[
    ("hallpass-core", &[]),
    ("hallpass-sim", &["hallpass-core", "serde", "serde_json"]),
    ("hallpass-check", &["hallpass-core", "hallpass-sim", "foldhash"]),
    ("hallpass-lab", &["hallpass-core", "hallpass-sim", "hallpass-check", "serde", "serde_json"]),
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

fn dependencies(package: &Value) -> Vec<String> {
    let all = package["dependencies"].as_array().expect("a list of dependencies");
    let normal = all.iter().filter(|dependency| dependency["kind"].is_null());
    normal.map(|dependency| dependency["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn crates_depend_only_on_what_they_may() {
    let packages = packages();
    for (name, allowed) in ALLOWED {
        let package = packages.iter().find(|package| package["name"] == *name).expect("the crate exists");
        for dependency in dependencies(package) {
            assert!(allowed.contains(&dependency.as_str()), "{name} may not depend on {dependency}");
        }
    }
}

#[test]
fn no_crate_of_the_laboratory_sees_an_async_runtime() {
    let laboratory = |package: &&Value| ALLOWED.iter().any(|(name, _)| package["name"] == *name);
    for package in packages().iter().filter(laboratory) {
        for forbidden in ["tokio", "rand", "mio", "async-std"] {
            assert!(
                !dependencies(package).contains(&forbidden.to_owned()),
                "{} depends on {forbidden}",
                package["name"]
            );
        }
    }
}
