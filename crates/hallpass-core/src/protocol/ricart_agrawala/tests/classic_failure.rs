//! Section 7.4: nodes that fail, or seem to.

use super::ClassicTimer::{Overdue, Unanswered};
use super::*;

type Group = Net<Classic>;

/// Node 3 is inside and node 1 has asked with number 2; what it sent to node 3 is still on its way.
fn three_is_inside(words: &str) -> Group {
    let mut net = Group::new([1, 2, 3], words);
    net.acquire(3);
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
    assert_eq!(net.acquire(1), ["REQUEST(2) to 2", "REQUEST(2) to 3", "set Overdue 121"]);
    net.deliver(1, 2);
    assert_eq!(net.deliver(2, 1), ["set Overdue 121"]);
    net
}

/// Node 1 has declared node 3 failed, though it has not.
fn three_is_declared_failed() -> Group {
    let mut net = three_is_inside("").without_exclusion();
    net.deliver(1, 3);
    net.fire(1, Overdue);
    net.take(1, 3);
    net.fire(1, Unanswered);
    net.take(1, 3);
    net.fire(1, Unanswered);
    assert_eq!(net.inside(), [1, 3], "T7");
    net
}

#[test]
fn the_timer_starts_at_the_request_restarts_at_each_reply_and_is_cancelled_at_entry() {
    let mut net = Group::new([1, 2, 3], "");
    assert_eq!(net.acquire(1).last().unwrap(), "set Overdue 121");
    net.deliver(1, 2);
    net.deliver(1, 3);
    assert_eq!(net.deliver(3, 1), ["set Overdue 121"]);
    assert_eq!(net.deliver(2, 1), ["cancel Overdue", "cancel Unanswered", "enter"]);
    assert!(net.timers.is_empty());
    net.release(1);
    assert!(net.timers.is_empty());
}

#[test]
fn giving_up_cancels_the_timers() {
    let mut net = Group::new([1, 2], "");
    net.acquire(1);
    net.fire(1, Overdue);
    assert!(net.timers.contains_key(&(1, Unanswered)));
    net.cancel(1);
    assert!(net.timers.is_empty());
}

#[test]
fn a_request_given_up_while_others_are_probed_leaves_the_next_one_its_timer() {
    let mut net = Group::new([1, 2, 3], "");
    net.acquire(1);
    net.fire(1, Overdue);
    net.cancel(1);
    net.in_flight.clear();
    net.acquire(1);
    net.deliver(1, 2);
    assert_eq!(net.deliver(2, 1), ["set Overdue 121"]);
}

#[test]
fn the_wait_is_a_round_trip_and_a_section() {
    let mut net = Group::new([1, 2], "transit-max=1T section-max=5T");
    assert_eq!(net.acquire(1), ["REQUEST(1) to 2", "set Overdue 7001"]);
    assert_eq!(net.fire(1, Overdue), ["ARE_YOU_THERE(1) to 2", "set Unanswered 2001"]);
}

#[test]
fn a_node_that_answers_yes_i_am_here_is_waited_for_however_long_its_section_is() {
    let mut net = three_is_inside("");
    assert_eq!(net.deliver(1, 3), NOTHING);
    for _ in 0..5 {
        assert_eq!(net.fire(1, Overdue), ["ARE_YOU_THERE(2) to 3", "set Unanswered 21"], "only who is awaited");
        assert_eq!(net.deliver(1, 3), ["YES_I_AM_HERE(2) to 1"]);
        assert_eq!(net.deliver(3, 1), NOTHING);
        assert_eq!(net.fire(1, Unanswered), ["set Overdue 121"]);
    }
    assert_eq!(net.release(3), ["cancel Overdue", "cancel Unanswered", "REPLY(2) to 1"], "one REPLY, not six");
    assert_eq!(net.deliver(3, 1), ["cancel Overdue", "cancel Unanswered", "enter"]);
}

#[test]
fn a_yes_i_am_here_for_an_older_request_does_not_count() {
    let mut net = three_is_inside("probes=1").without_exclusion();
    net.deliver(1, 3);
    net.fire(1, Overdue);
    net.deliver(1, 3);
    net.cancel(1);
    assert_eq!(net.acquire(1), ["REQUEST(3) to 2", "REQUEST(3) to 3", "set Overdue 121"]);
    net.deliver(1, 2);
    net.deliver(2, 1);
    assert_eq!(net.fire(1, Overdue), ["ARE_YOU_THERE(3) to 3", "set Unanswered 21"]);
    assert_eq!(net.deliver_first("YES_I_AM_HERE", 3, 1), NOTHING);
    assert_eq!(net.fire(1, Unanswered)[..2], ["FAILED(3) to 2", "FAILED(3) to 3"]);
}

