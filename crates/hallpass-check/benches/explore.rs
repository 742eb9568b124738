//! The speed of the explorer: `cargo bench -p hallpass-check`. The number that matters is `item/s`: generated states per
//! second on one core.

use divan::Bencher;
use divan::counter::ItemsCount;
use hallpass_check::{Effort, explore};
use hallpass_core::NodeId;
use hallpass_core::protocol::ricart_agrawala::{RicartAgrawala, Rules};
use hallpass_sim::{Limits, ModelConfig, Order};

fn main() {
    divan::main();
}

/// Ricart-Agrawala, 3 nodes x 2 entries.
#[divan::bench(args = [Order::Any, Order::Fifo], sample_count = 10)]
fn ricart_agrawala_3x2(bencher: Bencher<'_, '_>, order: Order) {
    let limits = Limits { entries: Some(2), cancels: Some(0), ..Limits::default() };
    let config =
        ModelConfig::<RicartAgrawala>::new(&[1, 2, 3].map(NodeId), Rules::default(), order, limits).expect("fits");
    let generated = explore(&config, &Effort::default(), |_| {}).generated;
    bencher.counter(ItemsCount::new(generated)).bench(|| explore(&config, &Effort::default(), |_| {}).states);
}
