use proptest::prelude::*;

use super::*;
use crate::protocol::testing::{
    NOTHING, Net, assert_canonical, assert_enters_alone, assert_kinds, assert_refuses_past_the_last_fence,
    assert_round_trip, count, fence, initial,
};
use crate::{InitialHolders, View};

type Group = Net<TokenAlgorithm>;

#[test]
fn the_holder_enters_without_a_message_and_keeps_the_token() {
    let mut net = Group::new(1..=3, "");
    for _ in 0..3 {
        assert_eq!(net.acquire(1), ["enter"]);
        assert_eq!(net.release(1), NOTHING);
    }
    assert_eq!(net.fences, [1, 2, 3]);
}

#[test]
fn an_idle_holder_passes_the_token_on_at_once_and_n_messages_are_sent() {
    let mut net = Group::new(1..=3, "");
    assert_eq!(net.acquire(2), ["REQUEST(1) to all"]);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["TOKEN(hop 1, served 0 0 0) to 2"]);
    assert_eq!(net.deliver_first("TOKEN", 1, 2), ["enter"]);
    assert_eq!(net.release(2), NOTHING);
    assert_eq!(net.deliver_first("REQUEST", 2, 3), NOTHING);
    assert_eq!(net.acquire(2), ["enter"], "the token stays where it was used last");
}

#[test]
fn the_scan_starts_after_me_and_goes_around() {
    let mut net = Group::new(1..=4, "");
    net.pass_through(3);
    net.acquire(3);
    for node in [1, 2, 4] {
        net.acquire(node);
        net.deliver_first("REQUEST", node, 3);
    }
    assert_eq!(net.release(3), ["TOKEN(hop 2, served 0 0 1 0) to 4"]);
    net.deliver_all();
    assert_eq!(net.release(4), ["TOKEN(hop 3, served 0 0 1 1) to 1"], "around the end, and 1 comes before 2");
    net.deliver_all();
    assert_eq!(net.release(1), ["TOKEN(hop 4, served 1 0 1 1) to 2"]);
}

#[test]
fn a_request_that_was_served_does_not_call_the_token_again() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    let late = net.take_first("REQUEST", 2, 3);
    net.deliver_all();
    net.release(2);
    net.pass_through(3);
    assert_eq!(net.receive(2, 3, late), NOTHING, "the token remembers that it has been with 2");
}

#[test]
fn t18_the_first_requests_count_since_arrays_start_at_zero() {
    let mut net = Group::new(1..=2, "");
    net.acquire(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["TOKEN(hop 1, served 0 0) to 2"]);
}

#[test]
fn t19_a_request_never_finds_the_token_between_arrival_and_entry() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    net.acquire(3);
    net.deliver_first("REQUEST", 2, 1);
    net.deliver_first("REQUEST", 3, 2);
    assert_eq!(net.deliver_first("TOKEN", 1, 2), ["enter"]);
    assert!(net.nodes[&2].caller == Caller::Inside && net.nodes[&2].token.is_some());
}

#[test]
fn t20_a_copy_of_the_token_is_dropped_and_as_printed_is_a_second_one() {
    for (words, copies) in [("", false), ("as-printed=T20", true)] {
        let mut net = Group::new(1..=2, words);
        net.acquire(2);
        net.deliver_first("REQUEST", 2, 1);
        let copy = net.take_first("TOKEN", 1, 2);
        assert_eq!(net.receive(1, 2, copy.clone()), ["enter"]);
        net.acquire(1);
        net.deliver_first("REQUEST", 1, 2);
        net.release(2);
        assert_eq!(net.deliver_first("TOKEN", 2, 1), ["enter"]);
        net.acquire(2);
        net.receive(1, 2, copy);
        assert_eq!(net.inside.len() == 2, copies, "{words}");
    }
}

#[test]
fn t20_a_token_of_another_view_is_none() {
    let mut net = Group::with_initial(View::new([NodeId(1), NodeId(2)]).with_epoch(4), "", InitialHolders::NOBODY);
    net.acquire(2);
    for epoch in [3, 5] {
        let message = TokenMessage::Token { epoch, hop: 9, fence: 0, data: [0, 0].into() };
        assert_eq!(net.receive(1, 2, message), NOTHING);
    }
    net.deliver_all();
    assert_eq!(net.fences, [Fence::compose(4, 1).unwrap().get()]);
}

#[test]
fn t21_a_node_that_starts_again_is_heard_and_as_printed_it_is_not() {
    for (words, served) in [("", true), ("as-printed=T21", false)] {
        let mut net = Group::new(1..=2, words);
        net.pass_through(2);
        net.pass_through(1);
        net.start(2, 1, InitialHolders::NOBODY);
        net.acquire(2);
        net.deliver_all();
        assert_eq!(net.is_inside(2), served, "{words}");
    }
}

#[test]
fn a_token_that_comes_for_a_caller_that_gave_up_goes_on_or_stays() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    net.acquire(3);
    net.deliver_first("REQUEST", 2, 1);
    net.deliver_first("REQUEST", 3, 2);
    assert_eq!(net.cancel(2), NOTHING);
    assert_eq!(net.deliver_first("TOKEN", 1, 2), ["TOKEN(hop 2, served 0 1 0) to 3"]);
    assert_eq!(net.cancel(3), NOTHING);
    assert_eq!(net.deliver_first("TOKEN", 2, 3), NOTHING, "nobody else asks");
    net.deliver_all();
    assert_eq!(net.acquire(3), ["enter"]);
}

