//! Giving up, late and repeated answers, and giving permissions back.

use super::*;

#[test]
fn permissions_that_arrived_for_a_cancelled_request_stay() {
    let mut net = Group::new(1..=3, "");
    net.acquire(1);
    net.deliver_first("REQUEST", 1, 2);
    net.deliver_first("REPLY", 2, 1);
    assert_eq!(net.cancel(1), NOTHING);
    assert_eq!((permission(&net, 1, 2), permission(&net, 2, 1)), ("X", ""));
    net.in_flight.clear();
    assert_eq!(net.acquire(1), ["REQUEST(2) to 3"]);
}

#[test]
fn a_late_answer_to_a_cancelled_request_is_no_permission() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    net.deliver_first("REQUEST", 1, 2);
    net.cancel(1);
    assert_eq!(net.deliver_first("REPLY", 2, 1), NOTHING);
    assert_eq!((permission(&net, 1, 2), permission(&net, 2, 1)), ("", ""), "neither has it, which is safe");
    assert_eq!(net.acquire(1), ["REQUEST(2) to all"]);
}

/// Without names in REPLYs, the REPLY to 1's first request would let it in beside 2.
#[test]
fn a_late_answer_to_a_cancelled_request_does_not_grant_the_next_one() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    net.deliver_first("REQUEST", 1, 2);
    net.cancel(1);
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    net.deliver_first("REPLY", 1, 2);
    assert_eq!(net.inside(), [2]);
    net.acquire(1);
    assert_eq!(net.deliver_first("REPLY", 2, 1), NOTHING);
    assert_eq!(net.inside(), [2]);
}

#[test]
fn a_cancelled_request_answers_those_it_deferred() {
    let mut net = Group::new(1..=3, "");
    net.acquire(1);
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    assert_eq!(net.cancel(1), ["REPLY(1) to 2"]);
}

#[test]
fn a_newer_request_takes_the_place_of_a_deferred_older_one_in_any_order() {
    for swapped in [false, true] {
        let mut net = Group::new(1..=2, "");
        net.acquire(1);
        net.deliver_all();
        net.acquire_shared(2);
        net.cancel(2);
        net.acquire(2);
        if swapped {
            net.in_flight.swap(0, 1);
        }
        net.deliver_all();
        assert_eq!(net.release(1), ["REPLY(3) to 2"], "the first had number 2 and is over");
    }
}

/// A request that was given up is forgotten altogether: what it awaited does not keep the next one from asking again.
#[test]
fn what_a_cancelled_request_awaited_is_asked_for_again() {
    let mut net = Group::new(1..=3, "");
    net.pass_through_as(3, Shared);
    net.acquire(3);
    net.cancel(3);
    net.in_flight.clear();
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 3);
    assert_eq!((permission(&net, 3, 1), permission(&net, 3, 2)), ("S", ""));
    assert_eq!(net.acquire_shared(3), ["REQUEST(3, shared) to 2"]);
    // Node 1 knows of number 1 only, and comes first.
    net.acquire(1);
    assert_eq!(net.deliver_first("REQUEST", 1, 3), ["REPLY(2) to 1", "REQUEST(3, shared) to 1"]);
}

/// The third branch asks again under the same number. Either REPLY to it may count, since node 1 has no use for what it took.
#[test]
fn an_answer_that_comes_twice_may_stand_in_for_the_next() {
    let mut net = Group::new(1..=3, "");
    net.acquire(1);
    net.cancel(1);
    let (.., given_up) = net.in_flight[0].clone();
    net.in_flight.clear();
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    let (.., reply) = net.in_flight.last().cloned().unwrap();
    net.deliver_first("REPLY", 1, 2);
    assert_eq!(net.receive(1, 2, given_up), ["REPLY(1) to 1", "REQUEST(1) to 1"], "a REQUEST that nobody waits for");
    net.receive(1, 2, reply);
    assert_eq!(permission(&net, 2, 1), "X");
    net.deliver_all();
    assert_eq!((net.inside(), permission(&net, 1, 2)), (vec![2], ""));
}

#[test]
fn repeated_requests_are_answered_again_and_harm_nobody() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    let (.., request) = net.in_flight[0].clone();
    net.deliver_all();
    net.release(1);
    net.acquire(2);
    net.deliver_all();
    assert_eq!(net.inside(), [2]);
    assert_eq!(net.receive(1, 2, request), NOTHING, "deferred");
    assert_eq!(net.release(2), ["REPLY(1) to 1"]);
    net.deliver_all();
    assert_eq!(
        (permission(&net, 1, 2), permission(&net, 2, 1)),
        ("", ""),
        "an answer that is not awaited: neither has it"
    );
}

#[test]
fn dropping_permissions_needs_no_message_and_makes_the_instance_idle() {
    let mut net = Group::new(1..=2, "");
    net.pass_through(1);
    assert!(!net.nodes[&1].is_idle(), "a permission must be remembered");
    assert!(net.nodes[&2].is_idle());
    net.nodes.get_mut(&1).unwrap().drop_permissions();
    assert!(net.nodes[&1].is_idle());
    assert_eq!(net.acquire(1), ["REQUEST(2) to all"]);
}

#[test]
fn permissions_that_a_caller_needs_are_not_dropped() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    net.deliver_all();
    net.nodes.get_mut(&1).unwrap().drop_permissions();
    assert_eq!(permission(&net, 1, 2), "X");
}

#[test]
fn unused_permissions_are_dropped_after_a_while() {
    let mut net = Group::new(1..=2, "cache-idle=3T");
    net.acquire(1);
    net.deliver_all();
    assert_eq!(net.release(1), ["set CacheIdle 3000"]);
    assert_eq!(net.acquire(1), ["cancel CacheIdle", "enter"]);
    assert_eq!(net.release(1), ["set CacheIdle 3000"]);
    assert_eq!(net.fire(1, CrTimer::CacheIdle), NOTHING);
    assert!(net.nodes[&1].is_idle());
}

/// A driver drops idle instances and makes new ones. With the floor this is the same as keeping them.
#[test]
fn a_fresh_instance_above_the_floor_is_the_idle_one() {
    let mut net = Group::new(1..=2, "");
    for (node, mode) in [(1, Exclusive), (2, Exclusive), (1, Shared), (2, Exclusive)] {
        net.pass_through_as(node, mode);
    }
    for node in 1..=2 {
        net.nodes.get_mut(&node).unwrap().drop_permissions();
        let mut fresh = net.fresh(node, 0, InitialHolders::NOBODY);
        assert_ne!(fresh, net.nodes[&node]);
        fresh.raise_floor(net.nodes[&node].floor().unwrap());
        assert_eq!(fresh, net.nodes[&node]);
    }
}

#[test]
fn without_the_floor_a_late_answer_would_let_two_inside() {
    let late_answer_counts = |floor: bool| {
        let mut net = Group::new(1..=2, "");
        net.acquire(1);
        net.deliver_first("REQUEST", 1, 2);
        net.cancel(1);
        let kept = net.nodes[&1].floor().unwrap();
        net.nodes.insert(1, net.fresh(1, 0, InitialHolders::NOBODY));
        if floor {
            net.nodes.get_mut(&1).unwrap().raise_floor(kept);
        }
        net.acquire(1);
        net.deliver_first("REPLY", 2, 1) == ["enter"]
    };
    assert!(late_answer_counts(false));
    assert!(!late_answer_counts(true));
}
