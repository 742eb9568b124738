//! Settings as users write them: flags, environment variables and the configuration file, and what is said about wrong ones.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The command, with a socket at which no agent can listen: one that is started by mistake ends.
fn hallpass() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hallpass"));
    command.stdin(Stdio::null()).env_remove("HALLPASS_CONFIG").env("HALLPASS_SOCKET", "/dev/null/agent.sock");
    command
}

/// Asserts that a command line is refused: 64, nothing on stdout, one line on stderr with this text and a pointer to the help.
#[track_caller]
fn refused(line: &str, text: &str) {
    let output = hallpass().args(line.split_whitespace()).output().expect("the binary starts");
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

#[test]
fn wrong_settings_of_an_agent_are_refused_before_it_starts() {
    refused("agent --listen 127.0.0.1", "'127.0.0.1' has no port");
    refused("agent --listen 127.0.0.1:70000", "from 0 to 65535");
    refused("agent --advertise 127.0.0.1:0", "from 1 to 65535");
    refused("agent --peers 127.0.0.1:7400,b@::1:7401", "[::1]:7401");
    refused("agent --ttl 1ms", "500ms to 60m");
    refused("agent --ttl 5", "such as");
    refused("agent --socket-group a:b", "'a:b'");
    refused(&format!("agent --socket /tmp/{}", "s".repeat(200)), "205 bytes");
}

/// A file for one test, in the directory that cargo provides for tests.
fn scratch(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_wrong_configuration_is_named_with_its_line() {
    for (text, why) in [
        ("name = 'a'\nttl = '5'\n", "line 2: '5' is not a duration"),
        ("lisen = '127.0.0.1:0'\n", "line 1: there is no key 'lisen'; did you mean 'listen'?"),
        ("\n\npeers = ['127.0.0.1']\n", "line 3: '127.0.0.1' has no port"),
        ("keys = '~/keys'\n", "line 1: '~' means nothing here"),
    ] {
        let path = scratch("wrong.toml", text);
        let output = hallpass().args(["agent", "--config"]).arg(&path).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}: {err}");
        assert_eq!(err.lines().count(), 1, "{text}: {err}");
        assert!(err.contains(&format!("cannot use the configuration {}: {why}", path.display())), "{text}: {err}");
    }
}

#[test]
fn a_socket_beside_a_deep_configuration_is_refused_if_its_path_is_too_long() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("d".repeat(120));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("hallpass.toml"), "socket = 'agent.sock'\n").unwrap();
    let mut command = hallpass();
    command.args(["agent", "--config"]).arg(directory.join("hallpass.toml")).env_remove("HALLPASS_SOCKET");
    let output = command.output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{err}");
    assert!(err.contains("name a shorter one than"), "{err}");
}

#[test]
fn every_command_refuses_an_unknown_flag_in_one_line_and_points_to_its_help() {
    let commands = "agent break completions demo evict init join leave locks man members recover run status class lab";
    let of_lab = ["check", "claims", "run", "swarm", "sweep", "trace"].map(|name| format!("lab {name}"));
    for command in commands.split_whitespace().map(str::to_owned).chain(of_lab) {
        refused(&format!("{command} --bogus"), "unexpected argument '--bogus'");
        refused(&format!("{command} --bogus"), &format!("(see 'hallpass {command} --help')"));
    }
    refused("--bogus", "(see 'hallpass --help')");
}
