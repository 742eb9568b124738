use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::protocol::testing::{
    NOTHING, Net, assert_canonical, assert_enters_alone, assert_kinds, assert_refuses_past_the_last_fence,
    assert_round_trip, count, fence, initial,
};
use crate::{Fence, View};

type Group = Net<Maekawa>;

#[test]
fn any_two_quorums_share_a_node_for_every_group_size() {
    for count in 1..=200 {
        let quorums: Vec<BTreeSet<usize>> = (0..count).map(|node| grid_quorum(count, node).collect()).collect();
        let side = (count as f64).sqrt().ceil() as usize;
        for (node, quorum) in quorums.iter().enumerate() {
            assert!(quorum.contains(&node) && quorum.len() < 2 * side, "{count}: {node}");
            assert!(quorum.iter().all(|other| quorums[*other].contains(&node)), "{count}: my arbiters are my clients");
            assert!(quorums.iter().all(|other| !quorum.is_disjoint(other)), "{count}: {node} meets everybody");
        }
    }
}

/// Quorums of four nodes: 1: 1 2 3, 2: 1 2 4, 3: 1 3 4, 4: 2 3 4.
#[test]
fn three_messages_for_every_other_node_of_the_quorum() {
    let mut net = Group::new(1..=4, "");
    assert_eq!(net.acquire(1), ["REQUEST(1) to 2", "REQUEST(1) to 3"]);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), ["LOCKED(1, vote 1) to 1"]);
    assert_eq!(net.deliver_first("REQUEST", 1, 3), ["LOCKED(1, vote 1) to 1"]);
    assert_eq!(net.deliver_first("LOCKED", 2, 1), NOTHING);
    assert_eq!(net.deliver_first("LOCKED", 3, 1), ["enter"]);
    assert_eq!(net.release(1), ["RELEASE(1) to 2", "RELEASE(1) to 3"]);
    net.deliver_all();
    net.pass_through(4);
    assert_eq!(net.fences, [1, 2], "1 and 4 have arbiters 2 and 3 in common");
}

#[test]
fn a_later_request_fails_and_is_served_after_the_release() {
    let mut net = Group::new(1..=3, "");
    net.acquire(1);
    net.deliver_all();
    assert_eq!(net.acquire(2), ["REQUEST(2) to 1"]);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["FAILED(2) to 2"]);
    net.deliver_all();
    net.release(1);
    net.deliver_all();
    assert!(net.is_inside(2));
}

#[test]
fn an_earlier_request_gets_the_vote_of_a_later_one_that_has_failed() {
    let mut net = Group::new(1..=4, "");
    net.acquire(1);
    net.acquire(4);
    net.deliver_first("REQUEST", 4, 2);
    net.deliver_first("REQUEST", 1, 3);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), ["INQUIRE(1, vote 1) to 4"]);
    assert_eq!(net.deliver_first("REQUEST", 4, 3), ["FAILED(1) to 4"]);
    net.deliver_first("LOCKED", 2, 4);
    assert_eq!(net.deliver_first("INQUIRE", 2, 4), NOTHING, "it may still get all votes");
    assert_eq!(net.deliver_first("FAILED", 3, 4), ["RELINQUISH(1, vote 1) to 2"]);
    assert_eq!(net.deliver_first("RELINQUISH", 4, 2), ["LOCKED(1, vote 2) to 1"]);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
    net.release(1);
    net.deliver_all();
    assert_eq!(net.inside(), [4]);
}

#[test]
fn inquire_may_overtake_locked_and_waits_for_it() {
    let mut net = Group::new(1..=4, "");
    net.acquire(1);
    net.acquire(4);
    net.deliver_first("REQUEST", 4, 2);
    net.deliver_first("REQUEST", 1, 2);
    net.deliver_first("REQUEST", 1, 3);
    net.deliver_first("REQUEST", 4, 3);
    net.deliver_first("FAILED", 3, 4);
    assert_eq!(net.deliver_first("INQUIRE", 2, 4), NOTHING, "there is no vote to give back yet");
    assert_eq!(net.deliver_first("LOCKED", 2, 4), ["RELINQUISH(1, vote 1) to 2"]);
}

#[test]
fn an_inquiry_about_an_old_vote_does_not_touch_the_new_one() {
    let mut net = Group::new(1..=4, "");
    net.acquire(1);
    net.acquire(4);
    net.deliver_first("REQUEST", 4, 2);
    net.deliver_first("REQUEST", 1, 3);
    net.deliver_first("REQUEST", 1, 2);
    net.deliver_first("REQUEST", 4, 3);
    let old_locked = net.take_first("LOCKED", 2, 4);
    let old_inquire = net.take_first("INQUIRE", 2, 4);
    net.receive(2, 4, old_locked.clone());
    net.receive(2, 4, old_inquire.clone());
    net.deliver_first("FAILED", 3, 4);
    let old_relinquish = net.take_first("RELINQUISH", 4, 2);
    net.receive(4, 2, old_relinquish.clone());
    assert_eq!(net.receive(2, 4, old_locked), NOTHING, "a copy of a vote that was given back is none");
    assert!(!net.nodes[&4].votes[0].held);
    net.cancel(1);
    net.deliver_all();
    assert!(net.is_inside(4), "the second vote of 2 counts");
    assert_eq!(net.receive(2, 4, old_inquire), NOTHING);
    assert_eq!(net.receive(4, 2, old_relinquish), NOTHING);
}

