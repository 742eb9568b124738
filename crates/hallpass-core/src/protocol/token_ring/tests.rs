use proptest::prelude::*;

use super::*;
use crate::View;
use crate::protocol::testing::{
    NOTHING, Net, assert_canonical, assert_enters_alone, assert_kinds, assert_refuses_past_the_last_fence,
    assert_round_trip, count, fence, initial, parse,
};

fn net(words: &str) -> Net<TokenRing> {
    Net::new([1, 2, 3, 4], words)
}

#[test]
fn the_token_is_at_the_lowest_node_and_costs_nothing_there() {
    let mut net = net("");
    assert!(net.nodes.values().all(TokenRing::is_idle));
    assert_eq!(net.acquire(1), ["enter"]);
    assert_eq!(net.release(1), NOTHING, "it parks");
    assert_eq!(net.acquire(1), ["enter"]);
    assert_eq!(net.fences, [1, 2]);
    net.release(1);
    assert!(!net.nodes[&1].is_idle(), "the token's count must not be lost");
}

#[test]
fn a_request_goes_around_to_the_token_and_the_token_on_to_the_origin() {
    let mut net = net("");
    assert_eq!(net.acquire(3), ["REQUEST(3) to 4"]);
    assert_eq!(net.deliver(3, 4), ["REQUEST(3) to 1"]);
    assert_eq!(net.deliver(4, 1), ["OK(1 to go) to 2"]);
    assert_eq!(net.deliver(1, 2), ["OK to 3"]);
    assert_eq!(net.deliver(2, 3), ["enter"]);
    assert_eq!(net.release(3), NOTHING, "N messages in all; it parks here");
    assert!(!net.nodes[&1].is_idle() && net.nodes[&4].is_idle());
}

#[test]
fn the_token_serves_every_node_that_waits_on_its_way() {
    let mut net = net("");
    net.acquire(1);
    assert_eq!(net.acquire(2), ["REQUEST(2) to 3"]);
    assert_eq!(net.acquire(4), ["REQUEST(4) to 1"]);
    assert_eq!(net.deliver(4, 1), NOTHING, "1 is inside");
    assert_eq!(net.release(1), ["OK(2 to go) to 2"]);
    assert_eq!(net.deliver(1, 2), ["enter"]);
    assert_eq!(net.deliver(2, 3), ["REQUEST(2) to 4"]);
    assert_eq!(net.deliver(3, 4), NOTHING, "4 has asked, and the token passes 2 before it comes to 4");
    assert_eq!(net.release(2), ["OK(1 to go) to 3"]);
    net.deliver_all();
    assert_eq!(net.inside(), [4]);
    assert_eq!(net.release(4), NOTHING);
    assert_eq!(net.fences, [1, 2, 3]);
}

#[test]
fn where_everybody_asks_an_entry_costs_one_ok_and_one_request() {
    let mut net = net("");
    let mut messages = 0;
    for node in [1, 2, 3, 4] {
        messages += net.acquire(node).len();
    }
    messages -= 1; // Node 1 has entered.
    let mut order = Vec::new();
    for _ in 0..40 {
        while let Some((from, to, message)) = (!net.in_flight.is_empty()).then(|| net.in_flight.remove(0)) {
            let effects = net.receive(from, to, message);
            messages += effects.iter().filter(|text| !text.starts_with("enter")).count();
        }
        let inside = net.inside()[0];
        order.push(inside);
        messages += net.release(inside).len();
        messages += net.acquire(inside).len();
    }
    assert_eq!(order[..6], [1, 2, 3, 4, 1, 2]);
    assert!((79..=83).contains(&messages), "{messages}");
}

#[test]
fn a_request_that_overtakes_the_token_waits_for_it() {
    let mut net = net("");
    net.acquire(2);
    net.deliver(2, 3);
    net.deliver(3, 4);
    assert_eq!(net.deliver(4, 1), ["OK to 2"]);
    assert_eq!(net.acquire(1), ["REQUEST(1) to 2"], "the token has just left");
    assert_eq!(net.deliver_first("REQUEST(1)", 1, 2), NOTHING, "kept: the token is right behind it");
    assert_eq!(net.deliver(1, 2), ["enter"]);
    assert_eq!(net.release(2), ["OK(2 to go) to 3"]);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
}

#[test]
fn a_request_that_is_done_goes_no_further() {
    let mut net = net("");
    net.acquire(3);
    let late = net.in_flight[0].2.clone();
    net.deliver_all();
    net.release(3);
    net.pass_through(4);
    assert_eq!(net.receive(3, 4, late), NOTHING, "the token has been at 3 since");
    let home = TokenRingMessage::Request { origin: NodeId(4), hop: 4 };
    assert_eq!(net.receive(3, 4, home), NOTHING, "its own");
}

