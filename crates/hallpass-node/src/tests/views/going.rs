//! Members that go, or are cut off, while the group changes who decides.

use super::*;

/// One of two leaves, and the other one, which takes over what it decides, is told to stop or to leave meanwhile: it may lead for the first time
/// when it is leaving, and prepares the last view of an earlier steward again, in which it still is.
#[test]
fn a_member_that_becomes_the_steward_while_it_leaves_takes_part_in_no_view() {
    let mut led = 0;
    for (moment, request) in (0..100).flat_map(|moment| [(moment, Request::Stop), (moment, Request::Leave)]) {
        let mut net = Net::founded(2);
        let steward = net.steward();
        let other = 3 - steward;
        net.input(steward, |node, now| node.handle_request(Request::Leave, 1, now));
        net.run(moment);
        net.input(other, |node, now| node.handle_request(request, 2, now));
        for _ in 0..2 * TTL / MS {
            net.step();
            let node = &net.nodes[&NodeId(other)].node;
            assert!(!node.is_complete(), "after {moment} ms");
            led += u64::from(node.status().steward == Some(NodeId(other)));
        }
    }
    assert!(led > 0, "it leads at some moment");
}

/// The only voter leaves, and does not reach the other member for two sessions while that takes the vote over. It leads no more then, and needs
/// the other one's vote, which has stored nothing newer than the view without it.
#[test]
fn a_member_that_is_to_vote_hears_the_voter_that_has_left_the_view() {
    let mut counted = 0;
    for (moment, restarts) in (0..60).flat_map(|moment| [(moment, false), (moment, true)]) {
        let mut net = Net::founded(2);
        let steward = net.steward();
        let other = 3 - steward;
        net.input(steward, |node, now| node.handle_request(Request::Leave, 1, now));
        net.run(moment);
        net.cut(steward, other);
        if restarts {
            let disk = net.crash(other);
            net.restart(other, disk);
        }
        net.run(2 * TTL / MS);
        net.cut.clear();
        if !net.nodes[&NodeId(steward)].done.is_empty() {
            // The other one was silent before the view without the voter: then that was the last member.
            continue;
        }
        counted += 1;
        net.run(10 * TTL / MS);
        let one = &net.nodes[&NodeId(other)];
        assert!(one.node.is_complete(), "after {moment} ms: {:?}", one.node.status());
        assert_eq!(net.nodes[&NodeId(steward)].done, [(1, Ok(()))], "after {moment} ms");
    }
    assert!(counted > 10, "{counted}");
}

/// Members repeat their orders until they are answered. A copy that was under way meanwhile does not undo what another member ordered since.
#[test]
fn a_copy_of_an_order_that_was_carried_out_changes_nothing() {
    let mut net = Net::founded(3);
    let steward = net.steward();
    let others: Vec<u32> = (1..=3).filter(|id| *id != steward).collect();
    let class = |protocol: &str| {
        let (prefix, protocol) = ("p/".to_owned(), protocol.to_owned());
        Request::SetClass(crate::Class { prefix, protocol, options: Vec::new() })
    };
    net.input(others[0], |node, now| node.handle_request(class("central"), 1, now));
    net.input(others[0], |node, now| node.handle_timeout(now));
    let copies = net.control.clone();
    assert!(copies.iter().any(|(from, to, _)| (from.0, to.0) == (others[0], steward)));
    net.run(100);
    assert_eq!(net.nodes[&NodeId(others[0])].done, [(1, Ok(()))]);
    net.input(others[1], |node, now| node.handle_request(class("lamport"), 1, now));
    net.run(100);
    assert_eq!(net.nodes[&NodeId(others[1])].done, [(1, Ok(()))]);
    let epoch = net.nodes[&NodeId(steward)].node.epoch();
    net.control.extend(copies);
    net.run(100);
    assert_eq!(net.nodes[&NodeId(steward)].node.epoch(), epoch, "the class has not changed again");
    // The same once more is another order.
    net.input(others[0], |node, now| node.handle_request(class("central"), 2, now));
    net.run(100);
    assert!(net.nodes[&NodeId(steward)].node.epoch() > epoch);
}

/// A group that was recovered on a node that had been banned from it lists nobody before its first view. A node that has stored that it joins it
/// does not take it for a group of its own when it is started again.
#[test]
fn a_node_that_joins_a_recovered_group_and_is_started_again_goes_on_joining() {
    let mut net = Net::founded(3);
    net.run(20);
    let survivor = (1..=3).find(|id| *id != net.steward()).unwrap();
    let banned = Request::Evict { node: NodeId(survivor), ban: true };
    let steward = net.steward();
    net.input(steward, |node, now| node.handle_request(banned, 1, now));
    net.run(3 * TTL / MS);
    let others = (1..=3).filter(|id| *id != survivor);
    others.for_each(|id| {
        net.crash(id);
        net.seeds.remove(&NodeId(id));
    });
    let disk = net.crash(survivor);
    let (_, records) = crate::recover(&disk, NodeId(survivor)).unwrap();
    net.restart_as(survivor, records, Founding::Never);
    let config = net.config(9, Founding::Never, 1);
    net.start(config);
    net.run(TTL / MS / 2);
    let disk = net.crash(9);
    assert!(disk.contains_key(&keys::GROUP), "it has stored that it joins");
    net.restart_as(9, disk, Founding::Never);
    let waits_for = net.nodes[&NodeId(9)].node.status().waits_for.unwrap();
    assert!(!waits_for.contains("of its own"), "{waits_for}");
}

/// What the steward's log says about who came and went.
#[test]
fn the_steward_says_who_joins_and_leaves() {
    let mut net = Net::founded(3);
    let steward = net.steward();
    let said = |net: &mut Net| {
        let ordered = std::mem::take(&mut net.nodes.get_mut(&NodeId(steward)).unwrap().ordered);
        let changes = ordered.into_iter().filter(|ordered| ordered.stage == crate::Stage::Done);
        changes.map(|Ordered { by, action, what, .. }| format!("{action} {what}, {by}")).collect::<Vec<_>>()
    };
    assert_eq!(said(&mut net), [""; 0], "founders do not join");
    for id in [4, 5] {
        let config = net.config(id, Founding::Never, 1);
        net.start(config);
        net.run_until_open(3000);
        assert_eq!(said(&mut net), [format!("join {id} at host-{id}:1, {id}")]);
    }
    net.input(4, |node, now| node.handle_request(Request::Leave, 1, now));
    net.run(TTL / MS);
    assert_eq!(said(&mut net), ["leave 4 at host-4:1, 4"]);
    net.crash(4);
    // A voter that stops is expected back.
    let voter = (1..=3).find(|id| *id != steward).unwrap();
    net.input(voter, |node, now| node.handle_request(Request::Stop, 1, now));
    net.run(TTL / MS);
    let disk = net.crash(voter);
    net.restart(voter, disk);
    net.run_until_open(5 * TTL / MS);
    assert_eq!(said(&mut net), [""; 0]);
    let evict = Request::Evict { node: NodeId(5), ban: false };
    net.input(voter, |node, now| node.handle_request(evict, 9, now));
    net.run(2 * TTL / MS);
    assert_eq!(said(&mut net)[0], format!("leave 5 at host-5:1, {steward}"));
    // All others say nothing of it.
    let changes = |one: &One| one.ordered.iter().filter(|ordered| ordered.stage == crate::Stage::Done).count();
    assert!(net.nodes.iter().filter(|(id, _)| id.0 != steward).all(|(_, one)| changes(one) == 0));
}
