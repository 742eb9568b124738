//! Groups whose members come and go, on a network that loses nothing and a clock that everybody shares.

mod absurd;
mod going;
mod holes;
mod key_bans;
mod liars;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hallpass_core::{Mode, NodeId, Ticks};

use crate::wire::Plane;
use crate::{
    Answer, Founding, Grant, Incarnation, Node, NodeConfig, Ordered, Outcome, Output, Patience, Planted, Request,
    RequestError, Sabotage, Ticket, ViewState, ViewsConfig, Write, keys,
};

mod versions;

const MS: Ticks = 1_000_000;
const TTL: Ticks = 1000 * MS;

struct One {
    node: Node<u32, Planted>,
    disk: BTreeMap<u64, Vec<u8>>,
    writes: Vec<Write>,
    answers: Vec<(u32, Outcome)>,
    lost: Vec<Ticket>,
    lapses: usize,
    done: Vec<(u64, Result<(), RequestError>)>,
    /// Messages that were dropped because of who sent them.
    denied: Vec<(NodeId, &'static str)>,
    /// What went to the log as audit lines.
    ordered: Vec<Ordered>,
    locks_with: BTreeSet<NodeId>,
    control_with: BTreeSet<NodeId>,
}

#[derive(Default)]
struct Net {
    now: Ticks,
    nodes: BTreeMap<NodeId, One>,
    seeds: BTreeSet<NodeId>,
    /// Directed pairs that do not reach each other.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Nodes whose writes never end.
    full_disks: BTreeSet<NodeId>,
    /// Nodes whose writes are under way until they are delivered by hand.
    slow_disks: BTreeSet<NodeId>,
    under_way: BTreeMap<NodeId, Vec<Write>>,
    /// Processes that do not run.
    paused: BTreeSet<NodeId>,
    /// A bug that is planted in all nodes.
    sabotage: Option<Sabotage>,
    control: VecDeque<(NodeId, NodeId, Vec<u8>)>,
}

impl Net {
    fn config(&self, id: u32, founding: Founding, incarnation: u32) -> NodeConfig {
        let mut views = ViewsConfig::new(format!("host-{id}:1"));
        (views.founding, views.durable, views.ttl) = (founding, true, TTL);
        let mut config = NodeConfig::new(NodeId(id), views);
        config.incarnation = Incarnation::new(incarnation).unwrap();
        config.boot_id = u64::from(id * 31 + incarnation);
        config
    }

    fn start(&mut self, config: NodeConfig) {
        let id = config.me;
        let disk = config.views.stored.clone();
        let node = Node::with_bug(config, self.sabotage).unwrap();
        let one = One {
            node,
            disk,
            writes: Vec::new(),
            answers: Vec::new(),
            lost: Vec::new(),
            lapses: 0,
            done: Vec::new(),
            denied: Vec::new(),
            ordered: Vec::new(),
            locks_with: BTreeSet::new(),
            control_with: BTreeSet::new(),
        };
        self.seeds.insert(id);
        self.nodes.insert(id, one);
        self.drain(id);
    }

    /// Founds a group of so many.
    fn founded(count: u32) -> Self {
        Self::founded_with(count, None)
    }

    fn founded_with(count: u32, sabotage: Option<Sabotage>) -> Self {
        let mut net = Self { sabotage, ..Self::default() };
        for id in 1..=count {
            let config = net.config(id, Founding::Together(count as usize), 1);
            net.start(config);
        }
        net.run_until_open(3000);
        net
    }

    fn crash(&mut self, id: u32) -> BTreeMap<u64, Vec<u8>> {
        let one = self.nodes.remove(&NodeId(id)).unwrap();
        self.control.retain(|(from, to, _)| from.0 != id && to.0 != id);
        for peer in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.disconnect(peer, NodeId(id));
        }
        one.disk
    }

