//! Sections 6.4 and 6.5, and the Lamport clocks of the Carnegie Mellon notes.

use super::RaTimer::HoldBack;
use super::*;

type Plain = Net<RicartAgrawala>;

#[test]
fn modulo_compares_residues_like_the_numbers_they_stand_for() {
    let net = Plain::new([1, 2, 3], "numbers=modulo:5");
    let node = &net.nodes[&1];
    for a in 0u64..20 {
        for b in a.saturating_sub(2)..=a + 2 {
            assert_eq!(node.before(a % 5, b % 5), a < b, "{a} and {b}, {} and {}", a % 5, b % 5);
        }
    }
}

#[test]
fn modulo_the_smaller_is_increased_by_m_if_the_difference_is_n_or_more() {
    let net = Plain::new([1, 2, 3], "numbers=modulo:5");
    for a in 0u64..5 {
        for b in 0u64..5 {
            let raised = if a.abs_diff(b) < 3 {
                (a, b)
            } else if a < b {
                (a + 5, b)
            } else {
                (a, b + 5)
            };
            assert_eq!(net.nodes[&1].before(a, b), raised.0 < raised.1, "{a} and {b}");
        }
    }
}

#[test]
fn modulo_numbers_wrap_and_the_order_stays() {
    let mut net = Plain::new([1, 2, 3], "numbers=modulo:5");
    let mut chosen = Vec::new();
    for node in [1, 2, 3, 1, 2, 3, 1] {
        chosen.push(net.acquire(node).remove(0));
        net.deliver_all();
        net.release(node);
    }
    assert_eq!(chosen, [1, 2, 3, 4, 0, 1, 2].map(|number| format!("REQUEST({number}) to all")));
    for node in [3, 1] {
        net.pass_through(node);
    }
    // Node 3 asks with 0, node 1 has 4 still outstanding: 4 comes before 0.
    let mut net = Plain::new([1, 2, 3], "numbers=modulo:5");
    for node in [1, 2, 1] {
        net.pass_through(node);
    }
    assert_eq!(net.acquire(3), ["REQUEST(4) to all"]);
    net.deliver(3, 1);
    assert_eq!(net.acquire(1), ["REQUEST(0) to all"]);
    assert_eq!(net.deliver_first("REQUEST", 1, 3), NOTHING);
    assert_eq!(net.nodes[&3].highest_number(), 0, "0 is the higher of 4 and 0");
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
}

#[test]
fn random_steps_are_one_plus_the_draw_modulo_k() {
    let mut net = Plain::new([1, 2], "increment=random:4");
    let mut highest = 0;
    for draw in [0, 3, 4, 7, 9, u32::MAX] {
        highest += 1 + u64::from(draw % 4);
        let effects = net.act(1, Input::Acquire { mode: Mode::Exclusive, draw });
        assert_eq!(effects, [format!("REQUEST({highest}) to all")]);
        net.cancel(1);
    }
    assert_eq!(RicartAgrawala::draws(&net.options), 4);
    let net = Plain::new([1, 2], "");
    assert_eq!(RicartAgrawala::draws(&net.options), 1);
}

#[test]
fn unit_steps_do_not_use_the_draw() {
    let mut net = Plain::new([1, 2], "");
    assert_eq!(net.act(1, Input::Acquire { mode: Mode::Exclusive, draw: 3 }), ["REQUEST(1) to all"]);
}

#[test]
fn priority_steps_are_the_nodes_own() {
    let mut net = Plain::new([4, 5, 6], "increment=priority priorities=1,3,9");
    for (node, first, second) in [(4, 1, 2), (5, 3, 6), (6, 9, 18)] {
        assert_eq!(net.acquire(node), [format!("REQUEST({first}) to all")]);
        net.cancel(node);
        assert_eq!(net.acquire(node), [format!("REQUEST({second}) to all")]);
    }
}

#[test]
fn hold_back_keeps_a_low_priority_request_unanswered_until_its_timer() {
    let mut net = Plain::new([1, 2, 3], "increment=priority priorities=1,5,5 hold-back=3T");
    net.acquire(1);
    net.deliver(1, 2);
    net.deliver(1, 3);
    net.acquire(2); // Number 6: it knows of 1.
    net.acquire(3);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["set HoldBack 3000"]);
    assert_eq!(net.deliver_first("REQUEST", 3, 1), NOTHING, "the timer runs already");
    assert_eq!(net.nodes[&1].highest_number(), 1, "a REQUEST that is held back does not count yet");
    assert!(!net.nodes[&1].is_idle());
    net.deliver(2, 1);
    assert_eq!(net.deliver(3, 1), ["enter"]);
    assert_eq!(net.release(1), NOTHING);
    // It monopolises: its next number is still below theirs.
    assert_eq!(net.acquire(1), ["REQUEST(2) to all"]);
    assert_eq!(net.fire(1, HoldBack), NOTHING, "handled now, and deferred");
    assert_eq!(net.nodes[&1].highest_number(), 6);
    assert_eq!(net.cancel(1), ["REPLY(6) to 2", "REPLY(6) to 3"]);
    assert!(net.nodes[&1].is_idle());
}

