//! The paper's rules one by one.

use proptest::prelude::*;

use super::*;
use crate::codec::{DecodeError, Reader};
use crate::protocol::Message;
use crate::protocol::testing::{
    NOTHING, Net, assert_canonical, assert_enters_alone, assert_refuses_past_the_last_fence, assert_round_trip, fence,
    initial,
};
use crate::{Fence, InitialHolders, View};

type Group = Net<Raymond>;

impl Group {
    /// The node crashes with all it knows, restarts, and waits until its old messages have arrived.
    fn crash_and_restart(&mut self, node: u32, incarnation: u32) -> Vec<String> {
        self.start(node, incarnation, InitialHolders::NOBODY);
        assert_eq!(self.act(node, Input::Join { sponsor: NodeId(1) }), ["set RestartInterval 21"]);
        self.fire(node, RaymondTimer::RestartInterval)
    }

    fn holder(&self, node: u32) -> u32 {
        self.nodes[&node].holder().map_or(0, |holder| holder.0)
    }

    fn queue(&self, node: u32) -> Vec<u32> {
        self.nodes[&node].queue().iter().map(|node| node.0).collect()
    }
}

#[test]
fn alone_and_past_the_last_fence() {
    for words in ["", "tree=line greedy=true piggyback=true", "start=initialize", "recovery=classic"] {
        assert_enters_alone::<Raymond>(words);
    }
    assert_refuses_past_the_last_fence::<Raymond>("");
}

#[test]
fn requests_travel_to_the_holder_and_the_privilege_turns_each_holder_on_its_way_back() {
    let mut net = Group::new(1..=3, "tree=line");
    assert_eq!([net.holder(1), net.holder(2), net.holder(3)], [1, 1, 2], "section 2");
    assert_eq!(net.acquire(3), ["REQUEST to 2"]);
    assert!(net.nodes[&3].has_asked());
    assert_eq!(net.deliver_first("REQUEST", 3, 2), ["REQUEST to 1"]);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["PRIVILEGE to 2"]);
    assert_eq!(net.deliver_first("PRIVILEGE", 1, 2), ["PRIVILEGE to 3"]);
    assert_eq!(net.deliver_first("PRIVILEGE", 2, 3), ["enter"]);
    assert_eq!([net.holder(1), net.holder(2), net.holder(3)], [2, 3, 3], "HOLDER leads to node 3 from everywhere");
    assert_eq!(net.release(3), NOTHING, "the last to use the privilege keeps it");
    assert_eq!(net.acquire(3), ["enter"], "and uses it again without a message");
}

#[test]
fn a_node_asks_once_for_all_beyond_it() {
    let mut net = Group::new(1..=4, "tree=given:0,1,2,2");
    net.acquire(1);
    assert_eq!(net.acquire(2), ["REQUEST to 1"]);
    net.acquire(3);
    net.acquire(4);
    assert_eq!(net.deliver_first("REQUEST", 3, 2), NOTHING, "ASKED: node 2 has asked");
    assert_eq!(net.deliver_first("REQUEST", 4, 2), NOTHING);
    assert_eq!(net.queue(2), [2, 3, 4], "first in, first out; neighbours + 1 at most");
    net.deliver_first("REQUEST", 2, 1);
    assert_eq!(net.release(1), ["PRIVILEGE to 2"]);
    assert_eq!(net.deliver_first("PRIVILEGE", 1, 2), ["enter"]);
    assert_eq!(net.release(2), ["PRIVILEGE to 3", "REQUEST to 3"], "it must come back for node 4");
}

#[test]
fn a_request_may_overtake_the_privilege_before_it() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    assert_eq!(net.release(1), ["PRIVILEGE to 2"]);
    assert_eq!(net.acquire(1), ["REQUEST to 2"]);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), NOTHING, "3.5: queued, and nothing else");
    assert_eq!(net.deliver_first("PRIVILEGE", 1, 2), ["enter"]);
    assert_eq!(net.release(2), ["PRIVILEGE to 1"]);
}

