//! Shared permissions: between two nodes like a cache line.

use super::*;

#[test]
fn after_their_first_read_nodes_read_without_a_message() {
    let mut net = Group::new(1..=3, "");
    for node in 1..=3 {
        net.pass_through_as(node, Shared);
    }
    for _ in 0..3 {
        for node in 1..=3 {
            assert_eq!(net.acquire_shared(node), ["enter"]);
        }
        for node in 1..=3 {
            assert_eq!(net.release(node), NOTHING);
        }
    }
}

#[test]
fn a_writer_recalls_what_readers_have_and_waits_for_those_inside() {
    let mut net = Group::new(1..=3, "");
    for node in 1..=3 {
        net.pass_through_as(node, Shared);
    }
    net.acquire_shared(1);
    assert_eq!(net.acquire(3), ["REQUEST(4) to 1", "REQUEST(4) to 2"]);
    assert_eq!(net.deliver_first("REQUEST", 3, 1), NOTHING, "a reader inside defers a writer");
    assert_eq!(net.deliver_first("REQUEST", 3, 2), ["REPLY(4) to 3"]);
    net.deliver_first("REPLY", 2, 3);
    assert_eq!((permission(&net, 2, 3), permission(&net, 2, 1)), ("", "S"), "only what the writer asked for is gone");
    assert_eq!(net.release(1), ["REPLY(4) to 3"]);
    assert_eq!(net.deliver_first("REPLY", 1, 3), ["enter"]);
    assert_eq!(net.acquire_shared(2), ["REQUEST(5, shared) to 3"]);
}

#[test]
fn an_exclusive_permission_lets_readers_in_and_is_shared_when_a_reader_asks() {
    let mut net = Group::new(1..=2, "");
    net.pass_through(1);
    assert_eq!(net.acquire_shared(1), ["enter"], "a writer's permission is enough to read");
    net.acquire_shared(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["REPLY(2, shared) to 2"], "readers never defer readers");
    assert_eq!(permission(&net, 1, 2), "S", "both have it shared now");
    assert_eq!(net.deliver_first("REPLY", 1, 2), ["enter"]);
    assert_eq!(net.inside(), [1, 2]);
}

#[test]
fn a_writer_inside_defers_a_reader_and_then_shares() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    net.deliver_all();
    net.acquire_shared(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), NOTHING);
    assert_eq!(net.release(1), ["REPLY(2, shared) to 2"]);
    assert_eq!(permission(&net, 1, 2), "S");
}

#[test]
fn two_that_upgrade_at_once_enter_one_after_the_other() {
    let mut net = Group::new(1..=2, "");
    net.pass_through_as(1, Shared);
    net.pass_through_as(2, Shared);
    assert_eq!((permission(&net, 1, 2), permission(&net, 2, 1)), ("S", "S"));
    assert_eq!(net.acquire(2), ["REQUEST(3) to 1"], "shared is not enough to write");
    assert_eq!(net.acquire(1), ["REQUEST(3) to 2"]);
    assert_eq!(permission(&net, 1, 2), "S", "kept while it waits");
    assert_eq!(net.deliver_first("REQUEST", 2, 1), NOTHING);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), ["REPLY(3) to 1"]);
    assert_eq!(permission(&net, 2, 1), "", "given, although it waits to upgrade: its own REQUEST is in flight");
    assert_eq!(net.deliver_first("REPLY", 2, 1), ["enter"]);
    assert_eq!(net.release(1), ["REPLY(3) to 2"]);
    assert_eq!(net.deliver_first("REPLY", 1, 2), ["enter"]);
}

#[test]
fn a_waiting_writer_that_comes_second_shares_with_a_reader_and_asks_again() {
    let mut net = Group::new(1..=3, "");
    net.pass_through(3);
    net.acquire_shared(2);
    net.deliver_first("REQUEST", 2, 3);
    assert_eq!((permission(&net, 3, 1), permission(&net, 3, 2)), ("X", "S"));
    net.acquire(3);
    net.acquire_shared(1);
    net.nodes.get_mut(&1).unwrap().request.as_mut().unwrap().number = 2;
    let message = CrMessage::Request(Asked { number: 2, mode: Shared });
    assert_eq!(net.receive(1, 3, message), ["REPLY(2, shared) to 1", "REQUEST(3) to 1"]);
    assert_eq!(permission(&net, 3, 1), "S");
}

#[test]
fn a_waiting_reader_that_comes_second_gives_all_to_a_writer() {
    let mut net = Group::new(1..=2, "");
    net.acquire_shared(2);
    net.acquire(1);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), NOTHING);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), ["REPLY(1) to 1"]);
    assert_eq!(net.deliver_first("REPLY", 2, 1), ["enter"]);
    assert_eq!(net.release(1), ["REPLY(1, shared) to 2"]);
    assert_eq!((permission(&net, 1, 2), net.deliver_first("REPLY", 1, 2)), ("S", vec!["enter".to_owned()]));
}

#[test]
fn two_that_read_at_once_do_not_wait_for_each_other() {
    let mut net = Group::new(1..=2, "");
    net.acquire_shared(1);
    net.acquire_shared(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["REPLY(1, shared) to 2"]);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), ["REPLY(1, shared) to 1"]);
    net.deliver_all();
    assert_eq!(net.inside(), [1, 2]);
}

#[test]
fn readers_that_come_and_go_do_not_starve_a_writer() {
    let mut net = Group::new(1..=3, "");
    for node in 1..=2 {
        net.pass_through_as(node, Shared);
    }
    net.acquire_shared(1);
    net.acquire(3);
    net.deliver_all();
    // Nodes 1 and 2 would overlap forever.
    net.acquire_shared(2);
    net.deliver_all();
    net.release(1);
    net.deliver_all();
    assert_eq!(net.inside(), [3], "node 2 comes after the writer it knows of");
}
