//! What people are told who wait, and who ask who holds a lock.

use hallpass_testkit::wait_until;
use serde_json::Value;

use crate::user::{Ran, User, kill};

#[test]
fn who_waits_is_told_for_whom() {
    let user = User::new("told");
    let mut holder = user.start("run x -- sh -c 'touch held; until test -e end; do sleep 0.02; done'");
    user.wait_for("held");
    let told = Ran::of(user.start("run x --verbose --timeout 3s -- true").wait_with_output().unwrap());
    assert_eq!(told.code, 75);
    let expected = format!("waiting for lock 'x': held by pid {} of", holder.id());
    assert!(told.err.contains(&expected) && told.err.contains("until test -e end"), "{}", told.err);
    assert_eq!(told.err.lines().count(), 2, "once, and the end: {}", told.err);
    assert!(told.err.lines().last().unwrap().contains("was not free within 3s (held by pid"), "{}", told.err);
    // Off a terminal nothing is said unless asked for.
    let silent = user.run("run x --timeout 1500ms -- true");
    silent.failed(75, "was not free");
    user.run("run x --timeout 0s -- true").failed(75, "is not free (held by pid");
    std::fs::write(user.home.join("end"), "").unwrap();
    assert!(holder.wait().unwrap().success());
    assert_eq!(user.run("run x --timeout 0s -- true").code, 0);
}

#[test]
fn who_waits_is_told_which_member_is_missing() {
    let user = User::new("missing");
    let base = hallpass_testkit::free_ports(2);
    let mut agent = user.start(&format!(
        "agent --name a --listen 127.0.0.1:{base} --peers 127.0.0.1:{base},b@127.0.0.1:{} --socket a.sock",
        base + 1
    ));
    user.wait_for("a.sock");
    let told = Ran::of(user.start("run x --socket a.sock --verbose --timeout 3s -- true").wait_with_output().unwrap());
    assert_eq!(told.code, 75);
    assert!(told.err.contains("waiting for lock 'x': member 'b' is not connected: "), "{}", told.err);
    let mut waiter = user.start("run x --socket a.sock -- true");
    user.wait_for_waiter("--socket a.sock");
    let listed = user.run("locks --socket a.sock");
    assert!(listed.out.contains(&waiter.id().to_string()), "{}", listed.out);
    kill(waiter.id(), "-TERM");
    waiter.wait().unwrap();
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

#[test]
fn a_run_inside_a_run_of_the_same_lock_is_refused() {
    let user = User::new("nested");
    let hallpass = env!("CARGO_BIN_EXE_hallpass");
    let inner = user.run(&format!("run x -- {hallpass} run x -- true"));
    inner.failed(64, "under lock 'x' already");
    assert_eq!(user.run(&format!("run x -- {hallpass} run y -- true")).code, 0, "another lock is none of it");
    let inmost = user.run(&format!("run x -- {hallpass} run y -- {hallpass} run x -- true"));
    inmost.failed(64, "under lock 'x' already");
}

#[test]
fn locks_names_holders_and_waiters() {
    let user = User::new("names");
    let mut holder = user.start("run jobs/1 -- sh -c 'touch held; exec sleep 60'");
    user.wait_for("held");
    let mut waiter = user.start("run jobs/1 -- true");
    let long = "n".repeat(200);
    assert_eq!(user.run(&format!("run {long} -- true")).code, 0);
    let locks = |options: &str| -> Vec<Value> {
        let ran = user.run(&format!("locks --json {options}"));
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.err))
    };
    wait_until("both are listed", || locks("")[0]["waiting"].as_array().is_some_and(|waiting| waiting.len() == 1));
    let all = locks("");
    let lock = &all[0];
    assert_eq!((&lock["name"], &lock["held"], &lock["where"]), (&"jobs/1".into(), &"exclusive".into(), &"here".into()));
    assert_eq!((&lock["holders"], &lock["waiters"]), (&1.into(), &1.into()));
    let (held, waiting) = (&lock["held_by"][0], &lock["waiting"][0]);
    assert_eq!((&held["pid"], &waiting["pid"]), (&holder.id().into(), &waiter.id().into()));
    assert_eq!((&held["node"], &held["mode"]), (&"private".into(), &"exclusive".into()));
    assert!(held["command"].as_str().unwrap().starts_with("sh -c touch held"), "{held}");
    assert!(held["user"].is_string() && held["for_ms"].is_u64(), "{held}");
    // In a group of one nothing is remembered of a lock that nobody uses; elsewhere it is 'cached'.
    assert_eq!(locks("--held").len(), 1);
    assert_eq!(locks("--prefix jobs/").len(), 1);
    assert_eq!(locks("--prefix other").len(), 0);
    assert_eq!(locks("--limit 0").len(), 0);
    let table = user.run("locks");
    assert!(
        table.out.lines().all(|line| line.chars().count() < 200),
        "a long name does not widen the table: {}",
        table.out
    );
    assert!(user.run("locks --limit 0").out.contains("and 1 more"), "{}", user.run("locks --limit 0").out);
    assert!(user.run("locks --prefix other").out.contains("by this user's private agent"));
    kill(holder.id(), "-TERM");
    holder.wait().unwrap();
    assert!(waiter.wait().unwrap().success());
}

/// Three members: what is known of locks that are cached, and held by another member.
#[test]
fn locks_tells_cached_from_held_elsewhere() {
    let user = User::new("elsewhere");
    let mut agents = crate::agents::agents(&user, hallpass_testkit::free_ports(3));
    let lock = |name: &str| -> Value {
        let ran = user.run(&format!("locks --json --socket group/{name}/agent.sock"));
        serde_json::from_str::<Value>(&ran.out).unwrap()[0].clone()
    };
    // Who comes back to a lock keeps it.
    for _ in 0..2 {
        assert_eq!(user.run("run x --socket group/a/agent.sock -- true").code, 0);
    }
    assert_eq!((&lock("a")["where"], &lock("a")["held"]), (&"cached".into(), &Value::Null));
    let mut holder = user.start("run x --socket group/a/agent.sock -- sh -c 'touch held; exec sleep 60'");
    user.wait_for("held");
    let mut waiter = user.start("run x --socket group/b/agent.sock --verbose -- true");
    wait_until("b knows whom it waits for", || lock("b")["held_by"][0]["node"] == "a");
    assert_eq!((&lock("b")["where"], &lock("b")["held"]), (&"elsewhere".into(), &Value::Null));
    kill(holder.id(), "-TERM");
    holder.wait().unwrap();
    assert!(waiter.wait().unwrap().success());
    for agent in &mut agents {
        kill(agent.id(), "-TERM");
        agent.wait().unwrap();
    }
}

/// The agent says that the lock was lost before the command ended: it ran without the lock for a while.
#[test]
fn a_lock_that_was_lost_before_the_release_is_reported() {
    use std::io::{BufRead, BufReader, Write};
    let user = User::new("not-held");
    let listener = std::os::unix::net::UnixListener::bind(user.home.join("a.sock")).unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
        let answer = |line: &str| writeln!(&stream, "{line}").unwrap();
        answer(r#"{"is":"welcome","version":1,"node":"n","group":"g","ttl_ms":5000}"#);
        requests.next().unwrap().unwrap();
        answer(r#"{"is":"granted","lock":"x","fence":7}"#);
        assert!(requests.next().unwrap().unwrap().contains("release"));
        answer(r#"{"is":"released","held":false}"#);
    });
    user.run("run x --socket a.sock -- true").failed(76, "was lost before the command ended");
    server.join().unwrap();
}
