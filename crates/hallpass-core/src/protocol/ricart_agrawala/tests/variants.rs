//! Sections 6.1 and 6.2: implicit reply and broadcast.

use super::RaTimer::RoundTrip;
use super::*;

type Plain = Net<RicartAgrawala>;

#[test]
fn implicit_silence_is_permission_once_the_round_trip_is_over() {
    let mut net = Plain::new([1, 2, 3], "reply=implicit");
    assert_eq!(net.acquire(1), ["REQUEST(1) to all", "set RoundTrip 21"]);
    assert_eq!(net.deliver(1, 2), NOTHING);
    assert_eq!(net.deliver(1, 3), NOTHING);
    assert_eq!(net.fire(1, RoundTrip), ["cancel RoundTrip", "enter"]);
    assert_eq!(net.release(1), NOTHING);
}

#[test]
fn implicit_the_wait_is_twice_the_longest_transit_and_a_tick() {
    let mut net = Plain::new([1, 2], "reply=implicit transit-max=2T");
    assert_eq!(net.acquire(1), ["REQUEST(1) to all", "set RoundTrip 4001"]);
}

#[test]
fn implicit_a_node_that_gets_deferred_waits_for_the_reply() {
    let mut net = Plain::new([1, 2, 3], "reply=implicit");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver(1, 2), NOTHING);
    assert_eq!(net.deliver(2, 1), ["DEFERRED(1) to 2"]);
    assert_eq!(net.deliver(1, 2), NOTHING);
    assert_eq!(net.fire(1, RoundTrip), ["cancel RoundTrip", "enter"]);
    assert_eq!(net.fire(2, RoundTrip), NOTHING, "node 1 has sent DEFERRED");
    assert_eq!(net.release(1), ["REPLY(1) to 2"]);
    assert_eq!(net.deliver(1, 2), ["cancel RoundTrip", "enter"]);
}

#[test]
fn implicit_a_reply_that_comes_in_time_does_not_open_alone() {
    let mut net = Plain::new([1, 2, 3], "reply=implicit");
    net.acquire(1);
    net.acquire(2);
    net.deliver(2, 1);
    net.deliver(1, 2);
    net.cancel(1);
    assert_eq!(net.deliver(1, 2), NOTHING, "DEFERRED");
    assert_eq!(net.deliver(1, 2), NOTHING, "a REPLY, but node 3 may still send DEFERRED");
    assert_eq!(net.fire(2, RoundTrip), ["cancel RoundTrip", "enter"]);
}

#[test]
fn implicit_a_reply_that_overtakes_its_deferred_counts() {
    let mut net = Plain::new([1, 2], "reply=implicit");
    net.acquire(1);
    net.acquire(2);
    net.deliver(1, 2);
    assert_eq!(net.deliver(2, 1), ["DEFERRED(1) to 2"]);
    assert_eq!(net.cancel(1), ["cancel RoundTrip", "REPLY(1) to 2"]);
    assert_eq!(net.deliver_first("REPLY", 1, 2), ["cancel RoundTrip", "enter"]);
    assert_eq!(net.deliver_first("DEFERRED", 1, 2), NOTHING);
    net.release(2);

    // The same with a third node, so that the DEFERRED comes while node 2 still waits.
    let mut net = Plain::new([1, 2, 3], "reply=implicit");
    net.acquire(1);
    net.acquire(2);
    net.deliver(1, 2);
    net.deliver(2, 1);
    net.cancel(1);
    assert_eq!(net.deliver_first("REPLY", 1, 2), NOTHING);
    assert_eq!(net.deliver_first("DEFERRED", 1, 2), NOTHING);
    assert_eq!(net.fire(2, RoundTrip), ["cancel RoundTrip", "enter"]);
}

#[test]
fn implicit_a_deferred_to_a_request_given_up_does_not_hold_the_next() {
    let mut net = Plain::new([1, 2], "reply=implicit");
    net.acquire(1);
    net.acquire(2);
    net.deliver(1, 2);
    net.deliver(2, 1);
    assert_eq!(net.cancel(2), ["cancel RoundTrip"]);
    net.acquire(2);
    assert_eq!(net.deliver_first("DEFERRED", 1, 2), NOTHING);
    assert_eq!(net.fire(2, RoundTrip), ["cancel RoundTrip", "enter"]);
}