#[test]
fn a_waiter_that_is_overtaken_gets_failed_unless_failed_is_for_arrivals() {
    for (words, expected) in [("", vec!["FAILED(4) to 3"]), ("failed=arrival", vec![])] {
        let mut net = Group::new(1..=9, words);
        let mut ask = |from, number| net.receive(from, 1, MaekawaMessage::Request { number, fence: 0 });
        assert_eq!(ask(2, 5), ["LOCKED(5, vote 1) to 2"]);
        assert_eq!(
            ask(3, 4),
            ["INQUIRE(5, vote 1) to 2"],
            "{words}: 3 is the first, and earlier than who has the vote"
        );
        assert_eq!(ask(4, 3), expected, "{words}: now it is not the first any more");
        assert_eq!(ask(7, 6), ["FAILED(6) to 7"], "{words}");
    }
}

#[test]
fn a_release_that_overtakes_its_request_is_remembered() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    assert_eq!(net.cancel(2), ["RELEASE(1) to 1"]);
    assert_eq!(net.deliver_first("RELEASE", 2, 1), NOTHING);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), NOTHING, "no vote for a request that is over");
    net.pass_through(1);
}

#[test]
fn a_request_that_overtakes_the_release_before_it_stands_for_it() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    net.deliver_all();
    net.release(2);
    net.acquire(2);
    let request = net.take_first("REQUEST", 2, 1);
    assert_eq!(net.receive(2, 1, request), ["LOCKED(2, vote 2) to 2"]);
    assert_eq!(net.deliver_first("RELEASE", 2, 1), NOTHING, "it does not release the new one");
    net.deliver_all();
    assert_eq!(net.fences, [1, 2]);
}

#[test]
fn a_vote_for_a_request_that_was_given_up_does_not_count_for_the_next() {
    let mut net = Group::new(1..=3, "");
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    net.cancel(2);
    net.acquire(2);
    assert_eq!(net.deliver_first("LOCKED", 1, 2), NOTHING);
    net.deliver_all();
    assert!(net.is_inside(2));
}

#[test]
fn the_arbiters_of_the_initial_holder_have_voted_for_it() {
    let mut net = Group::with_initial(View::new((1..=4).map(NodeId)).with_epoch(1), "", initial(&[NodeId(3)], 41));
    net.acquire(2);
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
    net.release(3);
    net.deliver_all();
    assert_eq!(net.inside(), [2]);
    assert_eq!(net.fences, [Fence::compose(1, 42).unwrap().get()]);
}

#[test]
fn alone_and_past_the_last_fence() {
    assert_enters_alone::<Maekawa>("");
    assert_refuses_past_the_last_fence::<Maekawa>("");
}

#[test]
fn invalid_messages_do_no_harm() {
    let mut net = Group::new(1..=3, "");
    for number in [0, 1, u64::MAX - 1, u64::MAX] {
        for other in [0, 1, u64::MAX] {
            for message in [
                MaekawaMessage::Locked { number, grant: other, highest: other, fence: 0 },
                MaekawaMessage::Failed { number, grant: other },
                MaekawaMessage::Inquire { number, grant: other },
                MaekawaMessage::Relinquish { number, grant: other },
            ] {
                assert_eq!(net.receive(1, 2, message.clone()), NOTHING);
                assert_eq!(net.receive(3, 2, message), NOTHING, "3 is no arbiter of 2");
            }
            assert_eq!(net.receive(3, 2, MaekawaMessage::Request { number, fence: other }), NOTHING);
        }
    }
    assert_eq!(net.receive(1, 2, MaekawaMessage::Request { number: u64::MAX, fence: 0 }), NOTHING);
    net.pass_through(2);
}

#[test]
fn only_an_untouched_instance_may_be_dropped() {
    let mut net = Group::new(1..=3, "");
    net.pass_through(2);
    assert!(net.nodes[&3].is_idle(), "3 is not in the quorum of 2");
    assert!(!net.nodes[&1].is_idle() && !net.nodes[&2].is_idle());
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(
        kind in 0..6, number in count(), grant in count(), highest in count(), fence in fence()
    ) {
        let message = match kind {
            0 => MaekawaMessage::Request { number, fence },
            1 => MaekawaMessage::Locked { number, grant, highest, fence },
            2 => MaekawaMessage::Failed { number, grant },
            3 => MaekawaMessage::Inquire { number, grant },
            4 => MaekawaMessage::Relinquish { number, grant },
            _ => MaekawaMessage::Release { number, fence },
        };
        assert_round_trip(&message);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        assert_canonical::<MaekawaMessage>(&bytes);
    }
}

#[test]
fn other_kinds_of_messages_are_refused() {
    assert_kinds::<MaekawaMessage>(1..=6);
}
