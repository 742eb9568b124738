//! What peers and callers cannot make a node do: grow without bound, or stop serving those who ask for little.

use hallpass_core::Message;
use hallpass_core::codec::COUNT_MAX;
use hallpass_core::protocol::carvalho_roucairol::{Asked, CrMessage};

use super::*;
use crate::wire::{Attempt, FRAME_MAX, Header, Outgoing, write};

/// Two connected nodes, of which the second one never holds back.
fn with_insatiable_peer(backlog_max: usize) -> [Driven; 2] {
    connected(|config| config.backlog_max = if config.me == NodeId(1) { backlog_max } else { usize::MAX })
}

fn ask(node: &mut Driven, lock: &str) -> Result<Answer, Refusal> {
    node.handle_acquire(lock, WRITE, Patience::Wait, 0, || 1)
}

fn reconnect(nodes: &mut [Driven]) {
    for (node, peer) in [(0, 2), (1, 1)] {
        nodes[node].handle_disconnect(NodeId(peer));
    }
    connect_two(nodes, 0, 1);
}

fn backlog(node: &Driven) -> usize {
    node.members().iter().map(|member| member.backlog).max().unwrap()
}

/// Carries from the second node to the first one.
fn carry_back(nodes: &mut [Driven]) -> Result<(), LinkError> {
    let bytes = nodes[1].take_sent(NodeId(1));
    nodes[0].handle_bytes(NodeId(2), &bytes, 0)
}

#[test]
fn a_peer_that_asks_and_never_reads_is_cut_off_until_it_does() {
    let mut nodes = with_insatiable_peer(10_000);
    let (bound, mut asked) = (4 * 10_000 + 2 * FRAME_MAX, 0);
    let cut_off = loop {
        ask(&mut nodes[1], &format!("lock {asked}")).unwrap();
        asked += 1;
        if let Err(error) = carry_back(&mut nodes) {
            break error;
        }
        assert!(backlog(&nodes[0]) < bound, "more and more is kept for it");
    };
    assert_eq!(cut_off, LinkError::Unread);
    // It comes again with more, and still does not read.
    for _ in 0..10 {
        reconnect(&mut nodes);
        for _ in 0..100 {
            ask(&mut nodes[1], &format!("lock {asked}")).unwrap();
            asked += 1;
        }
        assert_eq!(carry_back(&mut nodes), Err(LinkError::Unread));
        assert!(backlog(&nodes[0]) < bound);
    }
    // Once it reads, it is served as if nothing had been.
    reconnect(&mut nodes);
    carry(&mut nodes, 0, 1);
    reconnect(&mut nodes);
    exchange(&mut nodes);
    assert_eq!(std::iter::from_fn(|| nodes[1].answer()).count(), asked);
}

/// Acknowledgements are answers, too, if nothing else is to be said.
#[test]
fn a_peer_that_reads_no_acknowledgements_is_cut_off() {
    let mut nodes = with_insatiable_peer(0);
    let attempt = Attempt(std::num::NonZeroU64::MIN);
    let cut_off = (1..400_000).find_map(|sequence| {
        let mut frame = Vec::new();
        write(&mut frame, &header(&nodes[0], sequence), &Outgoing::Busy { lock: "x", attempt }, |_| {}).unwrap();
        nodes[0].handle_bytes(NodeId(2), &frame, 0).err()
    });
    assert_eq!(cut_off, Some(LinkError::Unread));
}

/// A member that asks as much as it may, and reads what comes, is never taken for one that does not.
#[test]
fn a_member_that_asks_as_much_as_it_may_is_never_cut_off() {
    let mut nodes: [_; 2] = connected(|config| config.backlog_max = 10_000);
    for round in 0..20 {
        let asked = (0..).take_while(|n| ask(&mut nodes[1], &format!("{round}/{n}")).is_ok()).count();
        assert!(asked > 100);
        // Its requests arrive before it has read anything.
        assert_eq!(carry_back(&mut nodes), Ok(()));
        exchange(&mut nodes);
    }
}

