//! docs/track-record.md names tests that exist, and counts what it lists.

use std::collections::BTreeMap;

use hallpass_testkit::repository::{files, read};

/// A row of the list.
#[derive(Debug)]
struct Bug {
    number: String,
    kind: String,
    part: String,
    found_by: String,
    /// A crate, and the name of a function in it.
    tests: Vec<(String, String)>,
}

/// The rows of all tables, without their heads.
fn rows(page: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    page.lines().filter(|line| line.starts_with("| ")).map(cells).collect()
}

fn bugs(page: &str) -> Vec<Bug> {
    let (_, list) = page.split_once("## The list").expect("the page has a list");
    let bug = |cells: &Vec<String>| {
        let [number, kind, part, _, found_by, _, _, tests] = &cells[..] else { panic!("not a bug: {cells:?}") };
        let name = |test: &str| {
            let (krate, name) = test.trim_matches('`').split_once("::").expect("a test has a crate in front");
            (krate.to_owned(), name.to_owned())
        };
        let tests = if tests == "none" { Vec::new() } else { tests.split(", ").map(name).collect() };
        let [number, kind, part, found_by] = [number, kind, part, found_by].map(String::clone);
        Bug { number, kind, part, found_by, tests }
    };
    rows(list).iter().skip(1).map(bug).collect()
}

/// All Rust code of a crate.
fn sources(krate: &str) -> String {
    let folder = format!("crates/{krate}/");
    let files = files().into_iter().filter(|path| path.starts_with(&folder) && path.ends_with(".rs"));
    files.map(|path| read(&path)).collect()
}

#[test]
fn every_test_of_the_track_record_exists() {
    let mut crates: BTreeMap<String, String> = BTreeMap::new();
    let mut missing = Vec::new();
    let bugs = bugs(&read("docs/track-record.md"));
    for (bug, (krate, name)) in bugs.iter().flat_map(|bug| bug.tests.iter().map(move |test| (bug, test))) {
        let text = crates.entry(krate.clone()).or_insert_with(|| sources(krate));
        if !text.contains(&format!("fn {name}(")) {
            missing.push(format!("bug {}: {krate} has no test {name}", bug.number));
        }
    }
    assert!(bugs.len() > 50, "the list was read: {}", bugs.len());
    assert_eq!(missing, [""; 0]);
}

#[test]
fn the_track_record_counts_what_it_lists() {
    let page = read("docs/track-record.md");
    let bugs = bugs(&page);
    let (figures, _) = page.split_once("## What each net missed").unwrap();
    let mut counted = 0;
    for row in rows(figures) {
        let [name, rest @ ..] = &row[..] else { continue };
        let Some(figures) = rest.iter().take(4).map(|cell| cell.parse::<usize>().ok()).collect::<Option<Vec<_>>>()
        else {
            continue;
        };
        let belongs = |bug: &&Bug| name == "**all**" || bug.found_by == *name || bug.part == *name;
        let of = |kind: &str| bugs.iter().filter(belongs).filter(|bug| kind.is_empty() || bug.kind == kind).count();
        assert_eq!(figures, ["", "safety", "fences", "liveness"].map(of), "{name}");
        counted += figures[0];
    }
    assert_eq!(counted, 3 * bugs.len(), "each bug counts by its net, by its part, and in all");
}