#[test]
fn t10_as_printed_on_the_slides_no_reply_follows_a_deferred() {
    let mut net = Plain::new([1, 2], "reply=implicit as-printed=T10");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver(2, 1), ["DEFERRED(1) to 2"]);
    assert_eq!(net.fire(1, RoundTrip), ["cancel RoundTrip", "enter"]);
    assert_eq!(net.release(1), NOTHING);
}

#[test]
fn broadcast_one_reply_with_a_list_answers_all_that_were_deferred() {
    let mut net = Plain::new([1, 2, 3, 4], "request=broadcast release=broadcast");
    for node in [1, 2, 3] {
        net.acquire(node);
    }
    net.deliver(2, 1);
    net.deliver(3, 1);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
    assert_eq!(net.release(1), ["REPLY(1 of 2, 1 of 3) to all"]);
    assert_eq!(net.deliver(1, 2), ["enter"]);
    assert_eq!(net.deliver(1, 3), NOTHING);
    assert_eq!(net.deliver(1, 4), NOTHING);
}

#[test]
fn broadcast_with_nobody_to_answer_sends_nothing() {
    for words in ["release=broadcast", "release=unlisted"] {
        let mut net = Plain::new([1, 2], words);
        net.acquire(1);
        net.deliver_all();
        assert_eq!(net.release(1), NOTHING);
    }
}

/// Footnote 2: node 2's REQUEST is still on its way to node 1 when node 1 broadcasts the REPLY it owes node 3.
fn footnote_2(words: &str) -> Vec<u32> {
    let mut net = Plain::new([1, 2, 3], words);
    if words.contains("release=unlisted") {
        net = net.without_exclusion();
    }
    net.acquire(1);
    net.acquire(3);
    net.deliver(1, 2);
    net.deliver(1, 3);
    net.deliver(3, 1);
    net.deliver(3, 2);
    net.deliver(2, 1);
    assert_eq!(net.deliver(3, 1), ["enter"]);
    assert_eq!(net.acquire(2), ["REQUEST(2) to all"]);
    net.deliver_first("REQUEST", 2, 3);
    net.release(1);
    net.deliver(1, 2);
    net.deliver(1, 3);
    assert_eq!(net.deliver(2, 3), ["enter"]);
    net.release(3);
    net.deliver(3, 2);
    // 'Node 1 may make a new request with sequence number 2 and be entitled to enter its critical section first.'
    net.take(3, 1); // What node 3 broadcast does not concern node 1.
    assert_eq!(net.acquire(1), ["REQUEST(2) to all"]);
    net.deliver_all();
    net.inside()
}

#[test]
fn footnote_2_only_the_listed_take_a_broadcast_reply() {
    assert_eq!(footnote_2("reply-number=false release=broadcast"), [1]);
}

#[test]
fn footnote_2_without_the_list_two_are_inside() {
    assert_eq!(footnote_2("reply-number=false release=unlisted"), [1, 2]);
}

#[test]
fn t2_a_deferral_noted_too_late_is_lost() {
    use super::RaTimer::NoteDeferral;
    let mut net = Plain::new([1, 2], "as-printed=T2");
    net.acquire(1);
    net.acquire(2);
    let note = NoteDeferral(NodeId(2), 1);
    assert_eq!(net.deliver(2, 1), [format!("set {note:?}")]);
    assert_eq!(net.cancel(1), NOTHING);
    assert_eq!(net.fire(1, note), NOTHING);
    assert!(!net.nodes[&1].is_idle(), "a REPLY is owed that nobody will send");
}

#[test]
fn t3_a_number_noted_too_late_is_chosen_again() {
    use super::RaTimer::NoteNumber;
    let mut net = Plain::new([1, 2], "as-printed=T3");
    net.receive(2, 1, RaMessage::Request { number: 8, mode: Mode::Exclusive });
    assert_eq!(net.nodes[&1].highest_number(), 0);
    net.fire(1, NoteNumber(8));
    assert_eq!(net.nodes[&1].highest_number(), 8);
}
