use proptest::prelude::*;

use super::*;
use crate::protocol::testing::{
    NOTHING, Net, assert_canonical, assert_enters_alone, assert_kinds, assert_refuses_past_the_last_fence,
    assert_round_trip, count, fence, initial,
};
use crate::{InitialHolders, View};

type Group = Net<SuzukiKasami>;

#[test]
fn the_holder_enters_without_a_message() {
    let mut net = Group::new(1..=3, "");
    assert_eq!(net.acquire(1), ["enter"]);
    assert_eq!(net.release(1), NOTHING);
    assert_eq!(net.acquire(1), ["enter"]);
}

#[test]
fn an_idle_holder_sends_the_token_at_once() {
    let mut net = Group::new(1..=3, "");
    assert_eq!(net.acquire(2), ["REQUEST(1) to all"]);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["TOKEN(hop 1, served 0 0 0, queue empty) to 2"]);
    assert_eq!(net.deliver_first("TOKEN", 1, 2), ["enter"]);
    assert_eq!(net.deliver_first("REQUEST", 2, 3), NOTHING);
    assert_eq!(net.release(2), NOTHING);
}

#[test]
fn the_queue_travels_with_the_token_and_keeps_its_order() {
    let mut net = Group::new(1..=4, "");
    net.acquire(1);
    net.acquire(3);
    net.deliver_all();
    assert_eq!(net.release(1), ["TOKEN(hop 1, served 0 0 0 0, queue empty) to 3"]);
    net.deliver_all();
    net.acquire(4);
    net.deliver_all();
    net.acquire(2);
    net.deliver_all();
    assert_eq!(net.release(3), ["TOKEN(hop 2, served 0 0 1 0, queue 4) to 2"]);
    net.acquire(1);
    net.deliver_all();
    assert_eq!(net.release(2), ["TOKEN(hop 3, served 0 1 1 0, queue 1) to 4"], "4 was in the queue first");
    net.deliver_all();
    assert_eq!(net.release(4), ["TOKEN(hop 4, served 0 1 1 1, queue empty) to 1"]);
}

#[test]
fn a_request_that_was_served_does_not_call_the_token_again() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    let late = net.take_first("REQUEST", 2, 3);
    net.deliver_all();
    net.release(2);
    net.pass_through(3);
    assert_eq!(net.receive(2, 3, late), NOTHING);
}

#[test]
fn a_token_that_comes_for_a_caller_that_gave_up_goes_on_or_stays() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    net.acquire(3);
    net.deliver_first("REQUEST", 2, 1);
    net.deliver_first("REQUEST", 3, 2);
    net.cancel(2);
    assert_eq!(net.deliver_first("TOKEN", 1, 2), ["TOKEN(hop 2, served 0 1 0, queue empty) to 3"]);
    net.cancel(3);
    assert_eq!(net.deliver_first("TOKEN", 2, 3), NOTHING);
    net.deliver_all();
    assert_eq!(net.acquire(3), ["enter"]);
}

#[test]
fn a_node_that_gives_up_twice_is_two_numbers_ahead_and_still_served() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    for number in 1..=3 {
        assert_eq!(net.acquire(2), [format!("REQUEST({number}) to all")]);
        net.deliver_all();
        if number < 3 {
            net.cancel(2);
        }
    }
    assert_eq!(net.release(1), ["TOKEN(hop 1, served 0 0, queue empty) to 2"]);
    net.deliver_all();
    net.release(2);
    net.pass_through(1);
    assert!(net.nodes[&1].token.is_some(), "no REQUEST is left that calls it back");
}

#[test]
fn a_copy_of_the_token_is_dropped() {
    let mut net = Group::new(1..=2, "");
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    let copy = net.take_first("TOKEN", 1, 2);
    assert_eq!(net.receive(1, 2, copy.clone()), ["enter"]);
    net.release(2);
    net.acquire(1);
    net.deliver_all();
    net.acquire(2);
    assert_eq!(net.receive(1, 2, copy), NOTHING);
}

