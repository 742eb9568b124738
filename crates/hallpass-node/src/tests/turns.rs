//! Whose turn it is, how long permissions are kept, and that everybody who has gone is counted out.

use super::*;

#[test]
fn local_callers_follow_each_other_as_often_as_the_streak_allows() {
    for (local_streak, expected) in [(1, [20, 1, 21, 2, 3, 4]), (2, [1, 20, 21, 2, 3, 4]), (3, [1, 2, 20, 21, 3, 4])] {
        let mut nodes: [_; 2] = connected(|config| config.local_streak = local_streak);
        let first = inside(&mut nodes, WRITE);
        for caller in 1..=4 {
            waits(&mut nodes[0], WRITE, caller);
        }
        for caller in 20..=21 {
            waits(&mut nodes[1], WRITE, caller);
        }
        exchange(&mut nodes);
        assert_eq!(order(&mut nodes, (0, first)), expected, "local_streak = {local_streak}");
    }
}

/// A node that is answered last waits for the messages before, and for the hosts that those wake.
#[test]
fn the_next_in_line_is_answered_first() {
    for next in [1, 2] {
        let mut nodes: [_; 3] = connected(|_| {});
        let first = inside(&mut nodes, WRITE);
        for index in [next, 3 - next] {
            waits(&mut nodes[index], WRITE, index as u32);
            exchange(&mut nodes);
        }
        let node = nodes[0].node_mut();
        assert!(node.handle_release(first, 0));
        let receivers: Vec<_> = std::iter::from_fn(|| node.poll_output()).collect();
        assert_eq!(receivers, [next, 3 - next].map(|index| Output::Transmit(NodeId(index as u32 + 1))));
    }
}

#[test]
fn local_callers_need_no_messages_while_nobody_else_waits() {
    let mut nodes: [_; 3] = connected(|_| {});
    let first = inside(&mut nodes, WRITE);
    for caller in 1..=4 {
        waits(&mut nodes[0], WRITE, caller);
    }
    let before = nodes[0].messages();
    assert_eq!(order(&mut nodes, (0, first)), [1, 2, 3, 4], "first come, first served");
    assert_eq!(nodes[0].messages(), before);
}

#[test]
fn readers_join_readers_until_a_writer_waits_here() {
    let mut nodes: [_; 2] = connected(|_| {});
    let first = inside(&mut nodes, READ);
    let (second, fence) = enters(&mut nodes[0], READ, 1);
    assert_eq!(fence, 1, "readers share a fence");
    waits(&mut nodes[0], WRITE, 2);
    waits(&mut nodes[0], READ, 3);
    assert!(nodes[0].handle_release(first, 0) && nodes[0].answer().is_none());
    assert_eq!(order(&mut nodes, (0, second)), [2, 3]);
}

#[test]
fn readers_join_readers_until_a_writer_waits_elsewhere() {
    let mut nodes: [_; 2] = connected(|_| {});
    let first = inside(&mut nodes, READ);
    waits(&mut nodes[1], READ, 10);
    exchange(&mut nodes);
    let (_, other_reader, _) = granted(&mut nodes[1]);
    waits(&mut nodes[1], WRITE, 11);
    exchange(&mut nodes);
    let (second, _) = enters(&mut nodes[0], READ, 1);
    assert!(nodes[1].handle_release(other_reader, 0));
    exchange(&mut nodes);
    // Now node 1 has been asked by the writer, and a new reader comes after it.
    waits(&mut nodes[0], READ, 2);
    assert!(nodes[0].handle_release(first, 0));
    assert_eq!(order(&mut nodes, (0, second)), [11, 2]);
}

