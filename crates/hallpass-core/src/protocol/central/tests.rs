use proptest::prelude::*;

use super::*;
use crate::View;
use crate::protocol::testing::{
    NOTHING, Net, assert_canonical, assert_enters_alone, assert_kinds, assert_refuses_past_the_last_fence,
    assert_round_trip, count, fence, initial, parse,
};

const SERVER: u32 = NodeId::SERVER.0;

fn net(words: &str) -> Net<Central> {
    Net::new([1, 2, 3], words)
}

#[test]
fn an_entry_is_request_grant_release() {
    let mut net = net("");
    assert!(net.nodes.values().all(Central::is_idle));
    assert_eq!(net.acquire(2), ["REQUEST(1) to 0"]);
    assert_eq!(net.deliver(2, SERVER), ["GRANT(1) to 2"]);
    assert_eq!(net.deliver(SERVER, 2), ["enter"]);
    assert_eq!(net.fences, [1]);
    assert_eq!(net.release(2), ["RELEASE(1) to 0"]);
    assert_eq!(net.deliver(2, SERVER), NOTHING);
    assert!(!net.nodes[&2].is_idle(), "its next number must not be 1 again");
    assert!(net.nodes[&1].is_idle());
}

/// Everybody asks, in the order 3, 2, 1 but for node 3, which is inside and asks again at once.
fn served(words: &str, entries: usize) -> Vec<u32> {
    let mut net = net(words);
    let mut order = Vec::new();
    for node in [3, 2, 1] {
        net.acquire(node);
    }
    for _ in 0..entries {
        net.deliver_all();
        let inside = net.inside()[0];
        order.push(inside);
        net.release(inside);
        net.acquire(inside);
    }
    assert_eq!(net.fences, (1..=entries as u64).collect::<Vec<_>>());
    order
}

#[test]
fn the_policy_of_the_queue_decides_who_is_next() {
    assert_eq!(served("queue=fifo", 7), [3, 2, 1, 3, 2, 1, 3]);
    assert_eq!(served("queue=round-robin", 7), [3, 1, 2, 3, 1, 2, 3]);
    assert_eq!(served("queue=lowest-id", 7), [3, 1, 2, 1, 2, 1, 2], "1 and 2 exclude 3");
}

#[test]
fn t22_the_printed_server_forgets_who_holds() {
    for (words, inside) in [("", vec![1]), ("as-printed=T22", vec![1, 2])] {
        let mut net = net(words);
        net.acquire(1);
        net.deliver_all();
        net.acquire(2);
        net.deliver_all();
        assert_eq!(net.inside(), inside, "{words}");
    }
}

#[test]
fn a_release_that_is_overtaken_by_the_next_request_is_not_needed() {
    let mut net = net("");
    net.acquire(1);
    net.deliver_all();
    net.acquire(2);
    net.deliver(2, SERVER);
    net.release(1);
    net.acquire(1);
    assert_eq!(net.deliver_first("REQUEST(2)", 1, SERVER), ["GRANT(1) to 2"]);
    assert_eq!(net.deliver_first("RELEASE(1)", 1, SERVER), NOTHING, "2 keeps what it has");
    net.deliver_all();
    assert_eq!(net.inside(), [2]);
    net.release(2);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
}

#[test]
fn a_request_given_up_is_withdrawn_wherever_it_is() {
    // In the queue.
    let mut queued = net("");
    queued.acquire(1);
    queued.deliver_all();
    queued.acquire(2);
    queued.deliver_all();
    assert_eq!(queued.cancel(2), ["RELEASE(1) to 0"]);
    queued.deliver_all();
    queued.release(1);
    queued.deliver_all();
    assert_eq!(queued.inside(), [0; 0]);
    // Still in flight, overtaken by its own withdrawal.
    let mut flying = net("");
    flying.acquire(2);
    flying.cancel(2);
    assert_eq!(flying.deliver_first("RELEASE(1)", 2, SERVER), NOTHING);
    assert_eq!(flying.deliver_first("REQUEST(1)", 2, SERVER), NOTHING);
    flying.pass_through(3);
}

#[test]
fn a_grant_that_crosses_a_withdrawal_is_neither_lost_nor_used_by_a_later_request() {
    let mut net = net("");
    net.acquire(2);
    assert_eq!(net.deliver(2, SERVER), ["GRANT(1) to 2"]);
    net.cancel(2);
    assert_eq!(net.acquire(2), ["REQUEST(2) to 0"]);
    assert_eq!(net.deliver(SERVER, 2), NOTHING, "request 2 is not granted by it");
    net.acquire(3);
    assert_eq!(net.deliver(3, SERVER), NOTHING);
    assert_eq!(net.deliver_first("RELEASE(1)", 2, SERVER), ["GRANT(1) to 3"]);
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
    net.release(3);
    net.deliver_all();
    assert_eq!((net.inside(), net.fences), (vec![2], vec![2, 3]), "fence 1 was given away and never used");
}

