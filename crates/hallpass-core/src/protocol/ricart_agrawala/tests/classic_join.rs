//! Sections 7.2.1 and 7.2.2: joining and coming back.

use super::ClassicTimer::{NoWelcome, RestartInterval, Task};
use super::*;

type Group = Net<Classic>;

/// Nodes 1, 2 and 3, and a newcomer that has asked node 1; node 1 is inside on its behalf and waits for ADDEDs.
fn being_added(newcomer: u32, words: &str) -> Group {
    let mut net = Group::new([1, 2, 3], words);
    net.start(newcomer, 0, InitialHolders::NOBODY);
    assert_eq!(join(&mut net, newcomer, 1), ["JOIN to 1", "set NoWelcome 142"]);
    assert_eq!(net.deliver(newcomer, 1), ["REQUEST(1) to 2", "REQUEST(1) to 3", "set Overdue 121"]);
    net.deliver(1, 2);
    net.deliver(1, 3);
    assert_eq!(net.deliver(2, 1), ["set Overdue 121"]);
    net
}

fn join(net: &mut Group, node: u32, sponsor: u32) -> Vec<String> {
    net.act(node, Input::Join { sponsor: NodeId(sponsor) })
}

#[test]
fn a_newcomer_is_added_everywhere_under_mutual_exclusion_before_it_is_welcome() {
    let mut net = being_added(4, "");
    assert_eq!(
        net.deliver(3, 1),
        ["cancel Overdue", "cancel Unanswered", "ADD(4) to 2", "ADD(4) to 3", "set Task 21"],
        "the sponsor is inside, and its caller is not"
    );
    assert_eq!(net.inside(), [0; 0]);
    // Node 2's request is made before it knows of node 4; it waits for the sponsor.
    assert_eq!(net.acquire(2), ["REQUEST(2) to 1", "REQUEST(2) to 3", "set Overdue 121"]);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), NOTHING);
    assert_eq!(net.deliver(1, 2), ["ADDED(highest 2) to 1"], "its own outstanding number included");
    assert_eq!(net.deliver(1, 3), ["ADDED(highest 1) to 1"]);
    assert_eq!(net.deliver(3, 1), NOTHING);
    assert_eq!(
        net.deliver(2, 1),
        ["cancel Task", "WELCOME(highest 2) to 4", "cancel Overdue", "cancel Unanswered", "REPLY(2) to 2"]
    );
    assert_eq!(net.acquire(4), NOTHING, "not before it is welcome");
    assert_eq!(
        net.deliver(1, 4),
        ["cancel NoWelcome", "joined", "REQUEST(3) to 1", "REQUEST(3) to 2", "REQUEST(3) to 3", "set Overdue 121"]
    );
    net.deliver_all();
    assert_eq!(net.inside(), [2], "node 2 never asked node 4, and yet comes first");
    net.release(2);
    net.deliver_all();
    assert_eq!(net.inside(), [4]);
    net.release(4);
    assert_eq!(net.acquire(3), ["REQUEST(4) to 1", "REQUEST(4) to 2", "REQUEST(4) to 4", "set Overdue 121"]);
}

#[test]
fn t8_as_printed_a_newcomer_with_too_low_a_number_enters_beside_a_member() {
    for (words, inside) in [("", vec![2]), ("as-printed=T8", vec![0, 2])] {
        let mut net = being_added(0, words);
        net.deliver(3, 1);
        assert_eq!(net.acquire(2).len(), 3, "{words}");
        net.deliver_first("REQUEST", 2, 1);
        net.acquire(0);
        net.deliver_all();
        assert_eq!(net.inside(), inside, "{words}");
    }
}

#[test]
fn a_newcomer_replies_to_everybody_before_it_has_a_list() {
    let mut net = being_added(4, "");
    let request = RaMessage::Request { number: 9, mode: Mode::Exclusive };
    let message = ClassicMessage { from: 0, to: 0, body: Body::Base(request) };
    assert_eq!(net.receive(2, 4, message), ["REPLY(9) to 2"]);
    assert_eq!(net.nodes[&4].highest_number(), 9, "and learns");
}

