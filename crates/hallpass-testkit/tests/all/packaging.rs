//! What is shipped beside the program names its parts by versions.

use hallpass_testkit::repository::{files, read};

/// The values of all lines that begin with one of these words.
fn values(path: &str, words: &[&str]) -> Vec<String> {
    let text = read(path);
    let value =
        |line: &str| words.iter().find_map(|word| line.trim().strip_prefix(word)).map(|rest| rest.trim().to_owned());
    text.lines().filter_map(value).collect()
}

#[test]
fn images_are_named_by_versions_and_the_programs_is_that_of_this_release() {
    let manifest = read("Cargo.toml");
    let version =
        manifest.lines().find_map(|line| line.strip_prefix("version = ")).expect("a version").trim_matches('"');
    assert_eq!(values("packaging/kubernetes/member.yaml", &["image:"]), [format!("hallpass:{version}")]);
    let bases = values("packaging/Containerfile", &["ARG RUST=", "ARG DEBIAN="]);
    let has_version = |image: &String| image.rsplit_once(':').is_some_and(|(_, tag)| tag.matches('.').count() >= 1);
    assert!(bases.len() == 2 && bases.iter().all(has_version), "{bases:?}");
}

#[test]
fn npm_packages_are_named_by_exact_versions() {
    let mut checked = 0;
    for path in files().into_iter().filter(|path| path.ends_with("/package.json")) {
        let text = read(&path);
        let (_, packages) = text.split_once("\"devDependencies\"").unwrap_or_else(|| panic!("{path}"));
        assert!(!packages.contains(['^', '~', '*']), "{path}: a range of versions");
        assert!(files().contains(&path.replace("package.json", "package-lock.json")), "{path}: no lock file");
        checked += 1;
    }
    assert_eq!(checked, 2);
}

#[test]
fn the_units_bound_memory_and_write_no_core_files() {
    for unit in ["hallpass.service", "hallpass.user.service"] {
        let found = values(&format!("packaging/systemd/{unit}"), &["MemoryMax=", "LimitCORE="]);
        assert_eq!(found, ["512M", "0"], "{unit}");
    }
    // A user's own unit may not ask for that.
    let score = values("packaging/systemd/hallpass.service", &["OOMScoreAdjust="]);
    assert_eq!(score, ["-250"], "others go first, and not at any price");
}

/// Members and labelled clients reach the pods, and nobody else. Each member has its own keys, and no more rights than it needs.
#[test]
fn the_manifests_close_what_need_not_be_open() {
    let shared = read("packaging/kubernetes/hallpass.yaml");
    let policy = shared.split("\n---").find(|part| part.contains("kind: NetworkPolicy")).expect("a network policy");
    let member = read("packaging/kubernetes/member.yaml");
    for (text, lines) in [
        (
            policy,
            &[
                "podSelector:\n    matchLabels: {app: hallpass}",
                "policyTypes: [Ingress, Egress]",
                "hallpass-client: \"true\"",
            ][..],
        ),
        (
            &member,
            &[
                "secretName: hallpass-MEMBER-keys, defaultMode: 0440",
                "runAsNonRoot: true",
                "readOnlyRootFilesystem: true",
                "capabilities: {drop: [ALL]}",
                "automountServiceAccountToken: false",
                "limits: {memory: 256Mi}",
            ],
        ),
    ] {
        for line in lines {
            assert!(text.contains(line), "{line}");
        }
    }
    // Every rule names who it is for.
    let rules = policy.matches("- from:").count() + policy.matches("- to:").count();
    assert_eq!((rules, policy.matches("podSelector:").count()), (4, 1 + 4));
    assert!(!policy.contains("{}\n      ports") && !policy.contains("podSelector: {}"));
}
