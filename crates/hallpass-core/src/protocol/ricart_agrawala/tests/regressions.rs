//! Bugs that a review found, each kept as a test.

use super::*;

const HOLD_BACK: &str = "increment=priority priorities=1,5 hold-back=3T";

fn joining(members: &[u32], words: &str) -> Net<Classic> {
    let mut net = Net::new(members.iter().copied(), words);
    net.start(4, 0, InitialHolders::NOBODY);
    net.act(4, Input::Join { sponsor: NodeId(1) });
    net
}

#[test]
fn on_the_medium_everybody_knows_the_initial_holder() {
    let mut net = Net::<Sequenced>::with_initial(View::new([1, 2].map(NodeId)), "", initial(&[NodeId(1)], 7));
    net.acquire(2);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
}

#[test]
fn an_answer_to_an_earlier_join_does_not_count_for_the_next() {
    let mut net = joining(&[1, 2], "");
    net.start(9, 0, InitialHolders::NOBODY);
    for (from, to) in [(4, 1), (1, 2), (2, 1), (1, 2)] {
        net.deliver(from, to);
    }
    let added = net.take(2, 1);
    net.receive(2, 1, added.clone());
    net.deliver_all();
    net.act(9, Input::Join { sponsor: NodeId(1) });
    for (from, to) in [(9, 1), (1, 2), (1, 4), (2, 1), (4, 1), (1, 4), (4, 1)] {
        net.deliver(from, to);
    }
    assert_eq!(net.receive(2, 1, added), NOTHING, "node 2 has not yet added node 9");
}

#[test]
fn one_request_from_each_means_from_each_that_is_there() {
    let mut net = joining(&[1, 2, 3], "hsn=each");
    net.deliver_all();
    let message = |body| ClassicMessage { from: 0, to: 0, body };
    let request = |number| message(Body::Base(RaMessage::Request { number, mode: Mode::Exclusive }));
    net.receive(2, 4, request(5));
    net.receive(2, 4, message(Body::Leave));
    assert_eq!(net.receive(1, 4, request(6)), ["REPLY(6) to 1"], "no REQUEST of node 3 has come");
}

#[test]
fn a_fence_out_of_range_is_not_believed() {
    let mut net = Net::<RicartAgrawala>::new([1, 2], "");
    net.acquire(1);
    net.receive(2, 1, RaMessage::Reply { answers: 1, highest: 0, fence: u64::MAX });
    assert_eq!(net.inside(), [0; 0]);
}

#[test]
fn a_number_out_of_range_is_not_believed() {
    let mut net = Net::<RicartAgrawala>::new([1, 2], "");
    net.receive(2, 1, RaMessage::Request { number: u64::MAX, mode: Mode::Exclusive });
    assert_eq!(net.acquire(1), ["REQUEST(1) to all"]);
}

#[test]
fn an_older_request_that_comes_later_does_not_replace_the_newer_one_held_back() {
    let mut net = Net::<RicartAgrawala>::new([1, 2], HOLD_BACK);
    net.acquire(1);
    net.acquire(2);
    net.cancel(2);
    net.acquire(2);
    let first = net.take(2, 1);
    net.deliver(2, 1);
    net.receive(2, 1, first);
    net.cancel(1);
    net.fire(1, RaTimer::HoldBack);
    net.deliver_all();
    assert_eq!(net.inside(), [2]);
}

#[test]
fn a_newcomer_by_broadcast_uses_the_numbers_of_the_answers() {
    let mut net = Net::<Classic>::new([1, 2], "hsn=quiet insert=broadcast");
    for _ in 0..5 {
        net.pass_through(1);
    }
    net.start(4, 0, InitialHolders::NOBODY);
    net.act(4, Input::Join { sponsor: NodeId(1) });
    net.deliver_all();
    net.fire(4, ClassicTimer::Quiet);
    assert_eq!(net.nodes[&4].highest_number(), 5);
}

#[test]
fn a_newcomer_without_a_priority_still_counts_upwards() {
    let mut net = joining(&[1, 2], "increment=priority priorities=1,5");
    net.deliver_all();
    let first = net.acquire(4);
    net.cancel(4);
    assert_ne!(first, net.acquire(4));
}

#[test]
fn a_node_whose_caller_waits_is_not_idle() {
    let mut net = joining(&[1, 2], "");
    net.acquire(4);
    assert!(!net.nodes[&4].is_idle());
}

#[test]
fn implicit_fences_grow_across_views() {
    let fence = |epoch| {
        let view = View::new([1, 2].map(NodeId)).with_epoch(epoch);
        let mut net = Net::<RicartAgrawala>::with_initial(view, "reply=implicit", InitialHolders::NOBODY);
        net.acquire(1);
        net.deliver_all();
        net.fire(1, RaTimer::RoundTrip);
        net.fences[0]
    };
    assert!(fence(1) < fence(2));
}

#[test]
fn a_node_that_is_still_learning_leaves_as_a_member() {
    let mut net = joining(&[1, 2, 3], "hsn=each");
    net.deliver_all();
    assert_eq!(net.act(4, Input::Leave), NOTHING, "it is on every list: it leaves as a member");
}
