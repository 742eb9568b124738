//! Section 6.2.1: the medium's order.

use super::*;

type Medium = Net<Sequenced>;

/// Delivers the oldest broadcast to everybody; returns who enters.
fn deliver_broadcast(net: &mut Medium) -> Vec<u32> {
    let (from, _, message) = net.in_flight[0].clone();
    let mut entered = Vec::new();
    for to in net.nodes.keys().copied().collect::<Vec<_>>() {
        assert_eq!(net.take(from, to), message);
        if net.receive(from, to, message.clone()) == ["enter"] {
            entered.push(to);
        }
    }
    entered
}

#[test]
fn entries_come_in_the_mediums_order_whatever_the_nodes() {
    let mut net = Medium::new([1, 2, 3], "");
    assert_eq!(net.acquire(3), ["REQUEST(#1) to all"]);
    net.acquire(1);
    net.acquire(2);
    assert_eq!(deliver_broadcast(&mut net), [3]);
    assert_eq!(deliver_broadcast(&mut net), [0; 0]);
    assert_eq!(deliver_broadcast(&mut net), [0; 0]);
    assert_eq!(net.release(3), ["REPLY(#1) to all"]);
    assert_eq!(deliver_broadcast(&mut net), [1]);
    assert_eq!(net.release(1), ["REPLY(#1) to all"]);
    assert_eq!(deliver_broadcast(&mut net), [2]);
    net.release(2);
    assert_eq!(deliver_broadcast(&mut net), [0; 0]);
    assert!(net.nodes.values().all(Sequenced::is_idle));
}

#[test]
fn a_node_waits_for_its_own_broadcast() {
    let mut net = Medium::new([1, 2], "");
    net.acquire(1);
    assert_eq!(net.inside(), [0; 0]);
    assert_eq!(net.deliver(1, 2), NOTHING, "that node 2 has received it is not enough");
    assert_eq!(net.deliver(1, 1), ["enter"]);
}

#[test]
fn the_order_of_the_medium_counts_and_not_the_order_of_asking() {
    let mut net = Medium::new([1, 2], "");
    net.acquire(1);
    net.acquire(2);
    net.in_flight.rotate_left(2); // The medium takes node 2's first.
    assert_eq!(deliver_broadcast(&mut net), [2]);
    assert_eq!(deliver_broadcast(&mut net), [0; 0]);
    net.release(2);
    assert_eq!(deliver_broadcast(&mut net), [1]);
}

#[test]
fn giving_up_lets_the_next_one_in_and_an_old_request_does_not_stand_for_a_new_one() {
    let mut net = Medium::new([1, 2], "");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.cancel(1), ["REPLY(#1) to all"]);
    assert_eq!(net.acquire(1), ["REQUEST(#2) to all"]);
    assert_eq!(
        deliver_broadcast(&mut net),
        [0; 0],
        "node 1's first request is over, and its second not on the medium yet"
    );
    assert_eq!(deliver_broadcast(&mut net), [0; 0]);
    assert_eq!(deliver_broadcast(&mut net), [2]);
    assert_eq!(deliver_broadcast(&mut net), [0; 0]);
    net.release(2);
    assert_eq!(deliver_broadcast(&mut net), [1]);
}

#[test]
fn a_reply_ends_the_request_that_it_names_and_no_other() {
    let mut net = Medium::new([1, 2], "");
    net.acquire(1);
    net.cancel(1);
    net.acquire(1);
    net.in_flight[2..].rotate_left(2); // The medium takes node 1's second REQUEST before the REPLY that ends its first.
    assert_eq!(deliver_broadcast(&mut net), [0; 0]);
    assert_eq!(deliver_broadcast(&mut net), [0; 0]);
    assert_eq!(deliver_broadcast(&mut net), [1], "the second one is still in the queue");
}

#[test]
fn readers_enter_together_and_a_writer_between_them_parts_them() {
    let mut net = Medium::new([1, 2, 3, 4], "");
    net.acquire_shared(1);
    net.acquire_shared(2);
    net.acquire_as(3, Mode::Exclusive);
    net.acquire_shared(4);
    let entered: Vec<Vec<u32>> = (0..4).map(|_| deliver_broadcast(&mut net)).collect();
    assert_eq!(entered, [vec![1], vec![2], vec![], vec![]]);
    net.release(1);
    assert_eq!(deliver_broadcast(&mut net), [0; 0]);
    net.release(2);
    assert_eq!(deliver_broadcast(&mut net), [3]);
    net.release(3);
    assert_eq!(deliver_broadcast(&mut net), [4]);
}

#[test]
fn an_initial_holder_is_first_in_every_queue() {
    let mut net = Medium::with_initial(View::new([1, 2].map(NodeId)), "", initial(&[NodeId(1)], 7));
    assert_eq!(net.inside(), [1]);
    assert_eq!(net.release(1), ["REPLY(#0) to all"]);
    deliver_broadcast(&mut net);
    assert!(net.nodes.values().all(Sequenced::is_idle));
    net.pass_through(2);
    assert_eq!(net.fences, [8]);
}
