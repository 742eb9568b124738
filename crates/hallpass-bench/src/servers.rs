//! Servers of other lock services: found, started on free ports with their data in the benchmark's directory, and ended.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::child::{Launcher, Worker};
use crate::group::free_addresses;

/// A server, and the worker that ends it when the benchmark has ended.
pub(crate) struct Server {
    pub(crate) guard: Worker,
}

/// No server takes longer to start.
const START_WAIT_MAX: Duration = Duration::from_secs(20);

impl Server {
    pub(crate) fn of(guard: Worker) -> Self {
        Self { guard }
    }

    /// Starts a program as this user, its output in a log beside its data.
    fn start(launcher: &Launcher, user: Option<User>, log: &Path, command: &[&str]) -> Result<Self, BenchError> {
        let user = user.map_or_else(|| "-".to_owned(), |user| format!("{}:{}", user.id, user.group));
        let log = log.display().to_string();
        let mut guard = launcher.start(&[&["guard", &user, &log], command].concat())?;
        guard.ready()?;
        Ok(Self { guard })
    }
}

/// Where a peer's server answers.
pub(crate) struct Started {
    pub(crate) servers: Vec<Server>,
    pub(crate) addresses: Vec<String>,
}

/// Three independent servers, all for Redlock, the first for Redis alone too.
pub(crate) fn redis(launcher: &Launcher, scratch: &Path) -> Result<Started, BenchError> {
    let Some(program) = find("redis-server", &[]) else {
        return Err(missing("redis-server", "redis-server"));
    };
    let addresses = free_addresses(3)?;
    let mut servers = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let data = directory(scratch, &format!("redis-{index}"))?;
        let (log, directory) = (data.join("log"), data.display().to_string());
        let command = [
            [program.as_str(), "--port", port_of(address), "--bind", "127.0.0.1"],
            ["--dir", &directory, "--save", "", "--appendonly"],
        ]
        .concat();
        servers.push(Server::start(launcher, None, &log, &[&command[..], &["no"]].concat())?);
        until_up("Redis", &log, || TcpStream::connect(address).is_ok())?;
    }
    Ok(Started { servers, addresses })
}

/// Three members of one ensemble.
pub(crate) fn zookeeper(launcher: &Launcher, scratch: &Path) -> Result<Started, BenchError> {
    let Some(program) = find("zkServer.sh", &[PathBuf::from("/usr/share/zookeeper/bin")]) else {
        return Err(missing("zkServer.sh", "zookeeper"));
    };
    let ports = free_addresses(9)?;
    let (clients, peers) = ports.split_at(3);
    let members: Vec<String> = (0..3)
        .map(|index| {
            format!("server.{}=127.0.0.1:{}:{}", index + 1, port_of(&peers[index]), port_of(&peers[index + 3]))
        })
        .collect();
    let mut servers = Vec::new();
    for (index, client) in clients.iter().enumerate() {
        let data = directory(scratch, &format!("zookeeper-{index}"))?;
        let config = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxSessionTimeout=3600000\nmaxClientCnxns=0\ndataDir={}\nclientPort={}\n\
             admin.enableServer=false\n{}\n",
            data.display(),
            port_of(client),
            members.join("\n")
        );
        std::fs::write(data.join("zoo.cfg"), config).map_err(BenchError::new)?;
        std::fs::write(data.join("myid"), (index + 1).to_string()).map_err(BenchError::new)?;
        let config = data.join("zoo.cfg").display().to_string();
        servers.push(Server::start(launcher, None, &data.join("log"), &[&program, "start-foreground", &config])?);
    }
    until_up("ZooKeeper", &scratch.join("zookeeper-0/log"), || clients.iter().all(|client| has_a_leader(client)))?;
    Ok(Started { servers, addresses: clients.to_vec() })
}

/// A member names its role only once there is a leader.
fn has_a_leader(address: &str) -> bool {
    let role = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"srvr")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok::<bool, std::io::Error>(text.contains("Mode: leader") || text.contains("Mode: follower"))
    };
    role().unwrap_or(false)
}

