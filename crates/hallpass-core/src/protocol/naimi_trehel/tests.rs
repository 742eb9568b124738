use proptest::prelude::*;

use super::*;
use crate::protocol::hands::{Hands, NOTHING};
use crate::{InitialHolders, View};

type Net = Hands<NaimiTrehel>;

fn last(net: &Net) -> Vec<u32> {
    net.nodes.iter().map(|(me, node)| node.last.map_or(*me, |last| last.0)).collect()
}

#[test]
fn the_root_enters_without_a_message() {
    let mut net = Net::new(3, "");
    assert_eq!(net.ask(1), ["enter"]);
    assert_eq!(net.exit(1), NOTHING);
    assert_eq!(net.ask(1), ["enter"]);
}

#[test]
fn a_request_goes_along_the_guesses_and_turns_them_around() {
    let mut net = Net::new(4, "");
    net.pass_through(2);
    net.pass_through(3);
    assert_eq!(last(&net), [3, 3, 3, 1]);
    assert_eq!(net.ask(4), ["REQUEST(of 4) to 1"]);
    assert_eq!(net.deliver("REQUEST", 4, 1), ["REQUEST(of 4) to 3"]);
    assert_eq!(net.deliver("REQUEST", 1, 3), ["TOKEN(hop 3) to 4"]);
    assert_eq!(last(&net), [4, 3, 4, 4], "whom the REQUEST passed, not 2");
    assert_eq!(net.deliver("TOKEN", 3, 4), ["enter"]);
}

#[test]
fn who_waits_or_is_inside_remembers_its_next() {
    let mut net = Net::new(3, "");
    net.ask(1);
    net.ask(2);
    net.ask(3);
    assert_eq!(net.deliver("REQUEST", 2, 1), NOTHING, "1 is inside");
    assert_eq!(net.deliver("REQUEST", 3, 1), ["REQUEST(of 3) to 2"]);
    assert_eq!(net.deliver("REQUEST", 1, 2), NOTHING, "2 waits");
    assert_eq!(net.exit(1), ["TOKEN(hop 1) to 2"]);
    net.settle();
    assert_eq!(net.exit(2), ["TOKEN(hop 2) to 3"]);
    net.settle();
    assert_eq!(net.exit(3), NOTHING);
    assert_eq!(net.fences, [1, 2, 3]);
}

#[test]
fn a_request_may_overtake_the_token() {
    let mut net = Net::new(3, "");
    net.ask(2);
    net.deliver("REQUEST", 2, 1);
    net.ask(3);
    assert_eq!(net.deliver("REQUEST", 3, 1), ["REQUEST(of 3) to 2"]);
    assert_eq!(net.deliver("REQUEST", 1, 2), NOTHING, "the TOKEN is still under way");
    assert_eq!(net.deliver("TOKEN", 1, 2), ["enter"]);
    assert_eq!(net.exit(2), ["TOKEN(hop 2) to 3"]);
}

#[test]
fn a_token_that_comes_for_a_caller_that_gave_up_goes_on_or_stays() {
    let mut net = Net::new(3, "");
    net.ask(2);
    assert_eq!(net.cancel(2), NOTHING);
    net.settle();
    assert!(net.inside.is_empty() && net.nodes[&2].token.is_some());
    net.ask(3);
    net.settle();
    net.ask(1);
    net.settle();
    net.cancel(1);
    assert_eq!(net.exit(3), ["TOKEN(hop 3) to 1"]);
    net.ask(2);
    net.deliver("REQUEST", 2, 3);
    net.deliver("REQUEST", 3, 1);
    assert_eq!(net.deliver("TOKEN", 3, 1), ["TOKEN(hop 4) to 2"]);
}

#[test]
fn who_asks_again_after_giving_up_keeps_its_place_and_asks_nobody() {
    let mut net = Net::new(3, "");
    net.ask(1);
    net.ask(2);
    net.deliver("REQUEST", 2, 1);
    net.ask(3);
    net.settle();
    net.cancel(2);
    assert_eq!(net.ask(2), NOTHING, "its guess is 3 by now, and asking there would close a circle");
    assert_eq!(net.exit(1), ["TOKEN(hop 1) to 2"]);
    assert_eq!(net.deliver("TOKEN", 1, 2), ["enter"]);
    assert_eq!(net.exit(2), ["TOKEN(hop 2) to 3"]);
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
fn the_seat_decides_who_is_the_root() {
    let initial = InitialHolders { holders: &[NodeId(3)], mode: Mode::Exclusive, fence: Fence::new(41) };
    let mut net = Net::seated(View::new([NodeId(2), NodeId(3)]).with_epoch(1), "", initial);
    assert_eq!(net.ask(2), ["REQUEST(of 2) to 3"]);
    assert_eq!(net.deliver("REQUEST", 2, 3), NOTHING, "it is inside");
    assert_eq!(net.exit(3), ["TOKEN(hop 1) to 2"]);
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
fn nonsense_from_peers_makes_no_second_token() {
    let mut net = Net::new(2, "");
    net.ask(2);
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
    net.deliver("REQUEST", 2, 1);
    let copy = net.take("TOKEN", 1, 2);
    assert_eq!(net.receive(1, 2, copy.clone()), ["enter"]);
    net.exit(2);
    net.pass_through(1);
    assert_eq!(net.receive(1, 2, copy), NOTHING);
    assert!(net.nodes[&2].token.is_none());
}

#[test]
fn only_an_instance_that_nothing_happened_to_may_be_dropped() {
    let mut net = Net::new(3, "");
    net.pass_through(2);
    assert!(net.nodes[&3].is_idle() && !net.nodes[&1].is_idle() && !net.nodes[&2].is_idle());
}

proptest! {
    #[test]
    fn messages_come_off_the_wire_as_they_went(ask: bool, origin: u32, epoch: u64, hop: u64, fence: u64) {
        let message = match ask {
            true => NaimiTrehelMessage::Request { origin: NodeId(origin) },
            false => NaimiTrehelMessage::Token { epoch, hop, fence },
        };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(NaimiTrehelMessage::decode(&mut reader), Ok(message));
        prop_assert!(reader.finish().is_ok());
        let cut = NaimiTrehelMessage::decode(&mut Reader::new(&bytes[..bytes.len() - 1]));
        prop_assert_eq!(cut, Err(DecodeError::Truncated));
    }

    #[test]
    fn bytes_from_anywhere_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = NaimiTrehelMessage::decode(&mut Reader::new(&bytes));
    }
}
