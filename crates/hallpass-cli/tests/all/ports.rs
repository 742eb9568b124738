//! Who can reach an agent over TCP: nobody, unless it has others or was told where to listen.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use hallpass_testkit::{free_port, wait_until};
use serde_json::Value;

use crate::private_agent::private_agent_of;
use crate::user::{User, kill};

/// The local addresses, as the system writes them, at which a process listens on TCP.
fn listens_at(pid: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let sockets: Vec<PathBuf> = descriptors.filter_map(|file| fs::read_link(file.path()).ok()).collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (address, state, inode) = (fields[1], fields[3], fields[9]);
            if state == "0A" && sockets.contains(&PathBuf::from(format!("socket:[{inode}]"))) {
                found.push(address.to_owned());
            }
        }
    }
    found
}

fn members(user: &User, socket: &str) -> Vec<Value> {
    serde_json::from_str(&user.run(&format!("members --json --socket {socket}")).out).unwrap_or_default()
}

fn wait_for_two(user: &User, sockets: &[&str]) {
    wait_until("both are members", || {
        sockets.iter().all(|socket| {
            let members = members(user, socket);
            members.iter().filter(|member| member["state"] == "member" && member["connected"] == true).count() == 2
        })
    });
}

fn end(mut agent: Child) {
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

/// Its socket is for its user alone, and so is its group. A user who reached a port could join that group, and stop it.
#[test]
fn a_private_agent_has_no_port() {
    let user = User::new("no-port");
    assert_eq!(user.run("run x -- true").code, 0);
    assert_eq!(listens_at(private_agent_of(&user)), Vec::<String>::new());
}

#[test]
fn an_agent_that_is_alone_and_was_given_no_address_has_no_port() {
    let user = User::new("alone");
    let start = |options: &str| {
        let agent = user.start(&format!("agent --name a --socket a.sock --data a {options}"));
        wait_until("it grants", || user.run("run x --try --socket a.sock -- true").code == 0);
        agent
    };
    let agent = start("");
    assert_eq!(listens_at(agent.id()), Vec::<String>::new());
    assert!(user.run("members --socket a.sock").out.contains("none"), "it has no address");
    end(agent);
    // Told to listen, it can be joined.
    let port = free_port();
    let mut agent = user
        .command(&crate::user::words(&format!("agent --name a --socket a.sock --data a --listen 127.0.0.1:{port}")))
        .stderr(fs::File::create(user.home.join("log")).unwrap())
        .spawn()
        .unwrap();
    wait_until("it grants", || user.run("run x --try --socket a.sock -- true").code == 0);
    assert_eq!(listens_at(agent.id()), [format!("0100007F:{port:04X}")]);
    let log = fs::read_to_string(user.home.join("log")).unwrap();
    let line = log.lines().find(|line| line.contains("can join this group and take its locks"));
    assert!(line.is_some_and(|line| line.contains(&format!("127.0.0.1:{port}"))), "{log}");
    let b = user.start(&format!("agent --name b --socket b.sock --data b --join 127.0.0.1:{port}"));
    wait_for_two(&user, &["a.sock", "b.sock"]);
    // It has others now, and they must reach it, whatever it is told.
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
    let agent = user.start("agent --name a --socket a.sock --data a");
    wait_for_two(&user, &["a.sock", "b.sock"]);
    assert_eq!(listens_at(agent.id()).len(), 1);
    end(agent);
    end(b);
}

#[test]
fn an_agent_without_a_port_opens_one_when_it_is_told_to_join() {
    let user = User::new("told");
    let port = free_port();
    let a = user.start(&format!("agent --name a --socket a.sock --data a --listen 127.0.0.1:{port}"));
    let b = user.start("agent --name b --socket b.sock --data b");
    for socket in ["a.sock", "b.sock"] {
        wait_until("it grants", || user.run(&format!("run x --try --socket {socket} -- true")).code == 0);
    }
    assert_eq!(listens_at(b.id()), Vec::<String>::new());
    let joined = user.run(&format!("join 127.0.0.1:{port} --socket b.sock --timeout 30s"));
    assert_eq!(joined.code, 0, "{}", joined.err);
    wait_for_two(&user, &["a.sock", "b.sock"]);
    assert_eq!(listens_at(b.id()).len(), 1);
    end(a);
    end(b);
}
