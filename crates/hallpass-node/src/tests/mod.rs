mod attempts;
mod bounds;
mod contract;
mod directory;
mod driven;
mod membership;
mod status;
mod turns;
mod views;

use hallpass_core::codec::DecodeError;
use hallpass_core::protocol::Floor;
use hallpass_core::{Fence, Mode, NodeId, Ticks};

use crate::wire::Hello;
use crate::*;
use driven::{Driven, found, founder, meet};

/// `N` nodes with the same settings, which have not met yet.
fn group<const N: usize>(change: impl Fn(&mut NodeConfig)) -> [Driven; N] {
    std::array::from_fn(|at| {
        let mut config = founder(at as u32 + 1, N);
        change(&mut config);
        Driven::new(config).unwrap()
    })
}

fn number(incarnation: u32) -> Incarnation {
    Incarnation::new(incarnation).unwrap()
}

/// The same, as a group, and connected.
fn connected<const N: usize>(change: impl Fn(&mut NodeConfig)) -> [Driven; N] {
    let mut nodes = group(change);
    connect(&mut nodes);
    nodes
}

/// Founds the group, unless it is there, and makes every connection for locks.
fn connect(nodes: &mut [Driven]) {
    if !nodes.iter().all(|node| node.is_complete()) {
        meet(nodes);
        found(nodes, |nodes| nodes.iter().all(|node| node.is_complete()));
    }
    connect_locks(nodes);
}

fn connect_locks(nodes: &mut [Driven]) {
    for high in 0..nodes.len() {
        (0..high).for_each(|low| connect_two(nodes, low, high));
    }
}

fn connect_two(nodes: &mut [Driven], one: usize, two: usize) {
    let hello = [nodes[one].hello(nodes[two].id()).unwrap(), nodes[two].hello(nodes[one].id()).unwrap()];
    nodes[two].handle_hello(&hello[0], 0).unwrap();
    nodes[one].handle_hello(&hello[1], 0).unwrap();
}

/// A group of three that only the first of them has opened yet, with all connections. Before that, each has done this with its own
/// locks; says which one is first.
fn opened_by_one(change: impl Fn(&mut NodeConfig), early: impl Fn(&mut Driven)) -> ([Driven; 3], usize) {
    let mut nodes: [_; 3] = group(change);
    nodes.iter_mut().for_each(early);
    meet(&mut nodes);
    found(&mut nodes, |nodes| nodes.iter().any(|node| node.is_complete()));
    connect_locks(&mut nodes);
    let first = nodes.iter().position(|node| node.is_complete()).unwrap();
    assert_eq!(nodes.iter().filter(|node| node.is_complete()).count(), 1);
    (nodes, first)
}

/// The others open it, too.
fn open_all(nodes: &mut [Driven]) {
    found(nodes, |nodes| nodes.iter().all(|node| node.is_complete()));
}

/// Carries what one node has to say to another; true if there was something.
fn carry(nodes: &mut [Driven], from: usize, to: usize) -> bool {
    let ids = [nodes[from].id(), nodes[to].id()];
    let bytes = nodes[from].take_sent(ids[1]);
    if bytes.is_empty() {
        return false;
    }
    nodes[to].handle_bytes(ids[0], &bytes, 0).unwrap();
    true
}

/// Carries bytes to and fro until nothing is left to carry.
fn exchange(nodes: &mut [Driven]) {
    let pairs = |count| (0..count).flat_map(move |from| (0..count).map(move |to| (from, to)));
    while pairs(nodes.len()).filter(|(from, to)| from != to).any(|(from, to)| carry(nodes, from, to)) {}
}

fn wait(node: &mut Driven, mode: Mode, caller: u32) -> Answer {
    node.handle_acquire("x", mode, Patience::Wait, 0, || caller).unwrap()
}

fn try_to(node: &mut Driven, lock: &str, mode: Mode, caller: u32) -> Answer {
    node.handle_acquire(lock, mode, Patience::Try, 0, || caller).unwrap()
}

