use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::protocol::hands::{Hands, NOTHING};
use crate::{Fence, InitialHolders, View};

type Net = Hands<Maekawa>;

#[test]
fn any_two_quorums_share_a_node_for_every_group_size() {
    for count in 1..=200 {
        let quorums: Vec<BTreeSet<usize>> = (0..count).map(|at| grid_quorum(count, at).collect()).collect();
        let side = (count as f64).sqrt().ceil() as usize;
        for (at, quorum) in quorums.iter().enumerate() {
            assert!(quorum.contains(&at) && quorum.len() < 2 * side, "{count}: {at}");
            assert!(quorum.iter().all(|other| quorums[*other].contains(&at)), "{count}: my arbiters are my clients");
            assert!(quorums.iter().all(|other| !quorum.is_disjoint(other)), "{count}: {at} meets everybody");
        }
    }
}

/// Quorums of four nodes: 1: 1 2 3, 2: 1 2 4, 3: 1 3 4, 4: 2 3 4.
#[test]
fn three_messages_for_every_other_node_of_the_quorum() {
    let mut net = Net::new(4, "");
    assert_eq!(net.ask(1), ["REQUEST(1) to 2", "REQUEST(1) to 3"]);
    assert_eq!(net.deliver("REQUEST", 1, 2), ["LOCKED(1, vote 1) to 1"]);
    assert_eq!(net.deliver("REQUEST", 1, 3), ["LOCKED(1, vote 1) to 1"]);
    assert_eq!(net.deliver("LOCKED", 2, 1), NOTHING);
    assert_eq!(net.deliver("LOCKED", 3, 1), ["enter"]);
    assert_eq!(net.exit(1), ["RELEASE(1) to 2", "RELEASE(1) to 3"]);
    net.settle();
    net.pass_through(4);
    assert_eq!(net.fences, [1, 2], "1 and 4 have arbiters 2 and 3 in common");
}

#[test]
fn a_later_request_fails_and_is_served_after_the_release() {
    let mut net = Net::new(3, "");
    net.ask(1);
    net.settle();
    assert_eq!(net.ask(2), ["REQUEST(2) to 1"]);
    assert_eq!(net.deliver("REQUEST", 2, 1), ["FAILED(2) to 2"]);
    net.settle();
    net.exit(1);
    net.settle();
    assert!(net.inside.contains(&2));
}

#[test]
fn an_earlier_request_gets_the_vote_of_a_later_one_that_has_failed() {
    let mut net = Net::new(4, "");
    net.ask(1);
    net.ask(4);
    net.deliver("REQUEST", 4, 2);
    net.deliver("REQUEST", 1, 3);
    assert_eq!(net.deliver("REQUEST", 1, 2), ["INQUIRE(1, vote 1) to 4"]);
    assert_eq!(net.deliver("REQUEST", 4, 3), ["FAILED(1) to 4"]);
    net.deliver("LOCKED", 2, 4);
    assert_eq!(net.deliver("INQUIRE", 2, 4), NOTHING, "it may still get all votes");
    assert_eq!(net.deliver("FAILED", 3, 4), ["RELINQUISH(1, vote 1) to 2"]);
    assert_eq!(net.deliver("RELINQUISH", 4, 2), ["LOCKED(1, vote 2) to 1"]);
    net.settle();
    assert_eq!(net.inside, BTreeSet::from([1]));
    net.exit(1);
    net.settle();
    assert_eq!(net.inside, BTreeSet::from([4]));
}

#[test]
fn inquire_may_overtake_locked_and_waits_for_it() {
    let mut net = Net::new(4, "");
    net.ask(1);
    net.ask(4);
    net.deliver("REQUEST", 4, 2);
    net.deliver("REQUEST", 1, 2);
    net.deliver("REQUEST", 1, 3);
    net.deliver("REQUEST", 4, 3);
    net.deliver("FAILED", 3, 4);
    assert_eq!(net.deliver("INQUIRE", 2, 4), NOTHING, "there is no vote to give back yet");
    assert_eq!(net.deliver("LOCKED", 2, 4), ["RELINQUISH(1, vote 1) to 2"]);
}

#[test]
fn an_inquiry_about_an_old_vote_does_not_touch_the_new_one() {
    let mut net = Net::new(4, "");
    net.ask(1);
    net.ask(4);
    net.deliver("REQUEST", 4, 2);
    net.deliver("REQUEST", 1, 3);
    net.deliver("REQUEST", 1, 2);
    net.deliver("REQUEST", 4, 3);
    let old_locked = net.take("LOCKED", 2, 4);
    let old_inquire = net.take("INQUIRE", 2, 4);
    net.receive(2, 4, old_locked.clone());
    net.receive(2, 4, old_inquire.clone());
    net.deliver("FAILED", 3, 4);
    let old_relinquish = net.take("RELINQUISH", 4, 2);
    net.receive(4, 2, old_relinquish.clone());
    assert_eq!(net.receive(2, 4, old_locked), NOTHING, "a copy of a vote that was given back is none");
    assert!(!net.nodes[&4].votes[0].held);
    net.cancel(1);
    net.settle();
    assert!(net.inside.contains(&4), "the second vote of 2 counts");
    assert_eq!(net.receive(2, 4, old_inquire), NOTHING);
    assert_eq!(net.receive(4, 2, old_relinquish), NOTHING);
}