    /// The same, with connections for locks whose end nobody notices: the network fails with it.
    fn crash_unnoticed(&mut self, id: u32) -> BTreeMap<u64, Vec<u8>> {
        let disk = self.nodes.remove(&NodeId(id)).unwrap().disk;
        self.control.retain(|(from, to, _)| from.0 != id && to.0 != id);
        for peer in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.nodes.get_mut(&peer).unwrap().control_with.remove(&NodeId(id)) {
                self.input(peer.0, |node, now| node.handle_control_disconnect(NodeId(id), now));
            }
        }
        disk
    }

    fn restart(&mut self, id: u32, disk: BTreeMap<u64, Vec<u8>>) {
        self.restart_as(id, disk, Founding::Together(3));
    }

    fn restart_as(&mut self, id: u32, mut disk: BTreeMap<u64, Vec<u8>>, founding: Founding) {
        let stored = disk.get(&keys::INCARNATION).map_or(1, |bytes| u32::from_be_bytes(bytes[..].try_into().unwrap()));
        let incarnation = stored + 1;
        disk.insert(keys::INCARNATION, incarnation.to_be_bytes().to_vec());
        let mut config = self.config(id, founding, incarnation);
        config.views.stored = disk;
        self.start(config);
    }

    fn disconnect(&mut self, at: NodeId, peer: NodeId) {
        let now = self.now;
        let Some(one) = self.nodes.get_mut(&at) else { return };
        if one.locks_with.remove(&peer) {
            one.node.handle_disconnect(peer, now);
            self.drain(at);
        }
        let Some(one) = self.nodes.get_mut(&at) else { return };
        if one.control_with.remove(&peer) {
            one.node.handle_control_disconnect(peer, now);
            self.drain(at);
        }
    }

    fn cut(&mut self, from: u32, to: u32) {
        self.cut.insert((NodeId(from), NodeId(to)));
        self.cut.insert((NodeId(to), NodeId(from)));
        self.disconnect(NodeId(from), NodeId(to));
        self.disconnect(NodeId(to), NodeId(from));
    }

    fn input<T>(&mut self, id: u32, input: impl FnOnce(&mut Node<u32, Planted>, Ticks) -> T) -> T {
        let now = self.now;
        let result = input(&mut self.nodes.get_mut(&NodeId(id)).unwrap().node, now);
        self.drain(NodeId(id));
        result
    }

    fn drain(&mut self, id: NodeId) {
        let now = self.now;
        let (mut closed, mut refused) = (Vec::new(), Vec::new());
        let is_full = self.full_disks.contains(&id);
        let is_slow = self.slow_disks.contains(&id);
        let one = self.nodes.get_mut(&id).unwrap();
        while let Some(output) = one.node.poll_output() {
            match output {
                Output::Persist(_) if is_full => {}
                Output::Persist(write) if is_slow => self.under_way.entry(id).or_default().push(write),
                Output::Persist(write) => {
                    one.disk.retain(|key, _| !write.remove.contains(key));
                    one.disk.extend(write.put.clone());
                    one.writes.push(write.clone());
                    one.node.handle_persisted(write, now);
                }
                Output::Answer { caller, outcome } => one.answers.push((caller, outcome)),
                Output::Lapsed => one.lapses += 1,
                Output::Lost(ticket) => one.lost.push(ticket),
                Output::Denied { from, message, .. } => one.denied.push((from, message)),
                Output::Refuse(peer) => refused.push(peer),
                Output::Ordered(ordered) => one.ordered.push(ordered),
                Output::Revoked { .. } | Output::View | Output::Transmit(_) => {}
                Output::Done { token, result } => one.done.push((token, result)),
                Output::Disconnect(peer) => closed.push(peer),
                Output::Control { to, bytes } => self.control.push_back((id, to, bytes)),
            }
        }
        for peer in refused {
            self.control.retain(|(from, to, _)| (*from, *to) != (id, peer) && (*from, *to) != (peer, id));
            self.disconnect(id, peer);
            self.disconnect(peer, id);
        }
        for peer in closed {
            for (at, with) in [(id, peer), (peer, id)] {
                let Some(one) = self.nodes.get_mut(&at) else { continue };
                if one.locks_with.remove(&with) {
                    one.node.handle_disconnect(with, now);
                    self.drain(at);
                }
            }
        }
    }

    fn greet(&mut self, from: NodeId, to: NodeId, plane: Plane) {
        if self.cut.contains(&(from, to)) {
            return;
        }
        let now = self.now;
        let hello = |net: &Self, at: NodeId, peer: NodeId| match plane {
            Plane::Locks => net.nodes[&at].node.hello(peer),
            Plane::Control => Some(net.nodes[&at].node.control_hello(Some(peer))),
        };
        let (Some(a), Some(b)) = (hello(self, from, to), hello(self, to, from)) else { return };
        if self.nodes[&from].node.check_hello(&b).is_err() || self.nodes[&to].node.check_hello(&a).is_err() {
            return;
        }
        for (at, hello) in [(to, a), (from, b)] {
            let one = self.nodes.get_mut(&at).unwrap();
            match plane {
                Plane::Locks => one.locks_with.insert(hello.from),
                Plane::Control => one.control_with.insert(hello.from),
            };
            one.node.handle_hello(&hello, now).unwrap();
            self.drain(at);
        }
    }

    fn connect(&mut self) {
        for from in self.nodes.keys().copied().collect::<Vec<_>>() {
            let node = &self.nodes[&from].node;
            let mut peers: BTreeSet<NodeId> = node.contacts().iter().map(|contact| contact.id).collect();
            let contacts = peers.clone();
            if node.needs_seeds() {
                let seeds: Vec<NodeId> = self.seeds.iter().copied().filter(|seed| *seed != from).collect();
                for seed in &seeds {
                    let Some(other) = self.nodes.get(seed).filter(|_| !self.cut.contains(&(from, *seed))) else {
                        continue;
                    };
                    let hello = other.node.control_hello(Some(from));
                    self.nodes.get_mut(&from).unwrap().node.handle_seed(&hello);
                }
                peers.extend(seeds);
            }
            for to in peers.into_iter().filter(|to| self.nodes.contains_key(to)).collect::<Vec<_>>() {
                if !self.nodes[&from].control_with.contains(&to) {
                    self.greet(from, to, Plane::Control);
                }
                // As long as the lower one takes the last connection for a standing one, it makes no other.
                if from < to && contacts.contains(&to) && !self.nodes[&from].locks_with.contains(&to) {
                    self.greet(from, to, Plane::Locks);
                }
            }
        }
    }

    /// A millisecond passes.
    fn step(&mut self) {
        self.now += MS;
        self.connect();
        let now = self.now;
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.paused.contains(&id) {
                continue;
            }
            let one = self.nodes.get_mut(&id).unwrap();
            if one.node.poll_timeout().is_some_and(|at| at <= now) {
                one.node.handle_timeout(now);
                self.drain(id);
            }
        }
        for _ in 0..self.control.len() {
            let Some((from, to, bytes)) = self.control.pop_front() else { break };
            if self.paused.contains(&to) {
                self.control.push_back((from, to, bytes));
                continue;
            }
            let Some(one) = self.nodes.get_mut(&to) else { continue };
            if !self.cut.contains(&(from, to)) && one.control_with.contains(&from) {
                one.node.handle_control(from, &bytes, now).unwrap();
                self.drain(to);
            }
        }
        for from in self.nodes.keys().copied().collect::<Vec<_>>() {
            for to in self.nodes[&from].locks_with.clone() {
                let one = self.nodes.get_mut(&from).unwrap();
                let bytes = one.node.poll_transmit(to).to_vec();
                if bytes.is_empty() || self.cut.contains(&(from, to)) {
                    continue;
                }
                one.node.handle_transmitted(to, bytes.len());
                if let Some(one) = self.nodes.get_mut(&to)
                    && one.locks_with.contains(&from)
                    && !self.paused.contains(&to)
                {
                    one.node.handle_bytes(from, &bytes, now).unwrap();
                    self.drain(to);
                }
            }
        }
    }

    fn run(&mut self, milliseconds: u64) {
        (0..milliseconds).for_each(|_| self.step());
    }

    fn all_open(&self) -> bool {
        let epochs: BTreeSet<Option<u64>> = self.nodes.values().map(|one| one.node.epoch()).collect();
        let all = self.nodes.len();
        self.nodes.values().all(|one| {
            one.node.is_complete() && one.node.members().iter().filter(|member| member.in_view).count() == all
        }) && epochs.len() == 1
    }

    /// How many milliseconds it takes until all nodes are in one view.
    fn run_until_open(&mut self, limit: u64) -> u64 {
        for elapsed in 0..limit {
            if self.all_open() {
                return elapsed;
            }
            self.step();
        }
        let states: Vec<String> = self.nodes.values().map(|one| format!("{:?}", one.node.status())).collect();
        panic!("no common view at {}:\n{}", self.now / MS, states.join("\n"));
    }

    fn acquire(&mut self, id: u32, lock: &str, caller: u32) -> Option<Grant> {
        match self.input(id, |node, now| node.handle_acquire(lock, Mode::Exclusive, Patience::Wait, now, || caller)) {
            Ok(Answer::Granted(grant)) => Some(grant),
            Ok(Answer::Waiting(_)) => None,
            other => panic!("{other:?}"),
        }
    }

    fn granted(&self, id: u32, caller: u32) -> Option<Grant> {
        let answers = &self.nodes[&NodeId(id)].answers;
        answers.iter().find_map(|(who, outcome)| match outcome {
            Outcome::Granted(grant) if *who == caller => Some(*grant),
            _ => None,
        })
    }

    fn lock(&mut self, id: u32, lock: &str, caller: u32, limit: u64) -> Grant {
        if let Some(grant) = self.acquire(id, lock, caller) {
            return grant;
        }
        for _ in 0..limit {
            self.step();
            if let Some(grant) = self.granted(id, caller) {
                return grant;
            }
        }
        panic!("node {id} was not granted '{lock}': {:?}", self.nodes[&NodeId(id)].node.status());
    }
}

