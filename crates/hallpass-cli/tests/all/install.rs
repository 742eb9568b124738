//! What an installation adds to the binary: completions for shells, and man pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn hallpass(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hallpass")).args(words).output().expect("the binary starts")
}

/// What a command prints that must succeed.
fn printed(words: &[&str]) -> String {
    let output = hallpass(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Flags, also as fish writes them, and commands that the program uses among its own processes.
fn assert_nothing_internal(text: &str, what: &str) {
    for internal in ["__child", "__keeper", "__supervisor", "--private", "--detached", "-l private", "-l detached"] {
        assert!(!text.contains(internal), "{what} contains {internal}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        for word in ["timeout", "advertise", "claims", "states-max"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert_nothing_internal(&script, shell);
    }
    let unknown = hallpass(&["completions", "csh"]);
    assert_eq!(unknown.status.code(), Some(64));
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("bash"), "the shells are named");
}

#[test]
fn the_man_page_is_printed_or_one_page_is_written_for_each_command() {
    let page = printed(&["man"]);
    assert!(page.contains(".TH hallpass 1") && page.contains("hallpass\\-run(1)"), "{page}");
    assert_nothing_internal(&page, "the page");

    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man/man1");
    let _ = fs::remove_dir_all(&directory);
    printed(&["man", "--out", directory.to_str().unwrap()]);
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let written: BTreeSet<String> = fs::read_dir(&directory).unwrap().map(|entry| name(entry.unwrap())).collect();
    let commands = "agent bench break class class-set completions demo evict init join lab lab-check lab-claims lab-run lab-swarm lab-sweep \
                    lab-trace leave locks man members recover run status";
    for command in commands.split_whitespace() {
        assert!(written.contains(&format!("hallpass-{command}.1")), "{command}: {written:?}");
    }
    assert_eq!(fs::read_to_string(directory.join("hallpass.1")).unwrap(), page);
    for file in &written {
        assert_nothing_internal(&fs::read_to_string(directory.join(file)).unwrap(), file);
    }
    let of_run = fs::read_to_string(directory.join("hallpass-run.1")).unwrap();
    assert!(of_run.contains("nightly\\-backup"), "the examples are there: {of_run}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let output = hallpass(&["man", "--out", "/dev/null/man"]);
    assert_eq!(output.status.code(), Some(74));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/dev/null/man"));
}
