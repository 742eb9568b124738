use proptest::prelude::*;

use super::*;
use crate::View;
use crate::protocol::testing::{
    NOTHING, Net, assert_canonical, assert_enters_alone, assert_kinds, assert_refuses_past_the_last_fence,
    assert_round_trip, count, fence, initial, parse,
};

fn net() -> Net<LamportFifo> {
    Net::new([1, 2, 3], "")
}

#[test]
fn rules_1_to_4_in_order() {
    let mut net = net();
    assert!(net.nodes.values().all(LamportFifo::is_idle));
    assert_eq!(net.acquire(2), ["REQUEST(1) to all"]);
    assert_eq!(net.deliver(2, 1), ["REPLY(1, at 2) to 2"]);
    assert_eq!(net.deliver(2, 3), ["REPLY(1, at 2) to 2"]);
    assert_eq!(net.deliver(1, 2), NOTHING);
    assert_eq!(net.deliver(3, 2), ["enter"]);
    assert_eq!(net.release(2), ["RELEASE(1) to all"]);
    net.deliver_all();
    net.pass_through(1);
    assert_eq!(net.fences, [1, 2]);
}

#[test]
fn replies_are_never_held_back() {
    let mut net = net();
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver(2, 1), ["REPLY(1, at 2) to 2"], "although 1 comes first");
    assert_eq!(net.deliver(2, 3), ["REPLY(1, at 2) to 2"]);
    assert_eq!(net.deliver(3, 2), NOTHING);
    assert_eq!(net.deliver(1, 2), ["REPLY(1, at 2) to 1"], "the REQUEST was sent before the REPLY, so it comes first");
    assert_eq!(net.deliver(1, 2), NOTHING, "a later message has come from all, and (1, 1) is in front");
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
}

#[test]
fn rule_5_any_message_stamped_later_will_do() {
    let mut net = Net::<LamportFifo>::new([1, 2], "");
    net.acquire(1);
    net.deliver(1, 2);
    assert_eq!(net.acquire(2), ["REQUEST(3) to all"]);
    net.in_flight.remove(0); // 2's REPLY.
    assert_eq!(net.deliver(2, 1), ["REPLY(3, at 4) to 2", "enter"], "2's REQUEST says as much");
}

#[test]
fn a_request_given_up_is_released() {
    let mut net = net();
    net.acquire(1);
    net.deliver(1, 2);
    assert_eq!(net.cancel(1), ["RELEASE(1) to all"]);
    assert_eq!(net.acquire(1), ["REQUEST(2) to all"]);
    for _ in 0..3 {
        net.deliver(1, 3);
    }
    net.deliver(3, 1);
    net.deliver(3, 1);
    assert_eq!(
        net.deliver(2, 1),
        NOTHING,
        "stamped 2 by node 2, and so later than (2, 1), but for the request before it"
    );
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
}

#[test]
fn copies_and_messages_of_strangers_and_absurd_ones_have_no_effect() {
    let mut net = net();
    net.acquire(1);
    net.deliver(1, 2);
    let request = LamportFifoMessage::Request { time: 1 };
    assert_eq!(net.receive(1, 2, request.clone()), NOTHING);
    assert_eq!(net.receive(9, 2, request), NOTHING);
    assert_eq!(net.receive(2, 1, LamportFifoMessage::Reply { answers: 1, clock: u64::MAX }), NOTHING);
    assert_eq!(net.receive(3, 1, LamportFifoMessage::Request { time: u64::MAX }), NOTHING);
    net.deliver_all();
    net.release(1);
    net.deliver_all();
    net.pass_through(2);
}

#[test]
fn initial_holders_are_waited_for() {
    let readers = [NodeId(3), NodeId(1)];
    let mut net = Net::<LamportFifo>::with_initial(View::new([1, 2, 3].map(NodeId)), "", initial(&readers, 41));
    net.acquire(2);
    net.deliver_all();
    net.release(3);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
    net.release(1);
    net.deliver_all();
    assert_eq!((net.inside(), net.fences), (vec![2], vec![42]));
}

#[test]
fn alone_and_at_the_end_of_fences() {
    assert_enters_alone::<LamportFifo>("");
    assert_refuses_past_the_last_fence::<LamportFifo>("");
}

#[test]
fn it_asks_for_links_that_keep_order() {
    let needs = |words| LamportFifo::needs(&parse::<LamportFifo>(words).unwrap());
    assert_eq!(needs("").fifo, Some("lamport-fifo"));
    assert!(needs("").no_loss.unwrap().contains("lost REQUEST"));
    assert_eq!((needs("links=any").fifo, needs("links=any").no_loss), (None, None));
    assert!(parse::<LamportFifo>("as-printed=T23").unwrap_err().contains("no option"));
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(a in count(), b in count(), c in fence(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        assert_round_trip(&LamportFifoMessage::Request { time: a });
        assert_round_trip(&LamportFifoMessage::Reply { answers: a, clock: b });
        assert_round_trip(&LamportFifoMessage::Release { time: a, clock: b, fence: c });
        assert_kinds::<LamportFifoMessage>(1..=3);
        assert_canonical::<LamportFifoMessage>(&bytes);
    }
}
