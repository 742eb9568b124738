//! View changes as the locks see them: a few members, their links, and nobody who agrees on anything.

use std::collections::BTreeMap;

use hallpass_core::{Fence, Mode, NodeId, View};

use super::{Classes, Held, HeldLock, Locks};
use crate::links::{Arrived, Links, Process, Sender};
use crate::output::{Answer, Grant, Outcome, Patience, Ticket};
use crate::wire::{Body, Frame};
use crate::{Class, Incarnation, NodeConfig, ViewsConfig};

const READ: Mode = Mode::Shared;
const WRITE: Mode = Mode::Exclusive;

struct Member {
    id: NodeId,
    locks: Locks<u32>,
    links: Links,
}

struct Group {
    members: Vec<Member>,
    epoch: u64,
    class: Option<Class>,
}

/// A group of nodes 1 to `count` in its first epoch, whose locks have this protocol.
fn group(count: u32, protocol: Option<&str>) -> Group {
    let ids = || (1..=count).map(NodeId);
    let member = |id: NodeId| {
        let config = NodeConfig::new(id, ViewsConfig::new("host:1"));
        let mut links = Links::new(ids().filter(|peer| *peer != id));
        for link in 0..links.len() {
            links[link].process = Some(Process { incarnation: Incarnation::FIRST, boot_id: 0 });
            links[link].connected = true;
        }
        Member { id, locks: Locks::new(&config), links }
    };
    let mut group = Group { members: ids().map(member).collect(), epoch: 0, class: protocol.map(class) };
    group.start(&ids().collect::<Vec<_>>(), &[]);
    group
}

fn class(protocol: &str) -> Class {
    Class { prefix: String::new(), protocol: protocol.to_owned(), options: Vec::new() }
}

impl Group {
    fn member(&mut self, node: u32) -> &mut Member {
        &mut self.members[node as usize - 1]
    }

    fn acquire(&mut self, node: u32, lock: &str, mode: Mode, patience: Patience) -> Answer {
        let Member { locks, links, .. } = self.member(node);
        locks.acquire(lock, mode, patience, 0, links, || node).unwrap()
    }

    /// A caller who waits; callers are known by their node.
    fn waits(&mut self, node: u32, mode: Mode) -> Ticket {
        let Answer::Waiting(ticket) = self.acquire(node, "x", mode, Patience::Wait) else { panic!("{node} waits") };
        ticket
    }

    /// A caller who is inside once all messages have arrived.
    fn enters(&mut self, node: u32, mode: Mode) -> Grant {
        match self.acquire(node, "x", mode, Patience::Wait) {
            Answer::Granted(grant) => grant,
            Answer::Waiting(_) => {
                self.exchange();
                self.granted(node)
            }
            Answer::Busy => panic!("{node} does not only try"),
        }
    }

    fn granted(&mut self, node: u32) -> Grant {
        match self.member(node).locks.poll_answer() {
            Some((_, Outcome::Granted(grant))) => grant,
            other => panic!("{node}: {other:?}"),
        }
    }

    fn release(&mut self, node: u32, ticket: Ticket) -> bool {
        let Member { locks, links, .. } = self.member(node);
        locks.release(ticket, 0, links)
    }

    /// The order in which those who wait come in, after this one has left.
    fn order(&mut self, mut node: u32, mut ticket: Ticket) -> Vec<u32> {
        let mut order = Vec::new();
        loop {
            assert!(self.release(node, ticket));
            self.exchange();
            let Some(next) = self.members.iter().find(|member| member.locks.has_answers()) else { return order };
            node = next.id.0;
            ticket = self.granted(node).ticket;
            order.push(node);
        }
    }

    /// Carries all messages of this epoch; others are dropped.
    fn exchange(&mut self) {
        while let Some((from, to)) = self.next_to_transmit() {
            let link = self.member(from).links.position(NodeId(to)).unwrap();
            let bytes = self.member(from).links[link].transmit().to_vec();
            self.member(from).links.transmitted(link, bytes.len());
            self.receive(from, to, &bytes);
        }
    }

    fn next_to_transmit(&self) -> Option<(u32, u32)> {
        let links = self.members.iter().flat_map(|member| member.links.iter().map(|link| (member.id.0, link)));
        links.filter(|(_, link)| !link.transmit().is_empty()).map(|(from, link)| (from, link.peer.0)).next()
    }

