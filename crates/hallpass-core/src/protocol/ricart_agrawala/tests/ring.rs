//! Section 6.3: the REQUEST travels around.

use super::*;

type Rings = Net<Ring>;

#[test]
fn echo_goes_around_in_n_messages() {
    for words in ["ring=echo", "ring=annotate"] {
        let mut net = Rings::new([1, 2, 3], words);
        assert_eq!(net.acquire(2), ["REQUEST(1 of 2) to 3"]);
        assert_eq!(net.deliver(2, 3), ["REQUEST(1 of 2) to 1"]);
        assert_eq!(net.deliver(3, 1), ["REQUEST(1 of 2) to 2"]);
        assert_eq!(net.deliver(1, 2), ["enter"]);
        assert_eq!(net.release(2), NOTHING);
        assert!(net.nodes.values().all(Ring::is_idle));
    }
}

#[test]
fn echo_stops_at_a_node_that_defers_it_until_that_has_left() {
    let mut net = Rings::new([1, 2, 3], "ring=echo");
    net.acquire(1);
    net.acquire(3);
    assert_eq!(net.deliver(3, 1), NOTHING, "(1, 1) comes before (1, 3)");
    assert!(!net.nodes[&1].is_idle());
    net.deliver(1, 2);
    assert_eq!(net.deliver(2, 3), ["REQUEST(1 of 1) to 1"], "(1, 3) does not defer (1, 1)");
    assert_eq!(net.deliver(3, 1), ["enter"]);
    assert_eq!(net.release(1), ["REQUEST(1 of 3) to 2"]);
    net.deliver(1, 2);
    assert_eq!(net.deliver(2, 3), ["enter"]);
}

#[test]
fn echo_stopped_at_a_node_that_gives_up_goes_on() {
    let mut net = Rings::new([1, 2], "ring=echo");
    net.acquire(1);
    net.acquire(2);
    net.deliver(2, 1);
    assert_eq!(net.cancel(1), ["REQUEST(1 of 2) to 2"]);
    assert_eq!(net.deliver(1, 2), ["REQUEST(1 of 1) to 1"], "first in, first out");
    assert_eq!(net.deliver(1, 2), ["enter"]);
    assert_eq!(net.deliver(2, 1), NOTHING, "the request that was given up is back, and has no caller");
}

#[test]
fn a_request_given_up_does_not_grant_the_next_one_when_it_is_back() {
    for words in ["ring=echo", "ring=annotate"] {
        let mut net = Rings::new([1, 2], words);
        net.acquire(1);
        net.cancel(1);
        assert_eq!(net.acquire(1), ["REQUEST(2 of 1) to 2"]);
        net.deliver(1, 2);
        assert_eq!(net.deliver(2, 1), NOTHING, "{words}");
        net.deliver(1, 2);
        assert_eq!(net.deliver(2, 1), ["enter"], "{words}");
    }
}

#[test]
fn annotate_notes_who_defers_and_does_not_pause() {
    let mut net = Rings::new([1, 2, 3, 4], "ring=annotate");
    net.acquire(1);
    net.acquire(2);
    net.acquire(4);
    assert_eq!(net.deliver(4, 1), ["REQUEST(1 of 4, deferred by 1) to 2"]);
    net.deliver(1, 2);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), ["REQUEST(1 of 4, deferred by 1, deferred by 2) to 3"]);
    net.deliver(2, 3);
    net.deliver(2, 3);
    assert_eq!(net.deliver(2, 3), ["REQUEST(1 of 4, deferred by 1, deferred by 2) to 4"]);
    net.deliver(3, 4);
    net.deliver(3, 4);
    assert_eq!(net.deliver(3, 4), NOTHING, "two REPLYs are missing");
    assert_eq!(net.deliver(4, 1), ["REQUEST(1 of 2, deferred by 1) to 2"]);
    assert_eq!(net.deliver(4, 1), ["enter"]);
    assert_eq!(net.release(1), ["REPLY(1) to 2", "REPLY(1) to 4"]);
    assert_eq!(net.deliver(1, 4), NOTHING);
    assert_eq!(net.deliver_first("REPLY", 1, 2), NOTHING, "its REQUEST is not back yet");
    assert_eq!(net.deliver(1, 2), ["enter"], "the REPLY that came early counts");
    assert_eq!(net.release(2), ["REPLY(1) to 4"]);
    assert_eq!(net.deliver(2, 4), ["enter"]);
}

#[test]
fn annotate_one_node_replying_twice_is_not_two_nodes() {
    let mut net = Rings::new([1, 2, 3], "ring=annotate");
    for node in [1, 2, 3] {
        net.acquire(node);
    }
    net.deliver(3, 1);
    net.deliver(1, 2);
    net.deliver(1, 2);
    net.deliver(2, 3);
    net.deliver(2, 3);
    net.deliver(2, 3); // Back, deferred by 1 and 2.
    net.cancel(1);
    let reply = net.take(1, 3);
    assert_eq!(net.receive(1, 3, reply.clone()), NOTHING);
    assert_eq!(net.receive(1, 3, reply), NOTHING);
    net.cancel(2);
    assert_eq!(net.deliver_first("REPLY", 2, 3), ["enter"]);
}

#[test]
fn t11_a_reply_before_the_request_is_back_is_kept() {
    for (words, inside) in [("ring=annotate", vec![2]), ("ring=annotate as-printed=T11", vec![])] {
        let mut net = Rings::new([1, 2, 3], words);
        net.acquire(1);
        net.acquire(2);
        net.deliver(2, 3);
        assert_eq!(net.deliver(3, 1), ["REQUEST(1 of 2, deferred by 1) to 2"]);
        assert_eq!(net.cancel(1), ["REPLY(1) to 2"]);
        assert_eq!(net.deliver_first("REPLY", 1, 2), NOTHING);
        while net.in_flight.iter().any(|(from, to, _)| (*from, *to) == (1, 2)) {
            net.deliver(1, 2);
        }
        assert_eq!(net.inside(), inside, "{words}");
    }
}

#[test]
fn t1_numbers_do_not_repeat() {
    let mut net = Rings::new([1, 2], "ring=echo");
    assert_eq!(net.acquire(1), ["REQUEST(1 of 1) to 2"]);
    net.cancel(1);
    assert_eq!(net.acquire(1), ["REQUEST(2 of 1) to 2"]);
}

#[test]
fn readers_pass_readers() {
    let mut net = Rings::new([1, 2], "ring=echo");
    net.acquire_shared(1);
    assert_eq!(net.acquire_shared(2), ["REQUEST(1 of 2, shared) to 1"]);
    assert_eq!(net.deliver(2, 1), ["REQUEST(1 of 2, shared) to 2"]);
}