#[test]
fn a_caller_that_gives_up_lets_the_token_come_and_go() {
    let mut net = net("");
    net.acquire(2);
    assert_eq!(net.cancel(2), NOTHING);
    assert_eq!(net.acquire(2), NOTHING, "its REQUEST is still in flight");
    net.cancel(2);
    net.acquire(3);
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
    net.release(3);
    net.acquire(1);
    net.cancel(1);
    net.deliver_all();
    assert_eq!(net.inside(), [0; 0]);
    assert_eq!(net.acquire(1), ["enter"], "nobody wanted it: it parks at 1");
}

#[test]
fn a_token_that_comes_twice_or_from_elsewhere_does_not_count() {
    let mut net = net("");
    net.acquire(2);
    net.deliver(2, 3);
    net.deliver(3, 4);
    net.deliver(4, 1);
    let token = net.in_flight[0].2.clone();
    assert_eq!(net.receive(4, 2, token.clone()), NOTHING, "not the neighbour");
    assert_eq!(net.deliver(1, 2), ["enter"]);
    assert_eq!(net.receive(1, 2, token.clone()), NOTHING);
    net.acquire(3);
    net.release(2);
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
    assert_eq!(net.receive(1, 2, token), NOTHING, "it has been here before");
    let absurd = TokenRingMessage::Ok { hop: u64::MAX, left: u64::MAX, fence: u64::MAX };
    assert_eq!(net.receive(3, 4, absurd), NOTHING);
    assert_eq!(net.receive(3, 4, TokenRingMessage::Request { origin: NodeId(2), hop: u64::MAX }), NOTHING);
    assert_eq!(net.receive(3, 4, TokenRingMessage::Request { origin: NodeId(77), hop: 1 }), NOTHING);
}

#[test]
fn t25_as_printed_the_next_token_lets_in_a_caller_that_is_gone() {
    let mut net = Net::<TokenRing>::new([1, 2], "as-printed=T25");
    net.pass_through(2);
    assert_eq!(net.acquire(2), ["REQUEST(2) to 1"], "the printed Release always sends the token on");
    let mut net = Net::<TokenRing>::new([1, 2], "as-printed=T25");
    net.acquire(1);
    assert_eq!(net.release(1), ["OK to 2"]);
    net.acquire(2);
    net.deliver_all();
    net.release(2);
    net.deliver_all();
    assert_eq!(net.inside(), [1], "1 asked once and is inside twice");
}

#[test]
fn a_token_that_spins_costs_n_messages_if_the_same_node_asks_again() {
    let mut net = net("idle=spin");
    assert_eq!(net.acquire(1), ["enter"]);
    assert_eq!(net.release(1), ["OK to 2"]);
    assert_eq!(net.acquire(1), ["REQUEST(1) to 2"], "it cannot know yet that the token spins");
    net.in_flight.pop();
    for (from, to) in [(1, 2), (2, 3), (3, 4)] {
        assert_eq!(net.deliver(from, to).len(), 1);
    }
    assert_eq!(net.deliver(4, 1), ["enter"]);
    net.release(1);
    assert_eq!(net.acquire(1), NOTHING);
}

#[test]
fn initial_holders_are_waited_for() {
    let mut one = Net::<TokenRing>::with_initial(View::new([1, 2, 3, 4].map(NodeId)), "", initial(&[NodeId(3)], 41));
    one.acquire(1);
    one.deliver_all();
    assert_eq!(one.release(3), ["OK(1 to go) to 4"]);
    one.deliver_all();
    assert_eq!((one.inside(), one.fences), (vec![1], vec![42]));

    let readers = [NodeId(1), NodeId(3), NodeId(4)];
    let mut net = Net::<TokenRing>::with_initial(View::new([1, 2, 3, 4].map(NodeId)), "", initial(&readers, 41));
    net.acquire(2);
    net.release(4);
    net.release(1);
    net.deliver_all();
    assert_eq!(net.inside(), [3], "the token has passed 2, which may not use it yet");
    net.release(3);
    net.deliver_all();
    assert_eq!((net.inside(), net.fences), (vec![2], vec![42]));
}

#[test]
fn alone_and_at_the_end_of_fences() {
    assert_enters_alone::<TokenRing>("");
    assert_refuses_past_the_last_fence::<TokenRing>("");
}

#[test]
fn options_are_checked() {
    assert!(parse::<TokenRing>("idle=sleep").unwrap_err().contains("park, spin"));
    assert!(parse::<TokenRing>("as-printed=T24").unwrap_err().contains("T25"));
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(a in count(), b in count(), c in fence(), id: u32, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        assert_round_trip(&TokenRingMessage::Ok { hop: a, left: b, fence: c });
        assert_round_trip(&TokenRingMessage::Request { origin: NodeId(id), hop: a });
        assert_kinds::<TokenRingMessage>(1..=2);
        assert_canonical::<TokenRingMessage>(&bytes);
    }
}
