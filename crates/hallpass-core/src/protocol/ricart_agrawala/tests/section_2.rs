//! Section 2: the decision table, cancellation, and the traps T1 and T6.

use super::*;

type Plain = Net<RicartAgrawala>;

/// Node 2 asks with number 2, since it knows of node 1's number 1; node 3 does not, and asks with number 1.
fn two_and_three_want_in() -> Plain {
    let mut net = Plain::new([1, 2, 3], "");
    assert_eq!(net.acquire(1), ["REQUEST(1) to all"]);
    net.deliver(1, 2);
    net.take(1, 3);
    net.cancel(1);
    assert_eq!(net.acquire(2), ["REQUEST(2) to all"]);
    assert_eq!(net.acquire(3), ["REQUEST(1) to all"]);
    net
}

#[test]
fn rule_1_a_node_that_does_not_ask_replies_at_once() {
    let mut net = Plain::new([1, 2], "");
    net.acquire(2);
    assert_eq!(net.deliver(2, 1), ["REPLY(1) to 2"]);
    assert_eq!(net.deliver(1, 2), ["enter"]);
    assert_eq!(net.release(2), NOTHING);
}

#[test]
fn rule_2_a_smaller_number_is_answered_at_once_whatever_the_node() {
    let mut net = two_and_three_want_in();
    assert_eq!(net.deliver(3, 2), ["REPLY(1) to 3"]);
}

#[test]
fn rule_3_a_larger_number_is_deferred_whatever_the_node() {
    let mut net = two_and_three_want_in();
    assert_eq!(net.deliver(2, 3), NOTHING);
    net.deliver(3, 1);
    net.deliver(1, 3);
    net.deliver(3, 2);
    assert_eq!(net.deliver(2, 3), ["enter"]);
    assert_eq!(net.release(3), ["REPLY(2) to 2"]);
}

#[test]
fn rule_4_on_equal_numbers_a_lower_node_is_answered_at_once() {
    let mut net = Plain::new([1, 2], "");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver(1, 2), ["REPLY(1) to 1"]);
}

#[test]
fn rule_5_on_equal_numbers_a_higher_node_is_deferred() {
    let mut net = Plain::new([1, 2], "");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver(2, 1), NOTHING);
    net.deliver(1, 2);
    assert_eq!(net.deliver(2, 1), ["enter"]);
    assert_eq!(net.release(1), ["REPLY(1) to 2"]);
    assert_eq!(net.deliver(1, 2), ["enter"]);
}

#[test]
fn node_numbers_are_compared_by_value_and_not_by_rank() {
    let mut net = Plain::new([900, 70, 8], "");
    net.acquire(900);
    net.acquire(70);
    assert_eq!(net.deliver(900, 70), NOTHING);
    assert_eq!(net.deliver(70, 900), ["REPLY(1) to 70"]);
}

#[test]
fn figure_1_from_a_to_j() {
    let mut net = Plain::new([1, 2, 3], "reply-number=false");
    assert_eq!(net.acquire(3), ["REQUEST(1) to all"]); // (a)
    assert_eq!(net.acquire(2), ["REQUEST(1) to all"]); // (b)
    assert_eq!(net.deliver(2, 1), ["REPLY(1) to 2"]); // (c)
    assert_eq!(net.deliver(2, 3), ["REPLY(1) to 2"]);
    assert_eq!(net.deliver(3, 2), NOTHING);
    assert_eq!(net.acquire(1), ["REQUEST(2) to all"]); // (d)
    assert_eq!(net.deliver_first("REQUEST", 1, 2), NOTHING);
    assert_eq!(net.deliver(1, 2), NOTHING); // (e)
    assert_eq!(net.deliver(3, 2), ["enter"]);
    assert_eq!(net.deliver(1, 3), NOTHING);
    assert_eq!(net.release(2), ["REPLY(2) to 1", "REPLY(1) to 3"]); // (f)
    assert_eq!(net.deliver(2, 1), NOTHING); // (g)
    assert_eq!(net.deliver(2, 3), NOTHING);
    assert_eq!(net.deliver(3, 1), ["REPLY(1) to 3"]);
    assert_eq!(net.deliver(1, 3), ["enter"]); // (h)
    assert_eq!(net.release(3), ["REPLY(2) to 1"]); // (i)
    assert_eq!(net.deliver(3, 1), ["enter"]); // (j)
    assert_eq!(net.release(1), NOTHING);
    assert!(net.in_flight.is_empty());
}

