//! How long it takes to take a lock again whose permission is here: `cargo run --release -p hallpass --example hot`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hallpass::Node;

const ROUNDS: u32 = 1_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addresses = ["127.0.0.1:7641", "127.0.0.1:7642", "127.0.0.1:7643"];
    let mut nodes = Vec::new();
    for address in addresses {
        nodes.push(Node::builder().listen(address).peers(addresses).start().await?);
    }
    for node in &nodes {
        node.ready().await;
    }
    let map: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>> = Mutex::new(HashMap::new());
    for _ in 0..3 {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            let lock = Arc::clone(map.lock().unwrap().entry("invoices/42".to_owned()).or_default());
            drop(lock.lock_owned().await);
        }
        println!("named mutexes in this process: {:?} a round", begun.elapsed() / ROUNDS);
        let lock = nodes[0].lock("invoices/42");
        drop(lock.acquire().await?);
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            drop(lock.acquire().await?);
        }
        println!("hallpass, permission here:     {:?} a round", begun.elapsed() / ROUNDS);
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            drop(lock.acquire_shared().await?);
        }
        println!("the same, shared:              {:?} a round", begun.elapsed() / ROUNDS);
    }
    Ok(())
}
