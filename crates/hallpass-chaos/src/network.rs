//! The hosts on one machine: a network namespace for each, a bridge between them, and the faults of their links.
//!
//! The harness has a network and a mount namespace of its own. So nothing of the machine changes, and everything is gone when the
//! harness ends.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::ChaosError;
use crate::relay::Relay;

/// The interface that leads to the relay.
pub(crate) const DELAYED: &str = "delay0";

/// What happens to packets from one host to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// How many of a hundred packets are lost; 100 is a cut.
    pub(crate) loss: u8,
    /// How much later they arrive.
    pub(crate) delay: Duration,
}

impl Link {
    pub(crate) const CUT: Self = Self { loss: 100, delay: Duration::ZERO };

    /// Both faults at once.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { loss: self.loss.max(other.loss), delay: self.delay.max(other.delay) }
    }
}

/// The links that have a fault, by sender and receiver.
pub(crate) type Links = BTreeMap<(usize, usize), Link>;

#[derive(Debug)]
pub(crate) struct Network {
    names: Vec<String>,
    relay: Relay,
    /// Pairs whose packets go through the relay now.
    delayed: Vec<(usize, usize)>,
}

impl Network {
    /// Makes the hosts. This process must be in namespaces of its own.
    pub(crate) fn create(names: &[String], directory: &Path) -> Result<Self, ChaosError> {
        run("mount", &["-t", "tmpfs", "none", "/run"])?;
        // Programs look up hosts as usual, and find them in this file.
        let hosts = directory.join("hosts");
        let line = |(index, name): (usize, &String)| format!("{} {name}\n", address(index));
        let text: String = names.iter().enumerate().map(line).collect();
        fs::write(&hosts, "127.0.0.1 localhost\n".to_owned() + &text)
            .map_err(|error| ChaosError::file(&hosts, &error))?;
        run("mount", &["--bind", &hosts.display().to_string(), "/etc/hosts"])?;
        run("ip", &["link", "add", "bridge0", "type", "bridge"])?;
        run("ip", &["link", "set", "bridge0", "up"])?;
        for (index, name) in names.iter().enumerate() {
            let port = format!("port-{name}");
            run("ip", &["netns", "add", name])?;
            run("ip", &["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", name])?;
            run("ip", &["link", "set", &port, "master", "bridge0", "up"])?;
            run("ip", &["-n", name, "address", "add", &format!("{}/24", address(index)), "dev", "eth0"])?;
            run("ip", &["-n", name, "link", "set", "eth0", "up"])?;
            run("ip", &["-n", name, "link", "set", "lo", "up"])?;
            rules(
                name,
                "add table ip faults\nadd chain ip faults input { type filter hook input priority 0; policy accept; }\n",
            )?;
        }
        let relay = Relay::start(names)?;
        for name in names {
            run("ip", &["-n", name, "link", "set", DELAYED, "up"])?;
        }
        Ok(Self { names: names.to_vec(), relay, delayed: Vec::new() })
    }

    /// How many hosts there are.
    pub(crate) fn hosts(&self) -> usize {
        self.names.len()
    }

    /// Gives exactly these links their faults. All other links work.
    pub(crate) fn set(&mut self, links: &Links) -> Result<(), ChaosError> {
        for (receiver, name) in self.names.iter().enumerate() {
            let mut text = String::from("flush chain ip faults input\n");
            for (&(from, to), link) in links.iter().filter(|(_, link)| link.loss > 0) {
                if to == receiver {
                    text += &rule(from, link.loss);
                }
            }
            rules(name, &text)?;
        }
        self.set_delays(links)
    }

    /// Sends the packets of a pair through the relay, in both directions, if one direction is late.
    fn set_delays(&mut self, links: &Links) -> Result<(), ChaosError> {
        let late = |pair: &(usize, usize)| links.get(pair).is_some_and(|link| !link.delay.is_zero());
        let wanted: Vec<(usize, usize)> =
            pairs(self.names.len()).filter(|&(a, b)| late(&(a, b)) || late(&(b, a))).collect();
        self.relay.set_delays(links.iter().map(|(pair, link)| (*pair, link.delay)).collect());
        for &(from, to) in wanted.iter().filter(|pair| !self.delayed.contains(pair)) {
            let route = [&address(to), "dev", DELAYED, "src", &address(from)];
            run("ip", &[&["-n", self.names[from].as_str(), "route", "replace"], &route[..]].concat())?;
        }
        for &(from, to) in self.delayed.iter().filter(|pair| !wanted.contains(pair)) {
            run("ip", &["-n", &self.names[from], "route", "del", &address(to), "dev", DELAYED])?;
        }
        self.delayed = wanted;
        Ok(())
    }
}

