//! Which agent a command finds: one for each user, whatever the environment says, and never another one in place of the right one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hallpass_testkit::wait_until;

use crate::user::{Ran, User, is_root, kill, skipped, words};

/// A login shell and a cron job, a unit without HOME: the same user, the same agent.
#[test]
fn one_user_has_one_agent_whatever_the_environment_says() {
    let Some(user) = User::without_a_home("environment") else { return };
    let fence = |environment: &[(&str, &str)]| {
        let mut command = user.command(&words("run x -- sh -c 'echo $HALLPASS_FENCE'"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.envs(environment.iter().copied());
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, 0, "{environment:?}: {}", ran.err);
        ran.out.trim().parse::<u64>().unwrap()
    };
    let other = user.home.join("other").display().to_string();
    let environments: [&[(&str, &str)]; 6] = [
        &[],
        &[("HOME", &other)],
        &[("HOME", "/nonexistent")],
        &[("XDG_STATE_HOME", &other), ("HOME", "/")],
        &[("XDG_RUNTIME_DIR", &other)],
        &[("TMPDIR", &other)],
    ];
    let fences: Vec<u64> = environments.into_iter().map(fence).collect();
    // Two agents would both begin with the same fence, or with one that is not the next.
    assert!(fences.windows(2).all(|pair| pair[1] == pair[0] + 1), "{fences:?}");
    assert!(!user.home.join("other").exists(), "nothing is created where HOME points to");
    let mut holder = user.start("run x -- sh -c 'touch held; exec sleep 60'");
    user.wait_for("held");
    let mut command = user.command(&words("run x --try -- true"));
    Ran::of(command.env_clear().env("HOME", &other).output().unwrap()).failed(75, "not free");
    kill(holder.id(), "-TERM");
    holder.wait().unwrap();
}

/// Somebody else may have created the place of a user without a home directory.
#[test]
fn a_place_that_somebody_else_created_is_not_used() {
    let Some(user) = User::without_a_home("squatted") else { return };
    let place = user.place();
    fs::create_dir(&place).unwrap();
    user.run("run x -- true").failed(69, "must belong to this user");
    // Not even if there is an agent that greets.
    fs::write(place.join("member"), "evil").unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(place.join("agent.sock")).unwrap();
    for command in ["run x -- true", "status", "locks", "leave"] {
        user.run(command).failed(69, "must belong to this user");
    }
    fs::remove_dir_all(&place).unwrap();
    std::os::unix::fs::symlink(&user.home, &place).unwrap();
    user.run("run x -- true").failed(69, "must belong to this user");
    fs::remove_file(&place).unwrap();
    assert_eq!(user.run("run x -- true").code, 0);
}

/// Two members; the agent of one of them is at the default place.
fn member(user: &User) -> (std::process::Child, std::process::Child) {
    let base = hallpass_testkit::free_ports(2);
    let peers = format!("127.0.0.1:{base},127.0.0.1:{}", base + 1);
    let start = |name: &str, port: u16, socket: &str| {
        user.start(&format!("agent --name {name} --listen 127.0.0.1:{port} --peers {peers} {socket}"))
    };
    let agents = (start("a", base, ""), start("b", base + 1, "--socket b.sock"));
    // Before that the place belongs to nobody, and 'run' would start a private agent.
    user.wait_for("state/member");
    wait_until("both agents answer", || {
        user.run("run y --timeout 2s -- true").code == 0
            && user.run("run y --timeout 2s --socket b.sock -- true").code == 0
    });
    agents
}

#[test]
fn no_private_agent_takes_the_place_of_a_member_that_was_ended_or_killed() {
    for signal in ["-TERM", "-KILL"] {
        let user = User::new("fallback");
        let (mut a, mut b) = member(&user);
        let mut holder = user.start("run x --socket b.sock -- sh -c 'touch held; exec sleep 60'");
        user.wait_for("held");
        kill(a.id(), signal);
        a.wait().unwrap();
        let refused = user.run("run x -- touch entered");
        refused.failed(69, "is a member of group 'hallpass' and does not run");
        assert!(refused.err.contains("hallpass leave"), "the way out is named: {}", refused.err);
        assert!(!user.home.join("entered").exists());
        // On purpose.
        let left = user.run("leave");
        assert_eq!((left.code, left.err.as_str()), (0, ""));
        assert_eq!(user.run("run x --timeout 20s -- true").code, 0, "a private agent is there now");
        user.run("leave --socket gone.sock").failed(69, "gone.sock");
        kill(holder.id(), "-TERM");
        holder.wait().unwrap();
        kill(b.id(), "-TERM");
        b.wait().unwrap();
    }
}

#[test]
fn an_agent_that_is_asked_to_leave_gives_its_place_up() {
    let user = User::new("leaves");
    let (mut a, mut b) = member(&user);
    let left = user.run("leave");
    assert!(left.out.contains("the agent has ended"), "{}{}", left.out, left.err);
    assert!(a.try_wait().unwrap().is_some() || a.wait().unwrap().success(), "leave returns when the agent has ended");
    assert_eq!(user.run("run x -- true").code, 0);
    let left = user.run("leave");
    assert!(left.out.contains("this user's private agent has ended"), "{}", left.out);
    kill(b.id(), "-TERM");
    b.wait().unwrap();
}

/// By default data is kept where it outlives a reboot, not beside the socket.
#[test]
fn data_is_not_kept_beside_the_socket() {
    let user = User::new("tmpfs");
    let fence = || -> u64 {
        let mut agent = user.start("agent --socket volatile/a.sock");
        user.wait_for("volatile/a.sock");
        let ran = user.run("run x --socket volatile/a.sock -- sh -c 'echo $HALLPASS_FENCE'");
        kill(agent.id(), "-TERM");
        agent.wait().unwrap();
        ran.out.trim().parse().unwrap()
    };
    let first = fence();
    let _ = fs::remove_dir_all(user.home.join("volatile"));
    // Within the step of the clock: only what was kept makes it larger.
    assert!(fence() > first);
}

#[test]
fn an_agent_whose_socket_was_removed_makes_it_again() {
    let user = User::new("unlinked");
    let mut agent = user.start("agent");
    user.wait_for("state/agent.sock");
    fs::remove_file(user.home.join("state/agent.sock")).unwrap();
    wait_until("the socket is back", || user.run("run x --timeout 10s -- true").code == 0);
    assert!(agent.try_wait().unwrap().is_none());
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

#[test]
fn an_agent_whose_data_was_removed_makes_it_again_and_no_other_is_started_beside_it() {
    let user = User::new("emptied");
    let mut holder = user.start("run x -- sh -c 'touch held; until test -e end; do sleep 0.02; done'");
    user.wait_for("held");
    fs::remove_dir_all(user.home.join("state")).unwrap();
    let mut other = user.start("run x --timeout 60s -- sh -c 'touch entered'");
    user.wait_for("state/data/running");
    user.wait_for_waiter("");
    assert!(!user.home.join("entered").exists(), "two agents granted one lock");
    assert!(holder.try_wait().unwrap().is_none(), "the holder keeps its lock");
    fs::write(user.home.join("end"), "").unwrap();
    assert!(holder.wait().unwrap().success());
    assert!(other.wait().unwrap().success());
}

/// What an agent has counted is not lost with its directory.
#[test]
fn fences_rise_whatever_is_removed() {
    let user = User::new("rise");
    let mut last = 0;
    for _ in 0..4 {
        let ran = user.run("run x --timeout 30s -- sh -c 'echo $HALLPASS_FENCE'");
        let fence: u64 = ran.out.trim().parse().unwrap_or_else(|_| panic!("{}", ran.err));
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        fs::remove_dir_all(user.home.join("state")).unwrap();
        user.wait_for("state/data/running");
    }
}

/// A configuration that is there counts, also for those who may not read it.
#[test]
fn who_may_not_read_the_configuration_gets_no_private_agent() {
    let Some(user) = User::without_a_home("unreadable") else { return };
    let config = user.home.join("secret.toml");
    fs::write(&config, "socket = 'a.sock'").unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = user.command(&words("run x -- true"));
    Ran::of(command.env("HALLPASS_CONFIG", &config).output().unwrap()).failed(69, "Permission denied");
}

#[test]
fn the_socket_is_for_its_user_or_for_a_group_of_users() {
    let user = User::new("modes");
    let mode = |path: &str| fs::metadata(user.home.join(path)).unwrap().permissions().mode() & 0o777;
    let mut agent = user.start("agent --socket own/a.sock");
    user.wait_for("own/a.sock");
    assert_eq!((mode("own/a.sock"), mode("own")), (0o600, 0o700));
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
    assert!(!user.home.join("own").exists(), "an agent that was ended leaves nothing that keeps others out");
    if !is_root() {
        return skipped("it needs root, to give a socket to another group");
    }
    fs::write(user.home.join("group.toml"), "state = 'state'\nsocket = 'group/a.sock'\nsocket_group = '12345'\n")
        .unwrap();
    let mut agent = user.start("agent --config group.toml");
    user.wait_for("group/a.sock");
    assert_eq!((mode("group/a.sock"), mode("group")), (0o660, 0o750));
    use std::os::unix::fs::MetadataExt;
    assert_eq!(fs::metadata(user.home.join("group/a.sock")).unwrap().gid(), 12_345);
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
    user.run("agent --socket g.sock --socket-group nosuchgroup").failed(64, "nosuchgroup");
}