#[test]
fn piggybacked_a_request_and_the_privilege_are_one_message() {
    let mut net = Group::new(1..=4, "tree=given:0,1,2,2 piggyback=true");
    net.acquire(1);
    [2, 3, 4].into_iter().for_each(|node| drop(net.acquire(node)));
    net.deliver_all();
    assert_eq!(net.release(1), ["PRIVILEGE to 2"], "nobody else wants it back");
    assert_eq!(net.acquire(1), ["REQUEST to 2"], "too late to ride along");
    net.deliver_all();
    assert_eq!(net.release(2), ["PRIVILEGE with REQUEST to 3"]);
    assert_eq!(net.deliver_first("PRIVILEGE", 2, 3), ["enter"]);
    assert_eq!(net.queue(3), [2], "processed as if the two separate messages had arrived");
    assert_eq!(net.release(3), ["PRIVILEGE to 2"]);
    assert_eq!(net.deliver_first("PRIVILEGE", 3, 2), ["PRIVILEGE with REQUEST to 4"], "it must come back for node 1");
}

#[test]
fn greedy_puts_itself_first() {
    let mut net = Group::new(1..=3, "tree=line greedy=true");
    net.acquire(1);
    net.acquire(3);
    net.deliver_first("REQUEST", 3, 2);
    net.acquire(2);
    assert_eq!(net.queue(2), [2, 3], "6.2: at the head");
    net.deliver_all();
    assert_eq!(net.release(1), ["PRIVILEGE to 2"]);
    assert_eq!(net.deliver_first("PRIVILEGE", 1, 2), ["enter"]);
    assert_eq!(net.release(2), ["PRIVILEGE to 3"], "overtaken once");
}

#[test]
fn initialize_floods_the_tree_and_a_node_that_has_it_may_ask() {
    let mut net = Group::new(1..=3, "tree=line start=initialize");
    assert_eq!(net.acquire(2), NOTHING, "it does not know whom to ask");
    assert_eq!(net.act(1, Input::Join { sponsor: NodeId(1) }), ["INITIALIZE to 2"]);
    assert_eq!(net.act(3, Input::Join { sponsor: NodeId(1) }), NOTHING, "only the first holder begins");
    assert_eq!(
        net.deliver_first("INITIALIZE", 1, 2),
        ["INITIALIZE to 3", "REQUEST to 1"],
        "it asks while node 3 knows nothing"
    );
    net.deliver_all();
    assert_eq!(net.fences, [1]);
    assert_eq!([net.holder(1), net.holder(2), net.holder(3)], [2, 2, 2]);
}

#[test]
fn a_node_that_gives_up_is_passed_over_and_its_privilege_serves_the_next() {
    let mut net = Group::new(1..=3, "tree=line");
    net.acquire(1);
    net.acquire(2);
    net.acquire(3);
    net.deliver_all();
    assert_eq!(net.cancel(2), NOTHING);
    net.release(1);
    assert_eq!(net.deliver_first("PRIVILEGE", 1, 2), ["PRIVILEGE to 3"], "it goes on to node 3");
    assert_eq!(net.deliver_first("PRIVILEGE", 2, 3), ["enter"]);
    // Nobody else waits: the privilege comes all the same and stays, and grants nothing.
    assert_eq!(net.acquire(2), ["REQUEST to 3"]);
    assert_eq!(net.cancel(2), NOTHING);
    net.deliver_all();
    assert_eq!(net.release(3), ["PRIVILEGE to 2"]);
    assert_eq!(net.deliver_first("PRIVILEGE", 3, 2), NOTHING);
    assert_eq!(net.acquire(2), ["enter"], "a new request uses what is here");
}

#[test]
fn fences_count_entries_in_their_order_within_the_views_epoch() {
    let mut net = Group::with_initial(View::new((1..=5).map(NodeId)).with_epoch(3), "", InitialHolders::NOBODY);
    for node in [5, 1, 1, 4, 2] {
        net.acquire(node);
        net.deliver_all();
        net.release(node);
    }
    let expected: Vec<u64> = (1..=5).map(|count| Fence::compose(3, count).unwrap().get()).collect();
    assert_eq!(net.fences, expected);
}

