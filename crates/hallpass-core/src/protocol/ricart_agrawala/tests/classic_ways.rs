//! Section 7.2.3: the five ways to learn the highest sequence number.

use super::ClassicTimer::{Quiet, Task};
use super::*;

type Group = Net<Classic>;

/// Node 4 has been added to the lists of 1, 2 and 3 and wants in; its WELCOME arrives now. The numbers are at 3.
fn welcome(way: &str) -> (Group, Vec<String>) {
    let mut net = Group::new([1, 2, 3], way);
    net.start(4, 0, InitialHolders::NOBODY);
    for node in [2, 3] {
        net.pass_through(node);
    }
    net.act(4, Input::Join { sponsor: NodeId(1) });
    while !net.in_flight.iter().any(|(_, _, message)| message.kind() == "WELCOME") {
        let (from, to, message) = net.in_flight.remove(0);
        net.receive(from, to, message);
    }
    assert_eq!(net.in_flight.len(), 1);
    assert_eq!(net.acquire(4), NOTHING);
    let effects = net.deliver(1, 4);
    (net, effects)
}

/// A node asks, node 4 receives the REQUEST, and the caller gives up before anybody enters: numbers rise one at a time.
fn receives_request_of(net: &mut Group, node: u32) -> Vec<String> {
    net.acquire(node);
    let effects = net.deliver(node, 4);
    net.cancel(node);
    net.in_flight.retain(|(from, _, _)| *from == 4);
    effects
}

/// What a newcomer does once it is sure and its caller waits.
fn joins_and_asks(number: u64) -> Vec<String> {
    let mut texts = vec!["joined".to_owned()];
    texts.extend((1..=3).map(|node| format!("REQUEST({number}) to {node}")));
    texts.push("set Overdue 121".to_owned());
    texts
}

#[test]
fn the_sponsor_hands_the_number_over() {
    let (_, effects) = welcome("hsn=sponsor");
    assert_eq!(effects[0], "cancel NoWelcome");
    assert_eq!(effects[1..], joins_and_asks(4));
}

#[test]
fn way_1_asks_all_and_takes_the_largest() {
    let (mut net, effects) = welcome("hsn=ask");
    assert_eq!(effects, ["cancel NoWelcome", "ASK_HSN to 1", "ASK_HSN to 2", "ASK_HSN to 3", "set Task 21"]);
    net.acquire(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 4), ["REPLY(4) to 2"], "answered as ever");
    for (node, number) in [(1, 3), (2, 4), (3, 3)] {
        assert_eq!(net.deliver(4, node), [format!("TELL_HSN({number}) to 4")]);
    }
    assert_eq!(net.deliver(1, 4), NOTHING);
    assert_eq!(net.deliver(2, 4), NOTHING);
    let effects = net.deliver(3, 4);
    assert_eq!(effects[0], "cancel Task");
    assert_eq!(effects[1..], joins_and_asks(5));
}

#[test]
fn way_1_asks_again_and_then_goes_on_without_the_silent() {
    let (mut net, _) = welcome("hsn=ask");
    for node in [1, 2] {
        net.deliver(4, node);
        net.deliver(node, 4);
    }
    net.take(4, 3);
    assert_eq!(net.fire(4, Task), ["ASK_HSN to 3", "set Task 21"]);
    let effects = net.fire(4, Task);
    assert!(effects.contains(&"FAILED(3) to 1".to_owned()) && effects.contains(&"joined".to_owned()), "{effects:?}");
}

#[test]
fn way_2_waits_for_a_request_from_each() {
    let (mut net, effects) = welcome("hsn=each");
    assert_eq!(effects, ["cancel NoWelcome"]);
    for (node, number) in [(1, 4), (1, 5), (2, 4), (1, 6), (2, 5)] {
        assert_eq!(receives_request_of(&mut net, node), [format!("REPLY({number}) to {node}")]);
    }
    let effects = receives_request_of(&mut net, 3);
    assert_eq!(effects[0], "REPLY(4) to 3");
    assert_eq!(effects[1..], joins_and_asks(7), "above all that it has received");
}

#[test]
fn way_3_waits_until_numbers_have_risen_by_n_minus_1() {
    let (mut net, effects) = welcome("hsn=risen");
    assert_eq!(effects, ["cancel NoWelcome"]);
    for number in [4, 5, 6] {
        assert_eq!(receives_request_of(&mut net, 2), [format!("REPLY({number}) to 2")]);
    }
    assert_eq!(receives_request_of(&mut net, 3), ["REPLY(4) to 3"], "not risen");
    let effects = receives_request_of(&mut net, 2);
    assert_eq!(effects[0], "REPLY(7) to 2", "4 plus N - 1");
    assert_eq!(effects[1..], joins_and_asks(8));
}

#[test]
fn way_4_waits_until_all_could_have_entered_and_left() {
    let (mut net, effects) = welcome("hsn=quiet");
    assert_eq!(effects, ["cancel NoWelcome", "set Quiet 384"], "21 and three times 121");
    assert_eq!(net.fire(4, Quiet), joins_and_asks(4), "its sponsor's number was 3");

    let (mut net, _) = welcome("hsn=quiet");
    for _ in 0..3 {
        assert_eq!(receives_request_of(&mut net, 2).len(), 1);
    }
    assert_eq!(net.fire(4, Quiet), joins_and_asks(7), "what it has received counts, too");
}

#[test]
fn way_5_waits_for_the_fourth_request_from_one_node() {
    let (mut net, effects) = welcome("hsn=fourth");
    assert_eq!(effects, ["cancel NoWelcome"]);
    for node in [1, 2, 3, 1, 2, 3, 1, 2, 3] {
        assert_eq!(receives_request_of(&mut net, node).len(), 1, "a REPLY and nothing else");
    }
    let effects = receives_request_of(&mut net, 2);
    assert_eq!(effects[0], "REPLY(7) to 2");
    assert_eq!(effects[1..], joins_and_asks(8));
    assert_eq!(Classic::needs(&net.options).fifo, Some("hsn=fourth"));
}

#[test]
fn until_it_is_sure_a_newcomer_sponsors_nobody() {
    for way in ["hsn=each", "hsn=risen", "hsn=quiet", "hsn=fourth", "hsn=ask"] {
        let (mut net, _) = welcome(way);
        net.start(5, 0, InitialHolders::NOBODY);
        net.act(5, Input::Join { sponsor: NodeId(4) });
        assert_eq!(net.deliver(5, 4), NOTHING, "{way}");
    }
}