#[test]
fn a_lost_add_is_sent_again_and_silence_after_that_is_a_failure() {
    let mut net = being_added(4, "");
    net.deliver(3, 1);
    net.take(1, 2);
    net.deliver(1, 3);
    net.deliver(3, 1);
    assert_eq!(net.fire(1, Task), ["ADD(4) to 2", "set Task 21"]);
    net.take(1, 2);
    assert_eq!(
        net.fire(1, Task),
        [
            "FAILED(2) to 2",
            "FAILED(2) to 3",
            "FAILED(2) to 4",
            "cancel Task",
            "WELCOME(highest 1) to 4",
            "cancel Overdue",
            "cancel Unanswered"
        ]
    );
    net.deliver_first("WELCOME", 1, 4);
    assert_eq!(net.acquire(4), ["REQUEST(2) to 1", "REQUEST(2) to 3", "set Overdue 121"]);
}

#[test]
fn a_sponsor_that_does_not_answer_is_left_for_the_next_one() {
    let mut net = Group::new([1, 2, 3], "");
    net.start(4, 0, InitialHolders::NOBODY);
    join(&mut net, 4, 2);
    net.take(4, 2);
    assert_eq!(net.fire(4, NoWelcome), ["JOIN to 3", "set NoWelcome 142"]);
    assert_eq!(net.fire(4, NoWelcome), ["JOIN to 1", "set NoWelcome 142"]);
    net.deliver_all();
    assert!(!net.timers.contains_key(&(4, NoWelcome)), "it is welcome");
    net.pass_through(4);
    assert_eq!(join(&mut net, 4, 1), NOTHING, "a member does not join");
}

#[test]
fn a_sponsor_asked_twice_does_it_once() {
    let mut net = Group::new([1, 2], "");
    net.start(4, 0, InitialHolders::NOBODY);
    join(&mut net, 4, 1);
    let join = net.take(4, 1);
    net.acquire(1); // A caller waits, then the pending change.
    assert_eq!(net.receive(4, 1, join.clone()), NOTHING);
    assert_eq!(net.receive(4, 1, join), NOTHING);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
    net.release(1);
    let mut added = 0;
    while !net.in_flight.is_empty() {
        let (from, to, message) = net.in_flight.remove(0);
        added += u32::from(message.kind() == "ADD");
        net.receive(from, to, message);
    }
    assert_eq!(added, 1);
    assert!(net.nodes.values().all(Classic::is_idle));
}

#[test]
fn inserted_by_broadcast_everybody_includes_the_newcomer() {
    let mut net = Group::new([1, 2, 3], "insert=broadcast");
    net.start(4, 0, InitialHolders::NOBODY);
    net.pass_through(3);
    join(&mut net, 4, 1);
    assert_eq!(net.deliver(4, 1), ["WELCOME(highest 0) to 4"], "without mutual exclusion");
    assert_eq!(net.deliver(1, 4), ["cancel NoWelcome", "INCLUDE_ME to all", "set Task 21"]);
    assert_eq!(net.acquire(4), NOTHING);
    for node in [1, 2, 3] {
        assert_eq!(net.deliver(4, node), ["INCLUDED(highest 1) to 4"]);
    }
    assert_eq!(net.deliver(1, 4), NOTHING);
    assert_eq!(net.deliver(3, 4), NOTHING);
    let asks = ["REQUEST(2) to 1", "REQUEST(2) to 2", "REQUEST(2) to 3", "set Overdue 121"];
    assert_eq!(net.deliver(2, 4), [&["cancel Task", "joined"], &asks[..]].concat());
    net.deliver_all();
    assert_eq!(net.inside(), [4]);
}

#[test]
fn a_node_that_returns_announces_its_failure_and_waits_until_its_old_messages_have_arrived() {
    let mut net = Group::new([1, 2, 3], "");
    net.pass_through(3);
    net.acquire(1); // Node 3 fails while node 1 waits for it.
    net.take(1, 3);
    net.deliver(1, 2);
    net.deliver(2, 1);
    net.start(3, 1, InitialHolders::NOBODY);
    assert_eq!(join(&mut net, 3, 2), ["FAILED(3) to 1", "FAILED(3) to 2", "set RestartInterval 21"]);
    let failed = Body::Failed { node: NodeId(3), incarnation: 0 };
    assert!(
        net.in_flight.iter().all(|(_, _, message)| message.body == failed && message.from == 1),
        "its former incarnation is over"
    );
    assert_eq!(net.deliver(3, 1), ["cancel Overdue", "cancel Unanswered", "enter"], "node 1 pretends the REPLY");
    assert_eq!(net.deliver(3, 2), NOTHING);
    net.release(1);
    assert_eq!(net.acquire(1), ["REQUEST(3) to 2", "set Overdue 121"]);
    net.deliver_all();
    net.release(1);

    assert_eq!(net.acquire(3), NOTHING, "its caller waits with it");
    assert_eq!(net.fire(3, RestartInterval), ["JOIN to 2", "set NoWelcome 142"]);
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
    assert_eq!(net.nodes[&3].request_number(), Some(5), "above the sponsor's 4");
    net.release(3);
    assert_eq!(net.acquire(1), ["REQUEST(6) to 2", "REQUEST(6) to 3", "set Overdue 121"]);
}