#[test]
fn a_busy_member_is_never_cut_off_by_one_that_waits_for_the_view() {
    let (mut nodes, busy) = opened_by_one(|config| config.backlog_max = 10_000, |_| {});
    let late = (busy + 1) % 3;
    let mut asked = 0;
    while let Ok(Answer::Waiting(ticket)) = ask(&mut nodes[busy], &format!("lock {asked}")) {
        carry(&mut nodes, busy, late);
        if asked % 7 == 0 {
            assert!(nodes[busy].handle_cancel(ticket, 0));
            carry(&mut nodes, busy, late);
            ask(&mut nodes[busy], &format!("lock {asked}")).unwrap();
            carry(&mut nodes, busy, late);
        }
        asked += 1;
    }
    assert!(asked > 100 && !nodes[late].is_complete());
    open_all(&mut nodes);
    exchange(&mut nodes);
    assert_eq!(std::iter::from_fn(|| nodes[busy].answer()).count(), asked);
}

/// Node 1 holds a lock, another caller waits behind it, and then more waits for node 2 than may.
fn held_up() -> ([Driven; 2], Ticket, Ticket) {
    let mut nodes: [_; 2] = connected(|config| config.backlog_max = 1000);
    let first = inside(&mut nodes, WRITE);
    let second = waits(&mut nodes[0], WRITE, 1);
    waits(&mut nodes[1], WRITE, 2);
    exchange(&mut nodes);
    nodes[0].handle_disconnect(NodeId(2));
    let refused = (0..).find_map(|n| ask(&mut nodes[0], &format!("lock {n}")).err());
    assert_eq!(refused, Some(Refusal::Backlog(NodeId(2))));
    (nodes, first, second)
}

#[test]
fn a_caller_behind_a_holder_asks_no_peer_that_takes_nothing() {
    let (mut nodes, first, _) = held_up();
    let messages = nodes[0].messages();
    assert!(nodes[0].handle_release(first, 0));
    assert_eq!(nodes[0].messages(), messages + 1, "the other node's permission, and no request");
    assert_eq!(nodes[0].lock_status("x").map(|lock| (lock.state, lock.waiters)), Some((LockState::Elsewhere, 1)));
    waits(&mut nodes[0], READ, 3);
    assert!(!nodes[0].has_answer());
    // The peer comes back and takes everything: all are served.
    nodes[1].handle_disconnect(NodeId(1));
    connect_two(&mut nodes, 0, 1);
    exchange(&mut nodes);
    let (caller, held, _) = granted(&mut nodes[1]);
    assert_eq!(caller, 2);
    while nodes[0].answer().is_some() {}
    assert_eq!(order(&mut nodes, (1, held)), [1, 3]);
}

/// Node 2 holds these locks, and node 1 asks for them until it is refused.
fn ask_for_held_locks(nodes: &mut [Driven; 2], locks: u32) -> Option<Refusal> {
    for n in 0..locks {
        ask(&mut nodes[1], &format!("lock {n}")).unwrap();
        exchange(nodes);
    }
    (0..locks).find_map(|n| ask(&mut nodes[0], &format!("lock {n}")).err())
}

#[test]
fn a_greeting_that_acknowledges_lets_those_go_on_who_were_held_up() {
    let mut nodes: [_; 2] = connected(|config| config.backlog_max = 200);
    let first = inside(&mut nodes, WRITE);
    waits(&mut nodes[0], WRITE, 1);
    waits(&mut nodes[1], WRITE, 2);
    assert_eq!(ask_for_held_locks(&mut nodes, 60), Some(Refusal::Backlog(NodeId(2))));
    assert!(nodes[0].handle_release(first, 0));
    carry(&mut nodes, 0, 1);
    let messages = nodes[0].messages();
    reconnect(&mut nodes);
    assert_eq!(nodes[0].messages(), messages + 1);
}

/// It holds these locks, so it has nothing to answer, and so few requests are not acknowledged by themselves.
#[test]
fn a_peer_that_has_read_everything_and_said_nothing_holds_nobody_up() {
    let mut nodes: [_; 2] = connected(|config| config.backlog_max = 0);
    assert_eq!(ask_for_held_locks(&mut nodes, 20), None);
    assert!(carry(&mut nodes, 0, 1) && !carry(&mut nodes, 1, 0));
    assert!(ask(&mut nodes[0], "another").is_ok());
}

