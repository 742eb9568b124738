use hallpass_core::protocol::ricart_agrawala::{Classic, RicartAgrawala, Ring, Sequenced};
use hallpass_core::protocol::{Mutant, Mutation, Options, Protocol};
use hallpass_core::{NodeId, Ticks};
use hallpass_sim::{Limits, Order, Rig};

use super::*;

fn rig<P: Protocol>(nodes: u32, entries: u8, words: &str, order: Order, limits: Limits) -> Rig<P> {
    let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
    let mut options = Options::default().with(words).unwrap();
    options.nodes = ids.clone();
    options.tick = 1 as Ticks;
    let limits = Limits { entries: Some(entries), ..limits };
    Rig::new(&ids, P::parse(&options).unwrap(), order, limits).unwrap()
}

#[test]
fn quick() {
    let no = Limits { cancels: Some(0), ..Limits::default() };
    fn go<P: Protocol>(name: &str, nodes: u32, entries: u8, words: &str, order: Order, limits: Limits) {
        let rig = rig::<P>(nodes, entries, words, order, limits);
        let found = explore(&rig, &Effort { states_max: 150_000_000 }, |_| {});
        println!(
            "{name} {nodes}x{entries} {words} {order:?} {limits:?}: states {} generated {} depth {} complete {} {:?} {:.2}s {:.0}/s",
            found.states, found.generated, found.depth, found.complete,
            found.violation.as_ref().map(|(v, way)| (v.to_string(), way.len())), found.took.as_secs_f64(),
            found.generated as f64 / found.took.as_secs_f64()
        );
        if let Some((_, way)) = found.violation {
            println!("{}", hallpass_sim::trace::to_text(&hallpass_sim::trace::Trace { title: String::new(), nodes: rig.ids().to_vec(), scale: hallpass_sim::trace::Scale::Steps, events: rig.play(&way).0 }));
        }
    }
    let only = std::env::var("ONLY").unwrap_or_default();
    if only == "cancel" { return go::<RicartAgrawala>("ra", 3, 2, "", Order::Any, Limits { cancels: Some(1), ..no }) }
    if only == "implicit" { return go::<RicartAgrawala>("ra", 3, 2, "reply=implicit", Order::Any, no) }
    if only == "readers" { return go::<RicartAgrawala>("ra", 3, 2, "", Order::Any, Limits { readers: true, ..no }) }
    go::<RicartAgrawala>("ra", 3, 2, "", Order::Any, no);
    go::<RicartAgrawala>("ra", 3, 1, "", Order::Any, Limits { cancels: None, ..no });
    go::<RicartAgrawala>("ra", 2, 2, "", Order::Any, Limits { cancels: Some(1), ..no });
    go::<Classic>("classic", 2, 1, "", Order::Any, Limits { losses: 1, ..no });
    go::<Classic>("classic", 2, 1, "", Order::Any, Limits { crashes: 1, restarts: 1, ..no });
    go::<Classic>("classic", 2, 1, "insert=broadcast", Order::Any, Limits { joins: 1, ..no });
    go::<Classic>("classic", 2, 1, "hsn=ask", Order::Any, Limits { joins: 1, ..no });
    go::<Classic>("classic", 2, 1, "", Order::Any, Limits { joins: 1, leaves: 1, ..no });
    go::<Classic>("classic", 2, 1, "as-printed=T9", Order::Any, Limits { joins: 1, leaves: 1, ..no });
}
