//! A running system: its workers, and the servers that they need.

use std::path::Path;
use std::rc::Rc;

use crate::BenchError;
use crate::child::{Launcher, Worker};
use crate::measure::Workload;
use crate::report::ETCD_API;
use crate::servers::{Server, Started};

/// Processes that callers are spread over, as they would be over hosts.
pub(crate) const HOSTS: usize = 3;

pub(crate) struct Group {
    pub(crate) name: String,
    /// Caller i runs in worker i mod their number. Dropped before the servers that they are connected to.
    pub(crate) workers: Vec<Worker>,
    /// Shared by the groups that use them; their time counts for the group that is measured, as the others are idle.
    pub(crate) servers: Rc<[Server]>,
    pub(crate) workloads: Vec<Workload>,
}

impl Group {
    /// Every process whose time and memory are measured.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.workers.iter().chain(self.servers.iter().map(|server| &server.guard)).map(Worker::id).collect()
    }
}

/// Raw round trips: (name, how many peers, encrypted).
const FLOOR: [(&str, usize, bool); 4] =
    [("tcp", 1, false), ("tcp, 2 peers", 2, false), ("tls", 1, true), ("tls, 2 peers", 2, true)];

/// What a lock service is built on: round trips without a lock, and a lock without round trips.
pub(crate) fn floor(launcher: &Launcher, keys: &Path) -> Result<Vec<Group>, BenchError> {
    let key = |index: usize| keys.join(format!("n{index}")).display().to_string();
    let mut echoes = Vec::new();
    for index in 0..2 {
        let mut echo = launcher.start(&["echo", &key(index)])?;
        let addresses = echo.ready()?.addresses;
        echoes.push((echo, addresses));
    }
    let mut groups = Vec::new();
    let mut add = |name: &str, args: &[&str]| {
        let mut ping = launcher.start(args)?;
        ping.ready()?;
        let workloads = vec![Workload::RoundTrip];
        groups.push(Group { name: name.to_owned(), workers: vec![ping], servers: Rc::default(), workloads });
        Ok::<(), BenchError>(())
    };
    for (name, peers, encrypted) in FLOOR {
        let directory = if encrypted { key(2) } else { "-".to_owned() };
        let mut args = vec!["ping", directory.as_str()];
        let address = |addresses: &Vec<String>| addresses[usize::from(encrypted)].clone();
        let addresses: Vec<String> = echoes.iter().take(peers).map(|(_, addresses)| address(addresses)).collect();
        args.extend(addresses.iter().map(String::as_str));
        add(name, &args)?;
    }
    add("tcp, woken", &["ping-woken", &echoes[0].1[0]])?;
    let echoes: Rc<[Server]> = echoes.into_iter().map(|(echo, _)| Server::of(echo)).collect();
    groups.iter_mut().for_each(|group| group.servers = Rc::clone(&echoes));
    let mut locker = launcher.start(&["locker"])?;
    locker.ready()?;
    let workloads = [&[Workload::Hot][..], &CONTENDED].concat();
    groups.push(Group { name: "in-process".to_owned(), workers: vec![locker], servers: Rc::default(), workloads });
    Ok(groups)
}

/// What every lock service goes through.
const CONTENDED: [Workload; 4] =
    [Workload::Contended(3), Workload::Contended(8), Workload::Contended(32), Workload::Rotating(32)];

/// hallpass embedded in three processes, with the protocol of new groups.
pub(crate) fn hallpass(launcher: &Launcher, keys: Option<&Path>) -> Result<Group, BenchError> {
    let alone = [Workload::Cold, Workload::Hot, Workload::HotChecked, Workload::HotShared];
    let (name, workloads) = match keys {
        None => ("hallpass", [&alone[..], &CONTENDED].concat()),
        Some(_) => ("hallpass, tls", vec![Workload::Cold, Workload::Contended(3)]),
    };
    embedded(launcher, name, HOSTS, DEFAULT, keys, workloads)
}

/// The same, where every member's permission is needed.
pub(crate) fn permissions(launcher: &Launcher) -> Result<Group, BenchError> {
    let workloads = [&[Workload::Cold, Workload::Hot, Workload::HotShared][..], &CONTENDED].concat();
    embedded(launcher, "hallpass, permissions", HOSTS, PERMISSIONS, None, workloads)
}

