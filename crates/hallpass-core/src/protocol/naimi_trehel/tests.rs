use proptest::prelude::*;

use super::*;
use crate::View;
use crate::protocol::testing::{
    NOTHING, Net, assert_canonical, assert_enters_alone, assert_kinds, assert_refuses_past_the_last_fence,
    assert_round_trip, count, fence, initial,
};

type Group = Net<NaimiTrehel>;

fn last(net: &Group) -> Vec<u32> {
    net.nodes.iter().map(|(me, node)| node.last.map_or(*me, |last| last.0)).collect()
}

#[test]
fn the_root_enters_without_a_message() {
    let mut net = Group::new(1..=3, "");
    assert_eq!(net.acquire(1), ["enter"]);
    assert_eq!(net.release(1), NOTHING);
    assert_eq!(net.acquire(1), ["enter"]);
}

#[test]
fn a_request_follows_the_guesses_and_reverses_them() {
    let mut net = Group::new(1..=4, "");
    net.pass_through(2);
    net.pass_through(3);
    assert_eq!(last(&net), [3, 3, 3, 1]);
    assert_eq!(net.acquire(4), ["REQUEST(of 4) to 1"]);
    assert_eq!(net.deliver_first("REQUEST", 4, 1), ["REQUEST(of 4) to 3"]);
    assert_eq!(net.deliver_first("REQUEST", 1, 3), ["TOKEN(hop 3) to 4"]);
    assert_eq!(last(&net), [4, 3, 4, 4], "whom the REQUEST passed, not 2");
    assert_eq!(net.deliver_first("TOKEN", 3, 4), ["enter"]);
}

#[test]
fn a_node_that_waits_or_is_inside_remembers_its_next() {
    let mut net = Group::new(1..=3, "");
    net.acquire(1);
    net.acquire(2);
    net.acquire(3);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), NOTHING, "1 is inside");
    assert_eq!(net.deliver_first("REQUEST", 3, 1), ["REQUEST(of 3) to 2"]);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), NOTHING, "2 waits");
    assert_eq!(net.release(1), ["TOKEN(hop 1) to 2"]);
    net.deliver_all();
    assert_eq!(net.release(2), ["TOKEN(hop 2) to 3"]);
    net.deliver_all();
    assert_eq!(net.release(3), NOTHING);
    assert_eq!(net.fences, [1, 2, 3]);
}

#[test]
fn a_request_may_overtake_the_token() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    net.acquire(3);
    assert_eq!(net.deliver_first("REQUEST", 3, 1), ["REQUEST(of 3) to 2"]);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), NOTHING, "the TOKEN is still in flight");
    assert_eq!(net.deliver_first("TOKEN", 1, 2), ["enter"]);
    assert_eq!(net.release(2), ["TOKEN(hop 2) to 3"]);
}

#[test]
fn a_token_that_comes_for_a_caller_that_gave_up_goes_on_or_stays() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    assert_eq!(net.cancel(2), NOTHING);
    net.deliver_all();
    assert!(net.inside.is_empty() && net.nodes[&2].token.is_some());
    net.acquire(3);
    net.deliver_all();
    net.acquire(1);
    net.deliver_all();
    net.cancel(1);
    assert_eq!(net.release(3), ["TOKEN(hop 3) to 1"]);
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 3);
    net.deliver_first("REQUEST", 3, 1);
    assert_eq!(net.deliver_first("TOKEN", 3, 1), ["TOKEN(hop 4) to 2"]);
}

#[test]
fn a_node_that_asks_again_after_giving_up_keeps_its_place_and_sends_nothing() {
    let mut net = Group::new(1..=3, "");
    net.acquire(1);
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    net.acquire(3);
    net.deliver_all();
    net.cancel(2);
    assert_eq!(net.acquire(2), NOTHING, "its guess is 3 by now, and asking there would close a circle");
    assert_eq!(net.release(1), ["TOKEN(hop 1) to 2"]);
    assert_eq!(net.deliver_first("TOKEN", 1, 2), ["enter"]);
    assert_eq!(net.release(2), ["TOKEN(hop 2) to 3"]);
}

#[test]
fn the_initial_holder_is_the_root() {
    let mut net = Group::with_initial(View::new([NodeId(2), NodeId(3)]).with_epoch(1), "", initial(&[NodeId(3)], 41));
    assert_eq!(net.acquire(2), ["REQUEST(of 2) to 3"]);
    assert_eq!(net.deliver_first("REQUEST", 2, 3), NOTHING, "it is inside");
    assert_eq!(net.release(3), ["TOKEN(hop 1) to 2"]);
    net.deliver_all();
    assert_eq!(net.fences, [Fence::compose(1, 42).unwrap().get()]);
}

#[test]
fn alone_and_past_the_last_fence() {
    assert_enters_alone::<NaimiTrehel>("");
    assert_refuses_past_the_last_fence::<NaimiTrehel>("");
}

#[test]
fn invalid_messages_make_no_second_token() {
    let mut net = Group::new(1..=2, "");
    net.acquire(2);
    let token = |epoch, hop, fence| NaimiTrehelMessage::Token { epoch, hop, fence };
    for (from, message) in [
        (1, token(1, 1, 0)),
        (1, token(0, 0, 0)),
        (1, token(0, u64::MAX, 0)),
        (1, token(0, 1, Fence::COUNT_MAX + 1)),
        (9, token(0, 1, 0)),
        (1, NaimiTrehelMessage::Request { origin: NodeId(2) }),
        (1, NaimiTrehelMessage::Request { origin: NodeId(9) }),
    ] {
        assert_eq!(net.receive(from, 2, message), NOTHING);
    }
    net.deliver_first("REQUEST", 2, 1);
    let copy = net.take_first("TOKEN", 1, 2);
    assert_eq!(net.receive(1, 2, copy.clone()), ["enter"]);
    net.release(2);
    net.pass_through(1);
    assert_eq!(net.receive(1, 2, copy), NOTHING);
    assert!(net.nodes[&2].token.is_none());
}

#[test]
fn only_an_untouched_instance_may_be_dropped() {
    let mut net = Group::new(1..=3, "");
    net.pass_through(2);
    assert!(net.nodes[&3].is_idle() && !net.nodes[&1].is_idle() && !net.nodes[&2].is_idle());
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(ask: bool, origin: u32, epoch: u64, hop in count(), fence in fence()) {
        let message = match ask {
            true => NaimiTrehelMessage::Request { origin: NodeId(origin) },
            false => NaimiTrehelMessage::Token { epoch, hop, fence },
        };
        assert_round_trip(&message);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        assert_canonical::<NaimiTrehelMessage>(&bytes);
    }
}

#[test]
fn other_kinds_of_messages_are_refused() {
    assert_kinds::<NaimiTrehelMessage>(1..=2);
}