#[test]
fn one_node_founds_a_group_and_grants_locks_without_a_message() {
    let mut net = Net::default();
    let config = net.config(7, Founding::Together(1), 1);
    net.start(config);
    net.run_until_open(5);
    assert!(net.lock(7, "x", 1, 1).fence.epoch() > 0);
    assert_eq!(net.nodes[&NodeId(7)].node.valid_until(), Ticks::MAX);
    assert!(net.control.is_empty());
    net.run(3 * TTL / MS);
    assert_eq!(net.nodes[&NodeId(7)].lapses, 0);
}

/// Whatever a founder had written when it crashed is enough to go on from.
#[test]
fn a_node_that_crashes_while_it_founds_a_group_of_one_founds_it_later() {
    let mut net = Net::default();
    let config = net.config(7, Founding::Together(1), 1);
    net.start(config);
    net.run(20);
    let writes = std::mem::take(&mut net.nodes.get_mut(&NodeId(7)).unwrap().writes);
    assert!(writes.len() > 1, "{writes:?}");
    for written in 0..=writes.len() {
        let mut disk = BTreeMap::new();
        for write in &writes[..written] {
            disk.retain(|key, _| !write.remove.contains(key));
            disk.extend(write.put.clone());
        }
        let mut net = Net::default();
        disk.insert(keys::INCARNATION, 2_u32.to_be_bytes().to_vec());
        let mut config = net.config(7, Founding::Together(1), 2);
        config.views.stored = disk;
        net.start(config);
        net.run_until_open(3000);
    }
}

