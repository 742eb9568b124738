//! Numbers and lists in the pages agree with what they count.

use std::collections::BTreeSet;

use hallpass_testkit::repository::{files, pages, read, root};

const WORDS: &[&str] = &[
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

/// A number in words or figures; tens and ones as in 'twenty-eight'.
fn number(word: &str) -> Option<usize> {
    let word = word.trim_matches(|char: char| !char.is_ascii_alphanumeric()).to_lowercase();
    let tens = |word: &str| match word {
        "twenty" => Some(20),
        "thirty" => Some(30),
        "forty" => Some(40),
        "fifty" => Some(50),
        _ => None,
    };
    let small = |word: &str| WORDS.iter().position(|name| *name == word);
    let compound = || word.split_once('-').and_then(|(ten, one)| Some(tens(ten)? + small(one)?));
    word.parse().ok().or_else(|| small(&word)).or_else(|| tens(&word)).or_else(compound)
}

/// Every place where a page says how many there are of something: the number before this word.
fn said(noun: &str) -> Vec<(String, usize)> {
    let mut said = Vec::new();
    for page in pages() {
        let words: Vec<&str> = page.text.split_whitespace().collect();
        for pair in words.windows(2) {
            let followed = pair[1].strip_prefix(noun).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
            if let Some(number) = number(pair[0]).filter(|_| followed) {
                said.push((format!("{}: '{} {}'", page.path, pair[0], pair[1]), number));
            }
        }
    }
    said
}

fn rows_of(page: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    read(page).lines().filter(|line| line.starts_with("| ")).map(cells).collect()
}

/// Names of the protocols, as `protocol/roster.rs` gives them to users.
fn protocols() -> BTreeSet<String> {
    let roster = read("crates/hallpass-core/src/protocol/roster.rs");
    let (_, list) = roster.split_once("\nroster! {").expect("the list of protocols");
    let named = list.lines().filter_map(|line| line.split(" = \"").nth(1)?.split('"').next());
    named.map(str::to_owned).collect()
}

#[test]
fn traps_are_counted() {
    let page = read("docs/traps.md");
    let told = page.lines().filter(|line| line.starts_with("## T") && line.contains(':')).count();
    let rows: Vec<_> = rows_of("docs/traps.md").into_iter().filter(|cells| cells[0].starts_with("[T")).collect();
    assert_eq!(rows.len(), told, "the table of docs/traps.md lists what the page tells");
    let put_back = rows.iter().filter(|cells| cells[4] == "yes").count();
    for (place, number) in said("traps") {
        // The change log says how many there were at the time.
        if !place.starts_with("CHANGELOG") {
            assert!([told, put_back].contains(&number), "{place}; there are {told}, and {put_back} can be put back");
        }
    }
    for cells in rows {
        for scenario in cells[3].split(", ").filter(|cell| cell.starts_with("`trap-")) {
            let path = format!("testdata/scenarios/{}.txt", scenario.trim_matches('`'));
            assert!(root().join(&path).exists(), "{}: {path}", cells[0]);
        }
    }
}

#[test]
fn algorithms_are_counted_and_each_has_a_page() {
    let protocols = protocols();
    for (place, number) in said("algorithms") {
        // The requirements count those of the notes.
        if !place.starts_with("docs/requirements.md") {
            assert_eq!(number, protocols.len(), "{place}");
        }
    }
    let list = read("docs/README.md");
    let mut pages: BTreeSet<_> = files()
        .iter()
        .filter_map(|path| path.strip_prefix("docs/protocols/")?.strip_suffix(".md").map(str::to_owned))
        .inspect(|name| assert!(list.contains(&format!("(protocols/{name}.md)")), "docs/README.md lists {name}"))
        .collect();
    // Told on the page of the algorithm that it is a variant of.
    pages.insert("ricart-agrawala-ring".to_owned());
    assert_eq!(pages, protocols);
}

#[test]
fn fuzz_targets_are_listed() {
    let in_folder = |path: &String, folder: &str| {
        let name = path.strip_prefix(folder)?.split(['/', '.']).next()?;
        Some(name.to_owned())
    };
    let files = files();
    let targets: BTreeSet<_> = files.iter().filter_map(|path| in_folder(path, "fuzz/targets/")).collect();
    let seeds: BTreeSet<_> = files.iter().filter_map(|path| in_folder(path, "fuzz/seeds/")).collect();
    let rows = rows_of("fuzz/README.md");
    let listed: BTreeSet<_> = rows.iter().skip(1).map(|cells| cells[0].trim_matches('`').to_owned()).collect();
    assert_eq!(listed, targets, "fuzz/README.md lists every target");
    assert_eq!(seeds, targets, "every target has seeds");
}

/// The steps of a script: the function that each runs, and its title.
fn steps(script: &str) -> Vec<String> {
    read(script).lines().filter_map(|line| line.trim_start().strip_prefix("step \"")).map(str::to_owned).collect()
}

#[test]
fn the_contributors_page_names_every_step_of_ci() {
    let rows = rows_of("CONTRIBUTING.md");
    let row = |script: &str| {
        let row = rows.iter().find(|cells| cells[0] == format!("`{script}`"));
        row.unwrap_or_else(|| panic!("a row for {script}"))[1].to_lowercase()
    };
    let common =
        ["with", "that", "every", "short", "long", "main", "real", "other", "others", "their", "real", "what", "from"];
    for (script, source) in [(".ci/run", ".ci/steps"), (".ci/full", ".ci/full")] {
        let row = row(script);
        let steps = steps(source);
        assert!(steps.len() > 8, "the steps of {script} were read");
        for step in steps.iter().filter(|step| !step.starts_with("tools")) {
            let words = step.split(|char: char| !char.is_ascii_alphanumeric()).map(str::to_lowercase);
            let mut telling = words.filter(|word| word.len() > 3 && !common.contains(&word.as_str()));
            // 'exploration' stands for 'explorations', too.
            assert!(
                telling.any(|word| row.contains(word.trim_end_matches('s'))),
                "CONTRIBUTING.md, {script}, names no '{step}'"
            );
        }
    }
}

#[test]
fn numbers_are_read() {
    let read = ["Thirty", "twenty-eight", "12", "nineteen", "traps", "-"].map(number);
    assert_eq!(read, [Some(30), Some(28), Some(12), Some(19), None, None]);
}
