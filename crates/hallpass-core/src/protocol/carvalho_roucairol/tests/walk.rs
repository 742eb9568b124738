//! Random walks of three nodes, with everything a driver may do in between.

use proptest::prelude::*;

use super::*;

/// One step, chosen by a number: whatever fits there and then. Now and then a message is repeated.
fn step(net: &mut Group, choice: u16) {
    let node = u32::from(choice % 3) + 1;
    let choice = usize::from(choice / 3);
    let waits = net.nodes[&node].request.is_some();
    match choice % 11 {
        0 if !waits => drop(net.acquire(node)),
        1 if !waits => drop(net.acquire_shared(node)),
        2 if waits && !net.is_inside(node) => drop(net.cancel(node)),
        3 | 4 if net.is_inside(node) => drop(net.release(node)),
        5 => net.nodes.get_mut(&node).unwrap().drop_permissions(),
        6 if net.nodes[&node].is_idle() => {
            let mut fresh = net.fresh(node, 0, InitialHolders::NOBODY);
            // Node-wide: other locks may have raised it further.
            let Floor { number, fence } = net.nodes[&node].floor().unwrap();
            fresh.raise_floor(Floor { number: number + choice as u64 % 2, fence });
            net.nodes.insert(node, fresh);
        }
        kind if !net.in_flight.is_empty() => {
            let index = choice / 11 % net.in_flight.len();
            let (from, to, message) =
                if kind == 7 { net.in_flight[index].clone() } else { net.in_flight.remove(index) };
            net.receive(from, to, message);
        }
        _ => {}
    }
}

/// Like a cache line: exclusive on one side means nothing on the other.
fn pairs_agree(net: &Group) {
    for a in 1..=3 {
        for b in a + 1..=3 {
            let pair = (permission(net, a, b), permission(net, b, a));
            assert!(matches!(pair, ("", _) | (_, "") | ("S", "S")), "{a} and {b}: {pair:?}");
        }
    }
}

fn small_replies() -> impl Iterator<Item = CrMessage> {
    (0..8).map(|i| {
        let mode = if i % 2 == 0 { Exclusive } else { Shared };
        CrMessage::Reply { answers: Asked { number: i / 2, mode }, fence: 3 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Exclusion is asserted by the net at every entry.
    #[test]
    fn whatever_happens_pairs_agree_and_fences_rise(choices in prop::collection::vec(any::<u16>(), 0..150)) {
        let mut net = Group::new(1..=3, "");
        for choice in choices {
            step(&mut net, choice);
            pairs_agree(&net);
        }
        // Heal: everybody leaves or waits to, and everything arrives.
        for _ in 0..4 {
            net.deliver_all();
            for node in net.inside() {
                net.release(node);
            }
        }
        prop_assert!(net.nodes.values().all(|node| node.request.is_none() && node.deferred.is_empty()));
        prop_assert!(net.fences.windows(2).all(|pair| pair[0] <= pair[1]), "{:?}", net.fences);
    }
}

proptest! {
    #[test]
    fn what_is_moot_changes_nothing_now_or_later(choices in prop::collection::vec(any::<u16>(), 0..60)) {
        let mut net = Group::new(1..=3, "");
        let mut moot: Vec<(u32, u32, CrMessage)> = Vec::new();
        for choice in choices {
            step(&mut net, choice);
            let made = (1..=3).flat_map(|to| small_replies().map(move |message| (to % 3 + 1, to, message)));
            let candidates: Vec<_> = net.in_flight.iter().cloned().chain(made).collect();
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
fn a_reply_that_may_still_be_accepted_is_not_moot() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    let reply = |number| CrMessage::Reply { answers: Asked { number, mode: Exclusive }, fence: 0 };
    let is_moot = |net: &Group, message| net.nodes[&1].is_moot(NodeId(2), &message);
    assert!(is_moot(&net, reply(0)) && !is_moot(&net, reply(1)) && !is_moot(&net, reply(2)));
    assert!(!net.nodes[&1].is_moot(NodeId(2), &CrMessage::Request(Asked { number: 1, mode: Shared })));
    net.deliver_all();
    assert!(is_moot(&net, reply(1)) && !is_moot(&net, reply(2)));
}
