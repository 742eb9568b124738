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
}