#[test]
fn an_initial_holder_is_inside_and_everybody_knows_where() {
    for words in ["tree=line", "tree=line recovery=classic"] {
        let mut net = Group::with_initial(View::new((1..=3).map(NodeId)), words, initial(&[NodeId(3)], 8));
        assert_eq!([net.holder(1), net.holder(2), net.holder(3)], [2, 3, 3]);
        net.acquire(1);
        net.deliver_all();
        assert!(net.fences.is_empty() && !net.nodes[&3].is_idle());
        assert_eq!(net.release(3), ["PRIVILEGE to 2",]);
        net.deliver_all();
        assert_eq!(net.fences, [9]);
    }
}

#[test]
fn a_node_is_idle_while_it_is_as_at_the_start() {
    let mut net = Group::new(1..=2, "");
    assert!(net.nodes.values().all(Raymond::is_idle));
    net.acquire(2);
    assert!(!net.nodes[&2].is_idle());
    net.deliver_all();
    net.release(2);
    assert!(net.nodes.values().all(|node| !node.is_idle()), "both must remember that the privilege has moved");
    net.acquire(1);
    net.deliver_all();
    net.release(1);
    assert!(net.nodes[&2].is_idle(), "it is at the root again");
    assert!(!net.nodes[&1].is_idle(), "who must remember the count");
}

#[test]
fn invalid_messages_have_no_effect() {
    let mut net = Group::new(1..=3, "tree=line");
    let before = net.nodes.clone();
    let privilege = RaymondMessage::Privilege { incarnation: 0, count: u64::MAX, asks: true };
    assert_eq!(net.receive(3, 1, RaymondMessage::Request { incarnation: 0 }), NOTHING, "no neighbour");
    assert_eq!(net.receive(3, 2, privilege.clone()), NOTHING, "the privilege is on the other side");
    assert_eq!(net.receive(2, 1, privilege.clone()), NOTHING, "this node has it");
    assert_eq!(net.receive(2, 1, RaymondMessage::Initialize), NOTHING);
    assert_eq!(net.receive(2, 1, RaymondMessage::Restart { incarnation: 1 }), NOTHING, "nobody comes back here");
    assert_eq!(net.receive(2, 1, RaymondMessage::Request { incarnation: 9 }), NOTHING, "another incarnation");
    assert_eq!(net.nodes, before);
    assert_eq!(net.receive(1, 2, privilege), ["PRIVILEGE to 1"], "an absurd count is cut to the largest");
    assert_eq!(net.nodes[&2].fences.count(), Fence::COUNT_MAX);
}

mod recovering {
    use super::*;

    fn line() -> Group {
        Group::new(1..=3, "tree=line recovery=classic")
    }

    #[test]
    fn who_held_the_privilege_holds_it_again_above_every_fence() {
        let mut net = line();
        net.acquire(1);
        net.acquire(2);
        net.deliver_all();
        assert_eq!(net.crash_and_restart(1, 1), ["RESTART(incarnation 1) to 2"]);
        assert_eq!(net.deliver_first("RESTART", 1, 2), ["ADVISE(you hold, I asked) to 1"]);
        assert_eq!(
            net.deliver_first("ADVISE", 2, 1),
            ["joined", "PRIVILEGE to 2"],
            "USING is false, the queue is known"
        );
        assert_eq!(net.deliver_first("PRIVILEGE", 1, 2), ["enter"]);
        assert_eq!(net.fences, [1, (1 << 16) + 1], "T28: the crashed holder had at most the reserve");
    }

    #[test]
    fn a_neighbour_towards_the_holder_tells_where_the_privilege_is_and_whether_this_node_has_asked() {
        for (asks, advice, then) in [
            (false, "ADVISE(you do not hold) to 2", vec!["joined"]),
            (true, "ADVISE(you do not hold, you asked) to 2", vec!["joined"]),
        ] {
            let mut net = line();
            net.acquire(1);
            if asks {
                net.acquire(2);
                net.deliver_all();
            }
            net.crash_and_restart(2, 1);
            assert_eq!(net.deliver_first("RESTART", 2, 1), [advice]);
            assert_eq!(net.deliver_first("RESTART", 2, 3), ["ADVISE(you hold) to 2"]);
            net.deliver_first("ADVISE", 1, 2);
            assert_eq!(net.deliver_first("ADVISE", 3, 2), then);
            assert_eq!((net.holder(2), net.nodes[&2].has_asked()), (1, asks), "8.3");
        }
    }