/// Node 3 has come back and is a member in its second incarnation.
fn returned() -> Group {
    let mut net = Group::new([1, 2, 3], "");
    net.start(3, 1, InitialHolders::NOBODY);
    join(&mut net, 3, 1);
    net.deliver_all();
    net.fire(3, RestartInterval);
    net.deliver_all();
    net.pass_through(3);
    net
}

#[test]
fn messages_from_a_former_incarnation_are_dropped() {
    let mut net = returned();
    net.acquire(1);
    let before = net.nodes[&1].clone();
    let number = before.request_number().unwrap();
    for body in [
        Body::Base(RaMessage::Reply { answers: number, highest: 90, fence: 90 }),
        Body::Base(RaMessage::Request { number: 90, mode: Mode::Exclusive }),
        Body::AreYouThere { number: 90, mode: Mode::Exclusive },
        Body::YesIAmHere { answers: number },
        Body::Leave,
        Body::Join,
        Body::IncludeMe,
        Body::RestartYourself,
        Body::AskHighest,
    ] {
        assert_eq!(net.receive(3, 1, ClassicMessage { from: 0, to: 0, body: body.clone() }), NOTHING, "{body:?}");
        assert_eq!(net.nodes[&1], before, "{body:?}");
    }
}

#[test]
fn messages_to_a_former_incarnation_are_dropped() {
    let mut net = returned();
    net.acquire(3);
    let before = net.nodes[&3].clone();
    let number = before.request_number().unwrap();
    for body in [
        Body::Base(RaMessage::Reply { answers: number, highest: 90, fence: 90 }),
        Body::Base(RaMessage::Request { number: 90, mode: Mode::Exclusive }),
        Body::RestartYourself,
        Body::Failed { node: NodeId(1), incarnation: 0 },
        Body::Leave,
    ] {
        assert_eq!(net.receive(1, 3, ClassicMessage { from: 0, to: 0, body: body.clone() }), NOTHING, "{body:?}");
        assert_eq!(net.nodes[&3], before, "{body:?}");
    }
}

#[test]
fn the_failure_of_a_former_incarnation_does_not_remove_the_present_one() {
    let mut net = returned();
    for to in [1, 3] {
        let body = Body::Failed { node: NodeId(3), incarnation: 0 };
        let before = net.nodes[&to].clone();
        assert_eq!(net.receive(2, to, ClassicMessage { from: 0, to: u32::MAX, body }), NOTHING);
        assert_eq!(net.nodes[&to], before);
    }
}

#[test]
fn adding_and_removing_commute() {
    let add = |incarnation| Body::Add { node: NodeId(4), incarnation };
    let failed = |incarnation| Body::Failed { node: NodeId(4), incarnation };
    let changes = [add(0), failed(0), add(1), failed(1), add(2)];
    for skip in 0..changes.len() {
        let chosen: Vec<&Body> = changes.iter().take(skip + 1).collect();
        let end = |order: &[&Body]| {
            let mut net = Group::new([1, 2], "");
            for body in order {
                net.receive(2, 1, ClassicMessage { from: 0, to: 0, body: (*body).clone() });
            }
            net.nodes.remove(&1).unwrap()
        };
        let forwards = end(&chosen);
        let mut turned = chosen.clone();
        for _ in 0..turned.len() {
            turned.rotate_left(1);
            assert_eq!(end(&turned), forwards);
            let backwards: Vec<&Body> = turned.iter().rev().copied().collect();
            assert_eq!(end(&backwards), forwards);
        }
    }
}

#[test]
fn a_caller_that_gives_up_before_its_node_is_a_member_asks_nothing() {
    let mut net = Group::new([1, 2], "");
    net.start(4, 0, InitialHolders::NOBODY);
    join(&mut net, 4, 1);
    net.acquire(4);
    assert_eq!(net.cancel(4), NOTHING);
    net.deliver_all();
    assert_eq!(net.nodes[&4].request_number(), None);
    net.pass_through(4);
}
