//! Files that must not fall into other hands: keys, tokens, and what a process has of them in memory.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use hallpass_testkit::wait_until;

use crate::user::{User, first_line, is_root, kill, skipped};

fn set_mode(user: &User, file: &str, mode: u32) {
    fs::set_permissions(user.home.join(file), fs::Permissions::from_mode(mode)).unwrap();
}

/// An operator is root, and the agent is not: it would not be able to read its tokens any more.
#[test]
fn a_new_token_leaves_the_file_to_its_owner() {
    let user = User::new("owner");
    let new = |name: &str| user.run(&format!("token new --name {name} --rights inspect --file tokens.toml"));
    let facts = || {
        let found = fs::metadata(user.home.join("tokens.toml")).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    assert_eq!(new("a").code, 0);
    let (uid, gid, mode) = facts();
    assert_eq!(mode, 0o600, "a new file is for its maker");
    set_mode(&user, "tokens.toml", 0o640);
    assert_eq!(new("b").code, 0);
    assert_eq!(facts(), (uid, gid, 0o640));
    std::os::unix::fs::symlink("tokens.toml", user.home.join("link.toml")).unwrap();
    assert_eq!(user.run("token new --name c --rights inspect --file link.toml").code, 0);
    assert!(fs::symlink_metadata(user.home.join("link.toml")).unwrap().is_symlink(), "a link stays a link");
    assert_eq!(fs::read_to_string(user.home.join("tokens.toml")).unwrap().matches("[[token]]").count(), 3);
    if !is_root() {
        return skipped("it needs root, to give a file away");
    }
    chown(user.home.join("tokens.toml"), Some(12_345), Some(23_456)).unwrap();
    assert_eq!(new("d").code, 0);
    assert_eq!(facts(), (12_345, 23_456, 0o640));
}

#[test]
fn an_agent_uses_no_tokens_of_another_user() {
    if !is_root() {
        return skipped("it needs root, to give a file away");
    }
    let user = User::new("tokens");
    assert_eq!(user.run("token new --name a --rights inspect --file tokens.toml").code, 0);
    set_mode(&user, "tokens.toml", 0o644);
    chown(user.home.join("tokens.toml"), Some(12_345), None).unwrap();
    let agent = "agent --name a --socket a.sock --data a --api 127.0.0.1:0 --api-tokens tokens.toml";
    user.run(agent).failed_somehow("belongs to another user");
    // Root's file is good for the agent of any user.
    chown(user.home.join("tokens.toml"), Some(0), None).unwrap();
    let user = user.of_somebody_else();
    let mut agent = user.start(agent);
    user.wait_for("a.sock");
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

#[test]
fn keys_that_others_can_read_are_refused() {
    let user = User::new("readable");
    assert_eq!(user.run("init --names a,b --out group --loopback").code, 0);
    for mode in [0o640, 0o604, 0o644, 0o660] {
        set_mode(&user, "group/authority.key", mode);
        user.run("init --renew group --names a").failed_somehow("other users of this machine can read it");
    }
    set_mode(&user, "group/authority.key", 0o600);
    assert_eq!(user.run("init --renew group --names a").code, 0);
    if is_root() {
        chown(user.home.join("group/a/node.key"), Some(12_345), None).unwrap();
    }
    for mode in [0o640, 0o604] {
        set_mode(&user, "group/a/node.key", mode);
        user.run("agent --config group/a/hallpass.toml").failed_somehow("other users of this machine can read it");
    }
}

/// A core file, or another process of the same user, would have the keys.
#[cfg(target_os = "linux")]
#[test]
fn the_memory_of_an_agent_with_keys_is_its_own() {
    let user = User::new("memory");
    assert_eq!(user.run("init --names a,b --out group --loopback").code, 0);
    let user = if is_root() {
        let user = user.of_somebody_else();
        let uid = fs::metadata(&user.home).unwrap().uid();
        let given = std::process::Command::new("chown")
            .args(["-R", &uid.to_string(), "group"])
            .current_dir(&user.home)
            .status();
        assert!(given.unwrap().success());
        user
    } else {
        user
    };
    let mut agent = user.start("agent --config group/a/hallpass.toml");
    let line = first_line(&mut agent);
    user.wait_for("group/a/agent.sock");
    let limits = fs::read_to_string(format!("/proc/{}/limits", agent.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{line}");
    wait_until("nobody else may look at it", || {
        fs::metadata(format!("/proc/{}/environ", agent.id())).is_ok_and(|found| found.uid() == 0)
    });
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}
