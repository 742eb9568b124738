//! The network: two connections a pair, one for locks, one for control messages. Both may stall and break; the second may
//! also lose, repeat and reorder.

use hallpass_core::{NodeId, Ticks};
use hallpass_node::LinkError;
use hallpass_node::wire::{Hello, Plane};

use super::faults::NOISE;
use super::plan::MS;
use super::{Event, FaultKind, World};
use crate::oracle::Violation;

/// Everybody is given at least this many addresses.
const SEEDS_MIN: usize = 5;

/// An address is not dialed more often than this.
const DIAL_EVERY: Ticks = 50 * MS;

/// One connection between two processes. The first end has dialed.
#[derive(Debug)]
pub(super) struct Connection {
    plane: Plane,
    /// Whom the dialer expects to reach.
    peer: Option<NodeId>,
    /// What is written from now on arrives nowhere.
    pub(super) broken: bool,
    pub(super) ends: [End; 2],
}

/// One process's end of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub(super) machine: usize,
    /// Which of the machine's processes.
    pub(super) life: u64,
    stage: Stage,
    /// When the last of what is on its way to this end arrives.
    arrives: Ticks,
    /// What would arrive later is lost.
    cutoff: Ticks,
    /// How many bytes of locks this end has put on their way, and how many have arrived here.
    pub(super) sent: u64,
    pub(super) received: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The other's greeting has not arrived.
    Greeting,
    /// With this peer.
    Standing(NodeId),
    Closed,
}

impl World {
    /// Nothing gets from one machine to another until then. Connections break, or stall.
    pub(super) fn block(&mut self, from: usize, to: usize, until: Ticks, breaks: bool) {
        let blocked = self.blocked.entry((from, to)).or_default();
        *blocked = until.max(*blocked);
        let Some(process) = self.machines[from].process.as_ref().filter(|_| breaks) else { return };
        for connection in process.connections.clone() {
            if self.connections[connection].ends.iter().any(|end| end.machine == to) {
                self.break_off(connection);
            }
        }
    }

    fn blocked_until(&self, from: usize, to: usize) -> Ticks {
        let cut_off = [from, to].iter().any(|machine| self.machines[*machine].is_cut_off);
        let until = if cut_off { self.plan.faults_until } else { 0 };
        self.blocked.get(&(from, to)).copied().unwrap_or(0).max(until)
    }

    /// Has the machine look for connections to make.
    pub(super) fn connect_later(&mut self, machine: usize, most: Ticks) {
        let at = self.within(most);
        let life = self.machines[machine].life;
        let Some(process) = &mut self.machines[machine].process else { return };
        if process.connects_at.is_none_or(|earlier| at < earlier) {
            process.connects_at = Some(at);
            self.queue.push(at, Event::Connect { machine, life });
        }
    }

    /// Dials everybody that the node should be connected with and is not: the lower id dials the higher one; the addresses
    /// that it was given, everybody, and all that it knows while it does not reach the steward.
    pub(super) fn on_connect(&mut self, machine: usize) {
        let Some(process) = &mut self.machines[machine].process else { return };
        // It may have looked since this was scheduled.
        if process.connects_at.take_if(|at| *at <= self.now).is_none() {
            return;
        }
        let me = process.node.id();
        let mut missing = false;
        let needs_seeds = process.node.needs_seeds();
        for contact in process.node.contacts() {
            for plane in [Plane::Locks, Plane::Control] {
                if contact.id <= me && !(plane == Plane::Control && needs_seeds) {
                    continue;
                }
                let process = self.machines[machine].process.as_ref().expect("it runs");
                if !process.current(plane).contains_key(&contact.id) {
                    missing |= !self.dial(machine, &contact.address, Some(contact.id), plane);
                }
            }
        }
        // Now and then members look whether one that has lost its directory has founded another group, as the library does.
        let watches = self.plan.nodes == 1
            && self.machines[machine].process.as_ref().is_some_and(|process| process.node.is_shared());
        if needs_seeds || watches {
            missing |= needs_seeds;
            let seeds = (0..self.machines.len()).filter(|seed| !self.machines[*seed].is_gone);
            let mut seeds: Vec<usize> = seeds.take(self.plan.nodes.max(SEEDS_MIN)).collect();
            // After a recovery everybody is told where the group is.
            seeds.extend(self.recovered_on.filter(|seed| !seeds.contains(seed)));
            for seed in seeds {
                let standing = self.machines[seed].process.as_ref().map(|other| other.node.id());
                let greeting = self.machines[seed].process.as_ref().map(|other| other.node.control_hello(None));
                let process = self.machines[machine].process.as_mut().expect("it runs");
                // The library dials it all the same, and finds who is there.
                if let Some(greeting) = greeting.filter(|hello| process.control.contains_key(&hello.from)) {
                    process.node.handle_seed(&greeting);
                }
                if seed != machine && !standing.is_some_and(|id| process.control.contains_key(&id)) {
                    let address = self.machines[seed].name.clone();
                    self.dial(machine, &address, None, Plane::Control);
                }
            }
        }
        if missing {
            self.connect_later(machine, 200 * MS);
        } else if watches {
            self.connect_later(machine, 2000 * MS);
        }
    }

