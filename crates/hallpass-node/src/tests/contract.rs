//! The driver's contract: in which order outputs come, and what waits for the disk.

use super::*;

/// Two connected nodes of which the first has the lower incarnation, so that it must write the epoch down; it waits with
/// an early caller.
fn first_must_persist() -> [Driven; 2] {
    let members = [NodeId(1), NodeId(2)];
    let mut nodes = [(1, 3), (2, 8)].map(|(me, incarnation)| {
        let mut node =
            Driven::new(NodeConfig { incarnation: number(incarnation), ..NodeConfig::new(NodeId(me), members) })
                .unwrap();
        node.unwritten = Some(Vec::new());
        node
    });
    waits(&mut nodes[0], WRITE, 7);
    connect(&mut nodes);
    nodes
}

#[test]
fn nothing_is_sent_or_granted_before_the_epoch_is_on_disk() {
    let mut nodes = first_must_persist();
    assert_eq!(nodes[0].unwritten, Some(vec![Record::Epoch(8)]));
    assert_eq!(nodes[1].unwritten, Some(vec![]), "its incarnation is the epoch, and is on disk already");
    assert!(!nodes[0].is_complete() && nodes[1].is_complete());
    // What the other one sends meanwhile is kept.
    waits(&mut nodes[1], WRITE, 8);
    exchange(&mut nodes);
    assert!(nodes.iter().all(|node| !node.has_answer()));
    assert_eq!(try_to(&mut nodes[0], "x", WRITE, 9), Answer::Busy);
    nodes[0].write_all();
    assert!(nodes[0].is_complete());
    exchange(&mut nodes);
    let first = nodes.iter_mut().position(|node| node.has_answer()).unwrap();
    let (caller, ticket, _) = granted(&mut nodes[first]);
    let others: Vec<u32> = [7, 8].into_iter().filter(|other| *other != caller).collect();
    assert_eq!(order(&mut nodes, (first, ticket)), others);
}

#[test]
fn a_record_that_was_not_asked_for_changes_nothing() {
    let mut nodes = first_must_persist();
    nodes[0].node_mut().handle_persisted(Record::Epoch(9), 0);
    assert!(!nodes[0].is_complete() && nodes[0].node_mut().poll_output().is_none());
    nodes[0].write_all();
    assert_eq!(nodes[0].epoch(), Some(8));
    nodes[0].node_mut().handle_persisted(Record::Epoch(8), 0);
    assert_eq!(nodes[0].epoch(), Some(8));
}

/// The group becomes complete: one early caller is asked for at the other node, and another one is refused.
#[test]
fn answers_come_before_bytes() {
    let mut nodes: [_; 2] = group(|config| config.locks_max = 1);
    for (lock, caller) in [("a", 1), ("b", 2)] {
        nodes[0].handle_acquire(lock, WRITE, Patience::Wait, 0, || caller).unwrap();
    }
    let hello = nodes[1].hello(NodeId(1)).unwrap();
    let node = nodes[0].node_mut();
    node.handle_hello(&hello, 0).unwrap();
    let refused = Output::Answer { caller: 2, outcome: Outcome::Refused(Refusal::Locks) };
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
