//! Settings as users write them: flags, environment variables and the configuration file, and what is said about wrong ones.

use std::process::{Command, Stdio};

/// Asserts that a command line is refused: 64, nothing on stdout, one line on stderr with this text and a pointer to the help.
#[track_caller]
fn refused(line: &str, text: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hallpass"));
    // An agent that is started by mistake ends.
    command.args(line.split_whitespace()).stdin(Stdio::null()).env("HALLPASS_SOCKET", "/dev/null/agent.sock");
    let output = command.output().expect("the binary starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), &*out), (Some(64), ""), "{line}: {err}");
    assert_eq!(err.lines().count(), 1, "{line}: {err}");
    assert!(err.starts_with("hallpass: ") && err.ends_with(" --help')\n"), "{line}: {err}");
    assert!(err.contains(text), "{line}: {err}");
}

#[test]
fn a_command_without_dashes_before_it_is_told_to_put_them() {
    let way_out = "put '--' before the command: hallpass run LOCK -- COMMAND";
    refused("run x make deploy", way_out);
    refused("run x ./backup.sh --all", way_out);
    refused("run x --try make", way_out);
    refused("run --lock x make deploy", way_out);
    refused("run x", way_out);
    refused("run", way_out);
    // Here something else is wrong.
    refused("run x y -- true", "unexpected argument 'y'");
    refused("run x --tri -- true", "'--try'");
    refused("run -- true", "<LOCK>");
    refused("lab run make", "unexpected argument 'make'");
}

#[test]
fn a_negative_value_is_named_with_its_option() {
    refused("demo --seconds -1", "'--seconds' takes no negative value: '-1'");
    refused("run x --timeout -5s -- true", "'--timeout' takes no negative value: '-5s'");
    refused("run x --grace -.5s -- true", "'--grace' takes no negative value: '-.5s'");
    refused("init --names a --out nowhere --port -1", "'--port' takes no negative value: '-1'");
    refused("agent --ttl -1s", "'--ttl' takes no negative value: '-1s'");
    refused("lab run --protocol raymond --latency -1ms", "'--latency' takes no negative value: '-1ms'");
    refused("lab run --protocol raymond --readers -0.5", "'--readers' takes no negative value: '-0.5'");
    refused("demo --seconds=-1", "-1 is not in 1..=3600");
    refused("lab run --protocol raymond --seed=-1", "not a whole number");
    // A flag takes no value at all, and a command's own arguments are not ours.
    refused("demo --json -1", "unexpected argument '-1'");
    refused("run x --shared -1 -- sleep -1", "unexpected argument '-1'");
}