    /// Dials an address; false if nobody answers.
    fn dial(&mut self, machine: usize, address: &str, peer: Option<NodeId>, plane: Plane) -> bool {
        let Some(to) = self.machine_at(address) else { return false };
        if to == machine {
            return true;
        }
        let answers = self.machines_reach(machine, to) && self.machines[to].process.is_some();
        let process = self.machines[machine].process.as_mut().expect("it runs");
        let target = (to, plane == Plane::Control, peer);
        if process.dialing.contains(&target) {
            return true;
        }
        if process.dialed.get(&target).is_some_and(|again| self.now < *again) {
            return false;
        }
        let hello = match plane {
            Plane::Locks => peer.and_then(|peer| process.node.hello(peer)),
            Plane::Control => Some(process.node.control_hello(peer)),
        };
        let Some(hello) = hello else { return true };
        if !answers {
            return false;
        }
        process.dialing.insert(target);
        process.dialed.insert(target, self.now + DIAL_EVERY);
        let connection = self.connections.len();
        self.log(|world| format!("{} dials {} ({plane:?}): {connection}", world.machines[machine].name, address));
        let end = |machine: usize| End {
            machine,
            life: self.machines[machine].life,
            stage: Stage::Greeting,
            arrives: self.now,
            cutoff: Ticks::MAX,
            sent: 0,
            received: 0,
        };
        self.connections.push(Connection { plane, peer, broken: false, ends: [end(machine), end(to)] });
        for machine in [machine, to] {
            self.machines[machine].process.as_mut().expect("both run").connections.push(connection);
        }
        self.send_hello(connection, 1, &hello);
        true
    }

    fn machine_at(&self, address: &str) -> Option<usize> {
        address.strip_prefix('m')?.parse().ok().filter(|machine| *machine < self.machines.len())
    }

    fn machines_reach(&self, one: usize, other: usize) -> bool {
        self.blocked_until(one, other).max(self.blocked_until(other, one)) <= self.now
    }

    fn send_hello(&mut self, connection: usize, end: usize, hello: &Hello) {
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        let Connection { plane, ref ends, .. } = self.connections[connection];
        self.record_bytes(ends[1 - end].machine, plane, &bytes);
        self.send(connection, end, bytes);
    }

    /// Puts bytes on their way to an end; they keep their order.
    fn send(&mut self, connection: usize, end: usize, bytes: Vec<u8>) {
        let arrives = self.arrival(connection, end);
        let to = &mut self.connections[connection].ends[end];
        to.arrives = to.arrives.max(arrives);
        self.queue.push(to.arrives, Event::Arrive { connection, end, bytes });
    }

    /// When something sent now to this end arrives, if nothing is before it.
    fn arrival(&mut self, connection: usize, end: usize) -> Ticks {
        let mut delay = self.plan.latency / 2 + self.rng.exponential(self.plan.latency as f64 / 2.0) as Ticks;
        if self.is_hit(FaultKind::Delay) {
            delay += self.rng.below(self.plan.ttl / 2);
        }
        let [from, to] = [1 - end, end].map(|end| self.connections[connection].ends[end].machine);
        self.blocked_until(from, to).max(self.now) + delay
    }

    fn is_hit(&mut self, kind: FaultKind) -> bool {
        let at = NOISE.iter().position(|noise| *noise == kind).expect("one of them");
        let hit = self.noise[at].hits(self.now, &mut self.rng);
        if hit {
            self.report.faults[kind as usize] += 1;
        }
        hit
    }

    /// Gives a node's bytes for a peer to their connection. Now and then it takes only a part.
    pub(super) fn transmit(&mut self, machine: usize, to: NodeId) {
        let process = self.machines[machine].process.as_mut().expect("it runs");
        let Some(&connection) = process.locks.get(&to) else { return };
        let bytes = process.node.poll_transmit(to);
        let mut take = bytes.len();
        if self.rng.chance(0.05) {
            take = self.rng.below(take as u64) as usize;
        }
        let taken = bytes[..take].to_vec();
        self.record_bytes(machine, Plane::Locks, &taken);
        let process = self.machines[machine].process.as_mut().expect("it runs");
        process.node.handle_transmitted(to, take);
        if !process.node.poll_transmit(to).is_empty() {
            let life = self.machines[machine].life;
            let at = self.within(2 * self.plan.latency) + 1;
            self.queue.push(at, Event::Writable { machine, life });
        }
        let end = self.end_of(connection, machine);
        self.connections[connection].ends[end].sent += take as u64;
        if !taken.is_empty() && !self.connections[connection].broken {
            self.send(connection, 1 - end, taken);
        }
    }

