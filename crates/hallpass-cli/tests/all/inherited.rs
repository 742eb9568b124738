//! What a command under `run` can do with the connection that it inherits: nothing but give up its own lock.

use std::fs;
use std::process::Child;

use crate::user::{User, is_root, is_running, kill};

/// Sends every line of a file to every socket that it has inherited, also by the names that the system has for them, and says to how many.
const WRITES: &str = "
    sent=0
    for n in 3 4 5 6 7 8 9; do
        case $(readlink /proc/$$/fd/$n) in socket:*) ;; *) continue;; esac
        eval \"cat requests >&$n\" && sent=$((sent + 1))
        (cat requests >/proc/$$/fd/$n) 2>/dev/null
    done
    echo $sent >sent.new; mv sent.new sent
    test ! -e wait || until test -e end; do sleep 0.02; done";

const REQUESTS: &str = r#"{"do":"break","lock":"other"}
{"do":"acquire","lock":"taken"}
{"do":"acquire","lock":"taken","hold_only":false}
{"do":"evict","node":"a","ban":true}
{"do":"admit","name":"x"}
{"do":"set_class","prefix":"p","protocol":"raymond"}
{"do":"join","address":"127.0.0.1:1"}
{"do":"locks"}
{"do":"status"}
no request at all
{"do":"leave"}
"#;

/// Somebody else who holds a lock of the same agent, and the words that start a command as another user, where that is possible.
fn start(user: &User) -> (Child, Child, &'static str) {
    let agent = user.start("agent --name a --socket a.sock");
    user.wait_for("a.sock");
    let other = user.start("run other --socket a.sock -- sh -c 'touch held; until test -e over; do sleep 0.02; done'");
    user.wait_for("held");
    fs::write(user.home.join("requests"), REQUESTS).unwrap();
    fs::write(user.home.join("writes"), WRITES).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    fs::set_permissions(&user.home, mode(0o777)).unwrap();
    (agent, other, if is_root() { "setpriv --reuid 65534 --clear-groups" } else { "" })
}

#[test]
fn a_command_asks_the_agent_for_nothing_through_the_connection_that_it_inherits() {
    let user = User::new("inherited");
    let (mut agent, mut other, as_nobody) = start(&user);
    let ran = user.run(&format!("run x --socket a.sock -- {as_nobody} sh ./writes"));
    // The agent has answered all of it: the release comes after it on the same connection.
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "the command was not stopped");
    assert_eq!(user.number_in("sent"), 1, "it inherits one connection");
    assert!(agent.try_wait().unwrap().is_none(), "the agent was ended");
    assert!(other.try_wait().unwrap().is_none(), "a lock of somebody else was broken");
    assert_eq!(user.run("run taken --try --socket a.sock -- true").code, 0, "the command took a lock");
    assert_eq!(user.run("run x --try --socket a.sock -- true").code, 0);
    fs::write(user.home.join("over"), "").unwrap();
    assert_eq!(other.wait().unwrap().code(), Some(0));
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

/// The lock is kept as long as the command lives, whatever it has sent, and although nobody watches it any more.
#[test]
fn a_command_that_was_refused_keeps_its_lock_though_run_and_its_supervisor_are_killed() {
    let user = User::new("refused");
    let (mut agent, mut other, as_nobody) = start(&user);
    fs::write(user.home.join("wait"), "").unwrap();
    fs::write(user.home.join("writes"), format!("echo $$ >pid.new; mv pid.new pid\n{WRITES}")).unwrap();
    let mut run = user.start(&format!("run x --socket a.sock -- {as_nobody} sh ./writes"));
    assert_eq!(user.number_in("sent"), 1);
    let command = user.number_in("pid");
    user.run("run x --try --socket a.sock -- true").failed(75, "not free");
    kill(run.id(), "-KILL");
    run.wait().unwrap();
    assert_eq!(user.run("run x --timeout 20s --socket a.sock -- true").code, 0);
    assert!(!is_running(command), "the lock was granted while the command ran");
    fs::write(user.home.join("over"), "").unwrap();
    assert_eq!(other.wait().unwrap().code(), Some(0));
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

/// It can give its own lock up. Then it has no time left.
#[test]
fn a_command_that_gives_its_lock_up_is_stopped() {
    let user = User::new("gives-up");
    let (mut agent, mut other, _) = start(&user);
    let gives_up = "
        request='{\"do\":\"release\",\"lock\":\"x\",\"fence\":'$HALLPASS_FENCE'}'
        for n in 3 4 5 6 7 8 9; do
            case $(readlink /proc/$$/fd/$n) in socket:*) eval \"echo \\$request >&$n\";; esac
        done
        sleep 1000; true";
    fs::write(user.home.join("writes"), gives_up).unwrap();
    let ran = user.run("run x --socket a.sock -- sh ./writes");
    ran.failed(76, "the command has released it");
    assert_eq!(user.run("run x --timeout 20s --socket a.sock -- true").code, 0);
    fs::write(user.home.join("over"), "").unwrap();
    assert_eq!(other.wait().unwrap().code(), Some(0));
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}
