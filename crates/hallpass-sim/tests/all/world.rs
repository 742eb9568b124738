//! The simulated world does what its options say.

use hallpass_core::protocol::carvalho_roucairol::CarvalhoRoucairol;
use hallpass_core::protocol::ricart_agrawala::{Classic, RicartAgrawala, Rules, Sequenced};
use hallpass_core::protocol::{Mutant, Mutation, Options};
use hallpass_core::{NodeId, Protocol};
use hallpass_sim::trace::{Event, EventKind, to_text};
use hallpass_sim::{Config, Faults, Latency, Load, Order, Report, World};

fn run(config: &Config) -> Report {
    World::<RicartAgrawala>::new(config, &Rules::default()).run()
}

fn run_classic(config: &Config) -> Report {
    let options = Classic::parse(&config.prepare(Options::default())).unwrap();
    World::<Classic>::new(config, &options).run()
}

fn events(report: &Report) -> &[Event] {
    &report.trace.as_ref().expect("the run keeps its trace").events
}

fn traced(nodes: u32, entries: u64) -> Config {
    Config { entries, keep_trace: true, ..Config::of_nodes(nodes) }
}

fn count(report: &Report, wanted: impl Fn(&EventKind) -> bool) -> usize {
    events(report).iter().filter(|event| wanted(&event.kind)).count()
}

#[test]
fn one_seed_determines_everything() {
    let config = |seed| Config {
        seed,
        latency: Latency::Exponential(1_000_000),
        readers: 0.4,
        load: Load::Rate(0.7),
        ..traced(6, 80)
    };
    let text = |seed| to_text(run(&config(seed)).trace.as_ref().unwrap());
    assert_eq!(text(5), text(5));
    assert_ne!(text(5), text(6));
}

#[test]
fn exactly_the_entries_asked_for_are_served_under_every_load() {
    for load in [Load::Saturated, Load::Light, Load::Rate(0.1), Load::Rate(5.0), Load::Hotspot(0.5)] {
        let report = run(&Config { load, ..traced(4, 37) });
        assert_eq!((report.entries, report.messages), (37, 37 * 6), "{load}");
        assert!(report.violations.is_empty());
    }
}

#[test]
fn light_never_asks_twice_in_a_row_and_never_overlaps() {
    let report = run(&Config { load: Load::Light, ..traced(4, 60) });
    let asks: Vec<NodeId> = events(&report)
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Request(_)))
        .map(|event| event.node)
        .collect();
    assert!(asks.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(report.max_overtakes, 0);
    assert_eq!(report.response_time.max, 2.0);
}

#[test]
fn a_hotspot_gets_its_share() {
    let report = run(&Config { load: Load::Hotspot(0.75), entries: 4000, ..Config::of_nodes(5) });
    let share = report.entries_by_node[0].1 as f64 / 4000.0;
    assert!((share - 0.75).abs() < 0.03, "{share}");
}

#[test]
fn saturated_asks_again_at_the_instant_of_the_release() {
    let report = run(&traced(3, 9));
    let all = events(&report);
    let exit = all.iter().position(|event| event.kind == EventKind::Exit).unwrap();
    let again = all[exit..].iter().find(|event| matches!(event.kind, EventKind::Request(_))).unwrap();
    assert_eq!((again.at, again.node), (all[exit].at, all[exit].node));
}

/// True if a message arrived before an earlier one on its link.
fn overtaking(report: &Report) -> bool {
    let mut newest = std::collections::BTreeMap::new();
    events(report).iter().any(|event| match event.kind {
        EventKind::Deliver { from, id, .. } => newest.insert((from, event.node), id).is_some_and(|before| before > id),
        _ => false,
    })
}

#[test]
fn fifo_links_keep_order_and_others_do_not() {
    let wild = Config { latency: Latency::Exponential(1_000_000), ..traced(4, 200) };
    assert!(overtaking(&run(&wild)));
    assert!(!overtaking(&run(&Config { order: Order::Fifo, ..wild })));
}

#[test]
fn all_nodes_receive_a_sequenced_medium_in_one_order() {
    let config = Config { latency: Latency::Exponential(1_000_000), ..traced(4, 40) };
    let report = World::<Sequenced>::new(&config, &()).run();
    let received = |node: u32| -> Vec<String> {
        let by_node = events(&report).iter().filter(|event| event.node == NodeId(node));
        by_node
            .filter_map(|event| {
                if let EventKind::Deliver { from, text, .. } = &event.kind {
                    Some(format!("{from} {text}"))
                } else {
                    None
                }
            })
            .collect()
    };
    assert!(received(1).len() == 80);
    assert!((2..=4).all(|node| received(node) == received(1)));
}