/// A caller who has to wait.
fn waits(node: &mut Driven, mode: Mode, caller: u32) -> Ticket {
    match wait(node, mode, caller) {
        Answer::Waiting(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

/// A caller who is inside at once.
fn enters(node: &mut Driven, mode: Mode, caller: u32) -> (Ticket, u64) {
    match wait(node, mode, caller) {
        Answer::Granted(grant) => (grant.ticket, grant.fence.count()),
        other => panic!("{other:?}"),
    }
}

/// The first node's caller 0 is inside, and all permissions are there.
fn inside(nodes: &mut [Driven], mode: Mode) -> Ticket {
    waits(&mut nodes[0], mode, 0);
    exchange(nodes);
    granted(&mut nodes[0]).1
}

fn granted(node: &mut Driven) -> (u32, Ticket, u64) {
    match node.answer() {
        Some((caller, Outcome::Granted(grant))) => (caller, grant.ticket, grant.fence.count()),
        other => panic!("{other:?}"),
    }
}

/// Lets everybody in who comes, each for a moment; gives the order.
fn order(nodes: &mut [Driven], first: (usize, Ticket)) -> Vec<u32> {
    let mut order = Vec::new();
    assert!(nodes[first.0].handle_release(first.1, 0));
    loop {
        exchange(nodes);
        let Some(at) = (0..nodes.len()).find(|at| nodes[*at].has_answer()) else { return order };
        let (caller, ticket, _) = granted(&mut nodes[at]);
        order.push(caller);
        assert!(nodes[at].handle_release(ticket, 0));
    }
}

const READ: Mode = Mode::Shared;
const WRITE: Mode = Mode::Exclusive;

fn class(prefix: &str, protocol: &str, options: &[&str]) -> Class {
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    Class { prefix: prefix.to_owned(), protocol: protocol.to_owned(), options }
}

#[test]
fn a_lock_goes_to_and_fro_and_is_forgotten() {
    let mut nodes: [_; 2] = group(|_| {});
    let Answer::Waiting(_) = wait(&mut nodes[0], Mode::Exclusive, 7) else { panic!("nobody is there yet") };
    connect(&mut nodes);
    exchange(&mut nodes);
    let (caller, first, fence) = granted(&mut nodes[0]);
    assert_eq!((caller, fence), (7, 1));
    assert!(matches!(wait(&mut nodes[1], Mode::Exclusive, 8), Answer::Waiting(_)));
    exchange(&mut nodes);
    assert_eq!(nodes[1].answer(), None);
    assert!(nodes[0].handle_release(first, 0));
    assert!(!nodes[0].handle_release(first, 0), "a turn ends once");
    exchange(&mut nodes);
    let (caller, second, fence) = granted(&mut nodes[1]);
    assert_eq!((caller, fence), (8, 2));
    assert!(nodes[1].handle_release(second, 0));
    // The permission stays for a while; then nothing is left.
    assert!(
        matches!(wait(&mut nodes[1], Mode::Exclusive, 9), Answer::Granted(grant) if grant.fence.count() == 3 && nodes[1].handle_release(grant.ticket, 0))
    );
    let late = nodes[1].poll_timeout().unwrap();
    nodes.iter_mut().for_each(|node| node.handle_timeout(late));
    assert!(nodes.iter().all(|node| node.is_empty()));
    assert!(matches!(wait(&mut nodes[0], Mode::Exclusive, 1), Answer::Waiting(_)));
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[0]).2, 4, "the floor outlives the lock");
}

#[test]
fn who_gives_up_disappears_wherever_it_was() {
    let mut nodes: [_; 2] = connected(|_| {});
    let first = inside(&mut nodes, WRITE);
    let tickets: Vec<Ticket> = (10..15).map(|caller| waits(&mut nodes[1], WRITE, caller)).collect();
    exchange(&mut nodes);
    for gone in [0, 2, 4] {
        assert!(nodes[1].handle_cancel(tickets[gone], 0));
        assert!(!nodes[1].handle_cancel(tickets[gone], 0), "once");
        exchange(&mut nodes);
    }
    assert_eq!(order(&mut nodes, (0, first)), [11, 13]);
    assert!(!nodes[1].handle_cancel(tickets[1], 0) && !nodes[1].handle_release(tickets[1], 0));
}

#[test]
fn a_request_is_taken_over_by_the_next_caller_in_the_same_mode_only() {
    for (next, messages) in [(WRITE, 0), (READ, 1)] {
        let mut nodes: [_; 2] = connected(|_| {});
        let first = inside(&mut nodes, WRITE);
        let asking = waits(&mut nodes[1], WRITE, 10);
        waits(&mut nodes[1], next, 11);
        exchange(&mut nodes);
        let before = nodes[1].messages();
        assert!(nodes[1].handle_cancel(asking, 0));
        assert_eq!(nodes[1].messages() - before, messages, "{next:?}");
        assert_eq!(order(&mut nodes, (0, first)), [11]);
    }
}

#[test]
fn who_gives_up_when_it_is_inside_leaves() {
    let mut nodes: [_; 2] = connected(|_| {});
    let held = inside(&mut nodes, WRITE);
    let waiting = waits(&mut nodes[1], WRITE, 10);
    exchange(&mut nodes);
    assert!(nodes[0].handle_cancel(held, 0));
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[1]).0, 10);
    assert!(nodes[1].handle_cancel(waiting, 0));
    assert!(nodes.iter().all(|node| node.locks.callers == 0));
}

