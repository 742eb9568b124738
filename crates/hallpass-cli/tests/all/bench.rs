//! `hallpass bench` finds the executable that measures. What that one does is tested where it is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory with nothing but the program.
fn alone(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    fs::hard_link(env!("CARGO_BIN_EXE_hallpass"), directory.join("hallpass")).unwrap();
    directory
}

/// Calls it as a user does, without cargo.
fn bench(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(directory.join("hallpass"));
    command.arg("bench").args(args).env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR").output().unwrap()
}

#[test]
fn without_the_executable_one_line_says_how_to_build_it() {
    let directory = alone("bench-missing");
    let output = bench(&directory, &["--quick", "--json"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{err}");
    assert!(err.contains("cargo build") && err.lines().count() == 1, "{err}");
    let help = bench(&directory, &["--help"]);
    let out = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.success() && out.contains("--peers"), "{out}");
}

#[test]
fn arguments_and_exit_code_are_passed_on() {
    let directory = alone("bench-present");
    symlink("/bin/sh", directory.join("hallpass-bench")).unwrap();
    let output = bench(&directory, &["-c", "echo $0 $1; exit 7", "--json", "--help"]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), out.as_ref()), (Some(7), "--json --help\n"));
}