#[test]
fn a_caller_who_gives_up_while_it_is_held_up_leaves_nothing_behind() {
    let (mut nodes, first, second) = held_up();
    assert!(nodes[0].handle_release(first, 0));
    assert!(nodes[0].handle_cancel(second, 0));
    nodes[1].handle_disconnect(NodeId(1));
    connect_two(&mut nodes, 0, 1);
    exchange(&mut nodes);
    let (_, held, _) = granted(&mut nodes[1]);
    assert!(nodes[1].handle_release(held, 0));
    while let Some((_, Outcome::Granted(grant))) = nodes[0].answer() {
        assert!(nodes[0].handle_release(grant.ticket, 0));
    }
    nodes.iter_mut().for_each(|node| node.handle_timeout(u64::MAX));
    assert!(nodes.iter().all(|node| node.is_empty() && node.locks.callers == 0));
}

#[test]
fn callers_who_came_early_do_not_ask_all_at_once() {
    let mut nodes: [_; 2] = group(|config| config.backlog_max = 1000);
    for n in 0..200 {
        assert!(matches!(ask(&mut nodes[0], &format!("lock {n}")), Ok(Answer::Waiting(_))));
    }
    connect(&mut nodes);
    assert!((1000..2000).contains(&backlog(&nodes[0])), "{}", backlog(&nodes[0]));
    exchange(&mut nodes);
    assert_eq!(std::iter::from_fn(|| nodes[0].answer()).count(), 200);
}

/// The first frame of node 2, about lock x.
fn forged(node: &Driven, message: &CrMessage) -> Vec<u8> {
    let mut frame = Vec::new();
    let body = Outgoing::Message { lock: "x", attempt: None };
    write(&mut frame, &header(node, 1), &body, |out| message.encode(out)).unwrap();
    frame
}

/// The header of a frame of node 2 that has read nothing.
fn header(node: &Driven, sequence: u64) -> Header {
    Header {
        sequence,
        acknowledges: 0,
        epoch: node.epoch().unwrap(),
        from: NodeId(2),
        incarnation: Incarnation::FIRST,
        to_incarnation: Incarnation::FIRST,
    }
}

#[test]
fn a_number_that_no_group_counts_to_closes_the_connection_and_counts_for_nothing() {
    let mut nodes: [_; 2] = connected(|_| {});
    let asked = |number| Asked { number, mode: WRITE };
    for absurd in [
        CrMessage::Request(asked(COUNT_MAX + 1)),
        CrMessage::Request(asked(u64::MAX)),
        CrMessage::Reply { answers: asked(COUNT_MAX + 1), fence: 0 },
        CrMessage::Reply { answers: asked(1), fence: Fence::COUNT_MAX + 1 },
    ] {
        let frame = forged(&nodes[0], &absurd);
        assert_eq!(nodes[0].handle_bytes(NodeId(2), &frame, 0), Err(LinkError::Decode(DecodeError::Number)));
        assert!(nodes[0].is_empty(), "nothing is remembered of it");
        reconnect(&mut nodes);
    }
    for lock in ["x", "y"] {
        ask(&mut nodes[1], lock).unwrap();
        exchange(&mut nodes);
        assert_eq!(granted(&mut nodes[1]).2, 1, "its true messages are served, about all locks");
    }
}

#[test]
fn bytes_that_are_no_message_of_the_locks_protocol_close_the_connection() {
    let mut nodes: [_; 2] = connected(|config| config.classes = vec![class("x", "raymond", &[])]);
    let frame = forged(&nodes[0], &CrMessage::Request(Asked { number: 1000, mode: READ }));
    assert!(matches!(nodes[0].handle_bytes(NodeId(2), &frame, 0), Err(LinkError::Decode(_))));
}

