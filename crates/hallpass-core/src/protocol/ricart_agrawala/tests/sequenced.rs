//! Section 6.2.1: the medium's order.

use super::*;

type Medium = Net<Sequenced>;

/// Everybody hears the oldest broadcast; gives back who enters by it.
fn hear(net: &mut Medium) -> Vec<u32> {
    let (from, _, message) = net.flying[0].clone();
    let mut entered = Vec::new();
    for to in net.nodes.keys().copied().collect::<Vec<_>>() {
        assert_eq!(net.lose(from, to), message);
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
    assert_eq!(hear(&mut net), [3]);
    assert_eq!(hear(&mut net), [0; 0]);
    assert_eq!(hear(&mut net), [0; 0]);
    assert_eq!(net.release(3), ["REPLY(#1) to all"]);
    assert_eq!(hear(&mut net), [1]);
    assert_eq!(net.release(1), ["REPLY(#1) to all"]);
    assert_eq!(hear(&mut net), [2]);
    net.release(2);
    assert_eq!(hear(&mut net), [0; 0]);
    assert!(net.nodes.values().all(Sequenced::is_idle));
}

#[test]
fn ones_own_broadcast_must_be_heard_first() {
    let mut net = Medium::new([1, 2], "");
    net.acquire(1);
    assert_eq!(net.inside(), [0; 0]);
    assert_eq!(net.deliver(1, 2), NOTHING, "that node 2 has heard it is not enough");
    assert_eq!(net.deliver(1, 1), ["enter"]);
}

#[test]
fn a_request_on_the_medium_before_ones_own_comes_first_although_asked_later() {
    let mut net = Medium::new([1, 2], "");
    net.acquire(1);
    net.acquire(2);
    net.flying.rotate_left(2); // The medium takes node 2's first.
    assert_eq!(hear(&mut net), [2]);
    assert_eq!(hear(&mut net), [0; 0]);
    net.release(2);
    assert_eq!(hear(&mut net), [1]);
}

#[test]
fn giving_up_lets_the_next_one_in_and_an_old_request_does_not_stand_for_a_new_one() {
    let mut net = Medium::new([1, 2], "");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.cancel(1), ["REPLY(#1) to all"]);
    assert_eq!(net.acquire(1), ["REQUEST(#2) to all"]);
    assert_eq!(hear(&mut net), [0; 0], "node 1's first request is over, and its second not on the medium yet");
    assert_eq!(hear(&mut net), [0; 0]);
    assert_eq!(hear(&mut net), [2]);
    assert_eq!(hear(&mut net), [0; 0]);
    net.release(2);
    assert_eq!(hear(&mut net), [1]);
}

#[test]
fn a_reply_ends_the_request_that_it_names_and_no_other() {
    let mut net = Medium::new([1, 2], "");
    net.acquire(1);
    net.cancel(1);
    net.acquire(1);
    net.flying[2..].rotate_left(2); // The medium takes node 1's second REQUEST before the REPLY that ends its first.
    assert_eq!(hear(&mut net), [0; 0]);
    assert_eq!(hear(&mut net), [0; 0]);
    assert_eq!(hear(&mut net), [1], "the second one is still in the queue");
}

#[test]
fn readers_enter_together_and_a_writer_between_them_parts_them() {
    let mut net = Medium::new([1, 2, 3, 4], "");
    net.acquire_as(1, Mode::Shared);
    net.acquire_as(2, Mode::Shared);
    net.acquire_as(3, Mode::Exclusive);
    net.acquire_as(4, Mode::Shared);
    let entered: Vec<Vec<u32>> = (0..4).map(|_| hear(&mut net)).collect();
    assert_eq!(entered, [vec![1], vec![2], vec![], vec![]]);
    net.release(1);
    assert_eq!(hear(&mut net), [0; 0]);
    net.release(2);
    assert_eq!(hear(&mut net), [3]);
    net.release(3);
    assert_eq!(hear(&mut net), [4]);
}

#[test]
fn who_has_the_seat_stands_first_in_its_own_queue() {
    let fence = Fence::new(7);
    let initial = |_| InitialHolders { holders: &[NodeId(1)], mode: Mode::Exclusive, fence };
    let mut net = Medium::with_initial(View::new([NodeId(1), NodeId(2)]), "", initial);
    assert_eq!(net.inside(), [1]);
    assert_eq!(net.release(1), ["REPLY(#0) to all"]);
    hear(&mut net);
    assert!(net.nodes.values().all(Sequenced::is_idle));
    net.pass_through(2, Mode::Exclusive);
    assert_eq!(net.fences, [8]);
}
