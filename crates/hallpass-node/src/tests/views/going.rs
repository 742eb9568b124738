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