    #[test]
    fn as_printed_asked_is_the_wrong_way_round() {
        let mut net = Group::new(1..=3, "tree=line recovery=classic as-printed=T26");
        net.crash_and_restart(2, 1);
        net.deliver_all();
        assert!(net.nodes[&2].has_asked(), "8.1, state 4: it will never ask");
    }

    #[test]
    fn the_queue_is_rebuilt_by_how_often_each_had_the_privilege() {
        let mut net = Group::new(1..=4, "recovery=classic");
        for node in [2, 2, 3] {
            net.acquire(node);
            net.deliver_all();
            net.release(node);
            net.acquire(1);
            net.deliver_all();
            net.release(1);
        }
        net.acquire(1);
        [2, 3, 4].into_iter().for_each(|node| drop(net.acquire(node)));
        net.deliver_all();
        assert_eq!(net.queue(1), [2, 3, 4]);
        net.crash_and_restart(1, 1);
        net.acquire(1);
        [2, 3, 4].into_iter().for_each(|node| drop(net.deliver_first("RESTART", 1, node)));
        [2, 3].into_iter().for_each(|node| drop(net.deliver_first("ADVISE", node, 1)));
        assert_eq!(net.deliver_first("ADVISE", 4, 1), ["joined", "PRIVILEGE to 4", "REQUEST to 4"]);
        assert_eq!(net.queue(1), [3, 2, 1], "4 never had it, 3 once, 2 twice; its own caller came last");
    }

    #[test]
    fn messages_to_a_former_incarnation_are_dropped() {
        let mut net = line();
        net.acquire(2);
        net.deliver_first("REQUEST", 2, 1);
        assert!(net.nodes[&2].has_asked());
        net.crash_and_restart(2, 1);
        net.acquire(3);
        [1, 3].into_iter().for_each(|node| drop(net.deliver_first("RESTART", 2, node)));
        net.deliver_first("ADVISE", 1, 2);
        assert_eq!(net.deliver_first("ADVISE", 3, 2), ["joined", "PRIVILEGE to 3"], "rebuilt, and passed on");
        assert_eq!(net.deliver_first("PRIVILEGE", 1, 2), NOTHING, "T27: else there would be two");
        assert_eq!(net.deliver_first("PRIVILEGE", 2, 3), ["enter"]);
        net.acquire(1);
        assert_eq!(
            net.take_first("REQUEST", 1, 2),
            RaymondMessage::Request { incarnation: 1 },
            "its neighbours know its incarnation now"
        );
    }

    #[test]
    fn the_privilege_may_come_during_recovery_and_is_proof_enough() {
        let mut net = line();
        net.acquire(1);
        net.acquire(2);
        net.deliver_all();
        net.crash_and_restart(2, 1);
        net.acquire(2);
        net.deliver_first("RESTART", 2, 1);
        net.deliver_first("RESTART", 2, 3);
        assert_eq!(net.release(1), ["PRIVILEGE(incarnation 1) to 2"]);
        assert_eq!(net.deliver_first("PRIVILEGE", 1, 2), NOTHING, "no decisions in the recovery phase");
        net.deliver_first("ADVISE", 3, 2);
        assert_eq!(net.deliver_first("ADVISE", 1, 2), ["joined", "enter"], "8.6: the advice is outdated");
        assert_eq!(net.fences, [1, 2], "the count came with it");
    }

    #[test]
    fn advice_to_a_recovery_that_failed_is_dropped() {
        let mut net = line();
        net.crash_and_restart(2, 1);
        net.deliver_first("RESTART", 2, 1);
        net.deliver_first("RESTART", 2, 3);
        net.crash_and_restart(2, 2);
        net.deliver_first("ADVISE", 1, 2);
        assert_eq!(net.deliver_first("ADVISE", 3, 2), NOTHING, "8.7");
        net.deliver_first("RESTART", 2, 1);
        net.deliver_first("RESTART", 2, 3);
        net.deliver_first("ADVISE", 1, 2);
        assert_eq!(net.deliver_first("ADVISE", 3, 2), ["joined"]);
    }