/// The group that a founder had not stored is not known by anybody else, who would wait for it forever.
#[test]
fn nobody_hears_of_a_group_before_its_founder_has_stored_it() {
    let mut net = Net::default();
    net.full_disks.insert(NodeId(7));
    for (id, founding) in [(7, Founding::Together(1)), (8, Founding::Never)] {
        let config = net.config(id, founding, 1);
        net.start(config);
    }
    net.run(500);
    assert_eq!(net.nodes[&NodeId(8)].node.status().group_id, None);
    let disk = net.crash(7);
    net.full_disks.clear();
    net.restart_as(7, disk, Founding::Together(1));
    net.run_until_open(3000);
}

/// A founder without a vote has not stored a group that none of the voters has, nor told others of it.
#[test]
fn founders_whose_voters_have_stored_nothing_found_another_group() {
    let mut net = Net::default();
    net.full_disks.extend([1, 2, 3].map(NodeId));
    for id in 1..=4 {
        let config = net.config(id, Founding::Together(4), 1);
        net.start(config);
    }
    let config = net.config(5, Founding::Never, 1);
    net.start(config);
    net.run(500);
    assert!(net.nodes[&NodeId(4)].node.status().group_id.is_some(), "they agree, but nobody can vote");
    let disks: Vec<_> = (1..=4).map(|id| net.crash(id)).collect();
    net.full_disks.clear();
    for (id, disk) in (1..).zip(disks) {
        net.restart_as(id, disk, Founding::Together(4));
    }
    net.run_until_open(5000);
}