    /// Sends a control message, if there is a connection for it.
    pub(super) fn send_control(&mut self, machine: usize, to: NodeId, bytes: Vec<u8>) {
        self.record_bytes(machine, Plane::Control, &bytes);
        let process = self.machines[machine].process.as_ref().expect("it runs");
        let Some(&connection) = process.control.get(&to) else { return };
        let end = 1 - self.end_of(connection, machine);
        if self.connections[connection].broken || self.is_hit(FaultKind::Loss) {
            return;
        }
        if self.is_hit(FaultKind::Duplication) {
            let at = self.arrival(connection, end) + self.rng.below(self.plan.ttl);
            self.queue.push(at, Event::Arrive { connection, end, bytes: bytes.clone() });
        }
        if self.is_hit(FaultKind::Reorder) {
            let at = self.arrival(connection, end) + self.rng.below(50 * self.plan.latency);
            self.queue.push(at, Event::Arrive { connection, end, bytes });
            return;
        }
        self.send(connection, end, bytes);
    }

    pub(super) fn end_of(&self, connection: usize, machine: usize) -> usize {
        usize::from(self.connections[connection].ends[1].machine == machine)
    }

    pub(super) fn on_arrive(&mut self, connection: usize, end: usize, bytes: &[u8]) {
        let receiver = &self.connections[connection].ends[end];
        let machine = receiver.machine;
        if self.now > receiver.cutoff {
            return;
        }
        self.record([4, (connection * 2 + end) as u64, bytes.len() as u64]);
        match self.connections[connection].ends[end].stage {
            Stage::Closed => {}
            Stage::Greeting => self.on_greeting(connection, end, bytes),
            Stage::Standing(peer) => {
                let now = self.local(machine);
                self.connections[connection].ends[end].received += bytes.len() as u64;
                let process = self.machines[machine].process.as_mut().expect("it runs");
                let result = match self.connections[connection].plane {
                    Plane::Locks => process.node.handle_bytes(peer, bytes, now),
                    Plane::Control => process.node.handle_control(peer, bytes, now).map_err(LinkError::from),
                };
                self.drain(machine);
                if let Err(error) = result {
                    self.log(|world| format!("{} closes {connection}: {error}", world.machines[machine].name));
                    // The bytes may have come too late: the node has given the connection up, and said so.
                    let is_closed = self.connections[connection].ends[end].stage == Stage::Closed;
                    if !matches!(error, LinkError::Misaddressed) && !is_closed {
                        let text = format!("{} received nonsense from {peer}: {error}", self.machines[machine].name);
                        self.note(Some(Violation { property: "link", text }));
                    }
                    self.close(connection, end);
                }
            }
        }
    }

    /// The other's greeting has arrived. The one that was dialed answers with its own.
    fn on_greeting(&mut self, connection: usize, end: usize, bytes: &[u8]) {
        // A control message has overtaken the greeting.
        let Ok((hello, _)) = Hello::decode(bytes) else { return self.close(connection, end) };
        let plane = self.connections[connection].plane;
        let machine = self.connections[connection].ends[end].machine;
        let dialed = end == 0;
        let now = self.local(machine);
        self.forget_dialing(connection);
        let process = self.machines[machine].process.as_mut().expect("it runs");
        let (me, peer) = (process.node.id(), hello.from);
        let answer = match plane {
            Plane::Locks => process.node.hello(peer),
            Plane::Control => Some(process.node.control_hello(Some(peer))),
        };
        let refusal = match (process.node.check_hello(&hello), &answer) {
            _ if peer == me => Some("it is this node itself".to_owned()),
            (Err(error), _) => Some(error.to_string()),
            (Ok(()), None) => Some("no connection with it is wanted".to_owned()),
            (Ok(()), Some(_)) => None,
        };
        let earlier = process.current(plane).get(&peer).copied();
        if let Some(refusal) = refusal {
            if let Some(process) = self.machines[machine].process.as_mut() {
                process.node.handle_other_group(&hello, now);
                self.drain(machine);
            }
            self.log(|world| format!("{} refuses {connection}: {refusal}", world.machines[machine].name));
            return self.close(connection, end);
        }
        // Of two control connections the one stays that the lower id has dialed.
        let dialer_is_lower = if dialed { me < peer } else { peer < me };
        if let Some(earlier) = earlier.filter(|_| plane == Plane::Control) {
            let earlier_by_me = self.end_of(earlier, machine) == 0;
            let earlier_is_lower = if earlier_by_me { me < peer } else { peer < me };
            if earlier_is_lower && !dialer_is_lower && !self.connections[earlier].broken {
                return self.close(connection, end);
            }
        }
        if let (false, Some(answer)) = (dialed, &answer) {
            self.send_hello(connection, 0, answer);
        }
        let is_seed = dialed && self.connections[connection].peer.is_none();
        let process = self.machines[machine].process.as_mut().expect("it runs");
        if is_seed {
            process.node.handle_seed(&hello);
        }
        let result = process.node.handle_hello(&hello, now);
        if result.is_ok() {
            process.current_mut(plane).insert(peer, connection);
            self.connections[connection].ends[end].stage = Stage::Standing(peer);
        }
        self.drain(machine);
        if let Some(earlier) = earlier {
            self.close(earlier, self.end_of(earlier, machine));
        }
        if let Err(error) = result {
            self.log(|world| format!("{} refuses {connection} late: {error}", world.machines[machine].name));
            self.close(connection, end);
        }
    }

