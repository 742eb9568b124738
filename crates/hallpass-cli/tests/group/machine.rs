//! The machine's agent beside those of its users, on a machine of the test's own: what is in `/etc`, `/run` and `/var/lib` there is
//! seen by its processes alone.

use std::process::{Child, Command, Stdio};

use crate::user::{Ran, User, kill, wait_until, words};

const SOCKET: &str = "/run/hallpass/agent.sock";

/// A machine without agents, and one of its users.
struct Machine {
    user: User,
    /// As long as this process runs.
    namespace: Child,
}

impl Machine {
    /// None unless the tests are run by root, who may mount.
    fn new(name: &str) -> Option<Self> {
        let user = User::without_a_home(name)?;
        // Agents with the same paths know of each other also across such machines. Behind these links the paths are different.
        let script = "set -e; for place in /etc /run /var/lib; do mount -t tmpfs none $place; mkdir $place/$0; done
            touch /etc/passwd; ln -s $0 /run/hallpass; ln -s $0 /var/lib/hallpass; echo; exec sleep 1000";
        let mut namespace = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, &format!("of-{}", user.number())])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        let mounted = std::io::Read::read_exact(namespace.stdout.as_mut().unwrap(), &mut ready).is_ok();
        let machine = Self { user, namespace };
        if !mounted {
            assert!(std::env::var_os("CI").is_none(), "nothing can be mounted here");
            eprintln!("SKIPPED: nothing can be mounted here");
            return None;
        }
        Some(machine)
    }

    /// A command of root's on the machine.
    fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.namespace.id()));
        command.arg(format!("--wdns={}", self.user.home.display())).arg("--");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn root(&self, line: &str) -> Command {
        let mut command = self.command();
        command.arg(env!("CARGO_BIN_EXE_hallpass")).args(words(line)).env_remove("HALLPASS_SOCKET");
        command
    }

    fn shell(&self, script: &str) {
        assert!(self.command().args(["sh", "-c", script]).status().unwrap().success(), "{script}");
    }

    /// Starts the machine's agent, which lets the user in.
    fn start_agent(&self, options: &str) -> Child {
        let line = format!("agent --name machine --socket-group {} {options}", self.user.number());
        let agent = self.root(&line).spawn().unwrap();
        wait_until("the machine's agent answers", || self.root("status").output().unwrap().status.success());
        agent
    }

    /// A command of the user's.
    fn run(&self, line: &str) -> Ran {
        let number = self.user.number().to_string();
        let mut command = self.command();
        command.args(["setpriv", "--reuid", &number, "--regid", &number, "--clear-groups"]);
        command.arg(self.user.home.join("hallpass")).args(words(line));
        self.user.settings(&mut command);
        Ran::of(command.output().unwrap())
    }

    /// The node under whose agent a command of the user's is run.
    fn node_of_run(&self) -> String {
        let ran = self.run("run x --timeout 20s -- sh -c 'echo $HALLPASS_NODE'");
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out.trim().to_owned()
    }

    /// Asserts that the user gets no agent of its own.
    #[track_caller]
    fn refuses(&self, why: &str) {
        self.run("run x -- true").failed(69, why);
        assert!(!self.user.place().exists(), "a private agent was started: {why}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
    }
}

/// It knows nothing of the machine's locks, and its commands would be inside beside those of the machine's agent.
#[test]
fn a_private_agent_from_before_is_not_left_beside_the_machines() {
    let Some(machine) = Machine::new("beside") else { return };
    assert_eq!(machine.node_of_run(), "private");
    for configuration in ["true", "mkdir /etc/hallpass && echo >/etc/hallpass/hallpass.toml"] {
        machine.shell(configuration);
        let mut agent = machine.start_agent("");
        machine.run("run x -- true").failed(69, "a private agent of this user still runs");
        kill(agent.id(), "-TERM");
        agent.wait().unwrap();
    }
    let mut agent = machine.start_agent("");
    let own = machine.user.place().join("agent.sock");
    assert_eq!(machine.run(&format!("leave --socket {}", own.display())).code, 0);
    assert_eq!(machine.node_of_run(), "machine");
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}

/// An agent of the machine that was killed, ended for a while, or may not be looked at, is not replaced by one of the user's.
#[test]
fn where_the_machine_has_an_agent_nobody_gets_a_private_one() {
    let Some(machine) = Machine::new("machine") else { return };
    // Killed: it left its socket.
    let mut agent = machine.start_agent("--data /var/lib/hallpass/own");
    assert_eq!(machine.node_of_run(), "machine");
    kill(agent.id(), "-KILL");
    agent.wait().unwrap();
    machine.refuses(SOCKET);
    // Ended in order: it left only the mark of a member.
    machine.shell("rm /run/hallpass/agent.sock");
    machine.refuses("is a member of group 'hallpass' and does not run");
    machine.shell("chmod 700 /var/lib/hallpass");
    machine.refuses("may be a member of a group");
    // Not even started: it left its configuration, for root alone.
    machine.shell("rm /var/lib/hallpass; mkdir -m 700 /etc/hallpass; echo >/etc/hallpass/hallpass.toml");
    machine.refuses(SOCKET);
    machine.shell("rm -r /etc/hallpass");
    assert_eq!(machine.node_of_run(), "private", "nothing is left of it");
}