/// A founder of a group founds no other group with different nodes, even if it crashed before it was in the first one.
#[test]
fn a_founder_that_crashes_before_its_first_view_founds_nothing_with_others() {
    let mut net = Net::default();
    net.full_disks.extend([1, 2, 3].map(NodeId));
    for id in 1..=4 {
        let config = net.config(id, Founding::Together(4), 1);
        net.start(config);
    }
    net.run(200);
    let disk = net.crash(4);
    for id in 1..=3 {
        net.cut(4, id);
    }
    net.restart_as(4, disk, Founding::Together(4));
    for id in 5..=7 {
        (1..=3).for_each(|founder| net.cut(id, founder));
        let config = net.config(id, Founding::Together(4), 1);
        net.start(config);
    }
    net.run(2000);
    assert!((4..=7).all(|id| net.nodes[&NodeId(id)].node.status().group_id.is_none()));
}

#[test]
fn three_nodes_found_a_group_soon() {
    let mut net = Net::default();
    for id in [9, 4, 6] {
        let config = net.config(id, Founding::Together(3), 1);
        net.start(config);
    }
    let took = net.run_until_open(300);
    assert!(took < 200, "{took} ms");
    let first = net.lock(4, "x", 1, 10);
    assert!(net.acquire(9, "x", 2).is_none());
    net.run(50);
    net.input(4, |node, now| node.handle_release(first.ticket, now));
    net.run(10);
    assert!(net.granted(9, 2).unwrap().fence > first.fence);
}

#[test]
fn a_holder_that_dies_loses_its_lock_when_its_session_is_over() {
    let mut net = Net::founded(3);
    for victim in [1, 2, 3] {
        let held = net.lock(victim, "x", victim, 50);
        let waiter = victim % 3 + 1;
        assert!(net.acquire(waiter, "x", 10 + victim).is_none());
        net.run(20);
        let disk = net.crash(victim);
        net.run(TTL / MS - 300);
        assert_eq!(net.granted(waiter, 10 + victim), None, "its session may still last");
        net.run(1500);
        let next = net.granted(waiter, 10 + victim).expect("its session is over");
        assert!(next.fence > held.fence);
        net.input(waiter, |node, now| node.handle_release(next.ticket, now));
        net.restart(victim, disk);
        net.run_until_open(3000);
    }
}

#[test]
fn a_connection_with_an_earlier_process_of_a_peer_is_closed_as_soon_as_the_next_one_greets() {
    let mut net = Net::founded(3);
    for victim in [2, 3] {
        let disk = net.crash_unnoticed(victim);
        net.run(3 * TTL / MS);
        net.restart(victim, disk);
        let took = net.run_until_open(TTL / MS);
        assert!(took < 300, "{took} ms");
    }
}

/// The group has admitted and removed it again before it heard of that. The connections stand all the time.
#[test]
fn a_node_that_was_removed_from_a_view_it_never_heard_of_is_heard_in_the_next_one() {
    let mut net = Net::founded(3);
    let away = (1..=3).find(|id| *id != net.steward()).unwrap();
    let others: Vec<u32> = (1..=3).filter(|id| *id != away).collect();
    others.iter().for_each(|other| net.cut(*other, away));
    net.run(3 * TTL / MS);
    net.cut.clear();
    net.run(2);
    // From now on it is heard, and hears nothing.
    let deaf: Vec<_> = others.iter().map(|other| (NodeId(*other), NodeId(away))).collect();
    net.cut.extend(&deaf);
    net.run(3 * TTL / MS);
    net.cut.clear();
    net.run_until_open(3 * TTL / MS);
    for other in others {
        let held = net.lock(other, "x", other, 50);
        net.input(other, |node, now| node.handle_release(held.ticket, now));
        let held = net.lock(away, "x", 10 + other, 50);
        net.input(away, |node, now| node.handle_release(held.ticket, now));
    }
}