#[test]
fn t1_numbers_do_not_repeat_although_nobody_has_answered() {
    for (words, second) in [("", "REQUEST(2) to all"), ("as-printed=T1", "REQUEST(1) to all")] {
        let mut net = Plain::new([1, 2], words);
        assert_eq!(net.acquire(1), ["REQUEST(1) to all"]);
        net.cancel(1);
        assert_eq!(net.acquire(1), [second], "{words}");
    }
}

#[test]
fn t6_a_repeated_reply_does_not_count_twice() {
    for (words, inside) in [("", vec![]), ("as-printed=T6", vec![1])] {
        let mut net = Plain::new([1, 2, 3], words);
        net.acquire(1);
        net.deliver(1, 2);
        let reply = net.take(2, 1);
        assert_eq!(net.receive(2, 1, reply.clone()), NOTHING);
        net.receive(2, 1, reply);
        assert_eq!(net.inside(), inside, "{words}");
    }
}

#[test]
fn t6_replies_to_a_cancelled_request_do_not_grant_the_next() {
    for (words, inside) in [("", vec![]), ("as-printed=T6", vec![1])] {
        let mut net = Plain::new([1, 2, 3], words);
        net.acquire(1);
        net.deliver(1, 2);
        net.deliver(1, 3);
        assert_eq!(net.cancel(1), NOTHING);
        assert_eq!(net.acquire(1), ["REQUEST(2) to all"]);
        net.deliver(2, 1);
        net.deliver(3, 1);
        assert_eq!(net.inside(), inside, "{words}");
    }
}

#[test]
fn a_reply_from_a_stranger_does_not_count() {
    let mut net = Plain::new([1, 2], "");
    net.acquire(1);
    net.deliver(1, 2);
    let reply = net.take(2, 1);
    assert_eq!(net.receive(9, 1, reply.clone()), NOTHING);
    assert_eq!(net.receive(2, 1, reply), ["enter"]);
}

#[test]
fn giving_up_answers_all_that_were_deferred() {
    let mut net = Plain::new([1, 2, 3], "");
    for node in [1, 2, 3] {
        net.acquire(node);
    }
    assert_eq!(net.deliver(2, 1), NOTHING);
    assert_eq!(net.deliver(3, 1), NOTHING);
    assert!(!net.nodes[&1].is_idle());
    assert_eq!(net.cancel(1), ["REPLY(1) to 2", "REPLY(1) to 3"]);
    assert!(net.nodes[&1].is_idle());
    // The REPLYs to what was given up come late, while the next request is out: they open nothing.
    assert_eq!(net.acquire(1), ["REQUEST(2) to all"]);
    net.deliver(1, 2);
    net.deliver(1, 3);
    net.deliver(2, 1);
    net.deliver(3, 1);
    assert_eq!(net.inside(), [0; 0]);
    net.deliver_all();
    assert_eq!(net.inside(), [2]);
    net.release(2);
    net.deliver_all();
    net.release(3);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
}

#[test]
fn a_deferred_request_that_its_successor_overtook_is_answered_by_the_successors_number() {
    let mut net = Plain::new([1, 2], "");
    net.acquire(1);
    net.acquire(2);
    net.cancel(2);
    net.acquire(2);
    let first = net.take(2, 1);
    assert_eq!(net.deliver(2, 1), NOTHING);
    assert_eq!(net.receive(2, 1, first.clone()), NOTHING);
    assert_eq!(net.receive(2, 1, first), NOTHING);
    assert_eq!(net.cancel(1), ["REPLY(2) to 2"]);
}

#[test]
fn t13_a_reply_carries_the_highest_number_unless_switched_off() {
    for (words, next) in [("", "REQUEST(3) to all"), ("reply-number=false", "REQUEST(2) to all")] {
        let mut net = Plain::new([1, 2, 3], words);
        for _ in 0..2 {
            net.acquire(3);
            net.deliver(3, 2);
            net.cancel(3);
        }
        // Node 2 knows of number 2, node 1 of none.
        assert_eq!(net.acquire(1), ["REQUEST(1) to all"]);
        net.deliver(1, 2);
        net.deliver(2, 1);
        net.cancel(1);
        assert_eq!(net.acquire(1), [next], "{words}");
    }
}

#[test]
fn an_idle_node_ignores_what_is_not_for_it() {
    let mut net = Plain::new([1, 2], "");
    let before = net.nodes[&1].clone();
    assert_eq!(net.act(1, Input::Release), NOTHING);
    assert_eq!(net.act(1, Input::Cancel), NOTHING);
    assert_eq!(net.act(1, Input::Leave), NOTHING);
    assert_eq!(net.act(1, Input::Join { sponsor: NodeId(2) }), NOTHING);
    assert_eq!(net.nodes[&1], before);
}