#[test]
fn a_node_that_answers_no_probe_has_failed_and_all_are_notified() {
    for (words, probes) in [("", 2), ("probes=1", 1), ("probes=4", 4)] {
        let mut net = three_is_inside(words);
        net.crash(3);
        assert_eq!(net.fire(1, Overdue), ["ARE_YOU_THERE(2) to 3", "set Unanswered 21"]);
        for _ in 1..probes {
            assert_eq!(net.fire(1, Unanswered), ["ARE_YOU_THERE(2) to 3", "set Unanswered 21"], "{words}");
        }
        let effects = net.fire(1, Unanswered);
        assert_eq!(
            effects,
            ["FAILED(3) to 2", "FAILED(3) to 3", "cancel Overdue", "cancel Unanswered", "enter"],
            "{words}"
        );
        assert!(net.timers.is_empty());
        net.release(1);
        assert_eq!(net.acquire(1), ["REQUEST(3) to 2", "set Overdue 121"]);
    }
}

#[test]
fn a_probe_that_is_answered_in_the_second_round_is_an_answer() {
    let mut net = three_is_inside("");
    net.deliver(1, 3);
    net.fire(1, Overdue);
    net.take(1, 3);
    net.fire(1, Unanswered);
    net.deliver(1, 3);
    net.deliver(3, 1);
    assert_eq!(net.fire(1, Unanswered), ["set Overdue 121"]);
}

#[test]
fn of_two_suspects_only_the_silent_one_fails() {
    let mut net = Group::new([1, 2, 3], "probes=1");
    net.acquire(2);
    net.deliver_all();
    net.acquire(1);
    assert_eq!(
        net.fire(1, Overdue),
        ["ARE_YOU_THERE(2) to 2", "ARE_YOU_THERE(2) to 3", "set Unanswered 21"],
        "nobody has replied"
    );
    net.deliver_first("ARE_YOU_THERE", 1, 2);
    net.deliver(2, 1);
    assert_eq!(net.fire(1, Unanswered), ["FAILED(3) to 2", "FAILED(3) to 3", "set Overdue 121"]);
    net.release(2);
    assert_eq!(net.deliver_first("REPLY", 2, 1), ["cancel Overdue", "cancel Unanswered", "enter"]);
}

#[test]
fn the_reply_of_a_node_that_failed_is_pretended() {
    let mut net = Group::new([1, 2, 3], "");
    net.acquire(2);
    net.take(2, 3);
    net.deliver(2, 1);
    net.deliver(1, 2);
    let body = Body::Failed { node: NodeId(3), incarnation: 0 };
    let failed = ClassicMessage { from: 0, to: 0, body };
    assert_eq!(net.receive(1, 2, failed.clone()), ["cancel Overdue", "cancel Unanswered", "enter"]);
    assert_eq!(net.receive(1, 2, failed), NOTHING);
}

#[test]
fn a_node_that_fails_while_it_is_deferred_is_not_answered() {
    let mut net = three_is_inside("");
    net.deliver(1, 3);
    let body = Body::Failed { node: NodeId(1), incarnation: 0 };
    net.receive(2, 3, ClassicMessage { from: 0, to: 0, body });
    assert_eq!(net.release(3), ["cancel Overdue", "cancel Unanswered"]);
}

#[test]
fn t5_a_probe_stands_for_a_request_that_was_lost() {
    let mut net = three_is_inside("");
    net.take(1, 3);
    net.fire(1, Overdue);
    assert_eq!(net.deliver(1, 3), ["YES_I_AM_HERE(2) to 1"], "it is inside, and has not received the REQUEST");
    net.deliver(3, 1);
    assert_eq!(net.inside(), [3]);
    assert_eq!(net.nodes[&3].highest_number(), 2, "the probe's number counts like the REQUEST's");
    assert_eq!(net.release(3).last().unwrap(), "REPLY(2) to 1");
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
}