#[test]
fn the_longest_prefix_decides_which_protocol_serves_a_lock() {
    let classes = [
        class("a/", "token", &[]),
        class("a/b/", "maekawa", &[]),
        class("a/", "raymond", &[]),
        class("c", "lamport", &[]),
    ];
    let mut nodes: [_; 3] = connected(|config| config.classes = classes.to_vec());
    for (lock, protocol) in
        [("a/x", "token"), ("a/b/x", "maekawa"), ("a/b", "token"), ("cx", "lamport"), ("x", FOUNDED_WITH)]
    {
        nodes[1].handle_acquire(lock, WRITE, Patience::Wait, 0, || 1).unwrap();
        exchange(&mut nodes);
        let status = nodes[1].locks().find(|status| status.name == lock).unwrap();
        assert_eq!((status.protocol, status.held, status.holders), (protocol, Some(WRITE), 1), "{lock}");
    }
}

#[test]
fn names_are_1_to_255_bytes() {
    let mut nodes: [_; 2] = connected(|_| {});
    for name in [String::new(), "x".repeat(256), "é".repeat(128)] {
        let refusal = nodes[0].handle_acquire(&name, WRITE, Patience::Wait, 0, || 1);
        assert_eq!(refusal, Err(Refusal::Name));
    }
    nodes[0].handle_acquire(&"x".repeat(255), WRITE, Patience::Wait, 0, || 1).unwrap();
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[0]).0, 1);
    assert_eq!(nodes[0].len(), 1);
}

#[test]
fn callers_locks_and_backlogs_are_bounded() {
    let ask = |node: &mut Driven, lock: &str| node.handle_acquire(lock, WRITE, Patience::Wait, 0, || 1);
    let mut nodes: [_; 2] = connected(|config| config.callers_max = 2);
    let Ok(Answer::Waiting(first)) = ask(&mut nodes[0], "a") else { panic!() };
    ask(&mut nodes[0], "b").unwrap();
    assert_eq!(ask(&mut nodes[0], "c"), Err(Refusal::Callers));
    assert!(nodes[0].handle_cancel(first, 0));
    assert!(ask(&mut nodes[0], "c").is_ok(), "who has gone makes room");

    let mut nodes: [_; 2] = connected(|config| config.locks_max = 2);
    let Ok(Answer::Waiting(first)) = ask(&mut nodes[0], "a") else { panic!() };
    ask(&mut nodes[0], "b").unwrap();
    assert_eq!(ask(&mut nodes[0], "c"), Err(Refusal::Locks));
    assert!(ask(&mut nodes[0], "b").is_ok(), "a lock in use has its place");
    assert!(nodes[0].handle_cancel(first, 0));
    assert!(ask(&mut nodes[0], "c").is_ok(), "a lock that is forgotten makes room");
    exchange(&mut nodes);
    ask(&mut nodes[1], "another").unwrap();
    exchange(&mut nodes);
    assert!(nodes[1].has_answer(), "a full node answers others, and remembers nothing of it");
    assert_eq!(nodes[0].len(), 2);

    let mut nodes: [_; 2] = connected(|config| config.backlog_max = 1000);
    nodes[0].handle_disconnect(NodeId(2));
    let refused = (0..100).map(|n| ask(&mut nodes[0], &format!("lock {n}"))).find_map(Result::err);
    assert_eq!(refused, Some(Refusal::Backlog(NodeId(2))));
    let status = nodes[0].members().remove(1);
    assert!(!status.connected && (1000..1100).contains(&status.backlog), "{status:?}");
    connect(&mut nodes);
    exchange(&mut nodes);
    assert!(ask(&mut nodes[0], "another").is_ok());
}

