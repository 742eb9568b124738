//! Section 7.3: leaving.

use super::*;

type Group = Net<Classic>;

#[test]
fn leaving_waits_for_acknowledgements_and_keeps_replying() {
    let mut net = Group::new([1, 2, 3], "");
    assert_eq!(
        net.act(3, Input::Leave),
        ["REQUEST(1) to 1", "REQUEST(1) to 2", "set Overdue 121"],
        "T9: as a join does"
    );
    net.deliver(3, 1);
    net.deliver(3, 2);
    net.deliver(1, 3);
    assert_eq!(net.deliver(2, 3), ["cancel Overdue", "cancel Unanswered", "LEAVE to 1", "LEAVE to 2", "set Task 21"]);
    assert_eq!(net.acquire(3), NOTHING, "who leaves may not ask");
    assert_eq!(net.deliver(3, 1), ["LEAVE_ACK to 3"]);
    assert_eq!(net.acquire(1), ["REQUEST(2) to 2", "set Overdue 121"], "node 3 is off the list");
    // Node 2 does not know of it yet, and asks node 3 as well.
    assert_eq!(net.acquire(2), ["REQUEST(2) to 1", "REQUEST(2) to 3", "set Overdue 121"]);
    net.deliver_first("REQUEST", 2, 3);
    assert_eq!(net.deliver(1, 3), NOTHING, "one acknowledgement is missing");
    net.deliver(1, 2);
    net.deliver(2, 1);
    assert_eq!(net.deliver(2, 1), ["cancel Overdue", "cancel Unanswered", "enter"]);
    assert_eq!(net.deliver(3, 2), ["LEAVE_ACK to 3"]);
    let left = net.deliver(2, 3);
    assert_eq!(left, ["cancel Task", "cancel Overdue", "cancel Unanswered", "REPLY(2) to 2", "left"]);
    assert_eq!(net.deliver(3, 2), NOTHING, "node 2 has removed it");
    // A REQUEST that was on its way to it is still answered.
    let request = Body::Base(RaMessage::Request { number: 9, mode: Mode::Exclusive });
    assert_eq!(net.receive(1, 3, ClassicMessage { from: 0, to: 0, body: request }), ["REPLY(9) to 1"]);
    assert_eq!(net.act(3, Input::Leave), NOTHING);
}

#[test]
fn the_reply_of_a_node_that_leaves_is_pretended() {
    let mut net = Group::new([1, 2, 3], "");
    net.act(3, Input::Leave);
    net.deliver(3, 1);
    net.deliver(3, 2);
    net.deliver(1, 3);
    net.deliver(2, 3);
    net.acquire(1);
    assert_eq!(net.deliver(1, 3), NOTHING, "node 3 is inside: it defers");
    net.deliver(1, 2);
    net.deliver(2, 1);
    assert_eq!(net.inside(), [0; 0]);
    assert_eq!(net.deliver(3, 1), ["cancel Overdue", "cancel Unanswered", "enter", "LEAVE_ACK to 3"]);
}

#[test]
fn t6_a_leave_that_overtakes_its_senders_reply_counts_once() {
    let mut net = Group::new([1, 2, 3], "as-printed=T9");
    net.acquire(1);
    net.deliver(1, 3);
    assert_eq!(net.act(3, Input::Leave), ["LEAVE to 1", "LEAVE to 2", "set Task 21"], "without mutual exclusion");
    assert_eq!(net.deliver_first("LEAVE", 3, 1), ["LEAVE_ACK to 3"]);
    assert_eq!(net.deliver_first("REPLY", 3, 1), NOTHING, "node 2 has not replied");
    assert_eq!(net.inside(), [0; 0]);
    net.deliver(1, 2);
    net.deliver(2, 1);
    assert_eq!(net.inside(), [1]);
}
