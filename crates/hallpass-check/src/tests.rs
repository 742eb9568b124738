use hallpass_core::NodeId;
use hallpass_core::protocol::raymond::Raymond;
use hallpass_core::protocol::ricart_agrawala::{Classic, RicartAgrawala, Ring, Sequenced};
use hallpass_core::protocol::{Mutant, Mutation, Options, Protocol};
use hallpass_sim::{Limits, Order, Rig};

use super::*;

const WRITERS: Limits = Limits {
    entries: Some(2),
    last_entries: None,
    cancels: Some(0),
    readers: false,
    crashes: 0,
    restarts: 0,
    losses: 0,
    duplicates: 0,
    joins: 0,
    leaves: 0,
};

fn rig<P: Protocol>(nodes: u32, words: &str, order: Order, limits: Limits) -> Rig<P> {
    let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
    let mut options = Options::default().with(words).unwrap();
    options.nodes.clone_from(&ids);
    options.tick = 1;
    Rig::new(&ids, P::parse(&options).unwrap(), order, limits).unwrap()
}

fn clean<P: Protocol>(nodes: u32, words: &str, order: Order, limits: Limits) -> Exploration {
    let found = explore(&rig::<P>(nodes, words, order, limits), &Effort::default(), |_| {});
    assert!(found.complete, "{words}: incomplete");
    assert_eq!(found.violation, None, "{words}");
    found
}

/// A public reference: the same model in two other checkers has a longest shortest way of 37 states.
#[test]
fn three_nodes_two_entries_have_the_known_depth() {
    let found = clean::<RicartAgrawala>(3, "fence=off reply-number=false", Order::Any, WRITERS);
    assert_eq!(found.depth, 37);
    assert_eq!((found.states, found.generated), (65_799, 219_745));
}

#[test]
fn every_machine_holds_with_two_nodes() {
    for order in [Order::Any, Order::Fifo] {
        clean::<RicartAgrawala>(2, "", order, WRITERS);
        clean::<RicartAgrawala>(2, "request=broadcast release=broadcast", order, WRITERS);
        clean::<RicartAgrawala>(2, "reply=implicit", order, WRITERS);
        clean::<RicartAgrawala>(2, "increment=random:3", order, WRITERS);
        clean::<RicartAgrawala>(2, "clock=lamport", order, WRITERS);
        clean::<RicartAgrawala>(2, "", order, Limits { readers: true, ..WRITERS });
        clean::<RicartAgrawala>(2, "", order, Limits { cancels: None, ..WRITERS });
        clean::<Ring>(2, "ring=echo", order, WRITERS);
        clean::<Ring>(2, "ring=annotate", order, Limits { cancels: None, readers: true, ..WRITERS });
        clean::<Sequenced>(2, "", order, Limits { cancels: None, readers: true, ..WRITERS });
        clean::<Classic>(2, "", order, WRITERS);
    }
}

#[test]
fn messages_may_come_twice() {
    let twice = Limits { duplicates: 2, ..WRITERS };
    clean::<RicartAgrawala>(2, "", Order::Any, twice);
    clean::<Ring>(2, "ring=annotate", Order::Any, twice);
    clean::<Ring>(2, "ring=echo", Order::Any, twice);
    clean::<Classic>(2, "", Order::Any, Limits { entries: Some(1), ..twice });
}

#[test]
fn a_planted_bug_is_found_by_a_shortest_way() {
    let ids = [NodeId(1), NodeId(2)];
    let options = (Default::default(), Some(Mutation::NeverDefer));
    let rig = Rig::<Mutant<RicartAgrawala>>::new(&ids, options, Order::Any, WRITERS).unwrap();
    let found = explore(&rig, &Effort::default(), |_| {});
    let (violation, way) = found.violation.unwrap();
    assert_eq!(violation.property, "exclusion");
    assert_eq!(way.len(), 6, "two ask, two REQUESTs and two REPLYs arrive");
    let (_, again) = rig.play(&way);
    assert_eq!(again, Some(violation), "the way leads there again");
}