#[test]
fn hold_back_answers_at_the_timer_if_nobody_wants_in_by_then() {
    let mut net = Plain::new([1, 2], "increment=priority priorities=1,5 hold-back=3T");
    net.acquire(1);
    net.acquire(2);
    net.deliver(2, 1);
    net.cancel(1);
    assert_eq!(net.fire(1, HoldBack), ["REPLY(5) to 2"]);
}

#[test]
fn hold_back_is_for_nodes_that_want_in_and_against_lower_priority_only() {
    let words = "increment=priority priorities=1,5,5 hold-back=3T";
    let mut net = Plain::new([1, 2, 3], words);
    net.acquire(2);
    assert_eq!(net.deliver(2, 1), ["REPLY(5) to 2"], "node 1 does not want in");
    assert_eq!(net.deliver(2, 3), ["REPLY(5) to 2"]);
    net.acquire(3); // Number 10.
    net.acquire(1);
    assert_eq!(net.deliver_first("REQUEST", 3, 2), NOTHING, "equal priority: deferred at once, no timer");
    assert_eq!(net.deliver_first("REQUEST", 1, 2), NOTHING, "higher priority: handled at once");
    assert_eq!(net.nodes[&2].highest_number(), 10);
}

/// Every stamp of the worked example, T = 10 L + process: those of the sendings stand in the messages, those of the
/// receptions and entries in the clocks.
#[test]
fn lamport_clocks_reproduce_the_worked_example() {
    use super::RaMessage::{Reply, Request};
    let mut net = Plain::new([1, 2, 3], "clock=lamport clocks=42,9,14");
    let stamp = |net: &Plain, node: u32| 10 * net.nodes[&node].highest_number() + u64::from(node);
    let reply_stamp = |net: &Plain, from, to| {
        let found = net.in_flight.iter().find_map(|(f, t, message)| match message {
            Reply { highest, .. } if (*f, *t) == (from, to) => Some(*highest),
            _ => None,
        });
        found.expect("a REPLY on its way")
    };
    let request = |number| Request { number, mode: Mode::Exclusive };

    assert_eq!(net.acquire(3), ["REQUEST(153) to all"]); // 3:153 B
    assert_eq!(net.deliver(3, 2), ["REPLY(153) to 3"]); // 2:162 R, 2:172 S
    assert_eq!(reply_stamp(&net, 2, 3), 172);
    assert_eq!(net.deliver(3, 1), ["REPLY(153) to 3"]); // 1:431 R, 1:441 S
    assert_eq!(reply_stamp(&net, 1, 3), 441);
    assert_eq!(net.deliver(1, 3), NOTHING);
    assert_eq!(stamp(&net, 3), 453); // R
    assert_eq!(net.deliver(2, 3), ["enter"]);
    assert_eq!(stamp(&net, 3), 473); // R at 463, then ENTER
    assert_eq!(net.acquire(1), ["REQUEST(451) to all"]); // B
    assert_eq!(net.acquire(2), ["REQUEST(182) to all"]); // B
    assert_eq!(net.in_flight[0].2, request(451));
    assert_eq!(net.deliver(1, 3), NOTHING);
    assert_eq!(stamp(&net, 3), 483); // R(1)
    assert_eq!(net.deliver(2, 3), NOTHING);
    assert_eq!(stamp(&net, 3), 493); // R(2)
    assert_eq!(net.deliver(1, 2), NOTHING);
    assert_eq!(stamp(&net, 2), 462); // R(1), D = {1}
    assert_eq!(net.nodes[&2].deferred, [(NodeId(1), 451)]);
    assert_eq!(net.deliver(2, 1), ["REPLY(182) to 2"]); // 1:461 R(2), 1:471 S to 2
    assert_eq!(reply_stamp(&net, 1, 2), 471);
    assert_eq!(net.deliver(1, 2), NOTHING);
    assert_eq!(stamp(&net, 2), 482); // R
    assert_eq!(net.release(3), ["REPLY(451) to 1", "REPLY(182) to 2"]);
    assert_eq!(reply_stamp(&net, 3, 1), 503); // S to 1
    assert_eq!(reply_stamp(&net, 3, 2), 513); // S to 2
    assert_eq!(net.deliver(3, 1), NOTHING);
    assert_eq!(stamp(&net, 1), 511); // R
    assert_eq!(net.deliver(3, 2), ["enter"]);
    assert_eq!(stamp(&net, 2), 532); // R at 522, then ENTER
    assert_eq!(net.release(2), ["REPLY(451) to 1"]);
    assert_eq!(reply_stamp(&net, 2, 1), 542); // S to 1
    assert_eq!(net.deliver(2, 1), ["enter"]);
    assert_eq!(stamp(&net, 1), 561); // R at 551, then ENTER
    assert_eq!(net.release(1), NOTHING);
    assert!(net.in_flight.is_empty());
}

#[test]
fn lamport_stamps_have_digits_for_the_largest_node() {
    let mut net = Plain::new([5, 123], "clock=lamport");
    assert_eq!(net.acquire(5), ["REQUEST(1005) to all"]);
    assert_eq!(net.deliver(5, 123), ["REPLY(1005) to 5"]);
    assert_eq!(net.acquire(123), ["REQUEST(4123) to all"]);
}
