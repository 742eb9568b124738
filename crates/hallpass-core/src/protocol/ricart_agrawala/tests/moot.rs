//! What may be dropped on the way because it changes nothing.

use proptest::prelude::*;

use super::*;

type Plain = Net<RicartAgrawala>;

/// One step of three nodes, chosen by a number: whatever fits there and then.
fn step(net: &mut Plain, choice: u16) {
    let node = u32::from(choice % 3) + 1;
    let choice = usize::from(choice / 3);
    let waits = net.nodes[&node].request_number().is_some();
    match choice % 8 {
        0 if !waits => drop(net.acquire(node)),
        1 if !waits => drop(net.acquire_shared(node)),
        2 if waits && !net.is_inside(node) => drop(net.cancel(node)),
        3 | 4 if net.is_inside(node) => drop(net.release(node)),
        _ if !net.in_flight.is_empty() => {
            let (from, to, message) = net.in_flight.remove(choice / 8 % net.in_flight.len());
            net.receive(from, to, message);
        }
        _ => {}
    }
}

fn small_replies() -> impl Iterator<Item = RaMessage> {
    (0..4 * 4 * 3).map(|i| RaMessage::Reply { answers: i % 4, highest: i / 4 % 4, fence: i / 16 })
}

proptest! {
    #[test]
    fn what_is_moot_changes_nothing_now_or_later(
        words in prop::sample::select(vec!["", "reply-number=false", "release=broadcast", "increment=random:3", "fence=off"]),
        choices in prop::collection::vec(any::<u16>(), 0..60),
    ) {
        let mut net = Plain::new([1, 2, 3], words);
        let mut moot: Vec<(u32, u32, RaMessage)> = Vec::new();
        for choice in choices {
            step(&mut net, choice);
            let known = net.in_flight.iter().cloned();
            let made = (1..=3).flat_map(|to| small_replies().map(move |message| (to % 3 + 1, to, message)));
            let candidates: Vec<_> = known.chain(made).collect();
            for (from, to, message) in candidates {
                if net.nodes[&to].is_moot(NodeId(from), &message) && !moot.contains(&(from, to, message.clone())) {
                    moot.push((from, to, message));
                }
            }
            for (from, to, message) in &moot {
                prop_assert!(net.nodes[to].is_moot(NodeId(*from), message), "moot once, not moot now: {message:?}");
                let mut node = net.nodes[to].clone();
                let mut out = Effects::new();
                node.handle(Input::Deliver { from: NodeId(*from), message: message.clone() }, &mut out);
                prop_assert_eq!(&node, &net.nodes[to]);
                prop_assert!(out.is_empty(), "{out:?}");
            }
        }
    }
}

#[test]
fn a_late_reply_to_a_request_given_up_is_moot() {
    let mut net = Plain::new([1, 2], "");
    net.acquire(1);
    net.deliver(1, 2);
    let reply = net.in_flight[0].2.clone();
    assert!(!net.nodes[&1].is_moot(NodeId(2), &reply));
    net.cancel(1);
    assert!(net.nodes[&1].is_moot(NodeId(2), &reply));
}

#[test]
fn a_message_with_something_new_is_not_moot() {
    let mut net = Plain::new([1, 2], "");
    net.pass_through(1);
    let is_moot = |message: RaMessage| net.nodes[&1].is_moot(NodeId(2), &message);
    assert!(is_moot(RaMessage::Reply { answers: 1, highest: 1, fence: 1 }));
    assert!(!is_moot(RaMessage::Reply { answers: 1, highest: 2, fence: 1 }));
    assert!(!is_moot(RaMessage::Reply { answers: 1, highest: 1, fence: 2 }));
    assert!(!is_moot(RaMessage::Reply { answers: 2, highest: 1, fence: 1 }), "the next request will have this number");
    assert!(!is_moot(RaMessage::Request { number: 1, mode: Mode::Exclusive }));
    assert!(!is_moot(RaMessage::Deferred { answers: 1, highest: 1 }));
    assert!(!is_moot(RaMessage::ReplyAll { list: Box::default(), highest: 1, fence: 1 }));
}

#[test]
fn where_numbers_repeat_or_clocks_tick_nothing_is_moot() {
    for words in ["clock=lamport", "numbers=modulo:5", "as-printed=T1", "as-printed=T6"] {
        let mut net = Plain::new([1, 2, 3], words);
        net.pass_through(1);
        assert!(small_replies().all(|message| !net.nodes[&1].is_moot(NodeId(2), &message)), "{words}");
    }
}