#[test]
fn a_node_that_asks_again_after_giving_up_is_served_once() {
    let mut net = Group::new(1..=2, "");
    net.acquire(2);
    net.cancel(2);
    assert_eq!(net.acquire(2), ["REQUEST(2) to all"]);
    net.deliver_all();
    assert_eq!(net.release(2), NOTHING);
    net.pass_through(1);
    assert!(net.nodes[&1].token.is_some(), "neither REQUEST calls it back");
}

#[test]
fn the_initial_holder_has_the_token() {
    for words in ["", "start=ricart-agrawala"] {
        let mut net = Group::with_initial(View::new([NodeId(2), NodeId(3)]), words, initial(&[NodeId(3)], 41));
        assert_eq!(net.acquire(2), ["REQUEST(1) to all"]);
        assert_eq!(net.deliver_first("REQUEST", 2, 3), NOTHING, "{words}: it is inside");
        assert_eq!(net.release(3), ["TOKEN(hop 1, served 0 0) to 2"]);
        net.deliver_all();
        assert_eq!(net.fences, [42]);
    }
}

#[test]
fn alone_and_past_the_last_fence() {
    assert_enters_alone::<TokenAlgorithm>("");
    assert_refuses_past_the_last_fence::<TokenAlgorithm>("");
    assert_enters_alone::<TokenAlgorithm>("start=ricart-agrawala");
    assert_refuses_past_the_last_fence::<TokenAlgorithm>("start=ricart-agrawala");
}

#[test]
fn the_pass_makes_one_token_and_nobody_waits_for_a_reply_after_it() {
    let mut net = Group::new(1..=3, "start=ricart-agrawala");
    assert_eq!(net.acquire(2), ["REQUEST(1) to all"]);
    assert_eq!(net.acquire(3), ["REQUEST(1) to all"]);
    assert_eq!(net.deliver_first("REQUEST", 3, 2), NOTHING, "(1, 2) comes before (1, 3)");
    assert_eq!(net.deliver_first("REQUEST", 2, 3), ["REPLY(1) to 2"]);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["REPLY(1) to 2"]);
    assert_eq!(net.deliver_first("REQUEST", 3, 1), ["REPLY(1) to 3"]);
    assert_eq!(net.deliver_first("REPLY", 1, 3), NOTHING);
    assert_eq!(net.deliver_first("REPLY", 1, 2), NOTHING);
    assert_eq!(net.deliver_first("REPLY", 3, 2), ["enter"]);
    assert_eq!(net.release(2), ["TOKEN(hop 1, served 0 1 0) to 3"], "in place of the REPLY");
    assert_eq!(net.deliver_first("TOKEN", 2, 3), ["enter"]);
    net.release(3);
    assert_eq!(net.acquire(2), ["REQUEST(2) to all"]);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), NOTHING, "2 knows of the token, so 1 need not reply");
    assert_eq!(net.acquire(1), ["REQUEST(1) to all"], "its own series");
    assert_eq!(net.deliver_first("REQUEST", 1, 2), NOTHING);
}

#[test]
fn a_pass_that_is_given_up_lets_the_others_through() {
    let mut net = Group::new(1..=2, "start=ricart-agrawala");
    net.acquire(1);
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    assert_eq!(net.cancel(1), ["REPLY(1) to 2"]);
    net.deliver_first("REQUEST", 1, 2);
    assert_eq!(net.deliver_first("REPLY", 1, 2), ["enter"]);
    assert_eq!(net.acquire(1), ["REQUEST(2) to all"]);
    assert_eq!(net.deliver_first("REPLY", 2, 1), [] as [&str; 0], "it answers the request that was given up");
}

#[test]
fn invalid_messages_have_no_effect() {
    let mut net = Group::new(1..=2, "");
    net.acquire(2);
    net.in_flight.clear();
    let token = |hop, fence, data: &[u64]| TokenMessage::Token { epoch: 0, hop, fence, data: data.into() };
    for (from, message) in [
        (1, token(1, 0, &[0])),
        (1, token(1, Fence::COUNT_MAX + 1, &[0, 0])),
        (1, token(u64::MAX, 0, &[0, 0])),
        (1, token(0, 0, &[0, 0])),
        (9, token(1, 0, &[0, 0])),
        (1, TokenMessage::Request { number: u64::MAX, made: true }),
        (9, TokenMessage::Request { number: 1, made: true }),
        (1, TokenMessage::Reply { answers: 1 }),
    ] {
        assert_eq!(net.receive(from, 2, message), NOTHING);
    }
    assert_eq!(net.receive(1, 2, token(1, 0, &[0, 0])), ["enter"]);
}

#[test]
fn only_an_untouched_instance_may_be_dropped() {
    let mut net = Group::new(1..=2, "");
    assert!(net.nodes.values().all(TokenAlgorithm::is_idle));
    net.pass_through(2);
    assert!(!net.nodes.values().any(TokenAlgorithm::is_idle), "1 would make a second token, 2 has the first");
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(
        numbers in prop::collection::vec(count(), 0..9), kind in 0..3, number in count(), hop in count(), fence in fence(), made: bool
    ) {
        let message = match kind {
            0 => TokenMessage::Request { number, made },
            1 => TokenMessage::Reply { answers: number },
            _ => TokenMessage::Token { epoch: number, hop, fence, data: numbers.into() },
        };
        assert_round_trip(&message);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        assert_canonical::<TokenMessage>(&bytes);
    }
}

#[test]
fn other_kinds_of_messages_are_refused() {
    assert_kinds::<TokenMessage>(1..=4);
}
