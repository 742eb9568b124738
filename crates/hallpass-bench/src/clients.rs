//! The clients of other lock services: a program in a workspace of its own, built when it is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::BenchError;
use crate::child::Launcher;
use crate::servers::{find, missing};

/// Fails if etcd's client cannot be built; those of the others need nothing but Rust.
pub(crate) fn etcd_can_be_built() -> Result<(), BenchError> {
    find("protoc", &[]).map(|_| ()).ok_or_else(|| missing("protoc", "protobuf-compiler, to build its client"))
}

/// Builds the program, with etcd's client or without, and returns how to start it as a worker.
pub(crate) fn build(with_etcd: bool) -> Result<Launcher, BenchError> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--message-format=json-render-diagnostics", "--manifest-path"]).arg(manifest()?);
    if with_etcd {
        cargo.args(["--features", "etcd"]);
    }
    let built = cargo.output().map_err(|error| BenchError::new(format!("cannot start cargo: {error}")))?;
    if !built.status.success() {
        let messages = String::from_utf8_lossy(&built.stderr);
        let why = messages.lines().find(|line| line.starts_with("error")).unwrap_or("cargo does not say why");
        return Err(BenchError::new(format!("its client in 'bench-peers' does not build: {why}")));
    }
    let executable = executable(&String::from_utf8_lossy(&built.stdout));
    let executable = executable.ok_or_else(|| BenchError::new("cargo does not say where it has put 'bench-peers'"))?;
    Ok(Launcher::new(executable, &["worker"]))
}

fn manifest() -> Result<PathBuf, BenchError> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench-peers/Cargo.toml");
    let here = PathBuf::from("bench-peers/Cargo.toml");
    let found = [here, source].into_iter().find(|manifest| manifest.is_file());
    found.ok_or_else(|| BenchError::new("its client is in 'bench-peers' of the source: call the benchmark there"))
}

/// The program among what cargo says it has built, one JSON document a line.
fn executable(messages: &str) -> Option<String> {
    let program = |line| Some(serde_json::from_str::<Value>(line).ok()?["executable"].as_str()?.to_owned());
    messages.lines().rev().find_map(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\nnoise\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/x/bench-peers\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages).as_deref(), Some("/x/bench-peers"));
        assert_eq!(executable("{}"), None);
    }
}