#[test]
fn who_comes_before_the_group_is_complete_waits_for_it_in_order() {
    let early = |node: &mut Driven| {
        assert_eq!(try_to(node, "x", WRITE, 9), Answer::Busy, "nobody could answer in time");
        let tickets: Vec<Ticket> = (1..=4).map(|caller| waits(node, WRITE, caller)).collect();
        assert!(node.handle_cancel(tickets[1], 0) && !node.handle_cancel(tickets[1], 0));
        assert!(node.is_empty());
    };
    let (mut nodes, first) = opened_by_one(|_| {}, early);
    // The others have not opened the view: what is asked waits there until they have.
    exchange(&mut nodes);
    assert!(nodes.iter().all(|node| !node.has_answer()));
    open_all(&mut nodes);
    exchange(&mut nodes);
    let at = nodes.iter().position(|node| node.has_answer()).unwrap();
    let (caller, ticket, _) = granted(&mut nodes[at]);
    assert_eq!((caller, nodes[at].epoch()), (1, nodes[first].epoch()));
    let mut all = order(&mut nodes, (at, ticket));
    all.sort_unstable();
    assert_eq!(all, [1, 1, 3, 3, 3, 4, 4, 4]);
}

/// A ticket from before the group has no place in a table.
#[test]
fn who_came_early_can_give_up_by_its_first_ticket_and_not_release_by_it() {
    let mut nodes: [_; 2] = group(|_| {});
    let tickets: Vec<Ticket> = (1..=3).map(|caller| waits(&mut nodes[0], WRITE, caller)).collect();
    connect(&mut nodes);
    exchange(&mut nodes);
    let (caller, ticket, _) = granted(&mut nodes[0]);
    assert_eq!(caller, 1);
    assert!(!nodes[0].handle_release(tickets[0], 0), "the ticket of its waiting has no place");
    assert!(nodes[0].handle_cancel(tickets[1], 0), "but a caller can give up by it");
    assert_eq!(order(&mut nodes, (0, ticket)), [3]);
    assert!(!nodes[0].handle_cancel(tickets[0], 0));
}

#[test]
fn a_node_alone_is_its_own_group() {
    let mut node = Driven::alone();
    let (ticket, fence) = enters(&mut node, WRITE, 1);
    assert_eq!(fence, 1);
    waits(&mut node, WRITE, 2);
    assert!(node.handle_release(ticket, 0));
    let (_, ticket, fence) = granted(&mut node);
    assert_eq!(fence, 2);
    assert!(node.handle_release(ticket, 0) && node.is_empty());
    assert_eq!(enters(&mut node, WRITE, 3).1, 3);
}

#[test]
fn the_longest_unused_lock_goes_first_when_the_cache_is_full() {
    let mut nodes: [_; 2] = connected(|config| config.cache_max = 2);
    let mut use_once = |lock: &str, now| {
        let answer = nodes[0].handle_acquire(lock, WRITE, Patience::Wait, now, || 1).unwrap();
        let cached = matches!(answer, Answer::Granted(_));
        exchange(&mut nodes);
        let (ticket, fence) = if let Answer::Granted(grant) = answer {
            (grant.ticket, grant.fence.count())
        } else {
            let (_, ticket, fence) = granted(&mut nodes[0]);
            (ticket, fence)
        };
        assert!(nodes[0].handle_release(ticket, now));
        assert!(nodes[0].len() <= 2, "{}", nodes[0].len());
        (cached, fence)
    };
    assert_eq!(use_once("a", 0), (false, 1));
    assert_eq!(use_once("b", 1), (false, 1));
    assert_eq!(use_once("a", 2), (true, 2));
    assert!(!use_once("c", 3).0);
    assert_eq!(use_once("a", 4), (true, 3), "it was the first in the list, but used since");
    let (cached, fence) = use_once("b", 5);
    assert!(!cached && fence > 1, "fences outlive what is forgotten: {fence}");
    nodes[0].handle_timeout(u64::MAX);
    assert!(nodes.iter().all(|node| node.is_empty()));
    assert_eq!(nodes[0].poll_timeout(), None);
}