#[test]
fn a_caller_who_tries_is_not_told_busy_because_of_a_node_that_is_in_no_view() {
    let mut net = Net::founded(3);
    let gone = (1..=3).find(|id| *id != net.steward()).unwrap();
    let [one, other] = [1, 2, 3].into_iter().filter(|id| *id != gone).collect::<Vec<_>>()[..] else { unreachable!() };
    net.crash_unnoticed(gone);
    net.run(3 * TTL / MS);
    let held = net.lock(other, "x", 1, 50);
    net.input(other, |node, now| node.handle_release(held.ticket, now));
    let tries = |node: &mut Node<u32, Planted>, now| {
        node.handle_acquire("x", Mode::Exclusive, Patience::Try, now, || 2).unwrap()
    };
    assert!(matches!(net.input(one, tries), Answer::Waiting(_)), "the other one is asked");
    net.disconnect(NodeId(one), NodeId(gone));
    net.run(5);
    assert!(net.granted(one, 2).is_some(), "{:?}", net.nodes[&NodeId(one)].answers);
}

#[test]
fn the_minority_of_a_partition_stops_before_the_majority_goes_on() {
    let mut net = Net::founded(3);
    net.lock(3, "x", 1, 50);
    assert!(net.acquire(1, "x", 2).is_none());
    net.run(10);
    net.cut(3, 1);
    net.cut(3, 2);
    let mut lapsed = false;
    for _ in 0..4000 {
        net.step();
        lapsed |= net.nodes[&NodeId(3)].lapses > 0;
        if net.granted(1, 2).is_some() {
            break;
        }
    }
    assert!(net.granted(1, 2).is_some() && lapsed, "the holder has lost it first");
    net.cut.clear();
    net.run_until_open(4000);
}

#[test]
fn members_join_leave_and_come_back_while_a_lock_is_held() {
    let mut net = Net::founded(3);
    let held = net.lock(2, "x", 1, 50);
    let config = net.config(4, Founding::Never, 1);
    net.start(config);
    net.run_until_open(1000);
    let disk = net.crash(4);
    net.restart(4, disk);
    net.run_until_open(1000);
    net.input(1, |node, now| node.handle_request(Request::Leave, 5, now));
    for _ in 0..1000 {
        net.step();
        if !net.nodes[&NodeId(1)].done.is_empty() {
            break;
        }
    }
    assert_eq!(net.nodes[&NodeId(1)].done, [(5, Ok(()))]);
    net.crash(1);
    net.run_until_open(2000);
    assert!(net.acquire(3, "x", 2).is_none(), "it is held all the time");
    net.run(50);
    assert!(net.input(2, |node, now| node.handle_release(held.ticket, now)));
    net.run(20);
    assert!(net.granted(3, 2).unwrap().fence > held.fence);
    assert_eq!(net.nodes[&NodeId(2)].node.status().view, ViewState::Open);
}

#[test]
fn all_members_are_restarted_and_fences_rise() {
    let mut net = Net::founded(3);
    let before = net.lock(2, "x", 1, 50);
    let disks: Vec<_> = (1..=3).map(|id| net.crash(id)).collect();
    for (id, disk) in (1..).zip(disks) {
        net.restart(id, disk);
    }
    net.run_until_open(5000);
    assert!(net.lock(3, "x", 2, 50).fence > before.fence);
}

#[test]
fn an_operator_breaks_a_lock() {
    let mut net = Net::founded(3);
    let held = net.lock(2, "x", 1, 50);
    assert!(net.acquire(3, "x", 2).is_none());
    net.input(1, |node, now| node.handle_request(Request::Break { lock: "x".into() }, 1, now));
    net.run(TTL / MS);
    assert_eq!(net.nodes[&NodeId(1)].done, [(1, Ok(()))]);
    assert_eq!(net.nodes[&NodeId(2)].lost, [held.ticket]);
    assert!(net.granted(3, 2).is_some());
}

#[test]
fn the_living_keep_their_locks_when_any_member_dies() {
    for victim in 1..=3 {
        let mut net = Net::founded(3);
        let holders: Vec<u32> = (1..=3).filter(|id| *id != victim).collect();
        let held: Vec<Grant> = holders.iter().map(|id| net.lock(*id, &format!("lock-{id}"), *id, 50)).collect();
        net.crash(victim);
        net.run(3 * TTL / MS);
        for (id, grant) in holders.iter().zip(held) {
            assert_eq!(net.nodes[&NodeId(*id)].lapses, 0, "{victim} died, and not {id}");
            assert!(net.input(*id, |node, now| node.handle_release(grant.ticket, now)));
        }
    }
}

