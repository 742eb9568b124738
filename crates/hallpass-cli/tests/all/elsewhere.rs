//! Two groups of one name: an agent that is in the wrong one grants nothing, and says why.

use std::fs;

use hallpass_testkit::{free_ports, wait_until};

use crate::user::{User, kill};
use crate::views::Group;

/// It was told to join, and its directory belongs to a group of its own.
#[test]
fn an_agent_that_is_to_join_does_not_go_on_with_a_group_of_its_own() {
    let mut group = Group::of_three("other-data", "1s");
    group.start_with("d", "");
    group.wait_until_open("d");
    group.end("d", "-TERM");
    let join = format!("--join {}", group.address("a"));
    group.start_with("d", &join);
    let mut holder = group.start_run("a", "run dup {} -- sh -c 'touch held; until test -e end; do sleep 0.02; done'");
    group.user.wait_for("held");
    wait_until("it says what it waits for", || group.json("d", "status")["waits_for"].as_str().is_some());
    group.run("d", "run dup {} --timeout 1s -- touch entered").failed(75, "");
    assert!(!group.user.home.join("entered").exists(), "both granted the lock");
    let why = group.json("d", "status")["waits_for"].to_string();
    assert!(why.contains("hallpass join") && why.contains("group"), "{why}");
    // It is told to give its own up.
    let joined = group.run("d", &format!("join {} {{}}", group.address("b")));
    assert_eq!(joined.code, 0, "{}", joined.err);
    group.wait_until_members("a", &["a", "b", "c", "d"]);
    group.run("d", "run dup {} --try -- touch entered").failed(75, "not free");
    fs::write(group.user.home.join("end"), "").unwrap();
    assert!(holder.wait().unwrap().success());
    // From now on this is the group that it was to join, even if only one member is left in it.
    group.end("d", "-TERM");
    group.start_with("d", &join);
    group.wait_until_members("d", &["a", "b", "c", "d"]);
}

/// The last one of the group that it has joined is not to wait for anybody.
#[test]
fn an_agent_that_has_joined_goes_on_when_all_others_have_left() {
    let mut group = Group::new("last", "1s");
    group.start_with("a", "");
    group.wait_until_open("a");
    let join = format!("--join {}", group.address("a"));
    group.start_with("b", &join);
    group.wait_until_members("a", &["a", "b"]);
    assert_eq!(group.run("a", "leave {}").code, 0);
    group.wait_until_members("b", &["b"]);
    group.end("b", "-TERM");
    group.start_with("b", &join);
    group.wait_until_open("b");
    assert_eq!(group.run("b", "run x {} -- true").code, 0);
}

#[test]
fn a_command_ends_no_agent_that_it_did_not_come_to_end() {
    let mut group = Group::of_three("goes-on", "1s");
    // Its list of peers has nobody else in it.
    group.start_with("d", &format!("--peers {}", group.address("d")));
    group.wait_until_open("d");
    let id = group.json("d", "status")["id"].clone();
    let own = group.address("d");
    for (address, why) in
        [("nobody", "no port"), ("127.0.0.1:1", "nobody answers"), ("@127.0.0.1:1", ""), (own.as_str(), "itself")]
    {
        group.run("d", &format!("join {address} {{}}")).failed_somehow(why);
        assert!(group.running.get_mut("d").unwrap().try_wait().unwrap().is_none(), "'join {address}' ended it");
    }
    group.run("d", "class set x/ unheard-of {}").failed_somehow("unheard-of");
    group.run("d", "evict d {}").failed_somehow("last member");
    assert_eq!(group.run("d", "run x {} -- true").code, 0);
    assert_eq!(group.json("d", "status")["id"], id, "it is the same node");
    let joined = group.run("d", &format!("join {} {{}}", group.address("a")));
    assert_eq!(joined.code, 0, "{}", joined.err);
    group.wait_until_members("a", &["a", "b", "c", "d"]);
    group.run("d", &format!("join {} {{}}", group.address("a"))).failed(1, "leave");
    group.run("d", "recover --data d.data").failed(75, "an agent uses d.data");
    // What it had as peers does not count any more, over restarts neither.
    group.end("d", "-TERM");
    group.start_with("d", &format!("--peers {own}"));
    group.wait_until_members("d", &["a", "b", "c", "d"]);
}