#[test]
fn readers_wait_together_and_enter_together() {
    let mut nodes: [_; 2] = connected(|_| {});
    let first = inside(&mut nodes, WRITE);
    for caller in 1..=3 {
        waits(&mut nodes[0], READ, caller);
    }
    waits(&mut nodes[0], WRITE, 4);
    waits(&mut nodes[0], READ, 5);
    assert!(nodes[0].handle_release(first, 0));
    let together: Vec<(u32, Ticket, u64)> = (0..3).map(|_| granted(&mut nodes[0])).collect();
    assert_eq!(
        together.iter().map(|(caller, _, fence)| (*caller, *fence)).collect::<Vec<_>>(),
        [(1, 2), (2, 2), (3, 2)]
    );
    assert_eq!(nodes[0].answer(), None);
    assert!(together[..2].iter().all(|(_, ticket, _)| nodes[0].handle_release(*ticket, 0)));
    assert_eq!(order(&mut nodes, (0, together[2].1)), [4, 5]);
}

#[test]
fn a_writer_who_gives_up_lets_the_readers_behind_it_join() {
    let mut nodes: [_; 2] = connected(|_| {});
    let first = inside(&mut nodes, READ);
    let writer = waits(&mut nodes[0], WRITE, 1);
    for caller in 2..=3 {
        waits(&mut nodes[0], READ, caller);
    }
    assert!(nodes[0].handle_cancel(writer, 0));
    assert_eq!((granted(&mut nodes[0]).0, granted(&mut nodes[0]).0), (2, 3));
    assert!(nodes[0].handle_release(first, 0));
}

/// Node 3 tries with node 1's permission from before, and has to give it away meanwhile. When it asks for it again, node 1
/// is inside, and must know that it only tries.
#[test]
fn a_permission_that_is_asked_for_again_during_an_attempt_belongs_to_the_attempt() {
    let mut nodes: [_; 3] = connected(|_| {});
    for at in [2, 1] {
        waits(&mut nodes[at], WRITE, 1);
        exchange(&mut nodes);
        let (_, ticket, _) = granted(&mut nodes[at]);
        assert!(nodes[at].handle_release(ticket, 0));
    }
    let Answer::Waiting(_) = try_to(&mut nodes[2], "x", WRITE, 5) else { panic!("node 2 has been inside since") };
    waits(&mut nodes[0], WRITE, 6);
    // The request of the same number and a lower id comes first.
    for (from, to) in [(0, 2), (0, 1), (1, 0), (2, 0)] {
        assert!(carry(&mut nodes, from, to));
    }
    assert_eq!(granted(&mut nodes[0]).0, 6);
    carry(&mut nodes, 0, 2);
    assert_eq!(nodes[2].answer(), Some((5, Outcome::Busy)));
}

#[test]
fn readers_behind_a_writer_who_gave_up_do_not_pass_a_writer_elsewhere() {
    let mut nodes: [_; 2] = connected(|_| {});
    let first = inside(&mut nodes, READ);
    let here = waits(&mut nodes[0], WRITE, 1);
    waits(&mut nodes[0], READ, 2);
    waits(&mut nodes[1], WRITE, 10);
    exchange(&mut nodes);
    assert!(nodes[0].handle_cancel(here, 0));
    assert_eq!(nodes[0].answer(), None);
    assert_eq!(order(&mut nodes, (0, first)), [10, 2]);
}

#[test]
fn a_streak_begins_anew_after_others_had_their_turn() {
    let mut nodes: [_; 2] = connected(|config| config.local_streak = 2);
    let first = inside(&mut nodes, WRITE);
    for caller in 1..=3 {
        waits(&mut nodes[0], WRITE, caller);
    }
    waits(&mut nodes[1], WRITE, 10);
    exchange(&mut nodes);
    assert!(nodes[0].handle_release(first, 0));
    let (caller, second, _) = granted(&mut nodes[0]);
    assert_eq!(caller, 1, "the streak is two");
    assert!(nodes[0].handle_release(second, 0));
    exchange(&mut nodes);
    let (caller, other, _) = granted(&mut nodes[1]);
    assert_eq!(caller, 10);
    assert!(nodes[1].handle_release(other, 0));
    waits(&mut nodes[1], WRITE, 11);
    exchange(&mut nodes);
    let (caller, third, _) = granted(&mut nodes[0]);
    assert_eq!(caller, 2);
    assert_eq!(order(&mut nodes, (0, third)), [3, 11], "and two again");
}

