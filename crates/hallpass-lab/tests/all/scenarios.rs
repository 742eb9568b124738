//! Every scenario in `testdata/scenarios` comes out as it says. `HALLPASS_REWRITE=1` writes what comes out instead.

use std::fs;
use std::path::Path;

use hallpass_lab::scenario::{SHIPPED, play};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/scenarios")
}

#[test]
fn scenarios_come_out_as_they_say() {
    let rewrite = std::env::var_os("HALLPASS_REWRITE").is_some();
    let mut failures = Vec::new();
    for (name, _) in SHIPPED {
        let path = folder().join(format!("{name}.txt"));
        let text = fs::read_to_string(&path).unwrap();
        let played = match play(&text, None) {
            Ok(played) => played,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        if rewrite {
            fs::write(&path, &played.rewritten).unwrap();
        } else if let Some(step) = played.first_difference() {
            let (expected, came) = (step.expected.join("\n"), step.actual.join("\n"));
            failures
                .push(format!("{name} line {}: '{}'\nexpected:\n{expected}\ncame:\n{came}", step.line, step.command));
        } else if played.rewritten != text {
            failures.push(format!("{name}: rewriting a scenario that holds must change nothing"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_scenario_in_the_folder_is_shipped() {
    let mut files: Vec<String> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let mut shipped: Vec<String> = SHIPPED.iter().map(|(name, _)| format!("{name}.txt")).collect();
    shipped.sort();
    assert_eq!(files, shipped);
}