/// A group of three whose first member, which was given no peers, loses its directory, once this has happened.
fn without_the_first(name: &str, happened: impl Fn(&Group) -> bool) -> Group {
    let mut group = Group::new(name, "1s");
    group.start_with("a", "");
    group.wait_until_open("a");
    for name in ["b", "c"] {
        group.start_with(name, &format!("--join {}", group.address("a")));
    }
    group.wait_until_members("a", &["a", "b", "c"]);
    group.wait_until_members("c", &["a", "b", "c"]);
    // Until then there is no group without it.
    wait_until("all three vote", || group.json("b", "status")["voters"].as_array().is_some_and(|all| all.len() == 3));
    wait_until("the time has come", || happened(&group));
    group.end("a", "-KILL");
    fs::remove_dir_all(group.user.home.join("a.data")).unwrap();
    let _ = fs::remove_file(group.user.home.join("a.sock"));
    group
}

#[test]
fn an_agent_that_has_lost_its_directory_founds_no_second_group() {
    let mut group = without_the_first("founds-no-second", |group| group.user.home.join("a.data.shared").exists());
    let line = group.agent_line("a", "");
    let refused = group.user.run(&line);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("--join") && refused.err.contains("a.data.shared"), "{}", refused.err);
    group.wait_until_members("b", &["b", "c"]);
    group.start_with("a", &format!("--join {}", group.address("c")));
    group.wait_until_members("a", &["a", "b", "c"]);
}

/// What said that others were in its group is gone, too: those tell it, also when they do not miss it any more.
#[test]
fn a_second_group_of_one_ends_when_a_member_of_the_first_meets_it() {
    for evicted in [false, true] {
        let mut group = without_the_first("second", |_| true);
        let _ = fs::remove_file(group.user.home.join("a.data.shared"));
        if evicted {
            group.wait_until_members("b", &["b", "c"]);
            assert_eq!(group.run("b", "evict a {}").code, 0);
        }
        group.start_with("a", "");
        group.user.wait_for("a.sock");
        // Whether it grants at first is a matter of luck. What it has granted is lost.
        let mut holder = group.start_run("a", "run x {} --timeout 3s -- sh -c 'while :; do sleep 0.02; done'");
        wait_until("it says why it grants nothing", || {
            group.json("a", "status")["waits_for"].as_str().is_some_and(|why| why.contains("hallpass join"))
        });
        assert!([75, 76].contains(&holder.wait().unwrap().code().unwrap()), "the holder is told");
        group.run("a", "run x {} --timeout 300ms -- true").failed(75, "not free");
        assert_eq!(group.run("b", "run x {} -- true").code, 0, "the first group goes on");
        // A restart changes nothing.
        group.end("a", "-TERM");
        group.start_with("a", "");
        group.user.wait_for("a.sock");
        group.run("a", "run x {} --timeout 300ms -- true").failed(75, "not free");
        let joined = group.run("a", &format!("join {} {{}}", group.address("b")));
        assert_eq!(joined.code, 0, "{}", joined.err);
        group.wait_until_members("b", &["a", "b", "c"]);
        assert_eq!(group.run("a", "run x {} -- true").code, 0);
    }
}

/// Without keys anybody on this machine can greet. What counts is that others are in the group that greets.
#[test]
fn another_group_of_one_ends_nobody() {
    let mut group = Group::new("two-alone", "1s");
    group.start_with("a", "");
    group.start_with("b", "");
    ["a", "b"].iter().for_each(|name| group.wait_until_open(name));
    group.end("b", "-TERM");
    group.start_with("b", &format!("--join {}", group.address("a")));
    wait_until("they have met", || group.json("b", "status")["waits_for"].as_str().is_some());
    for _ in 0..20 {
        assert_eq!(group.run("a", "run x {} -- true").code, 0);
    }
}

/// The machine's place, or a user's: `run` does not start a private agent where others were in the group.
#[test]
fn no_private_agent_takes_the_place_of_one_whose_group_has_grown() {
    let user = User::new("grown");
    let base = free_ports(2);
    let mut first = user.start(&format!("agent --name a --listen 127.0.0.1:{base}"));
    user.wait_for("state/agent.sock");
    let line =
        format!("agent --name b --listen 127.0.0.1:{} --join 127.0.0.1:{base} --socket b.sock --data b.data", base + 1);
    let mut second = user.start(&line);
    user.wait_for("state/data.shared");
    kill(first.id(), "-TERM");
    first.wait().unwrap();
    user.run("run x -- touch entered").failed(69, "is a member of group 'hallpass' and does not run");
    fs::remove_dir_all(user.home.join("state/data")).unwrap();
    let refused = user.run(&format!("agent --name a --listen 127.0.0.1:{base}"));
    assert!(refused.code == 1 && refused.err.contains("second group"), "{}", refused.err);
    assert_eq!(user.run("leave").code, 0);
    assert_eq!(user.run("run x --timeout 20s -- true").code, 0);
    kill(second.id(), "-TERM");
    second.wait().unwrap();
}
