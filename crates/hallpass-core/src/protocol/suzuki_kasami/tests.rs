use proptest::prelude::*;

use super::*;
use crate::protocol::hands::{Hands, NOTHING};
use crate::{InitialHolders, View};

type Net = Hands<SuzukiKasami>;

#[test]
fn the_holder_enters_without_a_message() {
    let mut net = Net::new(3, "");
    assert_eq!(net.ask(1), ["enter"]);
    assert_eq!(net.exit(1), NOTHING);
    assert_eq!(net.ask(1), ["enter"]);
}

#[test]
fn an_idle_holder_sends_the_token_at_once() {
    let mut net = Net::new(3, "");
    assert_eq!(net.ask(2), ["REQUEST(1) to all"]);
    assert_eq!(net.deliver("REQUEST", 2, 1), ["TOKEN(hop 1, served 0 0 0, queue empty) to 2"]);
    assert_eq!(net.deliver("TOKEN", 1, 2), ["enter"]);
    assert_eq!(net.deliver("REQUEST", 2, 3), NOTHING);
    assert_eq!(net.exit(2), NOTHING);
}

#[test]
fn the_queue_travels_with_the_token_and_keeps_its_order() {
    let mut net = Net::new(4, "");
    net.ask(1);
    net.ask(3);
    net.settle();
    assert_eq!(net.exit(1), ["TOKEN(hop 1, served 0 0 0 0, queue empty) to 3"]);
    net.settle();
    net.ask(4);
    net.settle();
    net.ask(2);
    net.settle();
    assert_eq!(net.exit(3), ["TOKEN(hop 2, served 0 0 1 0, queue 4) to 2"]);
    net.ask(1);
    net.settle();
    assert_eq!(net.exit(2), ["TOKEN(hop 3, served 0 1 1 0, queue 1) to 4"], "4 was in the queue first");
    net.settle();
    assert_eq!(net.exit(4), ["TOKEN(hop 4, served 0 1 1 1, queue empty) to 1"]);
}

#[test]
fn a_request_that_was_served_does_not_call_the_token_again() {
    let mut net = Net::new(3, "");
    net.ask(2);
    let late = net.take("REQUEST", 2, 3);
    net.settle();
    net.exit(2);
    net.pass_through(3);
    assert_eq!(net.receive(2, 3, late), NOTHING);
}

#[test]
fn a_token_that_comes_for_a_caller_that_gave_up_goes_on_or_stays() {
    let mut net = Net::new(3, "");
    net.ask(2);
    net.ask(3);
    net.deliver("REQUEST", 2, 1);
    net.deliver("REQUEST", 3, 2);
    net.cancel(2);
    assert_eq!(net.deliver("TOKEN", 1, 2), ["TOKEN(hop 2, served 0 1 0, queue empty) to 3"]);
    net.cancel(3);
    assert_eq!(net.deliver("TOKEN", 2, 3), NOTHING);
    net.settle();
    assert_eq!(net.ask(3), ["enter"]);
}

#[test]
fn who_gives_up_twice_is_two_numbers_ahead_and_still_served() {
    let mut net = Net::new(2, "");
    net.ask(1);
    for number in 1..=3 {
        assert_eq!(net.ask(2), [format!("REQUEST({number}) to all")]);
        net.settle();
        if number < 3 {
            net.cancel(2);
        }
    }
    assert_eq!(net.exit(1), ["TOKEN(hop 1, served 0 0, queue empty) to 2"]);
    net.settle();
    net.exit(2);
    net.pass_through(1);
    assert!(net.nodes[&1].token.is_some(), "no REQUEST is left that calls it back");
}

#[test]
fn a_copy_of_the_token_is_dropped() {
    let mut net = Net::new(2, "");
    net.ask(2);
    net.deliver("REQUEST", 2, 1);
    let copy = net.take("TOKEN", 1, 2);
    assert_eq!(net.receive(1, 2, copy.clone()), ["enter"]);
    net.exit(2);
    net.ask(1);
    net.settle();
    net.ask(2);
    assert_eq!(net.receive(1, 2, copy), NOTHING);
}

#[test]
fn a_node_that_starts_again_is_heard() {
    let mut net = Net::new(2, "");
    net.pass_through(2);
    net.pass_through(1);
    net.start(2, 1, InitialHolders::NOBODY);
    net.ask(2);
    net.settle();
    assert!(net.inside.contains(&2));
}

#[test]
fn alone_it_enters_at_once_and_says_nothing() {
    let mut net = Net::new(1, "");
    for _ in 0..2 {
        assert_eq!(net.ask(1), ["enter"]);
        assert_eq!(net.exit(1), NOTHING);
    }
}

#[test]
fn the_seat_decides_who_has_the_token() {
    let initial = InitialHolders { holders: &[NodeId(3)], mode: Mode::Exclusive, fence: Fence::new(41) };
    let mut net = Net::seated(View::new([NodeId(2), NodeId(3)]).with_epoch(1), "", initial);
    net.ask(2);
    assert_eq!(net.deliver("REQUEST", 2, 3), NOTHING, "it is inside");
    assert_eq!(net.exit(3), ["TOKEN(hop 1, served 0 0, queue empty) to 2"]);
    net.settle();
    assert_eq!(net.fences, [Fence::compose(1, 42).unwrap().get()]);
}

#[test]
fn a_fence_at_its_end_refuses() {
    let initial =
        InitialHolders { holders: &[], mode: Mode::Exclusive, fence: Fence::compose(0, Fence::COUNT_MAX).unwrap() };
    let mut net = Net::seated(View::new([NodeId(1)]), "", initial);
    assert_eq!(net.ask(1), NOTHING);
}

#[test]
fn nonsense_from_peers_changes_nothing() {
    let mut net = Net::new(2, "");
    net.ask(2);
    net.flying.clear();
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
fn only_an_instance_that_nothing_happened_to_may_be_dropped() {
    let mut net = Net::new(2, "");
    assert!(net.nodes.values().all(SuzukiKasami::is_idle));
    net.pass_through(2);
    assert!(!net.nodes.values().any(SuzukiKasami::is_idle));
}

proptest! {
    #[test]
    fn messages_come_off_the_wire_as_they_went(
        ask: bool, served in prop::collection::vec(any::<u64>(), 0..9), queue in prop::collection::vec(any::<u32>(), 0..9),
        epoch: u64, hop: u64
    ) {
        let queue = queue.into_iter().map(NodeId).collect();
        let message = match ask {
            true => SuzukiKasamiMessage::Request { number: hop },
            false => SuzukiKasamiMessage::Token { epoch, hop, served: served.into(), queue, fence: epoch },
        };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(SuzukiKasamiMessage::decode(&mut reader), Ok(message));
        prop_assert!(reader.finish().is_ok());
        let cut = SuzukiKasamiMessage::decode(&mut Reader::new(&bytes[..bytes.len() - 1]));
        prop_assert_eq!(cut, Err(DecodeError::Truncated));
    }

    #[test]
    fn bytes_from_anywhere_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = SuzukiKasamiMessage::decode(&mut Reader::new(&bytes));
    }
}
