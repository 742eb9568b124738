//! The agent that `run` starts where there is none, and when it must not.

use std::fs;
use std::process::Command;

use crate::user::{Ran, User, kill};

/// The private agent of an inner `run` becomes a child of the outer one, but other runs use it too.
#[test]
fn a_run_that_lost_its_lock_does_not_kill_a_private_agent() {
    let user = User::new("inner");
    let mut agent = user.start("agent --socket n.sock");
    user.wait_for("n.sock");
    let hallpass = env!("CARGO_BIN_EXE_hallpass");
    fs::write(user.home.join("inner"), format!("'{hallpass}' run in -- true; touch held; sleep 60")).unwrap();
    let mut outer = user.start("run out --socket n.sock -- sh ./inner");
    user.wait_for("held");
    let other = user.start("run other -- sh -c 'touch other; until test -e end; do sleep 0.02; done; exit 5'");
    user.wait_for("other");
    kill(agent.id(), "-TERM");
    assert_eq!(outer.wait().unwrap().code(), Some(76));
    fs::write(user.home.join("end"), "").unwrap();
    assert_eq!(Ran::of(other.wait_with_output().unwrap()).code, 5);
    agent.wait().unwrap();
}

/// A private agent that ends while clients wait is replaced. One that has to wait for old sessions is not waited for beyond the
/// timeout.
#[test]
fn waiters_outlive_their_private_agent_and_keep_their_timeout() {
    let user = User::new("outlive");
    let mut holder = user.start("run x -- sh -c 'touch held; exec sleep 60'");
    user.wait_for("held");
    let waiter = user.start("run x -- true");
    user.wait_for_waiter("");
    assert_eq!(user.run("leave").code, 0);
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    let ran = Ran::of(waiter.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    // One that was killed while a client held a lock: the next agent waits for a session.
    fs::remove_file(user.home.join("held")).unwrap();
    let mut holder = user.start("run x -- sh -c 'touch held; exec sleep 60'");
    user.wait_for("held");
    kill(private_agent_of(&user), "-KILL");
    user.run("run x --timeout 300ms -- true").failed(75, "not ready yet");
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    assert_eq!(user.run("run x --timeout 30s -- true").code, 0);
}

/// The process of a user's private agent. It is called hallpass, so that people who list processes know it.
pub(crate) fn private_agent_of(user: &User) -> u32 {
    let found = Command::new("pgrep").args(["-x", "hallpass", "-a"]).output().unwrap();
    let list = String::from_utf8(found.stdout).unwrap();
    let state = user.home.join("state").display().to_string();
    let line = list.lines().find(|line| line.contains("agent --private") && line.contains(&state));
    line.and_then(|line| line.split(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{list}"))
}

/// If a configuration is given, only its agent will do.
#[test]
fn an_agent_that_a_configuration_names_is_not_replaced_by_another() {
    let user = User::new("named");
    assert_eq!(user.run("init --names a,b --out group --loopback").code, 0);
    assert_eq!(user.run("run x -- true").code, 0, "a private agent is there");
    let with = |config: &str| {
        Ran::of(
            user.command(&["run", "x", "--", "true"]).env("HALLPASS_CONFIG", user.home.join(config)).output().unwrap(),
        )
    };
    with("group/a/hallpass.toml").failed(69, "no agent answers");
    with("nowhere.toml").failed(69, "nowhere.toml");
}

/// A directory must be this user's, and others must not be able to write to it.
#[test]
fn a_private_agent_is_not_kept_where_others_can_write() {
    use std::os::unix::fs::PermissionsExt;
    let user = User::new("open");
    let directory = user.home.join("state");
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    user.run("run x -- true").failed(69, "others must not be able to write there");
    assert!(fs::read_dir(&directory).unwrap().next().is_none(), "nothing was put there");
    // A directory that cannot be used is reported at once, with the agent's own error.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(directory.join("data"), "a file").unwrap();
    user.run("run x -- true").failed(69, "cannot use the directory");
}
