//! Agents whose disk is full.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::user::{User, is_root, kill, skipped, words};
use crate::views::{Group, NAMES};

/// A disk of its own for the data of agent `a`, in a mount namespace that lasts as long as this.
struct Disk {
    holder: Child,
    home: PathBuf,
}

impl Disk {
    /// None unless the tests are run by root.
    fn new(user: &User) -> Option<Self> {
        if !is_root() {
            skipped("it needs root, to make a small disk");
            return None;
        }
        fs::create_dir(user.home.join("a.data")).unwrap();
        let mut holder = Command::new("unshare");
        let script = "mount -t tmpfs -o size=2m,mode=700 tmpfs a.data && touch mounted && exec sleep 600";
        holder.args(["--mount", "--propagation", "private", "sh", "-c", script]).current_dir(&user.home);
        let disk = Self { holder: holder.stdin(Stdio::null()).spawn().unwrap(), home: user.home.clone() };
        user.wait_for("mounted");
        Some(disk)
    }

    /// A command that sees the disk.
    fn command(&self, user: &User, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string()]);
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(&self.home).arg(env!("CARGO_BIN_EXE_hallpass"));
        command.args(words(line)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        user.settings(&mut command);
        command
    }

    fn path(&self) -> PathBuf {
        let home = self.home.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.holder.id())).join(home).join("a.data")
    }

    /// Leaves no byte free.
    fn fill(&self) {
        let mut file = fs::File::create(self.path().join("fill")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        while file.write_all(&[0]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.path().join("fill")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn log(output: Output) -> String {
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_agent_whose_disk_is_full_stops_and_says_so_and_comes_back() {
    let mut group = Group::new("full", "1s");
    let Some(disk) = Disk::new(&group.user) else { return };
    let founder = group.agent_line("a", &group.as_founder());
    let agent = disk.command(&group.user, &founder).spawn().unwrap();
    ["b", "c"].iter().for_each(|name| group.start(name));
    NAMES.iter().for_each(|name| group.wait_until_open(name));
    let id = |group: &Group| {
        let members = group.json("b", "members");
        members.as_array().unwrap().iter().find(|member| member["name"] == "a").map(|member| member["id"].clone())
    };
    let before = id(&group);
    let (mut holder, command) = group.hold("a");
    disk.fill();
    // Every change of the group is stored by all that vote. How many fit depends on the room that the file has inside.
    let mut agent = agent;
    for round in 0..400 {
        let (prefix, protocol) = (round % 40, ["raymond", "token"][round / 40 % 2]);
        assert_eq!(group.run("b", &format!("class set t{prefix}/ {protocol} {{}}")).code, 0, "the others go on");
        if agent.try_wait().unwrap().is_some() {
            break;
        }
    }
    assert!(!group.overlaps("b", command), "two were inside");
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    let ended = agent.wait_with_output().unwrap();
    let (code, log_of_full) = (ended.status.code(), log(ended));
    assert_eq!(code, Some(1), "{log_of_full}");
    let errors: Vec<&str> = log_of_full.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.len() == 1 && errors[0].contains("No space left on device"), "{log_of_full}");
    assert!(
        errors[0].contains("cannot write to the data directory") && errors[0].contains("make room"),
        "{log_of_full}"
    );
    assert!(!log_of_full.contains("panicked"), "{log_of_full}");

    // It does not start without room either, and nothing of what it has stored is lost.
    let refused = disk.command(&group.user, &founder).output().unwrap();
    let (code, why) = (refused.status.code(), log(refused));
    assert!(code == Some(1) && why.lines().last().unwrap().contains("No space left on device"), "{why}");
    disk.make_room();
    let agent = disk.command(&group.user, &founder).spawn().unwrap();
    group.wait_until_open("a");
    group.wait_until_members("b", &NAMES);
    assert_eq!(id(&group), before, "it is the same member");
    assert_eq!(group.run("a", "run x {} -- true").code, 0);
    assert_ne!(before, Some(Value::Null));

    // To leave needs little room, which the file mostly has inside. If that is not enough to leave, or to forget who it was, it says so, and
    // comes back as the same one.
    disk.fill();
    let left = group.run("a", "leave {}");
    let has_left = left.code == 0;
    assert!(has_left || left.err.contains("has not left its group"), "{}", left.err);
    if has_left {
        group.wait_until_members("b", &["b", "c"]);
    }
    let ended = agent.wait_with_output().unwrap();
    assert!(ended.status.success() || !has_left);
    let log_of_left = log(ended);
    assert!(!log_of_left.contains("panicked"), "{log_of_left}");
    assert!(!has_left || !log_of_left.contains("ERROR"), "{log_of_left}");
    disk.make_room();
    let mut agent = disk.command(&group.user, &founder).spawn().unwrap();
    group.wait_until_members("b", &NAMES);
    let is_same = id(&group) == before;
    let keeps_place = !has_left || log_of_left.contains("its data directory still says that it is a member");
    assert_eq!(is_same, keeps_place, "{log_of_left}");
    kill(agent.id(), "-TERM");
    agent.wait().unwrap();
}
