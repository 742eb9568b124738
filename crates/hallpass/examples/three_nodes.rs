//! Three nodes on loopback take turns to change a number: `cargo run -p hallpass --example three_nodes`.
//!
//! Reading the number, waiting and writing it back loses changes unless only one node does it at a time.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hallpass::Node;

const ROUNDS: u64 = 50;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addresses = free_addresses(3)?;
    let mut nodes = Vec::new();
    for (name, address) in ["a", "b", "c"].into_iter().zip(&addresses) {
        // In a real program each node is a process of its own, perhaps on a machine of its own.
        nodes.push(Node::builder().name(name).listen(address).peers(&addresses).start().await?);
    }

    let number = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for node in &nodes {
        tasks.push(tokio::spawn(add_slowly(node.clone(), Arc::clone(&number))));
    }
    for task in tasks {
        task.await??;
    }

    for node in &nodes {
        let status = node.status();
        println!("{}: held the lock {} times, sent {} messages", status.name, status.grants, status.messages);
    }
    let (found, expected) = (number.load(Ordering::Relaxed), 3 * ROUNDS);
    println!("the number is {found}, after {expected} additions");
    if found == expected { Ok(()) } else { Err("additions were lost".into()) }
}

async fn add_slowly(node: Node, number: Arc<AtomicU64>) -> Result<(), hallpass::AcquireError> {
    let lock = node.lock("the number");
    for _ in 0..ROUNDS {
        let _guard = lock.acquire().await?;
        let read = number.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        number.store(read + 1, Ordering::Relaxed);
    }
    Ok(())
}

fn free_addresses(count: usize) -> std::io::Result<Vec<String>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}