/// Every ordered pair of different hosts.
pub(crate) fn pairs(hosts: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..hosts).flat_map(move |from| (0..hosts).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

pub(crate) fn address(index: usize) -> String {
    format!("10.77.0.{}", index + 1)
}

/// A command that runs on a host. The process id stays the same, because the programs replace each other.
pub(crate) fn on_host(name: &str, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{name}")).arg("--").arg(program);
    command
}

fn rule(from: usize, loss: u8) -> String {
    let chance = if loss >= 100 { String::new() } else { format!("numgen random mod 100 < {loss} ") };
    format!("add rule ip faults input ip saddr {} {chance}drop\n", address(from))
}

/// Hands rules to nftables on a host, all at once.
fn rules(name: &str, text: &str) -> Result<(), ChaosError> {
    let failed =
        |error: &dyn std::fmt::Display| ChaosError::Failed(format!("cannot set rules by nft on {name}: {error}"));
    let mut command = on_host(name, Path::new("nft"));
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    written.map_err(|error| failed(&error))?;
    if output.status.success() { Ok(()) } else { Err(failed(&String::from_utf8_lossy(&output.stderr).trim())) }
}

fn run(program: &str, args: &[&str]) -> Result<(), ChaosError> {
    let command = || format!("{program} {}", args.join(" "));
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| ChaosError::Failed(format!("cannot run '{}': {error}", command())))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ChaosError::Failed(format!("'{}' failed: {why}", command())))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::UdpSocket;
    use std::thread;

    use hallpass_testkit::Scratch;
    use nix::sched::{CloneFlags, setns};

    use super::*;

    /// The variable that is set when the test below runs inside namespaces.
    const INSIDE: &str = "HALLPASS_CHAOS_TEST_DIRECTORY";
    /// Enough packets to see both outcomes if half of the packets are lost.
    const PACKETS: usize = 200;

    #[test]
    fn links_do_what_they_say() {
        if let Some(why) = crate::missing() {
            assert!(std::env::var_os("CI").is_none(), "CI has everything: {why}");
            let _ = writeln!(std::io::stderr(), "SKIPPED links_do_what_they_say: {why}");
            return;
        }
        let directory = Scratch::new("chaos");
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
        ]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "network::tests::inside_namespaces", "--ignored", "--nocapture"]);
        let output = command.env(INSIDE, directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "the test above runs it, in namespaces"]
    fn inside_namespaces() {
        let Some(directory) = std::env::var_os(INSIDE) else { return };
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let mut network = Network::create(&names, Path::new(&directory)).unwrap();
        let hosts: Vec<UdpSocket> = (0..3).map(|index| socket(&names[index], index)).collect();
        let all: Vec<(usize, usize)> = pairs(3).collect();
        let arrive = |from: usize, to: usize| arrived(&hosts, from, to);
        assert!(all.iter().all(|&(from, to)| arrive(from, to) == PACKETS), "before any fault");

        network.set(&[((0, 1), Link::CUT)].into()).unwrap();
        assert_eq!([arrive(0, 1), arrive(1, 0), arrive(0, 2), arrive(2, 1)], [0, PACKETS, PACKETS, PACKETS]);

        network.set(&[((0, 1), Link { loss: 50, ..Link::default() })].into()).unwrap();
        assert!((1..PACKETS).contains(&arrive(0, 1)), "some are lost");
        assert_eq!(arrive(1, 0), PACKETS);

        let late = Link { delay: Duration::from_secs(1), ..Link::default() };
        network.set(&[((0, 1), late)].into()).unwrap();
        let destination = (address(1), 7);
        hosts[0].send_to(b"first", (destination.0.as_str(), destination.1)).unwrap();
        hosts[2].send_to(b"second", (destination.0.as_str(), destination.1)).unwrap();
        assert_eq!([next(&hosts[1]), next(&hosts[1])], [Some(2), Some(0)], "the first one is late");
        assert_eq!(arrive(1, 0), PACKETS, "through the relay, without delay");

        network.set(&[((0, 1), late), ((0, 2), Link::CUT)].into()).unwrap();
        assert_eq!([arrive(0, 1), arrive(0, 2)], [PACKETS, 0], "both at once");

        network.set(&Links::new()).unwrap();
        assert!(all.iter().all(|&(from, to)| arrive(from, to) == PACKETS), "after the healing");
    }

    /// A socket on a host. Only the thread that opens it enters the host's namespace.
    fn socket(name: &str, index: usize) -> UdpSocket {
        let path = format!("/run/netns/{name}");
        let open = move || {
            setns(File::open(path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            UdpSocket::bind((address(index).as_str(), 7)).unwrap()
        };
        let socket = thread::spawn(open).join().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        socket
    }

    /// The host that the next packet is from, if one comes.
    fn next(socket: &UdpSocket) -> Option<usize> {
        let (_, sender) = socket.recv_from(&mut [0; 64]).ok()?;
        (0..3).find(|index| sender.ip().to_string() == address(*index))
    }

    /// How many packets arrive.
    fn arrived(hosts: &[UdpSocket], from: usize, to: usize) -> usize {
        let destination = address(to);
        for _ in 0..PACKETS {
            hosts[from].send_to(b"packet", (destination.as_str(), 7)).unwrap();
        }
        (0..PACKETS).map_while(|_| next(&hosts[to])).filter(|sender| *sender == from).count()
    }
}
