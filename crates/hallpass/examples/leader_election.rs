//! Three nodes elect a leader, one after the other: `cargo run -p hallpass --example leader_election`.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use hallpass::{Node, Term};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addresses = free_addresses(3)?;
    let (report, mut reports) = mpsc::unbounded_channel();
    for (name, address) in ["a", "b", "c"].into_iter().zip(&addresses) {
        let node = Node::builder().name(name).listen(address).peers(&addresses).start().await?;
        tokio::spawn(run_for_leader(node, report.clone()));
    }

    // Until each of them has led.
    let (mut last, mut leaders) = (0, BTreeSet::new());
    while leaders.len() < addresses.len() {
        let (name, number) = reports.recv().await.ok_or("no node runs any more")?;
        println!("term {number}: {name} leads");
        if number <= last {
            return Err(format!("term {number} came after term {last}").into());
        }
        last = number;
        leaders.insert(name);
    }
    Ok(())
}

/// Leads whenever it is elected.
async fn run_for_leader(
    node: Node,
    report: mpsc::UnboundedSender<(String, u64)>,
) -> Result<(), hallpass::AcquireError> {
    loop {
        let term = node.elect("scheduler").await?;
        if report.send((node.name().to_owned(), term.number())).is_err() {
            return Ok(());
        }
        tokio::select! {
            () = lead(&term) => drop(term.resign().await),
            () = term.lost() => eprintln!("{}: another node may lead by now", node.name()),
        }
    }
}

/// What only a leader may do. The term's number goes along with every order, so that late ones can be refused.
async fn lead(term: &Term) {
    let _order = format!("order of term {}", term.number());
    tokio::time::sleep(Duration::from_millis(50)).await;
}

fn free_addresses(count: usize) -> std::io::Result<Vec<String>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}
