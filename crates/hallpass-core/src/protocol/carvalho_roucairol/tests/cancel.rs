//! Giving up, late and repeated answers, and giving permissions back.

use super::*;

#[test]
fn permissions_that_arrived_for_a_cancelled_request_stay() {
    let mut net = Net::new(3);
    net.write(1);
    net.deliver("REQUEST", 1, 2);
    net.deliver("REPLY", 2, 1);
    assert_eq!(net.cancel(1), NOTHING);
    assert_eq!((net.has(1, 2), net.has(2, 1)), ("X", ""));
    net.flying.clear();
    assert_eq!(net.write(1), ["REQUEST(2) to 3"]);
}

#[test]
fn a_late_answer_to_a_cancelled_request_is_no_permission() {
    let mut net = Net::new(2);
    net.write(1);
    net.deliver("REQUEST", 1, 2);
    net.cancel(1);
    assert_eq!(net.deliver("REPLY", 2, 1), NOTHING);
    assert_eq!((net.has(1, 2), net.has(2, 1)), ("", ""), "nobody's, which is safe");
    assert_eq!(net.write(1), ["REQUEST(2) to all"]);
}

/// Without names in REPLYs, the REPLY to 1's first request would let it in beside 2.
#[test]
fn a_late_answer_to_a_cancelled_request_does_not_grant_the_next_one() {
    let mut net = Net::new(2);
    net.write(1);
    net.deliver("REQUEST", 1, 2);
    net.cancel(1);
    net.write(2);
    net.deliver("REQUEST", 2, 1);
    net.deliver("REPLY", 1, 2);
    assert_eq!(net.inside(), [2]);
    net.write(1);
    assert_eq!(net.deliver("REPLY", 2, 1), NOTHING);
    assert_eq!(net.inside(), [2]);
}

#[test]
fn a_cancelled_request_answers_those_it_deferred() {
    let mut net = Net::new(3);
    net.write(1);
    net.write(2);
    net.deliver("REQUEST", 2, 1);
    assert_eq!(net.cancel(1), ["REPLY(1) to 2"]);
}

#[test]
fn a_newer_request_takes_the_place_of_a_deferred_older_one_in_any_order() {
    for swapped in [false, true] {
        let mut net = Net::new(2);
        net.write(1);
        net.settle();
        net.read(2);
        net.cancel(2);
        net.write(2);
        if swapped {
            net.flying.swap(0, 1);
        }
        net.settle();
        assert_eq!(net.release(1), ["REPLY(3) to 2"], "the first had number 2 and is over");
    }
}

/// The third branch asks again under the same number. A repeated answer to the first round must not pass for the second's.
#[test]
fn a_repeated_answer_does_not_stand_in_for_a_permission_that_was_given_away() {
    let mut net = Net::new(3);
    net.write(2);
    net.deliver("REQUEST", 2, 1);
    let (.., reply) = net.flying.last().cloned().unwrap();
    net.deliver("REPLY", 1, 2);
    assert_eq!(net.has(2, 1), "X");
    // Node 1 asks with a lower priority number, as if it had not heard: node 2 gives way.
    let first = CrMessage::Request(Asked { number: 1, round: 0, mode: Exclusive });
    assert_eq!(net.receive(1, 2, first), ["REPLY(1) to 1", "REQUEST(1, again 1) to 1"]);
    assert_eq!(net.receive(1, 2, reply), NOTHING, "an answer to the first round");
    assert_eq!(net.has(2, 1), "");
    let again = CrMessage::Reply { answers: Asked { number: 1, round: 1, mode: Exclusive }, fence: 0 };
    net.receive(1, 2, again);
    assert_eq!(net.has(2, 1), "X");
}

#[test]
fn repeated_requests_are_answered_again_and_harm_nobody() {
    let mut net = Net::new(2);
    net.write(1);
    let (.., request) = net.flying[0].clone();
    net.settle();
    net.release(1);
    net.write(2);
    net.settle();
    assert_eq!(net.inside(), [2]);
    assert_eq!(net.receive(1, 2, request), NOTHING, "deferred");
    assert_eq!(net.release(2), ["REPLY(1) to 1"]);
    net.settle();
    assert_eq!((net.has(1, 2), net.has(2, 1)), ("", ""), "an answer that nobody awaits: nobody's");
}

#[test]
fn giving_back_needs_no_message_and_makes_the_instance_idle() {
    let mut net = Net::new(2);
    net.pass_through(1, Exclusive);
    assert!(!net.nodes[&1].is_idle(), "a permission must be remembered");
    assert!(net.nodes[&2].is_idle());
    net.nodes.get_mut(&1).unwrap().give_back();
    assert!(net.nodes[&1].is_idle());
    assert_eq!(net.write(1), ["REQUEST(2) to all"]);
}

#[test]
fn what_a_caller_needs_is_not_given_back() {
    let mut net = Net::new(2);
    net.write(1);
    net.settle();
    net.nodes.get_mut(&1).unwrap().give_back();
    assert_eq!(net.has(1, 2), "X");
}

#[test]
fn unused_permissions_are_given_back_after_a_while() {
    let mut net = Net::with(2, "cache-idle=3T", Seat::NOBODY);
    net.write(1);
    net.settle();
    assert_eq!(net.release(1), ["set CacheIdle 3000"]);
    assert_eq!(net.write(1), ["cancel CacheIdle", "enter"]);
    assert_eq!(net.release(1), ["set CacheIdle 3000"]);
    assert_eq!(net.act(1, Input::Timeout(CrTimer::CacheIdle), Exclusive), NOTHING);
    assert!(net.nodes[&1].is_idle());
}

/// A driver drops idle instances and makes them anew: with the floor that is no different from having kept them.
#[test]
fn a_fresh_instance_above_the_floor_is_the_idle_one() {
    let mut net = Net::new(2);
    for (node, mode) in [(1, Exclusive), (2, Exclusive), (1, Shared), (2, Exclusive)] {
        net.pass_through(node, mode);
    }
    for node in 1..=2 {
        net.nodes.get_mut(&node).unwrap().give_back();
        let mut fresh = net.fresh(node, Seat::NOBODY);
        assert_ne!(fresh, net.nodes[&node]);
        fresh.raise_floor(net.nodes[&node].floor());
        assert_eq!(fresh, net.nodes[&node]);
    }
}

#[test]
fn without_the_floor_a_late_answer_would_let_two_inside() {
    let late_answer_counts = |floor: bool| {
        let mut net = Net::new(2);
        net.write(1);
        net.deliver("REQUEST", 1, 2);
        net.cancel(1);
        let kept = net.nodes[&1].floor();
        net.nodes.insert(1, net.fresh(1, Seat::NOBODY));
        if floor {
            net.nodes.get_mut(&1).unwrap().raise_floor(kept);
        }
        net.write(1);
        net.deliver("REPLY", 2, 1) == ["enter"]
    };
    assert!(late_answer_counts(false));
    assert!(!late_answer_counts(true));
}
