//! Members of two versions, of which one does not know all protocols of the other.

use super::*;
use crate::config::Class;
use crate::membership::testing::with_class;

/// A class of a protocol that another version has.
fn later() -> Class {
    Class { prefix: "x/".to_owned(), protocol: "of-a-later-version".to_owned(), options: Vec::new() }
}

#[test]
fn a_member_takes_no_part_in_a_view_whose_protocols_it_does_not_know() {
    let mut net = Net::founded(3);
    let epoch = net.nodes[&NodeId(2)].node.epoch().unwrap();
    // The others know it: the steward prepares the next view with it.
    let prepare = with_class(&net.nodes[&NodeId(2)].disk[&keys::GROUP], later());
    net.input(2, |node, now| node.handle_control(NodeId(1), &prepare, now).unwrap());
    let status = net.nodes[&NodeId(2)].node.status();
    let why = status.waits_for.unwrap_or_default();
    assert!(why.contains("'of-a-later-version'") && why.contains("the same version"), "{why}");
    assert!(!net.nodes[&NodeId(2)].node.is_complete(), "it grants nothing");
    net.run(5000);
    let open = |id: u32| net.nodes[&NodeId(id)].node.epoch().filter(|_| net.nodes[&NodeId(id)].node.is_complete());
    assert!(open(1) > Some(epoch) && open(3) == open(1), "the others go on without it");
    assert_eq!(net.nodes[&NodeId(1)].node.view(), [NodeId(1), NodeId(3)]);
    // It can be ended in order.
    net.input(2, |node, now| node.handle_request(Request::Stop, 77, now));
    net.run(50);
    assert!(net.nodes[&NodeId(2)].done.contains(&(77, Ok(()))), "{:?}", net.nodes[&NodeId(2)].done);
}

#[test]
fn a_steward_gives_no_class_a_protocol_that_it_does_not_know() {
    let mut net = Net::founded(3);
    let steward = net.nodes[&NodeId(1)].node.status().steward.unwrap();
    let asker = [1, 2, 3].map(NodeId).into_iter().find(|id| *id != steward).unwrap();
    let ask = crate::membership::testing::asks_for_class(&net.nodes[&asker].disk[&keys::GROUP], 5, later());
    let epoch = net.nodes[&steward].node.epoch();
    net.input(steward.0, |node, now| node.handle_control(asker, &ask, now).unwrap());
    net.run(3000);
    assert_eq!(net.nodes[&steward].node.epoch(), epoch, "no view begins with it");
}

/// Two of three do not know it: their votes go on counting, or nobody could take the class back.
#[test]
fn members_that_take_no_part_vote_on() {
    let mut net = Net::founded(3);
    assert_eq!(net.steward(), 1);
    let prepare = with_class(&net.nodes[&NodeId(2)].disk[&keys::GROUP], later());
    for id in [2, 3] {
        net.input(id, |node, now| node.handle_control(NodeId(1), &prepare, now).unwrap());
    }
    net.run(10 * TTL / MS);
    let one = &net.nodes[&NodeId(1)];
    assert!(one.node.is_complete() && one.lapses == 0, "{:?}", one.node.status());
    assert!(net.acquire(1, "x", 1).is_some() || net.wait_for_grant(1, 1, 100).is_some());
}

/// A Prepare that comes late says nothing about the group.
#[test]
fn an_old_view_with_such_a_protocol_sends_nobody_away() {
    let mut net = Net::founded(3);
    let prepare = with_class(&net.nodes[&NodeId(2)].disk[&keys::GROUP], later());
    for token in 1..=2 {
        net.input(1, |node, now| node.handle_request(Request::SetClass(class_of(token)), token, now));
        net.run(200);
    }
    net.input(2, |node, now| node.handle_control(NodeId(1), &prepare, now).unwrap());
    assert!(net.nodes[&NodeId(2)].node.is_complete());
}

fn class_of(number: u64) -> Class {
    Class { prefix: format!("{number}/"), protocol: "raymond".to_owned(), options: Vec::new() }
}
