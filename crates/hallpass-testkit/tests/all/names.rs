//! Names that pages quote exist: files, types, functions, tests, settings, scenarios, claims.
//!
//! A name is looked up by its form. What has none of these forms (a command, a word, a message) is not checked here; commands are checked by
//! the tests of `hallpass-cli`, beside the program that knows them.

use std::collections::{BTreeSet, HashSet};

use hallpass_testkit::repository::{files, pages, read};

/// Names that are right although nothing here has them, with the reason. One that ends in `/` or `_` stands for all that begin with it.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("files that a reader makes", &["group/", ".local/state/hallpass"]),
    ("what a build makes", &["target/"]),
    ("OpenTelemetry's own settings", &["OTEL_"]),
    (
        "etcd's API and clients",
        &["Maintenance/Status", "Cluster/MemberList", "NAME/LEASE.before", "IsOwner", "TryLock"],
    ),
    ("classes of Curator", &["ReadLock", "WriteLock"]),
    ("Python's own", &["os.fork()"]),
    ("a unit", &["grants/s"]),
    ("names in the papers", &["Defer_it", "should_defer", "REQUEST_Q_", "ASKED_", "HOLDER_", "USING_"]),
];

/// What the repository has.
struct Known {
    paths: HashSet<String>,
    /// Words of code, comments left out.
    words: HashSet<String>,
    /// Words with hyphens in them: names of scenarios, protocols, options.
    hyphenated: HashSet<String>,
    /// Functions, whatever the language.
    functions: HashSet<String>,
    claims: HashSet<String>,
    code: String,
}

fn is_code(path: &str) -> bool {
    let generated = path.ends_with(".lock") || path.starts_with("docs/") || path.contains("/seeds/");
    // This file quotes names that do not exist.
    !(generated || path.ends_with(".md") || path.ends_with(".txt") || path == file!())
}

fn words<'a>(text: &'a str, inside: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(move |char: char| !(char.is_ascii_alphanumeric() || inside.contains(char)))
        .filter(|word| !word.is_empty())
}