    #[test]
    fn a_restarted_node_learns_the_incarnations_of_its_neighbours() {
        let mut net = line();
        net.crash_and_restart(2, 1);
        net.deliver_all();
        net.crash_and_restart(3, 1);
        net.deliver_all();
        assert_eq!(net.acquire(3), ["REQUEST(incarnation 1) to 2"], "else node 2 would drop it");
        net.deliver_all();
        assert_eq!(net.fences.len(), 1);
    }

    #[test]
    fn two_that_are_no_neighbours_may_be_down_at_once_and_two_neighbours_stay_out() {
        let mut net = line();
        net.crash_and_restart(1, 1);
        net.crash_and_restart(3, 1);
        net.deliver_all();
        assert_eq!([net.holder(1), net.holder(2), net.holder(3)], [1, 1, 2]);
        net.crash_and_restart(1, 2);
        net.crash_and_restart(2, 1);
        net.deliver_all();
        assert_eq!(net.acquire(1), NOTHING, "8.8: nobody can tell");
        assert_eq!(net.acquire(2), NOTHING);
        net.deliver_all();
        assert!(net.fences.is_empty());
    }

    #[test]
    fn a_restart_is_answered_once_the_neighbour_knows_something() {
        let mut net = line();
        net.crash_and_restart(2, 1);
        net.deliver_first("RESTART", 2, 1);
        net.deliver_first("ADVISE", 1, 2);
        // Node 1 has advised and goes down while node 2 still waits for node 3.
        net.crash_and_restart(1, 1);
        assert_eq!(net.deliver_first("RESTART", 1, 2), NOTHING);
        net.deliver_first("RESTART", 2, 3);
        assert_eq!(net.deliver_first("ADVISE", 3, 2), ["joined", "ADVISE(you hold) to 1"]);
        assert_eq!(net.deliver_first("ADVISE", 2, 1), ["joined"]);
        assert_eq!(net.holder(1), 1);
    }

    #[test]
    fn fences_rise_however_often_a_holder_dies_alone_with_its_count() {
        let mut net = Group::new(1..=2, "recovery=classic fence-reserve=3");
        for incarnation in 1..=4 {
            for entry in 0..7 {
                let effects = net.acquire(1);
                assert_eq!(effects.last().map(String::as_str), Some("enter"));
                assert_eq!(
                    effects.len() == 2,
                    entry > 0 && entry % 3 == 0,
                    "a neighbour gets the count every third time"
                );
                net.deliver_all();
                net.release(1);
            }
            net.crash_and_restart(1, incarnation);
            net.deliver_all();
        }
        assert!(net.fences.is_sorted_by(|a, b| a < b), "{:?}", net.fences);
        assert!(*net.fences.last().unwrap() <= 28 + 3 * 3 + 3, "and not by much more than the reserve a death");
    }

