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
        let mut config = founder(1, 2);
        let (protocol, options) = (protocol.to_owned(), vec![option.to_owned()]);
        config.classes.push(Class { prefix: "x".to_owned(), protocol, options });
        assert!(Driven::new(config).is_err(), "{option}");
    }
}

#[test]
fn greetings_of_strangers_are_refused_and_change_nothing() {
    let mut nodes: [_; 3] = connected(|config| config.incarnation = number(2));
    nodes[0].handle_disconnect(NodeId(2));
    let hello = nodes[1].hello(NodeId(1)).unwrap();
    let wrong = |change: &dyn Fn(&mut Hello)| {
        let mut hello = hello.clone();
        change(&mut hello);
        hello
    };
    for (hello, why) in [
        (wrong(&|hello| hello.group = "other".into()), HelloError::Group("other".into())),
        (wrong(&|hello| hello.to = NodeId(3)), HelloError::Elsewhere(NodeId(3))),
        (wrong(&|hello| hello.from = NodeId(9)), HelloError::Unknown),
        (wrong(&|hello| hello.from = NodeId(1)), HelloError::Itself),
        (wrong(&|hello| hello.group_id ^= 1), HelloError::OtherGroup),
        (wrong(&|hello| hello.incarnation = number(1)), HelloError::Outdated),
        (wrong(&|hello| hello.received = 1), HelloError::Link(LinkError::Acknowledgement)),
    ] {
        assert_eq!(nodes[0].handle_hello(&hello, 0), Err(why.clone()));
        assert!(!why.to_string().contains('\n'));
        let status = nodes[0].members().remove(1);
        assert!(!status.connected, "{why:?}");
    }
    nodes[0].handle_hello(&hello, 0).unwrap();
    assert_eq!(nodes[0].hello(NodeId(1)), None, "nobody greets itself");
    assert_eq!(nodes[0].hello(NodeId(2)).unwrap().to_incarnation, Some(number(2)));
}

#[test]
fn bad_configurations_are_refused_when_the_node_is_made() {
    let refused = |change: &dyn Fn(&mut NodeConfig)| {
        let mut config = founder(1, 2);
        change(&mut config);
        Driven::new(config).expect_err("to be refused").0
    };
    assert!(refused(&|config| config.me = NodeId(0)).contains("a node's id is not 0"));
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

/// One that was banned has a certificate of its own name, and could ask under another.
#[test]
fn a_node_joins_under_the_name_of_its_greeting() {
    use crate::membership::testing::joins;
    let mut nodes: [_; 1] = connected(|_| {});
    let greeting = Hello { name: "b".into(), from: NodeId(9), to: NodeId(1), ..nodes[0].control_hello(None) };
    nodes[0].handle_hello(&greeting, 0).unwrap();
    let is_candidate = |node: &Driven| node.members().iter().any(|member| member.id == NodeId(9));
    for (name, is_admitted) in [("c", false), ("B", false), ("b.", false), ("b", true)] {
        nodes[0].handle_control(NodeId(9), &joins(greeting.group_id, NodeId(9), name)).unwrap();
        assert_eq!(is_candidate(&nodes[0]), is_admitted, "{name}");
    }
}

#[test]
fn a_founder_speaks_of_itself_by_the_name_of_its_greeting() {
    use crate::membership::testing::founds;
    let [mut node]: [_; 1] = group(|config| config.views.founding = Founding::Together(2));
    let greeting = Hello { name: "b".into(), from: NodeId(9), to: NodeId(1), ..node.control_hello(None) };
    node.handle_hello(&greeting, 0).unwrap();
    for (name, is_known) in [("c", false), ("B", false), ("b", true)] {
        node.handle_control(NodeId(9), &founds(NodeId(9), name)).unwrap();
        let waits_for = node.status().waits_for.unwrap();
        assert_eq!(waits_for.contains("host-9"), is_known, "{name}: {waits_for}");
    }
}