#[test]
fn the_fast_path_is_open_only_where_the_permissions_are_here_and_the_lock_is_free() {
    let mut nodes: [_; 2] = connected(|config| (config.cache_max, config.callers_max) = (1, 2));
    wait(&mut nodes[0], WRITE, 1);
    exchange(&mut nodes);
    let (_, ticket, _) = granted(&mut nodes[0]);
    let slot = ticket.slot().unwrap();
    assert_eq!(nodes[0].handle_fast_acquire(slot, "x", WRITE, 0), None, "somebody is inside");
    assert!(nodes[0].must_wait(slot, "x", WRITE) && !nodes[0].must_wait(slot, "y", WRITE));
    assert!(nodes[0].handle_release(ticket, 0));
    for (slot, name) in [(slot, "y"), (slot, ""), (Slot::new(slot.get() + 1), "x"), (Slot::new(u32::MAX), "x")] {
        assert_eq!(nodes[0].handle_fast_acquire(slot, name, WRITE, 0), None, "{slot:?} '{name}'");
    }
    assert!(!nodes[0].must_wait(slot, "x", WRITE));
    let again = nodes[0].handle_fast_acquire(slot, "x", WRITE, 0).expect("the permission is here");
    assert_eq!(again.fence.count(), 2);
    assert!(!nodes[0].handle_release(ticket, 0) && nodes[0].handle_release(again.ticket, 0));
    let reader = nodes[0].handle_fast_acquire(slot, "x", READ, 0).expect("for readers, too");
    assert_eq!(nodes[0].handle_fast_acquire(slot, "x", READ, 0), None, "joining is not on the fast path");
    waits(&mut nodes[0], WRITE, 2);
    assert!(nodes[0].handle_release(reader.ticket, 0));
    let (_, writer, _) = granted(&mut nodes[0]);
    assert!(nodes[0].handle_release(writer, 0));
    // Another node takes the lock; without the permission the fast path is closed, and nothing has changed.
    waits(&mut nodes[1], WRITE, 3);
    exchange(&mut nodes);
    let _ = granted(&mut nodes[1]);
    let messages = nodes[0].messages();
    assert_eq!(nodes[0].handle_fast_acquire(slot, "x", WRITE, 0), None);
    assert!(nodes[0].must_wait(slot, "x", WRITE));
    assert_eq!((nodes[0].messages(), nodes[0].waiting().count()), (messages, 0));
}

#[test]
fn a_cache_of_nothing_and_for_no_time_forgets_at_once() {
    let mut nodes: [_; 2] = connected(|config| (config.cache_max, config.cache_idle) = (0, 0));
    for round in 0..3u64 {
        let now = 10_000_000 * round;
        let asked = [0, 1].map(|at| nodes[at].handle_acquire("x", WRITE, Patience::Wait, now, || at as u32));
        assert!(asked.iter().all(|answer| matches!(answer, Ok(Answer::Waiting(_)))));
        exchange(&mut nodes);
        for _ in 0..2 {
            let at = nodes.iter().position(|node| node.has_answer()).expect("one is inside");
            let (_, ticket, _) = granted(&mut nodes[at]);
            assert!(nodes[at].handle_release(ticket, now));
            exchange(&mut nodes);
        }
        assert!(nodes.iter().all(|node| node.is_empty() && node.poll_timeout().is_none()), "round {round}");
    }
}

/// Callers who wait when the last fence is gone are told, here and elsewhere; nobody gets it twice.
#[test]
fn at_the_last_fence_waiters_are_turned_away() {
    let mut nodes: [_; 2] = connected(|_| {});
    nodes[0].node_mut().locks.floors.raise("x", Floor { number: 0, fence: Fence::COUNT_MAX - 1 });
    waits(&mut nodes[0], WRITE, 1);
    exchange(&mut nodes);
    let (_, last, fence) = granted(&mut nodes[0]);
    assert_eq!(fence, Fence::COUNT_MAX);
    waits(&mut nodes[0], WRITE, 2);
    waits(&mut nodes[0], READ, 3);
    waits(&mut nodes[1], WRITE, 4);
    exchange(&mut nodes);
    assert!(nodes.iter().all(|node| !node.has_answer()));
    nodes[0].handle_release(last, 0);
    exchange(&mut nodes);
    let refused = |caller| Some((caller, Outcome::Refused(Refusal::Fences)));
    assert_eq!([nodes[0].answer(), nodes[0].answer(), nodes[1].answer()], [2, 3, 4].map(refused));
    for node in &mut nodes {
        assert_eq!((node.waiting().count(), node.locks.callers), (0, 0));
        assert_eq!(node.handle_acquire("x", WRITE, Patience::Wait, 0, || 9), Err(Refusal::Fences));
    }
}

