//! Commands that the pages quote are commands of the program, and what the pages list is what the program lists.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use hallpass_testkit::repository::{pages, read};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_hallpass"))
}

/// What begins like a call in the benchmark's output, and is none.
const NOT_CALLS: &[&str] = &["hallpass x", "hallpass against its goals"];

/// It hands its arguments over to another program.
const PASSES_ON: &str = "bench";

/// What the program's help says of one command.
#[derive(Default)]
struct Help {
    commands: BTreeSet<String>,
    flags: BTreeSet<String>,
}

fn help(command: &[String]) -> Help {
    let output = program().args(command).arg("--help").output().expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("a help in UTF-8");
    let mut help = Help::default();
    let mut in_commands = false;
    for line in text.lines() {
        if !line.starts_with(' ') {
            in_commands = line == "Commands:";
        } else if in_commands && line.starts_with("  ") && !line.starts_with("   ") {
            help.commands.extend(line.split_whitespace().next().map(str::to_owned));
        }
        let is_flag = line.trim_start().starts_with('-');
        let flags = line.split([' ', ',', '=']).filter(|word| is_flag && word.starts_with("--"));
        help.flags.extend(flags.map(str::to_owned));
    }
    help
}

/// The whole tree of commands, by their words.
fn commands() -> BTreeMap<Vec<String>, Help> {
    let mut found = BTreeMap::new();
    let mut open = vec![Vec::new()];
    while let Some(command) = open.pop() {
        let help = help(&command);
        for name in help.commands.iter().filter(|name| *name != "help") {
            open.push([&command[..], std::slice::from_ref(name)].concat());
        }
        found.insert(command, help);
    }
    found
}

/// The arguments of every call of the program in a line of code.
fn calls(code: &str) -> Vec<Vec<&str>> {
    let mut calls = Vec::new();
    for part in code.split(['|', '&', ';', '(', '#', '>']) {
        // What 'run' runs does not belong to its arguments; 'cargo run --release -- demo' calls the program.
        let mut parts = part.split(" -- ");
        let words: Vec<_> = parts.next().unwrap_or_default().split_whitespace().collect();
        let before = |word: &&str| word.contains('=') || ["sudo", "exec", "do", "$"].contains(word);
        let arguments = match words.iter().find(|word| !before(word)) {
            Some(&"hallpass") => words.iter().skip_while(|word| **word != "hallpass").skip(1).copied().collect(),
            Some(&"lab") => words,
            Some(&"cargo") if words == ["cargo", "run", "--release"] => {
                parts.next().unwrap_or_default().split_whitespace().collect()
            }
            _ => continue,
        };
        if !arguments.is_empty() && !NOT_CALLS.iter().any(|begins| part.trim().starts_with(begins)) {
            calls.push(arguments);
        }
    }
    calls
}

/// What is wrong with a call.
fn fault(commands: &BTreeMap<Vec<String>, Help>, call: &[&str]) -> Option<String> {
    let mut command = Vec::new();
    let is_name = |word: &str| !word.is_empty() && word.chars().all(|char| char.is_ascii_lowercase() || char == '-');
    for word in call {
        if commands[&command].commands.is_empty() || word.starts_with('-') {
            break;
        }
        if commands[&command].commands.contains(*word) && *word != "help" {
            command.push((*word).to_owned());
        } else {
            return (is_name(word) && *word != "help").then(|| format!("no command '{word}'"));
        }
    }
    let help = &commands[&command];
    for word in &call[command.len()..] {
        let flag = word.trim_start_matches('[').split(['=', ']', ',', '`']).next().unwrap_or_default();
        let is_flag = flag.starts_with("--") && flag[2..].starts_with(|char: char| char.is_ascii_lowercase());
        if is_flag && !help.flags.contains(flag) && command != [PASSES_ON] && flag != "--version" {
            return Some(format!("'{}' has no {flag}", command.join(" ")));
        }
    }
    None
}

#[test]
fn commands_in_the_pages_are_commands_of_the_program() {
    let commands = commands();
    let mut faults = Vec::new();
    let mut checked = 0;
    for page in pages() {
        for code in page.code() {
            for call in calls(&code.text) {
                checked += 1;
                if let Some(fault) = fault(&commands, &call) {
                    faults.push(format!("{}:{}: {}: {fault}", page.path, code.line, code.text));
                }
            }
        }
    }
    assert!(checked > 200, "the pages were read: {checked}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn wrong_commands_are_noticed() {
    let commands = commands();
    let wrong = |code: &str| calls(code).iter().any(|call| fault(&commands, call).is_some());
    for code in [
        "hallpass ruin deploy -- make",
        "hallpass run deploy --wait -- make",
        "HALLPASS_SOCKET=a hallpass member",
        "cargo run --release -- demos",
        "lab chek --nodes 3",
        "hallpass lab check --node=3",
        "true && hallpass status --jsn",
    ] {
        assert!(wrong(code), "{code}");
    }
    for code in ["hallpass run deploy --try -- make --wrong", "hallpass lab check --nodes=3 > file --wrong", "hallpass"]
    {
        assert!(!wrong(code), "{code}");
    }
}

/// The names that a help lists for an option.
fn names(help: &str, begins: &str) -> BTreeSet<String> {
    let text = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, list) = text.split_once(begins).unwrap_or_else(|| panic!("'{begins}' in the help"));
    let list = list.split(" --").next().unwrap_or_default();
    list.split(", ").map(|name| name.trim().to_owned()).collect()
}

#[test]
fn models_and_their_bugs_are_those_of_the_program() {
    let help = program().args(["lab", "check", "--help"]).output().expect("the program runs");
    let help = String::from_utf8(help.stdout).expect("a help in UTF-8");
    let models = names(&help, "Explore a part of the view layer instead:");
    let page = read("docs/safety.md");
    let (_, table) = page.split_once("### The models").expect("the table of models");
    let is_model = |line: &&str| line.starts_with("| `") && !line.starts_with("| `--");
    let rows = table.lines().filter(is_model).map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        (cells[1].replace('`', ""), cells[3].replace('`', ""))
    });
    let rows: BTreeMap<_, _> = rows.collect();
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), models, "docs/safety.md lists every model");
    for (model, bugs) in rows.iter().filter(|(_, bugs)| !bugs.is_empty() && *bugs != "the same") {
        let refused = program().args(["lab", "check", "--model", model, "--bug", "no-such-bug"]).output();
        let refused = String::from_utf8(refused.expect("the program runs").stderr).expect("an error in UTF-8");
        let (_, known) = refused.split_once("it has ").unwrap_or_else(|| panic!("{refused}"));
        let known = known.split(" (see").next().unwrap_or_default();
        assert_eq!(bugs, known, "docs/safety.md lists the bugs of {model}");
    }
}