impl Known {
    fn read() -> Known {
        let files = files();
        let mut code = String::new();
        for path in files.iter().filter(|path| is_code(path)) {
            // Pictures and seeds are no text.
            let Ok(text) = std::fs::read_to_string(hallpass_testkit::repository::root().join(path)) else { continue };
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                code.push_str(line);
                code.push('\n');
            }
        }
        let scenarios = files.iter().filter_map(|path| path.strip_prefix("testdata/scenarios/")?.strip_suffix(".txt"));
        let mut hyphenated: HashSet<_> = words(&code, "_-").map(str::to_owned).collect();
        hyphenated.extend(scenarios.map(str::to_owned));
        let mut functions = HashSet::new();
        for keyword in ["fn ", "def ", "function ", "struct ", "class "] {
            let after = code.split(keyword).skip(1).filter_map(|rest| words(rest, "_").next());
            functions.extend(after.map(str::to_owned));
        }
        let mut paths = HashSet::new();
        for path in &files {
            let mut path = path.as_str();
            paths.insert(path.to_owned());
            while let Some((folder, _)) = path.rsplit_once('/') {
                paths.insert(folder.to_owned());
                path = folder;
            }
        }
        let claims = read("docs/generated/claims.txt");
        let claims = claims.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
        let mut words: HashSet<_> = words(&code, "_").map(str::to_owned).collect();
        words.extend(files.iter().filter_map(|path| path.rsplit('/').next()?.strip_suffix(".rs").map(str::to_owned)));
        Known { words, hyphenated, functions, paths, claims, code }
    }

    /// Whether some file or folder has this path, or one that ends in it. `hallpass-node/node.rs` leaves `crates` and `src` out.
    fn has_path(&self, path: &str) -> bool {
        let path = path.trim_start_matches("./").trim_end_matches('/');
        let without_src = path.split_once('/').map(|(first, rest)| format!("{first}/src/{rest}"));
        let ends_in = |known: &String, path: &str| {
            known
                .strip_suffix(path)
                .is_some_and(|before| before.is_empty() || before.ends_with('/') || before.ends_with('-'))
        };
        self.paths
            .iter()
            .any(|known| ends_in(known, path) || without_src.as_ref().is_some_and(|path| ends_in(known, path)))
    }

    /// What is wrong with a piece of code that a page quotes, if its form says what it names.
    fn missing(&self, quoted: &str) -> Option<&'static str> {
        let part_of = |inside: &str| quoted.chars().all(|char| char.is_ascii_alphanumeric() || inside.contains(char));
        let known = |word: &str| match word.strip_suffix("..") {
            Some(begins) => self.words.iter().any(|known| known.starts_with(begins)),
            None => self.words.contains(word),
        };
        let listed = |name: &&str| quoted == *name || (name.ends_with(['_', '/']) && quoted.starts_with(name));
        if ELSEWHERE.iter().any(|(_, names)| names.iter().any(listed)) {
            return None;
        }
        if is_path(quoted) && part_of("/._-") {
            let is_claim = quoted.contains('/') && quoted.split('-').next().is_some_and(is_placeholder);
            let exists = if is_claim { self.claims.contains(quoted) } else { self.has_path(quoted) };
            return (!exists).then_some("no such file");
        }
        if let Some((called, "")) = quoted.split_once("()") {
            let name = words(called, "_").last().unwrap_or_default();
            let is_method_of_a_value = called.contains('.') && !called.contains("::");
            let exists =
                self.functions.contains(name) || (is_method_of_a_value && self.code.contains(&format!(".{name}(")));
            let owner = words(called, "_").next().unwrap_or_default();
            let exists = exists && (!called.contains("::") || self.words.contains(owner));
            return (!exists).then_some("no such function");
        }
        if part_of("_:") && quoted.contains("::") && !quoted.ends_with(':') {
            return (!quoted.split("::").all(known)).then_some("no such item");
        }
        if part_of("_.:")
            && (quoted.contains("::") || quoted.contains('_'))
            && !quoted.trim_end_matches("..").contains('.')
        {
            return (!quoted.split("::").all(known)).then_some("no such name");
        }
        let is_type = quoted.starts_with(|first: char| first.is_ascii_uppercase())
            && quoted.contains(|char: char| char.is_ascii_lowercase());
        if is_type && part_of("") && quoted.chars().skip(1).any(|char| char.is_ascii_uppercase()) {
            return (!known(quoted)).then_some("no such type");
        }
        let has_hyphens =
            quoted.contains('-') && !quoted.starts_with('-') && part_of("-") && !quoted.contains(char::is_uppercase);
        if has_hyphens && quoted.starts_with(char::is_alphabetic) {
            return (!self.hyphenated.contains(quoted)).then_some("nothing is called so");
        }
        None
    }
}

/// Something that the reader replaces, as `OUT` in `OUT/node.pem`.
fn is_placeholder(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|char| char.is_ascii_uppercase())
}

/// Whether this has the form of a path within the repository.
fn is_path(quoted: &str) -> bool {
    let ending = quoted.rsplit_once('.').map_or("", |(_, ending)| ending);
    let is_file = ["rs", "md", "toml", "sh", "py", "mjs", "js", "yaml", "svg", "service"].contains(&ending);
    let outside = quoted.starts_with('/') || quoted.contains("..") || quoted.starts_with(".git");
    let replaced = quoted.split('/').any(is_placeholder);
    (is_file || quoted.contains('/')) && !outside && !replaced && quoted.contains(char::is_alphabetic)
}

#[test]
fn names_in_the_pages_exist() {
    let known = Known::read();
    let mut missing = Vec::new();
    let mut checked = 0;
    // The change log names what is gone.
    for page in pages().iter().filter(|page| page.path != "CHANGELOG.md") {
        for code in page.code().iter().filter(|code| !code.in_block) {
            checked += 1;
            if let Some(what) = known.missing(&code.text) {
                missing.push(format!("{}:{}: `{}`: {what}", page.path, code.line, code.text));
            }
        }
    }
    assert!(checked > 2000, "the pages were read: {checked}");
    assert!(missing.is_empty(), "names that nothing has:\n{}", missing.join("\n"));
}