#[test]
fn t5_as_printed_two_are_inside() {
    let mut net = three_is_inside("as-printed=T5");
    net.take(1, 3);
    net.fire(1, Overdue);
    assert_eq!(net.deliver(1, 3), ["REPLY(2) to 1"]);
    net.deliver(3, 1);
    assert_eq!(net.inside(), [1, 3]);
}

#[test]
fn a_probe_to_a_node_that_wants_nothing_is_answered_by_the_reply_that_was_lost() {
    for words in ["", "as-printed=T5"] {
        let mut net = Group::new([1, 2], words);
        net.acquire(1);
        net.deliver(1, 2);
        net.take(2, 1);
        net.fire(1, Overdue);
        assert_eq!(net.deliver(1, 2), ["REPLY(1) to 1"]);
        assert_eq!(net.deliver(2, 1), ["cancel Overdue", "cancel Unanswered", "enter"]);
    }
}

#[test]
fn the_request_of_a_node_on_nobodys_list_is_answered_by_restart() {
    let mut net = three_is_declared_failed();
    net.in_flight.clear();
    net.release(3);
    net.in_flight.clear();
    assert_eq!(net.acquire(3).len(), 3);
    assert_eq!(net.deliver(3, 1), ["RESTART to 3"], "instead of a REPLY or of silence");
    assert_eq!(net.deliver(1, 3), ["cancel Overdue", "cancel Unanswered", "restart"], "at once: it only waits");
}

#[test]
fn the_probe_of_a_node_on_nobodys_list_is_answered_by_restart() {
    let mut net = Group::new([1, 2], "");
    let body = Body::AreYouThere { number: 3, mode: Mode::Exclusive };
    assert_eq!(net.receive(9, 1, ClassicMessage { from: 0, to: u32::MAX, body }), ["RESTART to 9"]);
}

#[test]
fn asked_to_restart_while_waiting_it_first_answers_those_it_deferred() {
    let mut net = Group::new([1, 2, 3], "");
    net.acquire(1);
    net.acquire(2);
    net.deliver(2, 1);
    let body = Body::RestartYourself;
    assert_eq!(
        net.receive(3, 1, ClassicMessage { from: 0, to: 0, body }),
        ["cancel Overdue", "cancel Unanswered", "REPLY(1) to 2", "restart"]
    );
}

#[test]
fn asked_to_restart_while_idle_it_does_at_once() {
    let mut net = Group::new([1, 2], "");
    let message = ClassicMessage { from: 0, to: 0, body: Body::RestartYourself };
    assert_eq!(net.receive(2, 1, message).last().unwrap(), "restart");
}

#[test]
fn declared_failed_while_inside_it_restarts_only_after_the_release() {
    let mut net = three_is_declared_failed();
    assert_eq!(net.deliver_first("FAILED", 1, 3), NOTHING);
    assert_eq!(net.inside(), [1, 3]);
    let effects = net.release(3);
    assert_eq!(effects, ["cancel Overdue", "cancel Unanswered", "REPLY(2) to 1", "restart"]);
    assert_eq!(net.deliver_first("REPLY", 3, 1), NOTHING, "node 1 has removed it");
}

#[test]
fn a_node_that_restarts_gets_back_in() {
    let mut net = three_is_declared_failed();
    net.deliver_all();
    net.release(1);
    net.release(3);
    net.deliver_all();
    net.start(3, 1, InitialHolders::NOBODY);
    net.acquire(3);
    net.act(3, Input::Join { sponsor: NodeId(1) });
    net.deliver_all();
    net.fire(3, ClassicTimer::RestartInterval);
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
    net.release(3);
    for node in [1, 2, 3] {
        net.pass_through(node);
    }
}

#[test]
fn a_reply_of_a_node_that_is_gone_opens_nothing() {
    let mut net = Group::new([1, 2, 3], "");
    let body = Body::Failed { node: NodeId(3), incarnation: 0 };
    net.receive(2, 1, ClassicMessage { from: 0, to: 0, body });
    net.acquire(1);
    let reply = RaMessage::Reply { answers: 1, highest: 50, fence: 0 };
    let before = net.nodes[&1].clone();
    assert_eq!(net.receive(3, 1, ClassicMessage { from: 0, to: 0, body: Body::Base(reply) }), NOTHING);
    assert_eq!(net.nodes[&1], before);
}