#[test]
fn copies_and_messages_of_strangers_have_no_effect() {
    let mut net = net("");
    net.acquire(1);
    let request = CentralMessage::Request { number: 1 };
    net.deliver(1, SERVER);
    assert_eq!(net.receive(1, SERVER, request.clone()), NOTHING);
    assert_eq!(net.receive(9, SERVER, request.clone()), NOTHING, "no member");
    let grant = CentralMessage::Grant { number: 1, fence: 1 };
    assert_eq!(net.receive(2, 1, grant.clone()), NOTHING, "not the server");
    let absurd = CentralMessage::Grant { number: 1, fence: u64::MAX };
    assert_eq!(net.receive(SERVER, 1, absurd), NOTHING, "no fence reaches that far");
    assert_eq!(net.deliver(SERVER, 1), ["enter"]);
    assert_eq!(net.receive(SERVER, 1, grant.clone()), NOTHING);
    net.release(1);
    net.deliver_all();
    assert_eq!(net.receive(SERVER, 1, grant), NOTHING);
    assert_eq!(net.receive(1, SERVER, request), NOTHING, "it is over");
    net.receive(3, SERVER, CentralMessage::Release { number: u64::MAX });
    assert_eq!(net.receive(3, SERVER, CentralMessage::Request { number: 4 }), NOTHING, "its own word against it");
    net.pass_through(2);
}

#[test]
fn initial_holders_are_waited_for() {
    let readers = [NodeId(1), NodeId(3)];
    let mut net = Net::<Central>::with_initial(View::new([1, 2, 3].map(NodeId)), "", initial(&readers, 41));
    net.acquire(2);
    net.deliver_all();
    assert_eq!(net.release(3), ["RELEASE(0) to 0"]);
    net.deliver_all();
    assert_eq!(net.inside(), [1], "the other reader is still there");
    net.release(1);
    net.deliver_all();
    assert_eq!((net.inside(), net.fences), (vec![2], vec![42]));
}

#[test]
fn alone_and_at_the_end_of_fences() {
    assert_enters_alone::<Central>("");
    assert_refuses_past_the_last_fence::<Central>("");
}

#[test]
fn moot_is_only_what_changes_nothing() {
    let mut net = net("");
    net.acquire(1);
    let moot = |net: &Net<Central>, from, to: u32, message| net.nodes[&to].is_moot(NodeId(from), &message);
    assert!(!moot(&net, 1, SERVER, CentralMessage::Request { number: 1 }));
    net.deliver(1, SERVER);
    assert!(moot(&net, 1, SERVER, CentralMessage::Request { number: 1 }));
    assert!(!moot(&net, 1, SERVER, CentralMessage::Release { number: 1 }));
    assert!(!moot(&net, SERVER, 1, CentralMessage::Grant { number: 1, fence: 1 }));
    assert!(!moot(&net, SERVER, 1, CentralMessage::Grant { number: 2, fence: 1 }), "2 may come");
    net.deliver_all();
    assert!(moot(&net, SERVER, 1, CentralMessage::Grant { number: 1, fence: 1 }));
    net.release(1);
    net.deliver_all();
    assert!(moot(&net, 1, SERVER, CentralMessage::Release { number: 1 }));
}

/// The lowest member is the server, too: what it says to itself is not a message.
#[test]
fn a_member_that_is_the_server_needs_no_message_and_others_need_three() {
    let mut net = Net::<Hosted>::new([4, 5, 9], "");
    assert_eq!(net.acquire(4), ["enter"]);
    assert_eq!(net.acquire(9), ["REQUEST(1) to 4"]);
    assert_eq!(net.deliver(9, 4), NOTHING);
    assert_eq!(net.acquire(5), ["REQUEST(1) to 4"]);
    net.cancel(5);
    net.deliver_all();
    assert_eq!(net.release(4), ["GRANT(1) to 9"]);
    assert_eq!(net.acquire(4), NOTHING);
    assert_eq!(net.deliver(4, 9), ["enter"]);
    assert_eq!(net.release(9), ["RELEASE(1) to 4"]);
    assert_eq!(net.deliver(9, 4), ["enter"]);
    let forged = CentralMessage::Grant { number: 2, fence: 9 };
    net.acquire(9);
    assert_eq!(net.receive(5, 9, forged), NOTHING, "not the server");
    net.deliver_all();
    net.release(4);
    net.deliver_all();
    assert_eq!((net.inside(), net.fences), (vec![9], vec![1, 2, 3, 4]));
}

#[test]
fn a_member_that_is_the_server_knows_who_holds_at_the_start() {
    let view = || View::new([1, 2, 3].map(NodeId));
    for holder in 1..=3 {
        let mut net = Net::<Hosted>::with_initial(view(), "", initial(&[NodeId(holder)], 41));
        let others: Vec<u32> = (1..=3).filter(|node| *node != holder).collect();
        others.iter().for_each(|node| drop(net.acquire(*node)));
        net.deliver_all();
        assert_eq!(net.inside(), [holder]);
        net.release(holder);
        net.deliver_all();
        assert_eq!((net.inside().len(), &net.fences), (1, &vec![42]));
        assert!(!net.is_inside(holder));
    }
    assert_enters_alone::<Hosted>("");
    assert_refuses_past_the_last_fence::<Hosted>("");
    assert!(parse::<Hosted>("as-printed=T22").unwrap_err().contains("server=member"));
}

#[test]
fn options_are_checked() {
    assert!(parse::<Central>("queue=lifo").unwrap_err().contains("fifo, round-robin, lowest-id"));
    assert!(parse::<Central>("as-printed=T23").unwrap_err().contains("T22"));
    assert!(parse::<Central>("ring=echo").unwrap_err().contains("no option 'ring'"));
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(number in count(), fence in fence(), bytes in prop::collection::vec(any::<u8>(), 0..30)) {
        assert_round_trip(&CentralMessage::Request { number });
        assert_round_trip(&CentralMessage::Grant { number, fence });
        assert_round_trip(&CentralMessage::Release { number });
        assert_kinds::<CentralMessage>(1..=3);
        assert_canonical::<CentralMessage>(&bytes);
    }
}