#[test]
fn wrong_names_are_noticed() {
    let known = Known::read();
    let wrong = [
        "crates/hallpass/src/no_such_file.rs",
        "no-such-folder/node.rs",
        "hallpass-node/node_gone.rs",
        "Node::no_such_method",
        "NoSuchType::handle_bytes",
        "Node::no_such_call()",
        "place.no_such_call()",
        "no_such_setting",
        "no_such_test_that_..",
        "keeper::no_such_test_..",
        "NoSuchType",
        "RA-14/no-such-claim",
        "trap-99-no-such-scenario",
    ];
    for name in wrong {
        assert!(known.missing(name).is_some(), "{name}");
    }
    for name in
        ["hallpass-node/lib.rs", "Node::handle_bytes", "ricart-agrawala-figure-1", "RA-14/safe-3", "no word", "-x"]
    {
        assert_eq!(known.missing(name), None, "{name}");
    }
}

#[test]
fn the_architecture_lists_every_folder() {
    let page = read("ARCHITECTURE.md");
    let (_, list) = page.split_once("```\n").expect("a list");
    let (list, _) = list.split_once("```").expect("its end");
    let mut parent = String::new();
    let mut listed = HashSet::new();
    for line in list.lines() {
        let name = line.split_whitespace().next().unwrap_or_default().trim_end_matches('/');
        let path = if line.starts_with(' ') { format!("{parent}/{name}") } else { name.to_owned() };
        if !line.starts_with(' ') {
            parent = name.to_owned();
        }
        listed.insert(path);
    }
    let files = files();
    let folders = |depth: usize, under: &str| -> HashSet<String> {
        let within = files.iter().filter(|path| path.starts_with(under) && !path.starts_with('.'));
        let folder = |path: &String| path.match_indices('/').nth(depth).map(|(end, _)| path[..end].to_owned());
        within.filter_map(folder).collect()
    };
    let mut expected = folders(0, "");
    expected.extend(folders(1, "crates/"));
    let explained: HashSet<_> = ["docs".to_owned(), "clients".to_owned()].into();
    let missing: Vec<_> = expected.difference(&listed).filter(|path| !explained.contains(*path)).collect();
    let gone: Vec<_> = listed.iter().filter(|path| !known_folder(&files, path)).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not listed: {missing:?}; listed, but not there: {gone:?}");
}

fn known_folder(files: &[String], folder: &str) -> bool {
    files.iter().any(|path| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

/// The code in one column of a page's table, which begins with this line.
fn column(page: &str, head: &str, index: usize) -> BTreeSet<String> {
    let text = read(page);
    let (_, rows) = text.split_once(&format!("\n{head}\n|---")).unwrap_or_else(|| panic!("{page} has '{head}'"));
    let rows = rows.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(index + 1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn the_architecture_describes_every_file_of_membership() {
    let files = files();
    for (folder, head) in [
        ("crates/hallpass-node/src/membership/", "| file | what it is |"),
        ("crates/hallpass-node/src/membership/views/", "| file in `views/` | what it is |"),
    ] {
        let part = |path: &String| {
            let rest = path.strip_prefix(folder)?;
            Some(rest.split_inclusive('/').next()?.to_owned())
        };
        let is_described_here = |part: &String| part != "views/" && !part.ends_with("tests.rs");
        let parts: BTreeSet<_> = files.iter().filter_map(part).filter(is_described_here).collect();
        assert!(parts.len() > 10, "{folder} was read: {parts:?}");
        assert_eq!(column("ARCHITECTURE.md", head, 0), parts, "the rows of '{head}' are the files of {folder}");
    }
}

#[test]
fn every_hole_of_the_safety_page_is_put_back_by_the_test_that_it_names() {
    let head = "| hole | `--bug` | noticed by | open in the release | put back alone |";
    let told = column("docs/safety.md", head, 1);
    let tests = read("crates/hallpass-sim/src/cluster/tests.rs");
    let begins = "fn holes_that_were_closed_are_noticed_when_they_are_open_again() {\n";
    let (_, test) = tests.split_once(begins).expect("the test is there");
    let (test, _) = test.split_once("\n}\n").expect("its end");
    let tested = test.lines().filter_map(|line| line.trim_start().strip_prefix("(\"")?.split('"').next());
    assert_eq!(told, tested.map(str::to_owned).collect());
}
