//! The network: connections between nodes that take bytes in portions, delay them, lose and repeat frames, and break.

use hallpass_core::codec::DecodeError;
use hallpass_core::{NodeId, Ticks};
use hallpass_node::LinkError;
use hallpass_node::wire::Hello;

use super::connection::{Connection, State, renumber};
use super::plan::MS;
use super::{Bug, Event, Fault, Group};
use crate::oracle::Violation;

impl Group {
    pub(super) fn pair(&self, nodes: [usize; 2]) -> usize {
        nodes[0].min(nodes[1]) * self.plan.nodes + nodes[0].max(nodes[1])
    }

    pub(super) fn dial_later(&mut self, nodes: [usize; 2], most: Ticks) {
        let pair = self.pair(nodes);
        if !std::mem::replace(&mut self.dialing[pair], true) {
            let at = self.within(most).max(self.blocked_until[pair]);
            self.queue.push(at, Event::Dial { nodes });
        }
    }

    pub(super) fn on_dial(&mut self, nodes: [usize; 2]) {
        let pair = self.pair(nodes);
        self.dialing[pair] = false;
        if self.blocked_until[pair] > self.now {
            return self.dial_later(nodes, 20 * MS);
        }
        if self.newest[pair].is_some_and(|newest| !self.connections[newest].broken) {
            return;
        }
        // Both may dial at the same moment; then there are two connections, and each end keeps the one that stands last.
        let crossed = self.now < self.plan.faults_until && self.rng.chance(0.1);
        (0..=usize::from(crossed)).for_each(|_| self.open(nodes));
    }

    fn open(&mut self, nodes: [usize; 2]) {
        let pair = self.pair(nodes);
        let connection = self.connections.len();
        self.log(|group| format!("{:?} connect: {connection}", nodes.map(|node| group.members[node].id.0)));
        self.connections.push(Connection::new(nodes, self.now));
        self.newest[pair] = Some(connection);
        for end in [0, 1] {
            let (from, to) = (nodes[end], nodes[1 - end]);
            let mut bytes = Vec::new();
            let hello = self.members[from].node.hello(self.members[to].id);
            hello.expect("all are members").encode(&mut bytes);
            self.record_bytes(&bytes);
            self.send(connection, 1 - end, bytes);
        }
    }

    /// Puts bytes on their way to an end, in portions.
    fn send(&mut self, connection: usize, end: usize, mut bytes: Vec<u8>) {
        while !bytes.is_empty() && !self.connections[connection].broken {
            let take = if self.rng.chance(0.3) { 1 + self.rng.below(bytes.len() as u64) as usize } else { bytes.len() };
            let rest = bytes.split_off(take);
            let mut delay = self.plan.latency / 2 + self.rng.exponential(self.plan.latency as f64) as Ticks;
            if self.now < self.plan.faults_until && self.rng.chance(self.plan.spikes) {
                self.report.faults[Fault::Delay as usize] += 1;
                delay += self.rng.below(300 * MS);
            }
            let to = &mut self.connections[connection].ends[end];
            to.arrives = to.arrives.max(self.now + delay);
            self.queue.push(to.arrives, Event::Chunk { connection, end, bytes });
            bytes = rest;
        }
    }

    /// Gives a node's bytes for a peer to their connection. Now and then it takes only a part.
    pub(super) fn transmit(&mut self, node: usize, to: NodeId) {
        let Some(peer) = self.members.iter().position(|member| member.id == to) else { return };
        let Some(connection) = self.members[node].current[peer] else { return };
        let bytes = self.members[node].node.poll_transmit(to);
        let mut take = bytes.len();
        if self.rng.chance(0.1) {
            take = self.rng.below(take as u64) as usize;
        }
        let taken = bytes[..take].to_vec();
        self.record_bytes(&taken);
        self.members[node].node.handle_transmitted(to, take);
        if !self.members[node].node.poll_transmit(to).is_empty() {
            let at = self.within(2 * self.plan.latency) + 1;
            self.queue.push(at, Event::Writable { node });
        }
        let end = self.end_of(connection, node);
        let frames = self.tamper(connection, end, &taken);
        self.connections[connection].ends[end].sent += frames.len() as u64;
        self.send(connection, 1 - end, frames);
    }

    pub(super) fn end_of(&self, connection: usize, node: usize) -> usize {
        usize::from(self.connections[connection].nodes[1] == node)
    }

    /// The frames that are whole by now, less those that are lost, plus those that are repeated.
    fn tamper(&mut self, connection: usize, end: usize, bytes: &[u8]) -> Vec<u8> {
        let faulty = self.now < self.plan.faults_until;
        let mut out = Vec::new();
        self.connections[connection].ends[end].unfinished.extend_from_slice(bytes);
        while let Some(frame) = self.connections[connection].ends[end].next_frame() {
            if self.bug.is_some() {
                self.tamper_by_bug(connection, end, &frame, &mut out);
                continue;
            }
            if faulty && self.rng.chance(self.plan.losses) {
                self.report.faults[Fault::Loss as usize] += 1;
                self.connections[connection].ends[end].has_lost = true;
                // The next frame shows the gap. If none comes, whatever has swallowed this one breaks the connection.
                let at = self.within(200 * MS);
                self.queue.push(at, Event::Break { connection });
                continue;
            }
            out.extend_from_slice(&frame);
            if faulty && self.rng.chance(self.plan.duplicates) {
                self.report.faults[Fault::Duplication as usize] += 1;
                let last = &self.connections[connection].ends[end].last;
                out.extend_from_slice(if self.rng.chance(0.5) { last } else { &frame });
            }
            self.connections[connection].ends[end].last = frame;
        }
        out
    }

