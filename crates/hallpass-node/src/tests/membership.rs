//! Who is a member, of which group, and with which settings.

use super::*;

#[test]
fn what_only_shows_failures_is_for_the_laboratory() {
    let classes = [
        ("ricart-agrawala", "numbers=modulo:5"),
        ("ricart-agrawala", "fence=off"),
        ("ricart-agrawala", "reply=implicit"),
        ("ricart-agrawala", "membership=classic"),
        ("ricart-agrawala", "medium=sequenced"),
        ("ricart-agrawala", "as-printed=T1"),
        ("raymond", "recovery=classic"),
        ("raymond", "start=initialize"),
        ("maekawa", "failed=arrival"),
        ("token-ring", "idle=spin"),
        ("lamport-fifo", "links=any"),
        ("carvalho-roucairol", "cache-idle=1s"),
    ];
    for (protocol, option) in classes {
        let mut config = NodeConfig::new(NodeId(1), [NodeId(1), NodeId(2)]);
        let (protocol, options) = (protocol.to_owned(), vec![option.to_owned()]);
        config.classes.push(Class { prefix: "x".to_owned(), protocol, options });
        assert!(Driven::new(config).is_err(), "{option}");
    }
}

#[test]
fn greetings_of_strangers_are_refused_and_change_nothing() {
    let mut nodes: [_; 3] = group(|config| config.incarnation = number(2));
    let hello = nodes[1].hello(NodeId(1)).unwrap();
    let wrong = |change: &dyn Fn(&mut Hello)| {
        let mut hello = hello.clone();
        change(&mut hello);
        hello
    };
    for (hello, why) in [
        (wrong(&|hello| hello.group = "other".into()), HelloError::Group("other".into())),
        (wrong(&|hello| hello.to = NodeId(3)), HelloError::Member(NodeId(3))),
        (wrong(&|hello| hello.from = NodeId(9)), HelloError::Member(NodeId(9))),
        (wrong(&|hello| hello.from = NodeId(1)), HelloError::Member(NodeId(1))),
        (wrong(&|hello| hello.config_digest ^= 1), HelloError::Config),
        (wrong(&|hello| hello.to_incarnation = Some(number(1))), HelloError::RestartedHere),
        (wrong(&|hello| hello.received = 1), HelloError::Link(LinkError::Acknowledgement)),
    ] {
        assert_eq!(nodes[0].handle_hello(&hello, 0), Err(why.clone()));
        assert!(!why.to_string().contains('\n'));
        let status = nodes[0].members().remove(1);
        assert_eq!((status.incarnation, status.connected), (None, false), "{why:?}");
    }
    nodes[0].handle_hello(&hello, 0).unwrap();
    assert_eq!(nodes[0].handle_hello(&wrong(&|hello| hello.incarnation = number(3)), 0), Err(HelloError::Restarted));
    assert!(nodes[0].members()[1].connected, "the connection that stood stands");
    assert_eq!(nodes[0].hello(NodeId(1)), None, "nobody greets itself");
    assert_eq!(nodes[0].hello(NodeId(2)).unwrap().to_incarnation, Some(number(2)));
}

#[test]
fn members_and_classes_must_be_the_same_everywhere() {
    let digest = |change: &dyn Fn(&mut NodeConfig)| {
        let [node, _] = group(change);
        node.hello(NodeId(2)).unwrap().config_digest
    };
    let plain = digest(&|_| {});
    assert_eq!(plain, digest(&|config| config.members.reverse()), "the order of members says nothing");
    assert_eq!(plain, digest(&|config| (config.local_streak, config.name) = (9, "me".into())));
    let others = [
        digest(&|config| config.members.push(NodeId(3))),
        digest(&|config| config.classes = vec![class("a", "token", &[])]),
        digest(&|config| config.classes = vec![class("b", "token", &[])]),
        digest(&|config| config.classes = vec![class("a", "maekawa", &[])]),
        digest(&|config| config.classes = vec![class("a", "token", &["start=ricart-agrawala"])]),
    ];
    let different: std::collections::BTreeSet<u64> = others.iter().chain([&plain]).copied().collect();
    assert_eq!(different.len(), others.len() + 1);
}

