//! Locks with a home: asked of one member, whatever the size of the group, and remembered where they are held and at home.

use hallpass_core::View;

use super::*;

/// Nodes 1 to N, connected, whose locks have homes.
fn homes<const N: usize>() -> [Driven; N] {
    connected(|config| config.classes.clear())
}

/// The name of a lock whose home is this node.
fn homed_at<const N: usize>(home: u32) -> String {
    let view = View::new((1..=N as u32).map(NodeId));
    (0..).map(|number| format!("lock {number}")).find(|name| view.home_of(name) == NodeId(home)).unwrap()
}

fn ask(node: &mut Driven, lock: &str, mode: Mode, caller: u32) -> Answer {
    node.handle_acquire(lock, mode, Patience::Wait, 0, || caller).unwrap()
}

fn messages(nodes: &[Driven]) -> u64 {
    nodes.iter().map(|node| node.messages()).sum()
}

/// How many locks each node remembers.
fn remembered(nodes: &[Driven]) -> Vec<usize> {
    nodes.iter().map(|node| node.len()).collect()
}

#[test]
fn new_groups_serve_their_locks_by_homes() {
    let mut nodes: [_; 3] = homes();
    ask(&mut nodes[0], "x", Mode::Exclusive, 0);
    assert_eq!(nodes[0].lock_status("x").unwrap().protocol, FOUNDED_WITH);
}

#[test]
fn a_free_lock_costs_three_messages_in_a_group_of_any_size_and_none_at_its_home() {
    let mut nodes: [_; 9] = homes();
    let lock = homed_at::<9>(4);
    let before = messages(&nodes);
    let Answer::Waiting(_) = ask(&mut nodes[0], &lock, Mode::Exclusive, 0) else { panic!() };
    exchange(&mut nodes);
    let (_, ticket, _) = granted(&mut nodes[0]);
    assert_eq!(messages(&nodes) - before, 2);
    nodes[0].handle_release(ticket, 0);
    exchange(&mut nodes);
    assert_eq!(messages(&nodes) - before, 3, "it is given back");
    let Answer::Granted(grant) = ask(&mut nodes[3], &lock, Mode::Exclusive, 3) else { panic!() };
    nodes[3].handle_release(grant.ticket, 0);
    exchange(&mut nodes);
    assert_eq!(messages(&nodes) - before, 3);
}

#[test]
fn a_held_lock_is_remembered_by_its_holder_and_its_home_and_an_idle_one_by_nobody() {
    let mut nodes: [_; 4] = homes();
    let lock = homed_at::<4>(2);
    let Answer::Waiting(_) = ask(&mut nodes[0], &lock, Mode::Exclusive, 0) else { panic!() };
    exchange(&mut nodes);
    let (_, ticket, _) = granted(&mut nodes[0]);
    assert_eq!(remembered(&nodes), [1, 1, 0, 0]);
    assert_eq!(nodes[1].lock_status(&lock).unwrap().order, Some(vec![NodeId(1)]), "the home knows who has it");
    assert_eq!(nodes[0].lock_status(&lock).unwrap().home, Some(NodeId(2)));
    nodes[0].handle_release(ticket, 0);
    exchange(&mut nodes);
    assert_eq!(remembered(&nodes), [0; 4]);
}

#[test]
fn who_comes_back_keeps_the_lock_until_somebody_else_asks() {
    let mut nodes: [_; 3] = homes();
    let lock = homed_at::<3>(3);
    for _ in 0..2 {
        let Answer::Waiting(_) = ask(&mut nodes[0], &lock, Mode::Exclusive, 0) else { panic!() };
        exchange(&mut nodes);
        let (_, ticket, _) = granted(&mut nodes[0]);
        nodes[0].handle_release(ticket, 0);
        exchange(&mut nodes);
    }
    let before = messages(&nodes);
    for _ in 0..10 {
        let Answer::Granted(grant) = ask(&mut nodes[0], &lock, Mode::Exclusive, 0) else { panic!() };
        nodes[0].handle_release(grant.ticket, 0);
    }
    assert_eq!(messages(&nodes), before);
    let Answer::Waiting(_) = ask(&mut nodes[1], &lock, Mode::Exclusive, 1) else { panic!() };
    exchange(&mut nodes);
    granted(&mut nodes[1]);
    assert_eq!(messages(&nodes) - before, 3, "REQ, FWD, GRANT");
}

