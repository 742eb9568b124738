use proptest::prelude::*;

use super::*;
use crate::View;
use crate::protocol::testing::{
    NOTHING, Net, assert_canonical, assert_enters_alone, assert_kinds, assert_refuses_past_the_last_fence,
    assert_round_trip, count, fence, initial, parse,
};

fn net(words: &str) -> Net<Lamport> {
    Net::new([1, 2, 3], words)
}

#[test]
fn an_entry_is_request_reply_release() {
    let mut net = net("");
    assert!(net.nodes.values().all(Lamport::is_idle));
    assert_eq!(net.acquire(2), ["REQUEST(1) to all"]);
    assert_eq!(net.deliver(2, 1), ["REPLY(1) to 2"], "case A: 1 does not want in");
    assert_eq!(net.deliver(2, 3), ["REPLY(1) to 2"]);
    assert_eq!(net.deliver(1, 2), NOTHING);
    assert_eq!(net.deliver(3, 2), ["enter"]);
    assert_eq!(net.release(2), ["RELEASE(1) to all"]);
    net.deliver_all();
    assert_eq!(net.acquire(1), ["REQUEST(2) to all"], "later than the request it has seen");
    assert!(!net.nodes[&3].is_idle(), "its clock must not fall back");
}

#[test]
fn case_c_a_later_request_does_not_hold_back_the_reply() {
    let mut net = net("");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver(1, 2), ["REPLY(1) to 1"], "(1, 2) is later than (1, 1)");
}

#[test]
fn the_deferred_reply_waits_for_the_other_reply_and_not_for_the_release() {
    let mut net = net("");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver(2, 1), NOTHING, "2 may not know of (1, 1) yet: deferred");
    net.deliver(1, 2);
    assert_eq!(net.deliver(2, 1), ["REPLY(1) to 2"], "now it does");
    net.deliver(2, 3);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
    net.release(1);
    net.deliver_all();
    assert_eq!((net.inside(), net.fences), (vec![2], vec![1, 2]));
}

#[test]
fn case_b_a_peer_that_has_replied_is_replied_to_at_once() {
    let mut net = net("");
    net.acquire(1);
    net.deliver(1, 2);
    net.deliver(2, 1);
    assert_eq!(net.acquire(2), ["REQUEST(2) to all"]);
    assert_eq!(net.deliver(2, 1), ["REPLY(2) to 2"], "2 has (1, 1) in its queue");
    net.deliver(2, 3);
    net.deliver(3, 2);
    assert_eq!(net.deliver(1, 2), NOTHING, "all replies are there, and (1, 1) still in front");
}

#[test]
fn a_release_removes_what_it_names_and_nothing_else() {
    for (words, inside) in [("", vec![]), ("as-printed=T23", vec![3])] {
        let mut net = net(words);
        for node in [1, 2, 3] {
            net.acquire(node);
        }
        net.deliver_all();
        assert_eq!(net.inside(), [1]);
        assert_eq!(net.cancel(2), ["RELEASE(1) to all"]);
        assert_eq!(net.deliver(2, 3), NOTHING, "{words}: (1, 1) or (1, 2) is gone from 3's queue");
        net.release(1);
        net.inside.clear();
        // As printed, 3 has popped 1's request for 2's RELEASE; a second one that is none of its business lets it in.
        let again = LamportMessage::Release { time: 1, clock: 1, fence: 0 };
        net.receive(2, 3, again);
        assert_eq!(net.inside(), inside, "{words}");
    }
}

#[test]
fn a_request_given_up_leaves_nothing_behind() {
    let mut net = net("");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver(2, 1), NOTHING);
    assert_eq!(net.cancel(1), ["RELEASE(1) to all", "REPLY(1) to 2"], "who was deferred is answered");
    assert_eq!(net.deliver_first("RELEASE(1)", 1, 2), NOTHING);
    assert_eq!(
        net.deliver_first("REQUEST(1)", 1, 2),
        NOTHING,
        "withdrawn before it came: no REPLY, no entry in the queue"
    );
    net.deliver_all();
    assert_eq!(net.inside(), [2]);
    // A REPLY to a request that was given up says nothing about the next one.
    net.acquire(1);
    net.deliver(1, 3);
    net.cancel(1);
    net.acquire(1);
    assert_eq!(net.deliver(3, 1), NOTHING);
    net.release(2);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
}