#[test]
fn a_node_that_restarts_is_served() {
    let mut net = Group::new(1..=2, "");
    net.pass_through(2);
    net.pass_through(1);
    net.start(2, 1, InitialHolders::NOBODY);
    net.acquire(2);
    net.deliver_all();
    assert!(net.is_inside(2));
}

#[test]
fn the_initial_holder_has_the_token() {
    let mut net = Group::with_initial(View::new([NodeId(2), NodeId(3)]).with_epoch(1), "", initial(&[NodeId(3)], 41));
    net.acquire(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 3), NOTHING, "it is inside");
    assert_eq!(net.release(3), ["TOKEN(hop 1, served 0 0, queue empty) to 2"]);
    net.deliver_all();
    assert_eq!(net.fences, [Fence::compose(1, 42).unwrap().get()]);
}

#[test]
fn alone_and_past_the_last_fence() {
    assert_enters_alone::<SuzukiKasami>("");
    assert_refuses_past_the_last_fence::<SuzukiKasami>("");
}

#[test]
fn invalid_messages_have_no_effect() {
    let mut net = Group::new(1..=2, "");
    net.acquire(2);
    net.in_flight.clear();
    let token = |epoch, hop, fence, served: &[u64], queue: &[u32]| SuzukiKasamiMessage::Token {
        epoch,
        hop,
        served: served.into(),
        queue: queue.iter().map(|id| NodeId(*id)).collect(),
        fence,
    };
    for (from, message) in [
        (1, token(1, 1, 0, &[0, 0], &[])),
        (1, token(0, 0, 0, &[0, 0], &[])),
        (1, token(0, u64::MAX, 0, &[0, 0], &[])),
        (1, token(0, 1, Fence::COUNT_MAX + 1, &[0, 0], &[])),
        (1, token(0, 1, 0, &[0], &[])),
        (1, token(0, 1, 0, &[0, 0], &[9])),
        (1, token(0, 1, 0, &[0, 0], &[1, 1, 1])),
        (9, token(0, 1, 0, &[0, 0], &[])),
        (1, SuzukiKasamiMessage::Request { number: u64::MAX }),
    ] {
        assert_eq!(net.receive(from, 2, message), NOTHING);
    }
    assert_eq!(net.receive(1, 2, token(0, 1, 0, &[0, 0], &[])), ["enter"]);
}

#[test]
fn a_known_request_and_a_token_that_has_been_here_are_moot() {
    let mut net = Group::new(1..=2, "");
    net.acquire(2);
    let request = net.in_flight[0].2.clone();
    assert!(!net.nodes[&1].is_moot(NodeId(2), &request));
    net.deliver(2, 1);
    assert!(net.nodes[&1].is_moot(NodeId(2), &request));
    let token = net.in_flight[0].2.clone();
    assert!(!net.nodes[&2].is_moot(NodeId(1), &token));
    net.deliver(1, 2);
    assert!(net.nodes[&2].is_moot(NodeId(1), &token));
}

#[test]
fn only_an_untouched_instance_may_be_dropped() {
    let mut net = Group::new(1..=2, "");
    assert!(net.nodes.values().all(SuzukiKasami::is_idle));
    net.pass_through(2);
    assert!(!net.nodes.values().any(SuzukiKasami::is_idle));
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(
        ask: bool, served in prop::collection::vec(count(), 0..9), queue in prop::collection::vec(any::<u32>(), 0..9),
        epoch: u64, hop in count(), fence in fence()
    ) {
        let queue = queue.into_iter().map(NodeId).collect();
        let message = match ask {
            true => SuzukiKasamiMessage::Request { number: hop },
            false => SuzukiKasamiMessage::Token { epoch, hop, served: served.into(), queue, fence },
        };
        assert_round_trip(&message);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        assert_canonical::<SuzukiKasamiMessage>(&bytes);
    }
}

#[test]
fn other_kinds_of_messages_are_refused() {
    assert_kinds::<SuzukiKasamiMessage>(1..=2);
}
