use hallpass_core::NodeId;
use hallpass_core::protocol::carvalho_roucairol::CarvalhoRoucairol;
use hallpass_core::protocol::central::Central;
use hallpass_core::protocol::lamport::Lamport;
use hallpass_core::protocol::lamport_fifo::LamportFifo;
use hallpass_core::protocol::maekawa::Maekawa;
use hallpass_core::protocol::naimi_trehel::NaimiTrehel;
use hallpass_core::protocol::raymond::Raymond;
use hallpass_core::protocol::ricart_agrawala::{Classic, RicartAgrawala, Ring, Sequenced};
use hallpass_core::protocol::suzuki_kasami::SuzukiKasami;
use hallpass_core::protocol::token::TokenAlgorithm;
use hallpass_core::protocol::token_ring::TokenRing;
use hallpass_core::protocol::{Mutant, Mutation, Options, Protocol};
use hallpass_sim::{Limits, ModelConfig, Order};

use super::*;

const WRITERS: Limits = Limits {
    entries: Some(2),
    last_entries: None,
    first_entries: None,
    tries: false,
    upgrades: false,
    reentry: false,
    cancels: Some(0),
    readers: false,
    drop_idle: false,
    crashes: 0,
    restarts: 0,
    losses: 0,
    duplicates: 0,
    joins: 0,
    leaves: 0,
};

fn config<P: Protocol>(nodes: u32, words: &str, order: Order, limits: Limits) -> ModelConfig<P> {
    let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
    let mut options = Options::default().with(words).unwrap();
    options.nodes.clone_from(&ids);
    options.tick = 1;
    ModelConfig::new(&ids, P::parse(&options).unwrap(), order, limits).unwrap()
}

fn clean<P: Protocol>(nodes: u32, words: &str, order: Order, limits: Limits) -> Exploration {
    let found = explore(&config::<P>(nodes, words, order, limits), &Effort::default(), |_| {});
    assert!(found.complete, "{words}: incomplete");
    assert_eq!(found.violation, None, "{words}");
    found
}

/// A public reference: in two other checkers the longest among the shortest paths of the same model has 37 states.
#[test]
fn three_nodes_two_entries_have_the_known_depth() {
    let found = clean::<RicartAgrawala>(3, "fence=off reply-number=false", Order::Any, WRITERS);
    assert_eq!(found.depth, 37);
    assert_eq!((found.states, found.generated), (65_799, 219_745));
}

