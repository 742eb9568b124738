//! `hallpass-chaos --check` judges records that were kept.

use std::fs;
use std::process::Command;

use hallpass_testkit::Scratch;

const SOUND: &str = r#"{"is":"start","client":"a","lock":"l","shared":false,"fence":5,"at":10}
{"is":"end","client":"a","lock":"l","fence":5,"at":20,"worked":20,"lost":false}
{"is":"start","client":"b","lock":"l","shared":false,"fence":6,"at":30}
{"is":"end","client":"b","lock":"l","fence":6,"at":40,"worked":40,"lost":false}
"#;

/// The exit code, and the output, for records in a directory of their own.
fn check(name: &str, records: &str) -> (Option<i32>, String) {
    let directory = Scratch::new(name);
    fs::write(directory.join("records.jsonl"), records).unwrap();
    let program = env!("CARGO_BIN_EXE_hallpass-chaos");
    let output = Command::new(program).arg("--check").arg(directory.path()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn sound_records_pass() {
    let (code, text) = check("sound", SOUND);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(r#""grants": 2"#), "{text}");
}

#[test]
fn a_planted_overlap_fails() {
    let (code, text) = check("overlap", &SOUND.replace(r#""at":30"#, r#""at":15"#));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("two holders of 'l' at once"), "{text}");
}

#[test]
fn a_planted_fence_fails() {
    let (code, text) = check("fence", &SOUND.replace(r#""fence":6"#, r#""fence":4"#));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("a fence of 'l' went back"), "{text}");
}

#[test]
fn records_that_cannot_be_read_prove_nothing() {
    let (code, text) = check("broken", "{\"is\":");
    assert_eq!(code, Some(70), "{text}");
    assert!(text.contains("cannot read"), "{text}");
}