/// The other node gives up, and what was noted down of it is forgotten for an attempt: the streak ends without its turn.
#[test]
fn a_streak_begins_anew_after_nobody_was_left() {
    let mut nodes: [_; 2] = connected(|config| config.local_streak = 2);
    let first = inside(&mut nodes, WRITE);
    waits(&mut nodes[0], WRITE, 1);
    let other = waits(&mut nodes[1], WRITE, 10);
    exchange(&mut nodes);
    assert!(nodes[0].handle_release(first, 0));
    let (_, second, _) = granted(&mut nodes[0]);
    assert!(nodes[1].handle_cancel(other, 0));
    let Answer::Waiting(_) = try_to(&mut nodes[1], "x", WRITE, 11) else { panic!("one round trip") };
    exchange(&mut nodes);
    assert_eq!(nodes[1].answer(), Some((11, Outcome::Busy)));
    assert!(nodes[0].handle_release(second, 0));

    let (third, _) = enters(&mut nodes[0], WRITE, 2);
    for caller in 3..=4 {
        waits(&mut nodes[0], WRITE, caller);
    }
    waits(&mut nodes[1], WRITE, 12);
    exchange(&mut nodes);
    assert_eq!(order(&mut nodes, (0, third)), [3, 12, 4]);
}

/// The lock is free and its permissions are here at time 0; then it is held from one time to another.
fn used_again(from: Ticks, to: Ticks) -> Driven {
    let mut nodes: [_; 2] = connected(|config| config.cache_idle = 10);
    let first = inside(&mut nodes, WRITE);
    assert!(nodes[0].handle_release(first, 0));
    let Ok(Answer::Granted(grant)) = nodes[0].handle_acquire("x", WRITE, Patience::Wait, from, || 1) else {
        panic!("the permissions are here")
    };
    assert!(nodes[0].handle_release(grant.ticket, to));
    let [node, _] = nodes;
    node
}

#[test]
fn permissions_that_were_used_since_are_kept() {
    let state = |node: &Driven| node.lock_status("x").map(|lock| lock.state);
    for (from, to) in [(5, 5), (0, 9)] {
        let mut node = used_again(from, to);
        assert_eq!(node.poll_timeout(), Some(10));
        node.handle_timeout(11);
        assert_eq!(state(&node), Some(LockState::Cached), "used from {from} to {to}");
        let late = node.poll_timeout().unwrap();
        node.handle_timeout(late);
        assert_eq!(state(&node), None, "used from {from} to {to}");
    }
}

#[test]
fn everybody_who_has_gone_is_counted_out() {
    // An attempt that is refused elsewhere.
    let mut nodes: [_; 2] = connected(|_| {});
    inside(&mut nodes, WRITE);
    try_to(&mut nodes[1], "x", WRITE, 1);
    exchange(&mut nodes);
    assert_eq!(nodes[1].answer(), Some((1, Outcome::Busy)));
    assert_eq!(nodes.map(|node| node.locks.callers), [1, 0]);

    // Who comes before the group is complete, and gives up.
    let mut nodes: [_; 2] = group(|_| {});
    let early = waits(&mut nodes[0], WRITE, 1);
    assert!(nodes[0].handle_cancel(early, 0));
    assert_eq!(nodes[0].locks.callers, 0);
    connect(&mut nodes);
    assert!(nodes[0].is_empty());

    // Who comes early and finds no room.
    let mut nodes: [_; 2] = group(|config| config.locks_max = 1);
    for lock in ["a", "b"] {
        nodes[0].handle_acquire(lock, WRITE, Patience::Wait, 0, || 1).unwrap();
    }
    connect(&mut nodes);
    assert_eq!(nodes[0].answer(), Some((1, Outcome::Refused(Refusal::Locks))));
    assert_eq!(nodes[0].locks.callers, 1);
}