#[test]
fn callers_of_several_nodes_enter_in_the_order_in_which_the_home_heard_of_them() {
    let mut nodes: [_; 4] = homes();
    let lock = homed_at::<4>(1);
    let Answer::Granted(held) = ask(&mut nodes[0], &lock, Mode::Exclusive, 0) else { panic!() };
    for asking in [3, 1, 2] {
        ask(&mut nodes[asking], &lock, Mode::Exclusive, asking as u32);
        exchange(&mut nodes);
    }
    assert_eq!(nodes[0].lock_status(&lock).unwrap().order, Some([1, 4, 2, 3].map(NodeId).to_vec()));
    nodes[0].handle_release(held.ticket, 0);
    for next in [3, 1, 2] {
        exchange(&mut nodes);
        let (_, ticket, _) = granted(&mut nodes[next]);
        nodes[next].handle_release(ticket, 0);
    }
}

#[test]
fn an_attempt_is_answered_by_the_home_or_by_one_holder() {
    let mut nodes: [_; 4] = homes();
    let lock = homed_at::<4>(2);
    let Answer::Waiting(_) = try_to(&mut nodes[0], &lock, Mode::Exclusive, 0) else { panic!() };
    let before = messages(&nodes);
    exchange(&mut nodes);
    let (_, ticket, _) = granted(&mut nodes[0]);
    assert_eq!(messages(&nodes) - before, 1);
    // Held: REQ, PROBE, HELD, BUSY.
    let Answer::Waiting(_) = try_to(&mut nodes[3], &lock, Mode::Exclusive, 3) else { panic!() };
    let before = messages(&nodes);
    exchange(&mut nodes);
    assert_eq!(nodes[3].answer(), Some((3, Outcome::Busy)));
    assert_eq!(messages(&nodes) - before, 3);
    assert!(nodes[3].lock_status(&lock).is_none(), "it has left nothing behind");
    nodes[0].handle_release(ticket, 0);
    exchange(&mut nodes);
    let Answer::Waiting(_) = try_to(&mut nodes[3], &lock, Mode::Exclusive, 3) else { panic!() };
    exchange(&mut nodes);
    granted(&mut nodes[3]);
}

#[test]
fn an_attempt_does_not_wait_for_a_home_that_is_not_connected() {
    let mut nodes: [_; 3] = homes();
    let (near, far) = (homed_at::<3>(2), homed_at::<3>(3));
    let Answer::Waiting(_) = try_to(&mut nodes[0], &far, Mode::Exclusive, 0) else { panic!() };
    nodes[0].handle_disconnect(NodeId(3));
    assert_eq!(nodes[0].answer(), Some((0, Outcome::Busy)));
    assert_eq!(try_to(&mut nodes[0], &far, Mode::Exclusive, 0), Answer::Busy);
    assert!(matches!(try_to(&mut nodes[0], &near, Mode::Exclusive, 0), Answer::Waiting(_)), "its home is there");
}

#[test]
fn a_caller_behind_one_that_gave_up_takes_its_place() {
    let mut nodes: [_; 3] = homes();
    let lock = homed_at::<3>(2);
    let Answer::Granted(held) = ask(&mut nodes[1], &lock, Mode::Exclusive, 1) else { panic!() };
    let Answer::Waiting(first) = ask(&mut nodes[0], &lock, Mode::Exclusive, 0) else { panic!() };
    exchange(&mut nodes);
    assert!(nodes[0].handle_cancel(first, 0));
    let before = messages(&nodes);
    let Answer::Waiting(_) = ask(&mut nodes[0], &lock, Mode::Exclusive, 7) else { panic!() };
    exchange(&mut nodes);
    assert_eq!(messages(&nodes), before, "it has asked already");
    nodes[1].handle_release(held.ticket, 0);
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[0]).0, 7);
}

#[test]
fn nobody_keeps_anything_of_a_caller_that_gave_up() {
    let mut nodes: [_; 3] = homes();
    let lock = homed_at::<3>(2);
    let Answer::Granted(held) = ask(&mut nodes[1], &lock, Mode::Exclusive, 1) else { panic!() };
    let Answer::Waiting(first) = ask(&mut nodes[0], &lock, Mode::Exclusive, 0) else { panic!() };
    exchange(&mut nodes);
    assert!(nodes[0].handle_cancel(first, 0));
    nodes[1].handle_release(held.ticket, 0);
    exchange(&mut nodes);
    assert_eq!(nodes[0].len(), 0, "it was granted, and gave the lock back");
    let Answer::Granted(_) = ask(&mut nodes[1], &lock, Mode::Exclusive, 1) else { panic!() };
}
