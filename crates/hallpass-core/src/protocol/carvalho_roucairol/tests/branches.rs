//! The paper's procedures, branch by branch.

use super::*;

#[test]
fn alone_it_enters_at_once_and_sends_nothing() {
    let mut net = Group::new(1..=1, "");
    for _ in 0..3 {
        assert_eq!(net.acquire(1), ["enter"]);
        assert_eq!(net.release(1), NOTHING);
        assert_eq!(net.acquire_shared(1), ["enter"]);
        assert_eq!(net.release(1), NOTHING);
        assert!(net.nodes[&1].is_idle());
    }
}

#[test]
fn a_permission_stays_until_it_is_given_back() {
    let mut net = Group::new(1..=3, "");
    assert_eq!(net.acquire(1), ["REQUEST(1) to all"]);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
    assert_eq!(net.release(1), NOTHING);
    for _ in 0..3 {
        assert_eq!(net.acquire(1), ["enter"], "everybody's permission is here");
        assert_eq!(net.release(1), NOTHING);
    }
}

#[test]
fn only_those_are_asked_whose_permission_is_missing() {
    let mut net = Group::new(1..=3, "");
    net.pass_through(1);
    net.acquire(2);
    net.deliver_all();
    net.release(2);
    assert_eq!((permission(&net, 1, 2), permission(&net, 1, 3)), ("", "X"));
    assert_eq!(net.acquire(1), ["REQUEST(3) to 2"]);
}

#[test]
fn branch_one_a_node_that_is_inside_defers() {
    let mut net = Group::new(1..=2, "");
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    net.deliver_first("REPLY", 1, 2);
    assert_eq!(net.inside(), [2]);
    net.acquire(1);
    // Lower by (number, node) or not: Using comes first.
    net.nodes.get_mut(&2).unwrap().request.as_mut().unwrap().number = 9;
    assert_eq!(net.deliver_first("REQUEST", 1, 2), NOTHING);
    assert_eq!(net.release(2), ["REPLY(2) to 1"]);
    assert_eq!(permission(&net, 2, 1), "", "given back");
}

#[test]
fn branch_one_a_node_that_waits_and_comes_first_defers() {
    let mut net = Group::new(1..=3, "");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), NOTHING, "equal numbers: the lower id comes first");
    net.deliver_first("REQUEST", 1, 3);
    net.acquire(3);
    assert_eq!(net.deliver_first("REQUEST", 3, 1), NOTHING, "a higher number");
    net.deliver_first("REQUEST", 1, 2);
    net.deliver_first("REPLY", 2, 1);
    assert_eq!(net.deliver_first("REPLY", 3, 1), ["enter"]);
    assert_eq!(net.release(1), ["REPLY(1) to 2", "REPLY(2) to 3"]);
}

#[test]
fn branch_two_a_node_that_wants_nothing_gives() {
    let mut net = Group::new(1..=2, "");
    net.pass_through(1);
    assert_eq!(permission(&net, 1, 2), "X");
    net.acquire(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["REPLY(2) to 2"]);
    assert_eq!(permission(&net, 1, 2), "");
}

#[test]
fn branch_two_a_node_that_waits_without_the_permission_and_comes_second_gives() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    net.acquire(2);
    assert_eq!(net.deliver_first("REQUEST", 1, 2), ["REPLY(1) to 1"], "its own REQUEST is in flight already");
}

#[test]
fn branch_three_a_node_that_waits_with_the_permission_and_comes_second_gives_and_asks_again() {
    let mut net = Group::new(1..=3, "");
    net.pass_through(3);
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 3);
    assert_eq!(permission(&net, 3, 2), "");
    // Node 3 has node 1's permission, asks node 2 only, and comes second behind node 1's lower number.
    assert_eq!(net.acquire(3), ["REQUEST(3) to 2"]);
    net.acquire(1);
    net.nodes.get_mut(&1).unwrap().request.as_mut().unwrap().number = 2;
    let message = CrMessage::Request(Asked { number: 2, mode: Exclusive });
    assert_eq!(net.receive(1, 3, message), ["REPLY(2) to 1", "REQUEST(3) to 1"]);
    assert_eq!(permission(&net, 3, 1), "");
}

#[test]
fn both_sides_want_in_again_and_again_and_take_turns() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    net.acquire(2);
    let mut order = Vec::new();
    for _ in 0..6 {
        net.deliver_all();
        let inside = net.inside()[0];
        order.push(inside);
        net.release(inside);
        net.acquire(inside);
    }
    assert_eq!(order, [1, 2, 1, 2, 1, 2]);
}

