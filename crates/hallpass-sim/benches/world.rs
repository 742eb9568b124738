//! The speed of the simulated world: `cargo bench -p hallpass-sim`.
//!
//! The number that matters is `item/s`: simulated events per second on one core. The lines below it count allocations:
//! a hundred times more entries must not allocate more often, because nothing is allocated in the steady state.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use hallpass_core::Protocol;
use hallpass_core::protocol::Options;
use hallpass_core::protocol::naimi_trehel::NaimiTrehel;
use hallpass_core::protocol::raymond::Raymond;
use hallpass_core::protocol::ricart_agrawala::{RicartAgrawala, Ring, Rules};
use hallpass_sim::{Config, Latency, World};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// Ricart-Agrawala, 10 nodes, saturated, with few and with many entries.
#[divan::bench(args = [1_000, 100_000])]
fn ricart_agrawala_10_saturated(bencher: Bencher<'_, '_>, entries: u64) {
    let config = Config { entries, ..Config::of_nodes(10) };
    let events = World::<RicartAgrawala>::new(&config, &Rules::default()).run().events;
    bencher
        .counter(ItemsCount::new(events))
        .bench(|| World::<RicartAgrawala>::new(&config, &Rules::default()).run().messages);
}

/// The same with latencies drawn from a range.
#[divan::bench]
fn ricart_agrawala_10_uniform(bencher: Bencher<'_, '_>) {
    let config = Config { entries: 100_000, latency: Latency::Uniform(500_000, 1_500_000), ..Config::of_nodes(10) };
    let events = World::<RicartAgrawala>::new(&config, &Rules::default()).run().events;
    bencher
        .counter(ItemsCount::new(events))
        .bench(|| World::<RicartAgrawala>::new(&config, &Rules::default()).run().messages);
}

/// A large group.
#[divan::bench]
fn ricart_agrawala_50_saturated(bencher: Bencher<'_, '_>) {
    let config = Config { entries: 10_000, ..Config::of_nodes(50) };
    let events = World::<RicartAgrawala>::new(&config, &Rules::default()).run().events;
    bencher
        .counter(ItemsCount::new(events))
        .bench(|| World::<RicartAgrawala>::new(&config, &Rules::default()).run().messages);
}

/// A very large group, with four values per node.
#[divan::bench]
fn naimi_trehel_1000_saturated(bencher: Bencher<'_, '_>) {
    let config = Config { entries: 100_000, ..Config::of_nodes(1000) };
    let events = World::<NaimiTrehel>::new(&config, &()).run().events;
    bencher.counter(ItemsCount::new(events)).bench(|| World::<NaimiTrehel>::new(&config, &()).run().messages);
}

/// A very large group, in which a node knows only its neighbours.
#[divan::bench]
fn raymond_1000_saturated(bencher: Bencher<'_, '_>) {
    let config = Config { entries: 100_000, ..Config::of_nodes(1000) };
    let rules = Raymond::parse(&Options::default()).expect("defaults fit");
    let events = World::<Raymond>::new(&config, &rules).run().events;
    bencher.counter(ItemsCount::new(events)).bench(|| World::<Raymond>::new(&config, &rules).run().messages);
}

/// The ring.
#[divan::bench]
fn ring_10_saturated(bencher: Bencher<'_, '_>) {
    let config = Config { entries: 100_000, ..Config::of_nodes(10) };
    let rules = Ring::parse(&Options::default()).expect("defaults fit");
    let events = World::<Ring>::new(&config, &rules).run().events;
    bencher.counter(ItemsCount::new(events)).bench(|| World::<Ring>::new(&config, &rules).run().messages);
}