/// Groups of this many members, by both protocols.
pub(crate) fn sized(launcher: &Launcher, members: usize) -> Result<[Group; 2], BenchError> {
    let workloads = || vec![Workload::Cold, Workload::Contended(8), Workload::Rotating(32)];
    let name = format!("hallpass, {members} members");
    let homes = embedded(launcher, &name, members, DEFAULT, None, workloads())?;
    let all = embedded(launcher, &format!("{name}, permissions"), members, PERMISSIONS, None, workloads())?;
    Ok([homes, all])
}

/// What new groups are founded with.
const DEFAULT: &str = "-";
const PERMISSIONS: &str = "carvalho-roucairol";

fn embedded(
    launcher: &Launcher,
    name: &str,
    members: usize,
    protocol: &str,
    keys: Option<&Path>,
    workloads: Vec<Workload>,
) -> Result<Group, BenchError> {
    let addresses = free_addresses(members)?;
    let named = addresses.iter().enumerate().map(|(index, address)| format!("n{index}@{address}"));
    let peers = named.collect::<Vec<_>>().join(",");
    let mut workers = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let name = format!("n{index}");
        let own = keys.map(|keys| keys.join(&name).display().to_string());
        let mut args = vec!["hallpass", &name, address, &peers, protocol];
        args.extend(own.as_deref());
        workers.push(launcher.start(&args)?);
    }
    for worker in &mut workers {
        worker.ready()?;
    }
    Ok(Group { name: name.to_owned(), workers, servers: Rc::default(), workloads })
}

/// Three agents, and their clients in three more processes.
pub(crate) fn agents(launcher: &Launcher, scratch: &Path) -> Result<Group, BenchError> {
    let addresses = free_addresses(HOSTS)?;
    let peers = addresses.join(",");
    let socket = |index: usize| scratch.join(format!("agents/{index}.sock")).display().to_string();
    let mut agents = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        agents.push(launcher.start(&["agent", &format!("n{index}"), address, &peers, &socket(index)])?);
    }
    let mut workers = Vec::new();
    for (index, agent) in agents.iter_mut().enumerate() {
        agent.ready()?;
        workers.push(launcher.start(&["clients", &socket(index)])?);
    }
    for worker in &mut workers {
        worker.ready()?;
    }
    let servers = agents.into_iter().map(Server::of).collect();
    let workloads = [&[Workload::Cold][..], &CONTENDED].concat();
    Ok(Group { name: "hallpass, agent".to_owned(), workers, servers, workloads })
}

/// Three agents that serve etcd's API, each at an address: for a client of etcd.
pub(crate) fn etcd_agents(launcher: &Launcher, scratch: &Path) -> Result<Started, BenchError> {
    let addresses = free_addresses(2 * HOSTS)?;
    let (members, apis) = addresses.split_at(HOSTS);
    let peers = members.join(",");
    let mut agents = Vec::new();
    for (index, (member, api)) in members.iter().zip(apis).enumerate() {
        let socket = scratch.join(format!("etcd-agents/{index}.sock")).display().to_string();
        agents.push(launcher.start(&["agent", &format!("n{index}"), member, &peers, &socket, api])?);
    }
    for agent in &mut agents {
        agent.ready()?;
    }
    Ok(Started { servers: agents.into_iter().map(Server::of).collect(), addresses: apis.to_vec() })
}

/// Clients of a lock service in three processes.
pub(crate) fn clients(
    name: &str,
    launcher: &Launcher,
    args: &[&str],
    servers: Rc<[Server]>,
) -> Result<Group, BenchError> {
    let mut workers = Vec::new();
    for _ in 0..HOSTS {
        workers.push(launcher.start(args)?);
    }
    for worker in &mut workers {
        worker.ready()?;
    }
    // Who held a lock last matters to hallpass.
    let free = if name == ETCD_API { Workload::Cold } else { Workload::Alone };
    let workloads = [&[free][..], &CONTENDED].concat();
    Ok(Group { name: name.to_owned(), workers, servers, workloads })
}

/// Free ports on loopback. Another process could take one before it is used, but ports are not given out again at once.
pub(crate) fn free_addresses(count: usize) -> Result<Vec<String>, BenchError> {
    let listeners: Result<Vec<_>, _> = (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0")).collect();
    let listeners = listeners.map_err(BenchError::new)?;
    listeners
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.to_string()).map_err(BenchError::new))
        .collect()
}