#[test]
fn every_variant_holds_with_two_nodes() {
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
fn the_protocols_of_the_cmu_notes_hold_with_two_and_three_nodes() {
    let (any, once) = (Limits { cancels: None, ..WRITERS }, Limits { entries: Some(1), cancels: Some(1), ..WRITERS });
    for order in [Order::Any, Order::Fifo] {
        for queue in ["queue=fifo", "queue=round-robin", "queue=lowest-id"] {
            clean::<Central>(2, queue, order, any);
            clean::<Central>(3, queue, order, once);
        }
        clean::<Lamport>(2, "", order, any);
        clean::<Lamport>(3, "", order, once);
        clean::<TokenRing>(2, "", order, any);
        clean::<TokenRing>(3, "", order, once);
        clean::<TokenRing>(4, "", order, Limits { entries: Some(1), ..WRITERS });
    }
    clean::<LamportFifo>(2, "", Order::Fifo, any);
    clean::<LamportFifo>(3, "", Order::Fifo, once);
}

#[test]
fn cached_permissions_hold() {
    for order in [Order::Any, Order::Fifo] {
        clean::<CarvalhoRoucairol>(2, "", order, Limits { cancels: None, readers: true, ..WRITERS });
        clean::<CarvalhoRoucairol>(2, "cache-idle=1T", order, Limits { readers: true, ..WRITERS });
        clean::<CarvalhoRoucairol>(3, "", order, Limits { entries: Some(1), cancels: None, ..WRITERS });
        clean::<CarvalhoRoucairol>(3, "", order, Limits { entries: Some(1), readers: true, ..WRITERS });
    }
    clean::<CarvalhoRoucairol>(2, "", Order::Any, Limits { readers: true, duplicates: 1, ..WRITERS });
}

#[test]
fn tokens_and_quorums_hold_with_three_nodes() {
    let cancelled = Limits { entries: Some(1), cancels: None, readers: true, ..WRITERS };
    for order in [Order::Any, Order::Fifo] {
        clean::<TokenAlgorithm>(3, "", order, WRITERS);
        clean::<TokenAlgorithm>(3, "start=ricart-agrawala", order, cancelled);
        clean::<NaimiTrehel>(3, "", order, WRITERS);
        clean::<NaimiTrehel>(4, "", order, cancelled);
        clean::<SuzukiKasami>(3, "", order, cancelled);
        clean::<Maekawa>(3, "", order, cancelled);
    }
    let twice = Limits { entries: Some(1), duplicates: 1, ..WRITERS };
    clean::<TokenAlgorithm>(3, "start=ricart-agrawala", Order::Any, twice);
    clean::<SuzukiKasami>(3, "", Order::Any, twice);
    clean::<Maekawa>(3, "", Order::Any, twice);
}

/// For groups too large to explore: random steps to the end, with cancellations and duplicated messages.
fn walk_randomly<P: Protocol>(nodes: u32, words: &str, duplicates: u8) {
    let seeds = std::env::var("HALLPASS_WALKS").map_or(200, |text| text.parse().expect("HALLPASS_WALKS is a number"));
    let config = config::<P>(nodes, words, Order::Any, Limits { cancels: Some(6), duplicates, ..WRITERS });
    for seed in 1..=seeds {
        let mut path = Vec::new();
        let model = config.walk(seed, usize::MAX, |step, _, violation| {
            path.push(step);
            assert_eq!(violation, None, "{nodes} nodes {words}, seed {seed}: {:?}", config.replay(&path).0);
        });
        assert_eq!(model.check_end(&config), None, "{nodes} nodes {words}, seed {seed}");
    }
}

#[test]
fn tokens_and_quorums_hold_on_random_walks() {
    for nodes in [5, 7, 10] {
        walk_randomly::<TokenAlgorithm>(nodes, "", 3);
        walk_randomly::<TokenAlgorithm>(nodes, "start=ricart-agrawala", 3);
        walk_randomly::<NaimiTrehel>(nodes, "", 0);
        walk_randomly::<SuzukiKasami>(nodes, "", 3);
        walk_randomly::<Maekawa>(nodes, "", 3);
    }
}

#[test]
#[should_panic(expected = "wait")]
fn random_walks_notice_waiters_that_get_no_failed() {
    walk_randomly::<Maekawa>(10, "failed=arrival", 0);
}

#[test]
fn messages_may_be_duplicated() {
    let twice = Limits { duplicates: 2, ..WRITERS };
    clean::<RicartAgrawala>(2, "", Order::Any, twice);
    clean::<Ring>(2, "ring=annotate", Order::Any, twice);
    clean::<Ring>(2, "ring=echo", Order::Any, twice);
    clean::<Central>(2, "", Order::Any, twice);
    clean::<Lamport>(2, "", Order::Any, twice);
    clean::<LamportFifo>(2, "links=any", Order::Fifo, twice);
    clean::<TokenRing>(2, "", Order::Any, twice);
    clean::<TokenRing>(3, "", Order::Any, Limits { entries: Some(1), ..twice });
    clean::<Classic>(2, "", Order::Any, Limits { entries: Some(1), ..twice });
}

#[test]
fn dropping_moot_messages_changes_no_verdict() {
    fn compare<P: Protocol>(words: &str) {
        let limits = Limits { cancels: None, ..WRITERS };
        let dropping = explore(&config::<P>(2, words, Order::Any, limits), &Effort::default(), |_| {});
        let keeping = explore(&config::<P>(2, words, Order::Any, limits).keeping_moot(), &Effort::default(), |_| {});
        assert!(dropping.states < keeping.states, "{words}: nothing was moot");
        assert_eq!(dropping.violation, keeping.violation);
        assert_eq!(dropping.overtaken_max, keeping.overtaken_max);
    }
    compare::<RicartAgrawala>("");
    compare::<RicartAgrawala>("reply-number=false");
    compare::<Ring>("ring=annotate");
    compare::<Ring>("ring=echo");
}

#[test]
fn a_planted_bug_is_found_by_a_shortest_path() {
    let ids = [NodeId(1), NodeId(2)];
    let options = (Default::default(), Some(Mutation::NeverDefer));
    let config = ModelConfig::<Mutant<RicartAgrawala>>::new(&ids, options, Order::Any, WRITERS).unwrap();
    let found = explore(&config, &Effort::default(), |_| {});
    let (violation, path) = found.violation.unwrap();
    assert_eq!(violation.property, "exclusion");
    assert_eq!(path.len(), 6, "two ask, two REQUESTs and two REPLYs arrive");
    let (_, again) = config.replay(&path);
    assert_eq!(again, Some(violation), "the same path leads there again");
}

#[test]
fn a_deadlock_is_found_even_if_callers_may_cancel_or_nodes_may_crash() {
    for limits in [WRITERS, Limits { cancels: None, ..WRITERS }, Limits { crashes: 1, ..WRITERS }] {
        let config = config::<RicartAgrawala>(2, "as-printed=T2", Order::Any, limits);
        let (violation, _) = explore(&config, &Effort::default(), |_| {}).violation.unwrap();
        assert_eq!(violation.property, "progress", "{limits:?}");
    }
}

#[test]
fn a_node_may_have_the_id_zero() {
    let explored = |ids: [u32; 2]| {
        let config =
            ModelConfig::<RicartAgrawala>::new(&ids.map(NodeId), Default::default(), Order::Any, WRITERS).unwrap();
        explore(&config, &Effort::default(), |_| {}).states
    };
    assert_eq!(explored([0, 1]), explored([5, 9]));
}

#[test]
fn a_lost_reply_is_a_deadlock() {
    let ids = [NodeId(1), NodeId(2)];
    let options = (Default::default(), Some(Mutation::Swallow("REPLY")));
    let config = ModelConfig::<Mutant<RicartAgrawala>>::new(&ids, options, Order::Any, WRITERS).unwrap();
    let (violation, _) = explore(&config, &Effort::default(), |_| {}).violation.unwrap();
    assert_eq!(violation.property, "progress");
}

#[test]
fn a_shared_fence_outside_of_the_exclusive_ones_around_it_is_found() {
    let ids = [NodeId(1), NodeId(2)];
    let limits = Limits { readers: true, ..WRITERS };
    for mutation in [None, Some(Mutation::ReadersBehind), Some(Mutation::ReadersAhead)] {
        let options = (Default::default(), mutation);
        let config = ModelConfig::<Mutant<CarvalhoRoucairol>>::new(&ids, options, Order::Any, limits).unwrap();
        let found = explore(&config, &Effort::default(), |_| {}).violation.map(|(violation, _)| violation.property);
        assert_eq!(found, mutation.map(|_| "fence"), "{mutation:?}");
    }
}

#[test]
fn the_effort_bounds_the_search() {
    let config = config::<RicartAgrawala>(3, "", Order::Any, WRITERS);
    let found = explore(&config, &Effort { states_max: 1000, ..Effort::default() }, |_| {});
    assert!(!found.complete && found.violation.is_none());
    assert!(found.states < 1100);
}

#[test]
fn the_observer_of_progress_can_stop_the_search() {
    let config = config::<RicartAgrawala>(3, "", Order::Any, WRITERS);
    let mut seen = 0;
    let found = explore(&config, &Effort::default(), |progress| {
        seen = progress.states;
        if progress.states > 5000 { Flow::Stop } else { Flow::Continue }
    });
    assert!(!found.complete && found.violation.is_none());
    assert_eq!(found.states, seen);
    assert!(seen > 5000);
}

#[test]
fn only_the_requested_property_is_reported() {
    let endless = Limits { entries: None, ..WRITERS };
    let config = config::<RicartAgrawala>(3, "numbers=modulo:4 fence=off", Order::Any, endless);
    let first = explore(&config, &Effort::default(), |_| {}).violation.unwrap().0;
    assert_eq!(first.property, "progress", "the deadlock is nearer");
    let effort = Effort { property: Some("exclusion".to_owned()), ..Effort::default() };
    let found = explore(&config, &effort, |_| {}).violation.unwrap().0;
    assert_eq!(found.property, "exclusion");
}

#[test]
fn what_a_protocol_cannot_do_is_refused() {
    let ids = [NodeId(1), NodeId(2)];
    let refused = |words: &str, limits: Limits| {
        let options = Options::default().with(words).unwrap();
        ModelConfig::<RicartAgrawala>::new(&ids, RicartAgrawala::parse(&options).unwrap(), Order::Any, limits)
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

/// With two crashes, neighbours may be down together and never be served, but no entry is wrong or has an old fence.
#[test]
fn raymond_is_safe_when_neighbours_fail_together_or_one_fails_while_it_recovers() {
    let twice = Limits { entries: Some(2), crashes: 2, restarts: 2, ..WRITERS };
    let config = config::<Raymond>(2, "recovery=classic fence-reserve=1", Order::Any, twice);
    for property in ["exclusion", "fence", "protocol"] {
        let effort = Effort { property: Some(property.to_owned()), states_max: 3_000_000 };
        let found = explore(&config, &effort, |_| {});
        assert!(found.complete && found.violation.is_none(), "{property}: {:?} in {}", found.violation, found.states);
    }
    let (violation, _) = explore(&config, &Effort::default(), |_| {}).violation.unwrap();
    assert_eq!(violation.property, "progress", "section 8.8: not in adjacent nodes");
}