#[test]
fn who_came_early_and_finds_no_room_is_turned_away() {
    let mut nodes: [_; 2] = group(|config| config.locks_max = 1);
    for (lock, caller) in [("a", 1), ("b", 2)] {
        nodes[0].handle_acquire(lock, WRITE, Patience::Wait, 0, || caller).unwrap();
    }
    connect(&mut nodes);
    let refused = (2, Outcome::Refused(Refusal::Locks));
    assert_eq!(nodes[0].answer(), Some(refused));
    assert_eq!(nodes[0].waiting().count(), 1);
}

/// In these tests every fourth name has the same hash as this one.
#[test]
fn names_that_collide_are_different_locks_in_whatever_order_they_are_forgotten() {
    let mut node = Driven::alone();
    let names: Vec<String> = (0..23).map(|n| format!("lock {n}")).collect();
    let enter = |node: &mut Driven, name: &str| match try_to(node, name, WRITE, 1) {
        Answer::Granted(Grant { ticket, .. }) => Some(ticket),
        _ => None,
    };
    let mut held: Vec<Option<Ticket>> = names.iter().map(|name| enter(&mut node, name)).collect();
    assert!(held.iter().all(Option::is_some) && node.len() == 23);
    // Seven and twenty-three have no common factor: every lock once, in no obvious order.
    for step in 0..23 {
        let at = step * 7 % 23;
        assert!(node.handle_release(held[at].take().unwrap(), 0));
        for (name, held) in names.iter().zip(&held) {
            let entered = enter(&mut node, name);
            assert_eq!(entered.is_none(), held.is_some(), "{name}");
            assert!(entered.is_none_or(|ticket| node.handle_release(ticket, 0)));
        }
    }
    assert!(node.is_empty());
}

#[test]
fn bytes_come_in_any_portions() {
    let mut nodes: [_; 2] = connected(|_| {});
    waits(&mut nodes[0], WRITE, 1);
    for (from, to) in [(0, 1), (1, 0)] {
        let ids = [nodes[from].id(), nodes[to].id()];
        for byte in nodes[from].take_sent(ids[1]) {
            nodes[to].handle_bytes(ids[0], &[byte], 0).unwrap();
        }
    }
    assert_eq!(granted(&mut nodes[0]).0, 1);
}

#[test]
fn a_broken_connection_changes_nothing_but_the_time_it_takes() {
    let mut nodes: [_; 2] = connected(|_| {});
    waits(&mut nodes[0], WRITE, 1);
    let bytes = nodes[0].take_sent(NodeId(2));
    nodes[1].handle_bytes(NodeId(1), &bytes[..bytes.len() - 1], 0).unwrap();
    for (node, peer) in [(0, 2), (1, 1)] {
        nodes[node].handle_disconnect(NodeId(peer));
    }
    let late = nodes[1].handle_bytes(NodeId(1), &bytes[bytes.len() - 1..], 0);
    assert_eq!(late, Err(LinkError::GivenUp), "what came after the end does not count");
    assert_eq!(nodes[1].poll_transmit(NodeId(1)), [0; 0]);
    connect(&mut nodes);
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[0]).0, 1);
}

#[test]
fn nonsense_closes_the_connection() {
    let mut nodes: [_; 2] = connected(|_| {});
    let wrong = nodes[0].handle_bytes(NodeId(2), &[0, 1, 99], 0);
    assert_eq!(wrong, Err(LinkError::Decode(DecodeError::Version { peer: 99, own: 2 })));
    assert_eq!(nodes[0].handle_bytes(NodeId(9), &[0, 1, 1], 0), Err(LinkError::Misaddressed));
    let (mut early, first) = opened_by_one(|config| config.backlog_max = 10, |_| {});
    let (late, peer) = ((first + 1) % 3, early[first].id());
    let most = 2 * 10 + crate::wire::FRAME_MAX;
    assert_eq!(early[late].handle_bytes(peer, &vec![0; most], 0), Ok(()));
    assert_eq!(early[late].handle_bytes(peer, &[0; 1], 0), Err(LinkError::Flooded));
}

#[test]
fn refusals_say_what_to_do_in_one_line() {
    let all = [Refusal::Name, Refusal::Locks, Refusal::Callers, Refusal::Backlog(NodeId(3)), Refusal::NoShared("why")];
    let texts: std::collections::BTreeSet<String> = all.iter().map(Refusal::to_string).collect();
    assert_eq!(texts.len(), all.len());
    assert!(texts.iter().all(|text| !text.contains('\n')));
}