    fn receive(&mut self, from: u32, to: u32, mut bytes: &[u8]) {
        let epoch = self.epoch;
        let Member { locks, links, .. } = self.member(to);
        let link = links.position(NodeId(from)).unwrap();
        while !bytes.is_empty() {
            let (frame, length) = Frame::decode(bytes).unwrap();
            bytes = &bytes[length..];
            match frame.body {
                _ if frame.header.epoch != epoch => {}
                Body::Message { lock, attempt, bytes } => {
                    let arrived = Arrived { from: NodeId(from), lock, attempt, bytes };
                    locks.on_message(link, arrived, 0, links).unwrap();
                }
                Body::Busy { lock, attempt } => locks.on_busy(NodeId(from), lock, attempt, 0, links),
                Body::Acknowledgement => {}
            }
        }
    }

    /// The old epoch ends; what the members of the next one hold.
    fn close(&mut self, members: &[u32]) -> Vec<HeldLock> {
        let mut held: BTreeMap<Box<str>, HeldLock> = BTreeMap::new();
        for node in members {
            self.member(*node).locks.close();
            for Held { name, mode, fence } in self.member(*node).locks.held() {
                let lock = held.entry(name.clone()).or_insert(HeldLock { name, mode, fence, holders: Vec::new() });
                lock.holders.push(NodeId(*node));
            }
        }
        held.into_values().collect()
    }

    /// The next epoch begins, with what each of its members has lost.
    fn start(&mut self, members: &[NodeId], held: &[HeldLock]) -> Vec<Vec<Ticket>> {
        self.epoch += 1;
        let view = View::new(members.iter().copied()).with_epoch(self.epoch);
        let (class, epoch) = (self.class.clone(), self.epoch);
        let start = |NodeId(node): &NodeId| {
            let Member { id, locks, links } = &mut self.members[*node as usize - 1];
            links.open(Sender { me: *id, incarnation: Incarnation::FIRST, epoch });
            for link in 0..links.len() {
                links[link].in_view = members.contains(&links[link].peer);
            }
            let classes = Classes::new(*id, &view, class.as_slice()).unwrap();
            locks.reopen(classes, held, 0, links)
        };
        members.iter().map(start).collect()
    }

    fn change_view(&mut self, members: &[u32]) {
        let held = self.close(members);
        let ids: Vec<NodeId> = members.iter().copied().map(NodeId).collect();
        let lost = self.start(&ids, &held);
        assert!(lost.iter().all(Vec::is_empty), "{lost:?}");
    }
}

/// The names of all protocols that a user can type.
const PROTOCOLS: [&str; 13] = [
    "directory",
    "ricart-agrawala",
    "ricart-agrawala-ring",
    "central",
    "lamport",
    "lamport-fifo",
    "token-ring",
    "carvalho-roucairol",
    "token",
    "naimi-trehel",
    "suzuki-kasami",
    "maekawa",
    "raymond",
];

#[test]
fn every_protocol_goes_on_from_its_holder_and_everybody_comes_in() {
    for protocol in PROTOCOLS {
        for (holder, next) in [(2, [1, 2, 3]), (1, [1, 2, 4]), (4, [2, 3, 4])] {
            let mut group = group(4, Some(protocol));
            let first = group.enters(3, WRITE);
            assert!(group.release(3, first.ticket));
            group.exchange();
            let held = group.enters(holder, WRITE);
            let others: Vec<u32> = next.into_iter().filter(|node| *node != holder).collect();
            for node in &others {
                group.waits(*node, WRITE);
            }
            // Their messages of this epoch arrive in the next one, and are dropped.
            group.change_view(&next);
            group.exchange();
            assert!(group.members.iter().all(|member| !member.locks.has_answers()), "{protocol}: {holder} is inside");
            let mut order = group.order(holder, held.ticket);
            order.sort_unstable();
            assert_eq!(order, others, "{protocol}");
            assert!(next.iter().all(|node| group.member(*node).locks.callers == 0), "{protocol}");
            let later = group.enters(next[2], WRITE);
            assert!(later.fence > held.fence && held.fence > first.fence, "{protocol}");
            assert_eq!(later.fence, Fence::compose(2, 3).unwrap(), "{protocol}: counts start afresh");
        }
    }
}

