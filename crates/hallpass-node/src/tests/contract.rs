//! The driver's contract: in which order outputs come, and what waits for the disk.

use super::*;

/// Two nodes that are about to found a group, each with an early caller; the disk of the first one writes nothing yet.
#[test]
fn nothing_is_sent_or_granted_before_the_group_is_on_disk() {
    let mut nodes: [_; 2] = group(|_| {});
    nodes[0].unwritten = Some(Vec::new());
    for (at, caller) in [(0, 7), (1, 8)] {
        waits(&mut nodes[at], WRITE, caller);
    }
    meet(&mut nodes);
    found(&mut nodes, |nodes| nodes[0].unwritten.as_ref().is_some_and(|unwritten| !unwritten.is_empty()));
    assert!(nodes.iter().all(|node| !node.is_complete() && !node.has_answer()));
    assert_eq!(try_to(&mut nodes[0], "x", WRITE, 9), Answer::Busy);
    nodes[0].write_all();
    connect(&mut nodes);
    exchange(&mut nodes);
    let first = nodes.iter().position(|node| node.has_answer()).unwrap();
    let (caller, ticket, _) = granted(&mut nodes[first]);
    let others: Vec<u32> = [7, 8].into_iter().filter(|other| *other != caller).collect();
    assert_eq!(order(&mut nodes, (first, ticket)), others);
}

#[test]
fn a_write_that_was_not_asked_for_changes_nothing() {
    let mut nodes: [_; 2] = group(|_| {});
    let write = Write { number: 1000, remove: 0..0, put: Vec::new() };
    nodes[0].node_mut().handle_persisted(write, 0);
    assert!(!nodes[0].is_complete() && nodes[0].node_mut().poll_output().is_none());
    connect(&mut nodes);
}

/// A peer takes messages again: a caller who was held up is asked for, and another one is turned away.
#[test]
fn answers_come_before_bytes() {
    let mut nodes: [_; 2] = connected(|_| {});
    nodes[0].node_mut().locks.floors.raise("x", Floor { number: 0, fence: Fence::COUNT_MAX - 1 });
    waits(&mut nodes[0], WRITE, 1);
    exchange(&mut nodes);
    let (_, last, _) = granted(&mut nodes[0]);
    waits(&mut nodes[0], WRITE, 2);
    waits(&mut nodes[1], WRITE, 4);
    exchange(&mut nodes);
    let node = nodes[0].node_mut();
    assert!(node.handle_release(last, 0));
    let refused = Output::Answer { caller: 2, outcome: Outcome::Refused(Refusal::Fences) };
    let outputs: Vec<_> = std::iter::from_fn(|| node.poll_output()).collect();
    assert_eq!(outputs, [refused, Output::Transmit(NodeId(2))]);
}

#[test]
fn what_a_connection_did_not_take_is_offered_again_after_the_next_input() {
    let mut nodes: [_; 2] = connected(|_| {});
    let node = nodes[0].node_mut();
    node.handle_acquire("x", WRITE, Patience::Wait, 0, || 1).unwrap();
    let offered = Some(Output::Transmit(NodeId(2)));
    assert_eq!(node.poll_output(), offered);
    node.handle_transmitted(NodeId(2), 1);
    assert_eq!((node.poll_output(), node.poll_output()), (None, None), "once after each input");
    node.handle_timeout(0);
    assert_eq!(node.poll_output(), offered);
    let left = node.poll_transmit(NodeId(2)).len();
    node.handle_transmitted(NodeId(2), left - 1);
    assert_eq!(node.poll_output(), None);
    node.handle_writable(0);
    assert_eq!(node.poll_output(), offered);
    node.handle_transmitted(NodeId(2), 1);
    node.handle_writable(0);
    assert_eq!(node.poll_output(), None, "nothing is left");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the outputs of the last input were not taken")]
fn an_input_before_the_outputs_were_taken_is_a_bug_of_the_driver() {
    let mut nodes: [_; 2] = connected(|_| {});
    let node = nodes[0].node_mut();
    node.handle_acquire("x", WRITE, Patience::Wait, 0, || 1).unwrap();
    node.handle_timeout(0);
}
