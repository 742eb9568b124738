//! Fences: dense and strictly increasing, although the requests' numbers are not.

use super::*;

/// Why a request's number cannot be a fence. Node 1 enters again before it receives node 2's REQUEST, which
/// has a lower number than its own second one.
#[test]
fn numbers_are_not_monotonic_and_fences_are() {
    let mut net = Group::new(1..=2, "");
    let mut entries = Vec::new();
    net.acquire(1);
    net.acquire(2);
    net.deliver_first("REQUEST", 1, 2);
    net.deliver_first("REPLY", 2, 1);
    entries.push((net.nodes[&1].request_number().unwrap(), 1));
    net.release(1);
    assert_eq!(net.acquire(1), ["enter"]);
    entries.push((net.nodes[&1].request_number().unwrap(), 1));
    net.release(1);
    net.deliver_all();
    assert_eq!(net.inside(), [2]);
    entries.push((net.nodes[&2].request_number().unwrap(), 2));
    assert_eq!(entries, [(1, 1), (2, 1), (1, 2)], "(2,1) before (1,2)");
    assert_eq!(net.fences, [1, 2, 3]);
}

#[test]
fn shared_fences_lie_between_the_exclusive_ones_around_them() {
    let mut net = Group::new(1..=3, "");
    net.pass_through(1);
    net.pass_through_as(2, Shared);
    net.pass_through_as(3, Shared);
    net.pass_through_as(2, Shared);
    net.pass_through(3);
    net.pass_through_as(2, Shared);
    assert_eq!(net.fences, [1, 2, 2, 2, 2, 3]);
}

/// A node that has forgotten the lock starts it again above the fences of all locks that it has forgotten.
#[test]
fn readers_who_are_inside_together_may_have_different_fences() {
    let mut net = Group::new(1..=3, "");
    net.acquire_as(1, Shared);
    net.deliver_all();
    net.nodes.get_mut(&3).unwrap().raise_floor(Floor { number: 0, fence: 100 });
    net.acquire_as(2, Shared);
    net.deliver_all();
    assert_eq!((net.inside(), net.fences.as_slice()), (vec![1, 2], [1, 101].as_slice()));
    net.release(1);
    net.release(2);
    net.pass_through(1);
    assert_eq!(net.fences, [1, 101, 101], "the next writer's is not below any reader's");
}

#[test]
fn the_epoch_comes_first() {
    let mut net = Group::new(1..=1, "");
    net.view = net.view.clone().with_epoch(3);
    net.nodes.insert(1, net.fresh(1, 0, InitialHolders::NOBODY));
    net.acquire(1);
    assert_eq!(net.fences, [Fence::compose(3, 1).unwrap().get()]);
}

#[test]
fn at_the_end_of_all_counts_an_entry_is_refused() {
    let mut net = Group::new(1..=1, "");
    net.nodes.get_mut(&1).unwrap().raise_floor(Floor { number: 0, fence: Fence::COUNT_MAX - 1 });
    assert_eq!(net.acquire(1), ["enter"]);
    net.release(1);
    assert_eq!(net.acquire(1), NOTHING);
    assert_eq!(net.cancel(1), NOTHING);
}

#[test]
fn an_absurd_fence_is_cut_to_the_largest() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    let answers = Asked { number: 1, mode: Exclusive };
    assert_eq!(net.receive(2, 1, CrMessage::Reply { answers, fence: u64::MAX }), NOTHING, "refused, not wrapped");
    assert_eq!(net.nodes[&1].floor().unwrap().fence, Fence::COUNT_MAX);
}