#[test]
fn a_lost_reply_is_a_deadlock() {
    let ids = [NodeId(1), NodeId(2)];
    let options = (Default::default(), Some(Mutation::Swallow("REPLY")));
    let rig = Rig::<Mutant<RicartAgrawala>>::new(&ids, options, Order::Any, WRITERS).unwrap();
    let (violation, _) = explore(&rig, &Effort::default(), |_| {}).violation.unwrap();
    assert_eq!(violation.property, "progress");
}

#[test]
fn the_effort_bounds_the_search() {
    let rig = rig::<RicartAgrawala>(3, "", Order::Any, WRITERS);
    let found = explore(&rig, &Effort { states_max: 1000, ..Effort::default() }, |_| {});
    assert!(!found.complete && found.violation.is_none());
    assert!(found.states < 1100);
}

#[test]
fn only_the_property_asked_for_is_reported() {
    let endless = Limits { entries: None, ..WRITERS };
    let rig = rig::<RicartAgrawala>(3, "numbers=modulo:4 fence=off", Order::Any, endless);
    let first = explore(&rig, &Effort::default(), |_| {}).violation.unwrap().0;
    assert_eq!(first.property, "progress", "the deadlock is nearer");
    let effort = Effort { property: Some("exclusion".to_owned()), ..Effort::default() };
    let found = explore(&rig, &effort, |_| {}).violation.unwrap().0;
    assert_eq!(found.property, "exclusion");
}

#[test]
fn what_a_protocol_cannot_do_is_refused() {
    let ids = [NodeId(1), NodeId(2)];
    let refused = |words: &str, limits: Limits| {
        let options = Options::default().with(words).unwrap();
        Rig::<RicartAgrawala>::new(&ids, RicartAgrawala::parse(&options).unwrap(), Order::Any, limits)
            .unwrap_err()
            .to_string()
    };
    assert!(refused("numbers=modulo:3", Limits { readers: true, ..WRITERS }).contains("T4"));
    assert!(refused("numbers=modulo:3", Limits { cancels: Some(1), ..WRITERS }).contains("T4"));
    assert!(refused("reply=implicit", Limits { losses: 1, ..WRITERS }).contains("T10"));
    assert!(refused("", Limits { joins: 1, ..WRITERS }).contains("membership=classic"));
}

#[test]
fn raymond_holds_on_every_small_tree() {
    for order in [Order::Any, Order::Fifo] {
        for words in ["tree=line", "tree=star:3", "piggyback=true", "greedy=true tree=line", "start=initialize"] {
            clean::<Raymond>(3, words, order, Limits { entries: Some(1), cancels: Some(1), readers: true, ..WRITERS });
        }
        let crash = Limits { entries: Some(1), crashes: 1, restarts: 1, ..WRITERS };
        clean::<Raymond>(2, "recovery=classic", order, Limits { cancels: None, ..crash });
        clean::<Raymond>(3, "recovery=classic tree=line greedy=true piggyback=true", order, crash);
    }
}

/// With two crashes neighbours may be down together and stay out, but nobody enters wrongly or with an old fence.
#[test]
fn raymond_is_safe_when_neighbours_fail_together_or_one_fails_while_it_recovers() {
    let twice = Limits { entries: Some(2), crashes: 2, restarts: 2, ..WRITERS };
    let rig = rig::<Raymond>(2, "recovery=classic fence-reserve=1", Order::Any, twice);
    for property in ["exclusion", "fence", "protocol"] {
        let effort = Effort { property: Some(property.to_owned()), states_max: 3_000_000 };
        let found = explore(&rig, &effort, |_| {});
        assert!(found.complete && found.violation.is_none(), "{property}: {:?} in {}", found.violation, found.states);
    }
    let (violation, _) = explore(&rig, &Effort::default(), |_| {}).violation.unwrap();
    assert_eq!(violation.property, "progress", "section 8.8: not in adjacent nodes");
}