    /// A holder's count may come while a neighbour that it has advised already still waits for others. If that were ignored,
    /// the neighbour would give the holder, when it has crashed as well, a count that is too low.
    #[test]
    fn a_later_and_higher_count_of_a_neighbour_that_has_advised_is_remembered() {
        let mut net = Group::new(1..=3, "tree=line recovery=classic fence-reserve=3");
        net.crash_and_restart(2, 1);
        net.deliver_first("RESTART", 2, 1);
        net.deliver_first("ADVISE", 1, 2);
        for _ in 0..8 {
            net.acquire(1);
            net.release(1);
        }
        for _ in 0..2 {
            assert_eq!(net.deliver_first("ADVISE", 1, 2), NOTHING, "the count, before node 3 has advised");
        }
        net.deliver_first("RESTART", 2, 3);
        assert_eq!(net.deliver_first("ADVISE", 3, 2), ["joined"]);
        net.crash_and_restart(1, 1);
        net.deliver_all();
        net.acquire(1);
        assert_eq!(net.fences[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(net.fences[8] > 8, "{:?}", net.fences);
    }

    #[test]
    fn alone_each_incarnation_has_counts_of_its_own() {
        let mut net = Group::new(1..=1, "recovery=classic");
        net.acquire(1);
        assert_eq!(net.crash_and_restart(1, 1), ["joined"]);
        net.acquire(1);
        assert_eq!(net.fences, [1, (1 << 24) + 1]);
    }
}

fn message(count: impl Strategy<Value = u64> + Clone) -> impl Strategy<Value = RaymondMessage> {
    let standing = prop_oneof![
        Just(Standing::Yours),
        Just(Standing::YoursAsked),
        Just(Standing::Queued),
        Just(Standing::NotQueued)
    ];
    prop_oneof![
        any::<u32>().prop_map(|incarnation| RaymondMessage::Request { incarnation }),
        (any::<u32>(), count.clone(), any::<bool>()).prop_map(|(incarnation, count, asks)| RaymondMessage::Privilege {
            incarnation,
            count,
            asks
        }),
        Just(RaymondMessage::Initialize),
        any::<u32>().prop_map(|incarnation| RaymondMessage::Restart { incarnation }),
        (any::<u32>(), any::<u32>(), standing, any::<u32>(), count).prop_map(
            |(incarnation, sender, standing, served, count)| RaymondMessage::Advise {
                incarnation,
                sender,
                standing,
                served,
                count
            }
        ),
    ]
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(message in message(fence())) {
        assert_round_trip(&message);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
        assert_canonical::<RaymondMessage>(&bytes);
    }

    /// Whatever neighbours and strangers send, nothing panics and the queue stays within its bound.
    #[test]
    fn no_message_makes_it_panic(
        steps in prop::collection::vec((1u32..5, message(any::<u64>()), 0u8..8), 0..60),
        words in prop_oneof![Just("tree=line"), Just("recovery=classic"), Just("start=initialize greedy=true piggyback=true")],
    ) {
        let mut net = Group::new(1..=3, words);
        let (mut waiting, mut entered) = (false, 0);
        for (from, message, choice) in steps {
            match choice {
                0 if !waiting && !net.nodes[&2].using => {
                    waiting = true;
                    net.acquire(2);
                }
                1 if waiting => {
                    net.cancel(2);
                }
                2 => {
                    net.act(2, Input::Timeout(RaymondTimer::RestartInterval));
                }
                3 if !waiting && !net.nodes[&2].using => {
                    net.act(2, Input::Join { sponsor: NodeId(1) });
                }
                _ => {
                    net.act(2, Input::Deliver { from: NodeId(from), message });
                }
            }
            if net.fences.len() > entered {
                entered = net.fences.len();
                net.release(2);
                waiting = net.queue(2).contains(&2);
                entered = entered.max(net.fences.len());
            }
            if choice == 1 {
                waiting = false;
            }
            prop_assert!(net.nodes[&2].queue().len() <= net.nodes[&2].neighbours().len() + 1);
            net.in_flight.clear();
        }
    }
}

#[test]
fn bytes_of_an_unknown_kind_are_refused() {
    for bytes in [&[0][..], &[7], &[6, 4, 0, 0, 0, 0], &[255, 255]] {
        assert_eq!(RaymondMessage::decode(&mut Reader::new(bytes)), Err(DecodeError::Unknown));
    }
}

/// The bound of REQUEST_Q, neighbours and self, holds whatever a neighbour sends.
#[test]
fn a_neighbour_is_in_the_queue_once_however_often_it_asks() {
    let mut net = Group::new(1..=2, "tree=line");
    let one = net.nodes.get_mut(&1).unwrap();
    let mut out = Effects::new();
    one.handle(Input::Acquire { mode: Mode::Exclusive, draw: 0 }, &mut out);
    for _ in 0..3 {
        one.handle(Input::Deliver { from: NodeId(2), message: RaymondMessage::Request { incarnation: 0 } }, &mut out);
    }
    assert_eq!(one.queue(), [NodeId(2)]);
}