#[test]
fn lost_messages_are_lost_and_a_protocol_that_needs_them_waits() {
    let report = run(&Config { faults: Faults::parse("loss:0.05").unwrap(), ..traced(4, 100) });
    assert!(count(&report, |kind| matches!(kind, EventKind::Lose { .. })) > 0);
    assert_eq!(report.violations[0].property, "progress");
}

#[test]
fn repeated_messages_arrive_twice() {
    let report = run(&Config { faults: Faults::parse("dup:0.5").unwrap(), ..traced(3, 50) });
    let (sent, arrived) = (
        count(&report, |kind| matches!(kind, EventKind::Send { .. })),
        count(&report, |kind| matches!(kind, EventKind::Deliver { .. })),
    );
    assert!(arrived > sent + sent / 4, "{sent} sent, {arrived} arrived");
    assert!(report.violations.is_empty());
}

#[test]
fn a_crashed_node_receives_nothing() {
    let report = run_classic(&Config { faults: Faults::parse("crash:2@10ms").unwrap(), ..traced(4, 40) });
    let crash = events(&report).iter().position(|event| event.kind == EventKind::Crash).unwrap();
    let after = &events(&report)[crash + 1..];
    assert!(
        after.iter().filter(|event| event.node == NodeId(2)).all(|event| matches!(event.kind, EventKind::Lose { .. }))
    );
    assert!(report.violations.is_empty());
}

#[test]
fn a_paused_node_does_nothing_and_catches_up() {
    let report = run(&Config { faults: Faults::parse("pause:3@5ms..40ms").unwrap(), ..traced(3, 30) });
    let during_pause =
        events(&report).iter().filter(|event| event.node == NodeId(3) && event.at > 5_000_000 && event.at < 40_000_000);
    assert_eq!(during_pause.count(), 0);
    assert_eq!(report.entries, 30);
    assert!(report.violations.is_empty(), "to a protocol without timeouts a pause is only a delay");
}

#[test]
fn a_partition_loses_messages_both_ways_until_it_heals() {
    let report = run_classic(&Config { faults: Faults::parse("partition:1+2@10ms..50ms").unwrap(), ..traced(4, 60) });
    let side = |node: NodeId| node.0 <= 2;
    let crossed = events(&report).iter().any(|event| match event.kind {
        EventKind::Deliver { from, .. } => {
            side(from) != side(event.node) && event.at > 10_000_000 && event.at < 50_000_000
        }
        _ => false,
    });
    assert!(!crossed);
    assert!(count(&report, |kind| matches!(kind, EventKind::Network(_))) == 2);
}

#[test]
fn readers_overlap_and_writers_do_not() {
    let report = run(&Config { readers: 1.0, hold: 50_000_000, ..traced(5, 20) });
    let mut inside = 0;
    let most = events(&report)
        .iter()
        .map(|event| match event.kind {
            EventKind::Enter { .. } => {
                inside += 1;
                inside
            }
            EventKind::Exit => {
                inside -= 1;
                inside
            }
            _ => inside,
        })
        .max();
    assert_eq!(most, Some(5));
}

#[test]
fn delays_are_measured_in_t() {
    let slow = Config { latency: Latency::Constant(250_000_000), hold: 0, load: Load::Light, ..traced(3, 20) };
    assert_eq!(run(&slow).response_time.mean, 2.0);
    let busy = run(&Config { load: Load::Saturated, ..slow });
    assert_eq!(busy.sync_delay.max, 1.0);
}

#[test]
fn a_shared_fence_outside_of_the_exclusive_ones_around_it_is_noticed() {
    let config = Config { readers: 0.5, ..Config::of_nodes(4) };
    let run = |mutation| World::<Mutant<CarvalhoRoucairol>>::new(&config, &(Default::default(), mutation)).run();
    assert!(run(None).violations.is_empty());
    for mutation in [Mutation::ReadersBehind, Mutation::ReadersAhead] {
        let report = run(Some(mutation));
        assert!(report.violations.iter().any(|violation| violation.property == "fence"), "{mutation:?}");
    }
}