#[test]
fn every_protocol_starts_free_where_nobody_holds() {
    for protocol in PROTOCOLS {
        let mut group = group(4, Some(protocol));
        for node in [2, 4] {
            let grant = group.enters(node, WRITE);
            assert!(group.release(node, grant.ticket));
            group.exchange();
        }
        group.change_view(&[1, 2, 3]);
        assert!([1, 2, 3].iter().all(|node| group.member(*node).locks.len() == 0), "{protocol}");
        for node in [3, 1, 2, 2] {
            let grant = group.enters(node, WRITE);
            assert!(group.release(node, grant.ticket));
            group.exchange();
        }
    }
}

/// Node 3 has asked before node 2: with new numbers node 2 would come first.
#[test]
fn those_who_wait_keep_their_places() {
    for protocol in ["carvalho-roucairol", "ricart-agrawala", "lamport", "lamport-fifo"] {
        let mut group = group(3, Some(protocol));
        let held = group.enters(1, WRITE);
        for node in [3, 2] {
            group.waits(node, WRITE);
            group.exchange();
        }
        for _ in 0..3 {
            group.change_view(&[1, 2, 3]);
        }
        group.exchange();
        assert_eq!(group.order(1, held.ticket), [3, 2], "{protocol}");
    }
}

#[test]
fn between_two_epochs_nothing_is_sent_or_entered_and_nothing_is_forgotten() {
    let mut group = group(2, None);
    let mut grants: Vec<Grant> = Vec::new();
    for lock in ["kept", "released"] {
        let Answer::Waiting(_) = group.acquire(1, lock, READ, Patience::Wait) else {
            panic!("permissions are missing")
        };
        group.exchange();
        grants.push(group.granted(1));
    }
    let cached = group.enters(1, WRITE).ticket;
    assert!(group.release(1, cached));
    let Answer::Waiting(_) = group.acquire(2, "tried", WRITE, Patience::Try) else { panic!("it asks") };
    let sent: Vec<u64> = group.members.iter().map(|member| member.links.messages()).collect();

    let held = group.close(&[1, 2]);
    assert_eq!(held.iter().map(|lock| &*lock.name).collect::<Vec<_>>(), ["kept", "released"]);
    assert_eq!(group.member(2).locks.poll_answer(), Some((2, Outcome::Busy)));
    assert_eq!(group.acquire(1, "x", WRITE, Patience::Try), Answer::Busy);
    assert!(group.member(1).locks.acquire_fast(cached.slot.unwrap(), "x", WRITE, 0).is_none());
    let gives_up = group.waits(1, WRITE);
    group.waits(1, WRITE);
    let Answer::Waiting(_) = group.acquire(1, "kept", READ, Patience::Wait) else { panic!("no reader joins") };
    let Answer::Waiting(_) = group.acquire(2, "released", WRITE, Patience::Wait) else { panic!("it is closed") };
    let Member { locks, links, .. } = group.member(1);
    assert!(locks.cancel(gives_up, 0, links) && !locks.cancel(gives_up, 0, links));
    assert!(group.release(1, grants[1].ticket) && !group.release(1, grants[1].ticket));
    let Member { locks, links, .. } = group.member(1);
    locks.retry_backpressured(0, links);
    locks.handle_timeout(u64::MAX, links);
    assert_eq!(locks.poll_timeout(), None);
    group.exchange();
    assert_eq!(sent, group.members.iter().map(|member| member.links.messages()).collect::<Vec<_>>());
    assert!(group.members.iter().all(|member| !member.locks.has_answers()));

    group.start(&[NodeId(1), NodeId(2)], &held);
    let joined = group.granted(1);
    assert_eq!(joined.fence, grants[0].fence, "a reader who joins has the fence of the first");
    group.exchange();
    assert!(group.granted(2).fence > grants[1].fence, "what was released is free");
    let waited = group.granted(1);
    for ticket in [grants[0].ticket, joined.ticket, waited.ticket] {
        assert!(group.release(1, ticket));
    }
    assert_eq!(group.members.iter().map(|member| member.locks.callers).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_node_that_lapses_holds_nothing_and_waits_for_the_next_epoch() {
    let mut group = group(3, None);
    let held = group.enters(1, WRITE);
    group.waits(1, WRITE);
    group.waits(2, WRITE);
    group.exchange();
    assert_eq!(group.member(1).locks.lapse(), 1);
    assert_eq!((group.member(1).locks.callers, group.member(1).locks.held()), (1, Vec::new()));
    assert!(!group.release(1, held.ticket));
    group.change_view(&[2, 3]);
    group.exchange();
    let second = group.granted(2);
    assert!(second.fence > held.fence);
    group.change_view(&[1, 2, 3]);
    group.exchange();
    assert_eq!(group.order(2, second.ticket), [1]);
}

#[test]
fn a_holder_that_is_not_listed_has_lost_its_lock() {
    let mut group = group(2, None);
    let held = group.enters(1, WRITE);
    group.waits(1, WRITE);
    group.close(&[1, 2]);
    let other = HeldLock { name: "x".into(), mode: WRITE, fence: held.fence, holders: vec![NodeId(2)] };
    assert_eq!(group.start(&[NodeId(1), NodeId(2)], &[other]), [vec![held.ticket], vec![]]);
    assert!(!group.release(1, held.ticket), "it is lost");
    group.exchange();
    assert!(group.granted(1).fence > held.fence, "node 2 knew nothing of it, and released it");
    let Member { locks, links, .. } = group.member(2);
    locks.handle_timeout(u64::MAX, links);
    assert_eq!(locks.len(), 0);
}

#[test]
fn what_is_revoked_is_free() {
    let mut group = group(2, None);
    let held = group.enters(1, WRITE);
    group.waits(2, WRITE);
    group.exchange();
    assert_eq!(group.member(1).locks.holders_of("x"), [held.ticket]);
    let Member { locks, links, .. } = group.member(1);
    assert!(locks.revoke(held.ticket, 0, links) && !locks.revoke(held.ticket, 0, links));
    assert!(!group.release(1, held.ticket));
    assert_eq!(group.member(1).locks.holders_of("x"), []);
    assert_eq!(group.member(1).locks.holders_of("y"), []);
    group.exchange();
    group.granted(2);
}

/// Also if their class gets a protocol that lets no two nodes in: then the default one serves them until the next view.
#[test]
fn readers_who_hold_together_go_on_under_every_protocol() {
    for protocol in PROTOCOLS {
        let mut group = group(3, None);
        let readers = [1, 3].map(|node| (node, group.enters(node, READ).ticket));
        group.waits(2, WRITE);
        group.exchange();
        group.class = Some(class(protocol));
        group.change_view(&[1, 2, 3]);
        for (node, ticket) in readers {
            group.exchange();
            assert!(!group.member(2).locks.has_answers(), "{protocol}: {node} is inside");
            assert!(group.release(node, ticket));
        }
        group.exchange();
        let second = group.granted(2).ticket;
        group.change_view(&[1, 2, 3]);
        group.waits(3, WRITE);
        group.exchange();
        assert_eq!(group.order(2, second), [3], "{protocol}");
        let status = group.member(3).locks.status_of("x").map(|lock| lock.protocol);
        assert!(status.is_none_or(|status| status == protocol), "{status:?}");
    }
}

#[test]
fn what_is_cached_costs_nothing_and_what_is_held_no_message() {
    let mut group = group(3, None);
    let mut held = Vec::new();
    for number in 0..2_000 {
        let Answer::Waiting(_) = group.acquire(1, &format!("lock {number}"), WRITE, Patience::Wait) else { panic!() };
        group.exchange();
        let grant = group.granted(1);
        if number % 10 == 0 { held.push(grant.ticket) } else { assert!(group.release(1, grant.ticket)) }
    }
    assert_eq!(group.member(1).locks.len(), 2_000);
    let sent = group.member(1).links.messages();
    group.change_view(&[1, 2]);
    assert_eq!((group.member(1).locks.len(), group.member(2).locks.len()), (200, 0));
    assert_eq!(group.member(1).links.messages(), sent);
    for ticket in held {
        assert!(group.release(1, ticket));
    }
    assert_eq!(group.member(1).locks.callers, 0);
    let Answer::Waiting(_) = group.acquire(1, "lock 1", WRITE, Patience::Wait) else { panic!("permissions are void") };
    assert_eq!(group.member(1).links.messages(), sent + 1, "node 3 is not in the view");
}