    fn tamper_by_bug(&mut self, connection: usize, end: usize, frame: &[u8], out: &mut Vec<u8>) {
        let nodes = self.connections[connection].nodes;
        let (from, to) = (nodes[end], nodes[1 - end]);
        let (there, back) = (from * self.plan.nodes + to, to * self.plan.nodes + from);
        let chosen = self.rng.chance(0.1);
        if self.bug == Some(Bug::Lost) && chosen {
            self.added[there] -= 1;
            return;
        }
        out.extend(renumber(frame, self.added[there], self.added[back]));
        if self.bug == Some(Bug::Twice) && chosen {
            self.added[there] += 1;
            out.extend(renumber(frame, self.added[there], self.added[back]));
        }
    }

    pub(super) fn on_chunk(&mut self, connection: usize, end: usize, bytes: &[u8]) {
        let nodes = self.connections[connection].nodes;
        let (node, peer) = (nodes[end], nodes[1 - end]);
        let receiver = &mut self.connections[connection].ends[end];
        if receiver.is_closed() || self.now > receiver.cutoff {
            return;
        }
        self.record([4, (connection * 2 + end) as u64, bytes.len() as u64]);
        let receiver = &mut self.connections[connection].ends[end];
        let State::Greeting(greeting) = &mut receiver.state else { return self.on_bytes(connection, end, bytes) };
        greeting.extend_from_slice(bytes);
        let (hello, taken) = match Hello::decode(greeting) {
            Ok(decoded) => decoded,
            Err(DecodeError::Truncated) => return,
            Err(error) => return self.broke_contract(format!("a greeting was not understood: {error}")),
        };
        let rest = greeting.split_off(taken);
        receiver.state = State::Standing;
        if let Err(error) = self.members[node].node.handle_hello(&hello, self.now) {
            return self.broke_contract(format!("a greeting was rejected: {error}"));
        }
        let earlier = self.members[node].current[peer].replace(connection);
        self.log(|group| format!("node {}: connection {connection} stands, {hello:?}", group.members[node].id));
        if let Some(earlier) = earlier {
            self.close(earlier, self.end_of(earlier, node));
        }
        self.drain(node);
        if !rest.is_empty() {
            self.on_bytes(connection, end, &rest);
        }
    }

    /// Frames go to the node. An error closes the connection; only a missing frame may be one.
    fn on_bytes(&mut self, connection: usize, end: usize, bytes: &[u8]) {
        let nodes = self.connections[connection].nodes;
        let (node, peer) = (nodes[end], self.members[nodes[1 - end]].id);
        self.connections[connection].ends[end].received += bytes.len() as u64;
        let result = self.members[node].node.handle_bytes(peer, bytes, self.now);
        self.drain(node);
        if let Err(error) = result {
            self.log(|group| format!("node {}: connection {connection} is closed: {error}", group.members[node].id));
            let lossy = self.plan.losses > 0.0;
            if !(lossy && error == LinkError::Gap) && self.bug.is_none() {
                self.broke_contract(format!("node {} received nonsense from {peer}: {error}", self.members[node].id));
            }
            self.close(connection, end);
        }
    }

    fn broke_contract(&mut self, text: String) {
        self.note(Some(Violation { property: "link", text }));
    }

    /// One end closes; the other one notices, sooner or later.
    fn close(&mut self, connection: usize, end: usize) {
        self.on_notice(connection, end);
        self.break_off(connection);
    }

    /// Nothing more gets through, and any number of the last bytes on their way are lost.
    pub(super) fn break_off(&mut self, connection: usize) {
        if std::mem::replace(&mut self.connections[connection].broken, true) {
            return;
        }
        for end in [0, 1] {
            let arrives = self.connections[connection].ends[end].arrives.max(self.now);
            let cutoff = self.within(arrives - self.now);
            self.connections[connection].ends[end].cutoff = cutoff;
            let notices = cutoff + self.rng.below(30 * MS);
            self.queue.push(notices, Event::Notice { connection, end });
        }
        // The next connection may come before both ends know that this one is gone.
        self.dial_later(self.connections[connection].nodes, 40 * MS);
    }

    pub(super) fn on_notice(&mut self, connection: usize, end: usize) {
        let nodes = self.connections[connection].nodes;
        let (node, peer) = (nodes[end], nodes[1 - end]);
        self.connections[connection].ends[end].state = State::Closed;
        if self.members[node].current[peer] == Some(connection) {
            self.log(|group| format!("node {}: connection {connection} is gone", group.members[node].id));
            self.members[node].current[peer] = None;
            self.watch_disconnect(node);
            let peer = self.members[peer].id;
            self.members[node].node.handle_disconnect(peer, self.now);
            self.drain(node);
        }
    }
}
