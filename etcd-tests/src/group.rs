use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use etcd_client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::LIMIT;

/// Which servers a suite runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Agents of hallpass.
    Hallpass,
    /// etcd's own.
    Etcd,
}

/// Three servers on loopback that are one group. They are killed when it is dropped.
pub struct Group {
    /// What they are.
    pub kind: Kind,
    nodes: Mutex<Vec<Child>>,
    endpoints: Vec<String>,
    directory: PathBuf,
}

impl Group {
    /// Starts three servers, and waits until each of them grants leases.
    pub async fn start(kind: Kind) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("etcd-tests-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory for the group");
        let ports = free_ports(6);
        let endpoints: Vec<String> = ports[..3].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let start = |node: usize| match kind {
            Kind::Hallpass => hallpass(&directory, node, &ports),
            Kind::Etcd => etcd(&directory, node, &ports),
        };
        let nodes = (0..3).map(|node| start(node).spawn().expect("the server starts")).collect();
        let group = Self { kind, nodes: Mutex::new(nodes), endpoints, directory };
        for node in 0..3 {
            group.wait_for(node).await;
        }
        group
    }

    async fn wait_for(&self, node: usize) {
        let end = Instant::now() + 3 * LIMIT;
        loop {
            let granted = async {
                let mut client = Client::connect([self.endpoint(node)], None).await?;
                let lease = client.lease_grant(60, None).await?.id();
                client.lock(format!("ready-{node}"), Some(etcd_client::LockOptions::new().with_lease(lease))).await?;
                client.lease_revoke(lease).await
            };
            match tokio::time::timeout(Duration::from_secs(5), granted).await {
                Ok(Ok(_)) => return,
                tried => assert!(Instant::now() < end, "{:?} {node} is not ready: {tried:?}", self.kind),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Where a server listens.
    pub fn endpoint(&self, node: usize) -> &str {
        &self.endpoints[node % self.endpoints.len()]
    }

    /// A client of one server: leases of hallpass are its agent's.
    pub async fn client(&self, node: usize) -> Client {
        Client::connect([self.endpoint(node)], None).await.expect("a connection")
    }

    /// Sends a signal to a server.
    pub fn signal(&self, node: usize, signal: Signal) {
        let nodes = self.nodes.lock().expect("nobody panics with it");
        let pid = Pid::from_raw(nodes[node].id() as i32).expect("a process");
        kill_process(pid, signal).expect("the server is there");
    }

    /// etcd's own command for one server.
    pub fn etcdctl(&self, node: usize) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.endpoint(node)));
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let nodes = self.nodes.get_mut().expect("nobody panics with it");
        for node in nodes.iter_mut() {
            let _ = node.kill();
            let _ = node.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn free_ports(number: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..number).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("an address").port()).collect()
}

fn quiet(mut command: Command, log: &Path) -> Command {
    let log = std::fs::File::create(log).expect("a log");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command
}

fn hallpass(directory: &Path, node: usize, ports: &[u16]) -> Command {
    let mut command = Command::new(binary());
    let peers: Vec<String> = ports[3..].iter().map(|port| format!("127.0.0.1:{port}")).collect();
    command.args(["agent", "--group", "etcd-tests"]);
    command.args(["--name", &format!("n{node}"), "--listen", &peers[node], "--peers", &peers.join(",")]);
    command.args(["--api", &format!("127.0.0.1:{}", ports[node])]);
    command.arg("--data").arg(directory.join(format!("data-{node}")));
    command.arg("--socket").arg(directory.join(format!("{node}.sock")));
    quiet(command, &directory.join(format!("{node}.log")))
}

fn etcd(directory: &Path, node: usize, ports: &[u16]) -> Command {
    let mut command = Command::new("etcd");
    let (client, peer) = (format!("http://127.0.0.1:{}", ports[node]), format!("http://127.0.0.1:{}", ports[3 + node]));
    let cluster: Vec<_> = (0..3).map(|i| format!("n{i}=http://127.0.0.1:{}", ports[3 + i])).collect();
    command.args(["--name", &format!("n{node}"), "--initial-cluster-state", "new"]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &cluster.join(",")]);
    command.arg("--data-dir").arg(directory.join(format!("data-{node}")));
    quiet(command, &directory.join(format!("{node}.log")))
}

/// HALLPASS names the binary; else it is where cargo puts it.
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("HALLPASS") {
        return named.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let found = ["release", "debug"].map(|profile| target.join(profile).join("hallpass"));
    found.into_iter().find(|path| path.exists()).expect("build hallpass first, or name it with HALLPASS")
}
