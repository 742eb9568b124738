//! What a node tells about its locks.

use super::*;

fn state(node: &Driven, lock: &str) -> Option<(LockState, Vec<u32>)> {
    let status = node.lock_status(lock)?;
    Some((status.state, status.missing.iter().map(|member| member.0).collect()))
}

#[test]
fn a_lock_is_here_elsewhere_cached_or_gone() {
    let mut nodes: [_; 3] = connected(|_| {});
    assert_eq!(state(&nodes[0], "x"), None);
    let ticket = inside(&mut nodes, WRITE);
    assert_eq!(state(&nodes[0], "x"), Some((LockState::Here, vec![])));
    waits(&mut nodes[1], WRITE, 1);
    assert_eq!(state(&nodes[1], "x"), Some((LockState::Elsewhere, vec![1, 3])), "nobody has been heard of yet");
    exchange(&mut nodes);
    assert_eq!(state(&nodes[1], "x"), Some((LockState::Elsewhere, vec![1])), "node 1 holds it");
    assert!(nodes[0].handle_release(ticket, 0));
    exchange(&mut nodes);
    let (_, ticket, _) = granted(&mut nodes[1]);
    assert_eq!(state(&nodes[1], "x"), Some((LockState::Here, vec![])));
    assert!(nodes[1].handle_release(ticket, 0));
    assert_eq!(state(&nodes[1], "x"), Some((LockState::Cached, vec![])));
    assert_eq!(state(&nodes[0], "x"), Some((LockState::Cached, vec![])), "node 3's permission is still there");
    nodes[1].handle_timeout(u64::MAX);
    assert_eq!(state(&nodes[1], "x"), None);
}

#[test]
fn a_caller_who_waits_for_a_member_that_is_gone_can_see_which() {
    let mut nodes: [_; 3] = connected(|_| {});
    nodes[0].handle_disconnect(NodeId(3));
    waits(&mut nodes[0], WRITE, 1);
    exchange(&mut nodes);
    assert_eq!(state(&nodes[0], "x"), Some((LockState::Elsewhere, vec![3])));
}

#[test]
fn each_protocol_tells_what_it_can() {
    for (protocol, missing, rests) in [
        ("ricart-agrawala", vec![1], None),
        ("lamport", vec![1], Some(LockState::Unknown)),
        ("token", vec![], Some(LockState::Cached)),
        ("suzuki-kasami", vec![], Some(LockState::Cached)),
        ("naimi-trehel", vec![], Some(LockState::Cached)),
        ("raymond", vec![], Some(LockState::Cached)),
        ("token-ring", vec![], Some(LockState::Cached)),
    ] {
        let mut nodes: [_; 3] = connected(|config| config.classes = vec![class("", protocol, &[])]);
        let ticket = match wait(&mut nodes[0], WRITE, 0) {
            Answer::Granted(grant) => grant.ticket,
            _ => {
                exchange(&mut nodes);
                granted(&mut nodes[0]).1
            }
        };
        waits(&mut nodes[1], WRITE, 1);
        exchange(&mut nodes);
        assert_eq!(state(&nodes[1], "x"), Some((LockState::Elsewhere, missing)), "{protocol}");
        assert!(nodes[0].handle_release(ticket, 0));
        exchange(&mut nodes);
        let (_, ticket, _) = granted(&mut nodes[1]);
        assert!(nodes[1].handle_release(ticket, 0));
        assert_eq!(state(&nodes[1], "x"), rests.map(|state| (state, vec![])), "{protocol}");
        assert!(matches!(state(&nodes[0], "x"), None | Some((LockState::Unknown, _))), "{protocol}: it has moved on");
    }
}

#[test]
fn all_locks_are_seen_in_portions_too() {
    let mut node = Driven::alone();
    let tickets: Vec<Ticket> = (0..10)
        .map(|n| match try_to(&mut node, &format!("lock {n}"), WRITE, n) {
            Answer::Granted(grant) => grant.ticket,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(node.handle_release(tickets[4], 0));
    let all: Vec<String> = node.locks().map(|lock| lock.name.to_owned()).collect();
    assert_eq!((all.len(), node.slots()), (9, 10));
    let portions = (0..10).step_by(3).flat_map(|first| node.locks_in(first..first + 3));
    assert_eq!(portions.map(|lock| lock.name.to_owned()).collect::<Vec<_>>(), all);
    assert_eq!(node.locks_in(10..u32::MAX).count(), 0);
}

#[test]
fn the_fences_that_are_used_are_those_of_the_lock_that_has_used_most() {
    let mut node = Driven::alone();
    assert_eq!(node.fences_used(), 0);
    for (lock, times) in [("a", 5), ("b", 2)] {
        for _ in 0..times {
            let Answer::Granted(grant) = try_to(&mut node, lock, WRITE, 1) else { panic!("nobody else is there") };
            assert!(node.handle_release(grant.ticket, 0));
        }
    }
    assert_eq!(node.fences_used(), 5);
}