#[test]
fn a_steward_that_was_alone_for_long_stays_when_another_joins() {
    let mut net = Net::default();
    let config = net.config(7, Founding::Together(1), 1);
    net.start(config);
    net.run_until_open(5);
    let held = net.lock(7, "x", 1, 1);
    net.run(5 * TTL / MS);
    let config = net.config(8, Founding::Never, 1);
    net.start(config);
    net.run_until_open(1000);
    net.run(3 * TTL / MS);
    assert_eq!(net.nodes[&NodeId(7)].lapses, 0);
    assert!(net.acquire(8, "x", 2).is_none());
    net.run(50);
    assert_eq!(net.granted(8, 2), None, "it is held");
    assert!(net.input(7, |node, now| node.handle_release(held.ticket, now)));
}

#[test]
fn the_only_voter_can_be_evicted_and_the_group_goes_on() {
    let mut net = Net::default();
    let config = net.config(7, Founding::Together(1), 1);
    net.start(config);
    net.run_until_open(5);
    let config = net.config(8, Founding::Never, 1);
    net.start(config);
    net.run_until_open(1000);
    net.input(8, |node, now| node.handle_request(Request::Evict { node: NodeId(7), ban: true }, 1, now));
    net.run(5 * TTL / MS);
    assert_eq!(net.nodes[&NodeId(8)].done, [(1, Ok(()))]);
    assert!(net.acquire(8, "x", 2).is_some(), "{:?}", net.nodes[&NodeId(8)].node.status());
}

#[test]
fn a_member_that_is_sent_away_does_not_join_before_its_session_would_have_ended() {
    let mut net = Net::founded(3);
    let until = net.nodes[&NodeId(3)].node.valid_until();
    net.input(1, |node, now| node.handle_request(Request::Evict { node: NodeId(3), ban: false }, 1, now));
    while net.nodes[&NodeId(3)].lapses == 0 {
        net.step();
        assert!(net.now < until);
    }
    while net.now < until {
        assert_ne!(net.nodes[&NodeId(3)].node.status().view, ViewState::Open);
        net.step();
    }
    net.run_until_open(3000);
}

#[test]
fn a_steward_that_is_evicted_before_its_first_view_stops_renewing_its_session() {
    let mut net = Net::default();
    let config = net.config(7, Founding::Together(1), 1);
    net.start(config);
    net.input(7, |node, now| node.handle_request(Request::Evict { node: NodeId(7), ban: false }, 1, now));
    let config = net.config(8, Founding::Never, 1);
    net.start(config);
    for _ in 0..(5 * TTL / MS) {
        net.run(1);
        let (first, second) = (&net.nodes[&NodeId(7)].node, &net.nodes[&NodeId(8)].node);
        let alone = second.is_complete() && second.view() == [NodeId(8)];
        assert!(!alone || net.now >= first.valid_until() || !first.is_complete(), "its session lasts");
    }
}

/// A holder whose lock nobody could take away is told a deadline before somebody can.
#[test]
fn a_node_that_is_alone_has_a_deadline_before_another_one_joins() {
    let mut net = Net::default();
    let config = net.config(1, Founding::Together(1), 1);
    net.start(config);
    net.run_until_open(5);
    net.run(3 * TTL / MS);
    let config = net.config(2, Founding::Never, 1);
    net.start(config);
    let is_bound = |net: &Net| net.nodes[&NodeId(1)].node.valid_until() != Ticks::MAX;
    let mut steps = 0;
    while !is_bound(&net) {
        net.step();
        steps += 1;
        assert!(steps < 1000, "it never has a deadline");
    }
    let node = &net.nodes[&NodeId(1)].node;
    assert_eq!(node.members().iter().filter(|member| member.in_view).count(), 1, "the other one is in already");
    assert!(!net.nodes[&NodeId(2)].node.is_complete());
    net.run_until_open(1000);
    assert_eq!(net.nodes[&NodeId(1)].lapses, 0);
    // The other one is gone for good, and so is the deadline.
    net.input(2, |node, now| node.handle_request(Request::Leave, 1, now));
    for _ in 0..1000 {
        net.step();
    }
    assert!(!is_bound(&net) && net.nodes[&NodeId(1)].lapses == 0);
}