#[test]
fn a_request_that_overtakes_the_release_before_it_stands_for_both() {
    let mut net = Net::<Lamport>::new([1, 2], "");
    net.pass_through(1);
    net.acquire(1);
    net.deliver_all();
    net.acquire(2);
    net.deliver_all();
    net.release(1);
    net.acquire(1);
    assert_eq!(net.deliver_first("REQUEST(4)", 1, 2), ["REPLY(4) to 1", "enter"]);
    assert_eq!(net.fences, [1, 2, 3], "the REQUEST carries 1's fence");
    assert_eq!(net.deliver_first("RELEASE(2)", 1, 2), NOTHING);
    net.deliver_all();
    assert_eq!(net.inside(), [2]);
}

#[test]
fn t24_check_asks_for_waiting_and_is_asked_by_a_request() {
    let mut lonely = Net::<Lamport>::new([1], "as-printed=T24");
    assert_eq!(lonely.acquire(1), NOTHING, "as printed a node that is alone waits forever");
    for (words, again) in [("", 0), ("as-printed=T24", 1)] {
        let mut net = net(words);
        net.acquire(1);
        net.deliver_all();
        assert_eq!(net.inside(), [1]);
        net.inside.clear(); // So that entering twice can be seen.
        let again_inside = net.receive(2, 1, LamportMessage::Reply { answers: 1, clock: 1 });
        assert_eq!(again_inside.len(), again, "{words}");
    }
}

#[test]
fn copies_and_messages_of_strangers_and_absurd_ones_have_no_effect() {
    let mut net = net("");
    net.acquire(1);
    let request = LamportMessage::Request { time: 1, fence: 0 };
    net.deliver(1, 2);
    assert_eq!(net.receive(1, 2, request.clone()), NOTHING);
    assert_eq!(net.receive(9, 2, request), NOTHING, "no member");
    assert_eq!(net.receive(2, 1, LamportMessage::Reply { answers: 1, clock: u64::MAX }), NOTHING);
    assert_eq!(net.receive(3, 2, LamportMessage::Request { time: u64::MAX, fence: 0 }), NOTHING);
    assert_eq!(net.receive(3, 2, LamportMessage::Release { time: u64::MAX, clock: 0, fence: 0 }), NOTHING);
    assert_eq!(net.deliver(2, 1), NOTHING);
    assert_eq!(
        net.receive(2, 1, LamportMessage::Reply { answers: 1, clock: 1 }),
        NOTHING,
        "the same node, not a second"
    );
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
    net.release(1);
    net.deliver_all();
    net.receive(3, 2, LamportMessage::Release { time: 0, clock: 0, fence: u64::MAX });
    net.acquire(2);
    net.deliver_all();
    assert_eq!(net.inside(), [0; 0], "a fence at its end refuses");
}

#[test]
fn initial_holders_are_waited_for() {
    let readers = [NodeId(3), NodeId(1)];
    let mut net = Net::<Lamport>::with_initial(View::new([1, 2, 3].map(NodeId)), "", initial(&readers, 41));
    net.acquire(2);
    net.deliver_all();
    net.release(3);
    net.deliver_all();
    assert_eq!(net.inside(), [1], "the other reader is still there");
    assert_eq!(net.release(1), ["RELEASE(0) to all"]);
    net.deliver_all();
    assert_eq!((net.inside(), net.fences), (vec![2], vec![42]));
}

#[test]
fn alone_and_at_the_end_of_fences() {
    assert_enters_alone::<Lamport>("");
    assert_refuses_past_the_last_fence::<Lamport>("");
}

#[test]
fn options_are_checked() {
    assert!(parse::<Lamport>("as-printed=T22").unwrap_err().contains("T23, T24"));
    assert!(parse::<Lamport>("queue=fifo").unwrap_err().contains("no option 'queue'"));
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(a in count(), b in count(), c in fence(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        assert_round_trip(&LamportMessage::Request { time: a, fence: c });
        assert_round_trip(&LamportMessage::Reply { answers: a, clock: b });
        assert_round_trip(&LamportMessage::Release { time: a, clock: b, fence: c });
        assert_kinds::<LamportMessage>(1..=3);
        assert_canonical::<LamportMessage>(&bytes);
    }
}