#[test]
fn a_waiter_that_is_overtaken_is_told_unless_failed_is_for_arrivals() {
    for (words, told) in [("", vec!["FAILED(4) to 3"]), ("failed=arrival", vec![])] {
        let mut net = Net::new(9, words);
        let mut ask = |from, number| net.receive(from, 1, MaekawaMessage::Request { number, fence: 0 });
        assert_eq!(ask(2, 5), ["LOCKED(5, vote 1) to 2"]);
        assert_eq!(
            ask(3, 4),
            ["INQUIRE(5, vote 1) to 2"],
            "{words}: 3 is the first, and earlier than who has the vote"
        );
        assert_eq!(ask(4, 3), told, "{words}: now it is not the first any more");
        assert_eq!(ask(7, 6), ["FAILED(6) to 7"], "{words}");
    }
}

#[test]
fn a_release_that_overtakes_its_request_is_remembered() {
    let mut net = Net::new(3, "");
    net.ask(2);
    assert_eq!(net.cancel(2), ["RELEASE(1) to 1"]);
    assert_eq!(net.deliver("RELEASE", 2, 1), NOTHING);
    assert_eq!(net.deliver("REQUEST", 2, 1), NOTHING, "no vote for a request that is over");
    net.pass_through(1);
}

#[test]
fn a_request_that_overtakes_the_release_before_it_stands_for_it() {
    let mut net = Net::new(3, "");
    net.ask(2);
    net.settle();
    net.exit(2);
    net.ask(2);
    let request = net.take("REQUEST", 2, 1);
    assert_eq!(net.receive(2, 1, request), ["LOCKED(2, vote 2) to 2"]);
    assert_eq!(net.deliver("RELEASE", 2, 1), NOTHING, "it does not release the new one");
    net.settle();
    assert_eq!(net.fences, [1, 2]);
}

#[test]
fn a_vote_for_a_request_that_was_given_up_does_not_count_for_the_next() {
    let mut net = Net::new(3, "");
    net.ask(2);
    net.deliver("REQUEST", 2, 1);
    net.cancel(2);
    net.ask(2);
    assert_eq!(net.deliver("LOCKED", 1, 2), NOTHING);
    net.settle();
    assert!(net.inside.contains(&2));
}

#[test]
fn alone_it_enters_at_once_and_says_nothing() {
    let mut net = Net::new(1, "");
    for _ in 0..2 {
        assert_eq!(net.ask(1), ["enter"]);
        assert_eq!(net.exit(1), NOTHING);
    }
    assert_eq!(net.fences, [1, 2]);
}

#[test]
fn the_arbiters_of_the_seated_holder_have_voted_for_it() {
    let initial = InitialHolders { holders: &[NodeId(3)], mode: Mode::Exclusive, fence: Fence::new(41) };
    let mut net = Net::seated(View::new((1..=4).map(NodeId)).with_epoch(1), "", initial);
    net.ask(2);
    net.settle();
    assert_eq!(net.inside, BTreeSet::from([3]));
    net.exit(3);
    net.settle();
    assert_eq!(net.inside, BTreeSet::from([2]));
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
fn nonsense_from_peers_does_no_harm() {
    let mut net = Net::new(3, "");
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
fn only_an_instance_that_nothing_happened_to_may_be_dropped() {
    let mut net = Net::new(3, "");
    net.pass_through(2);
    assert!(net.nodes[&3].is_idle(), "3 is not in the quorum of 2");
    assert!(!net.nodes[&1].is_idle() && !net.nodes[&2].is_idle());
}

proptest! {
    #[test]
    fn messages_come_off_the_wire_as_they_went(kind in 0..6, number: u64, grant: u64, highest: u64, fence: u64) {
        let message = match kind {
            0 => MaekawaMessage::Request { number, fence },
            1 => MaekawaMessage::Locked { number, grant, highest, fence },
            2 => MaekawaMessage::Failed { number, grant },
            3 => MaekawaMessage::Inquire { number, grant },
            4 => MaekawaMessage::Relinquish { number, grant },
            _ => MaekawaMessage::Release { number, fence },
        };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(MaekawaMessage::decode(&mut reader), Ok(message));
        prop_assert!(reader.finish().is_ok());
        let cut = MaekawaMessage::decode(&mut Reader::new(&bytes[..bytes.len() - 1]));
        prop_assert_eq!(cut, Err(DecodeError::Truncated));
    }

    #[test]
    fn bytes_from_anywhere_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = MaekawaMessage::decode(&mut Reader::new(&bytes));
    }
}