/// A group of three and perhaps others; a voter is killed, and does not come back.
fn voters_without_one(joining: u32) -> Vec<NodeId> {
    let mut net = Net::default();
    for id in 1..=3 + joining {
        let mut config = net.config(id, if id <= 3 { Founding::Together(3) } else { Founding::Never }, 1);
        config.views.replace_after = 5 * TTL;
        net.start(config);
    }
    net.run_until_open(3000);
    net.crash(3);
    net.run(3 * TTL / MS);
    assert_eq!(net.nodes[&NodeId(1)].node.status().voters, [1, 2, 3].map(NodeId), "its vote is kept for a while");
    net.run(5 * TTL / MS);
    assert!(net.all_open());
    net.nodes[&NodeId(1)].node.status().voters
}

#[test]
fn a_voter_that_is_away_for_long_loses_its_vote_only_to_another_member() {
    assert_eq!(voters_without_one(1), [1, 2, 4].map(NodeId));
    assert_eq!(voters_without_one(0), [1, 2, 3].map(NodeId), "nobody can take it, and one vote of one is not safer");
}

#[test]
fn more_founders_than_are_expected_are_told_what_to_do() {
    let mut net = Net::default();
    // All are connected before any two of them have agreed.
    for id in 1..=4 {
        let config = net.config(id, Founding::Together(3), 1);
        net.start(config);
    }
    net.run(1000);
    let why = net.nodes[&NodeId(1)].node.status().waits_for.expect("it waits");
    assert!(why.contains("4 nodes have found each other, and 3 are expected"), "{why}");
    assert!(why.contains("stop those that are too many"), "{why}");
}

/// A node loses the steward at any moment of its joining, and that one leaves for good: the next steward lets it in.
#[test]
fn a_node_that_loses_the_steward_while_it_joins_finds_the_next_one() {
    for moment in 0..60 {
        let mut net = Net::founded(2);
        assert_eq!(net.nodes[&NodeId(2)].node.status().steward, Some(NodeId(1)));
        let config = net.config(3, Founding::Never, 1);
        net.start(config);
        net.run(moment);
        net.cut(1, 3);
        net.run(2 * TTL / MS);
        net.input(1, |node, now| node.handle_request(Request::Leave, 1, now));
        for _ in 0..2 * TTL / MS {
            net.step();
            if !net.nodes[&NodeId(1)].done.is_empty() {
                break;
            }
        }
        assert_eq!(net.nodes[&NodeId(1)].done, [(1, Ok(()))], "after {moment} ms");
        net.crash(1);
        net.run(3 * TTL / MS);
        assert!(net.all_open(), "after {moment} ms: {:?}", net.nodes[&NodeId(3)].node.status());
    }
}

#[test]
fn all_members_can_leave_at_once() {
    let mut net = Net::founded(3);
    for id in 1..=3 {
        net.input(id, |node, now| node.handle_request(Request::Leave, 1, now));
    }
    for _ in 0..10 * TTL / MS {
        net.step();
        // A node that has left is stopped.
        let left = |one: &One| one.done == [(1, Ok(()))];
        let gone: Vec<u32> = net.nodes.iter().filter(|(_, one)| left(one)).map(|(id, _)| id.0).collect();
        gone.into_iter().for_each(|id| drop(net.crash(id)));
    }
    assert!(net.nodes.is_empty(), "{:?}", net.nodes.values().map(|one| one.node.status()).collect::<Vec<_>>());
}

#[test]
fn a_voter_without_a_directory_that_stops_hands_its_vote_over() {
    let mut net = Net::default();
    for id in 1..=2 {
        let mut config = net.config(id, Founding::Together(2), 1);
        config.views.durable = false;
        net.start(config);
    }
    net.run_until_open(3000);
    // Of two, one votes: what it knows is lost when it ends.
    let votes = |net: &Net, id: u32| net.nodes[&NodeId(1)].node.members().iter().any(|m| m.id.0 == id && m.voter);
    let voter = if votes(&net, 1) { 1 } else { 2 };
    let other = 3 - voter;
    net.input(voter, |node, now| node.handle_request(Request::Stop, 1, now));
    for _ in 0..10 * TTL / MS {
        net.step();
        if net.nodes.get(&NodeId(voter)).is_some_and(|one| one.done == [(1, Ok(()))]) {
            net.crash(voter);
        }
    }
    assert!(!net.nodes.contains_key(&NodeId(voter)), "it has stopped");
    let left = &net.nodes[&NodeId(other)].node;
    assert!(left.is_complete(), "the other goes on: {:?}", left.status());
}