/// Has two addresses: its Unix socket and its port.
pub(crate) fn postgres(launcher: &Launcher, scratch: &Path) -> Result<Started, BenchError> {
    let places = versions("/usr/lib/postgresql");
    let (Some(initdb), Some(program)) = (find("initdb", &places), find("postgres", &places)) else {
        return Err(missing("postgres", "postgresql"));
    };
    let user = if rustix::process::geteuid().is_root() {
        match User::named("postgres") {
            Some(user) => Some(user),
            None => return Err(BenchError::new("PostgreSQL does not run as root: add a user 'postgres'")),
        }
    } else {
        None
    };
    let data = directory(scratch, "postgres")?;
    if let Some(user) = user {
        chown(&data, Some(user.id), Some(user.group)).map_err(BenchError::new)?;
    }
    let directory = data.join("data").display().to_string();
    let mut init = Command::new(&initdb);
    init.args(["-D", &directory, "-A", "trust", "-U", "postgres", "--no-sync"]).current_dir(&data);
    if let Some(user) = user {
        use std::os::unix::process::CommandExt;
        init.uid(user.id).gid(user.group);
    }
    let made = init.output().map_err(BenchError::new)?;
    if !made.status.success() {
        return Err(BenchError::new(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr).trim())));
    }
    let address = free_addresses(1)?.remove(0);
    let port = port_of(&address);
    let sockets = format!("unix_socket_directories={}", data.display());
    let log = data.join("log");
    let command = [&program, "-D", &directory, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", &sockets];
    let server = Server::start(launcher, user, &log, &command)?;
    let socket = data.join(format!(".s.PGSQL.{port}"));
    // It listens before it accepts queries; only its log says when it does.
    until_up("PostgreSQL", &log, || {
        UnixStream::connect(&socket).is_ok()
            && std::fs::read_to_string(&log).is_ok_and(|log| log.contains("ready to accept connections"))
    })?;
    Ok(Started { servers: vec![server], addresses: vec![socket.display().to_string(), address] })
}

/// Three members of one cluster.
pub(crate) fn etcd(launcher: &Launcher, scratch: &Path) -> Result<Started, BenchError> {
    let Some(program) = find("etcd", &[]) else { return Err(missing("etcd", "etcd-server")) };
    let ports = free_addresses(6)?;
    let (clients, peers) = ports.split_at(3);
    let cluster: Vec<String> =
        peers.iter().enumerate().map(|(index, peer)| format!("n{index}=http://{peer}")).collect();
    let cluster = cluster.join(",");
    let mut servers = Vec::new();
    for (index, (client, peer)) in clients.iter().zip(peers).enumerate() {
        let data = directory(scratch, &format!("etcd-{index}"))?;
        let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let (name, directory) = (format!("n{index}"), data.join("data").display().to_string());
        let command = [
            [program.as_str(), "--name", &name, "--data-dir", &directory],
            ["--initial-cluster-state", "new", "--initial-cluster", &cluster, "--logger=zap"],
            ["--listen-client-urls", &client, "--advertise-client-urls", &client, "--log-level=error"],
            ["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer, "--enable-v2=false"],
        ]
        .concat();
        servers.push(Server::start(launcher, None, &data.join("log"), &command)?);
    }
    let log = scratch.join("etcd-0/log");
    // A member listens for clients only once there is a leader.
    until_up("etcd", &log, || clients.iter().all(|client| TcpStream::connect(client).is_ok()))?;
    Ok(Started { servers, addresses: clients.to_vec() })
}

/// A program by its name: in the path, or where Debian puts programs that users do not call.
pub(crate) fn find(name: &str, places: &[PathBuf]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    let all = places.iter().cloned().chain(std::env::split_paths(&path)).chain(usual);
    let found = all.map(|place| place.join(name)).find(|file| file.is_file());
    found.map(|file| file.display().to_string())
}

pub(crate) fn missing(program: &str, package: &str) -> BenchError {
    BenchError::new(format!("'{program}' is not installed (Debian package {package})"))
}

/// `/usr/lib/postgresql/15/bin` and the like, the newest first.
fn versions(base: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten();
    let mut places: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
    places.sort();
    places.reverse();
    places
}

fn directory(scratch: &Path, name: &str) -> Result<PathBuf, BenchError> {
    let path = scratch.join(name);
    std::fs::create_dir(&path).map_err(BenchError::new)?;
    Ok(path)
}

fn port_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(_, port)| port)
}

fn until_up(what: &str, log: &Path, is_up: impl Fn() -> bool) -> Result<(), BenchError> {
    let until = Instant::now() + START_WAIT_MAX;
    while Instant::now() < until {
        if is_up() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let last = log.lines().last().unwrap_or("its log is empty");
    Err(BenchError::new(format!("{what} does not start: {last}")))
}

#[derive(Clone, Copy)]
struct User {
    id: u32,
    group: u32,
}

impl User {
    fn named(name: &str) -> Option<Self> {
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some(Self { id: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    }
}