    /// The dialer may dial again.
    fn forget_dialing(&mut self, connection: usize) {
        let Connection { plane, peer, ends: [dialer, dialed], .. } = &self.connections[connection];
        let machine = &mut self.machines[dialer.machine];
        if let Some(process) = &mut machine.process
            && machine.life == dialer.life
        {
            process.dialing.remove(&(dialed.machine, *plane == Plane::Control, *peer));
        }
    }

    /// One end closes; the other one notices, sooner or later.
    pub(super) fn close(&mut self, connection: usize, end: usize) {
        self.break_off(connection);
        self.on_notice(connection, end);
    }

    /// The node wants no connection with this peer any more.
    pub(super) fn disconnect(&mut self, machine: usize, peer: NodeId) {
        let process = self.machines[machine].process.as_mut().expect("it runs");
        if let Some(connection) = process.locks.remove(&peer) {
            let end = self.end_of(connection, machine);
            self.connections[connection].ends[end].stage = Stage::Closed;
            self.break_off(connection);
            self.connect_later(machine, 40 * MS);
        }
    }

    /// The node listens to this peer no more, on either plane.
    pub(super) fn refuse(&mut self, machine: usize, peer: NodeId) {
        self.disconnect(machine, peer);
        let process = self.machines[machine].process.as_mut().expect("it runs");
        if let Some(connection) = process.control.remove(&peer) {
            let end = self.end_of(connection, machine);
            self.connections[connection].ends[end].stage = Stage::Closed;
            self.break_off(connection);
            self.connect_later(machine, 40 * MS);
        }
    }

    /// Nothing more gets through, and any number of the last bytes on their way are lost.
    pub(super) fn break_off(&mut self, connection: usize) {
        if std::mem::replace(&mut self.connections[connection].broken, true) {
            return;
        }
        self.forget_dialing(connection);
        for end in [0, 1] {
            let arrives = self.connections[connection].ends[end].arrives.max(self.now);
            let cutoff = self.within(arrives - self.now);
            self.connections[connection].ends[end].cutoff = cutoff;
            let notices = cutoff + self.rng.below(100 * MS);
            self.queue.push(notices, Event::Notice { connection, end });
        }
    }

    pub(super) fn on_notice(&mut self, connection: usize, end: usize) {
        let Connection { plane, ends, .. } = &mut self.connections[connection];
        let machine = ends[end].machine;
        let (plane, life) = (*plane, ends[end].life);
        let stage = std::mem::replace(&mut ends[end].stage, Stage::Closed);
        let now = self.local(machine);
        let here = &mut self.machines[machine];
        let Some(process) = here.process.as_mut().filter(|_| here.life == life) else { return };
        process.connections.retain(|known| *known != connection);
        let Stage::Standing(peer) = stage else { return self.connect_later(machine, 100 * MS) };
        if process.current(plane).get(&peer) == Some(&connection) {
            let is_in_view = process.node.view().contains(&peer);
            process.current_mut(plane).remove(&peer);
            match plane {
                Plane::Locks => process.node.handle_disconnect(peer, now),
                Plane::Control => process.node.handle_control_disconnect(peer, now),
            }
            if plane == Plane::Locks && is_in_view {
                self.excuse_attempts(machine);
            }
            self.drain(machine);
            self.connect_later(machine, 40 * MS);
        }
    }
}