/// T17, why permissions end with the view: node 2 is removed while it is paused, and node 1 goes on in a view of its own.
#[test]
fn a_removed_node_that_keeps_its_permissions_enters_and_nobody_can_object() {
    let mut net = Group::new(1..=2, "");
    net.pass_through(2);
    let mut alone = Group::new(1..=1, "");
    assert_eq!(alone.acquire(1), ["enter"]);
    assert_eq!(net.acquire(2), ["enter"], "two inside: only a session that has run out keeps node 2 from this");
    let fresh = net.fresh(2, 1, InitialHolders::NOBODY);
    assert!(!fresh.has_permissions(), "a new incarnation or view starts with none");
}

/// T17: a new view in which node 1 is inside, and node 2 goes on with its instance from the old view.
#[test]
fn permissions_carried_into_a_new_view_let_a_second_node_in_and_a_fresh_instance_waits() {
    let mut old = Group::new(1..=3, "");
    old.pass_through(2);
    let new = || Group::with_initial(old.view.clone(), "", initial(&[NodeId(1)], 7));

    let mut careless = new().without_exclusion();
    careless.nodes.insert(2, old.nodes[&2].clone());
    assert_eq!(careless.acquire(2), ["enter"], "beside node 1, and without a message");

    let mut fresh = new();
    fresh.acquire(2);
    fresh.deliver_all();
    assert_eq!(fresh.inside(), [1], "node 1 defers");
    fresh.release(1);
    fresh.deliver_all();
    assert_eq!(fresh.inside(), [2]);
}

#[test]
fn only_conflicting_requests_count_as_waiters() {
    let mut net = Group::new(1..=3, "");
    net.pass_through(1);
    net.acquire_shared(1);
    assert!(!net.nodes[&1].has_waiters());
    net.acquire_shared(2);
    net.deliver_all();
    assert_eq!(net.inside(), [1, 2]);
    assert!(!net.nodes[&1].has_waiters(), "a reader does not wait for a reader");
    net.acquire(3);
    net.deliver_all();
    assert!(net.nodes[&1].has_waiters() && net.nodes[&2].has_waiters());
    net.release(1);
    assert!(!net.nodes[&1].has_waiters());
}

#[test]
fn an_initial_holder_has_everybodys_permission_and_keeps_it() {
    let mut net = Group::with_initial(View::new([1, 2, 3].map(NodeId)), "", initial(&[NodeId(2)], 7));
    net.acquire(1);
    net.deliver_all();
    assert_eq!(net.inside(), [2], "the others wait");
    assert_eq!(net.release(2), ["REPLY(1) to 1"]);
    net.deliver_all();
    assert_eq!((net.inside(), net.fences.last()), (vec![1], Some(&8)));
    assert_eq!(permission(&net, 2, 3), "X");
}

#[test]
fn several_readers_may_be_initial_holders() {
    let readers = [NodeId(1), NodeId(2)];
    let mut net = Group::with_initial(View::new([1, 2, 3].map(NodeId)), "", initial(&readers, 7));
    net.acquire(3);
    net.deliver_all();
    assert_eq!(net.inside(), [1, 2]);
    net.release(1);
    assert_eq!(net.acquire_shared(1), ["REQUEST(2, shared) to 3"], "what node 3 asked for is given back");
    net.deliver_all();
    net.release(2);
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
    net.release(3);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
}

#[test]
fn invalid_messages_have_no_effect() {
    let mut net = Group::new(1..=2, "");
    net.acquire(1);
    let before = net.nodes[&1].clone();
    let asked = |number| Asked { number, mode: Exclusive };
    for (from, message) in [
        (2, CrMessage::Request(asked(NUMBER_MAX + 1))),
        (2, CrMessage::Request(asked(u64::MAX))),
        (9, CrMessage::Request(asked(1))),
        (9, CrMessage::Reply { answers: asked(1), fence: 1 }),
        (2, CrMessage::Reply { answers: asked(2), fence: 1 }),
        (2, CrMessage::Reply { answers: Asked { mode: Shared, ..asked(1) }, fence: 1 }),
        (2, CrMessage::Reply { answers: asked(u64::MAX), fence: u64::MAX }),
    ] {
        assert_eq!(net.receive(from, 1, message.clone()), NOTHING, "{message:?}");
        assert_eq!(net.nodes[&1], before, "{message:?}");
    }
}

#[test]
fn options_are_known_or_refused_in_one_line() {
    assert_eq!(parse::<CarvalhoRoucairol>("cache-idle=2T").unwrap().cache_idle, Some(2000));
    for (words, reason) in [
        ("cache-idle=soon", "not a duration"),
        ("as-printed=T15", "offered: none here"),
        ("reply=implicit", "carvalho-roucairol has no option 'reply' here"),
    ] {
        let error = parse::<CarvalhoRoucairol>(words).expect_err(words);
        assert!(error.contains(reason) && !error.contains('\n'), "{error}");
    }
}
