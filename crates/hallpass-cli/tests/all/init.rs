//! `hallpass init`: what it creates works, ends, and can be renewed and replaced.

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use hallpass_testkit::{Scratch, free_ports, wait_until, without_settings};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;

/// A directory for one test, and the agents that were started in it.
struct Host {
    home: Scratch,
    agents: Vec<Child>,
}

impl Host {
    fn new(name: &str) -> Self {
        Self { home: Scratch::new(name), agents: Vec::new() }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hallpass"));
        command.args(line.split_whitespace()).current_dir(&self.home).stdin(Stdio::null());
        without_settings(&mut command);
        command
    }

    #[track_caller]
    fn run(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asserts that a command fails with this code and one line that contains this text.
    #[track_caller]
    fn failed(&self, line: &str, code: i32, text: &str) {
        let Output { status, stderr, .. } = self.command(line).output().unwrap();
        let err = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(code), "{line}: {err}");
        assert!(err.lines().count() == 1 && err.contains(text), "{line}: {err}");
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.home.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// Starts the agents of these members, and waits until they listen at their sockets. Their logs are in `NAME.log`.
    fn start(&mut self, group: &str, names: &[&str]) {
        for name in names {
            let log = fs::File::create(self.home.join(format!("{name}.log"))).unwrap();
            let mut command = self.command(&format!("agent --config {group}/{name}/hallpass.toml"));
            self.agents.push(command.stderr(log).spawn().unwrap());
        }
        for name in names {
            let socket = self.home.join(format!("{group}/{name}/agent.sock"));
            wait_until("the agent listens", || socket.exists());
        }
    }

    fn is_complete(&self, group: &str, name: &str) -> bool {
        let line = format!("status --json --socket {group}/{name}/agent.sock");
        let status = self.command(&line).output().unwrap();
        serde_json::from_slice::<Value>(&status.stdout).is_ok_and(|status| status["complete"] == true)
    }

    /// Ends the agents in order.
    fn stop(&mut self) {
        for mut agent in self.agents.drain(..) {
            let _ = Command::new("kill").arg(agent.id().to_string()).status();
            let _ = agent.wait();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn a_member_listens_on_ipv6_and_ipv4() {
    let mut host = Host::new("dual");
    let port = free_ports(3);
    host.run(&format!("init --names a,b --out group --port {port}"));
    assert!(host.read("group/a/hallpass.toml").contains(&format!("listen = \"[::]:{port}\"")));
    host.start("group", &["a"]);
    TcpStream::connect(("127.0.0.1", port)).expect("IPv4");
    if TcpListener::bind("[::1]:0").is_ok() {
        TcpStream::connect(("::1", port)).expect("IPv6");
    }
}

#[test]
fn certificates_end_and_an_agent_says_so_in_time() {
    let mut host = Host::new("end");
    let ports = free_ports(3);
    let said = host.run(&format!("init --names a,b --out group --loopback --port {ports} --days 10"));
    assert!(said.contains("the certificates end on 20") && said.contains("hallpass init --renew group"), "{said}");
    host.start("group", &["a"]);
    let log = host.read("a.log");
    assert!(log.contains("WARN") && log.contains("node.pem ends on 20"), "{log}");
    host.stop();
    // Another one, whose time is over.
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["b".to_owned()]).unwrap();
    params.not_after = date_time_ymd(2001, 2, 3);
    fs::write(host.home.join("group/b/node.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let command = host.command("agent --config group/b/hallpass.toml").output().unwrap();
    let err = String::from_utf8(command.stderr).unwrap();
    assert_eq!(command.status.code(), Some(1), "{err}");
    assert!(err.contains("node.pem: it ended on 2001-02-03; sign a new one with 'hallpass init --renew'"), "{err}");
    // One with the usual end brings no warning.
    host.run("init --renew group --names a");
    host.start("group", &["a"]);
    assert!(!host.read("a.log").contains("ends on"), "{}", host.read("a.log"));
    host.failed("init --names a --out other --days 0", 64, "--days");
    host.failed("init --names a --out other --days 4000", 64, "--days");
}

#[test]
fn renewed_certificates_are_of_the_same_group() {
    let mut host = Host::new("renew");
    let ports = free_ports(3);
    host.run(&format!("init --names a,b --out group --loopback --port {ports}"));
    let files = ["a/node.key", "a/node.pem", "a/hallpass.toml", "a/authority.pem", "b/node.pem", "authority.key"];
    let read = |host: &Host| files.map(|file| host.read(&format!("group/{file}")));
    let before = read(&host);
    let said = host.run("init --renew group --names a,c");
    assert!(said.contains("group/a: until 20") && said.contains("group/c: until 20"), "{said}");
    let after = read(&host);
    for (index, file) in files.iter().enumerate() {
        let renewed = file.starts_with("a/node");
        assert_eq!(before[index] != after[index], renewed, "{file}");
    }
    // A new name gets keys, and no configuration.
    assert_eq!(host.read("group/c/authority.pem"), host.read("group/authority.pem"));
    assert!(host.home.join("group/c/node.key").exists() && !host.home.join("group/c/hallpass.toml").exists());
    assert!(is_private(&host.home.join("group/a/node.key")));
    // The new certificate and an old one accept each other.
    host.start("group", &["a", "b"]);
    wait_until("the group is complete", || host.is_complete("group", "a") && host.is_complete("group", "b"));
}

/// Names are compared byte for byte. Two that differ in case alone are easily confused, and one directory on some systems.
#[test]
fn names_that_could_be_confused_are_refused() {
    let host = Host::new("names");
    for name in ["member.hallpass", "Member.Hallpass"] {
        host.failed(&format!("init --names a,{name} --out group"), 64, "certificates of all members are valid for it");
    }
    host.failed("init --names b,B --out group", 64, "'b' and 'B' differ only in upper and lower case");
    host.run("init --names a,B --out group");
    host.failed("init --renew group --names b", 64, "'b' and 'B' differ only in upper and lower case");
    host.failed("init --renew group --names c,C", 64, "differ only in upper and lower case");
    // A group that has both goes on.
    fs::create_dir(host.home.join("group/b")).unwrap();
    host.run("init --renew group --names b,B");
}

#[test]
fn only_the_directory_of_an_authority_can_renew() {
    let host = Host::new("refused");
    host.failed("init --renew nowhere --names a", 1, "nowhere/authority.pem");
    host.failed("init --renew group --names a,a", 64, "named twice");
    host.failed("init --renew group --out other --names a", 64, "--out");
    host.failed("init --renew group --loopback --names a", 64, "--loopback");
    host.failed("init --names a", 64, "--out");
    host.run("init --names a --out group");
    host.run("init --names a --out other");
    fs::copy(host.home.join("other/authority.key"), host.home.join("group/authority.key")).unwrap();
    host.failed("init --renew group --names a", 1, "it is not the key of the certificate");
    fs::write(host.home.join("group/authority.key"), "nothing").unwrap();
    host.failed("init --renew group --names a", 1, "there is no private key in it");
    fs::write(host.home.join("group/authority.pem"), "nothing").unwrap();
    host.failed("init --renew group --names a", 1, "there is no certificate in it");
}

/// The drill of docs/keys.md as it stands, with real agents, and a thief who has everything that was on the host of b.
#[test]
fn a_stolen_key_is_shut_out_and_its_member_goes_on() {
    let mut host = Host::new("stolen");
    let ports = free_ports(4);
    host.run(&format!("init --names a,b,c --out group --loopback --port {ports}"));
    host.start("group", &["a", "b", "c"]);
    let is_complete = |host: &Host| ["a", "b", "c"].iter().all(|name| host.is_complete("group", name));
    wait_until("the group is complete", || is_complete(&host));
    fs::create_dir_all(host.home.join("thief/b")).unwrap();
    for file in ["authority.pem", "node.pem", "node.key"] {
        fs::copy(host.home.join(format!("group/b/{file}")), host.home.join(format!("thief/b/{file}"))).unwrap();
    }
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/keys.md")).unwrap();
    let block = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of commands");
    let directory = Path::new(env!("CARGO_BIN_EXE_hallpass")).parent().unwrap();
    let mut shell = Command::new("timeout");
    shell.args(["120", "sh", "-euc", block]).current_dir(&host.home);
    without_settings(&mut shell);
    shell.env("PATH", format!("{}:{}", directory.display(), std::env::var("PATH").unwrap()));
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("banned keys") && said.contains("sha256:"), "{said}");
    wait_until("b is back with its new key", || is_complete(&host));
    // It survives a restart of everybody.
    host.stop();
    host.start("group", &["a", "b", "c"]);
    wait_until("the group is complete again", || is_complete(&host));
    // The thief is b to nobody, as another node or in place of the old one.
    let (own, to) = (ports + 3, ports);
    let config = format!(
        "name = \"b\"\nlisten = \"127.0.0.1:{own}\"\njoin = [\"a@127.0.0.1:{to}\"]\nkeys = \".\"\ndata = \"data\"\nsocket = \"agent.sock\"\n"
    );
    fs::write(host.home.join("thief/b/hallpass.toml"), config).unwrap();
    let log = fs::File::create(host.home.join("thief.log")).unwrap();
    let mut thief = host.command("agent --config thief/b/hallpass.toml");
    host.agents.push(thief.stderr(log).spawn().unwrap());
    wait_until("the thief is refused", || host.read("thief.log").contains("is banned from the group"));
    assert!(!host.is_complete("thief", "b") && is_complete(&host));
}

/// As docs/keys.md describes it, without a restart: both authorities are trusted while members change from one to the other, then only the
/// new one.
#[test]
fn an_authority_is_replaced_in_steps() {
    let mut host = Host::new("replace");
    let ports = free_ports(3);
    for out in ["group", "next"] {
        host.run(&format!("init --names a,b --out {out} --loopback --port {ports}"));
    }
    host.start("group", &["a", "b"]);
    let are_complete = |host: &Host| host.is_complete("group", "a") && host.is_complete("group", "b");
    wait_until("the group is complete", || are_complete(&host));
    let table = host.run("members --socket group/a/agent.sock");
    let keys: BTreeSet<_> = table.split_whitespace().filter(|word| word.starts_with("sha256:")).collect();
    assert!(keys.len() == 2 && keys.iter().all(|key| key.len() == 7 + 64), "{table}");
    let have_read = |host: &Host, name: &str, times: usize| {
        host.read(&format!("{name}.log")).matches("new connections use the new ones").count() >= times
    };
    let both = host.read("group/authority.pem") + &host.read("next/authority.pem");
    for name in ["a", "b"] {
        fs::write(host.home.join(format!("group/{name}/authority.pem")), &both).unwrap();
    }
    wait_until("both authorities are trusted", || have_read(&host, "a", 1) && have_read(&host, "b", 1));
    let take = |host: &Host, name: &str, files: &[&str]| {
        for file in files {
            let place = |group: &str| host.home.join(format!("{group}/{name}/{file}"));
            fs::copy(place("next"), place("group")).unwrap();
        }
    };
    take(&host, "a", &["node.key", "node.pem"]);
    wait_until("a has its new key", || have_read(&host, "a", 2));
    assert!(are_complete(&host));
    // Without the old authority its certificates are worth nothing.
    take(&host, "a", &["authority.pem"]);
    let members = || host.run("members --json --socket group/a/agent.sock");
    wait_until("the old certificate is refused", || {
        let refused = "keys of the same 'hallpass init'";
        host.read("a.log").contains(refused) || members().contains(refused)
    });
    assert!(host.read("a.log").contains("its authority is not trusted any more"), "{}", host.read("a.log"));
    take(&host, "b", &["node.key", "node.pem", "authority.pem"]);
    wait_until("the group is complete again", || are_complete(&host));
}

#[test]
fn the_commands_of_the_page_work_as_they_stand() {
    let host = Host::new("page");
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md")).unwrap();
    let block = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of commands");
    // Ports that are free here, and more time on a machine that is busy.
    let block = block.replace("--loopback", &format!("--loopback --port {}", free_ports(3)));
    let patient =
        "until [ -S group/a/agent.sock -a -S group/b/agent.sock -a -S group/c/agent.sock ]; do sleep 0.1; done";
    let block = block.replace("sleep 1\n", &format!("{patient}\n"));
    let directory = Path::new(env!("CARGO_BIN_EXE_hallpass")).parent().unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("timeout");
    shell.args(["60", "sh", "-euc", &block]).env("PATH", path).env_remove("HALLPASS_CONFIG").current_dir(&host.home);
    // Files: agents that the block leaves behind, because it failed, would keep a pipe open.
    for stream in ["out", "err"] {
        let file = fs::File::create(host.home.join(stream)).unwrap();
        if stream == "out" {
            shell.stdout(file)
        } else {
            shell.stderr(file)
        };
    }
    let status = shell.status().unwrap();
    for name in ["a", "b", "c"].iter().filter(|_| !status.success()) {
        let _ = host.command(&format!("leave --socket group/{name}/agent.sock")).output();
    }
    let (out, err) = (host.read("out"), host.read("err"));
    assert!(status.success(), "{out}\n{err}");
    assert!(out.contains("\ndeployed\n") && out.contains("127.0.0.1:"), "{out}\n{err}");
}

fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o077 == 0
}