#[test]
fn the_epoch_is_the_highest_incarnation_among_the_members() {
    let members = [NodeId(1), NodeId(2)];
    let mut nodes = [(1, 7), (2, 5)].map(|(me, incarnation)| {
        Driven::new(NodeConfig { incarnation: number(incarnation), ..NodeConfig::new(NodeId(me), members) }).unwrap()
    });
    connect(&mut nodes);
    assert_eq!((nodes[0].epoch(), nodes[1].epoch()), (Some(7), Some(7)));
    waits(&mut nodes[1], WRITE, 1);
    exchange(&mut nodes);
    assert!(matches!(nodes[1].answer(), Some((_, Outcome::Granted(grant))) if grant.fence.epoch() == 7));
}

/// Node 1 meets 2 and 3; node 2 is started anew and meets 3 first. Now 1 and 3 count different epochs.
#[test]
fn nodes_that_know_different_incarnations_of_a_third_reject_each_other() {
    let member = |me: u32, incarnation| {
        let mut config = NodeConfig::new(NodeId(me), [1, 2, 3].map(NodeId));
        (config.incarnation, config.boot_id) = (number(incarnation), u64::from(me));
        Driven::new(config).unwrap()
    };
    let meet = |one: &mut Driven, other: &mut Driven| {
        let (from_one, from_other) = (one.hello(other.id()).unwrap(), other.hello(one.id()).unwrap());
        (other.handle_hello(&from_one, 0), one.handle_hello(&from_other, 0))
    };
    let (mut one, mut two, mut three) = (member(1, 1), member(2, 1), member(3, 1));
    assert_eq!(meet(&mut one, &mut two), (Ok(()), Ok(())));
    let mut anew = member(2, 2);
    assert_eq!(meet(&mut anew, &mut three), (Ok(()), Ok(())));
    // They do not know yet: the first greeting is the last unsuspecting one.
    assert_eq!(meet(&mut one, &mut three), (Ok(()), Ok(())));
    assert!(one.is_complete() && three.is_complete() && one.epoch() != three.epoch());
    assert_eq!(meet(&mut one, &mut three), (Err(HelloError::RestartedBetween), Err(HelloError::RestartedBetween)));
}

#[test]
fn bad_configurations_are_refused_when_the_node_is_made() {
    let refused = |change: &dyn Fn(&mut NodeConfig)| {
        let mut config = NodeConfig::new(NodeId(1), [NodeId(1), NodeId(2)]);
        change(&mut config);
        Driven::new(config).expect_err("to be refused").0
    };
    assert!(refused(&|config| config.me = NodeId(3)).contains("node 3 is not in its own list"));
    assert!(refused(&|config| config.group = String::new()).contains("1 to 64 bytes"));
    assert!(refused(&|config| config.name = "x".repeat(65)).contains("1 to 64 bytes"));
    for (protocol, options, why) in [
        ("paxos", &[][..], "there is no protocol 'paxos'"),
        ("token", &["colour=red"], "'colour'"),
        ("carvalho-roucairol", &["as-printed=T15"], "laboratory only"),
        ("carvalho-roucairol", &["cache-idle=1s"], "whole node"),
        ("ricart-agrawala", &["membership=classic"], "laboratory only"),
        ("ricart-agrawala", &["reply=implicit"], "laboratory only"),
        ("ricart-agrawala", &["medium=sequenced"], "laboratory only"),
        ("ricart-agrawala", &["numbers=modulo:9"], "laboratory only"),
    ] {
        let text = refused(&|config| config.classes = vec![class("p/", protocol, options)]);
        assert!(text.starts_with("lock class 'p/': ") && text.contains(why), "{text}");
    }
}

#[test]
fn another_process_of_the_same_incarnation_is_told_apart() {
    let nodes: [_; 2] = connected(|_| {});
    let members = [NodeId(1), NodeId(2)];
    let mut config = NodeConfig::new(NodeId(1), members);
    config.boot_id = 7;
    let twin = Driven::new(config).unwrap();
    assert_eq!(nodes[1].check_hello(&twin.hello(NodeId(2)).unwrap()), Err(HelloError::Restarted));
    let mut config = NodeConfig::new(NodeId(1), members);
    config.agreed.push("10.0.0.1:7400".to_owned());
    let stranger = Driven::new(config).unwrap();
    assert_eq!(nodes[1].check_hello(&stranger.hello(NodeId(2)).unwrap()), Err(HelloError::Config));
}
