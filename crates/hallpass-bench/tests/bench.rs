//! The benchmark as users see it. Nothing here is about how fast anything is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hallpass_testkit::wait_until;
use serde_json::Value;

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hallpass-bench"));
    command.args(line.split_whitespace());
    command
}

fn strings<'a>(rows: &'a Value, key: &str) -> BTreeSet<&'a str> {
    rows.as_array().expect("a list").iter().map(|row| row[key].as_str().expect("a text")).collect()
}

#[test]
fn a_quick_run_has_its_keys() {
    let picture = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench.svg");
    let output = command("--quick --json --svg").arg(&picture).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let wanted =
        ["rounds", "seconds", "cores", "load_before", "figures", "ratios", "changes", "goals", "skipped", "violations"];
    assert_eq!(keys, wanted);
    assert_eq!(report["violations"], 0);
    assert!(strings(&report["figures"], "system").is_superset(&BTreeSet::from([
        "tcp",
        "tcp, 2 peers",
        "tls",
        "tls, 2 peers",
        "in-process",
        "hallpass",
        "hallpass, tls"
    ])));
    let workloads = strings(&report["figures"], "workload");
    assert_eq!(
        workloads.into_iter().collect::<Vec<_>>(),
        [
            "contended-3",
            "contended-32",
            "contended-8",
            "hot",
            "hot-checked",
            "hot-shared",
            "rotating-32",
            "round-trip",
            "uncontended"
        ]
    );
    assert_eq!(strings(&report["skipped"], "why"), BTreeSet::new());
    let changes: Vec<&Value> = report["changes"].as_array().unwrap().iter().collect();
    assert_eq!(changes.len(), 8, "{changes:?}");
    assert!(changes.iter().all(|row| row["p50_ms"].as_f64().unwrap() > 0.0 && row["runs"] == 1), "{changes:?}");
    for row in report["figures"].as_array().unwrap() {
        assert!(row["p50_us"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["grants_per_second"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["memory_bytes"].as_u64().unwrap() > 0, "{row}");
    }
    // A free lock that both others have held costs a request and a reply of each; the first passes find none to ask.
    let is_cold = |row: &&Value| row["system"] == "hallpass" && row["workload"] == "uncontended";
    let cold = report["figures"].as_array().unwrap().iter().find(is_cold).unwrap();
    assert!(cold["messages_per_grant"].as_f64().is_some_and(|messages| messages <= 4.0), "{cold}");
    let drawn = std::fs::read_to_string(&picture).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.trim_end().ends_with("</svg>"));
}

#[test]
fn one_part_can_be_measured_alone() {
    let measured = |part: &str| -> Value {
        let output = command(&format!("--quick --json --only {part}")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one document")
    };
    let length = |report: &Value, key: &str| report[key].as_array().unwrap().len();
    let (locks, views) = (measured("locks"), measured("views"));
    assert!(length(&locks, "figures") > 0 && length(&locks, "changes") == 0);
    assert!(length(&views, "figures") == 0 && length(&views, "changes") > 0);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (line, says) in [
        ("--peers chubby", "no peer is called 'chubby'"),
        ("--only shards", "it is one of locks, sizes, views"),
        ("--seconds 0", "it takes 0.01 to 600"),
        ("--rounds 0", "0 is not in 1..=100"),
    ] {
        let output = command(line).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{line}: {err}");
        assert!(err.contains(says) && err.lines().count() == 1, "{line}: {err}");
    }
}

#[test]
fn a_worker_ends_when_its_stdin_is_closed() {
    let mut worker = command("worker locker").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    assert!(worker.try_wait().unwrap().is_none());
    drop(worker.stdin.take());
    assert!(worker.wait().unwrap().success());
}

#[test]
fn nothing_is_left_when_the_benchmark_is_killed() {
    let mut bench = command("--peers none --seconds 20").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // At least the remover of the directory, 2 echoes, 5 round trips, a locker and 2 groups of 3.
    wait_until("the workers are there", || children(bench.id()).len() >= 14);
    let workers = children(bench.id());
    let directory = scratch_of(bench.id()).expect("it has a directory");
    bench.kill().unwrap();
    bench.wait().unwrap();
    wait_until("the workers are gone", || workers.iter().all(|id| is_gone(*id)));
    wait_until("the directory is gone", || !directory.exists());
}

fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| fields(*id).is_some_and(|fields| fields[1] == parent.to_string())).collect()
}

/// The fields behind the name in `/proc/ID/stat`: the state, the parent and more.
fn fields(id: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// A dead process whose exit code was not read yet is gone too.
fn is_gone(id: u32) -> bool {
    fields(id).is_none_or(|fields| fields[0] == "Z")
}

fn scratch_of(bench: u32) -> Option<PathBuf> {
    let bases = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let entries = bases.iter().filter_map(|base| std::fs::read_dir(base).ok()).flatten();
    let prefix = format!("hallpass-bench-{bench}-");
    let has_prefix = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| has_prefix(path))
}