/// Also for those that are forgotten and come back, here and elsewhere.
#[test]
fn a_lock_whose_fences_are_used_up_is_the_only_one() {
    let mut nodes: [_; 2] = connected(|_| {});
    let spent = Floor { number: 1, fence: Fence::COUNT_MAX };
    nodes[0].node_mut().locks.floors.raise("spent", spent);
    for round in 1..=3 {
        for at in [0, 1] {
            for lock in ["a", "b", "c"] {
                ask(&mut nodes[at], lock).unwrap();
                exchange(&mut nodes);
                let (_, ticket, fence) = granted(&mut nodes[at]);
                assert_eq!(fence, 2 * round - 1 + at as u64, "{lock}");
                assert!(nodes[at].handle_release(ticket, 0));
            }
            match ask(&mut nodes[at], "spent") {
                Err(refusal) => assert_eq!(refusal, Refusal::Fences),
                Ok(_) => {
                    exchange(&mut nodes);
                    assert_eq!(nodes[at].answer(), Some((1, Outcome::Refused(Refusal::Fences))));
                }
            }
            nodes.iter_mut().for_each(|node| node.handle_timeout(u64::MAX));
            assert!(nodes.iter().all(|node| node.is_empty()), "all are forgotten");
        }
    }
}

/// A number that is just allowed would make the next one here too large: callers are told, instead of waiting forever.
#[test]
fn a_lock_whose_numbers_are_used_up_is_refused() {
    let mut nodes: [_; 2] = connected(|_| {});
    let frame = forged(&nodes[0], &CrMessage::Request(Asked { number: COUNT_MAX, mode: WRITE }));
    assert_eq!(nodes[0].handle_bytes(NodeId(2), &frame, 0), Ok(()));
    assert_eq!(ask(&mut nodes[0], "x"), Err(Refusal::Fences));
}

#[test]
fn a_class_whose_locks_stay_for_ever_keeps_no_other_from_working() {
    let mut nodes: [_; 2] = connected(|config| {
        config.locks_max = 2;
        config.classes.push(class("t/", "token", &[]));
    });
    for lock in ["t/1", "t/2"] {
        let Ok(Answer::Granted(grant)) = ask(&mut nodes[0], lock) else { panic!("the token is here") };
        assert!(nodes[0].handle_release(grant.ticket, 0));
    }
    assert_eq!(ask(&mut nodes[0], "t/3"), Err(Refusal::Locks), "where the token is must not be forgotten");
    for lock in ["a", "b"] {
        ask(&mut nodes[0], lock).unwrap();
    }
    assert_eq!(ask(&mut nodes[0], "c"), Err(Refusal::Locks));
    exchange(&mut nodes);
    assert_eq!(std::iter::from_fn(|| nodes[0].answer()).count(), 2);
}

#[test]
fn a_lock_that_was_never_asked_for_is_forgotten_whatever_its_protocol() {
    let mut nodes: [_; 2] = connected(|config| {
        config.backlog_max = 100;
        config.classes = vec![class("t/", "token", &[])];
    });
    nodes[1].handle_disconnect(NodeId(1));
    let refused = (0..).find_map(|n| ask(&mut nodes[1], &format!("lock {n}")).err());
    assert!(refused.is_some());
    let before = nodes[1].len();
    assert_eq!(ask(&mut nodes[1], "t/1"), Err(Refusal::Backlog(NodeId(1))));
    assert_eq!(nodes[1].len(), before);
}

#[test]
fn attempts_that_are_over_are_not_looked_at_when_a_peer_goes() {
    let mut nodes: [_; 2] = connected(|_| {});
    let attempt = |node: &mut Driven, lock: &str| match try_to(node, lock, WRITE, 1) {
        Answer::Waiting(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    ask(&mut nodes[1], "held").unwrap();
    exchange(&mut nodes);
    attempt(&mut nodes[0], "granted");
    attempt(&mut nodes[0], "held");
    let given_up = attempt(&mut nodes[0], "given up");
    assert_eq!(nodes[0].locks.attempts.len(), 3);
    assert!(nodes[0].handle_cancel(given_up, 0));
    exchange(&mut nodes);
    assert_eq!((nodes[0].locks.attempts.len(), nodes[0].len()), (0, 1));
    attempt(&mut nodes[0], "unanswered");
    nodes[0].handle_disconnect(NodeId(2));
    assert!(nodes[0].locks.attempts.is_empty());
    assert_eq!(nodes[0].len(), 1, "what was granted is held");
}
