//! Keys of voters without whom the group cannot go on.

use super::*;

fn key(of: u32) -> String {
    format!("key {of}")
}

/// Tells a node with which keys it and the others are connected.
fn show_keys(net: &mut Net, to: u32, members: u32) {
    for of in 1..=members {
        net.input(to, |node, _| node.set_keys(NodeId(of), vec![key(of)]));
    }
}

fn ban(net: &mut Net, by: u32, name: String, token: u64) {
    net.input(by, |node, now| node.handle_request(Request::Ban { name }, token, now));
}

fn is_refused(net: &Net, asked: u32, token: u64) -> bool {
    let done = &net.nodes[&NodeId(asked)].done;
    let refused = |result: &Result<(), RequestError>| {
        result.as_ref().is_err_and(|error| error.to_string().contains("without whose vote"))
    };
    done.iter().any(|(number, result)| *number == token && refused(result))
}

/// A member of an earlier release asks for it all the same.
#[test]
fn the_steward_does_not_ban_the_key_of_the_only_voter() {
    let mut net = Net::founded(2);
    let steward = net.steward();
    show_keys(&mut net, steward, 2);
    let other = 3 - steward;
    ban(&mut net, other, key(steward), 1);
    net.run(200);
    assert!(is_refused(&net, other, 1), "{:?}", net.nodes[&NodeId(other)].done);
    ban(&mut net, steward, key(other), 1);
    net.run(200);
    assert_eq!(net.nodes[&NodeId(steward)].done, [(1, Ok(()))], "it has no vote");
}

#[test]
fn of_three_voters_two_do_not_lose_their_keys_at_once() {
    let mut net = Net::founded(3);
    let steward = net.steward();
    show_keys(&mut net, steward, 3);
    let others: Vec<u32> = (1..=3).filter(|id| *id != steward).collect();
    ban(&mut net, steward, key(others[0]), 1);
    ban(&mut net, steward, key(others[1]), 2);
    net.run(200);
    assert!(is_refused(&net, steward, 2), "{:?}", net.nodes[&NodeId(steward)].done);
    assert!(net.nodes[&NodeId(steward)].done.contains(&(1, Ok(()))));
    // One that has a new key counts again, and a ban that stands is no reason to refuse it again.
    let new = vec![key(others[0]), "new".to_owned()];
    net.input(steward, |node, _| node.set_keys(NodeId(others[0]), new));
    for (token, of) in [(3, others[1]), (4, others[1])] {
        ban(&mut net, steward, key(of), token);
        net.run(200);
        assert!(net.nodes[&NodeId(steward)].done.contains(&(token, Ok(()))));
    }
}

/// Every member keeps all of them, and they are in every message that names the members.
#[test]
fn a_group_keeps_so_many_bans_and_says_when_there_is_no_room() {
    let mut net = Net::founded(2);
    let steward = net.steward();
    for number in 0..1_100 {
        ban(&mut net, steward, format!("old key {number}"), number);
    }
    net.run(200);
    let one = &net.nodes[&NodeId(steward)];
    let refused = |(_, result): &&(u64, Result<(), RequestError>)| {
        result.as_ref().is_err_and(|error| error.to_string().contains("at most 1024 bans"))
    };
    assert_eq!((one.node.banned().count(), one.done.iter().filter(refused).count()), (1024, 76));
    // One that stands is no reason to refuse it again, and one that was lifted makes room.
    ban(&mut net, steward, "old key 0".to_owned(), 2_000);
    let admit = Request::Admit { name: "old key 1".to_owned() };
    net.input(steward, |node, now| node.handle_request(admit, 2_001, now));
    net.run(200);
    ban(&mut net, steward, "new".to_owned(), 2_002);
    net.run(200);
    let done = &net.nodes[&NodeId(steward)].done;
    assert!((2_000..=2_002).all(|token| done.contains(&(token, Ok(())))), "{:?}", &done[done.len() - 3..]);
}
